/* message_times.c: sends messages to and fro between two ranks (see message_times.h).
 *
 * A plan of two ranks that is made here has one message in each direction. In a round each rank
 * writes its message, sends it, and the other one waits for it and reads every cache line. The
 * clock is the same in both processes. Of the rounds of a size the lower quartile counts, since
 * another program may have a core meanwhile. */
#include "runtime/commands/message_times.h"

#include <string.h>
#include <sys/mman.h>

#include "runtime/commands/timed_ranks.h"

enum { ROUNDS = 200, WARM_ROUNDS = 50 };
#define BYTES_MAX (PEN_MESSAGE_BYTES_MIN << 2 * (PEN_MESSAGE_SIZES - 1))

/* Two ranks, with message r from rank r to the other. An arena is the target, then the source. */
struct message_pair {
  struct pen_plan plan;
  struct pen_profile profile;
  struct pen_channel channels[2];
  struct pen_message messages[2];
  struct pen_rank_memory memory[2];
  struct pen_shared shared;
};

/* In memory that both ranks share. */
struct round_times {
  uint64_t start_ns[2][ROUNDS + WARM_ROUNDS], took_ns[2 * (ROUNDS + WARM_ROUNDS)];
  double ms[PEN_MESSAGE_SIZES];
};

struct message_run {
  struct message_pair *pair;
  struct round_times *times;
};

static void make_plan(struct message_pair *pair, int transport) {
  *pair = (struct message_pair){
      .channels = {{.from_rank = 0, .to_rank = 1, .message_count = 1},
                   {.from_rank = 1, .to_rank = 0, .message_count = 1}},
      .plan = {.transport = (uint8_t)transport,
               .device = PEN_DEVICE_CPU,
               .rank_count = 2,
               .replica_count = 1,
               .tensor_ranks = 1,
               .microbatch_count = 1,
               .loss_count = 1,
               .profile_count = 1},
      .profile = {.channel_count = 2, .message_count = 2},
  };
  for (uint32_t r = 0; r < 2; r++) {
    pair->messages[r] = (struct pen_message){.kind = r == 0 ? PEN_SEND_F : PEN_SEND_B,
                                             .stage = (uint16_t)r,
                                             .channel = r,
                                             .credit = PEN_NONE,
                                             .source_offset = BYTES_MAX};
    pair->memory[r] =
        (struct pen_rank_memory){.arena_bytes = 2 * BYTES_MAX, .receive_bytes = 2 * BYTES_MAX};
  }
  pair->profile.channels = pair->channels;
  pair->profile.messages = pair->messages;
  pair->plan.memory = pair->memory;
  pair->plan.profiles = &pair->profile;
}

/* The side of one rank. Rank 0 sends first. */
static void exchange(struct pen_transport *transport, uint32_t rank, uint64_t bytes,
                     struct round_times *times) {
  unsigned char *arena = transport->arena;
  for (uint32_t round = 0; round < ROUNDS + WARM_ROUNDS; round++) {
    for (uint32_t sender = 0; sender < 2; sender++) {
      if (sender == rank) {
        pen_timed_write(arena + BYTES_MAX, bytes, round);
        times->start_ns[sender][round] = pen_now_ns();
        transport->ops->send(transport, sender);
      } else {
        transport->ops->wait(transport, sender);
        pen_timed_read(arena, bytes);
        times->took_ns[2 * round + sender] = pen_now_ns() - times->start_ns[sender][round];
      }
    }
    transport->ops->end_step(transport);
  }
}

/* Both ranks; rank 0 sets the milliseconds of each size. */
static void exchange_all(void *context, uint32_t rank) {
  const struct message_run *run = context;
  struct message_pair *pair = run->pair;
  struct pen_endpoint endpoint;
  struct pen_transport *transport =
      pen_timed_transport_open(&pair->plan, &pair->shared, &endpoint, rank);
  for (uint32_t size = 0; size < PEN_MESSAGE_SIZES; size++) {
    const uint64_t bytes = PEN_MESSAGE_BYTES_MIN << 2 * size;
    pair->messages[0].bytes = pair->messages[1].bytes = bytes;
    exchange(transport, rank, bytes, run->times);
    pen_endpoint_barrier(&endpoint);
    if (rank == 0) {
      run->times->ms[size] =
          pen_timed_quartile_ms(run->times->took_ns + (size_t)2 * WARM_ROUNDS, (size_t)2 * ROUNDS);
    }
    pen_endpoint_barrier(&endpoint);
  }
}

void pen_message_times(int transport, const struct pen_busy_cores *cores,
                       double ms[PEN_MESSAGE_SIZES]) {
  static struct message_pair pair;
  struct message_run run = {.pair = &pair, .times = pen_timed_memory(sizeof(struct round_times))};
  make_plan(&pair, transport);
  pen_shared_open(&pair.shared, &pair.plan);
  pen_timed_ranks_run(2, cores, exchange_all, &run);
  memcpy(ms, run.times->ms, sizeof run.times->ms);
  pen_shared_close(&pair.shared);
  munmap(run.times, sizeof *run.times);
}
