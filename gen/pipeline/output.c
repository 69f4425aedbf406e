/* output.c: the last pass: writes the plan or a view of it to standard output or a file. */
#include "gen/pipeline/output.h"

#include <stdbool.h>
#include <stdio.h>
#include <errno.h>
#include <libgen.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/same_file.h"
#include "gen/search/budget_bytes.h"
#include "gen/search/order_spreads.h"
#include "gen/timing/lower_bound.h"
#include "gen/schedule/action_text.h"
#include "gen/timing/collectives.h"
#include "gen/timing/cost.h"
#include "gen/timing/critical_path.h"
#include "gen/timing/step_time.h"
#include "gen/schedule/torch_csv.h"
#include "gen/emit/emit.h"
#include "gen/views/views.h"
#include "gen/verify/promela.h"
#include "gen/views/report_json.h"
#include "gen/views/shapes_json.h"
#include "gen/topology/named_file.h"
#include "gen/topology/source.h"
#include "gen/base/arena.h"
#include "gen/base/error.h"
#include "gen/timing/timing.h"
#include "gen/topology/topology.h"
#include "runtime/plan/plan.h"

enum { COLUMNS_DEFAULT = 80, COLUMNS_LEAST = 40, COLUMNS_MOST = 10000 };

static int clamp_columns(long columns) {
  return columns < COLUMNS_LEAST  ? COLUMNS_LEAST
         : columns > COLUMNS_MOST ? COLUMNS_MOST
                                  : (int)columns;
}

/* Columns of a line: $COLUMNS, else those of the terminal, else 80. */
static int terminal_columns(FILE *out) {
  const char *setting = getenv("COLUMNS");
  char *end;
  long columns = setting ? strtol(setting, &end, 10) : 0;
  if (setting && *setting && !*end && columns > 0) return clamp_columns(columns);
  struct winsize size;
  if (ioctl(fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
    return clamp_columns(size.ws_col);
  return COLUMNS_DEFAULT;
}

/* Whether to use colours: on a terminal that is not dumb, without NO_COLOR (no-color.org). */
static bool terminal_colour(FILE *out) {
  const char *no_colour = getenv("NO_COLOR"), *terminal = getenv("TERM");
  return isatty(fileno(out)) && !(no_colour && *no_colour) &&
         !(terminal && strcmp(terminal, "dumb") == 0);
}

/* A word of a command as a shell reads it. */
static const char *shell_word(const char *word) {
  static const char plain[] =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./=:,@%+-";
  const char *text = "";
  if (*word && !word[strspn(word, plain)]) return word;
  for (const char *quote; (quote = strchr(word, '\'')); word = quote + 1)
    text = pen_text("%s%.*s'\\''", text, (int)(quote - word), word);
  return pen_text("'%s%s'", text, word);
}

static const char *base_name(const char *path) { return basename(pen_text("%s", path)); }

/* The command line that gives the same file, with base names for paths, so that the same input
 * gives the same bytes in any folder. */
static const char *command_text(const struct pen_result *result,
                                const struct pen_generator_options *options) {
  const char *text = "penstock-gen";
  for (size_t i = 0; i < options->overrides.count; i++) {
    const char *override = options->overrides.text[i];
    const size_t prefix = pen_named_file_prefix(override);
    const char *value =
        prefix ? pen_text("%.*s%s", (int)prefix, override, base_name(override + prefix)) : override;
    text = pen_text("%s -s %s", text, shell_word(value));
  }
  if (options->name) text = pen_text("%s --name=%s", text, shell_word(options->name));
  if (options->blocks) text = pen_text("%s --blocks", text);
  if (options->actions)
    text = pen_text("%s --actions=%s", text, shell_word(base_name(options->actions)));
  if (options->costs) text = pen_text("%s --costs=%s", text, shell_word(base_name(options->costs)));
  if (result->search && !result->topology->has_pipeline_search_seconds)
    text = pen_text("%s --search-seconds=%llu", text, (unsigned long long)options->search_seconds);
  if (result->search && !result->topology->has_pipeline_search_seed)
    text = pen_text("%s --search-seed=%llu", text, (unsigned long long)options->search_seed);
  return pen_text("%s %s", text, shell_word(base_name(options->topology)));
}

/* What a plan predicts. */
static struct pen_emit_header header_of(const struct pen_result *result) {
  return (struct pen_emit_header){.cost_unit = result->cost.unit,
                                  .timing = result->timing,
                                  .flops = pen_useful_flops(result->partition, result->own),
                                  .peak_tflops = result->topology->has_cluster_peak_tflops
                                                     ? result->topology->cluster_peak_tflops
                                                     : result->cost.peak_tflops};
}

/* The same of plans beside the main one. */
static struct pen_emit_header *more_headers(const struct pen_result *results, uint32_t count) {
  struct pen_emit_header *header = pen_new(count + 1u, sizeof *header);
  for (uint32_t i = 0; i < count; i++) header[i] = header_of(&results[i]);
  return header;
}

static void write_c(FILE *out, const struct pen_result *result,
                    const struct pen_generator_options *options) {
  struct pen_emit_header header = header_of(result);
  header.command = command_text(result, options);
  header.source_digest = result->topology->source_digest;
  header.fallbacks = more_headers(result->fallbacks, result->plan->fallback_count);
  header.measured = more_headers(result->measured, result->plan->measured_count);
  pen_emit_c(out, result->plan, &header);
}

static void write_actions(FILE *out, const struct pen_result *result,
                          const struct pen_generator_options *options) {
  (void)options;
  pen_actions_print(out, result->plan->profiles[0].ranks, result->plan->rank_count);
}

static void write_csv(FILE *out, const struct pen_result *result,
                      const struct pen_generator_options *options) {
  (void)options;
  pen_csv_print(out, result->order);
}

/* With the memory limit, if the topology trains. */
static struct pen_bounds bounds_of(const struct pen_result *result) {
  const struct pen_budget *budget =
      result->topology->trains
          ? pen_budget_of(result->topology, result->partition, result->training, result->own, NULL)
          : NULL;
  const struct pen_exchange_least *exchange = pen_exchange_least(
      result->partition, result->training,
      pen_cost_model_collectives(&result->cost, result->partition), result->plan->profiles[0].kind);
  return pen_bounds_of(result->order, result->partition, result->training, result->placed_cost,
                       exchange, result->cost.overlap, budget);
}

/* The greatest known lower bound of the makespan. That of the memory limit is of an estimate of
 * bytes: an order that needs less may be below it. */
static double chart_bound(const struct pen_result *result) {
  const struct pen_timing *timing = result->timing;
  double bound = pen_bound_rounded(bounds_of(result).makespan.greatest, timing->makespan);
  return bound > timing->makespan ? timing->lower_bound : fmax(bound, timing->lower_bound);
}

/* With replicas their collectives are among the actions. */
static struct pen_view view_of(FILE *out, const struct pen_result *result,
                               const struct pen_generator_options *options) {
  const struct pen_timing *timing = result->timing;
  return (struct pen_view){.plan = result->plan,
                           .partition = result->partition,
                           .training = result->training,
                           .order = timing->whole ? timing->whole_order : result->order,
                           .timing = timing->whole ? timing->whole : timing,
                           .cost = result->placed_cost,
                           .unit = result->cost.unit,
                           .arrows = options->arrows,
                           .critical = options->critical,
                           .columns = terminal_columns(out),
                           .colour = terminal_colour(out)};
}

static struct pen_view chart_of(FILE *out, const struct pen_result *result,
                                const struct pen_generator_options *options) {
  struct pen_view view = view_of(out, result, options);
  view.bound = chart_bound(result);
  return view;
}

#define WRITE_VIEW(kind, make, function)                                  \
  static void write_##kind(FILE *out, const struct pen_result *result,    \
                           const struct pen_generator_options *options) { \
    struct pen_view view = make(out, result, options);                    \
    function(out, &view);                                                 \
  }
WRITE_VIEW(memory, view_of, pen_memory_map)
WRITE_VIEW(svg, chart_of, pen_gantt_svg)
WRITE_VIEW(text, chart_of, pen_gantt_text)
WRITE_VIEW(trace, view_of, pen_chrome_trace)

/* PyTorch's format has no replicas. */
static void write_comms(FILE *out, const struct pen_result *result,
                        const struct pen_generator_options *options) {
  struct pen_view view = view_of(out, result, options);
  view.order = result->order;
  view.timing = result->timing;
  pen_torch_comms(out, &view);
}

static const struct pen_spread *robustness_of(const struct pen_result *result,
                                              const struct pen_generator_options *options,
                                              size_t *count) {
  const struct pen_order_timed chosen = {result->topology, result->partition, result->training,
                                         result->own,      &result->cost,     result->order,
                                         result->timing};
  return pen_order_spreads(&chosen, options->search_seed, count);
}

static void write_report(FILE *out, const struct pen_result *result,
                         const struct pen_generator_options *options) {
  struct pen_view whole = view_of(out, result, options);
  const struct pen_path *path = pen_critical_path(whole.order, result->partition, result->training,
                                                  result->placed_cost, whole.timing);
  const struct pen_collective_cost *collective =
      pen_cost_model_collectives(&result->cost, result->partition);
  const struct pen_collective_sum *sums =
      pen_collective_sums(result->plan, whole.order, whole.timing, result->partition,
                          result->training, result->placed_cost, collective);
  const struct pen_bounds bounds = bounds_of(result);
  double *makespans = pen_new(result->plan->fallback_count + 1u, sizeof *makespans);
  for (uint32_t f = 0; f < result->plan->fallback_count; f++)
    makespans[f] = result->fallbacks[f].timing->makespan;
  struct pen_report report = {
      .plan = result->plan,
      .topology = result->topology,
      .partition = result->partition,
      .stage_cost = result->placed_cost,
      .timing = result->timing,
      .step = pen_step_time(&result->cost, result->partition, result->order, result->timing).step,
      .order = whole.order,
      .path = path,
      .bounds = &bounds,
      .sums = sums,
      .utilisation = pen_useful_work(result->partition, result->own, result->cost.stage) /
                     (result->timing->makespan * pen_speed_sum(result->partition)),
      .search = result->search,
      .fallback_makespans = makespans};
  if (options->robustness) report.spread = robustness_of(result, options, &report.spread_count);
  pen_report_json(out, &report);
}

static void write_shapes(FILE *out, const struct pen_result *result,
                         const struct pen_generator_options *options) {
  (void)options;
  pen_shapes_json(out, result->topology, result->partition, &result->shapes);
}

static void write_promela(FILE *out, const struct pen_result *result,
                          const struct pen_generator_options *options) {
  (void)options;
  if (result->plan)
    pen_promela(out, result->plan);
  else
    pen_promela_actions(out, result->topology->name, result->refused,
                        pen_group_size(result->partition, PEN_DATA));
}

/* The writer of each --print kind of options.def. */
static const struct {
  const char *name;
  void (*write)(FILE *out, const struct pen_result *result,
                const struct pen_generator_options *options);
} writers[] = {
    {"c", write_c},           {"actions", write_actions},
    {"csv", write_csv},       {"csv-comms", write_comms},
    {"memory", write_memory}, {"promela", write_promela},
    {"report", write_report}, {"shapes", write_shapes},
    {"svg", write_svg},       {"text", write_text},
    {"trace", write_trace},
};

static void write_output(FILE *out, const struct pen_result *result,
                         const struct pen_generator_options *options) {
  for (size_t i = 0; i < sizeof writers / sizeof *writers; i++)
    if (strcmp(writers[i].name, options->print) == 0) writers[i].write(out, result, options);
}

/* Whether to replace the file: a device or link that exists is written to, never replaced. */
static bool is_replaceable(const char *path) {
  struct stat status;
  return lstat(path, &status) || S_ISREG(status.st_mode);
}

void pen_output_check(const struct pen_topology *topology,
                      const struct pen_generator_options *options) {
  enum { OPTIONS = 8 };
  const size_t sources = topology->sources.count;
  struct pen_named_file *file = pen_new(OPTIONS + sources, sizeof *file);
  const struct pen_named_file named[OPTIONS] = {
      {"the topology", options->topology, false, NULL},
      {"--actions", options->actions, false, NULL},
      {"--costs", options->costs, false, NULL},
      {"pipeline.schedule_file", topology->schedule_path, false, NULL},
      {"--times", options->times, true, NULL},
      {"-o", options->check ? NULL : options->output, true, NULL},
      {"--depend", options->check ? NULL : options->depend, true, NULL},
      {"--link", options->check ? NULL : options->link, true, NULL},
  };
  memcpy(file, named, sizeof named);
  for (size_t i = 0; i < sources; i++) {
    const char *path = topology->sources.value[i];
    file[OPTIONS + i].path = path;
    file[OPTIONS + i].name = pen_text("%.300s, which the topology includes", path);
  }
  char conflict[PEN_CONFLICT_BYTES];
  if (pen_find_conflict(file, OPTIONS + sources, conflict))
    pen_stop(PEN_EXIT_USAGE, "penstock-gen: %s", conflict);
}

/* Writes a temporary file and renames it, so that a plan is complete or absent. */
static void write_file(const struct pen_result *result,
                       const struct pen_generator_options *options) {
  bool replace = is_replaceable(options->output);
  const char *path =
      replace ? pen_text("%s.tmp%ld", options->output, (long)getpid()) : options->output;
  FILE *out = fopen(path, replace ? "wx" : "w");
  if (!out) pen_stop(PEN_EXIT_CREATE, "penstock-gen: %s: %s", options->output, strerror(errno));
  write_output(out, result, options);
  int failed = ferror(out);
  if (fclose(out) || failed || (replace && rename(path, options->output))) {
    int cause = errno;
    if (replace) unlink(path);
    pen_stop(PEN_EXIT_WRITE, "penstock-gen: %s: %s", options->output, strerror(cause));
  }
}

void pen_output(const struct pen_result *result, const struct pen_generator_options *options) {
  if (options->output)
    write_file(result, options);
  else
    write_output(stdout, result, options);
}

void pen_output_deadlock(const struct pen_topology *topology, const struct pen_partition *partition,
                         const struct pen_action_lists *actions,
                         const struct pen_generator_options *options) {
  if (strcmp(options->print, "promela") != 0 || options->check) return;
  if (!pen_promela_actions(NULL, topology->name, actions, pen_group_size(partition, PEN_DATA)))
    return;
  const struct pen_result result = {
      .topology = topology, .partition = partition, .refused = actions};
  pen_output(&result, options);
  if (fflush(stdout))
    pen_stop(PEN_EXIT_WRITE, "penstock-gen: standard output: %s", strerror(errno));
}

/* ---- make dependencies ---- */

/* Writes a file's name for make; in a target, '%' would make a pattern rule. */
static void write_make_name(FILE *out, const char *name, bool target) {
  for (; *name; name++) {
    if (*name == '\n') {
      fputc('?', out); /* no rule can have it, but a pattern of any character */
      continue;
    }
    if (*name == '$') fputc('$', out);
    if (strchr(" \t#\\", *name) || (target && strchr(":%", *name))) fputc('\\', out);
    fputc(*name, out);
  }
}

void pen_output_dependencies(const struct pen_topology *topology, const char *target,
                             const char *path) {
  FILE *out = fopen(path, "w");
  if (!out) pen_stop(PEN_EXIT_CREATE, "%s: %s", path, strerror(errno));
  write_make_name(out, target, true);
  fputc(':', out);
  for (size_t i = 0; i < topology->sources.count; i++) {
    fputc(' ', out);
    write_make_name(out, topology->sources.value[i], false);
  }
  fputs("\n", out);
  for (size_t i = 0; i < topology->sources.count; i++) {
    fputc('\n', out);
    write_make_name(out, topology->sources.value[i], true);
    fputs(":\n", out);
  }
  bool failed = ferror(out);
  if (fclose(out) || failed) pen_stop(PEN_EXIT_WRITE, "%s: %s", path, strerror(errno));
}

void pen_output_link(const struct pen_plan *plan, const char *path) {
  FILE *out = fopen(path, "w");
  if (!out) pen_stop(PEN_EXIT_CREATE, "%s: %s", path, strerror(errno));
  int transport = plan->transport;
  for (uint32_t f = 0; f < plan->fallback_count; f++)
    if (!pen_transport_row(transport)->between_hosts)
      transport = plan->fallbacks[f].transport; /* one that is linked with more */
  bool failed = fprintf(out, "%s %s\n", pen_device_row(plan->device)->text,
                        pen_transport_row(transport)->text) < 0;
  if (fclose(out) || failed) pen_stop(PEN_EXIT_WRITE, "%s: %s", path, strerror(errno));
}
