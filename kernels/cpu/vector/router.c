/* router.c: ROUTER_LOGITS, ROUTE and their gradients, counts of choices, and ROUTER_LOSS. The
 * products are the project's own, in f32, whatever library multiplies others: a row depends on no
 * other row. */
#include <math.h>

#include "kernels/cpu/threads.h"
#include "kernels/cpu/vector/functions.h"
#include "kernels/cpu/vector/isa.h"

/* ---- logits ---- */

static void multiply_own(const struct pen_product *p) { pen_instruction_set.f32->multiply(p); }

/* Rows of `stored` as f32: as they are, or in `space`. Returns the end of what it took of it. */
static float *as_floats(const float **to, const stored *from, size_t count, float *space) {
#ifdef PEN_STORED_BF16
  for (size_t i = 0; i < count; i += LANES)
    store_n(space + i, load_n(from + i, count - i), count - i);
  *to = space;
  return space + pen_aligned(count * sizeof *space) / sizeof *space;
#else
  (void)count;
  *to = from;
  return space;
#endif
}

void PEN_NAME(router_logits)(const struct pen_call *call) {
  const size_t rows = (size_t)call->dim[0], in = (size_t)call->dim[1], out = (size_t)call->dim[2];
  const float *x;
  float *rest = as_floats(&x, call->operand[0], rows * in, call->workspace);
  multiply_own(&(struct pen_product){.left = {x, in, 0},
                                     .right = {call->operand[1], in, 1},
                                     .result = call->operand[2],
                                     .result_row = out,
                                     .m = rows,
                                     .n = out,
                                     .k = in,
                                     .workspace = rest});
}

void PEN_NAME(router_logits_dx)(const struct pen_call *call) {
  const size_t rows = (size_t)call->dim[0], in = (size_t)call->dim[1], out = (size_t)call->dim[2];
  const stored *a = call->operand[2];
  const float *addend = NULL;
  float *rest = call->workspace, *dx = call->operand[3];
  if (a) rest = as_floats(&addend, a, rows * in, rest);
#ifdef PEN_STORED_BF16
  if (!a) rest += pen_aligned(rows * in * sizeof *rest) / sizeof *rest;
  dx = call->workspace;
#endif
  multiply_own(&(struct pen_product){.left = {call->operand[0], out, 0},
                                     .right = {call->operand[1], in, 0},
                                     .addend = addend,
                                     .result = dx,
                                     .result_row = in,
                                     .m = rows,
                                     .n = in,
                                     .k = out,
                                     .workspace = rest});
#ifdef PEN_STORED_BF16
  stored *y = call->operand[3];
  for (size_t i = 0, n = rows * in; i < n; i += LANES) store_n(y + i, load_n(dx + i, n - i), n - i);
#endif
}

void PEN_NAME(router_logits_dw)(const struct pen_call *call) {
  const size_t rows = (size_t)call->dim[0], in = (size_t)call->dim[1], out = (size_t)call->dim[2];
  const float *x;
  float *rest = as_floats(&x, call->operand[1], rows * in, call->workspace);
  multiply_own(&(struct pen_product){.left = {call->operand[0], out, 1},
                                     .right = {x, in, 0},
                                     .addend = call->operand[2],
                                     .result = call->operand[2],
                                     .result_row = in,
                                     .m = out,
                                     .n = in,
                                     .k = rows,
                                     .workspace = rest});
}

#ifndef PEN_STORED_BF16
/* ---- routes ---- */

/* Of a row: the greatest, and the sum of e^(x[i] - the greatest). */
struct row_sum {
  float greatest, sum;
};

/* score[i] = e^(x[i] - the greatest) over their sum. */
static struct row_sum softmax(float *score, const float *x, size_t count) {
  float greatest = x[0];
  for (size_t i = 1; i < count; i++) greatest = x[i] > greatest ? x[i] : greatest;
  vf sum = {0};
  for (size_t i = 0; i < count; i += LANES) {
    const size_t n = count - i;
    const vf e = exponential(load_n(x + i, n) - greatest);
    store_n(score + i, e, n);
    sum += load_n(score + i, n); /* 0 past the last */
  }
  const struct row_sum row = {greatest, lanes_sum(sum)};
  const vf factor = 1.0f / splat(row.sum);
  for (size_t i = 0; i < count; i += LANES)
    store_n(score + i, load_n(score + i, count - i) * factor, count - i);
  return row;
}

/* Whether a score comes before another that has a lower number: what is no number is least. */
static int is_better(float score, float best) {
  return score > best || (isnan(best) && !isnan(score));
}

/* The next best of those that are not taken. */
static size_t choose_next(const float *score, const unsigned char *taken, size_t count) {
  size_t best = count;
  for (size_t i = 0; i < count; i++)
    if (!taken[i] && (best == count || is_better(score[i], score[best]))) best = i;
  return best;
}

/* The scores of a row: softmax, or sigmoid. */
static void make_scores(const struct pen_call *call, float *score, const float *logits) {
  const size_t experts = (size_t)call->dim[1];
  if (!call->dim[4]) {
    softmax(score, logits, experts);
    return;
  }
  for (size_t i = 0; i < experts; i += LANES)
    store_n(score + i, sigmoid(load_n(logits + i, experts - i)), experts - i);
}

/* The memory of a thread for a row. With sigmoid scores `choice` has them with the bias, and what
 * is of groups has as many elements as there are groups, at most half of the experts. */
struct route_space {
  float *score, *choice, *group;
  unsigned char *taken, *group_taken;
};

static struct route_space space_of(const struct pen_call *call, size_t thread) {
  const size_t experts = (size_t)call->dim[1], sigmoid = call->dim[4] ? experts : 0,
               bytes = pen_aligned(experts * (sizeof(float) + 1) + sigmoid * 7);
  struct route_space s = {.score = (float *)((char *)call->workspace + thread * bytes)};
  s.choice = sigmoid ? s.score + experts : s.score;
  s.group = s.choice + experts;
  s.taken = (unsigned char *)(s.group + sigmoid / 2);
  s.group_taken = s.taken + experts;
  return s;
}

enum { FREE, TAKEN, BARRED };

/* Bars the experts of all groups but the best, by the sums of their two greatest. */
static void bar_groups(const struct pen_call *call, const struct route_space *s) {
  const size_t groups = (size_t)call->dim[5], size = (size_t)call->dim[1] / groups;
  for (size_t g = 0; g < groups; g++) {
    const float *choice = s->choice + g * size;
    unsigned char *taken = s->taken + g * size;
    const size_t first = choose_next(choice, taken, size);
    taken[first] = TAKEN;
    s->group[g] = choice[first] + choice[choose_next(choice, taken, size)];
    memset(taken, BARRED, size);
  }
  memset(s->group_taken, FREE, groups);
  for (int64_t n = 0; n < call->dim[6]; n++) {
    const size_t best = choose_next(s->group, s->group_taken, groups);
    s->group_taken[best] = TAKEN;
    memset(s->taken + best * size, FREE, size);
  }
}

/* Marks the experts of a row as taken. */
static void choose_experts(const struct pen_call *call, const struct route_space *s) {
  const size_t experts = (size_t)call->dim[1];
  const float *bias = call->operand[1];
  for (size_t i = 0; i < experts && s->choice != s->score; i++)
    s->choice[i] = s->score[i] + (bias ? bias[i] : 0);
  memset(s->taken, FREE, experts);
  if (call->dim[5] > 1) bar_groups(call, s);
  for (int64_t c = 0; c < call->dim[2]; c++)
    s->taken[choose_next(s->choice, s->taken, experts)] = TAKEN;
}

/* 0, or no number if a logit or a bias is not finite: an expert that is not chosen hides none. */
static float zero_if_finite(const float *logits, const float *bias, size_t experts) {
  float zero = 0;
  for (size_t i = 0; i < experts; i++) zero += 0 * logits[i] + (bias ? 0 * bias[i] : 0);
  return zero;
}

/* All sigmoids of a row may be 0. Other sums stay as they are. */
static float least_sum(int64_t sigmoid) { return sigmoid ? 1e-20f : 0.0f; }

static void route_rows(const void *context, size_t thread, size_t first, size_t past) {
  const struct pen_call *call = context;
  const size_t experts = (size_t)call->dim[1], choices = (size_t)call->dim[2];
  const struct route_space s = space_of(call, thread);
  for (size_t r = first; r < past; r++) {
    int32_t *expert = (int32_t *)call->operand[2] + r * choices;
    const float *logits = (const float *)call->operand[0] + r * experts;
    float *weight = (float *)call->operand[3] + r * choices, sum = 0;
    const float zero = zero_if_finite(logits, call->operand[1], experts);
    make_scores(call, s.score, logits);
    choose_experts(call, &s);
    for (size_t e = 0, c = 0; e < experts; e++) {
      if (s.taken[e] != TAKEN) continue;
      expert[c] = (int32_t)e;
      weight[c++] = s.score[e];
      sum += s.score[e];
    }
    sum += least_sum(call->dim[4]);
    for (size_t c = 0; c < choices && call->dim[3]; c++) weight[c] /= sum;
    for (size_t c = 0; c < choices; c++) weight[c] = weight[c] * (float)call->real[0] + zero;
  }
}

void PEN_NAME(route)(const struct pen_call *call) {
  pen_parallel_rows((size_t)call->dim[0], (size_t)call->dim[1], route_rows, call);
}

/* With p the scores, w the weights: dp of a choice is dw, or (dw - sum of dw p/(sum of p))/(sum of
 * p) if the weights are p over their sum, times scale. dlogits = p (dp - sum of dp p) of softmax;
 * p (1 - p) dp of sigmoid. */
static void differentiate_row(const struct pen_call *call, size_t r, float *score) {
  const size_t experts = (size_t)call->dim[1], choices = (size_t)call->dim[2];
  const float *dweight = (const float *)call->operand[0] + r * choices;
  const int32_t *expert = (const int32_t *)call->operand[2] + r * choices;
  const float *a = call->operand[3];
  float *dlogits = (float *)call->operand[4] + r * experts, sum = 0, mean = 0, pull = 0;
  make_scores(call, score, (const float *)call->operand[1] + r * experts);
  for (size_t c = 0; c < choices; c++) {
    sum += score[expert[c]];
    mean += dweight[c] * score[expert[c]];
  }
  sum += least_sum(call->dim[4]);
  const float scale = (call->dim[3] ? 1.0f / sum : 1.0f) * (float)call->real[0],
              offset = call->dim[3] ? mean / sum : 0.0f;
  for (size_t c = 0; c < choices && !call->dim[4]; c++)
    pull += (dweight[c] - offset) * scale * score[expert[c]];
  for (size_t i = 0; i < experts; i += LANES)
    store_n(dlogits + i, load_n(score + i, experts - i) * -pull, experts - i);
  for (size_t c = 0; c < choices; c++) {
    const float p = score[expert[c]], dp = (dweight[c] - offset) * scale;
    dlogits[expert[c]] = call->dim[4] ? p * (1.0f - p) * dp : p * (dp - pull);
  }
  for (size_t i = 0; a && i < experts; i += LANES)
    store_n(dlogits + i,
            load_n(dlogits + i, experts - i) + load_n(a + r * experts + i, experts - i),
            experts - i);
}

static void differentiate_rows(const void *context, size_t thread, size_t first, size_t past) {
  const struct pen_call *call = context;
  for (size_t r = first; r < past; r++) differentiate_row(call, r, space_of(call, thread).score);
}

void PEN_NAME(route_dx)(const struct pen_call *call) {
  pen_parallel_rows((size_t)call->dim[0], (size_t)call->dim[1], differentiate_rows, call);
}

/* Of f32, which counts to 2^24. */
void PEN_NAME(count_choices)(const struct pen_call *call) {
  const int32_t *expert = call->operand[0];
  float *counts = call->operand[1];
  for (int64_t i = 0; i < call->dim[0] * call->dim[2]; i++) counts[expert[i]]++;
}

/* Of f64, over the microbatches of a step. */
void PEN_NAME(add_choices)(const struct pen_call *call) {
  const int32_t *expert = call->operand[0];
  double *counts = call->operand[1];
  for (int64_t i = 0; i < call->dim[0] * call->dim[2]; i++) counts[expert[i]]++;
}

/* ---- losses of the router ---- */

/* The factors of a call, and the memory of a row. */
struct router_losses {
  size_t rows, experts, choices, run; /* run: rows of one */
  int64_t sigmoid;
  double aux_factor, z_factor; /* of a row */
  float *score, *share;        /* [experts]: share: f of the run */
};

/* f of each expert, by the choices of the rows of a run, or by counts. */
static void share_choices(const struct router_losses *l, const int32_t *expert,
                          const float *counts) {
  double sum = (double)(l->run * l->choices);
  memset(l->share, 0, l->experts * sizeof *l->share);
  for (size_t i = 0; i < l->run * l->choices && !counts; i++) l->share[expert[i]]++;
  if (counts) {
    sum = 0;
    for (size_t e = 0; e < l->experts; e++) sum += (double)(l->share[e] = counts[e]);
  }
  const float scale = (float)((double)l->experts / sum);
  for (size_t e = 0; e < l->experts; e++) l->share[e] = sum <= 0 ? 1.0f : l->share[e] * scale;
}

/* dlogits += the gradient of the aux loss of a row, of which `mean` is the sum of f and its scores,
 * which are normalised. Of sigmoid scores, their derivative is by what they were: s(1 - s). */
static void add_aux_gradient(const struct router_losses *l, double mean, double sum,
                             float *dlogits) {
  for (size_t e = 0; e < l->experts; e++) {
    const double s = (double)l->score[e], pull = l->aux_factor * ((double)l->share[e] - mean);
    dlogits[e] += (float)(pull * (l->sigmoid ? s * (1 - s * sum) : s));
  }
}

/* Adds the losses of a row, before their factors. */
static void add_row(const struct router_losses *l, const float *logits, float *dlogits, double *aux,
                    double *z) {
  double sum = 0, mean = 0, log_sum = 0;
  const struct row_sum row = softmax(l->score, logits, l->experts);
  if (l->z_factor > 0) log_sum = (double)row.greatest + log((double)row.sum);
  for (size_t e = 0; e < l->experts && dlogits; e++)
    dlogits[e] = (float)(2 * l->z_factor * log_sum * (double)l->score[e]);
  for (size_t e = 0; e < l->experts && l->sigmoid; e += LANES)
    store_n(l->score + e, sigmoid(load_n(logits + e, l->experts - e)), l->experts - e);
  for (size_t e = 0; e < l->experts; e++) sum += (double)l->score[e];
  sum += (double)least_sum(l->sigmoid);
  for (size_t e = 0; e < l->experts && l->sigmoid; e++)
    l->score[e] = (float)((double)l->score[e] / sum);
  for (size_t e = 0; e < l->experts; e++) mean += (double)l->share[e] * (double)l->score[e];
  if (dlogits) add_aux_gradient(l, mean, sum, dlogits);
  *aux += mean;
  *z += log_sum * log_sum;
}

void PEN_NAME(router_loss)(const struct pen_call *call) {
  const size_t rows = (size_t)call->dim[0], experts = (size_t)call->dim[1];
  const struct router_losses l = {.rows = rows,
                                  .experts = experts,
                                  .choices = (size_t)call->dim[2],
                                  .run = rows / (size_t)call->dim[3],
                                  .sigmoid = call->dim[4],
                                  .aux_factor = call->real[0] / (double)rows,
                                  .z_factor = call->real[1] / (double)rows,
                                  .score = call->workspace,
                                  .share = (float *)call->workspace + experts};
  double aux = 0, z = 0;
  for (size_t r = 0; r < rows; r++) {
    float *dlogits = call->operand[5] ? (float *)call->operand[5] + r * experts : NULL;
    if (r % l.run == 0)
      share_choices(&l, (const int32_t *)call->operand[1] + r * l.choices, call->operand[2]);
    add_row(&l, (const float *)call->operand[0] + r * experts, dlogits, &aux, &z);
  }
  *(double *)call->operand[3] = aux * l.aux_factor;
  *(double *)call->operand[4] = z * l.z_factor;
}
#endif
