/* shm.c: the transport of ranks on one host: a send is a copy into the receiver's memory and a
 * counter raised.
 *
 * A channel has two counters. `arrivals` is raised by its sender: the n-th message of step k has
 * come when the count is k*message_count + n + 1. `credits` is raised by its receiver, likewise.
 * Messages leave in their sequence, so that the counters need no names; the asserts below check
 * that the plan keeps to it. Nothing here knows whether the ends are processes. */
#include "runtime/comm/transport.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/check.h"

static const struct pen_channel *channel_of(const struct pen_transport *end,
                                            const struct pen_message *message) {
  return &end->profile->channels[message->channel];
}

/* Flags and windows of this replica's ranks. */
static struct pen_futex_counter *arrivals_of(const struct pen_transport *end,
                                             const struct pen_message *message) {
  return &end->shared->arrivals[end->replica * end->shared->channel_stride + message->channel];
}

static struct pen_futex_counter *credits_of(const struct pen_transport *end,
                                            const struct pen_message *message) {
  return &end->shared->credits[end->replica * end->shared->channel_stride + message->channel];
}

static uint32_t global_of(const struct pen_transport *end, uint32_t rank) {
  return end->replica * end->plan->rank_count + rank;
}

/* Waits for a flag that the rank with global rank `peer` raises; meanwhile says so, for whoever
 * asks why nothing moves. */
static bool await(struct pen_transport *end, struct pen_futex_counter *flag, uint32_t needed,
                  uint32_t peer) {
  if (__builtin_expect(pen_futex_counter_reached(flag, needed), 1)) {
    return true;
  }
  const struct pen_control *control = end->shared->control;
  atomic_store_explicit(&end->self->awaited_counter, pen_awaited_counter(end->shared, flag, needed),
                        memory_order_relaxed);
  atomic_store_explicit(&end->self->waits_for, peer + 1, memory_order_relaxed);
  bool reached = pen_futex_counter_wait(flag, needed, &control->abort_status, control->spin_ns);
  atomic_store_explicit(&end->self->waits_for, 0, memory_order_relaxed);
  atomic_store_explicit(&end->self->awaited_counter, 0, memory_order_relaxed);
  return reached;
}

static bool shm_send(struct pen_transport *end, const struct pen_message *message, uint64_t step) {
  const struct pen_channel *channel = channel_of(end, message);
  const struct pen_shared *shared = end->shared;
  if (message->credit != PEN_NONE) {
    uint32_t needed = (uint32_t)(step * channel->credit_count + message->credit + 1);
    if (!await(end, credits_of(end, message), needed, global_of(end, channel->to_rank))) {
      return false;
    }
  }
  struct pen_futex_counter *arrivals = arrivals_of(end, message);
  pen_assert(atomic_load_explicit(&arrivals->count, memory_order_relaxed) ==
             (uint32_t)(step * channel->message_count + message->sequence));
  unsigned char *window =
      shared->memory + shared->receive_region_offset[global_of(end, channel->to_rank)];
  memcpy(window + message->target_offset, end->arena + message->source_offset, message->bytes);
  pen_futex_counter_increment(arrivals);
  return true;
}

static void shm_credit(struct pen_transport *end, const struct pen_message *message) {
  if (message->credit != PEN_NONE) {
    pen_futex_counter_increment(credits_of(end, message));
  }
}

static bool shm_wait(struct pen_transport *end, const struct pen_message *message, uint64_t step) {
  const struct pen_channel *channel = channel_of(end, message);
  uint32_t needed = (uint32_t)(step * channel->message_count + message->sequence + 1);
  return await(end, arrivals_of(end, message), needed, global_of(end, channel->from_rank));
}

static double *shm_board(struct pen_transport *end, uint64_t step) {
  return end->shared->step_stats + step % PEN_STEP_STATS_DEPTH * end->shared->step_stats_count;
}

static void shm_publish(struct pen_transport *end, uint64_t step) {
  pen_assert(atomic_load_explicit(&end->self->published.count, memory_order_relaxed) ==
             (uint32_t)step);
  pen_futex_counter_increment(&end->self->published);
}

static bool shm_gather(struct pen_transport *end, uint64_t step) {
  for (uint32_t r = 0; r < end->shared->process_count; r++) {
    if (!await(end, &end->shared->ranks[r].published, (uint32_t)(step + 1), r)) {
      return false;
    }
  }
  return true;
}

static bool shm_gathered(struct pen_transport *end, uint64_t step) {
  bool all = true;
  for (uint32_t r = 0; r < end->shared->process_count && all; r++) {
    all = pen_futex_counter_reached(&end->shared->ranks[r].published, (uint32_t)(step + 1));
  }
  return all;
}

static void shm_logged(struct pen_transport *end) {
  pen_futex_counter_increment(&end->shared->control->logged);
}

static bool shm_board_free(struct pen_transport *end, uint64_t step) {
  return step < PEN_STEP_STATS_DEPTH ||
         await(end, &end->shared->control->logged, (uint32_t)(step - PEN_STEP_STATS_DEPTH + 1), 0);
}

static bool shm_begun(struct pen_transport *end, uint64_t step) {
  struct pen_futex_counter *begun = &end->shared->control->begun;
  if (end->global != 0) {
    return await(end, begun, (uint32_t)(step + 1), 0);
  }
  pen_futex_counter_increment(begun);
  return true;
}

/* Every replica runs the same rows in each step, so that counts are alike where a step begins. They
 * wrap around like the flag's. */
static bool shm_peers_reached(struct pen_transport *end, uint32_t count) {
  uint32_t needed = end->exchanged_before + count;
  for (uint32_t d = 0; d < end->plan->replica_count; d++) {
    uint32_t peer = d * end->plan->rank_count + end->rank;
    if (d != end->replica && !await(end, &end->shared->ranks[peer].exchanged, needed, peer)) {
      return false;
    }
  }
  return true;
}

static void shm_exchanged(struct pen_transport *end) {
  pen_futex_counter_increment(&end->self->exchanged);
}

static unsigned char *shm_peer_arena(struct pen_transport *end, uint32_t replica) {
  const struct pen_shared *shared = end->shared;
  return replica == end->replica
             ? end->arena
             : shared->memory +
                   shared->receive_region_offset[replica * end->plan->rank_count + end->rank];
}

/* Every rank raises its own flag and waits for all: the n-th barrier is passed when all flags stand
 * at n. */
static bool shm_barrier(struct pen_transport *end) {
  pen_futex_counter_increment(&end->self->arrived);
  uint32_t needed = atomic_load_explicit(&end->self->arrived.count, memory_order_relaxed);
  for (uint32_t r = 0; r < end->shared->process_count; r++) {
    if (!await(end, &end->shared->ranks[r].arrived, needed, r)) {
      return false;
    }
  }
  return true;
}

static void shm_close(struct pen_transport *end) { free(end); }

static const struct pen_transport_kind shm = {
    .name = "shm",
    .send = shm_send,
    .credit = shm_credit,
    .wait = shm_wait,
    .board = shm_board,
    .publish = shm_publish,
    .gather = shm_gather,
    .gathered = shm_gathered,
    .logged = shm_logged,
    .board_free = shm_board_free,
    .begun = shm_begun,
    .peers_reached = shm_peers_reached,
    .exchanged = shm_exchanged,
    .peer_arena = shm_peer_arena,
    .barrier = shm_barrier,
    .close = shm_close,
};

struct pen_transport *pen_shm_open(const struct pen_plan *plan, const struct pen_profile *profile,
                                   const struct pen_shared *shared, uint32_t global,
                                   unsigned char *arena) {
  struct pen_transport *end = malloc(sizeof *end);
  pen_check(end != NULL, "no memory for a transport");
  *end = (struct pen_transport){
      .kind = &shm,
      .plan = plan,
      .profile = profile,
      .own_shared = pen_shared_of(shared, plan, profile),
      .self = &shared->ranks[global],
      .arena = arena,
      .rank = global % plan->rank_count,
      .replica = global / plan->rank_count,
      .global = global,
  };
  end->shared = &end->own_shared;
  return end;
}

uint32_t pen_transport_agree(struct pen_transport *end, bool *aborted) {
  memcpy(end->self->digest, end->plan->digest, PEN_DIGEST_BYTES);
  *aborted = !end->kind->barrier(end);
  uint32_t other = PEN_NONE;
  for (uint32_t r = end->shared->process_count; r-- > 0 && !*aborted;) {
    if (memcmp(end->shared->ranks[r].digest, end->plan->digest, PEN_DIGEST_BYTES) != 0) {
      other = r;
    }
  }
  return other;
}
