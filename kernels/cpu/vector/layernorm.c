/* layernorm.c: LAYERNORM and LAYERNORM_DX (Ba et al. 2016), row by row. A row is summed in lanes,
 * then over the lanes. The variance is computed from x - mean in a second pass, so that a mean much
 * larger than the deviation costs no precision. */
#include <math.h>

#include "kernels/cpu/threads.h"
#include "kernels/cpu/vector/isa.h"
#include "kernels/cpu/vector/vector.h"

/* x - mean; lanes after the end of the row stay 0. */
inline_always vf centered(const stored *x, size_t n, vf mean) {
  vf v = load_n(x, n) - mean;
  if (n < LANES) {
    float kept[LANES] = {0};
    memcpy(kept, &v, n * sizeof *kept);
    v = load(kept);
  }
  return v;
}

static float row_mean(const stored *x, size_t width) {
  vf sum = {0};
  for (size_t i = 0; i < width; i += LANES) sum += load_n(x + i, width - i);
  return (float)((double)lanes_sum(sum) / (double)width);
}

static float row_rstd(const stored *x, size_t width, float mean, double epsilon) {
  vf sum = {0};
  for (size_t i = 0; i < width; i += LANES) {
    vf v = centered(x + i, width - i, splat(mean));
    sum = madd(v, v, sum);
  }
  return (float)(1.0 / sqrt((double)lanes_sum(sum) / (double)width + epsilon));
}

/* Gains and biases that are absent are 1 and 0. `all`, a constant of the caller: none is. */
inline_always vf load_gain(const float *gain, size_t i, size_t n, int all) {
  return all || gain ? load_n_f32(gain + i, n) : splat(1.0f);
}

inline_always vf load_bias(const float *bias, size_t i, size_t n, int all) {
  return all || bias ? load_n_f32(bias + i, n) : splat(0.0f);
}

inline_always void normalise_rows(const struct pen_call *call, int all) {
  const float *gain = call->operand[1], *bias = call->operand[2];
  float *mean = call->operand[4], *rstd = call->operand[5];
  const size_t rows = (size_t)call->dim[0], width = (size_t)call->dim[1];
  for (size_t r = 0; r < rows; r++) {
    const stored *x = (const stored *)call->operand[0] + r * width;
    stored *y = (stored *)call->operand[3] + r * width;
    mean[r] = row_mean(x, width);
    rstd[r] = row_rstd(x, width, mean[r], call->real[0]);
    for (size_t i = 0; i < width; i += LANES) {
      const size_t n = width - i;
      vf normed = (load_n(x + i, n) - mean[r]) * rstd[r];
      store_n(y + i, madd(normed, load_gain(gain, i, n, all), load_bias(bias, i, n, all)), n);
    }
  }
}

void PEN_NAME(layernorm)(const struct pen_call *call) {
  if (call->operand[1] && call->operand[2])
    normalise_rows(call, 1);
  else
    normalise_rows(call, 0);
}

/* Means over one row: of dy gain, and of dy gain n. */
struct row_means {
  float plain, along;
};

/* Returns the means of a row; adds dy n and dy to the gradients of gain and bias, if `adds`. Both
 * flags are constants of the caller. */
inline_always struct row_means add_gain_bias_gradients(const stored *dy, const stored *x,
                                                       const float *gain, float mean, float rstd,
                                                       float *dgain, float *dbias, int adds,
                                                       int all, size_t width) {
  vf plain = {0}, along = {0};
  for (size_t i = 0; i < width; i += LANES) {
    const size_t n = width - i;
    vf d = load_n(dy + i, n), normed = (load_n(x + i, n) - mean) * rstd,
       pull = d * load_gain(gain, i, n, all);
    if (adds && (all || dgain)) store_n(dgain + i, madd(d, normed, load_n(dgain + i, n)), n);
    if (adds && (all || dbias)) store_n(dbias + i, load_n(dbias + i, n) + d, n);
    plain += pull;
    along = madd(pull, normed, along);
  }
  return (struct row_means){lanes_sum(plain) / (float)width, lanes_sum(along) / (float)width};
}

/* dx = rstd (dy gain - plain - n along) + a; a may be dx */
inline_always void layernorm_input_gradient(const stored *dy, const stored *x, const float *gain,
                                            const stored *a, float mean, float rstd,
                                            struct row_means means, stored *dx, int all,
                                            size_t width) {
  for (size_t i = 0; i < width; i += LANES) {
    const size_t n = width - i;
    vf normed = (load_n(x + i, n) - mean) * rstd;
    vf d = madd(normed, splat(-means.along),
                load_n(dy + i, n) * load_gain(gain, i, n, all) - means.plain);
    store_n(dx + i, madd(d, splat(rstd), a ? load_n(a + i, n) : splat(0.0f)), n);
  }
}

/* dx of rows first .. past - 1, and if `adds` dgain and dbias, to which they are added. */
inline_always void differentiate_rows_of(const struct pen_call *call, int adds, int all,
                                         size_t first, size_t past) {
  const stored *dy = call->operand[0], *x = call->operand[1], *a = call->operand[5];
  const float *gain = call->operand[2], *mean = call->operand[3], *rstd = call->operand[4];
  stored *dx = call->operand[6];
  float *dgain = call->operand[7], *dbias = call->operand[8];
  const size_t width = (size_t)call->dim[1];
  for (size_t r = first; r < past; r++) {
    const size_t at = r * width;
    struct row_means means = add_gain_bias_gradients(dy + at, x + at, gain, mean[r], rstd[r], dgain,
                                                     dbias, adds, all, width);
    layernorm_input_gradient(dy + at, x + at, gain, a ? a + at : NULL, mean[r], rstd[r], means,
                             dx + at, all, width);
  }
}

inline_always void differentiate_rows(const struct pen_call *call, int adds, size_t first,
                                      size_t past) {
  if (call->operand[2] && call->operand[7] && call->operand[8])
    differentiate_rows_of(call, adds, 1, first, past);
  else
    differentiate_rows_of(call, adds, 0, first, past);
}

static void differentiate_input(const void *call, size_t thread, size_t first, size_t past) {
  (void)thread;
  differentiate_rows(call, 0, first, past);
}

/* dgain and dbias of some columns, a vector of them at a time, with the sums of
 * add_gain_bias_gradients(). */
static void differentiate_gain(const void *context, size_t thread, size_t first, size_t past) {
  const struct pen_call *call = context;
  const stored *dy = call->operand[0], *x = call->operand[1];
  const float *mean = call->operand[3], *rstd = call->operand[4];
  float *dgain = call->operand[7], *dbias = call->operand[8];
  const size_t rows = (size_t)call->dim[0], width = (size_t)call->dim[1];
  (void)thread;
  for (size_t i = first * LANES; i < width && i < past * LANES; i += LANES) {
    const size_t n = width - i;
    vf gain_sum = {0}, bias_sum = {0};
    for (size_t r = 0, at = i; r < rows; r++, at += width) {
      const vf d = load_n(dy + at, n);
      gain_sum = madd(d, (load_n(x + at, n) - mean[r]) * rstd[r], gain_sum);
      bias_sum += d;
    }
    if (dgain) store_n(dgain + i, gain_sum, n);
    if (dbias) store_n(dbias + i, bias_sum, n);
  }
}

/* One thread reads each row once. Several take rows, then columns. */
void PEN_NAME(layernorm_dx)(const struct pen_call *call) {
  const size_t rows = (size_t)call->dim[0], width = (size_t)call->dim[1];
  float *dgain = call->operand[7], *dbias = call->operand[8];
  if (call->dim[3] > 0) {
    pen_norm_runs_dx(call, PEN_NAME(layernorm_dx), 2, sizeof(stored));
    return;
  }
  if (pen_threads_count() > 1) {
    pen_parallel_rows(rows, width, differentiate_input, call);
    if (dgain || dbias) pen_parallel_for((width + LANES - 1) / LANES, differentiate_gain, call);
    return;
  }
  if (dgain) memset(dgain, 0, width * sizeof *dgain);
  if (dbias) memset(dbias, 0, width * sizeof *dbias);
  differentiate_rows(call, 1, 0, rows);
}
