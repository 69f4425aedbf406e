/* link_watch.h: how long the messages of a link between hosts take, block by block, and whether
 * that is more than before although the clocks of the two hosts differ. */
#ifndef PEN_LINK_WATCH_H
#define PEN_LINK_WATCH_H

#include <stdint.h>

#include "runtime/rank/run.h"
#include "runtime/supervise/drift.h"

/* Delays are in PEN_DELAY_UNIT_NS (runtime/comm/step_timing.h), relative to `first`. */
struct pen_link_watch {
  struct pen_drift drift;
  uint32_t first;           /* the first delay */
  struct pen_average delay; /* of the block so far */
  double latest;            /* of the last block that has messages, which ended at latest_ns */
  uint64_t latest_ns;       /* 0: none has */
};

/* A delay of this block. */
void pen_link_watch_add(struct pen_link_watch *link, uint32_t delay);

/* The block ended at now_ns. */
void pen_link_watch_end_block(struct pen_link_watch *link, uint64_t now_ns);

/* The next block begins. */
void pen_link_watch_start_block(struct pen_link_watch *link);

/* The following are of a link with messages in the block that ended, and of the other direction,
 * which has had some at any time. */

/* What a message takes beyond the expected. */
double pen_link_watch_excess(const struct pen_link_watch *link, const struct pen_link_watch *back);

/* The delay of a message over the expected one: at least 1. */
double pen_link_watch_value(const struct pen_link_watch *link, const struct pen_link_watch *back);

/* Of a message in each direction, together: the clocks do not matter. */
double pen_link_watch_sum(const struct pen_link_watch *link, const struct pen_link_watch *back);

/* Links that are slow from the start of a run, which comparing with earlier steps does not find.
 *
 * Before the first step each rank measures how long writes of each sender take to it, of no bytes
 * and of many (struct pen_link_probe). They are compared with those of the run's other links of the
 * same kind, between hosts or within one; the two directions between two ranks are links of their
 * own. What the bytes of one direction take is known, since the difference of the clocks is in both
 * writes; of the latency only the sum of both directions is. */
struct pen_link_start {
  double message_bytes; /* mean, of the run's first profile; 0: none */
  double latency, full; /* of a write, and what the bytes of the large one take beyond that, in
                           PEN_DELAY_UNIT_NS; less than 0: not known */
  double excess;        /* of a message's time beyond what it takes on the other links, likewise */
  double ratio;         /* of the two; 0: not known */
  /* What messages in both directions take together, when halfway between the other links and what
   * was measured here, in PEN_DELAY_UNIT_NS. */
  double slow_sum;
};

/* Of the links of each receiver (link_peers of control.def), after the ranks have published what
 * they measured. starts, all zero before: [processes * PEN_TIMED_LINKS]; scratch: twice as many. */
void pen_link_starts_find(const struct pen_run *run, struct pen_link_start *starts,
                          double *scratch);

/* Whether messages take at least PEN_LINK_START_RATIO times as long as on other links, and lose at
 * least so much. */
#define PEN_LINK_START_RATIO 2.5
bool pen_link_start_is_slow(const struct pen_link_start *start, double least_excess_ns);

#endif
