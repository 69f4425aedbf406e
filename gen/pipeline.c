/* pipeline.c: the passes of the generator, in order. pen_pipeline(), at the end, is the pipeline;
 * the functions before it are its steps and checks. */
#include "gen/model/model.h"
#include "gen/pipeline.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "gen/base/arena.h"
#include "gen/base/error.h"
#include "gen/base/pass_times.h"
#include "gen/choose_recompute.h"
#include "gen/plan_jointly.h"
#include "gen/emit/emit.h"
#include "gen/families/families.h"
#include "gen/layout/layout.h"
#include "gen/lower/lower.h"
#include "gen/lower/profiles.h"
#include "gen/measure_plans.h"
#include "gen/output.h"
#include "gen/partition/block_cost.h"
#include "gen/partition/partition.h"
#include "gen/partition/training.h"
#include "gen/schedule/action_text.h"
#include "gen/schedule/backward_order.h"
#include "gen/schedule/schedule.h"
#include "gen/schedule/torch_csv.h"
#include "gen/search/search_pass.h"
#include "gen/search_effort.h"
#include "gen/timing/cost.h"
#include "gen/timing/cost_model.h"
#include "gen/timing/timing.h"
#include "gen/topology/message.h"
#include "gen/topology/shapes.h"
#include "gen/verify/verify.h"

/* `choice`: null unless gen/joint/ chose the cut. */
static const struct pen_partition *divide_model(const struct pen_topology *topology,
                                                const struct pen_joint_choice *choice) {
  const struct pen_family *family = pen_family_find(topology->model_family);
  if (choice) return pen_partition_of_blocks(topology, family, choice->first_block);
  const struct pen_block_costs *costs = NULL;
  if (pen_partition_by_time(topology)) {
    const struct pen_schedule *schedule = pen_schedule_of(topology->pipeline_schedule);
    costs = pen_block_costs(topology, family, pen_schedule_splits(schedule, topology));
  }
  return pen_partition(topology, family, costs);
}

const struct pen_partition *pen_pipeline_partition(const struct pen_topology *topology) {
  return divide_model(topology, NULL);
}

/* The order of pipeline.schedule_file. */
static const struct pen_order *read_schedule_file(const struct pen_topology *t,
                                                  const struct pen_partition *p) {
  const struct pen_csv *csv =
      pen_csv_read(t->schedule_path, t->schedule_text, t->schedule_bytes, p, t->pipeline_placement);
  const struct pen_stage_cost *no_cost = pen_new(p->stage_count, sizeof *no_cost);
  const struct pen_timing *timing = pen_simulate(csv->order, p, &pen_training_none, no_cost, -1);
  if (!timing->complete) pen_csv_fail_deadlock(csv, p, pen_timing_done(timing, csv->order));
  return csv->order;
}

static const struct pen_order *compose(const struct pen_topology *topology,
                                       const struct pen_partition *partition) {
  pen_pass("compose");
  const struct pen_schedule *schedule = pen_schedule_of(topology->pipeline_schedule);
  return schedule->given == PEN_GIVEN_BY_FILE ? read_schedule_file(topology, partition)
                                              : pen_compose(topology, partition);
}

/* `given`: the actions of --actions; null: the order is lowered. */
static struct pen_lowered *lower_profile(const struct pen_action_lists *given,
                                         const struct pen_order *order,
                                         const struct pen_partition *partition,
                                         const struct pen_training *training,
                                         const struct pen_timing *timing, int kind) {
  pen_pass("lower");
  if (given) return pen_lower_given(given->action, given->count, partition, training, kind);
  return kind == PEN_EVAL ? pen_lower_forward(order, partition, training)
                          : pen_lower(order, partition, training, timing, kind);
}

static bool is_at_action(const struct pen_problem *problem) {
  return problem->rank != PEN_NONE && problem->action != PEN_NONE;
}

/* Ends the generator: an action of a file fails verification. Reports its position in the file.
 * `actions`: those of the problem's rank; NULL: the problem is not at one action. */
static _Noreturn void fail_at_action(const char *path, const struct pen_action *actions,
                                     const struct pen_problem *problem) {
  if (!actions) pen_stop(PEN_EXIT_DATA, "%s: %s", path, problem->reason);
  const struct pen_action *a = &actions[problem->action];
  uint32_t place = 0; /* the file has no waits and no end of the step */
  for (uint32_t i = 0; i < problem->action; i++) place += actions[i].kind <= PEN_RECV_B;
  char text[32];
  pen_stop(PEN_EXIT_DATA, "%s: rank %u, action %u (%s): %s", path, problem->rank, place,
           pen_action_format(text, a->kind, a->stage, a->microbatch), problem->reason);
}

/* Reads and verifies the actions of --actions. */
static struct pen_action_lists read_actions(const struct pen_generator_options *options,
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
    fail_at_action(options->actions, is_at_action(&problem) ? action[problem.rank] : NULL,
                   &problem);
  }
  return lists;
}

/* The order of the main profile, and the topology and partition with its placement. */
struct chosen_order {
  const struct pen_order *order;
  const struct pen_topology *topology;
  const struct pen_partition *partition;
  const struct pen_search *search;      /* null: no search */
  const struct pen_action_lists *given; /* null: not of --actions */
};

/* The order of --actions, of `choice`, of the search, which may go on from that of `choice`, or of
 * the topology's schedule. */
static struct chosen_order choose_order(const struct pen_generator_options *options,
                                        const struct pen_bucket *b,
                                        const struct pen_joint_choice *choice,
                                        const struct pen_cost_model *cost, int kind) {
  struct chosen_order chosen = {.topology = b->topology, .partition = b->partition};
  if (options->actions) {
    struct pen_action_lists *given = pen_new(1, sizeof *given);
    *given = read_actions(options, b->topology, b->partition, kind);
    chosen.given = given;
    chosen.order = pen_order_of_actions(given->action, given->count, b->partition->rank_count);
  } else if (choice && choice->search && !choice->goes_on) {
    chosen.search = choice->search;
    chosen.order = choice->search->order;
  } else if (pen_schedule_of(b->topology->pipeline_schedule)->given == PEN_GIVEN_BY_SEARCH) {
    const struct pen_search_effort effort = pen_search_effort_of(options, b->topology);
    const struct pen_search_result found = pen_search_pass(
        &(struct pen_search_input){b->topology, b->partition, b->training, b->own, b->eval, cost,
                                   effort, choice ? choice->search : NULL});
    chosen.topology = found.topology;
    chosen.partition = found.partition;
    chosen.search = found.search;
    chosen.order = found.search->order;
    if (!pen_is_attempting()) pen_search_print(found.search, cost->unit);
  } else {
    chosen.order = compose(b->topology, b->partition);
  }
  return chosen;
}

/* The graphs of a partition and what a step does besides them; its actions are not set. */
static struct pen_bucket build_graphs(const struct pen_topology *topology,
                                      const struct pen_partition *partition) {
  pen_pass("model and derive");
  struct pen_graph *const *eval = pen_graphs_of(topology, &partition->stages, false);
  struct pen_graph *const *own =
      topology->trains ? pen_graphs_of(topology, &partition->stages, true) : eval;
  return (struct pen_bucket){topology, partition, pen_training_of(topology, partition, own),
                             own,      eval,      NULL};
}

/* Fills bucket[1] and later ones, for the other sequence lengths: the same stages on the same
 * ranks, with their own microbatches. */
static void add_buckets(struct pen_bucket *bucket, const struct pen_topology *topology,
                        const struct pen_partition *partition, int kind,
                        const struct pen_generator_options *options) {
  if (topology->shapes_sequence.count && options->actions)
    pen_topology_fail(topology, "shapes.sequence",
                      "none, with --actions: its actions are for one shape");
  for (size_t i = 0; i < topology->shapes_sequence.count; i++) {
    const struct pen_topology *t = pen_topology_of_shape(topology, i);
    struct pen_partition *p = pen_new(1, sizeof *p);
    *p = *partition;
    p->microbatch_count = (uint32_t)t->pipeline_microbatches;
    bucket[1 + i] = build_graphs(t, p);
    const struct pen_training *training = bucket[1 + i].training;
    pen_pass("costs");
    const struct pen_cost_model cost = pen_cost_model(t, p, bucket[1 + i].own, NULL);
    const struct pen_order *order = compose(t, p);
    pen_pass("simulate");
    const struct pen_timing *timing = pen_cost_model_time(&cost, order, p, training, kind, false);
    bucket[1 + i].lowered = lower_profile(NULL, order, p, training, timing, kind);
  }
}

/* --costs also replaces the unit of the topology's costs. */
static void check_overlap(const struct pen_topology *topology, const struct pen_measured *measured,
                          const struct pen_order *order) {
  if (!measured || measured->overlap >= 0 || !topology->has_costs_overlap) return;
  if (pen_order_has_pair(order))
    pen_topology_fail(topology, "costs.overlap",
                      "not with --costs, which are in ms: %s must have \"overlap\"",
                      measured->path);
}

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
  const struct pen_action *actions =
      is_at_action(&problem) ? plan->profiles[0].ranks[problem.rank].actions : NULL;
  if (options->actions) fail_at_action(options->actions, actions, &problem);
  char text[32] = "the plan";
  if (actions && !topology->shapes_sequence.count) {
    const struct pen_action *a = &actions[problem.action];
    pen_action_format(text, a->kind, a->stage, a->microbatch);
  }
  pen_stop(PEN_EXIT_INTERNAL,
           "penstock-gen: internal error: the plan of %s is wrong: rank %u, action %u (%s): %s",
           topology->path, problem.rank, problem.action, text, problem.reason);
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
  if (options->times) pen_passes_write(options->times, actions);
  if (options->depend && !options->check)
    pen_output_dependencies(result->topology, options->target ? options->target : options->output,
                            options->depend);
  if (options->link && !options->check) pen_output_link(result->plan, options->link);
  if (fflush(stdout) || ferror(stdout))
    pen_stop(PEN_EXIT_WRITE, "penstock-gen: standard output: %s", strerror(errno));
}

/* The passes from a topology to its plan. */
static struct pen_result lay_out(const struct pen_topology *topology,
                                 const struct pen_generator_options *options,
                                 const struct pen_measured *measured,
                                 const struct pen_joint_choice *choice) {
  const int kind = topology->trains ? PEN_TRAIN : PEN_EVAL;

  pen_pass("partition");
  const struct pen_partition *partition = divide_model(topology, choice);
  const struct pen_stage_io shapes = pen_stage_io_of(topology, &partition->stages);

  const size_t bucket_count = 1 + topology->shapes_sequence.count;
  struct pen_bucket *bucket = pen_new(bucket_count, sizeof *bucket);
  bucket[0] = build_graphs(topology, partition);
  struct pen_graph *const *own = bucket[0].own;
  const struct pen_training *training = bucket[0].training;

  pen_pass("costs");
  struct pen_cost_model cost = pen_cost_model(topology, partition, own, measured);

  add_buckets(bucket, topology, partition, kind, options);

  const struct chosen_order chosen = choose_order(options, &bucket[0], choice, &cost, kind);
  const struct pen_order *order = chosen.order;
  topology = chosen.topology;
  if (partition != chosen.partition) cost = pen_cost_model_placed(&cost, chosen.partition);
  partition = chosen.partition;

  pen_pass("simulate");
  const struct pen_timing *timing =
      pen_cost_model_time(&cost, order, partition, training, kind, options->actions != NULL);

  bucket[0].topology = topology;
  bucket[0].partition = partition;
  bucket[0].lowered = lower_profile(chosen.given, order, partition, training, timing, kind);
  const struct pen_profile_inputs profiles = pen_profiles_of(bucket, bucket_count);

  pen_pass("layout");
  const struct pen_plan *plan = pen_layout(topology, partition, profiles.profile, profiles.count);
  check_overlap(topology, measured, order);
  if (measured && measured->stages)
    pen_measured_stages_check(measured->stages, topology, own, plan);
  return (struct pen_result){.topology = topology,
                             .partition = partition,
                             .training = training,
                             .shapes = shapes,
                             .cost = cost,
                             .placed_cost = pen_costs_on_ranks(partition, cost.stage),
                             .order = order,
                             .timing = timing,
                             .own = own,
                             .search = chosen.search,
                             .plan = plan};
}

/* Whether a plan is within the limit and takes less time than another, which may exceed it. */
static bool is_better_plan(const struct pen_result *one, const struct pen_result *other) {
  const bool fits = pen_layout_excess(one->topology, one->plan) == 0,
             other_fits = pen_layout_excess(other->topology, other->plan) == 0;
  if (fits != other_fits) return fits;
  return one->timing->makespan < other->timing->makespan;
}

struct pen_result pen_pipeline_choose(const struct pen_topology *topology,
                                      const struct pen_generator_options *options,
                                      const struct pen_measured *measured) {
  const bool cuts = pen_partition_is_joint(topology), of_stages = measured && measured->stages;
  if (!pen_joint_applies(topology) || (!cuts && (options->actions || of_stages)))
    return pen_choose_recompute(topology, options, measured, lay_out);
  const struct pen_result joint = pen_plan_jointly(topology, options, measured, lay_out);
  if (cuts || joint.search) return joint;
  const struct pen_result stages = pen_choose_recompute(topology, options, measured, lay_out);
  return is_better_plan(&stages, &joint) ? stages : joint;
}

/* The same, complete and verified. */
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

/* A run that goes on with a fallback must give the bits of one that does not. */
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

void pen_pipeline(const struct pen_generator_options *options) {
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
