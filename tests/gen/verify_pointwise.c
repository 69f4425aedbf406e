/* verify_pointwise.c: programs of POINTWISE: the gradients that the generator derives, at ties, at
 * bounds and in branches that are not chosen; and that the verifier rejects other gradients, and
 * tables that do not fit. */
#include <math.h>

#include "gen/model/pointwise.h"
#include "kernels/kernels.h"
#include "tests/support/broken.h"

/* ---- gradients ---- */

enum { X0, X1, X2, DY = PEN_STEP_GRADIENT, S = PEN_STEP_OPERANDS, STEPS = 5, NUMBERS = 3 };

/* A program, operands, and the gradient of each with dy = 1, as PyTorch's. */
static const struct gradient_case {
  struct pen_program_step step[STEPS];
  uint32_t count;
  float x[NUMBERS], dx[NUMBERS];
} cases[] = {
    {{{PEN_STEP_LESS, {X0, X1}, 0}, {PEN_STEP_ADD, {S, X0}, 0}}, 2, {1, 2}, {1, 0}},
    {{{PEN_STEP_SQUARE, {X0}, 0}, {PEN_STEP_MUL, {S, X0}, 0}}, 2, {2}, {12}},
    {{{PEN_STEP_ADD, {X0, X1}, 0}}, 1, {2, 3}, {1, 1}},
    /* Where the branch of the logarithm, or of the root, is not chosen, its gradient adds 0; of
     * PyTorch's it is no number at 0. */
    {{{PEN_STEP_CONST, {0}, 0},
      {PEN_STEP_LESS, {S, X0}, 0},
      {PEN_STEP_LOG, {X0}, 0},
      {PEN_STEP_WHERE, {S + 1, S + 2, X1}, 0}},
     4,
     {0, 3},
     {0, 1}},
    {{{PEN_STEP_CONST, {0}, 0},
      {PEN_STEP_LESS, {S, X0}, 0},
      {PEN_STEP_SQRT, {X0}, 0},
      {PEN_STEP_WHERE, {S + 1, S + 2, X1}, 0}},
     4,
     {-4, 3},
     {0, 1}},
    {{{PEN_STEP_CONST, {0}, 0},
      {PEN_STEP_LESS, {S, X0}, 0},
      {PEN_STEP_SQRT, {X0}, 0},
      {PEN_STEP_WHERE, {S + 1, S + 2, X1}, 0}},
     4,
     {4, 3},
     {0.25f, 0}},
};

/* The same of one step. */
static const struct tie {
  int kind;
  float x[NUMBERS], dx[NUMBERS];
} ties[] = {
#define PEN_TIE(kind, a, b, c, da, db, dc) {PEN_STEP_##kind, {a, b, c}, {da, db, dc}},
#include "tests/gen/ties.def"
};

/* The gradient of operand k, by the kernel. */
static float gradient_of(const struct pen_pointwise_table *table, uint32_t row, uint32_t k,
                         const float x[NUMBERS]) {
  static _Alignas(64) float workspace[86016 / sizeof(float)];
  const struct pen_pointwise *g = &table->row[table->row[row].gradient[k]];
  float own[NUMBERS], dy = 1, dx = (float)NAN;
  memcpy(own, x, sizeof own);
  struct pen_call call = {
      .operand = {[X0] = &own[0], &own[1], &own[2], [DY] = &dy, &dx},
      .dim = {1, 1},
      .steps = {g->step_count, g->register_count, g->kind, g->to, g->a, g->b, g->c, g->number},
      .workspace = workspace};
  pen_kernel_of(PEN_OP_POINTWISE_DX, PEN_F32)(&call);
  return dx;
}

static void check_gradients(struct pen_pointwise_table *table, const struct gradient_case *of,
                            const char *what, size_t number) {
  struct pen_program_step step[STEPS];
  uint32_t row;
  memcpy(step, of->step, sizeof step);
  const struct pen_steps_list program = {step, of->count};
  assert_null(pen_pointwise_add(table, &program, &row));
  for (uint32_t k = 0; k < NUMBERS; k++) {
    if (!pen_steps_read(&program, k)) continue;
    const float dx = gradient_of(table, row, k, of->x);
    if (dx != of->dx[k])
      fail_msg("%s %zu, operand %u: %g, not %g", what, number, k, (double)dx, (double)of->dx[k]);
  }
}

static void gradients_of_branches_are_pytorchs(void **state) {
  (void)state;
  struct pen_pointwise_table table = {0};
  pen_kernels_open();
  for (size_t n = 0; n < sizeof cases / sizeof *cases; n++)
    check_gradients(&table, &cases[n], "case", n);
  pen_free_all();
}

static void gradients_at_ties_are_pytorchs(void **state) {
  (void)state;
  struct pen_pointwise_table table = {0};
  pen_kernels_open();
  for (size_t n = 0; n < sizeof ties / sizeof *ties; n++) {
    const struct tie *tie = &ties[n];
    const bool bounds = pen_step_needs_number(tie->kind, 1);
    struct gradient_case one = {.count = bounds ? 2 : 1};
    if (bounds) one.step[0] = (struct pen_program_step){PEN_STEP_CONST, {0}, (double)tie->x[1]};
    struct pen_program_step *step = &one.step[one.count - 1];
    step->kind = (uint8_t)tie->kind;
    for (uint32_t k = 0; k < pen_step_inputs(tie->kind); k++)
      step->input[k] = (uint16_t)(bounds && k == 1 ? S : k);
    memcpy(one.x, tie->x, sizeof one.x);
    memcpy(one.dx, tie->dx, sizeof one.dx);
    check_gradients(&table, &one, "tie", n);
  }
  pen_free_all();
}

/* ---- plans ---- */

static const char *reason_of(const struct pen_plan *plan) {
  struct pen_problem problem = {.rank = PEN_NONE, .action = PEN_NONE};
  return pen_verify(plan, &problem) ? "" : pen_text("%s", problem.reason);
}

static void assert_rejected(const struct pen_plan *plan, const char *what) {
  const char *reason = reason_of(plan);
  if (strncmp(reason, "pointwise: ", 11) != 0) fail_msg("%s: \"%s\"", what, reason);
}

/* A layer and a mix of this description have all steps. */
static struct pen_plan *plan_of(const char *settings) {
  return make_plan(pen_text(
      "pipeline = { ranks = 2; microbatches = 2; schedule = \"1f1b\"; };"
      "model = { family = \"described\"; description = \"%s\"; sequence = 4; %s };"
      "batch = { microbatch = 1; }; cluster = { device = \"cpu\"; }; generate = { prompts = 0; };"
      "optimizer = { learning_rate = 1e-3; steps = 1; };",
      tests_path("models/pointwise.json"), settings));
}

static struct pen_pointwise *rows_of(const struct pen_plan *plan) {
  return WRITABLE(struct pen_pointwise, plan->pointwise);
}

/* A step that makes something else of the same inputs; PEN_STEP_KINDS: none that always does. */
static int other_kind(int kind) {
  switch (kind) {
    case PEN_STEP_ADD: return PEN_STEP_SUB;
    case PEN_STEP_SUB: return PEN_STEP_ADD;
    case PEN_STEP_MUL:
    case PEN_STEP_CHAIN: return PEN_STEP_ADD;
    case PEN_STEP_DIV: return PEN_STEP_SUB;
    case PEN_STEP_NEG: return PEN_STEP_COPY;
    case PEN_STEP_SQUARE: return PEN_STEP_TANH;
    case PEN_STEP_SIGMOID:
    case PEN_STEP_EXP: return PEN_STEP_SQUARE;
    default: return PEN_STEP_KINDS;
  }
}

/* Changes a step of a gradient: what it computes, its number, or which branch it chooses. False: no
 * other one is known that makes something else. */
static bool change_step(struct pen_pointwise *row, uint32_t s) {
  const int other = other_kind(row->kind[s]);
  const uint8_t b = row->b[s];
  if (other < PEN_STEP_KINDS) row->kind[s] = (uint8_t)other;
  if (row->kind[s] == PEN_STEP_CONST) row->number[s] += 0.375;
  if (row->kind[s] == PEN_STEP_WHERE) row->b[s] = row->c[s], row->c[s] = b;
  return other < PEN_STEP_KINDS || row->kind[s] == PEN_STEP_CONST || b != row->b[s];
}

/* Changed steps are found, but for those of ties alone, at which there are no points, and a few
 * that only a comparison reads, of which they decide at too few points. */
static void other_gradients_are_rejected(void **state) {
  (void)state;
  struct pen_plan *plan = plan_of("");
  uint32_t mutants = 0, accepted = 0;
  assert_string_equal(reason_of(plan), "");
  for (uint32_t index = 0; index < plan->pointwise_count; index++)
    for (uint32_t k = 0; k < PEN_STEP_GRADIENT; k++) {
      if (plan->pointwise[index].gradient[k] == PEN_NONE) continue;
      struct pen_pointwise *row = &rows_of(plan)[plan->pointwise[index].gradient[k]], whole = *row;
      for (uint32_t s = 0; s < whole.step_count; s++) {
        if (change_step(row, s)) {
          mutants++;
          accepted += strncmp(reason_of(plan), "pointwise: ", 11) != 0;
        }
        *row = whole;
      }
    }
  assert_true(mutants > 100 && accepted * 10 < mutants);
  pen_free_all();
}

static struct pen_op *first_op(const struct pen_plan *plan, int kind) {
  for (uint32_t rank = 0; rank < plan->rank_count; rank++)
    for (uint32_t op = 0; op < plan->profiles[0].ranks[rank].op_count; op++)
      if (plan->profiles[0].ranks[rank].ops[op].kind == kind)
        return WRITABLE(struct pen_op, &plan->profiles[0].ranks[rank].ops[op]);
  fail_msg("no op %d", kind);
  return NULL;
}

static void tables_that_do_not_fit_are_rejected(void **state) {
  (void)state;
  struct pen_plan *plan = plan_of("dtype = \"bf16\";");
  struct pen_op *op = first_op(plan, PEN_OP_POINTWISE), *dx = first_op(plan, PEN_OP_POINTWISE_DX);
  const struct pen_op op_kept = *op, dx_kept = *dx;
  struct pen_pointwise *row = &rows_of(plan)[op->dim[2]];
  const struct pen_pointwise kept = *row;
  assert_string_equal(reason_of(plan), "");
#define REJECTED(change, restore)   \
  do {                              \
    change;                         \
    assert_rejected(plan, #change); \
    restore;                        \
  } while (0)
  REJECTED(op->dim[2] = plan->pointwise_count, *op = op_kept);
  REJECTED(op->dim[2] = row->gradient[0], *op = op_kept);
  REJECTED(dx->dim[3] = 3, *dx = dx_kept);
  REJECTED(row->gradient[0] = plan->pointwise_count, *row = kept);
  REJECTED(row->a[row->step_count - 1] = PEN_STEP_OPERANDS + 5, *row = kept);
  REJECTED(row->a[0] = 3, *row = kept);
  REJECTED(row->c[0] = UINT8_MAX, *row = kept);
  REJECTED(row->step_count = 0, *row = kept);
  REJECTED(row->kind[0] = PEN_STEP_KINDS, *row = kept);
  REJECTED(row->to[0] = 7, *row = kept);
#undef REJECTED
  for (uint32_t index = 0; index < plan->pointwise_count; index++) {
    row = &rows_of(plan)[index];
    const struct pen_pointwise whole = *row;
    for (uint32_t s = 0; s + 1 < whole.step_count; s++) {
      if (whole.kind[s] != PEN_STEP_CONST) continue;
      for (uint32_t other = 0; other + 1 < whole.step_count; other++)
        if (other != s) row->to[other] = whole.to[s];
      if (memcmp(row, &whole, sizeof whole) != 0) assert_rejected(plan, "a constant's register");
      *row = whole;
    }
  }
  pen_free_all();
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(gradients_of_branches_are_pytorchs),
      cmocka_unit_test(gradients_at_ties_are_pytorchs),
      cmocka_unit_test(other_gradients_are_rejected),
      cmocka_unit_test(tables_that_do_not_fit_are_rejected),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
