/* link_watch.c: the delays of a link (see link_watch.h).
 *
 * A delay goes from the sender's clock to the receiver's. The difference of the clocks is in the
 * delays of both directions, with opposite signs: not in their sum. */
#include "runtime/supervise/link_watch.h"

#include <math.h>
#include <stdlib.h>

#include "runtime/comm/step_timing.h"

/* Two clocks that are adjusted by 500 ppm each, the most that adjtimex() allows. */
static const double clock_rate = 1e-3;

static const double least_delay_ns = 50e3; /* a message that loses less is not slow */

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

/* Links that are slow from the start of a run, which comparing with earlier steps
 * does not find.
 *
 * Before the first step each rank measures how long writes of each sender take to it, of no bytes
 * and of many (struct pen_link_probe). They are compared with those of the run's other links of the
 * same kind, between hosts or within one; the two directions between two ranks are links of their
 * own. What the bytes of one direction take is known, since the difference of the clocks is in both
 * writes; of the latency only the sum of both directions is. */

/* What a write takes on most links of a kind: its latency, and the bytes of the large one. */
struct typical {
  double latency, full; /* less than 0: no link is known */
};

/* The place of the link from `from` among those of the receiver `to`; PEN_TIMED_LINKS: none. */
static uint32_t place_of(const struct pen_run *run, uint32_t from, uint32_t to) {
  uint32_t l = 0;
  while (l < PEN_TIMED_LINKS && run->shared.ranks[to].link_peers[l] != from + 1) {
    l++;
  }
  return l;
}

static uint32_t sender_of(const struct pen_run *run, uint32_t to, uint32_t l) {
  return run->shared.ranks[to].link_peers[l] - 1;
}

static const struct pen_link_probe *probe_of(const struct pen_run *run, uint32_t from,
                                             uint32_t to) {
  const uint32_t l = place_of(run, from, to);
  return l < PEN_TIMED_LINKS ? &run->shared.ranks[to].link_probes[l] : NULL;
}

/* The mean bytes of the messages of each link. */
static void find_bytes(const struct pen_run *run, struct pen_link_start *starts) {
  const struct pen_profile *profile = run->profile;
  for (uint32_t m = 0; m < profile->message_count; m++) {
    const struct pen_message *message = &profile->messages[m];
    const struct pen_channel *channel = &profile->channels[message->channel];
    for (uint32_t to = 0; to < pen_process_count(run->plan); to++) {
      const uint32_t l =
          place_of(run, pen_group_process(run->plan, to, PEN_PIPELINE, channel->from_rank), to);
      if (l < PEN_TIMED_LINKS && pen_table_rank(run->plan, to) == channel->to_rank) {
        starts[to * PEN_TIMED_LINKS + l].message_bytes +=
            (double)message->bytes / channel->message_count;
      }
    }
  }
}

static void find_times(const struct pen_run *run, uint32_t to, uint32_t l,
                       struct pen_link_start *start) {
  const uint32_t from = sender_of(run, to, l);
  const struct pen_link_probe *probe = &run->shared.ranks[to].link_probes[l],
                              *back = probe_of(run, to, from);
  start->latency = start->full = -1;
  if (probe->bytes > 0 && back != NULL && back->bytes > 0) {
    start->latency = fmax(0, (int32_t)(probe->empty + back->empty) / 2.0);
    start->full = fmax(0, (int32_t)(probe->full - probe->empty));
  }
}

static bool is_between_hosts(const struct pen_run *run, uint32_t from, uint32_t to) {
  return pen_rank_host(run->plan, from) != pen_rank_host(run->plan, to);
}

static int compare_doubles(const void *one, const void *other) {
  const double a = *(const double *)one, b = *(const double *)other;
  return (a > b) - (a < b);
}

/* Of two the lower. */
static double median(double *values, uint32_t count) {
  qsort(values, count, sizeof *values, compare_doubles);
  return count == 0 ? -1 : values[(count - 1) / 2];
}

static struct typical find_typical(const struct pen_run *run, const struct pen_link_start *starts,
                                   bool between_hosts, double *scratch) {
  const uint32_t link_count = pen_process_count(run->plan) * PEN_TIMED_LINKS;
  double *latencies = scratch, *fulls = scratch + link_count;
  uint32_t count = 0;
  for (uint32_t i = 0; i < link_count; i++) {
    const uint32_t to = i / PEN_TIMED_LINKS, l = i % PEN_TIMED_LINKS;
    if (run->shared.ranks[to].link_peers[l] != 0 && starts[i].latency >= 0 &&
        is_between_hosts(run, sender_of(run, to, l), to) == between_hosts) {
      latencies[count] = starts[i].latency;
      fulls[count++] = starts[i].full;
    }
  }
  return (struct typical){.latency = median(latencies, count), .full = median(fulls, count)};
}

/* The part of the large write's bytes that a message of the link has. */
static double bytes_part(const struct pen_run *run, const struct pen_link_start *start, uint32_t to,
                         uint32_t l) {
  return start->message_bytes / run->shared.ranks[to].link_probes[l].bytes;
}

static void compare(const struct pen_run *run, uint32_t to, uint32_t l,
                    struct pen_link_start *starts, const struct typical *typical) {
  const uint32_t from = sender_of(run, to, l), back_l = place_of(run, to, from);
  struct pen_link_start *start = &starts[to * PEN_TIMED_LINKS + l];
  const struct pen_link_start *back = &starts[from * PEN_TIMED_LINKS + back_l];
  const double part = bytes_part(run, start, to, l),
               back_part = bytes_part(run, back, from, back_l);
  const double own = start->latency + start->full * part,
               expected = typical->latency + typical->full * part;
  if (start->message_bytes > 0) {
    start->excess = own - expected;
    start->ratio = own / fmax(expected, 1);
  }
  start->slow_sum = (own + back->latency + back->full * back_part + expected + typical->latency +
                     typical->full * back_part) /
                    2;
}

void pen_link_starts_find(const struct pen_run *run, struct pen_link_start *starts,
                          double *scratch) {
  const uint32_t link_count = pen_process_count(run->plan) * PEN_TIMED_LINKS;
  find_bytes(run, starts);
  for (uint32_t i = 0; i < link_count; i++) {
    if (run->shared.ranks[i / PEN_TIMED_LINKS].link_peers[i % PEN_TIMED_LINKS] != 0) {
      find_times(run, i / PEN_TIMED_LINKS, i % PEN_TIMED_LINKS, &starts[i]);
    }
  }
  const struct typical typical[2] = {find_typical(run, starts, false, scratch),
                                     find_typical(run, starts, true, scratch)};
  for (uint32_t i = 0; i < link_count; i++) {
    const uint32_t to = i / PEN_TIMED_LINKS, l = i % PEN_TIMED_LINKS;
    if (run->shared.ranks[to].link_peers[l] != 0 && starts[i].latency >= 0) {
      compare(run, to, l, starts, &typical[is_between_hosts(run, sender_of(run, to, l), to)]);
    }
  }
}

bool pen_link_start_is_slow(const struct pen_link_start *start, double least_excess_ns) {
  return start->ratio >= PEN_LINK_START_RATIO &&
         start->excess * PEN_DELAY_UNIT_NS >= fmax(least_excess_ns, least_delay_ns);
}
