/* plan_jointly.c: calls gen/joint/, which has trial plans laid out by the passes of the pipeline.
 */
#include "gen/pipeline/plan_jointly.h"

#include "gen/base/arena.h"
#include "gen/base/error.h"
#include "gen/base/pass_times.h"
#include "gen/joint/joint.h"
#include "gen/pipeline/search_effort.h"
#include "gen/topology/message.h"
#include "runtime/plan/plan.h"

struct trial_context {
  const struct pen_topology *topology;
  const struct pen_generator_options *options;
  const struct pen_measured *measured;
  pen_lay_out *lay_out;
};

/* The topology with the placement of a choice and what its stages recompute. */
static const struct pen_topology *with_choice(const struct pen_topology *topology,
                                              const struct pen_joint_choice *choice) {
  struct pen_topology *chosen = pen_new(1, sizeof *chosen);
  const size_t stages = topology->memory_recompute.count;
  int *value = pen_new(stages + 1, sizeof *value);
  *chosen = *topology;
  for (size_t s = 0; s < stages; s++) value[s] = choice->recompute[s];
  chosen->memory_recompute.value = value;
  chosen->pipeline_placement = choice->placement;
  return chosen;
}

static void lay_out_trial(const void *context, const struct pen_joint_choice *choice,
                          uint64_t *arena_bytes) {
  const struct trial_context *c = context;
  struct pen_arena_mark *mark = pen_arena_mark();
  const struct pen_result result =
      c->lay_out(with_choice(c->topology, choice), c->options, c->measured, choice);
  for (uint32_t rank = 0; rank < result.plan->rank_count; rank++)
    arena_bytes[rank] = result.plan->memory[rank].arena_bytes;
  pen_arena_release(mark);
}

struct pen_result pen_plan_jointly(const struct pen_topology *topology,
                                   const struct pen_generator_options *options,
                                   const struct pen_measured *measured, pen_lay_out *lay_out) {
  const struct trial_context context = {topology, options, measured, lay_out};
  if (options->actions)
    pen_topology_fail(topology, "partition.balance",
                      "\"count\" or \"time\", with --actions: its order is for one cut");
  pen_pass("joint");
  const struct pen_joint_choice choice = pen_joint(&(struct pen_joint_input){
      topology, measured, pen_search_effort_of(options, topology), lay_out_trial, &context});
  const struct pen_result result =
      lay_out(with_choice(topology, &choice), options, measured, &choice);
  if (choice.search && !choice.goes_on && !pen_is_attempting())
    pen_search_print(choice.search, result.cost.unit);
  return result;
}
