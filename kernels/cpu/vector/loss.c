/* loss.c: CROSS_ENTROPY and SUM_LOSS, with their gradients. */
#include <math.h>

#include "kernels/cpu/threads.h"
#include "kernels/cpu/vector/isa.h"
#include "kernels/cpu/vector/softmax.h"

enum { LOSS_ROWS = 512 }; /* rows whose losses are kept before they are added */

#ifdef PEN_STORED_BF16
/* bf16 has too few bits for an exponential that is scaled later: it is computed twice and rounded
 * once. */
static float *kept_exponentials(stored *dx) {
  (void)dx;
  return NULL;
}

/* dx = factor e^(x - shift), minus scale at the target; dx may be x. */
static void gradient_row(stored *dx, const stored *x, size_t count, float shift, float factor,
                         size_t target, float scale) {
  const float at_target = (exponential(splat(widen(x[target])) - shift) * factor)[0] - scale;
  for (size_t i = 0; i < count; i += LANES)
    store_n(dx + i, exponential(load_n(x + i, count - i) - shift) * factor, count - i);
  store_n(dx + target, splat(at_target), 1);
}
#else
static float *kept_exponentials(stored *dx) { return dx; }

/* dx holds e^(x - shift): multiplies it by factor and subtracts scale at the target. */
static void gradient_row(stored *dx, const stored *x, size_t count, float shift, float factor,
                         size_t target, float scale) {
  (void)x, (void)shift;
  for (size_t i = 0; i < count; i += LANES)
    store_n(dx + i, load_n(dx + i, count - i) * factor, count - i);
  dx[target] -= scale;
}
#endif

/* Returns -log softmax(x)[target] of a row; if dx is set, dx = scale (softmax - one-hot). */
static double row_loss(const stored *x, stored *dx, size_t count, size_t target, double scale) {
  const float most = row_maximum(x, count);
  const float wanted = widen(x[target]); /* dx may be x */
  float *kept = kept_exponentials(dx);
  const double sum = row_exponentials(kept, x, count, most);
  if (dx) gradient_row(dx, x, count, most, (float)(scale / sum), target, (float)scale);
  return log(sum) + ((double)most - (double)wanted);
}

/* A run of rows, and the loss of each. */
struct loss_rows {
  const struct pen_call *call;
  size_t first;
  double *loss;
};

/* A target that is neither ignored nor a token makes the loss NaN: the runtime checks targets when
 * it reads them, so that this is a bug. */
static void compute_losses(const void *context, size_t thread, size_t first, size_t past) {
  const struct loss_rows *rows = context;
  const struct pen_call *call = rows->call;
  const stored *logits = call->operand[0];
  const int32_t *targets = call->operand[1];
  const double share = *(const double *)call->operand[2];
  stored *dlogits = call->operand[4];
  const size_t vocab = (size_t)call->dim[1];
  (void)thread;
  for (size_t i = first; i < past; i++) {
    const size_t r = rows->first + i;
    stored *dx = dlogits ? dlogits + r * vocab : NULL;
    if (targets[r] >= 0 && targets[r] < call->dim[1]) {
      rows->loss[i] = row_loss(logits + r * vocab, dx, vocab, (size_t)targets[r], share);
      continue;
    }
    rows->loss[i] = targets[r] == PEN_IGNORED_TARGET ? 0 : NAN;
    if (dx) memset(dx, 0, vocab * sizeof *dx);
  }
}

/* The loss is an f64 sum over rising rows, not scaled. */
void PEN_NAME(cross_entropy)(const struct pen_call *call) {
  double row[LOSS_ROWS], *loss = call->operand[3];
  const size_t rows = (size_t)call->dim[0];
  double sum = 0;
  for (size_t first = 0; first < rows; first += LOSS_ROWS) {
    const struct loss_rows run = {call, first, row};
    const size_t count = rows - first < LOSS_ROWS ? rows - first : LOSS_ROWS;
    pen_parallel_rows(count, (size_t)call->dim[1], compute_losses, &run);
    for (size_t i = 0; i < count; i++) sum += row[i];
  }
  *loss = sum;
}

/* loss = sum of x in rising order, dx = scale share. The sum is one chain of additions. */
void PEN_NAME(sum_loss)(const struct pen_call *call) {
  const stored *x = call->operand[0];
  const double *share = call->operand[1];
  double *loss = call->operand[2];
  stored *dx = call->operand[3];
  const size_t count = (size_t)call->dim[0] * (size_t)call->dim[1];
  const float factor = (float)(share ? call->real[0] * *share : call->real[0]);
  double sum = 0;
  for (size_t i = 0; i < count; i++) sum += (double)widen(x[i]);
  *loss = sum;
  for (size_t i = 0; dx && i < count; i += LANES) store_n(dx + i, splat(factor), count - i);
}
