/* verify.c: runs the checks of a plan, or of bare actions, in order. */
#include "gen/verify/verify.h"

#include "gen/base/arena.h"
#include "gen/verify/internal.h"
#include "gen/verify/tensor_ranks.h"
#include "gen/verify/problem.h"
#include "runtime/plan/plan.h"

bool pen_verify_actions(const struct pen_action_lists *lists, struct pen_problem *problem) {
  struct pen_check_context checked;
  return pen_check_lists(lists, problem, &checked) && pen_check_puts(&checked) &&
         pen_check_rendezvous(&checked);
}

static bool verify_profile(const struct pen_plan *plan, const struct pen_profile *profile,
                           struct pen_problem *problem, struct pen_check_context *checked) {
  if (!pen_check_profile(plan, profile, problem, checked) || !pen_check_puts(checked) ||
      !pen_check_rendezvous(checked))
    return false;
  pen_list_stage_programs(checked);
  pen_action_index_free(checked);
  return true;
}

/* The numbers of the plan, before anything is indexed by them. */
static bool check_counts(const struct pen_plan *plan, struct pen_problem *problem) {
  if (plan->rank_count == 0 || plan->replica_count == 0 || plan->sharding > PEN_SHARD_WEIGHTS ||
      plan->microbatch_count == 0 || plan->profile_count == 0 ||
      plan->stage_count != (uint64_t)plan->rank_count * plan->stages_per_rank ||
      plan->stage_count == 0)
    return pen_problem_note(problem, PEN_NONE, PEN_NONE,
                            "%u replicas, %u ranks, %u stages a rank, %u stages, %u microbatches, "
                            "%u profiles: not a plan",
                            plan->replica_count, plan->rank_count, plan->stages_per_rank,
                            plan->stage_count, plan->microbatch_count, plan->profile_count);
  if (plan->shard_ranks == 0 || plan->replica_count % plan->shard_ranks)
    return pen_problem_note(problem, PEN_NONE, PEN_NONE,
                            "%u replicas cannot be divided into groups of %u", plan->replica_count,
                            plan->shard_ranks);
  if (plan->gathers_units && plan->sharding != PEN_SHARD_WEIGHTS)
    return pen_problem_note(problem, PEN_NONE, PEN_NONE,
                            "programs gather weights by unit, but weights are not sharded");
  if (plan->replica_count == 1 && plan->sharding != PEN_SHARD_NONE)
    return pen_problem_note(problem, PEN_NONE, PEN_NONE, "a single replica cannot shard");
  if (plan->generated_groups == 0 || plan->generated_groups > PEN_GROUPS_MAX)
    return pen_problem_note(problem, PEN_NONE, PEN_NONE,
                            "%u groups of texts are in flight: there are 1 to %d",
                            plan->generated_groups, PEN_GROUPS_MAX);
  if (!pen_check_router_rows(plan, problem) || !pen_check_router_loss_rows(plan, problem))
    return false;
  for (uint32_t index = 0; index < plan->profile_count; index++) {
    const struct pen_profile *profile = &plan->profiles[index];
    if (profile->microbatch_count == 0 || profile->microbatch_count > plan->loss_count)
      return pen_problem_note(problem, PEN_NONE, PEN_NONE,
                              "%s has %u microbatches; the loss table holds %u", profile->name,
                              profile->microbatch_count, plan->loss_count);
    if (profile->slots > PEN_PROMPTS_MAX)
      return pen_problem_note(problem, PEN_NONE, PEN_NONE, "%s has %u texts; a step has at most %d",
                              profile->name, profile->slots, PEN_PROMPTS_MAX);
    if (pen_profile_kind_generates(profile->kind) && profile->microbatch_count != 1)
      return pen_problem_note(problem, PEN_NONE, PEN_NONE,
                              "%s has %u microbatches: a token needs the one before it",
                              profile->name, profile->microbatch_count);
  }
  return true;
}

bool pen_verify(const struct pen_plan *plan, struct pen_problem *problem) {
  if (!check_counts(plan, problem) || !pen_check_tensor_ranks(plan, problem)) return false;
  struct pen_check_context *checked = pen_new(plan->profile_count, sizeof *checked);
  for (uint32_t index = 0; index < plan->profile_count; index++)
    if (!verify_profile(plan, &plan->profiles[index], problem, &checked[index])) return false;
  if (!pen_check_pointwise(plan, problem) || !pen_check_profiles(plan, problem) ||
      !pen_check_device_control(plan, problem) ||
      !pen_check_gradients(checked, plan->profile_count))
    return false;
  for (uint32_t index = 0; index < plan->profile_count; index++)
    for (uint32_t rank = 0; rank < plan->rank_count; rank++)
      if (!pen_check_moves(&checked[index].contexts[rank])) return false;
  return true;
}
