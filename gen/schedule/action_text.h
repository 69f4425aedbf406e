/* actions.h: the printer of design.md section 10's --print=actions; its reader stands in gen.h. */
#ifndef PEN_ACTIONS_H
#define PEN_ACTIONS_H

#include "gen/gen.h"

/* One line a rank: `RANK: 0F0 0SEND_F0 ...`, the kinds that actions.def marks as printed.
 * pen_actions_read() takes it back. */
void pen_actions_print(FILE *file, struct pen_action *const *action, const uint32_t *count,
                       uint32_t rank_count);

/* Reads `6RECV_F3` from *at on, up to a blank, '|' or the end of the text; sets kind, stage and
 * microbatch. False when it is none. */
bool pen_action_take(const char **at, struct pen_action *row);

#endif
