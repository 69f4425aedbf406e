/* action_text.h: the name of an action in messages: `3F1`, `6RECV_F3`, `WAIT_NORM`. */
#ifndef PEN_RUNTIME_ACTION_TEXT_H
#define PEN_RUNTIME_ACTION_TEXT_H

#include <stddef.h>

#include "runtime/plan/plan.h"

/* The kind's text in actions.def. */
const char *pen_action_kind_text(unsigned kind);

/* Writes the action's name: its stage, kind and microbatch, as far as it has them. Returns text. */
char *pen_action_name(char *text, size_t bytes, const struct pen_action *action);

/* The same for the `lost` line, which names the actions of the schedule: a WAIT_F is written as its
 * RECV_F. */
char *pen_action_name_reported(char *text, size_t bytes, const struct pen_action *action);

#endif
