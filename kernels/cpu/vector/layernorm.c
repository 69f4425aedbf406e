/* layernorm.c: LAYERNORM and LAYERNORM_DX (Ba et al. 2016), a row at a time.
 * A row's sums run lane by lane, then over the lanes; the variance is that of what is left when the
 * mean is taken off, in a second pass, so that a mean much larger than the deviation costs no
 * digits. */
#include <math.h>

#include "kernels/cpu/vector/isa.h"
#include "kernels/cpu/vector/vector.h"

/* x - mean; the lanes past the row's end stay 0. */
inline_always vf centred(const stored *x, size_t n, vf mean) {
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
    vf v = centred(x + i, width - i, splat(mean));
    sum = madd(v, v, sum);
  }
  return (float)(1.0 / sqrt((double)lanes_sum(sum) / (double)width + epsilon));
}

void PEN_NAME(layernorm)(const struct pen_call *call) {
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
      store_n(y + i, madd(normed, load_n(gain + i, n), load_n(bias + i, n)), n);
    }
  }
}

/* Means over one row: of dy gain, and of dy gain n. */
struct pulls {
  float plain, along;
};

/* Adds dy n and dy to the gradients of gain and bias on the way. */
static struct pulls gradient_pass(const stored *dy, const stored *x, const float *gain, float mean,
                                  float rstd, float *dgain, float *dbias, size_t width) {
  vf plain = {0}, along = {0};
  for (size_t i = 0; i < width; i += LANES) {
    const size_t n = width - i;
    vf d = load_n(dy + i, n), normed = (load_n(x + i, n) - mean) * rstd,
       pull = d * load_n(gain + i, n);
    store_n(dgain + i, madd(d, normed, load_n(dgain + i, n)), n);
    store_n(dbias + i, load_n(dbias + i, n) + d, n);
    plain += pull;
    along = madd(pull, normed, along);
  }
  return (struct pulls){lanes_sum(plain) / (float)width, lanes_sum(along) / (float)width};
}

/* dx = rstd (dy gain - plain - n along) + a, a possibly in dx's place */
static void input_pass(const stored *dy, const stored *x, const float *gain, const stored *a,
                       float mean, float rstd, struct pulls pull, stored *dx, size_t width) {
  for (size_t i = 0; i < width; i += LANES) {
    const size_t n = width - i;
    vf normed = (load_n(x + i, n) - mean) * rstd;
    vf d = madd(normed, splat(-pull.along), load_n(dy + i, n) * load_n(gain + i, n) - pull.plain);
    store_n(dx + i, madd(d, splat(rstd), a ? load_n(a + i, n) : splat(0.0f)), n);
  }
}

void PEN_NAME(layernorm_dx)(const struct pen_call *call) {
  const stored *dy = call->operand[0], *x = call->operand[1], *a = call->operand[5];
  const float *gain = call->operand[2], *mean = call->operand[3], *rstd = call->operand[4];
  stored *dx = call->operand[6];
  float *dgain = call->operand[7], *dbias = call->operand[8];
  const size_t rows = (size_t)call->dim[0], width = (size_t)call->dim[1];
  memset(dgain, 0, width * sizeof *dgain);
  memset(dbias, 0, width * sizeof *dbias);
  for (size_t r = 0; r < rows; r++) {
    const size_t at = r * width;
    struct pulls pull = gradient_pass(dy + at, x + at, gain, mean[r], rstd[r], dgain, dbias, width);
    input_pass(dy + at, x + at, gain, a ? a + at : NULL, mean[r], rstd[r], pull, dx + at, width);
  }
}
