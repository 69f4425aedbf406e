/* adamw_correction.h: the bias correction of AdamW, for the CPU and for CUDA, with the same bits.
 */
#ifndef PEN_ADAMW_CORRECTION_H
#define PEN_ADAMW_CORRECTION_H

#include <math.h>
#include <stdint.h>

#if defined __CUDACC__ || defined PEN_EMULATED
#define PEN_ADAMW_DEVICE __device__
#else
#define PEN_ADAMW_DEVICE
#endif

/* A number of 106 bits: high is the sum, rounded. */
struct pen_double_double {
  double high, low;
};

/* No product is left to the compiler, which might fuse it with a sum. */
static PEN_ADAMW_DEVICE inline struct pen_double_double pen_double_double_product(
    struct pen_double_double a, struct pen_double_double b) {
  const double high = fma(a.high, b.high, 0.0), rest = fma(a.high, b.high, -high),
               low = fma(a.low, b.high, fma(a.high, b.low, rest)), sum = high + low;
  const struct pen_double_double product = {sum, low - (sum - high)};
  return product;
}

/* 1 - beta^updates, for the update of a tensor with that number, from 1. The power depends on the
 * number alone, so a run that is resumed has the bits of one that went on; libraries' pow() differ
 * in the last bit. */
static PEN_ADAMW_DEVICE inline double pen_adamw_correction(double beta, uint64_t updates) {
  struct pen_double_double power = {1, 0}, square = {beta, 0};
  for (; updates > 0; updates >>= 1) {
    if (updates & 1) power = pen_double_double_product(power, square);
    square = pen_double_double_product(square, square);
  }
  return 1 - power.high;
}

#endif
