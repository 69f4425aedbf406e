/* pointwise_steps.h: programs of POINTWISE (kernels/steps.def) in single-assignment form. */
#ifndef PEN_POINTWISE_STEPS_H
#define PEN_POINTWISE_STEPS_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/ops.h"

/* Inputs are values: an operand of the op by its number, or PEN_STEP_OPERANDS and the number of an
 * earlier step. */
struct pen_program_step {
  uint8_t kind;      /* enum pen_step_kind */
  uint16_t input[3]; /* as many as the kind has */
  double number;     /* of CONST: an f32 */
};

/* The last step makes the result. */
struct pen_steps_list {
  struct pen_program_step *step;
  uint32_t count;
};

/* The kind of that name that a description may use; -1: there is none. */
int pen_step_find(const char *name);
const char *pen_step_name(int kind);
/* The names of all of them, for messages: "CONST, ADD, ...". */
const char *pen_step_names(void);
/* How many inputs a kind has; whether input k must be a number. */
uint32_t pen_step_inputs(int kind);
bool pen_step_needs_number(int kind, uint32_t k);

/* Whether a program reads an operand. */
bool pen_steps_read(const struct pen_steps_list *program, uint32_t operand);

#endif
