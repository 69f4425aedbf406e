/* norm.c: RMSNORM and RMSNORM_DX (Zhang and Sennrich 2019), row by row. A row is summed in four
 * vectors, element i in vector (i / LANES) mod 4, which are then added pairwise. */
#include <math.h>

#include "kernels/cpu/threads.h"
#include "kernels/cpu/vector/isa.h"
#include "kernels/cpu/vector/vector.h"

static float row_sum_squares(const stored *x, size_t width) {
  vf sum[4] = {0};
  size_t i = 0;
  for (; i + 4 * LANES <= width; i += 4 * LANES)
    for (int k = 0; k < 4; k++) {
      vf v = load(x + i + k * LANES);
      sum[k] = madd(v, v, sum[k]);
    }
  for (int k = 0; i < width; i += LANES, k++) {
    vf v = load_n(x + i, width - i);
    sum[k] = madd(v, v, sum[k]);
  }
  return lanes_sum((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

/* The gains of a row: as they are, plus an offset, or none, so that they are 1 and the offset.
 * Which is a constant where they are loaded: an addition takes 5% of the time of the gradient. */
enum gain_kind { GAINS, GAINS_AND_OFFSET, NO_GAINS };

struct gains {
  const float *gain;
  vf offset;
  enum gain_kind kind;
};

inline_always struct gains gains_of(const struct pen_call *call, int operand, enum gain_kind kind) {
  return (struct gains){call->operand[operand], splat((float)call->real[1]), kind};
}

inline_always vf load_gains(struct gains gains, size_t i, size_t n) {
  if (gains.kind == NO_GAINS) return splat(1.0f) + gains.offset;
  const vf gain = load_n(gains.gain + i, n);
  return gains.kind == GAINS_AND_OFFSET ? gain + gains.offset : gain;
}

inline_always void normalise_rows(const struct pen_call *call, enum gain_kind kind) {
  const struct gains gains = gains_of(call, 1, kind);
  float *rstd = call->operand[3];
  const size_t rows = (size_t)call->dim[0], width = (size_t)call->dim[1];
  for (size_t r = 0; r < rows; r++) {
    const stored *x = (const stored *)call->operand[0] + r * width;
    stored *y = (stored *)call->operand[2] + r * width;
    const double mean = (double)row_sum_squares(x, width) / (double)width;
    rstd[r] = (float)(1.0 / sqrt(mean + call->real[0]));
    const vf factor = splat(rstd[r]);
    for (size_t i = 0; i < width; i += LANES) {
      const size_t n = width - i;
      store_n(y + i, load_n(x + i, n) * factor * load_gains(gains, i, n), n);
    }
  }
}

void PEN_NAME(rmsnorm)(const struct pen_call *call) {
  if (call->operand[1] == NULL)
    normalise_rows(call, NO_GAINS);
  else
    normalise_rows(call, GAINS_AND_OFFSET);
}

/* Returns the sum of dy g x of a row, g the gains; adds dy x rstd to the gradient of gain, if
 * `adds`, a constant of the caller. */
inline_always float add_gain_gradient(const stored *dy, const stored *x, struct gains gains,
                                      float rstd, float *dgain, int adds, size_t width) {
  vf sum[4] = {0};
  size_t i = 0;
  for (; i + 4 * LANES <= width; i += 4 * LANES)
    for (int k = 0; k < 4; k++) {
      const size_t at = i + (size_t)k * LANES;
      vf product = load(dy + at) * load(x + at);
      sum[k] = madd(product, load_gains(gains, at, LANES), sum[k]);
      if (adds) store(dgain + at, madd(product, splat(rstd), load(dgain + at)));
    }
  for (int k = 0; i < width; i += LANES, k++) {
    const size_t n = width - i;
    vf product = load_n(dy + i, n) * load_n(x + i, n);
    sum[k] = madd(product, load_gains(gains, i, n), sum[k]);
    if (adds) store_n(dgain + i, madd(product, splat(rstd), load_n(dgain + i, n)), n);
  }
  return lanes_sum((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

/* dx = rstd dy g - (rstd^3 mean) x + a; a may be dx */
inline_always void rmsnorm_input_gradient(const stored *dy, const stored *x, struct gains gains,
                                          const stored *a, float rstd, float mean, stored *dx,
                                          size_t width) {
  const vf factor = splat(rstd), pull = splat(-rstd * rstd * rstd * mean);
  for (size_t i = 0; i < width; i += LANES) {
    const size_t n = width - i;
    vf d = madd(load_n(x + i, n), pull, a ? load_n(a + i, n) : splat(0.0f));
    store_n(dx + i, madd(load_n(dy + i, n) * load_gains(gains, i, n), factor, d), n);
  }
}

/* dx of rows first .. past - 1, and if `adds` dgain, to which they are added. `kind` and `adds` are
 * constants. */
inline_always void differentiate_rows_of(const struct pen_call *call, enum gain_kind kind, int adds,
                                         size_t first, size_t past) {
  const stored *dy = call->operand[0], *x = call->operand[1], *a = call->operand[4];
  const float *rstd = call->operand[3];
  const struct gains gains = gains_of(call, 2, kind);
  stored *dx = call->operand[5];
  float *dgain = call->operand[6];
  const size_t width = (size_t)call->dim[1];
  for (size_t r = first; r < past; r++) {
    const size_t at = r * width;
    const float mean =
        add_gain_gradient(dy + at, x + at, gains, rstd[r], dgain, adds, width) / (float)width;
    rmsnorm_input_gradient(dy + at, x + at, gains, a ? a + at : NULL, rstd[r], mean, dx + at,
                           width);
  }
}

inline_always void differentiate_rows(const struct pen_call *call, int adds, size_t first,
                                      size_t past) {
  if (call->operand[2] == NULL)
    differentiate_rows_of(call, NO_GAINS, adds, first, past);
  else if (call->real[1] != 0)
    differentiate_rows_of(call, GAINS_AND_OFFSET, adds, first, past);
  else
    differentiate_rows_of(call, GAINS, adds, first, past);
}

static void differentiate_input(const void *context, size_t thread, size_t first, size_t past) {
  (void)thread;
  differentiate_rows(context, 0, first, past);
}

/* dgain of some columns, a vector of them at a time, with the sums of add_gain_gradient(). */
static void differentiate_gain(const void *context, size_t thread, size_t first, size_t past) {
  const struct pen_call *call = context;
  const stored *dy = call->operand[0], *x = call->operand[1];
  const float *rstd = call->operand[3];
  float *dgain = call->operand[6];
  const size_t rows = (size_t)call->dim[0], width = (size_t)call->dim[1];
  (void)thread;
  for (size_t i = first * LANES; i < width && i < past * LANES; i += LANES) {
    const size_t n = width - i;
    vf sum = {0};
    for (size_t r = 0, at = i; r < rows; r++, at += width)
      sum = madd(load_n(dy + at, n) * load_n(x + at, n), splat(rstd[r]), sum);
    store_n(dgain + i, sum, n);
  }
}

/* One thread reads each row once. Several take rows, then columns. dgain may be absent. */
void PEN_NAME(rmsnorm_dx)(const struct pen_call *call) {
  const size_t rows = (size_t)call->dim[0], width = (size_t)call->dim[1];
  float *dgain = call->operand[6];
  if (call->dim[3] > 0) {
    pen_norm_runs_dx(call, PEN_NAME(rmsnorm_dx), 1, sizeof(stored));
    return;
  }
  if (pen_threads_count() > 1 || dgain == NULL) {
    pen_parallel_rows(rows, width, differentiate_input, call);
    if (dgain) pen_parallel_for((width + LANES - 1) / LANES, differentiate_gain, call);
    return;
  }
  memset(dgain, 0, width * sizeof *dgain);
  differentiate_rows(call, 1, 0, rows);
}
