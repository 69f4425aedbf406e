/* logp.c: LOGP, log-probabilities of some tokens of each row, and its gradient. */
#include <math.h>
#include <stdbool.h>

#include "kernels/cpu/threads.h"
#include "kernels/cpu/vector/isa.h"
#include "kernels/cpu/vector/softmax.h"

/* A target that is neither ignored nor a token gives NaN, as in CROSS_ENTROPY. */
static float logp_of(const stored *x, int32_t target, int64_t vocab, double log_sum) {
  if (target == PEN_IGNORED_TARGET) return 0;
  if (target < 0 || target >= vocab) return NAN;
  return (float)((double)widen(x[target]) - log_sum);
}

static void find_logp(const void *context, size_t thread, size_t first, size_t past) {
  const struct pen_call *call = context;
  const int64_t vocab = call->dim[1];
  const size_t choices = (size_t)call->dim[2];
  (void)thread;
  for (size_t r = first; r < past; r++) {
    const stored *x = (const stored *)call->operand[0] + r * (size_t)vocab;
    const int32_t *target = (const int32_t *)call->operand[1] + r * choices;
    float *logp = (float *)call->operand[2] + r * choices;
    const float most = row_maximum(x, (size_t)vocab);
    const double log_sum = log(row_exponentials(NULL, x, (size_t)vocab, most)) + (double)most;
    for (size_t k = 0; k < choices; k++) logp[k] = logp_of(x, target[k], vocab, log_sum);
    ((float *)call->operand[3])[r] = ((float *)call->operand[4])[r] = (float)log_sum;
  }
}

void PEN_NAME(logp)(const struct pen_call *call) {
  pen_parallel_rows((size_t)call->dim[0], (size_t)call->dim[1], find_logp, call);
}

/* A row of the gradient. */
struct logp_row {
  const stored *x, *addend; /* the latter may be null */
  const float *dlogp;       /* likewise */
  const int32_t *target;
  size_t vocab, choices;
  float log_sum, factor; /* of softmax */
};

enum { COLUMNS = 8 * LANES }; /* of which the gradients of the choices are added up at once */

/* The sums of the gradients of the choices, in rising order, whose targets are among the columns
 * from `first` on. Returns whether there are any. */
static bool sum_choices(const struct logp_row *row, size_t first, float sum[COLUMNS]) {
  bool any = false;
  for (size_t k = 0; row->dlogp && k < row->choices; k++) {
    const int32_t t = row->target[k];
    if (t < 0 || (size_t)t >= row->vocab || (size_t)t / COLUMNS * COLUMNS != first) continue;
    for (size_t i = 0; !any && i < COLUMNS; i++) sum[i] = 0;
    any = true;
    sum[(size_t)t - first] += row->dlogp[k];
  }
  return any;
}

/* dx may be x: an element of x is read before the one of dx is written. */
static void logp_gradient(const struct logp_row *row, stored *dx) {
  const size_t vocab = row->vocab;
  float sum[COLUMNS];
  bool any = false;
  for (size_t i = 0; i < vocab; i += LANES) {
    const size_t n = vocab - i;
    vf d = exponential(load_n(row->x + i, n) - row->log_sum) * row->factor;
    if (row->addend) d += load_n(row->addend + i, n);
    if (i % COLUMNS == 0) any = sum_choices(row, i, sum);
    if (any) d += load_n(sum + i % COLUMNS, LANES);
    store_n(dx + i, d, n);
  }
}

static void find_gradients(const void *context, size_t thread, size_t first, size_t past) {
  const struct pen_call *call = context;
  const size_t vocab = (size_t)call->dim[1], choices = (size_t)call->dim[2];
  const float *dlogp = call->operand[0], *dlse = call->operand[1];
  const stored *addend = call->operand[5];
  (void)thread;
  for (size_t r = first; r < past; r++) {
    struct logp_row row = {.x = (const stored *)call->operand[2] + r * vocab,
                           .dlogp = dlogp ? dlogp + r * choices : NULL,
                           .addend = addend ? addend + r * vocab : NULL,
                           .target = (const int32_t *)call->operand[3] + r * choices,
                           .vocab = vocab,
                           .choices = choices,
                           .log_sum = ((const float *)call->operand[4])[r],
                           .factor = dlse ? dlse[r] : 0};
    for (size_t k = 0; dlogp && k < choices; k++)
      if (row.target[k] != PEN_IGNORED_TARGET) row.factor -= row.dlogp[k];
    logp_gradient(&row, (stored *)call->operand[6] + r * vocab);
  }
}

void PEN_NAME(logp_dx)(const struct pen_call *call) {
  pen_parallel_rows((size_t)call->dim[0], (size_t)call->dim[1], find_gradients, call);
}
