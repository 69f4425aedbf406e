/* transport_plan.h: a plan with two ranks and a channel in each direction, the minimum for a
 * transport: for tests and benchmarks. */
#ifndef PEN_TRANSPORT_PLAN_H
#define PEN_TRANSPORT_PLAN_H

#include <stdint.h>

#include "runtime/comm/shared_control.h"
#include "runtime/plan/plan.h"
#include "runtime/comm/transport.h"

/* In a step MESSAGES messages go from rank 0 to rank 1, message m to slot m mod SLOTS, each with a
 * credit; then one returns. An arena has the slots, then what it sends. */
enum {
  MESSAGES = 16,
  SLOTS = 4,
  MESSAGE_BYTES = 4096,
  SOURCE_OFFSET = SLOTS * MESSAGE_BYTES,
  ARENA_BYTES = 2 * SOURCE_OFFSET,
  BACK = MESSAGES
};

struct two_ranks {
  struct pen_plan plan;
  struct pen_profile profile;
  struct pen_channel channels[2];
  struct pen_message messages[MESSAGES + 1];
  struct pen_rank_memory memory[2];
  struct pen_shared shared;
  struct pen_endpoint endpoint[2];
  struct pen_transport *transport[2];
};

/* Fills in the plan, for the transport shm. Then, after changes to the plan: maps the memory and
 * makes both endpoints. The whole arena is in the receive region, at one address in both ranks, so
 * that a data race detector sees both. */
void two_ranks_plan(struct two_ranks *two);
void two_ranks_share(struct two_ranks *two, uint64_t spin_ns);

/* Both, and opens both ends of the transport shm. */
void two_ranks_open(struct two_ranks *two, uint64_t spin_ns);

void two_ranks_close(struct two_ranks *two);

#endif
