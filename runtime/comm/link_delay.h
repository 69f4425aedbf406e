/* link_delay.h: how long the messages of each sender take over a network, step by step. */
#ifndef PEN_LINK_DELAY_H
#define PEN_LINK_DELAY_H

#include <stdint.h>

#include "runtime/comm/endpoint.h"
#include "runtime/comm/step_timing.h"

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
