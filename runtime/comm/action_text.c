/* action_text.c: the names of actions (see action_text.h). */
#include "runtime/comm/action_text.h"

#include <stdio.h>

#include "runtime/base/check.h"

static const char *const kind_text[] = {
#define PEN_ACTION(kind, text, printed, meaning) [PEN_##kind] = text,
#include "runtime/plan/actions.def"
};

/* The kind that the `lost` line names in place of a wait, which lowering adds to a receive. */
static const uint8_t receive_of[PEN_ACTION_KINDS] = {[PEN_WAIT_F] = PEN_RECV_F,
                                                     [PEN_WAIT_B] = PEN_RECV_B,
                                                     [PEN_WAIT_G] = PEN_RECV_G,
                                                     [PEN_WAIT_V] = PEN_RECV_V};

const char *pen_action_kind_text(unsigned kind) {
  pen_assert(kind < PEN_ACTION_KINDS);
  return kind_text[kind];
}

static char *write_name(char *text, size_t bytes, const struct pen_action *action, unsigned kind) {
  const char *name = pen_action_kind_text(kind);
  if (!pen_kind_has_stage((int)kind)) { /* an action at the end of the step */
    snprintf(text, bytes, "%s", name);
  } else if (!pen_kind_has_microbatch((int)kind)) {
    snprintf(text, bytes, "%u%s", (unsigned)action->stage, name);
  } else {
    snprintf(text, bytes, "%u%s%u", (unsigned)action->stage, name, action->microbatch);
  }
  return text;
}

char *pen_action_name(char *text, size_t bytes, const struct pen_action *action) {
  return write_name(text, bytes, action, action->kind);
}

char *pen_action_name_reported(char *text, size_t bytes, const struct pen_action *action) {
  pen_assert(action->kind < PEN_ACTION_KINDS);
  return write_name(text, bytes, action,
                    receive_of[action->kind] ? receive_of[action->kind] : action->kind);
}
