/* main.c: penstock-plan: chooses the settings of a cluster. */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/same_file.h"
#include "gen/base/arena.h"
#include "gen/base/error.h"
#include "gen/planner/reason.h"
#include "gen/planner/best_first.h"
#include "gen/planner/equal_time.h"
#include "gen/planner/internal.h"
#include "gen/planner/planner.h"
#include "gen/planner/refine.h"
#include "gen/planner/write_topology.h"
#include "gen/timing/cost.h"
#include "gen/topology/defaults.h"
#include "gen/topology/source.h"

#ifndef PEN_AUTO_DEVICE /* the tests' program defines it as PEN_DEVICE_CPU */
#define PEN_AUTO_DEVICE PEN_CONFIGURED_DEVICE
#endif

double pen_tokens_per_second(const struct pen_planner *planner,
                             const struct pen_plan_result *result, double step) {
  const struct pen_topology *t = planner->written;
  if (!result->is_measured || !(step > 0)) return 0;
  return (double)t->plan_sequences * (double)t->model_sequence / (step * 1e-3);
}

static bool are_told_apart(const struct pen_plan_result *result, int digits) {
  for (size_t i = 1; i < result->count; i++) {
    const double one = result->best[i - 1].step, other = result->best[i].step;
    if (pen_equal_time(one) != pen_equal_time(other) &&
        !strcmp(pen_text("%.*g", digits, one), pen_text("%.*g", digits, other)))
      return false;
  }
  return true;
}

int pen_step_digits(const struct pen_plan_result *result) {
  int digits = 6;
  while (digits < 10 && !are_told_apart(result, digits)) digits++;
  return digits;
}

const char *pen_candidate_text(const struct pen_planner *planner,
                               const struct pen_plan_candidate *candidate, enum pen_axis axis) {
  struct pen_setting_text setting[PEN_WRITTEN_SETTINGS_MAX];
  const size_t count =
      pen_written_settings(planner, &candidate->choice,
                           candidate->searched ? &planner->options->seconds : NULL, setting);
  for (size_t i = 0; i < count; i++)
    if (!strcmp(setting[i].path, planner->axes->axis[axis].setting)) return setting[i].text;
  return pen_axis_text(planner->axes, &candidate->choice, axis);
}

static void plan_print(FILE *out, const struct pen_planner *planner,
                       const struct pen_plan_result *result) {
  static const struct {
    const char *name;
    void (*print)(FILE *out, const struct pen_planner *planner,
                  const struct pen_plan_result *result);
  } kinds[] = {
      {"table", pen_plan_print_table}, {"json", pen_plan_print_json}, {"svg", pen_plan_print_svg}};
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    if (!strcmp(kinds[i].name, planner->options->print)) kinds[i].print(out, planner, result);
}

static void check_topology(const struct pen_topology *t) {
  pen_topology_require_plan(t);
  if (t->fallback_count)
    pen_stop(PEN_EXIT_TOPOLOGY,
             "%s: fallback: none, with the group plan: what a fallback may change depends on what "
             "is chosen",
             t->path);
}

static void check_output(const struct pen_planner *planner) {
  const size_t sources = planner->written->sources.count;
  struct pen_named_file *file = pen_new(2 + sources, sizeof *file);
  file[0] = (struct pen_named_file){"-o", planner->options->output, true, NULL};
  file[1] = (struct pen_named_file){"--costs", planner->options->costs, false, NULL};
  for (size_t i = 0; i < sources; i++)
    file[2 + i] =
        (struct pen_named_file){"the topology", planner->written->sources.value[i], false, NULL};
  char conflict[PEN_CONFLICT_BYTES];
  if (pen_find_conflict(file, 2 + sources, conflict))
    pen_stop(PEN_EXIT_USAGE, "penstock-plan: %s", conflict);
}

static struct pen_planner planner_of(const struct pen_plan_options *options) {
  struct pen_planner planner = {.options = options};
  planner.written = pen_topology_read_written(options->topology, options->overrides.text,
                                              options->overrides.count);
  check_topology(planner.written);
  check_output(&planner);
  planner.axes = pen_axes_of(planner.written);
  const struct pen_topology *t = planner.written;
  if (options->costs) planner.measured = pen_measured_read(options->costs);
  planner.memory_bytes = (uint64_t)t->plan_memory_mib << 20;
  if (t->has_memory_limit_mib && t->memory_limit_mib && t->memory_limit_mib < t->plan_memory_mib)
    planner.memory_bytes = (uint64_t)t->memory_limit_mib << 20;
  planner.on_terminal = isatty(STDERR_FILENO);
  return planner;
}

int main(int argc, char **argv) {
  pen_device_auto = PEN_AUTO_DEVICE;
  const struct pen_plan_options *options = pen_plan_options_read(argc, argv);
  const struct pen_planner planner = planner_of(options);
  uint64_t wanted = options->top > options->refine ? options->top : options->refine;
  if (wanted < 2) wanted = 2; /* the first is compared with another */
  struct pen_plan_result result = pen_best_first(&planner, wanted);
  result.is_measured = options->costs != NULL;
  result.unit = options->costs ? "in ms" : pen_cost_unit(planner.written);
  pen_refine(&planner, &result, options->refine);
  result.because = pen_because(&planner, &result);
  if (result.count > options->top) result.count = options->top;
  if (options->candidate > result.count)
    pen_stop(PEN_EXIT_USAGE, "penstock-plan: --candidate=%llu: at most %zu, as many as there are",
             (unsigned long long)options->candidate, result.count);
  if (options->output) pen_write_topology(&planner, &result);
  plan_print(stdout, &planner, &result);
  if (fflush(stdout) || ferror(stdout))
    pen_stop(PEN_EXIT_WRITE, "penstock-plan: standard output: %s", strerror(errno));
  pen_free_all();
  return 0;
}
