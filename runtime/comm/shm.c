/* shm.c: the transport of ranks on the CPUs of one host: a send copies into the receiver's memory
 * and raises a counter.
 *
 * A channel has two counters. `arrivals` is raised by its sender: the n-th message of the profile's
 * step k has come when the count is k*message_count + n + 1. `credits` is raised by its receiver,
 * likewise. Messages are sent in their sequence, so that the counters need no names; the assertion
 * below checks that the plan keeps to it. A receiver that waits for a message of 64 to 512 KiB
 * takes in its parts while the sender copies the next ones, which shortens a hop by a tenth or
 * more. Nothing here depends on whether ranks are processes. */
#include "runtime/comm/shm.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/check.h"
#include "runtime/comm/bulk_copy.h"
#include "runtime/comm/transport_base.h"

/* A message up to this size is in the receiver's own caches after it was read. */
enum { OWNED_BYTES_MAX = 512 << 10, LINE_BYTES = 64 };
enum { SPINS_PER_CLOCK = 64 }; /* looks at what has come between two looks at the clock */

struct shm_transport {
  struct pen_transport base;
  struct pen_shared shared; /* as the profile sees it: its own channels */
  uint64_t run_step;        /* the step of the run that runs, from 0 */
  uint32_t ended_before;    /* collectives that this rank had ended when the step began */
  struct pen_bulk_copy
      bulk_copies[][PEN_BULK_SIZES]; /* [channel_count]: of the messages that this rank sends */
};

static struct shm_transport *shm_of(struct pen_transport *transport) {
  return (struct shm_transport *)transport;
}

static uint32_t counter_index(const struct pen_transport *transport,
                              const struct pen_message *message) {
  return pen_pipeline_index(transport->plan, transport->endpoint->global) *
             transport->shared->channel_stride +
         message->channel;
}

static struct pen_futex_counter *arrivals_of(const struct pen_transport *transport,
                                             const struct pen_message *message) {
  return &transport->shared->arrivals[counter_index(transport, message)];
}

static struct pen_futex_counter *credits_of(const struct pen_transport *transport,
                                            const struct pen_message *message) {
  return &transport->shared->credits[counter_index(transport, message)];
}

/* Whether the receiver takes the message in part by part while the sender copies it. */
static bool is_taken_in_parts(const struct pen_message *message) {
  return message->bytes >= PEN_BULK_BYTES_MIN && message->bytes <= OWNED_BYTES_MAX;
}

/* The receive region of a process. */
static unsigned char *region_of(const struct pen_transport *transport, uint32_t global) {
  return transport->shared->memory + transport->shared->receive_region_offset[global];
}

static void shm_begin_step(struct pen_transport *transport, uint64_t run_step) {
  shm_of(transport)->run_step = run_step;
  shm_of(transport)->ended_before =
      atomic_load_explicit(&transport->endpoint->self->exchanged.count, memory_order_relaxed);
}

static void shm_end_step(struct pen_transport *transport) { transport->profile_step++; }

/* What is there of a message that is taken in parts belongs to the one that was begun last; the
 * messages before it are there as a whole. */
static _Atomic uint32_t *begin_parts(struct pen_transport *transport,
                                     const struct pen_message *message, uint32_t number) {
  const struct pen_shared *shared = transport->shared;
  const uint32_t index = counter_index(transport, message);
  atomic_store_explicit(&shared->bytes_there[index].count, 0, memory_order_relaxed);
  pen_futex_counter_set(&shared->begun[index], number);
  return &shared->bytes_there[index].count;
}

static void copy_message(struct pen_transport *transport, unsigned char *target,
                         const struct pen_message *message, uint32_t number) {
  const unsigned char *source = transport->arena + message->source_offset;
  if (message->bytes >= PEN_BULK_BYTES_MIN) {
    pen_copy_bulk(
        &shm_of(transport)->bulk_copies[message->channel][pen_bulk_size_index(message->bytes)],
        target, source, message->bytes,
        is_taken_in_parts(message) ? begin_parts(transport, message, number) : NULL);
  } else {
    memcpy(target, source, message->bytes);
  }
}

static bool shm_send(struct pen_transport *transport, uint32_t index) {
  const struct pen_message *message = pen_transport_message(transport, index);
  const struct pen_channel *channel = pen_transport_channel(transport, index);
  const uint64_t step = transport->profile_step;
  const uint32_t to = pen_transport_process(transport, PEN_PIPELINE, channel->to_rank);
  if (message->credit != PEN_NONE) {
    const uint32_t needed = (uint32_t)(step * channel->credit_count + message->credit + 1);
    if (!pen_endpoint_wait(transport->endpoint, credits_of(transport, message), needed, to)) {
      return false;
    }
  }
  struct pen_futex_counter *arrivals = arrivals_of(transport, message);
  const uint32_t before = (uint32_t)(step * channel->message_count + message->sequence);
  pen_assert(atomic_load_explicit(&arrivals->count, memory_order_relaxed) == before);
  copy_message(transport, region_of(transport, to) + message->target_offset, message, before + 1);
  pen_futex_counter_increment(arrivals);
  return true;
}

static bool shm_receive(struct pen_transport *transport, uint32_t index, const uint32_t *sends,
                        uint32_t send_count) {
  (void)sends, (void)send_count; /* sends are done */
  const struct pen_message *message = pen_transport_message(transport, index);
  if (message->credit != PEN_NONE) {
    pen_futex_counter_increment(credits_of(transport, message));
  }
  return true;
}

/* Fetches what has arrived, and writes a byte of each cache line, with its own value. The lines are
 * then in this core's caches alone. If they were only read, the sender's core would hold them too,
 * and its next copy to the same place would wait for each line in turn until this core has dropped
 * it: three times as long a hop at 16 to 256 KiB, on Zen 4. Prefetches for writing do not help:
 * they leave a line that is shared as it is. */
static void own_lines(unsigned char *target, uint64_t bytes) {
  for (uint64_t at = 0; at < bytes; at += LINE_BYTES) {
    volatile unsigned char *line = target + at;
    *line = *line;
  }
}

/* Takes in the parts of a message that was begun, until all are there, or none came for as long as
 * a wait spins. Returns how many bytes it took. */
static uint64_t own_parts(struct pen_transport *transport, const struct pen_message *message,
                          uint32_t needed) {
  const _Atomic uint32_t *there =
      &transport->shared->bytes_there[counter_index(transport, message)].count;
  const struct pen_futex_counter *arrivals = arrivals_of(transport, message);
  unsigned char *target = transport->arena + message->target_offset;
  const uint64_t spin_ns = transport->shared->control->spin_ns;
  uint64_t taken = 0, last_ns = pen_now_ns();
  for (uint32_t spins = 1; taken < message->bytes; spins++) {
    const uint64_t known = atomic_load_explicit(there, memory_order_acquire),
                   bytes = known < message->bytes ? known : message->bytes;
    if (bytes > taken) {
      own_lines(target + taken, bytes - taken);
      taken = bytes;
      last_ns = pen_now_ns();
    } else if (spins % SPINS_PER_CLOCK == 0 &&
               (pen_futex_counter_reached(arrivals, needed) || pen_now_ns() - last_ns > spin_ns)) {
      break;
    }
    pen_relax();
  }
  return taken;
}

static bool shm_wait(struct pen_transport *transport, uint32_t index) {
  const struct pen_message *message = pen_transport_message(transport, index);
  const struct pen_channel *channel = pen_transport_channel(transport, index);
  const uint32_t from = pen_transport_process(transport, PEN_PIPELINE, channel->from_rank),
                 needed = (uint32_t)(transport->profile_step * channel->message_count +
                                     message->sequence + 1);
  struct pen_futex_counter *arrivals = arrivals_of(transport, message),
                           *begun = &transport->shared->begun[counter_index(transport, message)];
  uint64_t taken = 0;
  if (is_taken_in_parts(message) && !pen_futex_counter_reached(arrivals, needed)) {
    if (!pen_endpoint_wait(transport->endpoint, begun, needed, from)) {
      return false;
    }
    taken = own_parts(transport, message, needed);
  }
  const bool arrived = pen_endpoint_wait(transport->endpoint, arrivals, needed, from);
  if (arrived && message->bytes <= OWNED_BYTES_MAX) {
    own_lines(transport->arena + message->target_offset + taken, message->bytes - taken);
  }
  return arrived;
}

static bool shm_publish(struct pen_transport *transport) {
  pen_endpoint_publish(transport->endpoint, shm_of(transport)->run_step);
  return true;
}

static bool shm_gather(struct pen_transport *transport) {
  return pen_endpoint_gather(transport->endpoint, shm_of(transport)->run_step);
}

/* ---- collectives ---- */

/* Counts the collectives of a group that a process has ended, in all steps. */
static struct pen_futex_counter *ended_of(const struct pen_transport *transport, int group,
                                          uint32_t process) {
  struct pen_rank_state *state = &transport->shared->ranks[process];
  return group == PEN_TENSOR ? &state->tensor_exchanges : &state->exchanged;
}

/* All members run the same actions in each step, so that counts are equal where a step begins. They
 * wrap around like the counter. */
static bool shm_wait_group(struct pen_transport *transport, int group, uint32_t count) {
  const uint32_t self = pen_transport_self(transport),
                 needed = count == PEN_NONE
                              ? atomic_load_explicit(&ended_of(transport, group, self)->count,
                                                     memory_order_relaxed)
                              : shm_of(transport)->ended_before + count;
  bool going = true;
  for (uint32_t m = 0; m < pen_group_size(transport->plan, group) && going; m++) {
    const uint32_t member = pen_transport_process(transport, group, m);
    going = member == self || pen_endpoint_wait(transport->endpoint,
                                                ended_of(transport, group, member), needed, member);
  }
  return going;
}

static void shm_signal_group(struct pen_transport *transport, int group) {
  pen_futex_counter_increment(ended_of(transport, group, pen_transport_self(transport)));
}

static unsigned char *shm_member_arena(struct pen_transport *transport, int group,
                                       uint32_t member) {
  return region_of(transport, pen_transport_process(transport, group, member));
}

/* Each side copies what it receives. */
static void shm_sendrecv(struct pen_transport *transport, const struct pen_sendrecv *sendrecv) {
  memcpy(sendrecv->to,
         shm_member_arena(transport, sendrecv->group, sendrecv->member) + sendrecv->receive_offset,
         sendrecv->receive_bytes);
}

static const struct pen_transport_ops shm_ops = {
    .name = "shm",
    .export_handles = pen_transport_no_call,
    .connect = pen_transport_no_call,
    .begin_step = shm_begin_step,
    .send = shm_send,
    .receive = shm_receive,
    .wait = shm_wait,
    .publish = shm_publish,
    .gather = shm_gather,
    .end_step = shm_end_step,
    .wait_group = shm_wait_group,
    .signal_group = shm_signal_group,
    .member_arena = shm_member_arena,
    .group_begin = pen_transport_no_call,
    .sendrecv = shm_sendrecv,
    .group_end = pen_transport_no_call,
    .abort = pen_transport_no_call,
};

struct pen_transport *pen_shm_open(const struct pen_transport_config *config) {
  const uint32_t channel_count = config->profile->channel_count;
  struct shm_transport *made =
      pen_allocate(1, sizeof *made + channel_count * sizeof made->bulk_copies[0], "a transport");
  made->shared = pen_shared_of(config->endpoint->shared, config->endpoint->plan, config->profile);
  pen_transport_fill(&made->base, config);
  made->base.ops = &shm_ops;
  made->base.shared = &made->shared;
  return &made->base;
}
