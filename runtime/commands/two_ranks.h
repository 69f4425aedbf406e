/* two_ranks.h: plans that are made at run time, without weights and actions: for the times of
 * messages and exchanges, tools/bench and tests. */
#ifndef PEN_TWO_RANKS_H
#define PEN_TWO_RANKS_H

#include <stdint.h>

#include "runtime/comm/shared_control.h"
#include "runtime/plan/plan.h"

/* A plan of the CPU, with a transport of transports.def, without weights and actions, to which the
 * caller adds the memory of ranks and a profile. */
struct pen_plan pen_timed_plan(int transport, uint32_t ranks, uint32_t tensor_ranks);

/* Two ranks, with message r from rank r to the other, without credits: the least for a transport.
 * An arena is the target, then the source. */
struct pen_two_ranks {
  struct pen_plan plan;
  struct pen_profile profile;
  struct pen_channel channels[2];
  struct pen_message messages[2];
  struct pen_rank_memory memory[2];
  struct pen_shared shared; /* pen_timed_shared_open() opens it */
};

/* Fills in all but `shared`, for messages of at most so many bytes. */
void pen_two_ranks_make(struct pen_two_ranks *two, int transport, uint64_t bytes);
void pen_two_ranks_set_bytes(struct pen_two_ranks *two, uint64_t bytes);

#endif
