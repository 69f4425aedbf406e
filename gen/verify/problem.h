/* problem.h: how a check reports what it finds. */
#ifndef PEN_VERIFY_PROBLEM_H
#define PEN_VERIFY_PROBLEM_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/plan/plan.h"

/* The first problem of a plan. */
struct pen_problem {
  char reason[200];
  uint32_t program; /* of POINTWISE, which the user has to change; PEN_NONE: the plan is wrong */
  uint32_t rank;    /* PEN_NONE: the plan as a whole */
  uint32_t action;  /* index into that rank's actions, or PEN_NONE */
};

/* Sets the problem and returns false. */
bool pen_problem_note(struct pen_problem *problem, uint32_t rank, uint32_t action,
                      const char *format, ...) __attribute__((format(printf, 4, 5)));

/* Writes an action into `text` as --print=actions does, `6RECV_F3`; returns text. */
const char *pen_problem_action(char text[32], const struct pen_action *action);

#endif
