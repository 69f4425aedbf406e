/* pipeline.c: the passes from a topology to its plan, in order (see pipeline.h). lay_out() runs
 * them; the functions before it are its steps and checks. */
#include "gen/model/model.h"
#include "gen/pipeline/pipeline.h"

#include "gen/base/arena.h"
#include "gen/base/pass_times.h"
#include "gen/pipeline/choose_recompute.h"
#include "gen/families/families.h"
#include "gen/pipeline/given_actions.h"
#include "gen/layout/layout.h"
#include "gen/lower/lower.h"
#include "gen/lower/profiles.h"
#include "gen/partition/block_cost.h"
#include "gen/partition/partition.h"
#include "gen/partition/training.h"
#include "gen/pipeline/plan_jointly.h"
#include "gen/schedule/schedule.h"
#include "gen/schedule/torch_csv.h"
#include "gen/search/search_pass.h"
#include "gen/pipeline/search_effort.h"
#include "gen/timing/cost.h"
#include "gen/timing/cost_model.h"
#include "gen/timing/timing.h"
#include "gen/topology/message.h"
#include "gen/topology/shapes.h"

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
      pen_csv_read(t->schedule_path, t->schedule_text, t->schedule_bytes, p,
                   pen_enum_text(pen_enum_placement, (int)t->pipeline_placement));
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
    *given = pen_given_actions_read(options, b->topology, b->partition, kind);
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
  const bool cuts = pen_partition_is_joint(topology);
  if (!pen_joint_applies(topology) || (!cuts && options->actions))
    return pen_choose_recompute(topology, options, measured, lay_out);
  const struct pen_result joint = pen_plan_jointly(topology, options, measured, lay_out);
  if (cuts || joint.search) return joint;
  const struct pen_result stages = pen_choose_recompute(topology, options, measured, lay_out);
  return is_better_plan(&stages, &joint) ? stages : joint;
}
