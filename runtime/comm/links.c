/* links.c: which ranks a rank exchanges messages with (see links.h). */
#include "runtime/comm/links.h"

#include <stdlib.h>

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
