/* optimizer.c: pen_sum_arrays(), pen_sum_squares(), pen_max_abs(), pen_adamw_step() and
 * pen_sgd_step() (kernels.h), and what pen_muon_step() does element by element.
 */
#include <math.h>

#include "kernels/cpu/vector/isa.h"
#include "kernels/cpu/vector/vector.h"

enum {
  SUMS = 16
}; /* partial sums of a block, for every vector width: all instruction sets give the same bits */

/* One block: element i is added to sum i mod SUMS (a square of an f32 is exact in f64); then the
 * upper half is added to the lower, repeatedly. */
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

/* Without the sign bit, floats are ordered as their bits, and NaN is above all: compares integers.
 */
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

void PEN_NAME(sum_arrays)(float *y, const float *const *x, size_t arrays, size_t first,
                          size_t past) {
  for (size_t i = first; i < past; i += LANES) {
    const size_t n = past - i;
    vf sum = load_n(x[0] + i, n);
    for (size_t k = 1; k < arrays; k++) sum += load_n(x[k] + i, n);
    store_n(y + i, sum, n);
  }
}

/* What is the same for all elements, computed once in f64 and rounded. */
struct adamw_factors {
  float scale, beta1, rest1, beta2, rest2, keep, rate, correction, epsilon;
};

static struct adamw_factors adamw_factors_of(const struct pen_adamw *s,
                                             const double correction[2]) {
  return (struct adamw_factors){
      .scale = (float)s->gradient_scale,
      .beta1 = (float)s->beta1,
      .rest1 = (float)(1 - s->beta1),
      .beta2 = (float)s->beta2,
      .rest2 = (float)(1 - s->beta2),
      .keep = (float)(1 - s->learning_rate * s->weight_decay),
      .rate = (float)(-s->learning_rate / correction[0]),
      .correction = (float)(1 / correction[1]),
      .epsilon = (float)s->epsilon,
  };
}

/* AdamW (Loshchilov and Hutter 2019); see kernels.h. Each element is loaded and stored once. */
void PEN_NAME(adamw_step)(float *parameter, float *gradient, float *exp_avg, float *exp_avg_sq,
                          size_t count, const struct pen_adamw *settings,
                          const double correction[2]) {
  const struct adamw_factors s = adamw_factors_of(settings, correction);
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
         splat(0.0f)); /* false: g or its square is not finite, or all terms and epsilon are 0 */
    store_n(parameter + i, choose(good, p, old_p), n);
    store_n(exp_avg + i, choose(good, m, old_m), n);
    store_n(exp_avg_sq + i, choose(good, v, old_v), n);
    store_n(gradient + i, splat(0.0f), n);
  }
}

/* SGD with momentum (Sutskever et al. 2013, as PyTorch has it); see kernels.h. */
void PEN_NAME(sgd_step)(float *parameter, float *gradient, float *buffer, size_t count,
                        const struct pen_sgd *s) {
  const float scale = (float)s->gradient_scale, rate = (float)-s->learning_rate,
              keep = (float)(1 - s->learning_rate * s->weight_decay);
  const vf momentum = splat((float)s->momentum);
  for (size_t i = 0; i < count; i += LANES) {
    const size_t n = count - i;
    const vf old_p = load_n(parameter + i, n), g = load_n(gradient + i, n) * scale,
             old_b = buffer ? load_n(buffer + i, n) : splat(0.0f), b = madd(old_b, momentum, g),
             u = s->nesterov ? madd(b, momentum, g) : b;
    const vi good = (u < splat(INFINITY)) & (u > splat(-INFINITY));
    store_n(parameter + i, choose(good, madd(u, splat(rate), old_p * keep), old_p), n);
    if (buffer) store_n(buffer + i, choose(good, b, old_b), n);
    store_n(gradient + i, splat(0.0f), n);
  }
}

/* g becomes u, which counts as 0 where it is not finite. */
void PEN_NAME(momentum_step)(float *gradient, float *buffer, size_t count,
                             const struct pen_muon *s) {
  const float scale = (float)s->gradient_scale;
  const vf momentum = splat((float)s->momentum);
  for (size_t i = 0; i < count; i += LANES) {
    const size_t n = count - i;
    const vf g = load_n(gradient + i, n) * scale, old_b = load_n(buffer + i, n),
             b = madd(old_b, momentum, g), u = s->nesterov ? madd(b, momentum, g) : b;
    const vi good = (u < splat(INFINITY)) & (u > splat(-INFINITY));
    store_n(buffer + i, choose(good, b, old_b), n);
    store_n(gradient + i, choose(good, u, splat(0.0f)), n);
  }
}

/* y = a x + b y */
void PEN_NAME(combine)(float *y, const float *x, size_t count, float a, float b) {
  for (size_t i = 0; i < count; i += LANES) {
    const size_t n = count - i;
    store_n(y + i, madd(load_n(x + i, n), splat(a), load_n(y + i, n) * b), n);
  }
}
