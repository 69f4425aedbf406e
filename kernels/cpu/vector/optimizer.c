/* optimizer.c: pen_sum_arrays for gradients of replicas, pen_sum_squares and pen_max_abs for the
 * gradient's norm, and pen_adamw_step. */
#include <math.h>

#include "kernels/cpu/vector/isa.h"
#include "kernels/cpu/vector/vector.h"

enum {
  SUMS = 16
}; /* running sums of a block, whatever the vector's width: every instruction set gives the same
      bits */

/* One block: element i goes to sum i mod SUMS (a square of an f32 is exact in f64), then the upper
 * half on the lower. */
static double block_sum_squares(const float *x, size_t count) {
  double sum[SUMS] = {0};
  size_t i = 0;
  for (; i + SUMS <= count; i += SUMS)
    for (size_t k = 0; k < SUMS; k++) sum[k] += (double)x[i + k] * (double)x[i + k];
  for (size_t k = 0; i < count; i++, k++) sum[k] += (double)x[i] * (double)x[i];
  for (size_t half = SUMS / 2; half; half /= 2)
    for (size_t k = 0; k < half; k++) sum[k] += sum[k + half];
  return sum[0];
}

double PEN_NAME(sum_squares)(const float *x, size_t count) {
  double sum = 0;
  for (size_t i = 0; i < count; i += PEN_NORM_BLOCK)
    sum += block_sum_squares(x + i, count - i < PEN_NORM_BLOCK ? count - i : PEN_NORM_BLOCK);
  return sum;
}

/* Without their signs, floats are ordered as their bits are, and a NaN stands above all: whole
 * numbers are compared. */
double PEN_NAME(max_abs)(const float *x, size_t count) {
  int32_t most = 0;
  for (size_t i = 0; i < count; i++) {
    int32_t bits;
    memcpy(&bits, x + i, sizeof bits);
    bits &= INT32_MAX;
    most = bits > most ? bits : most;
  }
  float magnitude;
  memcpy(&magnitude, &most, sizeof magnitude);
  return (double)magnitude;
}

void PEN_NAME(sum_arrays)(float *y, const float *const *x, size_t arrays, size_t count) {
  for (size_t i = 0; i < count; i += LANES) {
    const size_t n = count - i;
    vf sum = load_n(x[0] + i, n);
    for (size_t k = 1; k < arrays; k++) sum += load_n(x[k] + i, n);
    store_n(y + i, sum, n);
  }
}

/* The settings as the loop wants them: what is the same for all elements is computed once, in f64,
 * and rounded. */
struct adamw_factors {
  float scale, beta1, rest1, beta2, rest2, keep, rate, correction, epsilon;
};

static struct adamw_factors settle(const struct pen_adamw *s) {
  return (struct adamw_factors){
      .scale = (float)s->gradient_scale,
      .beta1 = (float)s->beta1,
      .rest1 = (float)(1 - s->beta1),
      .beta2 = (float)s->beta2,
      .rest2 = (float)(1 - s->beta2),
      .keep = (float)(1 - s->learning_rate * s->weight_decay),
      .rate = (float)(-s->learning_rate / s->correction1),
      .correction = (float)(1 / s->correction2),
      .epsilon = (float)s->epsilon,
  };
}

/* AdamW (Loshchilov and Hutter 2019); see kernels.h. Four streams in, four out, once. */
void PEN_NAME(adamw_step)(float *parameter, float *gradient, float *exp_avg, float *exp_avg_sq,
                          size_t count, const struct pen_adamw *settings) {
  const struct adamw_factors s = settle(settings);
  for (size_t i = 0; i < count; i += LANES) {
    const size_t n = count - i;
    const vf old_p = load_n(parameter + i, n), old_m = load_n(exp_avg + i, n),
             old_v = load_n(exp_avg_sq + i, n);
    vf g = load_n(gradient + i, n) * s.scale;
    vf m = madd(old_m, splat(s.beta1), g * s.rest1);
    vf v = madd(old_v, splat(s.beta2), g * g * s.rest2);
    vf divisor = square_root(v * s.correction) + s.epsilon;
    vf p = madd(m / divisor, splat(s.rate), old_p * s.keep);
    const vi good =
        (v < splat(INFINITY)) &
        (divisor >
         splat(0.0f)); /* else g is not finite, or its square is not; or all is 0, epsilon too */
    store_n(parameter + i, choose(good, p, old_p), n);
    store_n(exp_avg + i, choose(good, m, old_m), n);
    store_n(exp_avg_sq + i, choose(good, v, old_v), n);
    store_n(gradient + i, splat(0.0f), n);
  }
}
