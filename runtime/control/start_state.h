/* start_state.h: from which state the ranks start, when they are started again after a loss: each
 * command offers what it has in memory, the one that serves (rendezvous.h) decides for all. */
#ifndef PEN_START_STATE_H
#define PEN_START_STATE_H

#include <stdbool.h>
#include <stdint.h>

enum { PEN_OFFERED_STEPS = 3 };

/* What a command can start from. Steps in no order; 0: none. */
struct pen_start_offer {
  uint32_t host;                        /* whose ranks it has, or, with another plan, had */
  uint32_t hosts;                       /* of the plan that its states are of, at least 1 */
  uint32_t plan;                        /* that plan: pen_plan_index() */
  uint32_t held;                        /* 1: it had ranks before the loss; 0: else `host` */
  uint64_t steps[PEN_OFFERED_STEPS];    /* whose states it has of its ranks */
  uint64_t mirrored[PEN_OFFERED_STEPS]; /* whose states it has of the ranks of the host before */
  uint64_t saved_step;                  /* of the run's last checkpoint; 0: it has saved none */
  uint64_t restarts;                    /* of the run so far */
  uint64_t failed_status;               /* not 0: it exits with this status */
};

struct pen_start_state {
  uint64_t memory_step; /* the newest step whose state is in memory for all ranks; 0: none */
  uint64_t saved_step, restarts;
  uint64_t failed_status; /* not 0: that of a command, of failed_host, with which all exit */
  uint64_t failed_host;
  uint64_t memory_plan; /* that the states in memory are of */
};

/* Whether a command has the states of a host's ranks: its own, or those of the host before. */
bool pen_start_offer_has(const struct pen_start_offer *offer, uint32_t host, uint64_t step);

/* Decides on the offers of all commands that have ranks, or had before the loss. */
struct pen_start_state pen_start_state_of(const struct pen_start_offer *offers, uint32_t count);

#endif
