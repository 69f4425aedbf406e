/* message_times.c: sends messages to and fro between two ranks (see message_times.h).
 *
 * A plan of two ranks that is made here has one message in each direction. In a round each rank
 * writes its message, sends it, and the other one waits for it and reads every cache line. The
 * clock is the same in both processes. Of the rounds of a size the lower quartile counts, since
 * another program may have a core meanwhile. */
#include "runtime/commands/message_times.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/check.h"
#include "runtime/base/child.h"
#include "runtime/base/futex_counter.h"
#include "runtime/comm/shared_control.h"
#include "runtime/comm/transport.h"

enum { ROUNDS = 200, WARM_ROUNDS = 50, LINE_BYTES = 64 };
#define BYTES_MAX (PEN_MESSAGE_BYTES_MIN << 2 * (PEN_MESSAGE_SIZES - 1))
static const uint64_t spin_ns = 100 * 1000;

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
};

static void make_plan(struct message_pair *pair, const char *transport) {
  *pair = (struct message_pair){
      .channels = {{.from_rank = 0, .to_rank = 1, .message_count = 1},
                   {.from_rank = 1, .to_rank = 0, .message_count = 1}},
      .plan = {.transport = transport,
               .device = "cpu",
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

static struct pen_transport *open_transport(struct message_pair *pair,
                                            struct pen_endpoint *endpoint, uint32_t rank) {
  unsigned char *arena = pair->shared.memory + pair->shared.receive_region_offset[rank];
  snprintf(pair->shared.address, sizeof pair->shared.address, "127.0.0.1");
  *endpoint = pen_endpoint_of(&pair->plan, &pair->shared, rank, arena);
  struct pen_transport *transport = pen_transport_open(
      &(struct pen_transport_config){.endpoint = endpoint, .profile = &pair->profile});
  if (transport->ops->export_handles != NULL) {
    transport->ops->export_handles(transport);
  }
  pen_endpoint_barrier(endpoint);
  if (transport->ops->connect != NULL) {
    transport->ops->connect(transport);
  }
  pen_endpoint_barrier(endpoint);
  return transport;
}

static void write_message(unsigned char *to, uint64_t bytes, uint64_t round) {
  memset(to, (int)(round & 0xff), bytes);
}

static void read_message(const unsigned char *from, uint64_t bytes) {
  unsigned sum = 0;
  for (uint64_t at = 0; at < bytes; at += LINE_BYTES) {
    sum += from[at];
  }
  __asm__ volatile("" : : "r"(sum));
}

/* The side of one rank. Rank 0 sends first. */
static void exchange(struct pen_transport *transport, uint32_t rank, uint64_t bytes,
                     struct round_times *times) {
  unsigned char *arena = transport->arena;
  for (uint32_t round = 0; round < ROUNDS + WARM_ROUNDS; round++) {
    for (uint32_t sender = 0; sender < 2; sender++) {
      if (sender == rank) {
        write_message(arena + BYTES_MAX, bytes, round);
        times->start_ns[sender][round] = pen_now_ns();
        transport->ops->send(transport, sender);
      } else {
        transport->ops->wait(transport, sender);
        read_message(arena, bytes);
        times->took_ns[2 * round + sender] = pen_now_ns() - times->start_ns[sender][round];
      }
    }
    transport->ops->end_step(transport);
  }
}

static int compare_lengths(const void *a, const void *b) {
  const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return (x > y) - (x < y);
}

/* Both ranks: rank 0 returns the milliseconds of each size. */
static void exchange_all(struct message_pair *pair, uint32_t rank, struct round_times *times,
                         double ms[PEN_MESSAGE_SIZES]) {
  struct pen_endpoint endpoint;
  struct pen_transport *transport = open_transport(pair, &endpoint, rank);
  for (uint32_t size = 0; size < PEN_MESSAGE_SIZES; size++) {
    const uint64_t bytes = PEN_MESSAGE_BYTES_MIN << 2 * size;
    pair->messages[0].bytes = pair->messages[1].bytes = bytes;
    exchange(transport, rank, bytes, times);
    pen_endpoint_barrier(&endpoint);
    if (rank == 0) {
      uint64_t *took_ns = times->took_ns + (size_t)2 * WARM_ROUNDS;
      qsort(took_ns, (size_t)2 * ROUNDS, sizeof *took_ns, compare_lengths);
      ms[size] = (double)took_ns[ROUNDS / 2] * 1e-6;
    }
    pen_endpoint_barrier(&endpoint);
  }
}

static pid_t start_rank(struct message_pair *pair, uint32_t rank,
                        const struct pen_busy_cores *cores, struct round_times *times,
                        double ms[PEN_MESSAGE_SIZES]) {
  const pid_t parent = getpid(), pid = fork();
  pen_check(pid >= 0, "cannot start a process");
  if (pid == 0) {
    pen_child_end_with(parent);
    if (cores->count > 1) {
      const struct pen_cores own = pen_binding_cores(&cores->binding, rank);
      pen_binding_apply(&own);
    }
    exchange_all(pair, rank, times, ms);
    _exit(0);
  }
  return pid;
}

void pen_message_times(const char *transport, const struct pen_busy_cores *cores,
                       double ms[PEN_MESSAGE_SIZES]) {
  static struct message_pair pair;
  pid_t pid[2];
  const size_t bytes = sizeof(struct round_times) + PEN_MESSAGE_SIZES * sizeof *ms;
  void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  pen_check(memory != MAP_FAILED, "no memory for measured times");
  struct round_times *times = memory;
  double *shared_ms = (double *)(times + 1);
  make_plan(&pair, transport);
  pen_shared_open(&pair.shared, &pair.plan);
  pair.shared.control->spin_ns = spin_ns;
  for (uint32_t r = 0; r < 2; r++) {
    pid[r] = start_rank(&pair, r, cores, times, shared_ms);
  }
  for (uint32_t r = 0; r < 2; r++) {
    int status = 0;
    pen_check(waitpid(pid[r], &status, 0) == pid[r], "lost a process");
    if (status != 0) { /* it has said why; the other one ends with this process */
      exit(WIFEXITED(status) ? WEXITSTATUS(status) : PEN_EXIT_LOST);
    }
  }
  memcpy(ms, shared_ms, PEN_MESSAGE_SIZES * sizeof *ms);
  pen_shared_close(&pair.shared);
  munmap(memory, bytes);
}
