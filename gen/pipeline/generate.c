/* generate.c: what the generator makes of a topology (see generate.h): its plans, complete and
 * verified, and the files that the options select. */
#include "gen/pipeline/generate.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "gen/base/arena.h"
#include "gen/base/error.h"
#include "gen/base/pass_times.h"
#include "gen/emit/emit.h"
#include "gen/pipeline/given_actions.h"
#include "gen/layout/layout.h"
#include "gen/model/pointwise.h"
#include "gen/pipeline/measure_plans.h"
#include "gen/pipeline/output.h"
#include "gen/pipeline/partition_hint.h"
#include "gen/pipeline/pipeline.h"
#include "gen/schedule/action_text.h"
#include "gen/schedule/backward_order.h"
#include "gen/topology/description.h"
#include "gen/topology/message.h"
#include "gen/verify/verify.h"

static const struct pen_plan *add_digest(const struct pen_plan *plan,
                                         const struct pen_generator_options *options) {
  struct pen_plan *complete = pen_new(1, sizeof *complete);
  *complete = *plan;
  if (options->name) complete->name = options->name;
  if (options->actions) complete->backward_order = PEN_BACKWARDS_GIVEN;
  pen_plan_digest(complete);
  return complete;
}

/* Ends the generator if the plan fails verification. */
static void check_plan(const struct pen_plan *plan, const struct pen_topology *topology,
                       const struct pen_generator_options *options) {
  struct pen_problem problem;
  if (pen_verify(plan, &problem)) return;
  if (problem.program != PEN_NONE) {
    const struct pen_description *d = topology->description;
    const struct pen_pointwise_place *place = &(*d->pointwise)->place[problem.program];
    pen_description_fail(d, place->kind, place->op, "%s", problem.reason);
  }
  const struct pen_action *actions =
      pen_is_at_action(&problem) ? plan->profiles[0].ranks[problem.rank].actions : NULL;
  if (options->actions) pen_given_actions_fail(options->actions, actions, &problem);
  char text[32] = "the plan";
  if (actions && !topology->shapes_sequence.count) {
    const struct pen_action *a = &actions[problem.action];
    pen_action_format(text, a->kind, a->stage, a->microbatch);
  }
  pen_stop(PEN_EXIT_INTERNAL,
           "penstock-gen: internal error: the plan of %s is wrong: rank %u, action %u (%s): %s",
           topology->path, problem.rank, problem.action, text, problem.reason);
}

/* The plan of a topology, complete and verified. */
static struct pen_result make_plan(const struct pen_topology *topology,
                                   const struct pen_generator_options *options) {
  const struct pen_measured *measured = options->costs ? pen_measured_read(options->costs) : NULL;
  if (measured) pen_measured_check(measured, topology);
  struct pen_result result = pen_pipeline_choose(topology, options, measured);
  pen_layout_check_limit(result.topology, result.plan);

  pen_pass("digest");
  result.plan = add_digest(result.plan, options);

  pen_pass("verify");
  check_plan(result.plan, result.topology, options);

  if (!options->actions) pen_partition_hint(&result, measured);
  return result;
}

/* Names the bubble of a step that has few microbatches for its ranks. */
static void report_few_microbatches(const struct pen_result *result,
                                    const struct pen_generator_options *options) {
  const struct pen_topology *topology = result->topology;
  const long long ranks = topology->pipeline_ranks, microbatches = topology->pipeline_microbatches;
  const char *order = options->actions ? "the given actions" : result->plan->schedule;
  const double bubble = result->timing->bubble, least_named = 0.0005;
  if (microbatches < ranks)
    pen_topology_warn(topology, "pipeline.microbatches",
                      "fewer than the %lld ranks; the simulated bubble of %s is %.3f", ranks, order,
                      bubble);
  else if (ranks > 1 && microbatches < 2 * ranks && bubble >= least_named)
    pen_topology_hint(topology, "pipeline.microbatches",
                      "fewer than 2 x %lld ranks; the simulated bubble of %s is %.3f; more "
                      "microbatches make it smaller",
                      ranks, order, bubble);
}

static struct pen_stage_order stage_order(const struct pen_result *result) {
  const struct pen_partition *partition = result->partition;
  return (struct pen_stage_order){.order = result->order,
                                  .rank_of = partition->rank_of,
                                  .stage_count = partition->stage_count,
                                  .microbatch_count = partition->microbatch_count};
}

/* A run that continues with a fallback must give the bits of one that does not. */
static void check_fallback(const struct pen_result *main, const struct pen_result *fallback) {
  const struct pen_stage_order one = stage_order(main), other = stage_order(fallback);
  if (!pen_backwards_agree(&one, &other))
    pen_topology_fail(fallback->topology, "pipeline.schedule",
                      "one that runs the backwards of each stage in the same order of microbatches "
                      "as that of the topology, %s, so that the run has the same bits",
                      main->plan->schedule);
}

/* The fallbacks' plans; --actions and --costs are those of the main plan. */
static void add_fallbacks(struct pen_result *main, const struct pen_generator_options *options) {
  const struct pen_topology *topology = main->topology;
  const uint32_t count = topology->fallback_count;
  struct pen_generator_options of_fallbacks = *options;
  struct pen_result *results = pen_new(count + 1u, sizeof *results);
  struct pen_plan *plans = pen_new(count + 1u, sizeof *plans), *plan = pen_new(1, sizeof *plan);
  of_fallbacks.actions = of_fallbacks.costs = NULL;
  for (uint32_t f = 0; f < count; f++) {
    results[f] = make_plan(topology->fallbacks[f], &of_fallbacks);
    check_fallback(main, &results[f]);
    plans[f] = *results[f].plan;
    results[f].plan = &plans[f];
  }
  *plan = *main->plan;
  pen_plan_add_fallbacks(plan, plans, count);
  main->plan = plan;
  main->fallbacks = results;
}

/* Adds the plans of the command `measure`. One of a topology that only measures is the first. */
static void add_measure_plans(struct pen_result *main, const struct pen_topology *topology,
                              const struct pen_generator_options *options) {
  size_t count;
  struct pen_topology **topologies = pen_measure_topologies(topology, &count);
  struct pen_generator_options of_measure = *options;
  struct pen_result *results = pen_new(count + 1, sizeof *results);
  struct pen_plan *plans = pen_new(count + 1, sizeof *plans), *plan = pen_new(1, sizeof *plan);
  of_measure.actions = of_measure.costs = NULL;
  for (size_t m = 0; m < count; m++) {
    results[m] = make_plan(topologies[m], &of_measure);
    plans[m] = *results[m].plan;
    results[m].plan = &plans[m];
  }
  if (topology->only_measures) {
    *main = results[0];
    main->topology = topology;
  }
  *plan = *main->plan;
  plan->only_measures = topology->only_measures;
  plan->deployed_layers = (uint32_t)topology->model_layers;
  plan->measured = plans;
  plan->measured_count = (uint32_t)count;
  main->plan = plan;
  main->measured = results;
}

/* One line on what pen_verify() has proved of the plan, with --check, which writes nothing else. */
static void report_proof(const struct pen_result *result) {
  const struct pen_plan *plan = result->plan;
  unsigned long long actions = 0, messages = 0, bytes = 0;
  unsigned trained = 0;
  for (uint32_t p = 0; p < plan->profile_count; p++) {
    messages += plan->profiles[p].message_count;
    for (uint32_t rank = 0; rank < plan->rank_count; rank++)
      actions += plan->profiles[p].ranks[rank].action_count;
  }
  for (uint32_t rank = 0; rank < plan->rank_count; rank++)
    bytes += plan->memory[rank].arena_bytes * pen_pipeline_count(plan);
  for (uint32_t w = 0; w < plan->weight_count && plan->profiles[0].kind == PEN_TRAIN; w++)
    trained += !plan->weights[w].frozen;
  pen_tell(
      "penstock-gen: %s: proved: %llu actions of %u ranks end without deadlock, %llu messages "
      "arrive before they are read, no value in %llu bytes is overwritten before its last "
      "read, the gradients of %u weights are complete",
      result->topology->path, actions, plan->rank_count, messages, bytes, trained);
}

static void write_results(const struct pen_result *result,
                          const struct pen_generator_options *options) {
  uint64_t actions = 0;
  for (uint32_t rank = 0; rank < result->plan->rank_count; rank++)
    actions += result->plan->profiles[0].ranks[rank].action_count;
  if (!options->check) {
    pen_pass(options->print);
    pen_output(result, options);
  }
  if (options->check && !result->topology->only_measures) report_proof(result);
  if (options->times) pen_passes_write(options->times, actions);
  if (options->depend && !options->check)
    pen_output_dependencies(result->topology, options->target ? options->target : options->output,
                            options->depend);
  if (options->link && !options->check) pen_output_link(result->plan, options->link);
  if (fflush(stdout) || ferror(stdout))
    pen_stop(PEN_EXIT_WRITE, "penstock-gen: standard output: %s", strerror(errno));
}

void pen_generate(const struct pen_generator_options *options) {
  if (options->times) pen_passes_time();

  pen_pass("topology");
  const bool blocks = options->blocks && !options->check && strcmp(options->print, "c") == 0;
  const struct pen_topology *topology = (blocks ? pen_topology_read_blocks : pen_topology_read)(
      options->topology, options->overrides.text, options->overrides.count);
  struct pen_result result = {.topology = topology};
  pen_output_check(topology, options);
  if (!topology->only_measures) result = make_plan(topology, options);
  if (topology->fallback_count && !topology->only_measures) add_fallbacks(&result, options);
  if (blocks) add_measure_plans(&result, topology, options);
  if (!topology->only_measures) report_few_microbatches(&result, options);
  write_results(&result, options);
}
