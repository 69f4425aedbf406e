/* two_ranks.c: plans that are made at run time (see two_ranks.h). */
#include "runtime/commands/two_ranks.h"

struct pen_plan pen_timed_plan(int transport, uint32_t ranks, uint32_t tensor_ranks) {
  return (struct pen_plan){.transport = (uint8_t)transport,
                           .device = PEN_DEVICE_CPU,
                           .rank_count = ranks,
                           .replica_count = 1,
                           .tensor_ranks = tensor_ranks,
                           .microbatch_count = 1,
                           .loss_count = 1,
                           .profile_count = 1};
}

void pen_two_ranks_make(struct pen_two_ranks *two, int transport, uint64_t bytes) {
  *two = (struct pen_two_ranks){
      .plan = pen_timed_plan(transport, 2, 1),
      .profile = {.channels = two->channels,
                  .messages = two->messages,
                  .channel_count = 2,
                  .message_count = 2},
  };
  two->plan.memory = two->memory;
  two->plan.profiles = &two->profile;
  for (uint32_t r = 0; r < 2; r++) {
    two->channels[r] = (struct pen_channel){.from_rank = r, .to_rank = 1 - r, .message_count = 1};
    two->messages[r] = (struct pen_message){.kind = r == 0 ? PEN_SEND_F : PEN_SEND_B,
                                            .stage = (uint16_t)r,
                                            .channel = r,
                                            .credit = PEN_NONE,
                                            .source_offset = bytes,
                                            .bytes = bytes};
    two->memory[r] = (struct pen_rank_memory){.arena_bytes = 2 * bytes, .receive_bytes = 2 * bytes};
  }
}

void pen_two_ranks_set_bytes(struct pen_two_ranks *two, uint64_t bytes) {
  two->messages[0].bytes = two->messages[1].bytes = bytes;
}
