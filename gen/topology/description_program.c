/* description_program.c: reads the program of a described POINTWISE (see description_program.h). */
#include "gen/topology/description_program.h"

#include "gen/base/arena.h"
#include "gen/base/error.h"

/* A step: its name, then numbers. */
static struct pen_described_step read_step(const char *path, const char *place,
                                           const json_t *from) {
  enum { ARGUMENTS_MAX = sizeof(((struct pen_described_step *)0)->argument) / sizeof(double) };
  struct pen_described_step step = {
      .name = pen_description_name(path, place, json_array_get(from, 0), "_", false),
      .count = json_array_size(from) - 1};
  bool numbers = step.count <= ARGUMENTS_MAX;
  for (size_t k = 0; k < step.count && numbers; k++) {
    numbers = json_is_number(json_array_get(from, k + 1));
    step.argument[k] = json_number_value(json_array_get(from, k + 1));
  }
  if (!numbers)
    pen_description_fail_at(path, place, from,
                            "[NAME, number, ...]: a step, and at most three inputs");
  return step;
}

void pen_description_program(const char *path, const char *place, const json_t *list,
                             struct pen_described_op *op) {
  op->step_count = json_array_size(list);
  if (op->step_count < 1 || op->step_count > PEN_DESCRIBED_STEPS_MAX)
    pen_stop(PEN_EXIT_TOPOLOGY, "%s: %s: a list of 1 to %d steps, not of %zu", path, place,
             PEN_DESCRIBED_STEPS_MAX, op->step_count);
  op->step = pen_new(op->step_count, sizeof *op->step);
  for (size_t s = 0; s < op->step_count; s++)
    op->step[s] = read_step(path, pen_text("%s[%zu]", place, s), json_array_get(list, s));
}
