/* action.h: how a row is named wherever a person reads it: `3F1`, `6RECV_F3`, `WAIT_NORM`. */
#ifndef PEN_ACTION_TEXT_H
#define PEN_ACTION_TEXT_H

#include <stddef.h>

#include "runtime/plan/plan.h"

/* The kind's text in actions.def. */
const char *pen_action_kind_text(unsigned kind);

/* Writes the row's name; rows without a stage (NORM, PUBLISH, WAIT_NORM, UPDATE) are their kind
 * alone, those of a stage alone like `2WAIT_GRAD`. Returns text. */
char *pen_action_text(char *text, size_t bytes, const struct pen_action *action);

/* The same for the lost line, which speaks of the rows that a person knows: a WAIT_F is written as
 * its RECV_F. */
char *pen_action_text_known(char *text, size_t bytes, const struct pen_action *action);

#endif
