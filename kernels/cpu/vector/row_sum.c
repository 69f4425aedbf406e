/* row_sum.c: ROW_SUM, ROW_MEAN and their gradients, and GROUP_SUM: the vectors of a row are added
 * one by one, then their lanes. */
#include "kernels/cpu/vector/isa.h"
#include "kernels/cpu/vector/vector.h"

static void sum_rows(const struct pen_call *call, float divisor) {
  const size_t width = (size_t)call->dim[1];
  const stored *x = call->operand[0];
  stored *y = call->operand[1];
  for (int64_t r = 0; r < call->dim[0]; r++, x += width) {
    vf sum = {0};
    for (size_t i = 0; i < width; i += LANES) sum += load_n(x + i, width - i);
    store_n(y + r, splat(lanes_sum(sum) / divisor), 1);
  }
}

static void fill_rows(const struct pen_call *call, float divisor) {
  const size_t width = (size_t)call->dim[1];
  const stored *dy = call->operand[0];
  stored *dx = call->operand[1];
  for (int64_t r = 0; r < call->dim[0]; r++, dx += width) {
    const vf d = splat(widen(dy[r]) / divisor);
    for (size_t i = 0; i < width; i += LANES) store_n(dx + i, d, width - i);
  }
}

void PEN_NAME(row_sum)(const struct pen_call *call) { sum_rows(call, 1); }
void PEN_NAME(row_sum_dx)(const struct pen_call *call) { fill_rows(call, 1); }
void PEN_NAME(row_mean)(const struct pen_call *call) { sum_rows(call, (float)call->dim[1]); }
void PEN_NAME(row_mean_dx)(const struct pen_call *call) { fill_rows(call, (float)call->dim[1]); }

void PEN_NAME(group_sum)(const struct pen_call *call) {
  const size_t run = (size_t)call->dim[1];
  const stored *x = call->operand[0];
  stored *y = call->operand[1];
  for (int64_t g = 0; g < call->dim[0]; g++, x += run, y += run) {
    vf sum = {0};
    for (size_t i = 0; i < run; i += LANES) sum += load_n(x + i, run - i);
    const vf total = splat(lanes_sum(sum));
    for (size_t i = 0; i < run; i += LANES) store_n(y + i, total, run - i);
  }
}
