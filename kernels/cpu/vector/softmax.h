/* softmax.h: the maximum and the sum of exponentials of a row, for the losses. */
#ifndef PEN_SOFTMAX_H
#define PEN_SOFTMAX_H

#include <math.h>

#include "kernels/cpu/vector/functions.h"

enum {
  SUM_BLOCK = 1024
}; /* elements summed in f32 before the sum is added to an f64: keeps a large vocabulary exact */

/* The maximum of a row. It may ignore a NaN, which reappears in the sum of exponentials. */
inline_always float row_maximum(const stored *x, size_t count) {
  vf most[4];
  for (int k = 0; k < 4; k++) most[k] = splat(-INFINITY);
  size_t i = 0;
  for (; i + 4 * LANES <= count; i += 4 * LANES)
    for (int k = 0; k < 4; k++) most[k] = maximum(load(x + i + k * LANES), most[k]);
  for (; i + LANES <= count; i += LANES) most[0] = maximum(load(x + i), most[0]);
  float result = lanes_maximum(maximum(maximum(most[0], most[1]), maximum(most[2], most[3])));
  for (; i < count; i++) result = widen(x[i]) > result ? widen(x[i]) : result;
  return result;
}

/* The sum of e^(x - shift) over at most SUM_BLOCK elements; stores the exponentials in e, which may
 * be x or null. */
inline_always float block_exponentials(float *e, const stored *x, size_t count, float shift) {
  vf sum[2] = {0};
  size_t i = 0;
  for (; i + 2 * LANES <= count; i += 2 * LANES)
    for (int k = 0; k < 2; k++) {
      vf v = exponential(load(x + i + k * LANES) - shift);
      sum[k] += v;
      if (e) store(e + i + k * LANES, v);
    }
  for (; i < count; i += LANES) {
    const size_t n = count - i;
    vf v = exponential(load_n(x + i, n) - shift);
    float kept[LANES] = {0};
    store_n(kept, v, n);
    sum[0] += load(kept);
    if (e) store_n(e + i, v, n);
  }
  return lanes_sum(sum[0] + sum[1]);
}

/* The sum of e^(x - shift) over a row, in f64; stores the exponentials in e, which may be x or
 * null. */
inline_always double row_exponentials(float *e, const stored *x, size_t count, float shift) {
  double sum = 0;
  for (size_t i = 0; i < count; i += SUM_BLOCK) {
    const size_t n = count - i < SUM_BLOCK ? count - i : SUM_BLOCK;
    sum += (double)block_exponentials(e ? e + i : NULL, x + i, n, shift);
  }
  return sum;
}

#endif
