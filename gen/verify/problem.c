/* problem.c: the text of a problem. */
#include "gen/verify/problem.h"

#include <stdarg.h>
#include <stdio.h>

bool pen_problem_note(struct pen_problem *problem, uint32_t rank, uint32_t action,
                      const char *format, ...) {
  va_list list;
  va_start(list, format);
  vsnprintf(problem->reason, sizeof problem->reason, format, list);
  va_end(list);
  problem->program = PEN_NONE;
  problem->rank = rank;
  problem->action = action;
  return false;
}

const char *pen_problem_action(char text[32], const struct pen_action *action) {
  static const char *const kinds[PEN_ACTION_KINDS] = {
#define PEN_ACTION(kind, text, printed, meaning) [PEN_##kind] = text,
#include "runtime/plan/actions.def"
  };
  const char *kind = kinds[action->kind];
  if (!pen_kind_has_stage(action->kind))
    snprintf(text, 32, "%s", kind);
  else if (!pen_kind_has_microbatch(action->kind))
    snprintf(text, 32, "%u%s", action->stage, kind);
  else
    snprintf(text, 32, "%u%s%u", action->stage, kind, action->microbatch);
  return text;
}
