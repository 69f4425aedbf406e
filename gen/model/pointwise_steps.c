/* pointwise_steps.c: the kinds of steps of POINTWISE (see pointwise_steps.h). */
#include "gen/model/pointwise_steps.h"

#include <string.h>

#include "gen/base/arena.h"

static const struct step_row {
  const char *name, *inputs;
  bool of_gradients;
} rows[PEN_STEP_KINDS] = {
#define PEN_STEP(kind, inputs, gradient_a, gradient_b, gradient_c, value, meaning) \
  {#kind, inputs, false},
#define PEN_GRADIENT_STEP(kind, inputs, gradient_a, gradient_b, gradient_c, value, meaning) \
  {#kind, inputs, true},
#include "kernels/steps.def"
};

int pen_step_find(const char *name) {
  for (int kind = 0; kind < PEN_STEP_KINDS; kind++)
    if (!rows[kind].of_gradients && strcmp(rows[kind].name, name) == 0) return kind;
  return -1;
}

const char *pen_step_name(int kind) { return rows[kind].name; }

const char *pen_step_names(void) {
  const char *text = "";
  for (int kind = 0; kind < PEN_STEP_KINDS; kind++)
    if (!rows[kind].of_gradients)
      text = pen_text("%s%s%s", text, kind ? ", " : "", rows[kind].name);
  return text;
}

uint32_t pen_step_inputs(int kind) { return (uint32_t)strlen(rows[kind].inputs); }

bool pen_step_needs_number(int kind, uint32_t k) { return rows[kind].inputs[k] == 'k'; }

bool pen_steps_read(const struct pen_steps_list *program, uint32_t operand) {
  for (uint32_t s = 0; s < program->count; s++)
    for (uint32_t k = 0; k < pen_step_inputs(program->step[s].kind); k++)
      if (program->step[s].input[k] == operand) return true;
  return false;
}
