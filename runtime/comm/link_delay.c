/* link_delay.c: the delays of messages (see link_delay.h). */
#include "runtime/comm/link_delay.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/check.h"

struct pen_link_delays *pen_link_delays_open(uint32_t counter_count) {
  struct pen_link_delays *delays = calloc(1, sizeof *delays);
  pen_check(delays != NULL, "no memory for a transport");
  delays->counter_count = counter_count;
  delays->link_of_counter = malloc(counter_count + 1u);
  pen_check(delays->link_of_counter != NULL, "no memory for a transport");
  memset(delays->link_of_counter, PEN_TIMED_LINKS, counter_count + 1u);
  return delays;
}

void pen_link_delays_add_counter(struct pen_link_delays *delays, struct pen_endpoint *endpoint,
                                 uint32_t counter, uint32_t from) {
  uint32_t *peers = endpoint->self->link_peers;
  uint32_t link = 0;
  while (link < delays->link_count && peers[link] != from + 1) {
    link++;
  }
  if (link < PEN_TIMED_LINKS) {
    delays->link_count = link == delays->link_count ? link + 1 : delays->link_count;
    peers[link] = from + 1;
    delays->link_of_counter[counter] = (uint8_t)link;
  }
}

void pen_link_delays_arrived(struct pen_link_delays *delays, uint32_t counter, uint32_t delay) {
  const uint32_t link =
      counter < delays->counter_count ? delays->link_of_counter[counter] : PEN_TIMED_LINKS;
  if (link < PEN_TIMED_LINKS && delays->sample_count[link] < PEN_LINK_SAMPLES) {
    delays->samples[link][delays->sample_count[link]++] = delay;
  }
}

/* Delays of one step differ by less than half of what 32 bits hold. qsort() may allocate. */
static void sort_samples(uint32_t *samples, uint32_t count) {
  for (uint32_t i = 1; i < count; i++) {
    const uint32_t sample = samples[i];
    uint32_t at = i;
    for (; at > 0 && (int32_t)(samples[at - 1] - sample) > 0; at--) {
      samples[at] = samples[at - 1];
    }
    samples[at] = sample;
  }
}

void pen_link_delays_end_step(struct pen_link_delays *delays, struct pen_step_timing *timing) {
  timing->link_samples = 0;
  for (uint32_t l = 0; l < delays->link_count; l++) {
    const uint32_t count = delays->sample_count[l];
    if (count > 0) {
      sort_samples(delays->samples[l], count);
      timing->delay[l] = delays->samples[l][(count - 1) / 2];
      timing->link_samples |= 1u << l;
      delays->sample_count[l] = 0;
    }
  }
}
