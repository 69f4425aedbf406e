/* described_pointwise.c: the operands and the program of a described POINTWISE (see
 * described_pointwise.h).
 *
 * A description has at most four operands, in any order; the row of kernels/ops.def has a place for
 * whole ones, rows and columns each. In the description's program they are 0 to 3, and step n is
 * 4 + n. */
#include "gen/families/described_pointwise.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "gen/base/arena.h"
#include "gen/model/pointwise.h"

enum { WHOLE = 0, ROW = 4, COLUMN = 6, COLUMNS_PAST = 8, FIRST_STEP = PEN_POINTWISE_OPERANDS };

/* ---- operands ---- */

const char *pen_pointwise_places(const struct pen_described_op *op,
                                 uint8_t place[PEN_POINTWISE_OPERANDS]) {
  uint8_t whole = WHOLE, row = ROW;
  if (op->operand_count > PEN_POINTWISE_OPERANDS)
    return pen_text("it has at most %d operands, not %zu", PEN_POINTWISE_OPERANDS,
                    op->operand_count);
  for (size_t i = 0; i < op->operand_count; i++)
    if (op->operand[i]) place[i] = *op->operand[i] == '.' ? row++ : whole++;
  if (row > COLUMN) return "it has at most 2 weights";
  return whole == WHOLE ? "one operand at least is a value" : NULL;
}

/* The elements of an operand for each token; of a weight or none 0. */
static uint64_t width_of(const struct pen_kind *kind, const struct pen_kind_operand *operand) {
  if (operand->source == PEN_OPERAND_INPUT) return kind->description->input[operand->input].width;
  return operand->source == PEN_OPERAND_VALUE ? kind->value[operand->value].width : 0;
}

/* Moves values of one element for each token, beside wider ones, to the columns. */
static const char *find_columns(const struct pen_kind *kind, const struct pen_kind_op *op,
                                uint8_t place[PEN_POINTWISE_OPERANDS]) {
  uint8_t whole = WHOLE, column = COLUMN;
  uint64_t widest = 1;
  for (int k = WHOLE; k < ROW; k++)
    if (width_of(kind, &op->operand[k]) > widest) widest = width_of(kind, &op->operand[k]);
  for (size_t i = 0; i < op->from->operand_count; i++) {
    if (!op->from->operand[i] || place[i] >= ROW) continue;
    const bool is_column = widest > 1 && width_of(kind, &op->operand[place[i]]) == 1;
    place[i] = is_column ? column++ : whole++;
  }
  return column > COLUMNS_PAST
             ? "it has at most 2 values of one element for each token, beside wider ones"
             : NULL;
}

/* ---- the program ---- */

/* The value of an argument, by the description's numbers; UINT16_MAX: it is none. */
static uint16_t input_of(const struct pen_described_op *op, const uint8_t *place, size_t step,
                         double argument) {
  if (!(argument >= 0 && argument < (double)(FIRST_STEP + step)) || argument != floor(argument))
    return UINT16_MAX;
  const size_t n = (size_t)argument;
  if (n >= FIRST_STEP) return (uint16_t)(PEN_STEP_OPERANDS + n - FIRST_STEP);
  return n < op->operand_count && op->operand[n] ? place[n] : UINT16_MAX;
}

static const char *read_number(const struct pen_described_step *from,
                               struct pen_program_step *step) {
  if (from->count != 1 || !(fabs(from->argument[0]) <= (double)FLT_MAX))
    return "CONST has one number, of an f32";
  step->number = (double)(float)from->argument[0];
  return NULL;
}

static const char *read_step(const struct pen_described_op *op, const uint8_t *place, size_t index,
                             struct pen_program_step *steps) {
  const struct pen_described_step *from = &op->step[index];
  struct pen_program_step *step = &steps[index];
  const int kind = pen_step_find(from->name);
  if (kind < 0)
    return pen_text("%s: there is no such step; the steps are %s", from->name, pen_step_names());
  step->kind = (uint8_t)kind;
  if (kind == PEN_STEP_CONST) return read_number(from, step);
  if (from->count != pen_step_inputs(kind))
    return pen_text("%s has %u inputs, not %zu", from->name, pen_step_inputs(kind), from->count);
  for (uint32_t k = 0; k < from->count; k++) {
    const uint16_t input = input_of(op, place, index, from->argument[k]);
    if (input == UINT16_MAX)
      return pen_text(
          "%s: input %.17g: one of the operands, which are 0 to %d, or an earlier "
          "step; the first is %d",
          from->name, from->argument[k], FIRST_STEP - 1, FIRST_STEP);
    if (pen_step_needs_number(kind, k) &&
        (input < PEN_STEP_OPERANDS || steps[input - PEN_STEP_OPERANDS].kind != PEN_STEP_CONST))
      return pen_text("%s: input %.17g: a step CONST", from->name, from->argument[k]);
    step->input[k] = input;
  }
  return NULL;
}

/* Each operand and each step is read, but for the last step, which is no number. */
static const char *check_reads(const struct pen_described_op *op, const uint8_t *place,
                               const struct pen_steps_list *program) {
  for (size_t i = 0; i < op->operand_count; i++)
    if (op->operand[i] && !pen_steps_read(program, place[i]))
      return pen_text("program: no step reads operand %zu, %s", i, op->operand[i]);
  for (uint32_t s = 0; s + 1 < program->count; s++)
    if (!pen_steps_read(program, PEN_STEP_OPERANDS + s))
      return pen_text("program[%u], %s: no step reads it", s, op->step[s].name);
  return program->step[program->count - 1].kind == PEN_STEP_CONST
             ? "program: the last step is the result, no CONST"
             : NULL;
}

static const char *add_program(const struct pen_kind *kind, struct pen_kind_op *op,
                               const uint8_t *place) {
  struct pen_steps_list program = {pen_new(op->from->step_count, sizeof *program.step),
                                   (uint32_t)op->from->step_count};
  const char *wrong = NULL;
  for (size_t s = 0; s < program.count && !wrong; s++) {
    wrong = read_step(op->from, place, s, program.step);
    if (wrong) return pen_text("program[%zu]: %s", s, wrong);
  }
  wrong = check_reads(op->from, place, &program);
  if (!wrong) wrong = pen_pointwise_add(*kind->description->pointwise, &program, &op->program);
  pen_free(program.step);
  if (wrong) return wrong;
  struct pen_pointwise_place *at = &(*kind->description->pointwise)->place[op->program];
  if (!at->op) *at = (struct pen_pointwise_place){kind->from, op->from};
  return NULL;
}

const char *pen_pointwise_resolve(const struct pen_kind *kind, struct pen_kind_op *op) {
  uint8_t before[PEN_POINTWISE_OPERANDS] = {0}, place[PEN_POINTWISE_OPERANDS];
  struct pen_kind_operand operand[PEN_OPERANDS_MAX] = {{0}};
  if (op->from->step_count == 0) return NULL; /* the attribute is missing, or no list */
  pen_pointwise_places(op->from, before);
  memcpy(place, before, sizeof place);
  const char *wrong = find_columns(kind, op, place);
  if (wrong) return wrong;
  for (size_t i = 0; i < op->from->operand_count; i++)
    if (op->from->operand[i]) operand[place[i]] = op->operand[before[i]];
  memcpy(op->operand, operand, sizeof operand);
  return add_program(kind, op, place);
}
