/* step_timing.h: how long a rank took in a step, for runtime/supervise/slow.h. It costs a rank two
 * reads of the clock for each wait that blocks and for each read of tokens. */
#ifndef PEN_STEP_TIMING_H
#define PEN_STEP_TIMING_H

#include <stdint.h>

/* Steps that are kept, and senders over a network whose delays are timed. */
enum { PEN_TIMED_STEPS = 8, PEN_TIMED_LINKS = 4 };

/* Times between hosts are counted modulo 2^32 units: their clocks may differ by any amount. */
enum { PEN_DELAY_UNIT_NS = 256 };
static inline uint32_t pen_delay_clock(uint64_t now_ns) {
  return (uint32_t)(now_ns / PEN_DELAY_UNIT_NS);
}

/* What a sender's writes to this rank took before the first step, as `delay` below: the least of
 * several. */
enum { PEN_PROBE_BYTES = 256 << 10 };
struct pen_link_probe {
  uint32_t bytes; /* at most PEN_PROBE_BYTES; 0: nothing was measured */
  uint32_t full;  /* of so many bytes */
  uint32_t empty; /* of none */
};

struct pen_step_timing {
  uint32_t step;         /* of the optimizer, from 1; 0: no step of training */
  float compute_s;       /* the step, without waits for other ranks and without data_s */
  float data_s;          /* to read the step's tokens */
  uint32_t link_samples; /* bit l: delay[l] is known */
  /* The median time of this step's messages of a sender (link_peers of shared_control.def), from
   * its clock when the send began to this rank's clock when it arrived, in PEN_DELAY_UNIT_NS: only
   * of those that arrived while this rank waited for some message. */
  uint32_t delay[PEN_TIMED_LINKS];
};

#endif
