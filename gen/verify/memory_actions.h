/* memory_actions.h: what actions and messages do to the bytes of a rank's arena. */
#ifndef PEN_MEMORY_ACTIONS_H
#define PEN_MEMORY_ACTIONS_H

#include "gen/verify/memory_state.h"

/* Runs the action in progress: what it reads must be there, and what it writes replaces what was
 * there. */
bool pen_memory_run_action(struct pen_memory_state *m);
/* Puts the messages in flight that may arrive once so many actions are complete. */
void pen_memory_run_events(struct pen_memory_state *m, uint32_t actions_complete);
/* Iterates over the unsharded tensors of a stage that are placed at `address`: the bytes of the
 * n-th tensor from *n on; false: no more. */
bool pen_memory_next_unsharded(const struct pen_memory_state *m, uint32_t stage, uint64_t address,
                               uint32_t *n, uint64_t *first, uint64_t *past);

#endif
