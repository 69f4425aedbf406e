/* links.c: which ranks a rank exchanges messages with (see links.h). */
#include "runtime/comm/links.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/check.h"
#include "runtime/comm/step_timing.h"
#include "runtime/comm/transport_base.h"

static void mark_channel(struct pen_links *links, const struct pen_transport *transport,
                         const struct pen_channel *channel, bool near_local) {
  const uint32_t self = pen_transport_self(transport),
                 sender = pen_transport_process(transport, PEN_PIPELINE, channel->from_rank),
                 receiver = pen_transport_process(transport, PEN_PIPELINE, channel->to_rank);
  const uint32_t other = sender == self ? receiver : sender;
  if ((sender == self || receiver == self) &&
      !(near_local && pen_is_local(transport->shared, other))) {
    (sender == self ? links->to : links->from)[other] = true;
  }
}

struct pen_links pen_links_of(const struct pen_transport *transport, bool near_local) {
  const struct pen_plan *plan = transport->plan;
  const uint32_t count = pen_process_count(plan);
  struct pen_links links = {.to = calloc(count, sizeof *links.to),
                            .from = calloc(count, sizeof *links.from)};
  pen_check(links.to != NULL && links.from != NULL, "no memory for the connections of a rank");
  for (uint32_t p = 0; p < plan->profile_count; p++) {
    for (uint32_t c = 0; c < plan->profiles[p].channel_count; c++) {
      mark_channel(&links, transport, &plan->profiles[p].channels[c], near_local);
    }
  }
  return links;
}

void pen_links_free(struct pen_links *links) {
  free(links->to);
  free(links->from);
}

uint32_t pen_links_probe_bytes(const struct pen_plan *plan) {
  uint64_t bytes = PEN_PROBE_BYTES;
  for (uint32_t r = 0; r < plan->rank_count; r++) {
    const struct pen_rank_memory *memory = &plan->memory[r];
    const uint64_t most = memory->receive_bytes > 0 ? memory->receive_bytes : memory->arena_bytes;
    bytes = most < bytes ? most : bytes;
  }
  return (uint32_t)bytes;
}

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
