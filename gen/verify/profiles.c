/* verify_profiles.c: may a step of one profile follow a step of another, in the same memory?
 *
 * Between them stands a barrier of all ranks (plan.h), so that of the step before only what it left
 * in memory counts. Messages: each was waited for by its receiver (verify_rows.c), so none is under
 * way; flags and credits are counted by profile. Window and activation part: a step reads nothing
 * there but what it wrote itself, since verify_memory.c runs the first of its two steps in memory
 * where nothing was written. The persistent part: weights, gradients, moments and losses lie where
 * the plan says, for all profiles; an evaluation adds to no gradient (verify_memory.c), a step of
 * training begins with gradients that are zero and its UPDATE leaves them so, and every step writes
 * all of its losses, however many microbatches its shape has. So what is left is that profiles keep
 * a stage's weights on the same rank, and the constants, which each profile makes by its own ops at
 * its start: where those of two profiles meet, they must be the same. */
#include <string.h>

#include "gen/model/op_signature.h"
#include "gen/verify/internal.h"
#include "runtime/plan/plan.h"

/* What an op at the start makes. */
static const struct pen_tensor *made_by(const struct pen_rank_program *tables,
                                        const struct pen_op *op) {
  return &tables->tensors[op->operand[pen_signature_of(op->kind)->input_count]];
}

/* Ops that make the same bytes: one kind, equal numbers, nothing read. */
static bool same_constant(const struct pen_op *a, const struct pen_op *b) {
  if (a->kind != b->kind || memcmp(a->dim, b->dim, sizeof a->dim) != 0) return false;
  const struct pen_signature *signature = pen_signature_of(a->kind);
  for (int n = 0; n < signature->real_count; n++)
    if (a->real[n] < b->real[n] || a->real[n] > b->real[n]) return false;
  return signature->input_count == 0;
}

static bool check_two(uint32_t rank, const struct pen_profile *one, const struct pen_profile *other,
                      struct pen_problem *problem) {
  const struct pen_rank_program *x = &one->ranks[rank], *y = &other->ranks[rank];
  for (uint32_t i = 0; i < x->start_op_count; i++)
    for (uint32_t j = 0; j < y->start_op_count; j++) {
      const struct pen_op *a = &x->ops[x->start_first_op + i], *b = &y->ops[y->start_first_op + j];
      const struct pen_tensor *made = made_by(x, a), *met = made_by(y, b);
      if (made->offset >= met->offset + met->bytes || met->offset >= made->offset + made->bytes)
        continue;
      if (made->offset != met->offset || !same_constant(a, b))
        return pen_problem_note(
            problem, rank, PEN_NONE,
            "the constant %s of %s and %s of %s differ, but lie in the same bytes", made->name,
            one->name, met->name, other->name);
    }
  return true;
}

static bool check_stages(const struct pen_plan *plan, const struct pen_profile *other,
                         struct pen_problem *problem) {
  const struct pen_profile *one = &plan->profiles[0];
  for (uint32_t stage = 0; stage < plan->stage_count; stage++)
    if (one->stages[stage].rank != other->stages[stage].rank)
      return pen_problem_note(
          problem, PEN_NONE, PEN_NONE, "stage %u is on rank %u in %s, but on rank %u in %s", stage,
          one->stages[stage].rank, one->name, other->stages[stage].rank, other->name);
  return true;
}

bool pen_check_profiles(const struct pen_plan *plan, struct pen_problem *problem) {
  for (uint32_t other = 1; other < plan->profile_count; other++)
    if (!check_stages(plan, &plan->profiles[other], problem)) return false;
  for (uint32_t rank = 0; rank < plan->rank_count; rank++)
    for (uint32_t one = 0; one < plan->profile_count; one++)
      for (uint32_t other = one + 1; other < plan->profile_count; other++)
        if (!check_two(rank, &plan->profiles[one], &plan->profiles[other], problem)) return false;
  return true;
}
