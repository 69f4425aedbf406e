/* embedding.c: POSITION, BIAS, and the gradients of tables and biases: EMBEDDING_DW, POSITION_DW,
 * BIAS_DW. EMBEDDING is in embedding_split.c. */
#include "kernels/cpu/vector/isa.h"
#include "kernels/cpu/vector/vector.h"

/* dtable[tokens[r]] += dy[r] in rising order of r: the order fixes the bits of a token that occurs
 * twice. The runtime checks tokens when it reads them; a token out of range adds nothing. */
void PEN_NAME(embedding_dw)(const struct pen_call *call) {
  const stored *dy = call->operand[0];
  const int32_t *tokens = call->operand[1];
  float *dtable = call->operand[2];
  const size_t rows = (size_t)call->dim[0], width = (size_t)call->dim[1];
  for (size_t r = 0; r < rows; r++) {
    if (tokens[r] < 0 || tokens[r] >= call->dim[2]) continue;
    float *to = dtable + (size_t)tokens[r] * width;
    for (size_t i = 0; i < width; i += LANES) {
      const size_t n = width - i;
      store_n(to + i, load_n(to + i, n) + load_n(dy + r * width + i, n), n);
    }
  }
}

/* The position of a row's token in its document. */
static size_t position_of(const int32_t *starts, size_t row, size_t sequence) {
  return row % sequence - (starts ? (size_t)starts[row] : 0);
}

/* y[r] = x[r] + table[position]; the rows of a sequence are adjacent */
void PEN_NAME(position)(const struct pen_call *call) {
  const stored *x = call->operand[0];
  const float *table = call->operand[1];
  const int32_t *starts = call->operand[2];
  stored *y = call->operand[3];
  const size_t rows = (size_t)call->dim[0], width = (size_t)call->dim[1],
               sequence = (size_t)call->dim[2];
  for (size_t r = 0; r < rows; r++)
    for (size_t i = 0; i < width; i += LANES) {
      const size_t n = width - i, at = r * width + i;
      store_n(y + at,
              load_n(x + at, n) + load_n(table + position_of(starts, r, sequence) * width + i, n),
              n);
    }
}

void PEN_NAME(position_dw)(const struct pen_call *call) {
  const stored *dy = call->operand[0];
  const int32_t *starts = call->operand[1];
  float *dtable = call->operand[2];
  const size_t rows = (size_t)call->dim[0], width = (size_t)call->dim[1],
               sequence = (size_t)call->dim[2];
  for (size_t r = 0; r < rows; r++)
    for (size_t i = 0; i < width; i += LANES) {
      const size_t n = width - i;
      float *to = dtable + position_of(starts, r, sequence) * width + i;
      store_n(to, load_n(to, n) + load_n(dy + r * width + i, n), n);
    }
}

/* y = x + bias, on every row */
void PEN_NAME(bias)(const struct pen_call *call) {
  const stored *x = call->operand[0];
  const float *bias = call->operand[1];
  stored *y = call->operand[2];
  const size_t rows = (size_t)call->dim[0], width = (size_t)call->dim[1];
  for (size_t r = 0; r < rows; r++)
    for (size_t i = 0; i < width; i += LANES) {
      const size_t n = width - i, at = r * width + i;
      store_n(y + at, load_n(x + at, n) + load_n(bias + i, n), n);
    }
}

/* dbias += the sum of dy over the rows, a vector of columns at a time */
void PEN_NAME(bias_dw)(const struct pen_call *call) {
  const stored *dy = call->operand[0];
  float *dbias = call->operand[1];
  const size_t rows = (size_t)call->dim[0], width = (size_t)call->dim[1];
  for (size_t i = 0; i < width; i += LANES) {
    const size_t n = width - i;
    vf sum = {0};
    for (size_t r = 0; r < rows; r++) sum += load_n(dy + r * width + i, n);
    store_n(dbias + i, load_n(dbias + i, n) + sum, n);
  }
}
