/* profiles.c: may a step of one profile follow a step of another, in the same memory?
 *
 * A barrier of all ranks separates them (plan.h), so of the earlier step only the contents of
 * memory matter. Messages: each was waited for by its receiver (actions.c), so none is in flight;
 * flags and credits are counted per profile. Receive region and activation part: a step reads only
 * what it wrote itself, since memory.c runs the first of its two steps in memory that nothing has
 * written. Persistent part: weights, gradients, moments and losses have the same addresses in all
 * profiles; an evaluation accumulates into no gradient (memory.c), a training step starts with zero
 * gradients and its UPDATE clears them, and every step writes all of its losses, however many
 * microbatches its bucket has. It remains to check that profiles keep a stage on the same rank, and
 * that constants, which each profile makes before its first step, are the same where those of two
 * profiles overlap, and that profiles over a cache have the same one (cache.c). That profiles
 * compute the same function is in gradients.c. */
#include <string.h>

#include "gen/model/op_signature.h"
#include "gen/verify/internal.h"
#include "runtime/plan/plan.h"

/* The constant that an op makes. */
static const struct pen_tensor *constant_of(const struct pen_rank_program *tables,
                                            const struct pen_op *op) {
  return &tables->tensors[op->operand[pen_signature_of(op->kind)->input_count]];
}

/* Do two ops make the same bytes: one kind, equal numbers, no inputs? */
static bool same_constant(const struct pen_op *a, const struct pen_op *b) {
  if (a->kind != b->kind || memcmp(a->dim, b->dim, sizeof a->dim) != 0) return false;
  const struct pen_signature *signature = pen_signature_of(a->kind);
  for (int n = 0; n < signature->real_count; n++)
    if (a->real[n] < b->real[n] || a->real[n] > b->real[n]) return false;
  return signature->input_count == 0;
}

/* The constants of two profiles are the same where they overlap. */
static bool check_constants(uint32_t rank, const struct pen_profile *one,
                            const struct pen_profile *other, struct pen_problem *problem) {
  const struct pen_rank_program *x = &one->ranks[rank], *y = &other->ranks[rank];
  for (uint32_t i = 0; i < x->start_op_count; i++)
    for (uint32_t j = 0; j < y->start_op_count; j++) {
      const struct pen_op *a = &x->ops[x->start_first_op + i], *b = &y->ops[y->start_first_op + j];
      const struct pen_tensor *first = constant_of(x, a), *second = constant_of(y, b);
      if (first->offset >= second->offset + second->bytes ||
          second->offset >= first->offset + first->bytes)
        continue;
      if (first->offset != second->offset || !same_constant(a, b))
        return pen_problem_note(problem, rank, PEN_NONE,
                                "the constant %s of %s and %s of %s differ, but overlap",
                                first->name, one->name, second->name, other->name);
    }
  return true;
}

/* A stage is on the same rank in all profiles. */
static bool check_stage_ranks(const struct pen_plan *plan, const struct pen_profile *other,
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
    if (!check_stage_ranks(plan, &plan->profiles[other], problem)) return false;
  for (uint32_t rank = 0; rank < plan->rank_count; rank++)
    for (uint32_t one = 0; one < plan->profile_count; one++)
      for (uint32_t other = one + 1; other < plan->profile_count; other++)
        if (!check_constants(rank, &plan->profiles[one], &plan->profiles[other], problem) ||
            !pen_check_same_cache(rank, &plan->profiles[one], &plan->profiles[other], problem))
          return false;
  return true;
}
