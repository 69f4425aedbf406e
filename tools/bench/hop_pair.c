/* hop_pair.c: sends messages to and fro by a transport (see hop_pair.h). */
#define _GNU_SOURCE
#include "tools/bench/hop_pair.h"

#include <stdio.h>
#include <string.h>

#include "tools/bench/hop_sizes.h"

void hop_use_one_message(struct two_ranks *two, uint64_t bytes) {
  two->channels[0].message_count = 1;
  two->channels[0].credit_count = 0;
  two->messages[0].credit = PEN_NONE;
  two->messages[0].source_offset = two->messages[BACK].source_offset = bytes;
  for (uint32_t r = 0; r < 2; r++) {
    two->memory[r].arena_bytes = two->memory[r].receive_bytes = 2 * bytes;
  }
}

void hop_set_bytes(struct two_ranks *two, uint64_t bytes) {
  two->messages[0].bytes = two->messages[BACK].bytes = bytes;
}

struct pen_transport *hop_open_end(struct two_ranks *two, uint32_t r, const char *address) {
  struct pen_endpoint *endpoint = &two->endpoint[r];
  if (address != NULL) {
    snprintf(two->shared.address, sizeof two->shared.address, "%s", address);
  }
  memset(endpoint->arena + HOP_BYTES_MAX, 1, HOP_BYTES_MAX);
  struct pen_transport *end = pen_transport_open(
      &(struct pen_transport_config){.endpoint = endpoint, .profile = &two->profile});
  if (end->ops->export_handles != NULL) {
    end->ops->export_handles(end);
  }
  pen_endpoint_barrier(endpoint);
  if (end->ops->connect != NULL) {
    end->ops->connect(end);
  }
  pen_endpoint_barrier(endpoint);
  return end;
}

void hop_echo(struct pen_transport *end, uint64_t rounds, uint64_t bytes) {
  for (uint64_t k = 0; k < rounds; k++) {
    end->ops->wait(end, 0);
    hop_read(end->arena, bytes);
    end->ops->send(end, BACK);
    end->ops->end_step(end);
  }
}

void hop_call(struct pen_transport *end, uint64_t warm, uint64_t rounds, uint64_t bytes,
              uint64_t *times_ns) {
  for (uint64_t k = 0; k < rounds + warm; k++) {
    const uint64_t start_ns = hop_now_ns();
    end->ops->send(end, 0);
    end->ops->wait(end, BACK);
    hop_read(end->arena, bytes);
    end->ops->end_step(end);
    if (k >= warm) {
      times_ns[k - warm] = hop_now_ns() - start_ns;
    }
  }
}
