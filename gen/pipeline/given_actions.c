/* given_actions.c: the order of --actions (see given_actions.h). */
#include "gen/pipeline/given_actions.h"

#include "gen/base/error.h"
#include "gen/base/pass_times.h"
#include "gen/pipeline/output.h"
#include "gen/schedule/action_text.h"

bool pen_is_at_action(const struct pen_problem *problem) {
  return problem->rank != PEN_NONE && problem->action != PEN_NONE;
}

void pen_given_actions_fail(const char *path, const struct pen_action *actions,
                            const struct pen_problem *problem) {
  if (!actions) pen_stop(PEN_EXIT_DATA, "%s: %s", path, problem->reason);
  const struct pen_action *a = &actions[problem->action];
  uint32_t place = 0; /* the file has no waits and no end of the step */
  for (uint32_t i = 0; i < problem->action; i++) place += actions[i].kind <= PEN_RECV_B;
  char text[32];
  pen_stop(PEN_EXIT_DATA, "%s: rank %u, action %u (%s): %s", path, problem->rank, place,
           pen_action_format(text, a->kind, a->stage, a->microbatch), problem->reason);
}

struct pen_action_lists pen_given_actions_read(const struct pen_generator_options *options,
                                               const struct pen_topology *topology,
                                               const struct pen_partition *partition, int kind) {
  pen_pass("actions");
  struct pen_problem problem;
  struct pen_action **action;
  uint32_t *count;
  pen_actions_read(options->actions, partition, &action, &count);
  const struct pen_action_lists lists = {.action = action,
                                         .count = count,
                                         .rank_of = partition->rank_of,
                                         .rank_count = partition->rank_count,
                                         .stage_count = partition->stage_count,
                                         .microbatch_count = partition->microbatch_count,
                                         .profile_kind = kind};
  if (!pen_verify_actions(&lists, &problem)) {
    pen_output_deadlock(topology, partition, &lists, options);
    pen_given_actions_fail(options->actions,
                           pen_is_at_action(&problem) ? action[problem.rank] : NULL, &problem);
  }
  return lists;
}
