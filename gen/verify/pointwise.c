/* pointwise.c: the programs of POINTWISE, and those of their gradients.
 *
 * The rule, with which its messages begin:
 *
 *   pointwise   an op names a program of the table that reads the operands which the op has; each
 *               step reads operands and registers that steps before it have written; and a gradient
 *               is dy times the derivative of its program
 *
 * Derivatives are compared with central differences in f64 at 64 points, which are drawn from one
 * seed. Where a step compares, bounds or chooses, at least 8 of them are on either side, so that
 * both branches are checked: without such points the program is refused, which is the user's
 * mistake. At a point an operand is compared if its difference stays on one side of all steps. A
 * branch that is not chosen may have no finite value there; its gradient must be 0. Where a step
 * that the result needs has none, or no derivative, as 1/x or the root of x at 0, the gradient may
 * be no number, as PyTorch's is. */
#include <math.h>
#include <string.h>

#include "gen/model/op_signature.h"
#include "gen/verify/internal.h"
#include "runtime/plan/plan.h"

enum {
  POINTS = 64,
  EACH_SIDE = 8,
  DRAWS = 8192,
  VALUES = PEN_STEP_OPERANDS + PEN_STEP_REGISTERS_MAX,
  IS_GRADIENT = PEN_STEP_GRADIENT, /* the operand dy */
};

/* Numbers of a program are of f32: the error of a few, relative, which a difference lays bare. */
static const double numbers_rounded = 0x1p-22;

#define PROBLEM(problem, ...) \
  pen_problem_note(problem, PEN_NONE, PEN_NONE, "pointwise: " __VA_ARGS__)

static const char *const names[PEN_STEP_KINDS] = {
#define PEN_STEP(kind, inputs, ...) #kind,
#include "kernels/steps.def"
};
static const uint8_t input_counts[PEN_STEP_KINDS] = {
#define PEN_STEP(kind, inputs, ...) sizeof inputs - 1,
#include "kernels/steps.def"
};

/* ---- tables ---- */

/* The operands that a program reads, a bit set; false: a step reads what no step has written. */
static bool find_reads(const struct pen_pointwise *row, uint32_t *operands) {
  bool written[PEN_STEP_REGISTERS_MAX] = {false};
  *operands = 0;
  if (row->step_count == 0 || row->step_count > PEN_STEPS_MAX ||
      row->register_count > PEN_STEP_REGISTERS_MAX)
    return false;
  for (uint32_t s = 0; s < row->step_count; s++) {
    const bool is_last = s + 1 == row->step_count;
    const uint8_t input[] = {row->a[s], row->b[s], row->c[s]};
    if (row->kind[s] >= PEN_STEP_KINDS || (is_last && row->kind[s] == PEN_STEP_CONST)) return false;
    for (size_t k = 0; k < sizeof input; k++)
      if (k >= input_counts[row->kind[s]]) {
        if (input[k] != (k ? input[k - 1] : 0)) return false; /* unused */
      } else if (input[k] < PEN_STEP_OPERANDS)
        *operands |= 1u << input[k];
      else if (input[k] >= VALUES || !written[input[k] - PEN_STEP_OPERANDS])
        return false;
    if (!is_last && row->to[s] >= row->register_count) return false;
    if (!is_last) written[row->to[s]] = true;
  }
  return true;
}

/* Kernels fill the register of a constant before all steps, so it has no other value. */
static bool keeps_constants(const struct pen_pointwise *row) {
  uint32_t writers[PEN_STEP_REGISTERS_MAX] = {0};
  for (uint32_t s = 0; s + 1 < row->step_count; s++) writers[row->to[s]]++;
  for (uint32_t s = 0; s + 1 < row->step_count; s++)
    if (row->kind[s] == PEN_STEP_CONST && writers[row->to[s]] > 1) return false;
  return true;
}

static bool check_row(const struct pen_plan *plan, uint32_t index, struct pen_problem *problem) {
  const struct pen_pointwise *row = &plan->pointwise[index];
  uint32_t operands;
  if (!find_reads(row, &operands) || !keeps_constants(row))
    return PROBLEM(problem, "program %u: a step reads what no step before it has written", index);
  for (uint32_t k = 0; k < PEN_STEP_GRADIENT; k++)
    if (row->gradient[k] != PEN_NONE && row->gradient[k] >= plan->pointwise_count)
      return PROBLEM(problem, "program %u: the gradient of operand %u is program %u of %u", index,
                     k, row->gradient[k], plan->pointwise_count);
  return true;
}

/* An op names a program; its operands are those that the program, and of a gradient the forward,
 * reads. */
static bool check_op(const struct pen_plan *plan, const struct pen_op *op,
                     struct pen_problem *problem) {
  const bool is_gradient = op->kind == PEN_OP_POINTWISE_DX;
  const uint64_t index = (uint64_t)op->dim[2], operand = is_gradient ? (uint64_t)op->dim[3] : 0;
  uint32_t operands = 0, reads, own = 0;
  if (op->kind != PEN_OP_POINTWISE && !is_gradient) return true;
  if (index >= plan->pointwise_count || operand >= PEN_STEP_GRADIENT)
    return PROBLEM(problem, "an op names program %llu of %u, operand %llu",
                   (unsigned long long)index, plan->pointwise_count, (unsigned long long)operand);
  const struct pen_pointwise *row = &plan->pointwise[index];
  if (is_gradient && row->gradient[operand] == PEN_NONE)
    return PROBLEM(problem,
                   "an op names the gradient of operand %llu, which program %llu does not have",
                   (unsigned long long)operand, (unsigned long long)index);
  for (uint32_t k = 0; k < PEN_STEP_GRADIENT; k++)
    if (op->operand[k] != PEN_NONE) operands |= 1u << k;
  find_reads(row, &reads);
  if (is_gradient) find_reads(&plan->pointwise[row->gradient[operand]], &own);
  if (reads != operands || (own & ~operands & ~(1u << IS_GRADIENT)))
    return PROBLEM(problem, "program %llu reads other operands than its op has",
                   (unsigned long long)index);
  return true;
}

static bool check_ops(const struct pen_plan *plan, struct pen_problem *problem) {
  for (uint32_t index = 0; index < plan->profile_count; index++)
    for (uint32_t rank = 0; rank < plan->rank_count; rank++) {
      const struct pen_rank_program *tables = &plan->profiles[index].ranks[rank];
      for (uint32_t op = 0; op < tables->op_count; op++)
        if (!check_op(plan, &tables->ops[op], problem)) return false;
    }
  return true;
}

/* ---- values in f64 ---- */

/* The inputs of a program, and what its steps make of them. */
struct point {
  double operand[PEN_STEP_OPERANDS];
  double result;
  double largest; /* of all steps, by magnitude */
  double value[PEN_STEPS_MAX];
  int8_t side[PEN_STEPS_MAX]; /* of each step: 0, 1, or -1: it has one formula */
};

static double value_of(int kind, double a, double b, double c, double number, int8_t *side) {
  switch (kind) {
#define PEN_STEP_F64(kind, value, which) \
  case PEN_STEP_##kind:                  \
    *side = (which);                     \
    return value;
#include "gen/verify/steps.def"
    default: return (double)NAN;
  }
}

/* Steps whose branch is not chosen may have any value: only those that the result needs count,
 * which is finite then. */
static void run(const struct pen_pointwise *row, struct point *p) {
  double value[VALUES] = {0};
  memcpy(value, p->operand, sizeof p->operand);
  p->largest = 0;
  for (uint32_t s = 0; s < row->step_count; s++) {
    p->result = value_of(row->kind[s], value[row->a[s]], value[row->b[s]], value[row->c[s]],
                         row->number[s], &p->side[s]);
    p->value[s] = p->result;
    if (fabs(p->result) > p->largest && isfinite(p->result)) p->largest = fabs(p->result);
    if (s + 1 < row->step_count) value[PEN_STEP_OPERANDS + row->to[s]] = p->result;
  }
}

/* Whether a step's result needs that input: of a choice the one that is chosen. */
static bool needs_input(int kind, int8_t side, size_t k, double input, double result) {
  switch (kind) {
    case PEN_STEP_WHERE: return k == 0 || k == (side ? 1 : 2);
    case PEN_STEP_MAX:
    case PEN_STEP_MIN:
    case PEN_STEP_CLAMP_MIN:
    case PEN_STEP_CLAMP_MAX:
    case PEN_STEP_RELU: return isnan(input) || !(input < result || input > result);
    default: return true;
  }
}

/* Whether a step that the result needs has no finite value, or no finite derivative. */
static bool has_pole(const struct pen_pointwise *row, const struct point *p) {
  uint32_t writer[PEN_STEPS_MAX][3], last[PEN_STEP_REGISTERS_MAX] = {0};
  bool needed[PEN_STEPS_MAX] = {false};
  for (uint32_t s = 0; s < row->step_count; s++) {
    const uint8_t input[] = {row->a[s], row->b[s], row->c[s]};
    for (size_t k = 0; k < sizeof input; k++)
      writer[s][k] = input[k] < PEN_STEP_OPERANDS ? PEN_NONE : last[input[k] - PEN_STEP_OPERANDS];
    if (s + 1 < row->step_count) last[row->to[s]] = s;
  }
  needed[row->step_count - 1] = true;
  for (uint32_t s = row->step_count; s-- > 0;) {
    const bool is_vertical = row->kind[s] == PEN_STEP_SQRT && p->value[s] == 0;
    if (needed[s] && (is_vertical || !isfinite(p->value[s]))) return true;
    for (size_t k = 0; needed[s] && k < input_counts[row->kind[s]]; k++)
      if (writer[s][k] != PEN_NONE &&
          needs_input(row->kind[s], p->side[s], k, p->value[writer[s][k]], p->value[s]))
        needed[writer[s][k]] = true;
  }
  return false;
}

/* ---- points ---- */

struct draws {
  uint64_t state;
};

/* From 0 to 1 (Steele et al. 2014: splitmix64). */
static double draw(struct draws *d) {
  uint64_t z = d->state += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return (double)((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

/* The number of a step CONST of the program, or 0. */
static double draw_constant(const struct pen_pointwise *row, struct draws *d) {
  const uint32_t s = (uint32_t)(draw(d) * row->step_count);
  return row->kind[s] == PEN_STEP_CONST ? row->number[s] : 0;
}

/* Of any sign and of sizes from 1/16 to 8; of four operands one is at or near a number with which
 * the program may compare it. */
static double draw_operand(const struct pen_pointwise *row, struct draws *d) {
  const double size = exp2(7 * draw(d) - 4), x = (2 * draw(d) - 1) * size;
  const double near = draw_constant(row, d), way = draw(d);
  if (way < 0.125) return near;
  return way < 0.25 ? near + 0.25 * x : x;
}

static void draw_point(const struct pen_pointwise *row, struct draws *d, struct point *p) {
  for (size_t k = 0; k < PEN_STEP_OPERANDS; k++) p->operand[k] = draw_operand(row, d);
  p->operand[IS_GRADIENT] = 0.5 + draw(d);
  run(row, p);
}

/* How many points are on each side of each step; at how many each operand was compared. A point
 * counts if it compares an operand. */
struct coverage {
  uint32_t side[PEN_STEPS_MAX][2], operand[PEN_STEP_OPERANDS];
  uint32_t points;
};

/* Whether a point is of use: the places that are left are for sides that have too few. */
static bool is_wanted(const struct pen_pointwise *row, const struct coverage *c,
                      const struct point *p) {
  uint32_t missing = 0;
  bool helps = false;
  for (uint32_t s = 0; s < row->step_count; s++)
    for (int8_t side = 0; side < 2 && p->side[s] >= 0; side++) {
      const uint32_t has = c->side[s][side];
      if (has >= EACH_SIDE) continue;
      if (missing < EACH_SIDE - has) missing = EACH_SIDE - has;
      helps = helps || p->side[s] == side;
    }
  return helps || c->points + 2 * missing < POINTS;
}

static void count_point(const struct pen_pointwise *row, struct coverage *c,
                        const struct point *p) {
  c->points++;
  for (uint32_t s = 0; s < row->step_count; s++)
    if (p->side[s] >= 0) c->side[s][p->side[s]]++;
}

/* ---- derivatives ---- */

static bool same_sides(const struct pen_pointwise *row, const struct point *p,
                       const struct point *other) {
  return memcmp(p->side, other->side, row->step_count * sizeof *p->side) == 0 &&
         isfinite(other->result);
}

/* The central difference of an operand at a point; false: it is not on one side. */
static bool difference(const struct pen_pointwise *row, uint32_t k, const struct point *p,
                       double step, double *found) {
  struct point above = *p, below = *p;
  above.operand[k] += step;
  below.operand[k] -= step;
  run(row, &above);
  run(row, &below);
  *found = (above.result - below.result) / (above.operand[k] - below.operand[k]);
  return same_sides(row, p, &above) && same_sides(row, p, &below);
}

/* Compares the gradient of an operand at a point, unless its difference is not on one side, or, as
 * beside a pole, depends on the step; or is of a pole. */
static bool check_gradient(const struct pen_plan *plan, uint32_t index, uint32_t k,
                           const struct point *p, uint32_t *compared, struct pen_problem *problem) {
  const struct pen_pointwise *row = &plan->pointwise[index];
  const double step = 1e-5 * fmax(fabs(p->operand[k]), 1e-2), dy = p->operand[IS_GRADIENT],
               rounding = 4e-16 * (p->largest + 1) / step;
  struct point gradient = *p;
  double one, other;
  if (!difference(row, k, p, step, &one) || !difference(row, k, p, 2 * step, &other) ||
      fabs(one - other) > 1e-5 * fabs(one) + rounding)
    return true;
  run(&plan->pointwise[row->gradient[k]], &gradient);
  if (!isfinite(gradient.result) && has_pole(row, p)) return true;
  ++*compared;
  if (fabs(gradient.result - dy * one) <=
      dy * (1e-4 * fabs(one) + 4 * rounding) + numbers_rounded * gradient.largest)
    return true;
  return PROBLEM(problem,
                 "program %u: the gradient of operand %u, program %u, is %.9g at a point, not %.9g",
                 index, k, row->gradient[k], gradient.result, dy * one);
}

/* Refuses a program of the user. */
static bool refuse(struct pen_problem *problem, uint32_t index) {
  problem->program = index;
  return false;
}

static bool check_coverage(const struct pen_plan *plan, uint32_t index, const struct coverage *c,
                           struct pen_problem *problem) {
  const struct pen_pointwise *row = &plan->pointwise[index];
  for (uint32_t s = 0; s < row->step_count; s++)
    for (int side = 0; side < 2; side++)
      if (c->side[s][0] + c->side[s][1] && c->side[s][side] < EACH_SIDE) {
        PROBLEM(problem,
                "program[%u], %s: %u of %d points are on one of its sides; at least %d must be", s,
                names[row->kind[s]], c->side[s][side], POINTS, EACH_SIDE);
        return refuse(problem, index);
      }
  if (c->points < POINTS) {
    PROBLEM(problem, "fewer than %d of %d points that were drawn can be checked", POINTS, DRAWS);
    return refuse(problem, index);
  }
  for (uint32_t k = 0; k < PEN_STEP_GRADIENT; k++)
    if (row->gradient[k] != PEN_NONE && c->operand[k] < EACH_SIDE) {
      PROBLEM(problem, "the gradient of operand %u can be checked at %u points alone", k,
              c->operand[k]);
      return refuse(problem, index);
    }
  return true;
}

static bool check_program(const struct pen_plan *plan, uint32_t index,
                          struct pen_problem *problem) {
  const struct pen_pointwise *row = &plan->pointwise[index];
  struct draws draws = {1};
  struct coverage c = {.points = 0};
  struct point p;
  for (uint32_t n = 0; n < DRAWS && c.points < POINTS; n++) {
    draw_point(row, &draws, &p);
    if (!isfinite(p.result) || p.largest > 1e5 || !is_wanted(row, &c, &p)) continue;
    uint32_t compared = 0;
    for (uint32_t k = 0; k < PEN_STEP_GRADIENT; k++) {
      const uint32_t before = compared;
      if (row->gradient[k] != PEN_NONE && !check_gradient(plan, index, k, &p, &compared, problem))
        return false;
      c.operand[k] += compared - before;
    }
    if (compared) count_point(row, &c, &p);
  }
  return check_coverage(plan, index, &c, problem);
}

static bool is_forward(const struct pen_pointwise *row) {
  for (uint32_t k = 0; k < PEN_STEP_GRADIENT; k++)
    if (row->gradient[k] != PEN_NONE) return true;
  return false;
}

bool pen_check_pointwise(const struct pen_plan *plan, struct pen_problem *problem) {
  for (uint32_t index = 0; index < plan->pointwise_count; index++)
    if (!check_row(plan, index, problem)) return false;
  if (!check_ops(plan, problem)) return false;
  for (uint32_t index = 0; index < plan->pointwise_count; index++)
    if (is_forward(&plan->pointwise[index]) && !check_program(plan, index, problem)) return false;
  return true;
}
