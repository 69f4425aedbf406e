/* link_watch.c: the delays of a link (see link_watch.h).
 *
 * A delay goes from the sender's clock to the receiver's. The difference of the clocks is in the
 * delays of both directions, with opposite signs: not in their sum. */
#include "runtime/supervise/link_watch.h"

#include <math.h>

#include "runtime/comm/step_timing.h"

/* Two clocks that are adjusted by 500 ppm each, the most that adjtimex() allows. */
static const double clock_rate = 1e-3;

static const double least_delay_ns = 50e3; /* a message with less beyond the expected is not slow */

void pen_link_watch_add(struct pen_link_watch *link, uint32_t delay) {
  if (link->drift.seen == 0 && link->delay.count == 0) {
    link->first = delay;
  }
  pen_average_add(&link->delay, (int32_t)(delay - link->first));
}

void pen_link_watch_end_block(struct pen_link_watch *link, uint64_t now_ns) {
  if (link->delay.count > 0) {
    link->latest = link->delay.value;
    link->latest_ns = now_ns;
  }
}

void pen_link_watch_start_block(struct pen_link_watch *link) {
  link->delay = (struct pen_average){0};
}

/* How far the clocks may have drifted apart since the other direction's messages were timed. Those
 * that arrive while their receiver computes are not. */
static double clock_drift(const struct pen_link_watch *link, const struct pen_link_watch *back) {
  return clock_rate * (double)(link->latest_ns - back->latest_ns) / PEN_DELAY_UNIT_NS;
}

/* What lengthens one direction and shortens the other is a change of the clocks. */
double pen_link_watch_excess(const struct pen_link_watch *link, const struct pen_link_watch *back) {
  const double one = link->latest - link->drift.expected.value - clock_drift(link, back);
  return fmin(one, one + back->latest - back->drift.expected.value);
}

double pen_link_watch_value(const struct pen_link_watch *link, const struct pen_link_watch *back) {
  const double first = (int32_t)(link->first + back->first);
  const double expected = (first + link->drift.expected.value + back->drift.expected.value) / 2;
  const double excess = pen_link_watch_excess(link, back);
  return excess * PEN_DELAY_UNIT_NS < least_delay_ns || expected < 1 ? 1 : 1 + excess / expected;
}

double pen_link_watch_sum(const struct pen_link_watch *link, const struct pen_link_watch *back) {
  return (int32_t)(link->first + back->first) + link->latest + back->latest;
}
