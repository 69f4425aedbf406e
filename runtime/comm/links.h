/* links.h: the ranks with which a rank exchanges messages over a network, and how long those of
 * each sender take, step by step. */
#ifndef PEN_LINKS_H
#define PEN_LINKS_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/comm/transport.h"

/* By global rank: whether messages of some profile go there, and come from there. */
struct pen_links {
  bool *to, *from;
};

/* `near_local`: the ranks of this command are reached by shared memory. Allocates. */
struct pen_links pen_links_of(const struct pen_transport *transport, bool near_local);
void pen_links_free(struct pen_links *links);

/* What links are measured with: so many bytes that every rank has, and that its receive slots hold
 * if it has any. */
uint32_t pen_links_probe_bytes(const struct pen_plan *plan);

enum { PEN_LINK_SAMPLES = 32 }; /* of a link in a step; further ones are not counted */

struct pen_link_delays {
  uint8_t *link_of_counter; /* PEN_TIMED_LINKS: none */
  uint32_t counter_count;
  uint32_t link_count;
  uint32_t sample_count[PEN_TIMED_LINKS];
  uint32_t samples[PEN_TIMED_LINKS][PEN_LINK_SAMPLES];
};

/* Allocates. */
struct pen_link_delays *pen_link_delays_open(uint32_t counter_count);

/* Before the first barrier: messages of the rank `from` raise the counter. Publishes the sender
 * among the endpoint's link_peers; senders beyond PEN_TIMED_LINKS are left out. */
void pen_link_delays_add_counter(struct pen_link_delays *delays, struct pen_endpoint *endpoint,
                                 uint32_t counter, uint32_t from);

/* A message that raises the counter has arrived. */
void pen_link_delays_arrived(struct pen_link_delays *delays, uint32_t counter, uint32_t delay);

/* At a step's end: writes the medians and forgets the samples. */
void pen_link_delays_end_step(struct pen_link_delays *delays, struct pen_step_timing *timing);

#endif
