/* live_ranges.h: which bytes of a rank's arena are in use at which action, from a finished plan:
 * for charts of memory. */
#ifndef PEN_LIVE_RANGES_H
#define PEN_LIVE_RANGES_H

#include "gen/schedule/order.h"
#include "runtime/plan/plan.h"

/* One buffer of one stage and microbatch, in use from action `first` to action `last` inclusive. */
struct pen_live_buffer {
  uint8_t base; /* enum pen_base, of the stage that produces it; of a message, of the stage that
                   reads it */
  uint16_t stage;
  uint32_t microbatch;
  uint32_t first, last;
  uint64_t offset, bytes; /* in the arena */
};

/* All buffers of one rank in the order of their first actions, without the persistent part. */
struct pen_live_buffers {
  struct pen_live_buffer *range;
  size_t count;
  uint64_t *in_use; /* [action]: bytes of the live buffers, without alignment */
};

/* A message is live from its RECV to its last reader; an output to its SEND or, on the same rank,
 * to its last reader; what F saves from F to I or W; scratch for its action. Linear in actions and
 * ops. */
struct pen_live_buffers pen_live_buffers_of(const struct pen_plan *plan,
                                            const struct pen_profile *profile, uint32_t rank);

/* When each action of a rank starts and ends [action]: compute actions as simulated; the others,
 * which the simulator does not know, at the end of the compute action before. The actions and times
 * are those of the same profile. */
struct pen_action_times {
  double *start, *end;
};
struct pen_action_times pen_action_times_of(const struct pen_rank_program *program,
                                            const struct pen_compute *action, uint32_t count,
                                            const double *start, const double *end);

/* The name of a base: "saved_i". */
const char *pen_base_text(int base);

#endif
