/* lives.h: which bytes of a rank's arena are in use at which row, read off a finished plan: for
 * pictures of memory. */
#ifndef PEN_LIVES_H
#define PEN_LIVES_H

#include "gen/schedule/order.h"
#include "runtime/plan/plan.h"

/* One block of one stage and microbatch: in use from row `first` to row `last`, both included. */
struct pen_buffer_life {
  uint8_t base; /* enum pen_base, of the stage that makes it; of a message, of the stage that reads
                   it */
  uint16_t stage;
  uint32_t microbatch;
  uint32_t first, last;
  uint64_t offset, bytes; /* in the arena */
};

/* All blocks of one rank in the order of their first rows; weights and what else persists are not
 * among them. */
struct pen_live_buffers {
  struct pen_buffer_life *life;
  size_t count;
  uint64_t *in_use; /* [row]: bytes of the blocks that are in use at it, aligned to nothing */
};

/* A message is in use from its RECV to its last reader, an output to its SEND or, on the same rank,
 * to the last reader too; what F saves, from F to I or W; scratch for its row alone. Linear in rows
 * and ops. */
struct pen_live_buffers pen_live_buffers_of(const struct pen_plan *plan,
                                            const struct pen_profile *profile, uint32_t rank);

/* When each row of a rank starts and ends [row]: compute rows as simulated; the others, which the
 * simulator does not know, stand at the end of the compute row before. `order` and `timing` are of
 * the same profile. */
struct pen_action_times {
  double *start, *end;
};
struct pen_action_times pen_action_times_of(const struct pen_rank_program *program,
                                            const struct pen_compute *action, uint32_t count,
                                            const double *start, const double *end);

/* "saved_i" and so on. */
const char *pen_base_text(int base);

#endif
