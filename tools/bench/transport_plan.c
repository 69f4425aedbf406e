/* transport_plan.c: two ranks, connected by shared memory. */
#include "tools/bench/transport_plan.h"

#include <stdlib.h>

#include "runtime/comm/shm.h"

void two_ranks_plan(struct two_ranks *two) {
  const struct pen_rank_memory memory = {.arena_bytes = ARENA_BYTES, .receive_bytes = ARENA_BYTES};
  *two = (struct two_ranks){
      .channels =
          {{.from_rank = 0, .to_rank = 1, .message_count = MESSAGES, .credit_count = MESSAGES},
           {.from_rank = 1, .to_rank = 0, .message_count = 1}},
      .memory = {memory, memory},
  };
  for (uint32_t m = 0; m < MESSAGES; m++) {
    uint64_t target = (uint64_t)(m % SLOTS) * MESSAGE_BYTES;
    two->messages[m] = (struct pen_message){.kind = PEN_SEND_F,
                                            .microbatch = m,
                                            .sequence = m,
                                            .credit = m,
                                            .source_offset = SOURCE_OFFSET + target,
                                            .target_offset = target,
                                            .bytes = MESSAGE_BYTES};
  }
  two->messages[BACK] = (struct pen_message){.kind = PEN_SEND_B,
                                             .stage = 1,
                                             .channel = 1,
                                             .credit = PEN_NONE,
                                             .source_offset = SOURCE_OFFSET,
                                             .bytes = MESSAGE_BYTES};
  two->profile = (struct pen_profile){.channels = two->channels,
                                      .messages = two->messages,
                                      .channel_count = 2,
                                      .message_count = MESSAGES + 1};
  two->plan = (struct pen_plan){.transport = PEN_TRANSPORT_SHM,
                                .rank_count = 2,
                                .replica_count = 1,
                                .tensor_ranks = 1,
                                .weight_count = 3,
                                .microbatch_count = MESSAGES,
                                .loss_count = MESSAGES,
                                .memory = two->memory,
                                .profiles = &two->profile,
                                .profile_count = 1};
}

void two_ranks_share(struct two_ranks *two, uint64_t spin_ns) {
  pen_shared_open(&two->shared, &two->plan);
  two->shared.control->spin_ns = spin_ns;
  for (uint32_t r = 0; r < 2; r++) {
    unsigned char *arena = two->shared.memory + two->shared.receive_region_offset[r];
    two->endpoint[r] = pen_endpoint_of(&two->plan, &two->shared, r, arena);
  }
}

void two_ranks_open(struct two_ranks *two, uint64_t spin_ns) {
  two_ranks_plan(two);
  two_ranks_share(two, spin_ns);
  for (uint32_t r = 0; r < 2; r++) {
    two->transport[r] = pen_shm_open(
        &(struct pen_transport_config){.endpoint = &two->endpoint[r], .profile = &two->profile});
  }
}

void two_ranks_close(struct two_ranks *two) {
  free(two->transport[0]);
  free(two->transport[1]);
  pen_shared_close(&two->shared);
}
