/* start_state.h: from which states the ranks of a command can start, when ranks are started again
 * after a loss. The commands of all hosts agree on one (pen_control_tcp_agree()). */
#ifndef PEN_START_STATE_H
#define PEN_START_STATE_H

#include <stdint.h>

struct pen_start_state {
  uint64_t memory_steps[2]; /* steps whose states are in memory for all ranks; 0: none */
  uint64_t saved_step;      /* of the run's last checkpoint; 0: it has saved none */
  uint64_t restarts;        /* of the run so far */
};

/* Reduces `all` to what `other` has too: the steps in memory are those of both; a checkpoint, which
 * all hosts see, and the restarts are the most of either. */
void pen_start_state_merge(struct pen_start_state *all, const struct pen_start_state *other);

/* The newest of the steps in memory; 0: none. */
uint64_t pen_start_state_memory_step(const struct pen_start_state *state);

#endif
