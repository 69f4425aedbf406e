/* sum_tokens.c: SUM_TOKENS and REPEAT_TOKENS, each the other's gradient: of each sequence the
 * tokens are added one by one, in rising order. */
#include "kernels/cpu/vector/isa.h"
#include "kernels/cpu/vector/vector.h"

static float divisor_of(const struct pen_call *call) {
  return call->dim[3] ? (float)call->dim[1] : 1.0f;
}

void PEN_NAME(sum_tokens)(const struct pen_call *call) {
  const size_t sequence = (size_t)call->dim[1], width = (size_t)call->dim[2];
  const stored *x = call->operand[0];
  stored *y = call->operand[1];
  const vf divisor = splat(divisor_of(call));
  for (int64_t b = 0; b < call->dim[0]; b++, x += sequence * width, y += width)
    for (size_t i = 0; i < width; i += LANES) {
      vf sum = {0};
      for (size_t t = 0; t < sequence; t++) sum += load_n(x + t * width + i, width - i);
      store_n(y + i, sum / divisor, width - i);
    }
}

void PEN_NAME(repeat_tokens)(const struct pen_call *call) {
  const size_t width = (size_t)call->dim[2];
  const stored *x = call->operand[0];
  stored *y = call->operand[1];
  const vf divisor = splat(divisor_of(call));
  for (int64_t b = 0; b < call->dim[0]; b++, x += width)
    for (int64_t t = 0; t < call->dim[1]; t++, y += width)
      for (size_t i = 0; i < width; i += LANES)
        store_n(y + i, load_n(x + i, width - i) / divisor, width - i);
}
