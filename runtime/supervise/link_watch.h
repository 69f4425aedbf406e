/* link_watch.h: how long the messages of a link between hosts take, block by block, and whether
 * that is more than before although the clocks of the two hosts differ. */
#ifndef PEN_LINK_WATCH_H
#define PEN_LINK_WATCH_H

#include <stdint.h>

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

#endif
