/* verify.c: proves a plan, or says what is wrong with it first: bare rows (pen_verify_actions), or
 * the finished plan (pen_verify).
 *
 * What is proved, in this order; each part rests on those before it:
 *   rows       every stage and microbatch has one F and one B (or one I and one W), in order, on
 * the rank of the stage; every message is sent once after it is made, and received once before it
 * is used; on each directed pair of ranks messages are sent and received in the same order
 * (verify_rows.c) tables     every index, dtype, shape, address, count and number of the finished
 * plan                    (verify_tables.c) replicas   what they read of each other is whole, and
 * clear only when all have read it              (verify_replicas.c) memory     over two successive
 * steps every read finds, in all its bytes, the value that it means          (verify_memory.c) puts
 * no deadlock with one-sided puts and credits (verify_deadlock.c) rendezvous no deadlock where a
 * send ends only when its receive does, with one lane a directed pair of ranks, and with one lane a
 * rank; here a row also waits for sends that still read what it overwrites (verify_deadlock.c)
 *   profiles   a step of one profile may follow a step of another (verify_profiles.c)
 *
 * One step suffices for deadlock: nothing in a step needs a later one, so if every step alone runs
 * to its end, so does their sequence. Two steps suffice for memory: what a step finds in memory was
 * left by itself or by the one before. */
#include "gen/verify/internal.h"
#include "gen/base/arena.h"
#include "runtime/plan/plan.h"

#include <stdio.h>
#include <stdarg.h>
#include "gen/partition/partition.h"

bool pen_problem_note(struct pen_problem *problem, uint32_t rank, uint32_t action,
                      const char *format, ...) {
  va_list list;
  va_start(list, format);
  vsnprintf(problem->reason, sizeof problem->reason, format, list);
  va_end(list);
  problem->rank = rank;
  problem->action = action;
  return false;
}

/* Bare rows, not looked at yet. */
static struct pen_checked bare_rows(struct pen_action *const *action, const uint32_t *count,
                                    const struct pen_partition *partition, int profile_kind,
                                    struct pen_problem *problem) {
  const struct pen_action **row = pen_new(partition->rank_count, sizeof *row);
  for (uint32_t rank = 0; rank < partition->rank_count; rank++) row[rank] = action[rank];
  return (struct pen_checked){.problem = problem,
                              .row = row,
                              .count = count,
                              .rank_of = partition->rank_of,
                              .rank_count = partition->rank_count,
                              .stage_count = partition->stage_count,
                              .microbatch_count = partition->microbatch_count,
                              .profile_kind = profile_kind};
}

bool pen_verify_order(struct pen_action *const *action, const uint32_t *count,
                      const struct pen_partition *partition, int profile_kind,
                      struct pen_problem *problem, struct pen_checked *checked) {
  *checked = bare_rows(action, count, partition, profile_kind, problem);
  return pen_check_actions(checked);
}

bool pen_verify_actions(struct pen_action *const *action, const uint32_t *count,
                        uint32_t rank_count, uint32_t stage_count, uint32_t microbatch_count,
                        const uint32_t *rank_of, int profile_kind, struct pen_problem *problem) {
  struct pen_partition partition = {.rank_count = rank_count,
                                    .stage_count = stage_count,
                                    .microbatch_count = microbatch_count,
                                    .rank_of = (uint32_t *)(uintptr_t)rank_of};
  struct pen_checked checked = bare_rows(action, count, &partition, profile_kind, problem);
  return pen_check_actions(&checked) && pen_check_puts(&checked) && pen_check_rendezvous(&checked);
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
static void list_credits(struct pen_checked *checked, const struct pen_profile *profile) {
  bool *credited[PEN_DIRECTIONS];
  for (int way = 0; way < PEN_DIRECTIONS; way++)
    checked->credited[way] = credited[way] =
        pen_new(pen_place(checked, pen_direction_send[way], checked->stage_count, 0), sizeof(bool));
  for (uint32_t index = 0; index < profile->message_count; index++) {
    const struct pen_message *message = &profile->messages[index];
    size_t place = pen_place(checked, message->kind, message->stage, message->microbatch);
    credited[pen_direction_of(message->kind)][place] = message->credit != PEN_NONE;
  }
}

bool pen_verify_before_deadlock(const struct pen_plan *plan, const struct pen_profile *profile,
                                struct pen_problem *problem, struct pen_checked *checked) {
  uint32_t *rank_of = pen_new(plan->stage_count, sizeof *rank_of),
           *count = pen_new(plan->rank_count, sizeof *count);
  const struct pen_action **row = pen_new(plan->rank_count, sizeof *row);
  if (!list_ranks(plan, profile, rank_of, problem)) return false;
  for (uint32_t rank = 0; rank < plan->rank_count; rank++) {
    row[rank] = profile->ranks[rank].actions;
    count[rank] = profile->ranks[rank].action_count;
  }
  *checked = (struct pen_checked){.problem = problem,
                                  .row = row,
                                  .count = count,
                                  .rank_of = rank_of,
                                  .rank_count = plan->rank_count,
                                  .stage_count = plan->stage_count,
                                  .microbatch_count = profile->microbatch_count,
                                  .profile_kind = profile->kind,
                                  .finished = true,
                                  .joins = pen_plan_joins(plan, profile->kind)};
  struct pen_rank_context *bench = pen_new(plan->rank_count, sizeof *bench);
  if (!pen_check_ties(checked, plan) || !pen_check_actions(checked) ||
      !pen_check_tables(checked, plan, profile, bench))
    return false;
  list_credits(checked, profile);
  return pen_check_memory(checked, bench);
}

static bool verify_profile(const struct pen_plan *plan, const struct pen_profile *profile,
                           struct pen_problem *problem) {
  struct pen_checked checked;
  if (!pen_verify_before_deadlock(plan, profile, problem, &checked) || !pen_check_puts(&checked) ||
      !pen_check_rendezvous(&checked))
    return false;
  for (int kind = 0; kind < PEN_MICROBATCH_KINDS; kind++) pen_free(checked.place[kind]);
  for (uint32_t rank = 0; rank < checked.rank_count; rank++) pen_free(checked.ends[rank]);
  return true;
}

bool pen_verify(const struct pen_plan *plan, struct pen_problem *problem) {
  if (plan->rank_count == 0 || plan->replica_count == 0 || plan->sharding > PEN_SHARD_WEIGHTS ||
      plan->microbatch_count == 0 || plan->profile_count == 0 ||
      plan->stage_count != (uint64_t)plan->rank_count * plan->stages_per_rank ||
      plan->stage_count == 0)
    return pen_problem_note(
        problem, PEN_NONE, PEN_NONE,
        "%u replicas, %u ranks, %u stages a rank, %u stages, %u microbatches, %u profiles: no plan",
        plan->replica_count, plan->rank_count, plan->stages_per_rank, plan->stage_count,
        plan->microbatch_count, plan->profile_count);
  if (plan->replica_count == 1 && plan->sharding != PEN_SHARD_NONE)
    return pen_problem_note(problem, PEN_NONE, PEN_NONE, "one replica has nobody to share with");
  for (uint32_t index = 0; index < plan->profile_count; index++)
    if (plan->profiles[index].microbatch_count == 0 ||
        plan->profiles[index].microbatch_count > plan->loss_count)
      return pen_problem_note(
          problem, PEN_NONE, PEN_NONE, "%s has %u microbatches; the loss table holds %u",
          plan->profiles[index].name, plan->profiles[index].microbatch_count, plan->loss_count);
  for (uint32_t index = 0; index < plan->profile_count; index++)
    if (plan->profiles[index].kind == PEN_GENERATE && plan->profiles[index].microbatch_count != 1)
      return pen_problem_note(problem, PEN_NONE, PEN_NONE,
                              "%s has %u microbatches: a text grows by one token a step",
                              plan->profiles[index].name, plan->profiles[index].microbatch_count);
  for (uint32_t index = 0; index < plan->profile_count; index++)
    if (!verify_profile(plan, &plan->profiles[index], problem)) return false;
  return pen_check_profiles(plan, problem) && pen_check_device_control(plan, problem);
}
