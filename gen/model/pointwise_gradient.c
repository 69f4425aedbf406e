/* pointwise_gradient.c: the derivative of a program of POINTWISE by an operand, as a program.
 *
 * Reverse accumulation: the steps of the program, then, from its last step to its first, what each
 * adds to the gradients of its inputs, by the columns gradient_* of kernels/steps.def. Equal steps
 * are one. At the end steps that the result does not need are left out.
 *
 * Where the gradient of a step has come through a WHERE it is 0 for an element whose branch was not
 * chosen; then CHAIN multiplies it, so that a factor that is infinite or no number adds 0.
 * Elsewhere CHAIN is MUL. */
#include "gen/model/pointwise_gradient.h"

#include <stdlib.h>
#include <string.h>

#include "gen/base/arena.h"
#include "gen/base/error.h"

enum {
  NONE = UINT16_MAX,
  STACK_MAX = 16,
  STEPS_MAX = 1 << 11 /* before steps that nothing needs are left out */
};

static const char *const rules[PEN_STEP_KINDS][3] = {
#define PEN_STEP(kind, inputs, gradient_a, gradient_b, gradient_c, value, meaning) \
  {gradient_a, gradient_b, gradient_c},
#include "kernels/steps.def"
};

/* The program in the making, and of each of its values: */
struct derivation {
  struct pen_steps_list made;
  bool *depends;      /* on the operand */
  uint16_t *gradient; /* the value that has the sum so far; NONE: nothing yet */
  bool *is_chosen;    /* the sum so far came through a WHERE */
};

static uint16_t value_of(uint32_t step) { return (uint16_t)(PEN_STEP_OPERANDS + step); }

/* The value of a step, which is appended unless there is an equal one. */
static uint16_t append(struct derivation *d, struct pen_program_step step) {
  const uint32_t inputs = pen_step_inputs(step.kind);
  for (uint32_t s = 0; s < d->made.count; s++)
    if (d->made.step[s].kind == step.kind &&
        memcmp(d->made.step[s].input, step.input, inputs * sizeof *step.input) == 0 &&
        memcmp(&d->made.step[s].number, &step.number, sizeof step.number) == 0)
      return value_of(s);
  if (d->made.count == STEPS_MAX)
    pen_stop(PEN_EXIT_INTERNAL, "pointwise: a gradient of more than %d steps", STEPS_MAX);
  d->made.step[d->made.count] = step;
  return value_of(d->made.count++);
}

static uint16_t append_number(struct derivation *d, double number) {
  return append(d,
                (struct pen_program_step){.kind = PEN_STEP_CONST, .number = (double)(float)number});
}

static int kind_of(const char *name) {
  for (int kind = 0; kind < PEN_STEP_KINDS; kind++)
    if (strcmp(pen_step_name(kind), name) == 0) return kind;
  pen_stop(PEN_EXIT_INTERNAL, "steps.def: %s is no step", name);
}

/* The value of a word that has no inputs; NONE: it is a kind. */
static uint16_t leaf_of(struct derivation *d, const char *word, uint32_t forward) {
  const struct pen_program_step *step = &d->made.step[forward];
  char *end;
  if (strcmp(word, "d") == 0) return d->gradient[value_of(forward)];
  if (strcmp(word, "y") == 0) return value_of(forward);
  if (word[0] >= 'a' && word[0] <= 'c' && word[1] == 0) return step->input[word[0] - 'a'];
  const double number = strtod(word, &end);
  return *end == 0 ? append_number(d, number) : NONE;
}

/* Evaluates a rule for a step of the forward; *chooses: it ends with WHERE. */
static uint16_t evaluate(struct derivation *d, const char *rule, uint32_t forward, bool *chooses) {
  uint16_t stack[STACK_MAX];
  uint32_t depth = 0;
  int kind = PEN_STEP_COPY;
  for (const char *at = rule; *at; at += strspn(at, " ")) {
    char word[32] = {0};
    const size_t bytes = strcspn(at, " ");
    memcpy(word, at, bytes);
    at += bytes;
    uint16_t value = leaf_of(d, word, forward);
    if (value == NONE) {
      struct pen_program_step step = {0};
      kind = kind_of(word);
      if (kind == PEN_STEP_CHAIN && !d->is_chosen[value_of(forward)]) kind = PEN_STEP_MUL;
      step.kind = (uint8_t)kind;
      depth -= pen_step_inputs(kind);
      memcpy(step.input, stack + depth, pen_step_inputs(kind) * sizeof *stack);
      value = append(d, step);
    }
    stack[depth++] = value;
  }
  *chooses = kind == PEN_STEP_WHERE;
  return stack[0];
}

/* Adds what a step of the forward gives to the gradients of its inputs. */
static void apply_rules(struct derivation *d, uint32_t forward) {
  const struct pen_program_step step = d->made.step[forward];
  const uint16_t value = value_of(forward);
  for (uint32_t k = 0; k < pen_step_inputs(step.kind); k++) {
    const uint16_t input = step.input[k];
    bool chooses;
    if (d->gradient[value] == NONE || !d->depends[input] || !*rules[step.kind][k]) continue;
    const uint16_t given = evaluate(d, rules[step.kind][k], forward, &chooses),
                   before = d->gradient[input];
    d->gradient[input] =
        before == NONE
            ? given
            : append(d, (struct pen_program_step){.kind = PEN_STEP_ADD, .input = {before, given}});
    d->is_chosen[input] = d->is_chosen[input] || d->is_chosen[value] || chooses;
  }
}

/* Leaves out what the step `result` does not need; it becomes the last one. */
static void keep_needed(struct pen_steps_list *program, uint32_t result) {
  bool *needed = pen_new(program->count, sizeof *needed);
  uint16_t *place = pen_new(program->count, sizeof *place);
  uint32_t kept = 0;
  needed[result] = true;
  for (uint32_t s = result + 1; s-- > 0;)
    for (uint32_t k = 0; needed[s] && k < pen_step_inputs(program->step[s].kind); k++)
      if (program->step[s].input[k] >= PEN_STEP_OPERANDS)
        needed[program->step[s].input[k] - PEN_STEP_OPERANDS] = true;
  for (uint32_t s = 0; s <= result; s++) {
    struct pen_program_step *step = &program->step[s];
    if (!needed[s]) continue;
    for (uint32_t k = 0; k < pen_step_inputs(step->kind); k++)
      if (step->input[k] >= PEN_STEP_OPERANDS)
        step->input[k] = place[step->input[k] - PEN_STEP_OPERANDS];
    place[s] = value_of(kept);
    program->step[kept++] = *step;
  }
  program->count = kept;
  pen_free(needed);
  pen_free(place);
}

/* Which steps of the forward depend on the operand. */
static void mark_dependent(struct derivation *d, uint32_t operand) {
  d->depends[operand] = true;
  for (uint32_t s = 0; s < d->made.count; s++)
    for (uint32_t k = 0; k < pen_step_inputs(d->made.step[s].kind); k++)
      if (d->depends[d->made.step[s].input[k]]) d->depends[value_of(s)] = true;
}

struct pen_steps_list pen_steps_differentiate(const struct pen_steps_list *program,
                                              uint32_t operand) {
  const size_t values = PEN_STEP_OPERANDS + STEPS_MAX;
  struct derivation d = {.made = {pen_new(STEPS_MAX, sizeof *d.made.step), program->count},
                         .depends = pen_new(values, sizeof *d.depends),
                         .gradient = pen_new(values, sizeof *d.gradient),
                         .is_chosen = pen_new(values, sizeof *d.is_chosen)};
  memcpy(d.made.step, program->step, program->count * sizeof *program->step);
  for (size_t v = 0; v < values; v++) d.gradient[v] = NONE;
  mark_dependent(&d, operand);
  d.gradient[value_of(program->count - 1)] = PEN_STEP_GRADIENT;
  for (uint32_t s = program->count; s-- > 0;) apply_rules(&d, s);
  uint16_t result = d.gradient[operand] == NONE ? append_number(&d, 0) : d.gradient[operand];
  if (result < PEN_STEP_OPERANDS || d.made.step[result - PEN_STEP_OPERANDS].kind == PEN_STEP_CONST)
    result = append(&d, (struct pen_program_step){.kind = PEN_STEP_COPY, .input = {result}});
  keep_needed(&d.made, result - PEN_STEP_OPERANDS);
  pen_free(d.depends);
  pen_free(d.gradient);
  pen_free(d.is_chosen);
  return d.made;
}
