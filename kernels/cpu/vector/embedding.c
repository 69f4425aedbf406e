/* embedding.c: EMBEDDING_DW, the gradient of a table look-up (the look-up itself is in tables.c). */
#include "kernels/cpu/vector/isa.h"
#include "kernels/cpu/vector/vector.h"

/* dtable[tokens[r]] += dy[r] in rising order of r, which fixes the bits where a token comes twice.
 * The runtime checks tokens as it reads them; one out of range adds nothing. */
void PEN_NAME(embedding_dw)(const struct pen_call *call) {
  const float *dy = call->operand[0];
  const int32_t *tokens = call->operand[1];
  float *dtable = call->operand[2];
  const size_t rows = (size_t)call->dim[0], width = (size_t)call->dim[1];
  for (size_t r = 0; r < rows; r++) {
    if (tokens[r] < 0 || tokens[r] >= call->dim[2])
      continue;
    float *to = dtable + (size_t)tokens[r] * width;
    for (size_t i = 0; i < width; i += LANES) {
      const size_t n = width - i;
      store_n(to + i, load_n(to + i, n) + load_n(dy + r * width + i, n), n);
    }
  }
}
