/* problem.h: how a check reports what it finds. */
#ifndef PEN_VERIFY_PROBLEM_H
#define PEN_VERIFY_PROBLEM_H

#include "gen/verify/verify.h"
#include "runtime/plan/plan.h"

/* Sets the problem and returns false. */
bool pen_problem_note(struct pen_problem *problem, uint32_t rank, uint32_t action,
                      const char *format, ...) __attribute__((format(printf, 4, 5)));

/* Writes an action into `text` as --print=actions does, `6RECV_F3`; returns text. */
const char *pen_problem_action(char text[32], const struct pen_action *action);

#endif
