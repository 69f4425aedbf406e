/* experts.c: the ops of mixtures of experts against plain formulas in f64: routes and their
 * gradient; a layer in slices, forward and backward; that a row depends on no other, however many
 * its expert has. */
#include "tests/support/kernels_support.h"

/* ---- routes ---- */

static void softmax(double *score, const double *x, size_t count) {
  double sum = 0, most = x[0];
  for (size_t i = 1; i < count; i++) most = fmax(most, x[i]);
  for (size_t i = 0; i < count; i++) sum += score[i] = exp(x[i] - most);
  for (size_t i = 0; i < count; i++) score[i] /= sum;
}

/* How rows are routed (kernels/ops.def). */
struct router {
  int64_t experts, choices, normalize, sigmoid, groups, best_groups;
  double scale;
};

static struct pen_call call_of(const struct router *of, int64_t rows) {
  return (struct pen_call){.dim = {rows, of->experts, of->choices, of->normalize, of->sigmoid,
                                   of->groups, of->best_groups},
                           .real = {of->scale}};
}

static void route(const struct router *of, const float *logits, const float *bias, int64_t rows,
                  int32_t *expert, float *weight) {
  struct pen_call call = call_of(of, rows);
  void *const operands[] = {(void *)(uintptr_t)logits, (void *)(uintptr_t)bias, expert, weight};
  memcpy(call.operand, operands, sizeof operands);
  run(PEN_OP_ROUTE, &call);
}

static void scores_of(const struct router *of, double *score, const double *logits) {
  if (!of->sigmoid) softmax(score, logits, (size_t)of->experts);
  for (int64_t e = 0; e < of->experts && of->sigmoid; e++) score[e] = 1 / (1 + exp(-logits[e]));
}

static int is_greater(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x < y) - (x > y);
}

/* The sum of the two greatest of a group. */
static double group_sum(const struct router *of, const double *choice, int64_t group) {
  const int64_t size = of->experts / of->groups;
  double own[64];
  memcpy(own, choice + group * size, (size_t)size * sizeof *own);
  qsort(own, (size_t)size, sizeof *own, is_greater);
  return own[0] + own[1];
}

/* Which experts a row chooses: the greatest of the scores plus the bias, of the best groups. */
static void wanted_choice(const struct router *of, const double *score, const float *bias,
                          bool chosen[64]) {
  double choice[64], rank[64];
  const int64_t groups = of->groups ? of->groups : 1, size = of->experts / groups;
  for (int64_t e = 0; e < of->experts; e++) choice[e] = score[e] + (bias ? (double)bias[e] : 0);
  for (int64_t g = 0; g < groups && groups > 1; g++) {
    int64_t better = 0;
    for (int64_t h = 0; h < groups; h++)
      better += group_sum(of, choice, h) > group_sum(of, choice, g);
    for (int64_t e = g * size; e < (g + 1) * size; e++)
      rank[e] = better < of->best_groups ? choice[e] : -INFINITY;
  }
  for (int64_t e = 0; e < of->experts; e++) {
    const double *const by = groups > 1 ? rank : choice;
    int64_t better = 0;
    for (int64_t other = 0; other < of->experts; other++) better += by[other] > by[e];
    chosen[e] = better < of->choices;
  }
}

static const struct router routers[] = {{37, 5, 0, 0, 0, 0, 1},   {37, 5, 1, 0, 0, 0, 1},
                                        {37, 5, 1, 1, 1, 1, 2.5}, {36, 5, 0, 1, 6, 2, 1},
                                        {36, 4, 1, 1, 4, 3, .5},  {60, 3, 0, 1, 30, 2, 1}};
enum { ROUTERS = sizeof routers / sizeof *routers };

static void check_row(const struct router *of, const double *score, const float *bias,
                      const int32_t *expert, const float *weight) {
  bool chosen[64];
  double sum = 0;
  wanted_choice(of, score, bias, chosen);
  for (int64_t c = 0; c < of->choices; c++) {
    assert_true(expert[c] >= 0 && expert[c] < of->experts && (c == 0 || expert[c] > expert[c - 1]));
    assert_true(chosen[expert[c]]);
    sum += score[expert[c]];
  }
  for (int64_t c = 0; c < of->choices; c++) {
    const double wanted = score[expert[c]] / (of->normalize ? sum : 1) * of->scale;
    assert_true(fabs((double)weight[c] - wanted) < 1e-6 * wanted);
  }
}

static void routes_are_the_greatest_scores(void **state) {
  enum { ROWS = 57 };
  for (const struct router *of = routers; of < routers + ROUTERS; of++) {
    const size_t experts = (size_t)of->experts, choices = (size_t)of->choices;
    float *logits = random_floats(ROWS * experts, 3), *weight = floats(ROWS * choices),
          *bias = of->sigmoid ? random_floats(experts, 4) : NULL;
    int32_t *expert = bytes_at(ROWS * choices * sizeof *expert, 0);
    for (size_t i = 0; i < ROWS * experts; i++) logits[i] *= 5;
    route(of, logits, bias, ROWS, expert, weight);
    for (size_t r = 0; r < ROWS; r++) {
      double score[64];
      scores_of(of, score, widened(logits + r * experts, experts));
      free_last_tensor();
      check_row(of, score, bias, expert + r * choices, weight + r * choices);
    }
    free_tensors(state);
  }
}

/* Equal scores: the lower number; what is no number is least, and there are always routes. */
static void ties_and_nan(void **state) {
  (void)state;
  static const struct router of = {7, 3, 1, 0, 0, 0, 1}, grouped = {8, 3, 1, 1, 4, 2, 1};
  float *logits = floats(5 * 8), *weight = floats(5 * 3);
  int32_t *expert = bytes_at(15 * sizeof *expert, 0);
  static const int32_t wanted[] = {0, 1, 2, 0, 4, 6, 0, 1, 2, 0, 1, 2};
  for (size_t i = 0; i < 28; i++) logits[i] = 1;
  logits[7 + 4] = logits[7 + 6] = 2;
  logits[14 + 5] = NAN;
  logits[21 + 3] = INFINITY;
  route(&of, logits, NULL, 4, expert, weight);
  for (size_t i = 0; i < 12; i++) assert_int_equal(expert[i], wanted[i]);
  assert_true(isnan(weight[6]) && isnan(weight[9]));
  static const int32_t of_groups[] = {0, 1, 2, 4, 5, 7, 0, 1, 4, 0, 4, 5, 0, 1, 2};
  for (size_t i = 0; i < 40; i++) logits[i] = 1;
  logits[8 + 4] = logits[8 + 7] = 2;
  logits[16 + 2] = NAN; /* a group with it is the last */
  logits[24 + 2] = logits[24 + 7] = logits[24 + 1] = NAN;
  for (size_t i = 32; i < 40; i++) logits[i] = NAN;
  route(&grouped, logits, NULL, 5, expert, weight);
  for (size_t i = 0; i < 15; i++) assert_int_equal(expert[i], of_groups[i]);
}

/* Sigmoids that are 0 in f32 have weights and gradients of 0, and so has their balancing loss. */
static void scores_of_zero(void **state) {
  (void)state;
  static const struct router of = {8, 3, 1, 1, 1, 1, 2.5};
  float *logits = floats(8), *weight = floats(3), *dweight = floats(3), *dlogits = floats(8);
  double aux, z;
  int32_t *expert = bytes_at(3 * sizeof *expert, 0);
  for (size_t e = 0; e < 8; e++) logits[e] = -200 - (float)e;
  route(&of, logits, NULL, 1, expert, weight);
  struct pen_call call = call_of(&of, 1);
  void *const operands[] = {dweight, logits, expert, NULL, dlogits};
  memcpy(call.operand, operands, sizeof operands);
  for (size_t c = 0; c < 3; c++) dweight[c] = 1 + (float)c;
  run(PEN_OP_ROUTE_DX, &call);
  for (size_t c = 0; c < 3; c++) assert_true(fabsf(weight[c]) < 1e-6f);
  for (size_t e = 0; e < 8; e++) assert_true(fabsf(dlogits[e]) < 1e-6f);
  struct pen_call loss = {.dim = {1, 8, 3, 1, 1}, .real = {0.7, 0}};
  void *const read[] = {logits, expert, NULL, &aux, &z, dlogits};
  memcpy(loss.operand, read, sizeof read);
  run(PEN_OP_ROUTER_LOSS, &loss);
  assert_true(fabs(aux) < 1e-6);
  for (size_t e = 0; e < 8; e++) assert_true(fabsf(dlogits[e]) < 1e-6f);
}

struct routed_row {
  const struct router *of;
  const int32_t *expert;
  const double *dweight;
  double *logits;
};

static double weighed(const void *context) {
  const struct routed_row *r = context;
  double score[64], sum = 0, total = 0;
  scores_of(r->of, score, r->logits);
  for (int64_t c = 0; c < r->of->choices; c++) sum += score[r->expert[c]];
  for (int64_t c = 0; c < r->of->choices; c++)
    total += r->dweight[c] * score[r->expert[c]] / (r->of->normalize ? sum : 1) * r->of->scale;
  return total;
}

static void the_gradient_of_routes(void **state) {
  enum { ROWS = 9 };
  for (const struct router *of = routers; of < routers + ROUTERS; of++) {
    const size_t experts = (size_t)of->experts, choices = (size_t)of->choices;
    float *logits = random_floats(ROWS * experts, 5), *dweight = random_floats(ROWS * choices, 6),
          *weight = floats(ROWS * choices), *dlogits = floats(ROWS * experts);
    int32_t *expert = bytes_at(ROWS * choices * sizeof *expert, 0);
    double *wide = widened(logits, ROWS * experts), *dwide = widened(dweight, ROWS * choices),
           *wanted = doubles(ROWS * experts);
    route(of, logits, NULL, ROWS, expert, weight);
    struct pen_call call = call_of(of, ROWS);
    void *const operands[] = {dweight, logits, expert, NULL, dlogits};
    memcpy(call.operand, operands, sizeof operands);
    run(PEN_OP_ROUTE_DX, &call);
    for (size_t r = 0; r < ROWS; r++) {
      struct routed_row one = {of, expert + r * choices, dwide + r * choices, wide + r * experts};
      differences(weighed, &one, one.logits, experts, wanted + r * experts);
    }
    assert_near("dlogits", dlogits, wanted, ROWS * experts, 2e-6, 1);
    free_tensors(state);
  }
}

/* ---- losses of routers ---- */

/* What the losses of a microbatch depend on beside its logits. */
struct routed_rows {
  const struct router *of;
  int64_t rows, sequences;
  const int32_t *expert;
  double aux_factor, z_factor;
  const double *logits;
  const float *counts; /* of a step before; null: the choices of the rows count */
};

static double aux_of(const struct routed_rows *r) {
  const int64_t experts = r->of->experts, run = r->rows / r->sequences;
  double total = 0;
  for (int64_t s = 0; s < r->sequences; s++) {
    double share[64] = {0}, mean[64] = {0}, score[64], all = 0;
    for (int64_t i = 0; i < run * r->of->choices && !r->counts; i++)
      share[r->expert[s * run * r->of->choices + i]]++;
    for (int64_t e = 0; e < experts && r->counts; e++) share[e] = (double)r->counts[e];
    for (int64_t e = 0; e < experts; e++) all += share[e];
    for (int64_t e = 0; e < experts; e++)
      share[e] = all > 0 ? share[e] / all : 1.0 / (double)experts;
    for (int64_t i = 0; i < run; i++) {
      double sum = 0;
      scores_of(r->of, score, r->logits + (s * run + i) * experts);
      for (int64_t e = 0; e < experts; e++) sum += score[e];
      for (int64_t e = 0; e < experts; e++) mean[e] += score[e] / sum / (double)run;
    }
    for (int64_t e = 0; e < experts; e++) total += share[e] * (double)experts * mean[e];
  }
  return r->aux_factor * total / (double)r->sequences;
}

static double z_of(const struct routed_rows *r) {
  double total = 0;
  for (int64_t i = 0; i < r->rows; i++) {
    double sum = 0;
    for (int64_t e = 0; e < r->of->experts; e++) sum += exp(r->logits[i * r->of->experts + e]);
    total += log(sum) * log(sum);
  }
  return r->z_factor * total / (double)r->rows;
}

static double router_loss_of(const void *context) { return aux_of(context) + z_of(context); }

/* By the choices of the rows, by counts, and by counts of a first step, which are 0. */
static void the_losses_of_routers(void **state) {
  enum { ROWS = 12, KINDS = 3 };
  for (size_t n = 0; n < KINDS * ROUTERS; n++) {
    const struct router *of = &routers[n / KINDS];
    const size_t experts = (size_t)of->experts, choices = (size_t)of->choices;
    float *logits = random_floats(ROWS * experts, 5), *weight = floats(ROWS * choices),
          *dlogits = floats(ROWS * experts), *counts = n % KINDS ? floats(experts) : NULL;
    int32_t *expert = bytes_at(ROWS * choices * sizeof *expert, 0);
    double *wide = widened(logits, ROWS * experts), *wanted = doubles(ROWS * experts), aux, z;
    route(of, logits, NULL, ROWS, expert, weight);
    for (size_t e = 0; e < experts && n % KINDS; e++)
      counts[e] = n % KINDS == 1 ? (float)(e * 7 % 13) : 0;
    const struct routed_rows rows = {
        of, ROWS, of->choices % 2 && !counts ? 3 : 1, expert, 0.7, 0.2, wide, counts};
    struct pen_call call = {.dim = {ROWS, of->experts, of->choices, rows.sequences, of->sigmoid},
                            .real = {rows.aux_factor, rows.z_factor}};
    void *const operands[] = {logits, expert, counts, &aux, &z, dlogits};
    memcpy(call.operand, operands, sizeof operands);
    run(PEN_OP_ROUTER_LOSS, &call);
    assert_true(fabs(aux - aux_of(&rows)) <= 2e-6 * aux && aux > 0);
    assert_true(fabs(z - z_of(&rows)) <= 2e-6 * z && z > 0);
    differences(router_loss_of, &rows, wide, ROWS * experts, wanted);
    assert_near("dlogits", dlogits, wanted, ROWS * experts, 2e-6, 1);
    free_tensors(state);
  }
}

/* ---- a layer ---- */

struct layer_shape {
  size_t rows, part, choices, runs, experts, width, ffn;
};

struct tested_layer {
  struct layer_shape of;
  float *x, *weight, *gate, *up, *down, *addend, *dy;
  int32_t *expert;
  float *y, *dx, *dweight, *dgate, *dup, *ddown;
};

/* `crowded`: all rows go to the last experts. */
static struct tested_layer make_layer(const struct layer_shape *of, bool crowded) {
  const size_t matrices = of->experts * of->width * of->ffn, pairs = of->rows * of->choices;
  struct tested_layer l = {.of = *of,
                           .x = random_floats(of->rows * of->width, 1),
                           .weight = random_floats(pairs, 2),
                           .gate = random_floats(matrices, 3),
                           .up = random_floats(matrices, 4),
                           .down = random_floats(matrices, 5),
                           .addend = random_floats(of->rows * of->width, 6),
                           .dy = random_floats(of->rows * of->width, 7),
                           .expert = bytes_at(pairs * sizeof *l.expert, 0),
                           .y = floats(of->rows * of->width),
                           .dx = floats(of->rows * of->width),
                           .dweight = floats(pairs),
                           .dgate = random_floats(matrices, 8),
                           .dup = random_floats(matrices, 9),
                           .ddown = random_floats(matrices, 10)};
  for (size_t r = 0; r < of->rows; r++)
    for (size_t c = 0; c < of->choices; c++)
      l.expert[r * of->choices + c] =
          (int32_t)(crowded ? of->experts - of->choices + c
                            : (r * r % (of->experts - of->choices + 1)) + c);
  return l;
}

static void run_forward(struct tested_layer *l) {
  const struct layer_shape *s = &l->of;
  float *sent = floats(s->part * s->width), *slots = floats(s->part * s->choices * s->width);
  for (size_t n = 0; n < s->rows / s->part; n++) {
    const int64_t moved[] = {(int64_t)s->rows,    (int64_t)s->width, (int64_t)s->part,
                             (int64_t)s->choices, (int64_t)s->runs,  (int64_t)n,
                             (int64_t)s->experts};
    struct pen_call dispatch = {.operand = {l->x, l->expert, sent}},
                    experts = {.operand = {sent, l->expert, l->weight, l->gate, l->up, l->down,
                                           slots},
                               .dim = {moved[0], moved[2], moved[3], moved[4], moved[5], moved[6],
                                       moved[1], (int64_t)s->ffn}},
                    sum = {.operand = {slots, l->expert, n ? l->y : l->addend, l->y}};
    memcpy(dispatch.dim, moved, sizeof moved);
    memcpy(sum.dim, moved, sizeof moved);
    run(PEN_OP_DISPATCH, &dispatch);
    run(PEN_OP_EXPERTS, &experts);
    run(PEN_OP_SUM_CHOICES, &sum);
  }
}

static void run_backward(struct tested_layer *l) {
  const struct layer_shape *s = &l->of;
  const size_t slices = s->rows / s->part;
  float *sent = floats(s->part * s->width), *dy = floats(s->part * s->width),
        *dslots = floats(s->part * s->choices * s->width);
  for (size_t n = slices; n-- > 0;) {
    const int64_t moved[] = {(int64_t)s->rows,    (int64_t)s->width, (int64_t)s->part,
                             (int64_t)s->choices, (int64_t)s->runs,  (int64_t)n,
                             (int64_t)s->experts};
    const bool first = n + 1 == slices;
    struct pen_call of_x = {.operand = {l->x, l->expert, sent}},
                    of_dy = {.operand = {l->dy, l->expert, dy}},
                    experts = {.operand = {dy, sent, l->expert, l->weight, l->gate, l->up, l->down,
                                           first ? NULL : l->dweight, l->dweight, dslots, l->dgate,
                                           l->dup, l->ddown},
                               .dim = {moved[0], moved[2], moved[3], moved[4], moved[5], moved[6],
                                       moved[1], (int64_t)s->ffn}},
                    sum = {.operand = {dslots, l->expert, first ? NULL : l->dx, l->dx}};
    memcpy(of_x.dim, moved, sizeof moved);
    memcpy(of_dy.dim, moved, sizeof moved);
    memcpy(sum.dim, moved, sizeof moved);
    run(PEN_OP_DISPATCH, &of_x);
    run(PEN_OP_DISPATCH, &of_dy);
    run(PEN_OP_EXPERTS_DX, &experts);
    run(PEN_OP_SUM_CHOICES, &sum);
  }
}

/* The same in f64, row by row; gradients are added to what was there. */
struct wanted {
  double *y, *dx, *dweight, *dgate, *dup, *ddown;
};

static double dot(const float *a, size_t stride_a, const float *b, size_t stride_b, size_t count) {
  double sum = 0;
  for (size_t i = 0; i < count; i++) sum += (double)a[i * stride_a] * (double)b[i * stride_b];
  return sum;
}

static void compute_pair(const struct tested_layer *l, const struct wanted *w, size_t r, size_t c) {
  const size_t h = l->of.width, f = l->of.ffn, pair = r * l->of.choices + c,
               at = (size_t)l->expert[pair] * h * f;
  const float *x = l->x + r * h, *dy = l->dy + r * h;
  const double p = (double)l->weight[pair];
  w->dweight[pair] = 0;
  for (size_t j = 0; j < f; j++) {
    const double g = dot(x, 1, l->gate + at + j * h, 1, h), u = dot(x, 1, l->up + at + j * h, 1, h),
                 d = dot(dy, 1, l->down + at + j, f, h), s = 1 / (1 + exp(-g)), act = g * s * u,
                 dg = p * d * u * s * (1 + g * (1 - s)), du = p * d * g * s;
    w->dweight[pair] += d * act;
    for (size_t i = 0; i < h; i++) {
      w->y[r * h + i] += p * act * (double)l->down[at + i * f + j];
      w->dx[r * h + i] += dg * (double)l->gate[at + j * h + i] + du * (double)l->up[at + j * h + i];
      w->dgate[at + j * h + i] += dg * (double)x[i];
      w->dup[at + j * h + i] += du * (double)x[i];
      w->ddown[at + i * f + j] += p * act * (double)dy[i];
    }
  }
}

static void check_layer(void **state, const struct layer_shape *s, bool crowded) {
  const size_t matrices = s->experts * s->width * s->ffn, pairs = s->rows * s->choices;
  struct tested_layer l = make_layer(s, crowded);
  const struct wanted w = {.y = widened(l.addend, s->rows * s->width),
                           .dx = doubles(s->rows * s->width),
                           .dweight = doubles(pairs),
                           .dgate = widened(l.dgate, matrices),
                           .dup = widened(l.dup, matrices),
                           .ddown = widened(l.ddown, matrices)};
  memset(w.dx, 0, s->rows * s->width * sizeof *w.dx);
  for (size_t r = 0; r < s->rows; r++)
    for (size_t c = 0; c < s->choices; c++) compute_pair(&l, &w, r, c);
  run_forward(&l);
  run_backward(&l);
  assert_near("y", l.y, w.y, s->rows * s->width, 4e-6, 1);
  assert_near("dx", l.dx, w.dx, s->rows * s->width, 4e-6, 1);
  assert_near("dweight", l.dweight, w.dweight, pairs, 4e-6, 1);
  assert_near("dgate", l.dgate, w.dgate, matrices, 4e-6, 1);
  assert_near("dup", l.dup, w.dup, matrices, 4e-6, 1);
  assert_near("ddown", l.ddown, w.ddown, matrices, 4e-6, 1);
  free_tensors(state);
}

static void a_layer_equals_its_formula(void **state) {
  static const struct layer_shape shapes[] = {{24, 24, 2, 3, 5, 21, 13}, {24, 12, 2, 3, 5, 21, 13},
                                              {24, 6, 3, 2, 8, 16, 32},  {7, 7, 1, 1, 1, 5, 3},
                                              {500, 500, 1, 1, 2, 9, 7}, {12, 4, 2, 1, 2, 40, 17}};
  for (size_t n = 0; n < sizeof shapes / sizeof *shapes; n++)
    for (int crowded = 0; crowded < 2; crowded++) check_layer(state, &shapes[n], crowded);
}

/* ---- rows ---- */

/* The bits of the rows of one layer that another one has, too, from `first` on. */
static void compare_rows(const struct tested_layer *some, const struct tested_layer *all,
                         size_t first) {
  const size_t width = some->of.width, choices = some->of.choices;
  assert_same_bits("y", some->y, all->y + first * width, some->of.rows * width * sizeof(float));
  assert_same_bits("dx", some->dx, all->dx + first * width, some->of.rows * width * sizeof(float));
  assert_same_bits("dweight", some->dweight, all->dweight + first * choices,
                   some->of.rows * choices * sizeof(float));
}

/* Also in more slices, and with other products asked for. */
static void a_row_depends_on_no_other(void **state) {
  static const struct layer_shape whole = {60, 60, 2, 1, 4, 37, 29};
  for (int crowded = 0; crowded < 2; crowded++)
    for (size_t first = 0; first < 59; first += 7) {
      struct tested_layer all = make_layer(&whole, crowded), some = all;
      some.of.rows = some.of.part = 60 - first;
      if (first == 0) some.of.part = 12;
      some.x += first * whole.width;
      some.addend += first * whole.width;
      some.dy += first * whole.width;
      some.weight += first * whole.choices;
      some.expert += first * whole.choices;
      some.y = floats(60 * whole.width);
      some.dx = floats(60 * whole.width);
      some.dweight = floats(60 * whole.choices);
      run_forward(&all);
      run_backward(&all);
      run_forward(&some);
      run_backward(&some);
      compare_rows(&some, &all, first);
      free_tensors(state);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(routes_are_the_greatest_scores),
      cmocka_unit_test(ties_and_nan),
      cmocka_unit_test(scores_of_zero),
      cmocka_unit_test(the_gradient_of_routes),
      cmocka_unit_test(the_losses_of_routers),
      cmocka_unit_test(a_layer_equals_its_formula),
      cmocka_unit_test(a_row_depends_on_no_other),
  };
  return RUN_ON_EVERY_SET(tests);
}
