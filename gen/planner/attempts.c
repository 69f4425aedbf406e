/* attempts.c: passes on a candidate that may refuse it. */
#include "gen/planner/attempts.h"

#include <math.h>

#include "gen/base/arena.h"
#include "gen/pipeline/pipeline.h"
#include "gen/planner/reason.h"
#include "gen/planner/trial.h"
#include "gen/planner/write_topology.h"
#include "gen/timing/step_time.h"
#include "gen/topology/data_parallel.h"

struct attempt_job {
  const struct pen_attempt_input *input;
  struct pen_cut *cut;
  struct pen_sharing_terms *sharing;
  struct pen_step_times *times;
  struct pen_planned *planned;
  const uint64_t *search_seconds;
};

static bool attempt(void (*run)(void *context), struct attempt_job *job) {
  struct pen_arena_mark *mark = pen_arena_mark();
  const bool done = pen_attempt(run, job, job->input->refusal);
  pen_arena_release(mark);
  return done;
}

static const struct pen_topology *topology_of(const struct attempt_job *job) {
  return pen_choice_topology(job->input->planner->axes, job->input->choice);
}

static struct pen_trial trial_of(const struct attempt_job *job) {
  return pen_trial_costs(topology_of(job), job->input->planner->measured);
}

static void run_settings(void *context) { topology_of(context); }

bool pen_attempt_settings(const struct pen_attempt_input *input) {
  return attempt(run_settings, &(struct attempt_job){.input = input});
}

static void run_cut(void *context) {
  const struct attempt_job *job = context;
  const struct pen_trial trial = trial_of(job);
  pen_cut_fill(job->cut, &trial);
}

bool pen_attempt_cut(const struct pen_attempt_input *input, struct pen_cut *cut) {
  return attempt(run_cut, &(struct attempt_job){.input = input, .cut = cut});
}

static void run_sharing(void *context) {
  const struct attempt_job *job = context;
  const struct pen_topology *t = topology_of(job);
  const uint32_t *host_of = t->cluster_hosts.count > 1 ? pen_topology_rank_hosts(t) : NULL;
  const struct pen_group_sizes sizes = pen_topology_sizes(t);
  struct pen_sharing_terms *terms = job->sharing;
  terms->sharding = pen_sharding_of(t);
  terms->gathers_units = pen_gathers_units(t);
  terms->reduces_microbatches = pen_reduces_microbatches(t);
  for (uint32_t r = 0; r < pen_group_size(&sizes, PEN_PIPELINE); r++) {
    const uint32_t process = pen_group_process(&sizes, 0, PEN_PIPELINE, r);
    terms->shards[r] = pen_members_of(&sizes, host_of, process, PEN_SHARD);
    terms->groups[r] = pen_members_of(&sizes, host_of, process, PEN_SAME_SHARD);
  }
}

bool pen_attempt_sharing(const struct pen_attempt_input *input, struct pen_sharing_terms *terms) {
  return attempt(run_sharing, &(struct attempt_job){.input = input, .sharing = terms});
}

/* The makespan alone, where the costs have no more. */
static struct pen_step_time step_time_of(const struct pen_cost_model *cost,
                                         const struct pen_partition *partition,
                                         const struct pen_order *order,
                                         const struct pen_timing *timing) {
  const struct pen_step_time step = pen_step_time(cost, partition, order, timing);
  return isnan(step.step) ? (struct pen_step_time){timing->makespan, 0} : step;
}

static void run_times(void *context) {
  const struct attempt_job *job = context;
  struct pen_trial trial = trial_of(job);
  pen_trial_compose(&trial);
  const struct pen_timing *timing = pen_trial_time(&trial);
  const struct pen_step_time step = step_time_of(&trial.cost, trial.partition, trial.order, timing);
  *job->times =
      (struct pen_step_times){timing->makespan, step.step, timing->bubble, timing->idle_share,
                              pen_time_parts_of(trial.partition, timing, &step)};
}

bool pen_attempt_times(const struct pen_attempt_input *input, struct pen_step_times *times) {
  return attempt(run_times, &(struct attempt_job){.input = input, .times = times});
}

static void run_plan(void *context) {
  const struct attempt_job *job = context;
  const struct pen_planner *planner = job->input->planner;
  const struct pen_generator_options options = {.search_seconds =
                                                    job->search_seconds ? *job->search_seconds : 0};
  const struct pen_result result =
      pen_pipeline_choose(pen_written_topology(planner, job->input->choice, job->search_seconds),
                          &options, planner->measured);
  const struct pen_timing *timing = result.timing;
  *job->planned = (struct pen_planned){
      .makespan = timing->makespan,
      .step = step_time_of(&result.cost, result.partition, result.order, timing).step,
      .bubble = timing->bubble,
      .idle = timing->idle_share};
  for (uint32_t r = 0; r < result.plan->rank_count; r++)
    if (result.plan->memory[r].arena_bytes > job->planned->arena_bytes)
      job->planned->arena_bytes = result.plan->memory[r].arena_bytes;
}

bool pen_attempt_plan(const struct pen_attempt_input *input, const uint64_t *search_seconds,
                      struct pen_planned *planned) {
  return attempt(
      run_plan,
      &(struct attempt_job){.input = input, .search_seconds = search_seconds, .planned = planned});
}
