/* main.c: penstock-gen: the passes in order, from a topology file to tables. */
#include <errno.h>
#include <libgen.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gen/actions.h"
#include "gen/cost.h"
#include "gen/csv.h"
#include "gen/emit.h"
#include "gen/layout.h"
#include "gen/measured.h"
#include "gen/options.h"
#include "gen/passes.h"
#include "gen/promela.h"
#include "gen/picture.h"
#include "gen/report.h"
#include "gen/schedules.h"
#include "gen/search.h"
#include "gen/shapes.h"

enum { LAYOUTS_MAXIMUM = 6 };

/* Everything that the last pass may show. */
struct result {
  struct pen_topology *topology;
  struct pen_partition *partition;
  struct pen_shapes shapes;
  const struct pen_stage_cost *cost;
  const struct pen_measured *measured; /* null: costs are the topology's */
  const struct pen_order *order;
  const struct pen_timing *timing;
  struct pen_graph **own;          /* [stage] of the topology's own profile */
  const struct pen_search *search; /* null: the order is not searched for */
  const struct pen_lowered *lowered;
  struct pen_plan *plan;
};

/* Rows that somebody wrote are wrong: names file, rank and action as they stand in the file. */
static _Noreturn void stop_at_action(const char *path, struct pen_action *const *action, const struct pen_problem *problem) {
  if (problem->rank == PEN_NONE || problem->action == PEN_NONE)
    pen_stop(PEN_EXIT_DATA, "%s: %s", path, problem->reason);
  const struct pen_action *a = &action[problem->rank][problem->action];
  uint32_t place = 0; /* among the actions of the file: waits and the step's end are ours */
  for (uint32_t i = 0; i < problem->action; i++) place += action[problem->rank][i].kind <= PEN_RECV_B;
  char text[32];
  pen_stop(PEN_EXIT_DATA, "%s: rank %u, action %u (%s): %s", path, problem->rank, place,
           pen_action_text(text, a->kind, a->stage, a->microbatch), problem->reason);
}

static struct pen_graph **build_graphs(const struct pen_topology *topology, const struct pen_partition *partition, bool training) {
  struct pen_graph **graph = pen_new(partition->stage_count, sizeof *graph);
  for (uint32_t s = 0; s < partition->stage_count; s++) {
    graph[s] = pen_model(topology, partition, s, training);
    pen_derive(graph[s]);
  }
  return graph;
}

/* The compute actions of rows, as an order that can be simulated. */
static struct pen_order *order_of_rows(struct pen_action *const *action, const uint32_t *count, uint32_t rank_count) {
  struct pen_order *order = pen_new(1, sizeof *order);
  *order = (struct pen_order){rank_count, pen_new(rank_count, sizeof(uint32_t)), pen_new(rank_count, sizeof(struct pen_compute *))};
  for (uint32_t r = 0; r < rank_count; r++) {
    order->action[r] = pen_new(count[r] + 1u, sizeof **order->action);
    for (uint32_t i = 0; i < count[r]; i++) {
      const struct pen_action *a = &action[r][i];
      if (a->kind <= PEN_W)
        order->action[r][order->count[r]++] = (struct pen_compute){a->kind, a->overlaps, a->stage, a->microbatch};
    }
  }
  return order;
}

/* The model of rows that can deadlock, so that SPIN can be asked too; nothing when more is wrong with them. */
static void write_deadlock(const struct pen_lowered *rows, const struct result *result, const struct pen_options *options, int kind) {
  const char *name = result->topology->name;
  if (!pen_promela_rows(NULL, name, rows, result->partition, kind)) return;
  FILE *out = options->output ? fopen(options->output, "w") : stdout;
  if (!out) pen_stop(PEN_EXIT_CREATE, "penstock-gen: %s: %s", options->output, strerror(errno));
  pen_promela_rows(out, name, rows, result->partition, kind);
  if ((options->output ? fclose(out) : fflush(out)) != 0)
    pen_stop(PEN_EXIT_WRITE, "penstock-gen: %s: %s", options->output ? options->output : "standard output", strerror(errno));
}

/* What a pair a|b takes; below 0 the sum. */
static double overlap_of(const struct result *result) {
  return result->topology->has_costs_overlap && !result->measured ? result->topology->costs_overlap : -1;
}

/* Costs are finite, but their sum may not be. */
static void simulate(struct result *result) {
  pen_pass("simulate");
  result->timing = pen_simulate(result->order, result->partition, result->cost, overlap_of(result));
  if (!result->timing->complete || isfinite(result->timing->makespan)) return;
  pen_stop(result->measured ? PEN_EXIT_DATA : PEN_EXIT_TOPOLOGY, "%s: costs: the step takes longer than a number can say",
           result->measured ? result->measured->path : result->topology->path);
}

/* The order of the topology's schedule. `own`: the graphs of its profile. */
static void compose(struct result *result, const struct pen_options *options, struct pen_graph *const *own, const double *slack) {
  if (pen_schedule_of(result->topology->pipeline_schedule)->given != PEN_GIVEN_BY_SEARCH) {
    pen_pass("compose");
    result->order = pen_compose(result->topology, result->partition);
    return;
  }
  pen_pass("search");
  struct pen_search_effort effort = {options->search_seconds, options->search_seed};
  result->search = pen_search(result->topology, result->partition, own, result->cost, overlap_of(result), &effort, slack);
  result->order = result->search->order;
}

/* Order, timing and rows of the topology's own profile: composed, or taken from --actions. */
static void lower_own(struct result *result, const struct pen_options *options, int kind, struct pen_graph *const *own,
                      const double *slack) {
  const struct pen_partition *partition = result->partition;
  bool gather = kind == PEN_TRAIN && result->topology->optimizer_clip_norm > 0;
  struct pen_problem problem;
  if (!options->actions) {
    compose(result, options, own, slack);
    simulate(result);
    pen_pass("lower");
    result->lowered = kind == PEN_EVAL ? pen_lower_forward(result->order, partition)
                                       : pen_lower(result->order, partition, result->timing, kind, gather);
    return;
  }
  struct pen_action **action;
  uint32_t *count;
  pen_pass("actions");
  pen_actions_read(options->actions, partition, &action, &count);
  if (!pen_verify_rows(action, count, partition->rank_count, partition->stage_count, partition->microbatch_count,
                       partition->rank_of, kind, &problem)) {
    struct pen_lowered rows = {.rank_count = partition->rank_count, .count = count, .action = action};
    if (strcmp(options->print, "promela") == 0 && !options->check) write_deadlock(&rows, result, options, kind);
    stop_at_action(options->actions, action, &problem);
  }
  result->order = order_of_rows(action, count, partition->rank_count);
  simulate(result);
  pen_pass("lower");
  result->lowered = pen_lower_given(action, count, partition, kind, gather);
}

/* No plan leaves the generator unverified. */
static void verify(const struct result *result, const struct pen_options *options) {
  struct pen_problem problem;
  if (pen_verify(result->plan, &problem)) return;
  if (options->actions) stop_at_action(options->actions, result->lowered->action, &problem);
  char text[32] = "the plan";
  if (problem.rank != PEN_NONE && problem.action != PEN_NONE) {
    const struct pen_action *a = &result->lowered->action[problem.rank][problem.action];
    pen_action_text(text, a->kind, a->stage, a->microbatch);
  }
  pen_stop(70, "penstock-gen: this is our bug: the plan of %s is wrong: rank %u, row %u (%s): %s", result->topology->path,
           problem.rank, problem.action, text, problem.reason);
}

static const char *unit_of(const struct result *result) {
  return result->measured ? "in ms" : pen_cost_unit(result->topology);
}

/* By how much each rank's arena exceeds the limit, added to `slack`. False: none does. */
static bool add_excess(const struct result *result, double *slack) {
  bool exceeds = false;
  double limit = (double)result->topology->memory_limit_mib * 1048576.0;
  for (uint32_t rank = 0; rank < result->partition->rank_count; rank++) {
    double excess = (double)result->plan->memory[rank].arena_bytes - limit;
    if (excess > 0) slack[rank] += excess;
    exceeds = exceeds || excess > 0;
  }
  return exceeds;
}

/* From graphs to the plan: once, or, since a search goes by an estimate of bytes, until the layout confirms it. */
static void lay_out(struct result *result, const struct pen_options *options, struct pen_graph **own, struct pen_graph **eval) {
  bool trains = result->topology->trains, again = true;
  double *slack = pen_new(result->partition->rank_count, sizeof *slack);
  for (int attempt = 0; attempt < LAYOUTS_MAXIMUM && again; attempt++) {
    lower_own(result, options, trains ? PEN_TRAIN : PEN_EVAL, own, slack);
    struct pen_profile_input profile[2] = {
        {trains ? "train" : "eval", trains ? PEN_TRAIN : PEN_EVAL, (struct pen_lowered *)result->lowered, own},
    };
    if (trains) {
      pen_pass("lower eval");
      struct pen_lowered *forward = pen_lower_forward(pen_compose_forward(result->partition), result->partition);
      profile[1] = (struct pen_profile_input){"eval", PEN_EVAL, forward, eval};
    }
    pen_pass("layout");
    result->plan = pen_layout(result->topology, result->partition, profile, trains ? 2 : 1);
    again = result->search && result->topology->memory_limit_mib && !result->topology->has_pipeline_live_limit &&
            add_excess(result, slack);
  }
  pen_layout_check_limit(result->topology, result->plan);
  if (result->search) pen_search_print(result->search, unit_of(result));
}

static struct result generate(const struct pen_options *options) {
  pen_pass("topology");
  struct result result = {.topology = pen_topology_read(options->topology, options->override, options->override_count)};
  pen_pass("partition");
  result.partition = pen_partition(result.topology);
  result.shapes = pen_shapes(result.topology, result.partition);
  bool trains = result.topology->trains;
  pen_pass("model and derive");
  struct pen_graph **eval = build_graphs(result.topology, result.partition, false);
  struct pen_graph **own = trains ? build_graphs(result.topology, result.partition, true) : eval;
  pen_pass("costs");
  if (options->costs) result.measured = pen_measured_read(options->costs, result.partition, own);
  result.cost = result.measured ? result.measured->cost : pen_costs(result.topology, result.partition, own);
  result.own = own;
  lay_out(&result, options, own, eval);
  if (result.measured) pen_measured_check(result.measured, result.plan);
  if (options->name) result.plan->name = options->name;
  pen_pass("digest");
  pen_plan_digest(result.plan);
  pen_pass("verify");
  verify(&result, options);
  return result;
}

/* ---- output ---- */

/* The command line with paths by base name, so that the same input gives the same bytes wherever it lies. */
static const char *command_text(const struct result *result, const struct pen_options *options) {
  const char *text = "penstock-gen";
  for (size_t i = 0; i < options->override_count; i++) {
    static const char file[] = "pipeline.schedule_file=";
    bool path = strncmp(options->override[i], file, sizeof file - 1) == 0;
    const char *value = path ? pen_text("%s%s", file, basename(pen_text("%s", options->override[i] + sizeof file - 1))) : options->override[i];
    text = pen_text("%s -s %s", text, value);
  }
  if (options->actions) text = pen_text("%s --actions=%s", text, basename(pen_text("%s", options->actions)));
  if (options->costs) text = pen_text("%s --costs=%s", text, basename(pen_text("%s", options->costs)));
  if (result->search)
    text = pen_text("%s --search-seconds=%llu --search-seed=%llu", text, (unsigned long long)options->search_seconds,
                    (unsigned long long)options->search_seed);
  return pen_text("%s %s", text, basename(pen_text("%s", options->topology)));
}

static void write_c(FILE *out, const struct result *result, const struct pen_options *options) {
  struct pen_emit_header header = {command_text(result, options), result->topology->source_digest, unit_of(result),
                                   result->timing};
  pen_emit_c(out, result->plan, &header);
}

static void write_actions(FILE *out, const struct result *result, const struct pen_options *options) {
  (void)options;
  pen_actions_print(out, result->lowered->action, result->lowered->count, result->lowered->rank_count);
}

static void write_csv(FILE *out, const struct result *result, const struct pen_options *options) {
  (void)options;
  pen_csv_print(out, result->order);
}

static struct pen_picture picture_of(FILE *out, const struct result *result, const struct pen_options *options) {
  return (struct pen_picture){.plan = result->plan, .partition = result->partition, .order = result->order, .timing = result->timing,
                              .cost = result->cost, .lowered = result->lowered, .unit = unit_of(result),
                              .arrows = options->arrows, .critical = options->critical, .columns = pen_terminal_columns(out),
                              .colour = pen_terminal_colour(out)};
}

/* A picture is drawn from one description, whatever its kind. */
#define WRITE_PICTURE(kind)                                                                                     \
  static void write_##kind(FILE *out, const struct result *result, const struct pen_options *options) {         \
    struct pen_picture picture = picture_of(out, result, options);                                              \
    pen_picture_##kind(out, &picture);                                                                          \
  }
WRITE_PICTURE(comms)
WRITE_PICTURE(memory)
WRITE_PICTURE(svg)
WRITE_PICTURE(text)
WRITE_PICTURE(trace)

static void write_report(FILE *out, const struct result *result, const struct pen_options *options) {
  (void)options;
  const struct pen_path *path = pen_critical_path(result->order, result->partition, result->cost, result->timing);
  const struct pen_budget *budget = result->topology->trains ? pen_budget_of(result->topology, result->partition, result->own, NULL) : NULL;
  struct pen_bounds bounds = pen_bounds_of(result->order, result->partition, result->cost, overlap_of(result), budget);
  pen_report(out, result->plan, result->timing, result->order, path, &bounds, result->search);
}

static void write_shapes(FILE *out, const struct result *result, const struct pen_options *options) {
  (void)options;
  pen_shapes_print(out, result->topology, result->partition, &result->shapes);
}

static void write_promela(FILE *out, const struct result *result, const struct pen_options *options) {
  (void)options;
  pen_promela(out, result->plan);
}

/* The kinds of options.def that this version makes. */
static const struct {
  const char *name;
  void (*write)(FILE *out, const struct result *result, const struct pen_options *options);
} writers[] = {
    {"c", write_c},
    {"actions", write_actions},
    {"csv", write_csv},
    {"csv-comms", write_comms},
    {"memory", write_memory},
    {"promela", write_promela},
    {"report", write_report},
    {"shapes", write_shapes},
    {"svg", write_svg},
    {"text", write_text},
    {"trace", write_trace},
};

static void write_output(FILE *out, const struct result *result, const struct pen_options *options) {
  for (size_t i = 0; i < sizeof writers / sizeof *writers; i++)
    if (strcmp(writers[i].name, options->print) == 0) writers[i].write(out, result, options);
}

/* What is there already and no plain file (a device, a link) is written through, never replaced. */
static bool is_replaceable(const char *path) {
  struct stat status;
  return lstat(path, &status) || S_ISREG(status.st_mode);
}

/* Writes beside the file and renames: a plan is whole or not there. */
static void write_file(const struct result *result, const struct pen_options *options) {
  bool replace = is_replaceable(options->output);
  const char *path = replace ? pen_text("%s.tmp%ld", options->output, (long)getpid()) : options->output;
  FILE *out = fopen(path, "w");
  if (!out) pen_stop(PEN_EXIT_CREATE, "penstock-gen: %s: %s", options->output, strerror(errno));
  write_output(out, result, options);
  int failed = ferror(out);
  if (fclose(out) || failed || (replace && rename(path, options->output))) {
    int cause = errno;
    if (replace) unlink(path);
    pen_stop(PEN_EXIT_WRITE, "penstock-gen: %s: %s", options->output, strerror(cause));
  }
}

static uint64_t row_count(const struct result *result) {
  uint64_t rows = 0;
  for (uint32_t rank = 0; rank < result->lowered->rank_count; rank++) rows += result->lowered->count[rank];
  return rows;
}

int main(int argc, char **argv) {
  const struct pen_options *options = pen_options_read(argc, argv);
  struct result result = generate(options);
  if (!options->check) {
    pen_pass(options->print);
    if (options->output)
      write_file(&result, options);
    else
      write_output(stdout, &result, options);
  }
  if (options->times) pen_passes_write(options->times, row_count(&result));
  if (options->depend && !options->check)
    pen_topology_write_dependencies(result.topology, options->target ? options->target : options->output, options->depend);
  if (fflush(stdout) || ferror(stdout)) pen_stop(PEN_EXIT_WRITE, "penstock-gen: standard output: %s", strerror(errno));
  pen_free_all();
  return 0;
}
