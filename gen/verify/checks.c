/* checks.c: all checks of one profile, or of bare actions, except deadlock. */
#include "gen/base/arena.h"
#include "gen/verify/internal.h"
#include "runtime/plan/plan.h"

bool pen_check_lists(const struct pen_action_lists *lists, struct pen_problem *problem,
                     struct pen_check_context *checked) {
  const struct pen_action **action = pen_new(lists->rank_count, sizeof *action);
  for (uint32_t rank = 0; rank < lists->rank_count; rank++) action[rank] = lists->action[rank];
  *checked = (struct pen_check_context){.problem = problem,
                                        .action = action,
                                        .count = lists->count,
                                        .rank_of = lists->rank_of,
                                        .rank_count = lists->rank_count,
                                        .stage_count = lists->stage_count,
                                        .microbatch_count = lists->microbatch_count,
                                        .profile_kind = lists->profile_kind};
  return pen_check_actions(checked);
}

/* The ranks of the stages; false when one does not exist. */
static bool list_ranks(const struct pen_plan *plan, const struct pen_profile *profile,
                       uint32_t *rank_of, struct pen_problem *problem) {
  for (uint32_t stage = 0; stage < plan->stage_count; stage++) {
    rank_of[stage] = profile->stages[stage].rank;
    if (rank_of[stage] >= plan->rank_count)
      return pen_problem_note(problem, PEN_NONE, PEN_NONE, "%s: stage %u is on rank %u of %u",
                              profile->name, stage, rank_of[stage], plan->rank_count);
  }
  return true;
}

/* Which messages have a credit, by sending stage and microbatch. Indices were checked. */
static void list_credits(struct pen_check_context *checked, const struct pen_profile *profile) {
  bool *credited[PEN_DIRECTIONS];
  for (int direction = 0; direction < PEN_DIRECTIONS; direction++)
    checked->credited[direction] = credited[direction] =
        pen_new(pen_action_key(checked, pen_direction_send[direction], checked->stage_count, 0),
                sizeof(bool));
  for (uint32_t index = 0; index < profile->message_count; index++) {
    const struct pen_message *message = &profile->messages[index];
    size_t key = pen_action_key(checked, message->kind, message->stage, message->microbatch);
    credited[pen_direction_of(message->kind)][key] = message->credit != PEN_NONE;
  }
}

bool pen_check_profile(const struct pen_plan *plan, const struct pen_profile *profile,
                       struct pen_problem *problem, struct pen_check_context *checked) {
  uint32_t *rank_of = pen_new(plan->stage_count, sizeof *rank_of),
           *count = pen_new(plan->rank_count, sizeof *count);
  const struct pen_action **action = pen_new(plan->rank_count, sizeof *action);
  if (!list_ranks(plan, profile, rank_of, problem)) return false;
  for (uint32_t rank = 0; rank < plan->rank_count; rank++) {
    action[rank] = profile->ranks[rank].actions;
    count[rank] = profile->ranks[rank].action_count;
  }
  *checked = (struct pen_check_context){
      .problem = problem,
      .action = action,
      .count = count,
      .rank_of = rank_of,
      .rank_count = plan->rank_count,
      .stage_count = plan->stage_count,
      .microbatch_count = profile->microbatch_count,
      .profile_kind = profile->kind,
      .finished = true,
      .adds_tied_gradient = pen_plan_adds_tied_gradient(plan, profile->kind)};
  struct pen_rank_context *contexts = pen_new(plan->rank_count, sizeof *contexts);
  checked->contexts = contexts;
  if (!pen_check_ties(checked, plan) || !pen_check_actions(checked) ||
      !pen_check_tables(checked, plan, profile, contexts))
    return false;
  list_credits(checked, profile);
  return pen_check_memory(checked, contexts) && pen_check_gradient_sums(checked);
}
