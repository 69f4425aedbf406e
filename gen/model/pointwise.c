/* pointwise.c: the table of the programs of POINTWISE (see pointwise.h).
 *
 * Registers: a constant has one of its own, since kernels fill it once, before all steps. Another
 * step's is the lowest that is free, also one that the step reads for the last time: kernels read
 * an element before they write it. */
#include "gen/model/pointwise.h"

#include <string.h>

#include "gen/base/arena.h"
#include "gen/model/pointwise_gradient.h"

/* ---- registers ---- */

struct registers {
  uint32_t *last_use; /* [step]: the last one that reads it */
  bool is_taken[PEN_STEP_REGISTERS_MAX];
  uint8_t *of_step; /* [step] */
  uint32_t count;   /* in use so far */
};

/* The lowest that is free; PEN_STEP_REGISTERS_MAX: none. */
static uint8_t take_register(struct registers *r) {
  uint8_t n = 0;
  while (n < PEN_STEP_REGISTERS_MAX && r->is_taken[n]) n++;
  if (n == PEN_STEP_REGISTERS_MAX) return n;
  r->is_taken[n] = true;
  if (r->count < n + 1u) r->count = n + 1u;
  return n;
}

static void find_last_uses(const struct pen_steps_list *program, struct registers *r) {
  for (uint32_t s = 0; s < program->count; s++)
    for (uint32_t k = 0; k < pen_step_inputs(program->step[s].kind); k++)
      if (program->step[s].input[k] >= PEN_STEP_OPERANDS)
        r->last_use[program->step[s].input[k] - PEN_STEP_OPERANDS] = s;
}

static void release_registers(const struct pen_steps_list *program, struct registers *r,
                              uint32_t s) {
  for (uint32_t k = 0; k < pen_step_inputs(program->step[s].kind); k++) {
    const uint32_t step = program->step[s].input[k] - PEN_STEP_OPERANDS;
    if (program->step[s].input[k] >= PEN_STEP_OPERANDS && r->last_use[step] == s &&
        program->step[step].kind != PEN_STEP_CONST)
      r->is_taken[r->of_step[step]] = false;
  }
}

/* False: there are too few. */
static bool assign_registers(const struct pen_steps_list *program, struct registers *r) {
  find_last_uses(program, r);
  for (uint32_t s = 0; s < program->count; s++)
    if (program->step[s].kind == PEN_STEP_CONST &&
        (r->of_step[s] = take_register(r)) == PEN_STEP_REGISTERS_MAX)
      return false;
  for (uint32_t s = 0; s + 1 < program->count; s++) {
    if (program->step[s].kind == PEN_STEP_CONST) continue;
    release_registers(program, r, s);
    if ((r->of_step[s] = take_register(r)) == PEN_STEP_REGISTERS_MAX) return false;
  }
  return true;
}

/* ---- rows ---- */

static uint8_t input_number(const struct registers *r, uint16_t value) {
  return (uint8_t)(value < PEN_STEP_OPERANDS
                       ? value
                       : PEN_STEP_OPERANDS + r->of_step[value - PEN_STEP_OPERANDS]);
}

static void fill_row(const struct pen_steps_list *program, const struct registers *r,
                     struct pen_pointwise *row) {
  *row = (struct pen_pointwise){.step_count = program->count, .register_count = r->count};
  for (size_t k = 0; k < PEN_STEP_GRADIENT; k++) row->gradient[k] = PEN_NONE;
  for (uint32_t s = 0; s < program->count; s++) {
    const struct pen_program_step *step = &program->step[s];
    const uint32_t inputs = pen_step_inputs(step->kind);
    row->kind[s] = step->kind;
    row->to[s] = r->of_step[s];
    row->number[s] = step->number;
    row->a[s] = inputs > 0 ? input_number(r, step->input[0]) : 0;
    row->b[s] = inputs > 1 ? input_number(r, step->input[1]) : row->a[s];
    row->c[s] = inputs > 2 ? input_number(r, step->input[2]) : row->b[s];
  }
}

static bool is_same(const struct pen_pointwise *row, const struct pen_pointwise *other) {
  return row->step_count == other->step_count &&
         memcmp(row->kind, other->kind, sizeof row->kind) == 0 &&
         memcmp(row->to, other->to, sizeof row->to) == 0 &&
         memcmp(row->a, other->a, sizeof row->a) == 0 &&
         memcmp(row->b, other->b, sizeof row->b) == 0 &&
         memcmp(row->c, other->c, sizeof row->c) == 0 &&
         memcmp(row->number, other->number, sizeof row->number) == 0;
}

/* The row of the program, without its gradients. */
static const char *add_row(struct pen_pointwise_table *table, const struct pen_steps_list *program,
                           uint32_t *index) {
  struct registers r = {.last_use = pen_new(program->count, sizeof *r.last_use),
                        .of_step = pen_new(program->count, sizeof *r.of_step)};
  struct pen_pointwise row;
  if (program->count > PEN_STEPS_MAX)
    return pen_text("the gradient of an operand has %u steps, more than %d", program->count,
                    PEN_STEPS_MAX);
  if (!assign_registers(program, &r))
    return pen_text("a gradient needs more than %d results at once", PEN_STEP_REGISTERS_MAX);
  fill_row(program, &r, &row);
  for (*index = 0; *index < table->count; ++*index)
    if (is_same(&table->row[*index], &row)) return NULL;
  PEN_RESERVE(table->row, table->count + 1);
  PEN_RESERVE(table->place, table->count + 1);
  table->row[table->count++] = row;
  return NULL;
}

const char *pen_pointwise_add(struct pen_pointwise_table *table,
                              const struct pen_steps_list *program, uint32_t *row) {
  const char *wrong = add_row(table, program, row);
  for (uint32_t k = 0; k < PEN_STEP_GRADIENT && !wrong; k++) {
    uint32_t gradient;
    if (!pen_steps_read(program, k) || table->row[*row].gradient[k] != PEN_NONE) continue;
    const struct pen_steps_list steps = pen_steps_differentiate(program, k);
    wrong = add_row(table, &steps, &gradient);
    if (!wrong) table->row[*row].gradient[k] = gradient;
    pen_free(steps.step);
  }
  return wrong;
}
