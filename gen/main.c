/* main.c: penstock-gen: the passes in order, from a topology file to tables. */
#include "config.h"

#include <stdio.h>
#include <errno.h>
#include <math.h>
#include <string.h>

#include "gen/schedule/action_text.h"
#include "gen/timing/cost.h"
#include "gen/emit/emit.h"
#include "gen/layout/layout.h"
#include "gen/output.h"
#include "gen/pass_times.h"
#include "gen/schedule/schedule.h"
#include "gen/schedule/torch_csv.h"
#include "gen/base/arena.h"
#include "gen/base/error.h"
#include "gen/families/families.h"
#include "gen/partition/block_cost.h"
#include "gen/partition/partition.h"
#include "gen/partition/training.h"
#include "gen/timing/timing.h"
#include "gen/lower/lower.h"
#include "gen/verify/verify.h"
#include "runtime/plan/plan.h"
#include "gen/topology/message.h"
#include "gen/topology/shapes.h"
#include "gen/topology/schedule_table.h"
#include "gen/topology/defaults.h"

#ifndef PEN_DEVICE_AUTO /* the tests' generator defines it as "cpu" */
#define PEN_DEVICE_AUTO PEN_CONFIGURED_DEVICE
#endif

enum { LAYOUTS_MAXIMUM = 6 };

/* Rows that somebody wrote are wrong: names file, rank and action as they stand in the file. */
static _Noreturn void stop_at_action(const char *path, struct pen_action *const *action,
                                     const struct pen_problem *problem) {
  if (problem->rank == PEN_NONE || problem->action == PEN_NONE)
    pen_stop(PEN_EXIT_DATA, "%s: %s", path, problem->reason);
  const struct pen_action *a = &action[problem->rank][problem->action];
  uint32_t place = 0; /* among the actions of the file: waits and the step's end are ours */
  for (uint32_t i = 0; i < problem->action; i++)
    place += action[problem->rank][i].kind <= PEN_RECV_B;
  char text[32];
  pen_stop(PEN_EXIT_DATA, "%s: rank %u, action %u (%s): %s", path, problem->rank, place,
           pen_action_text(text, a->kind, a->stage, a->microbatch), problem->reason);
}

/* Costs are finite, but their sum may not be. */
static _Noreturn void stop_at_costs(const struct pen_result *result) {
  pen_stop(result->measured ? PEN_EXIT_DATA : PEN_EXIT_TOPOLOGY,
           "%s: costs: the step takes longer than a number can say",
           result->measured ? result->measured->path : result->topology->path);
}

static void simulate(struct pen_result *result, int kind, bool given) {
  pen_pass("simulate");
  result->timing =
      pen_simulate_step(result->order, result->partition, result->training, result->cost,
                        result->exchange_cost, pen_overlap_of(result), kind, given);
  if (result->timing->complete && !isfinite(result->timing->makespan)) stop_at_costs(result);
}

/* Timing and rows of the result's order. */
static void lower_own(struct pen_result *result, int kind) {
  simulate(result, kind, false);
  pen_pass("lower");
  result->lowered =
      kind == PEN_EVAL
          ? pen_lower_forward(result->order, result->partition, result->training)
          : pen_lower(result->order, result->partition, result->training, result->timing, kind);
}

/* Order, timing and rows from --actions. */
static void lower_given(struct pen_result *result, const struct pen_options *options, int kind) {
  const struct pen_partition *partition = result->partition;
  struct pen_problem problem;
  struct pen_action **action;
  uint32_t *count;
  pen_pass("actions");
  pen_actions_read(options->actions, partition, &action, &count);
  const struct pen_action_lists lists = {.action = action,
                                         .count = count,
                                         .rank_of = partition->rank_of,
                                         .rank_count = partition->rank_count,
                                         .stage_count = partition->stage_count,
                                         .microbatch_count = partition->microbatch_count,
                                         .profile_kind = kind};
  if (!pen_verify_actions(&lists, &problem)) {
    struct pen_lowered rows = {
        .rank_count = partition->rank_count, .count = count, .action = action};
    result->lowered = &rows;
    pen_output_deadlock(result, options);
    stop_at_action(options->actions, action, &problem);
  }
  result->order = pen_order_of_actions(action, count, partition->rank_count);
  simulate(result, kind, true);
  pen_pass("lower");
  result->lowered = pen_lower_given(action, count, partition, result->training, kind);
}

/* No plan leaves the generator unverified. */
static void verify(const struct pen_result *result, const struct pen_options *options) {
  struct pen_problem problem;
  if (pen_verify(result->plan, &problem)) return;
  if (options->actions) stop_at_action(options->actions, result->lowered->action, &problem);
  char text[32] = "the plan";
  if (problem.rank != PEN_NONE && problem.action != PEN_NONE &&
      !result->topology->shapes_sequence.count) {
    const struct pen_action *a = &result->lowered->action[problem.rank][problem.action];
    pen_action_text(text, a->kind, a->stage, a->microbatch);
  }
  pen_stop(70, "penstock-gen: this is our bug: the plan of %s is wrong: rank %u, row %u (%s): %s",
           result->topology->path, problem.rank, problem.action, text, problem.reason);
}

/* Adds the profiles of one shape: train and eval, or eval alone. Names of further shapes end with
 * their sequence. */
static void add_profiles(struct pen_profile_input *profile, size_t *count,
                         const struct pen_result *result, int kind, const char *suffix) {
  bool trains = kind == PEN_TRAIN;
  const char *name = pen_text("%s%s", trains ? "train" : "eval", suffix);
  profile[(*count)++] = (struct pen_profile_input){name,
                                                   kind,
                                                   (struct pen_lowered *)result->lowered,
                                                   result->own,
                                                   result->topology,
                                                   result->partition};
  if (!trains) return;
  pen_pass("lower eval");
  struct pen_lowered *forward = pen_lower_forward(pen_compose_forward(result->partition),
                                                  result->partition, result->training);
  profile[(*count)++] = (struct pen_profile_input){
      pen_text("eval%s", suffix), PEN_EVAL,         forward, result->eval,
      result->topology,           result->partition};
}

/* From rows to the plan. */
static void lay_out_rows(struct pen_result *result, int kind) {
  size_t shapes = result->topology->shapes_sequence.count, count = 0;
  struct pen_profile_input *profile =
      pen_new(2 * (1 + shapes) + PEN_GENERATION_MAX, sizeof *profile);
  add_profiles(profile, &count, result, kind, "");
  for (size_t i = 0; i < shapes; i++)
    add_profiles(profile, &count, &result->shape[i], kind,
                 pen_text("_%lld", (long long)result->shape[i].topology->sequence));
  pen_pass("generation");
  count += pen_generation(result->topology, result->partition, result->training, &profile[count]);
  pen_pass("layout");
  result->plan = pen_layout(result->topology, result->partition, profile, count);
}

/* ---- orders that are searched for ---- */

static void search(struct pen_result *result, const struct pen_options *options,
                   const double *slack) {
  pen_pass("search");
  if (!pen_search_can_time(result->partition, result->cost)) stop_at_costs(result);
  struct pen_search_effort effort = {options->search_seconds, options->search_seed};
  result->search = pen_search(result->topology, result->partition, result->training, result->own,
                              result->cost, pen_overlap_of(result), &effort, slack);
  result->order = result->search->order;
}

/* By how much each rank's arena exceeds the limit, `times` so much added to `slack` if there is
 * any. False: none does. */
static bool exceeds(const struct pen_result *result, double *slack, double times) {
  bool any = false;
  double limit = (double)result->topology->memory_limit_mib * 1048576.0;
  for (uint32_t rank = 0; rank < result->partition->rank_count; rank++) {
    double excess = (double)result->plan->memory[rank].arena_bytes - limit;
    if (excess <= 0) continue;
    if (slack) slack[rank] += excess * times;
    any = true;
  }
  return any;
}

/* Named orders that are better than what was found, or all when nothing was: the first whose layout
 * keeps within the limit is taken. */
static bool take_named(struct pen_result *result) {
  struct pen_search *search = result->search;
  struct pen_result before = *result;
  struct pen_search found = *search;
  for (size_t i = 0; i < found.named_count && pen_search_is_better(&found, &found.named[i]); i++) {
    pen_search_take(search, &found.named[i], result->topology, result->partition);
    result->order = search->order;
    lower_own(result, PEN_TRAIN);
    lay_out_rows(result, PEN_TRAIN);
    if (!exceeds(result, NULL, 0)) return true;
  }
  *result = before;
  *search = found;
  if (found.order) pen_search_place(search, result->topology, result->partition);
  return found.order != NULL;
}

/* The search goes by an estimate of bytes; the layout decides. What it needs more, the next search
 * has less, ever more so; and no named schedule that keeps within the limit is better than what is
 * taken. */
static void lay_out_search(struct pen_result *result, const struct pen_options *options) {
  bool in_bytes = result->topology->memory_limit_mib && !result->topology->has_pipeline_live_limit,
       again = true;
  double *slack = pen_new(result->partition->rank_count, sizeof *slack);
  struct pen_search *first = NULL;
  for (int attempt = 1; attempt <= LAYOUTS_MAXIMUM && again; attempt++) {
    search(result, options, slack);
    if (!first) first = result->search;
    if (!result->order) break;
    lower_own(result, PEN_TRAIN);
    lay_out_rows(result, PEN_TRAIN);
    again = in_bytes && exceeds(result, slack, attempt);
  }
  if (again) result->search->order = NULL;
  if (in_bytes ? !take_named(result) : !result->order) {
    pen_search_refuse(first, result->topology);
    if (result->plan) pen_layout_check_limit(result->topology, result->plan);
    pen_stop(70, "penstock-gen: this is our bug: the search finds no order of %s",
             result->topology->path);
  }
  pen_search_print(result->search, pen_unit_of(result));
}

/* What a pair takes is in the unit of the topology's costs, and --costs replaces those. */
static void check_overlap(const struct pen_result *result) {
  if (!result->measured || result->measured->overlap >= 0 || !result->topology->has_costs_overlap)
    return;
  if (pen_order_has_pair(result->order))
    pen_topology_fail(result->topology, "costs.overlap",
                      "not with --costs, which are in ms: %s has to say \"overlap\"",
                      result->measured->path);
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

/* From graphs to the plan. */
static void lay_out(struct pen_result *result, const struct pen_options *options) {
  int kind = result->topology->trains ? PEN_TRAIN : PEN_EVAL;
  const struct pen_schedule *schedule = pen_schedule_of(result->topology->pipeline_schedule);
  if (!options->actions && schedule->given == PEN_GIVEN_BY_SEARCH) {
    lay_out_search(result, options);
  } else {
    if (options->actions) {
      lower_given(result, options, kind);
    } else {
      pen_pass("compose");
      result->order = schedule->given == PEN_GIVEN_BY_FILE
                          ? read_schedule_file(result->topology, result->partition)
                          : pen_compose(result->topology, result->partition);
      lower_own(result, kind);
    }
    lay_out_rows(result, kind);
  }
  pen_layout_check_limit(result->topology, result->plan);
  check_overlap(result);
}

/* The graphs of a result whose topology and partition are settled, and what its actions cost. */
static void build(struct pen_result *result, const char *costs) {
  bool trains = result->topology->trains;
  pen_pass("model and derive");
  result->eval = pen_graphs_of(result->topology, &result->partition->stages, false);
  result->own =
      trains ? pen_graphs_of(result->topology, &result->partition->stages, true) : result->eval;
  result->training = pen_training_of(result->topology, result->partition, result->own);
  pen_pass("costs");
  if (costs) result->measured = pen_measured_read(costs, result->partition, result->own);
  result->cost = result->measured ? result->measured->cost
                                  : pen_costs(result->topology, result->partition, result->own);
  result->exchange_cost =
      pen_collective_costs(result->topology, result->partition, result->own, result->cost);
}

/* Rows of the further shapes: the same stages on the same ranks, with sequences and microbatches of
 * their own. */
static void build_shapes(struct pen_result *result, const struct pen_options *options) {
  size_t count = result->topology->shapes_sequence.count;
  if (count && options->actions)
    pen_topology_fail(result->topology, "shapes.sequence",
                      "none, with --actions: its rows are of one shape alone");
  result->shape = pen_new(count + 1, sizeof *result->shape);
  for (size_t i = 0; i < count; i++) {
    struct pen_result *shape = &result->shape[i];
    shape->topology = pen_topology_of_shape(result->topology, i);
    shape->partition = pen_new(1, sizeof *shape->partition);
    *shape->partition = *result->partition;
    shape->partition->microbatch_count = (uint32_t)shape->topology->pipeline_microbatches;
    build(shape, NULL);
    pen_pass("compose");
    shape->order = pen_compose(shape->topology, shape->partition);
    lower_own(shape, shape->topology->trains ? PEN_TRAIN : PEN_EVAL);
  }
}

static struct pen_result generate(const struct pen_options *options) {
  pen_pass("topology");
  struct pen_result result = {
      .topology =
          pen_topology_read(options->topology, options->overrides.text, options->overrides.count)};
  pen_output_check(result.topology, options);
  pen_pass("partition");
  const struct pen_family *family = pen_family_find(result.topology->model_family);
  bool splits =
      pen_schedule_splits(pen_schedule_of(result.topology->pipeline_schedule), result.topology);
  const struct pen_block_costs *costs = pen_partition_by_time(result.topology)
                                            ? pen_block_costs(result.topology, family, splits)
                                            : NULL;
  result.partition = pen_partition(result.topology, family, costs);
  result.shapes = pen_shapes(result.topology, &result.partition->stages);
  build(&result, options->costs);
  build_shapes(&result, options);
  lay_out(&result, options);
  if (result.measured) pen_measured_check(result.measured, result.plan);
  if (options->name) result.plan->name = options->name;
  pen_pass("digest");
  pen_plan_digest(result.plan);
  pen_pass("verify");
  verify(&result, options);
  return result;
}

static uint64_t row_count(const struct pen_result *result) {
  uint64_t rows = 0;
  for (uint32_t rank = 0; rank < result->lowered->rank_count; rank++)
    rows += result->lowered->count[rank];
  return rows;
}

int main(int argc, char **argv) {
  pen_device_auto = PEN_DEVICE_AUTO;
  const struct pen_options *options = pen_options_read(argc, argv);
  if (options->times) pen_passes_time();
  struct pen_result result = generate(options);
  if (!options->check) {
    pen_pass(options->print);
    pen_output(&result, options);
  }
  if (options->times) pen_passes_write(options->times, row_count(&result));
  if (options->depend && !options->check)
    pen_output_dependencies(result.topology, options->target ? options->target : options->output,
                            options->depend);
  if (options->link && !options->check) pen_output_link(result.plan, options->link);
  if (fflush(stdout) || ferror(stdout))
    pen_stop(PEN_EXIT_WRITE, "penstock-gen: standard output: %s", strerror(errno));
  pen_free_all();
  return 0;
}
