/* row_sum.c: ROW_SUM: the lanes of a row's vectors are added one by one, then the lanes. */
#include "kernels/cpu/vector/isa.h"
#include "kernels/cpu/vector/vector.h"

void PEN_NAME(row_sum)(const struct pen_call *call) {
  const size_t width = (size_t)call->dim[1];
  const stored *x = call->operand[0];
  stored *y = call->operand[1];
  for (int64_t r = 0; r < call->dim[0]; r++, x += width) {
    vf sum = {0};
    for (size_t i = 0; i < width; i += LANES) sum += load_n(x + i, width - i);
    store_n(y + r, splat(lanes_sum(sum)), 1);
  }
}
