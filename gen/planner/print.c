/* print.c: chooses what --print writes. */
#include "gen/planner/print.h"

#include <string.h>

#include "gen/base/arena.h"
#include "gen/planner/equal_time.h"
#include "gen/planner/internal.h"
#include "gen/planner/write_topology.h"

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

void pen_plan_print(FILE *out, const struct pen_planner *planner,
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
