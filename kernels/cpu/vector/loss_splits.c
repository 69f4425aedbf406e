/* loss_splits.c: the cross-entropy of a vocabulary that is divided into splits. */
#include <math.h>

#include "kernels/cpu/vector/isa.h"
#include "kernels/cpu/vector/softmax.h"

void PEN_NAME(logits_maximum)(const struct pen_call *call) {
  const stored *logits = call->operand[0];
  const float *before = call->operand[1];
  float *maximum = call->operand[2];
  const size_t rows = (size_t)call->dim[0], vocab = (size_t)call->dim[1];
  for (size_t r = 0; r < rows; r++) {
    const float most = row_maximum(logits + r * vocab, vocab);
    maximum[r] = before && !(most > before[r]) ? before[r] : most;
  }
}

void PEN_NAME(logits_sum)(const struct pen_call *call) {
  const stored *logits = call->operand[0];
  const float *maximum = call->operand[1];
  double *sum = call->operand[2];
  const size_t rows = (size_t)call->dim[0], vocab = (size_t)call->dim[1];
  for (size_t r = 0; r < rows; r++)
    sum[r] = row_exponentials(NULL, logits + r * vocab, vocab, maximum[r]);
}

/* dx = factor e^(x - shift), less `scale` at the target; a target of count: at none. dx may be x.
 */
static void split_gradient(stored *dx, const stored *x, size_t count, float shift, float factor,
                           size_t target, float scale) {
  const float at_target =
      target < count ? (exponential(splat(widen(x[target])) - shift) * factor)[0] - scale : 0.0f;
  for (size_t i = 0; i < count; i += LANES)
    store_n(dx + i, exponential(load_n(x + i, count - i) - shift) * factor, count - i);
  if (target < count) store_n(dx + target, splat(at_target), 1);
}

/* The loss is an f64 sum over the rows whose target is in the split, rising, not scaled. A target
 * that is neither ignored nor a token makes it NaN, as CROSS_ENTROPY's. */
void PEN_NAME(cross_entropy_columns)(const struct pen_call *call) {
  const stored *logits = call->operand[0];
  const int32_t *targets = call->operand[1];
  const double share = *(const double *)call->operand[2];
  const float *maximum = call->operand[3];
  const double *sum = call->operand[4];
  double *loss = call->operand[5], all = 0;
  stored *dlogits = call->operand[6];
  const size_t rows = (size_t)call->dim[0], vocab = (size_t)call->dim[1];
  for (size_t r = 0; r < rows; r++) {
    const stored *x = logits + r * vocab;
    stored *dx = dlogits ? dlogits + r * vocab : NULL;
    const int64_t place = targets[r] - call->dim[2];
    const size_t target = place >= 0 && place < call->dim[1] ? (size_t)place : vocab;
    const int is_token = targets[r] >= 0 && targets[r] < call->dim[3];
    if (is_token && target < vocab)
      all += log(sum[r]) + ((double)maximum[r] - (double)widen(x[target])); /* dx may be x */
    if (!is_token && targets[r] != PEN_IGNORED_TARGET) all = NAN;
    if (dx && is_token)
      split_gradient(dx, x, vocab, maximum[r], (float)(share / sum[r]), target, (float)share);
    else if (dx)
      memset(dx, 0, vocab * sizeof *dx);
  }
  *loss = all;
}
