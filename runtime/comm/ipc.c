/* ipc.c: the transport between ranks of one host, each with an arena on a GPU: on one GPU, or on
 * several that reach each other's memory.
 *
 * Every rank maps the arenas that it writes to (CUDA IPC; the handles go through shared_control.h).
 * A message is a copy to its target offset and a signal of a semaphore: the flags of the device
 * control block (plan.h), in the arena of the rank that waits. A semaphore is 0 or 1: the stream
 * that waits for 1 sets it to 0 again, so that each step does the same and can be a graph. No
 * kernel spins: streams write and wait for semaphores themselves (kernels/device.h).
 *
 *     compute stream  ... computes X | ready --+ ................ wait_sent | overwrites X
 *     send stream                              +-> [credit = 1, := 0] copy X | arrival := 1 | sent
 *
 *     receiver's send stream     ... credit := 1 (if any) | ...
 *     receiver's compute stream  ... [arrival = 1, := 0] computes with X
 *
 * Where steps are serial (runtime/device/graph.h), the send stream is the compute stream: each
 * action is complete before the next. Waits of one action are one call of the device (take).
 *
 * One send stream a rank: messages, credits and statistics leave in the order of the rank's
 * actions. A rank that has received something of an action thus knows that the messages of the
 * actions before it are sent, too, on which the proof of targets without a credit rests
 * (gen/verify/memory.c). Nothing waits longer than where each action is complete before the next
 * (shm.c), hence there is no deadlock where that has none.
 *
 * No semaphore is set again before it was read: the next step's arrival of a message needs its
 * target, whose last use is after the wait; the next credit is after the message that the last one
 * released; statistics are sent after the computation of the next step, of which each rank's
 * depends on that of each rank that gathers.
 *
 * Replicas. A collective reads its peers' memory in place, by kernels and copies on the compute
 * stream. Each rank has a semaphore at every peer for each of its collectives that peers wait for,
 * set after the collective on the compute stream. A collective that waits for the first E needs no
 * semaphore where an earlier one has waited for as many; all lists are equal, so that each rank
 * knows which semaphores its peers wait for. UNSHARD reads what the step before has updated: where
 * there is one, a step of training ends when all peers have ended their last collective. Evaluation
 * updates nothing, and before a step of another profile all ranks have ended theirs. These
 * semaphores, too, are read before they are set again: UPDATE waits for the last collective before
 * it, whose rank has by then read all semaphores of earlier ones; every semaphore that an action
 * sets after the first wait of the next step is set after a signal of the peer in that step.
 * Statistics of other replicas come after REDUCE_SCATTER of the next step, hence after the last
 * backward of the peer, which is after something of every rank of its replica.
 *
 * Tensor ranks. An exchange is copies into the memory of the others on the compute stream, then a
 * signal to each: a semaphore for each tensor rank in the memory of every other. They take two sets
 * of semaphores alternately, as they take two sets of slots: who signals exchange n has waited for
 * the signals of n-1, each of which follows the wait for n-2. A step has an even number of
 * exchanges; what it has not waited for, it waits for at its end. The statistics of a tensor rank
 * come after exchanges of the next step, which all begin after they have read those of the last
 * one. */
#include "runtime/comm/ipc.h"

#include <stdio.h>
#include <stdlib.h>

#include "runtime/base/check.h"
#include "runtime/comm/awaited_collectives.h"
#include "runtime/comm/step_stats.h"
#include "runtime/comm/transport_base.h"

struct ipc_transport {
  struct pen_transport base;
  void *send_stream;
  void *ready;            /* event: the compute stream, for what is to be sent */
  void **sent;            /* [messages] events; null for others' messages */
  unsigned char **arenas; /* [processes]: mapped here; null where nothing is written or read */
  bool *awaited;  /* [collective_count + 1]: whether peers wait for the collective of that number */
  uint32_t ended; /* collectives of the step being enqueued that this rank has ended */
  uint32_t known; /* ... that peers are known to have ended */
  uint32_t signalled; /* exchanges of the step being enqueued that this one has signalled */
  uint32_t taken;     /* ... whose signals of the others it has waited for: as many, or one less */
  uint32_t **batch;   /* [processes]: semaphores to be taken together */
  uint32_t batch_count;
};

static struct ipc_transport *ipc_of(struct pen_transport *transport) {
  return (struct ipc_transport *)transport;
}

static void *send_stream_of(const struct pen_transport *transport) {
  return pen_transport_branch(transport, ((const struct ipc_transport *)transport)->send_stream);
}

/* ---- the semaphores of a rank, see plan.h ---- */

enum semaphore_kind { ARRIVAL, CREDIT, PUBLISHED, ENDED, EXCHANGED };

static uint32_t *semaphore_of(struct pen_transport *transport, uint32_t process,
                              enum semaphore_kind kind, uint32_t index) {
  const uint32_t messages = transport->profile->message_count,
                 rank = pen_table_rank(transport->plan, process),
                 processes = pen_process_count(transport->plan),
                 ended = pen_group_size(transport->plan, PEN_DATA) *
                         transport->actions.collective_count;
  const uint32_t first[] = {[ARRIVAL] = 0,
                            [CREDIT] = messages,
                            [PUBLISHED] = 2 * messages,
                            [ENDED] = 2 * messages + processes,
                            [EXCHANGED] = 2 * messages + processes + ended};
  unsigned char *arena = process == pen_transport_self(transport)
                             ? transport->arena
                             : ipc_of(transport)->arenas[process];
  pen_assert(arena != NULL);
  return (uint32_t *)(arena + transport->plan->memory[rank].flags_offset) + first[kind] + index;
}

/* Adds a local semaphore to the batch, which ipc_take() waits for, each to be 1, and sets to 0. */
static void add_to_batch(struct pen_transport *transport, enum semaphore_kind kind,
                         uint32_t index) {
  struct ipc_transport *own = ipc_of(transport);
  pen_assert(own->batch_count < pen_process_count(transport->plan));
  own->batch[own->batch_count++] =
      semaphore_of(transport, pen_transport_self(transport), kind, index);
}

static void ipc_take(struct pen_transport *transport, void *stream) {
  struct ipc_transport *own = ipc_of(transport);
  if (own->batch_count > 0) {
    transport->device->take(own->batch, own->batch_count, stream);
  }
  own->batch_count = 0;
}

static void take_one(struct pen_transport *transport, enum semaphore_kind kind, uint32_t index,
                     void *stream) {
  add_to_batch(transport, kind, index);
  ipc_take(transport, stream);
}

/* ---- before the seal ---- */

static void ipc_check(const struct pen_transport *transport, const void *made, const char *what) {
  const char *why = transport->device->error();
  if (made == NULL || why != NULL) {
    pen_fail(PEN_EXIT_SYSTEM, "rank %u, transport ipc: %s: %s", pen_transport_self(transport), what,
             why == NULL ? "none" : why);
  }
}

static void ipc_export(struct pen_transport *transport) {
  transport->device->export_memory(
      transport->arena, transport->shared->ranks[pen_transport_self(transport)].memory_name);
  ipc_check(transport, transport, "exporting the arena to other ranks");
}

/* Whether this rank writes to the memory of a process or reads it: of receivers of its messages,
 * senders that wait for its credits, ranks that gather its statistics, its peers, and the other
 * tensor ranks. */
static bool ipc_reaches(const struct pen_transport *transport, uint32_t process) {
  const struct pen_plan *plan = transport->plan;
  const uint32_t self = pen_transport_self(transport), rank = pen_table_rank(plan, process);
  const bool ours = pen_in_group(plan, self, PEN_PIPELINE, process);
  bool reached = pen_transport_gathers(transport, process) ||
                 pen_in_group(plan, self, PEN_DATA, process) ||
                 pen_in_group(plan, self, PEN_TENSOR, process);
  for (uint32_t c = 0; c < transport->profile->channel_count && ours && !reached; c++) {
    const struct pen_channel *channel = &transport->profile->channels[c];
    reached = (channel->from_rank == transport->rank && channel->to_rank == rank) ||
              (channel->to_rank == transport->rank && channel->from_rank == rank);
  }
  return reached && process != self;
}

static void ipc_connect(struct pen_transport *transport) {
  if (transport->first != NULL) {
    ipc_of(transport)->arenas = ((const struct ipc_transport *)transport->first)->arenas;
    return;
  }
  for (uint32_t r = 0; r < pen_process_count(transport->plan); r++) {
    if (ipc_reaches(transport, r)) {
      char what[80];
      snprintf(what, sizeof what, "reaching the memory of rank %u (on one GPU, or on peers?)", r);
      ipc_of(transport)->arenas[r] =
          transport->device->import_memory(transport->shared->ranks[r].memory_name);
      ipc_check(transport, ipc_of(transport)->arenas[r], what);
    }
  }
}

/* ---- actions ---- */

/* What is enqueued on the send stream from here on follows what is on the compute stream. */
static void send_stream_follows(struct pen_transport *transport) {
  transport->device->event_record(ipc_of(transport)->ready, transport->stream);
  transport->device->stream_wait_event(send_stream_of(transport), ipc_of(transport)->ready);
}

static bool ipc_send(struct pen_transport *transport, uint32_t index) {
  const struct pen_message *message = pen_transport_message(transport, index);
  const uint32_t to = pen_transport_process(transport, PEN_PIPELINE,
                                            pen_transport_channel(transport, index)->to_rank);
  const struct pen_device *device = transport->device;
  void *stream = send_stream_of(transport);
  send_stream_follows(transport);
  if (message->credit != PEN_NONE) {
    take_one(transport, CREDIT, index, stream);
  }
  device->copy(ipc_of(transport)->arenas[to] + message->target_offset,
               transport->arena + message->source_offset, message->bytes, stream);
  device->signal_remote(semaphore_of(transport, to, ARRIVAL, index), stream);
  device->event_record(ipc_of(transport)->sent[index], stream);
  return true;
}

static void ipc_wait_sent(struct pen_transport *transport, uint32_t index) {
  transport->device->stream_wait_event(transport->stream, ipc_of(transport)->sent[index]);
}

/* What is sent from the target is sent before: the send stream keeps the order of actions. */
static bool ipc_receive(struct pen_transport *transport, uint32_t index, const uint32_t *sends,
                        uint32_t send_count) {
  (void)sends, (void)send_count;
  if (pen_transport_message(transport, index)->credit != PEN_NONE) {
    send_stream_follows(transport);
    transport->device->signal_remote(
        semaphore_of(transport,
                     pen_transport_process(transport, PEN_PIPELINE,
                                           pen_transport_channel(transport, index)->from_rank),
                     CREDIT, index),
        send_stream_of(transport));
  }
  return true;
}

static bool ipc_wait(struct pen_transport *transport, uint32_t index) {
  take_one(transport, ARRIVAL, index, transport->stream);
  return true;
}

static void copy_entries(struct pen_transport *transport, uint32_t process) {
  const struct pen_plan *plan = transport->plan;
  const size_t own = pen_step_stats_first(plan, transport->replica);
  const double *from =
      (const double *)(transport->arena + plan->memory[transport->rank].step_stats_offset) + own;
  double *to = (double *)(ipc_of(transport)->arenas[process] +
                          plan->memory[pen_table_rank(plan, process)].step_stats_offset) +
               own;
  for (uint32_t first, past = 0; pen_transport_entries(transport, true, &first, &past);) {
    transport->device->copy(to + first, from + first, (past - first) * sizeof *to,
                            send_stream_of(transport));
  }
}

static bool ipc_publish(struct pen_transport *transport) {
  send_stream_follows(transport);
  for (uint32_t r = 0; r < pen_process_count(transport->plan); r++) {
    if (pen_transport_gathers(transport, r) && r != pen_transport_self(transport)) {
      copy_entries(transport, r);
      transport->device->signal_remote(
          semaphore_of(transport, r, PUBLISHED, pen_transport_self(transport)),
          send_stream_of(transport));
    }
  }
  return true;
}

/* From all whose entries come: see pen_transport_gathers(). */
static bool ipc_gather(struct pen_transport *transport) {
  for (uint32_t r = 0; r < pen_process_count(transport->plan); r++) {
    const bool comes = transport->profile->kind == PEN_TRAIN ||
                       pen_group_member(transport->plan, r, PEN_DATA) == transport->replica;
    if (comes && r != pen_transport_self(transport)) {
      add_to_batch(transport, PUBLISHED, r);
    }
  }
  ipc_take(transport, transport->stream);
  return true;
}

/* ---- collectives ---- */

/* The semaphore of a replica's collective of that number, in the memory of a peer of it. */
static uint32_t ended_index(const struct pen_transport *transport, uint32_t replica,
                            uint32_t number) {
  return replica * transport->actions.collective_count + number - 1;
}

static void take_ended(struct pen_transport *transport, uint32_t count) {
  struct ipc_transport *own = ipc_of(transport);
  for (uint32_t d = 0; d < pen_group_size(transport->plan, PEN_DATA) && count > own->known; d++) {
    if (d != transport->replica) {
      add_to_batch(transport, ENDED, ended_index(transport, d, count));
    }
  }
  ipc_take(transport, transport->collective_stream);
  own->known = count > own->known ? count : own->known;
}

static void signal_ended(struct pen_transport *transport) {
  struct ipc_transport *own = ipc_of(transport);
  own->ended++;
  for (uint32_t d = 0; d < pen_group_size(transport->plan, PEN_DATA) && own->awaited[own->ended];
       d++) {
    if (d != transport->replica) {
      const uint32_t peer = pen_transport_process(transport, PEN_DATA, d);
      transport->device->signal_remote(
          semaphore_of(transport, peer, ENDED,
                       ended_index(transport, transport->replica, own->ended)),
          transport->collective_stream);
    }
  }
}

/* The semaphore for the signal of exchange `number` of a tensor rank. */
static uint32_t exchanged_index(const struct pen_transport *transport, uint32_t tensor_rank,
                                uint32_t number) {
  return number % 2 * pen_group_size(transport->plan, PEN_TENSOR) + tensor_rank;
}

static void take_exchanged(struct pen_transport *transport) {
  struct ipc_transport *own = ipc_of(transport);
  pen_assert(own->signalled - own->taken <= 1);
  for (uint32_t m = 0;
       m < pen_group_size(transport->plan, PEN_TENSOR) && own->taken < own->signalled; m++) {
    if (m != transport->endpoint->tensor_rank) {
      add_to_batch(transport, EXCHANGED, exchanged_index(transport, m, own->taken));
    }
  }
  ipc_take(transport, transport->stream);
  own->taken = own->signalled;
}

static void signal_exchanged(struct pen_transport *transport) {
  struct ipc_transport *own = ipc_of(transport);
  const uint32_t self = transport->endpoint->tensor_rank;
  for (uint32_t m = 0; m < pen_group_size(transport->plan, PEN_TENSOR); m++) {
    if (m != self) {
      transport->device->signal_remote(
          semaphore_of(transport, pen_transport_process(transport, PEN_TENSOR, m), EXCHANGED,
                       exchanged_index(transport, self, own->signalled)),
          transport->stream);
    }
  }
  own->signalled++;
}

static bool ipc_wait_group(struct pen_transport *transport, int group, uint32_t count) {
  if (group == PEN_TENSOR) {
    take_exchanged(transport);
  } else {
    take_ended(transport, count);
  }
  return true;
}

static void ipc_signal_group(struct pen_transport *transport, int group) {
  (group == PEN_TENSOR ? signal_exchanged : signal_ended)(transport);
}

static unsigned char *ipc_member_arena(struct pen_transport *transport, int group,
                                       uint32_t member) {
  return ipc_of(transport)->arenas[pen_transport_process(transport, group, member)];
}

/* Each side copies what it receives. */
static void ipc_sendrecv(struct pen_transport *transport, const struct pen_sendrecv *sendrecv) {
  if (sendrecv->receive_bytes > 0) {
    transport->device->copy(
        sendrecv->to,
        ipc_member_arena(transport, sendrecv->group, sendrecv->member) + sendrecv->receive_offset,
        sendrecv->receive_bytes, transport->collective_stream);
  }
}

/* Each step begins with the same semaphores. */
static void end_exchanges(struct pen_transport *transport) {
  struct ipc_transport *own = ipc_of(transport);
  pen_assert(own->signalled % 2 == 0);
  take_exchanged(transport);
  own->signalled = own->taken = 0;
}

/* Messages are sent, credits of what is received, and PUBLISH where another rank gathers. */
static void *ipc_send_stream(const struct pen_transport *transport,
                             const struct pen_action *action) {
  bool sends = pen_kind_sends(action->kind);
  if (pen_kind_receives(action->kind)) {
    sends = pen_transport_message(transport, action->message)->credit != PEN_NONE;
  }
  for (uint32_t r = 0; r < pen_process_count(transport->plan) && action->kind == PEN_PUBLISH; r++) {
    sends = sends || (pen_transport_gathers(transport, r) && r != pen_transport_self(transport));
  }
  return sends ? send_stream_of(transport) : NULL;
}

static void ipc_end_step(struct pen_transport *transport) {
  take_ended(transport, transport->actions.end_collectives);
  ipc_of(transport)->ended = ipc_of(transport)->known = 0;
  end_exchanges(transport);
  transport->device->event_record(ipc_of(transport)->ready, send_stream_of(transport));
  transport->device->stream_wait_event(transport->stream, ipc_of(transport)->ready);
}

/* Nothing on the device outlives the process: an abort has nothing to release. */
static const struct pen_transport_ops ipc_ops = {
    .name = "ipc",
    .export_handles = ipc_export,
    .connect = ipc_connect,
    .send = ipc_send,
    .receive = ipc_receive,
    .wait = ipc_wait,
    .wait_sent = ipc_wait_sent,
    .publish = ipc_publish,
    .gather = ipc_gather,
    .end_step = ipc_end_step,
    .wait_group = ipc_wait_group,
    .signal_group = ipc_signal_group,
    .member_arena = ipc_member_arena,
    .group_begin = pen_transport_no_call,
    .sendrecv = ipc_sendrecv,
    .group_end = pen_transport_no_call,
    .send_stream = ipc_send_stream,
    .cannot_capture = pen_transport_no_capture_error,
    .clear_error = pen_transport_no_capture_error,
    .all_captured = pen_transport_own_captured,
    .error = pen_transport_no_error,
    .abort = pen_transport_no_call,
};

struct pen_transport *pen_ipc_open(const struct pen_transport_config *config) {
  const struct pen_device *device = config->device;
  const uint32_t messages = config->profile->message_count;
  struct ipc_transport *made = pen_allocate(1, sizeof *made, "a transport");
  pen_transport_fill(&made->base, config);
  pen_transport_list_actions(&made->base);
  made->base.ops = &ipc_ops;
  made->send_stream = device->stream_create();
  made->ready = device->event_create();
  made->sent = calloc(messages + 1u, sizeof *made->sent);
  made->arenas = calloc(pen_process_count(made->base.plan), sizeof *made->arenas);
  made->awaited = calloc(made->base.actions.collective_count + 1u, sizeof *made->awaited);
  made->batch = calloc(pen_process_count(made->base.plan), sizeof *made->batch);
  pen_check(
      made->sent != NULL && made->arenas != NULL && made->awaited != NULL && made->batch != NULL,
      "no memory for a transport");
  made->base.actions.end_collectives = pen_awaited_collectives(&made->base, made->awaited);
  for (uint32_t m = 0; m < messages; m++) {
    made->sent[m] = pen_transport_channel(&made->base, m)->from_rank == made->base.rank
                        ? device->event_create()
                        : NULL;
  }
  ipc_check(&made->base, made->send_stream, "a stream and its events");
  return &made->base;
}
