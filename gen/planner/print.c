/* print.c: chooses what --print writes. */
#include "gen/planner/print.h"

#include <string.h>

#include "gen/planner/internal.h"

double pen_tokens_per_second(const struct pen_planner *planner,
                             const struct pen_plan_result *result, double step) {
  const struct pen_topology *t = planner->written;
  if (!result->is_measured || !(step > 0)) return 0;
  return (double)t->plan_sequences * (double)t->model_sequence / (step * 1e-3);
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
