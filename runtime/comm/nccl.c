/* nccl.c: the transport between ranks on any hosts, each with its own GPU, by NCCL: one-sided puts
 * with signals if the NCCL of all ranks has them, else sends and receives.
 *
 * Each directed pair of ranks that exchanges messages has a communicator, and on either side a
 * stream, so that a slow pair delays no other. All are made before the seal: the communicator of
 * all ranks from an id that rank 0 makes, those of the pairs by splitting it, round by round
 * (nccl_rounds.h). Then the arena is registered with each, and a first message is sent over each,
 * so that no connection and no buffer is made later.
 *
 *     compute stream       ... computes X | ready --+ ............... wait_sent | overwrites X
 *     pair's, on sender                             +-> send X | done
 *
 *     pair's, on receiver  ... free --> receive into the target | done
 *     compute stream       ... RECV .............. WAIT: waits for done | computes with X
 *
 * With sends, RECV enqueues a receive, so nothing arrives before the target is free, and no credits
 * are needed. The messages of a pair keep their order, by which NCCL matches them. No verified plan
 * has a deadlock if a send waits for its receive, with one stream for each pair or one for all
 * pairs of a rank (gen/verify/deadlock.c): so NCCL may buffer or not, and may serialize the calls
 * of a GPU. Where steps are serial (runtime/device/graph.h), all are on the compute stream.
 *
 * With puts, the sender writes the target itself and signals it; a credit is a signal in the other
 * direction:
 *
 *     pair's, on sender        [waits for a credit] put X into the target, signal | done
 *     pair's, on receiver      RECV: [signals a credit] waits for the signal | done
 *
 * Both waits are on the pair's stream, at the place of the receive, not at WAIT: in a graph NCCL
 * delays a put until the wait for the previous one is done (one flag for each signal:
 * src/rma/rma_ce.cc), so no put waits for more than a send would. A credit is signalled where the
 * plan has one, and where the plan's proof that none is needed does not hold here. That proof is
 * about actions that the sender knows to be done (gen/verify/memory.c). Their computations are
 * done, but their sends use the streams of other pairs and may not be; and a sender learns of other
 * ranks by WAIT_NORM only if all ranks gather.
 *
 * The statistics are summed over all ranks: each has its own entries, and zeros elsewhere, and x +
 * 0 is x to the bit. If not all ranks gather, no rank waits for others at the end of a step:
 * receives and credits alone protect the targets.
 *
 * Replicas. The peers of a rank have a communicator, too. A collective exchanges its data with them
 * by sends and receives in one group, on the compute stream: each sends what the same action of the
 * others needs, so no signal of the peers' progress is needed. Replicas add no deadlock: if all
 * replicas run in lockstep, in an order in which the actions of one replica can run one by one, all
 * exchanges match at once. Gradients arrive in staging memory and are added by the kernel that adds
 * them when they are read in place, in the order of the replicas. The order of ncclReduceScatter
 * depends on the algorithm, protocol and channels that NCCL chooses, and so would its bits.
 *
 * Tensor ranks of a rank have a communicator, too. An exchange is one group of sends and receives
 * on the compute stream, from each one's value into its slots at the others; what has come is added
 * by kernels. A receive matches a send of the same exchange, which the other tensor rank begins
 * when it is done with the slots of the last one: no signal is needed. They add no deadlock, as
 * replicas add none.
 *
 * NCCL counts signals in graphs and in calls that are not captured separately, and requires that
 * both sides capture or neither (User Guide, "Using NCCL with CUDA Graphs"): all ranks launch a
 * graph, or none does. */
#include "runtime/comm/nccl.h"

#include <stdlib.h>

#include "runtime/base/check.h"
#include "runtime/comm/nccl_connect.h"
#include "runtime/comm/step_stats.h"
#include "runtime/plan/losses.h"

/* ---- before the seal: see nccl_connect.c ---- */

static void nccl_export(struct pen_transport *transport) {
  if (pen_transport_self(transport) == 0) {
    pen_nccl_of(transport)->calls->make_id(transport->shared->control->nccl_id);
    pen_nccl_check(transport, transport, "making an id for all ranks");
  }
}

/* ---- actions ---- */

static void *pair_stream(struct pen_transport *transport, uint32_t channel) {
  return pen_transport_branch(transport, pen_nccl_of(transport)->pairs[channel].stream);
}

/* Makes the pair's stream wait for what is on the compute stream. */
static void *pair_stream_follows(struct pen_transport *transport, uint32_t message) {
  void *stream = pair_stream(transport, pen_transport_message(transport, message)->channel);
  transport->device->event_record(pen_nccl_of(transport)->ready, transport->stream);
  transport->device->stream_wait_event(stream, pen_nccl_of(transport)->ready);
  return stream;
}

static bool nccl_send(struct pen_transport *transport, uint32_t index) {
  struct pen_nccl_transport *own = pen_nccl_of(transport);
  const struct pen_message *message = pen_transport_message(transport, index);
  const struct pen_pair *pair = &own->pairs[message->channel];
  const unsigned char *from = transport->arena + message->source_offset;
  void *stream = pair_stream_follows(transport, index);
  if (pair->window != NULL && own->credited[index]) {
    own->calls->wait_signal(pair->communicator, PEN_RECEIVER, stream);
  }
  if (pair->window != NULL) {
    own->calls->put(pair->communicator, from, message->bytes, PEN_RECEIVER, pair->window,
                    message->target_offset, stream);
  } else {
    own->calls->send(pair->communicator, from, message->bytes, PEN_RECEIVER, stream);
  }
  transport->device->event_record(own->done[index], stream);
  return true;
}

static void nccl_wait_sent(struct pen_transport *transport, uint32_t index) {
  transport->device->stream_wait_event(transport->stream, pen_nccl_of(transport)->done[index]);
}

static bool nccl_receive(struct pen_transport *transport, uint32_t index, const uint32_t *sends,
                         uint32_t send_count) {
  struct pen_nccl_transport *own = pen_nccl_of(transport);
  const struct pen_message *message = pen_transport_message(transport, index);
  const struct pen_pair *pair = &own->pairs[message->channel];
  void *stream = pair_stream_follows(transport, index);
  for (uint32_t i = 0; i < send_count; i++) {
    transport->device->stream_wait_event(stream, own->done[sends[i]]);
  }
  if (pair->window != NULL && own->credited[index]) {
    own->calls->signal(pair->communicator, PEN_SENDER, stream);
  }
  if (pair->window != NULL) {
    own->calls->wait_signal(pair->communicator, PEN_SENDER, stream);
  } else {
    own->calls->receive(pair->communicator, transport->arena + message->target_offset,
                        message->bytes, PEN_SENDER, stream);
  }
  transport->device->event_record(own->done[index], stream);
  return true;
}

static bool nccl_wait(struct pen_transport *transport, uint32_t index) {
  transport->device->stream_wait_event(transport->stream, pen_nccl_of(transport)->done[index]);
  return true;
}

static void zero_entries(struct pen_transport *transport, size_t first, size_t past) {
  if (past > first) {
    transport->device->zero(pen_nccl_step_stats(transport) + first, (past - first) * sizeof(double),
                            transport->stream);
  }
}

/* The entries of other ranks hold the result of the last sum. */
static bool nccl_publish(struct pen_transport *transport) {
  const struct pen_plan *plan = transport->plan;
  const size_t own = pen_step_stats_first(plan, transport->replica),
               past_own = pen_step_stats_first(plan, transport->replica + 1);
  for (uint32_t first, past = 0;
       transport->actions.all_gather && pen_transport_entries(transport, false, &first, &past);) {
    zero_entries(transport, own + first, own + past);
  }
  if (transport->actions.all_gather &&
      pen_group_size(plan, PEN_DATA) > 1) { /* the sum is over all entries then */
    zero_entries(transport, 0, own);
    for (uint32_t row = 0; row < pen_stats_rows(plan); row++) {
      const size_t entry = own + pen_stats_row_first(plan, row);
      if (!pen_has_stats_row(plan, transport->profile, row, pen_transport_self(transport))) {
        zero_entries(transport, entry, entry + pen_stats_row_entries(plan, row));
      }
    }
    zero_entries(transport, past_own, pen_step_stats_first(plan, pen_group_size(plan, PEN_DATA)));
  }
  return true;
}

static bool nccl_gather(struct pen_transport *transport) {
  struct pen_nccl_transport *own = pen_nccl_of(transport);
  if (transport->actions.all_gather) {
    own->calls->sum(own->all, pen_nccl_step_stats(transport), pen_nccl_sum_count(transport->plan),
                    transport->stream);
  }
  return true;
}

/* ---- collectives: see the top ---- */

static bool nccl_wait_group(struct pen_transport *transport, int group, uint32_t count) {
  return (void)transport, (void)group, (void)count, true;
}

static unsigned char *nccl_member_arena(struct pen_transport *transport, int group,
                                        uint32_t member) {
  return (void)transport, (void)group, (void)member, NULL;
}

static void nccl_group_begin(struct pen_transport *transport) {
  pen_nccl_of(transport)->calls->group_begin();
}
static void nccl_group_end(struct pen_transport *transport) {
  pen_nccl_of(transport)->calls->group_end();
}

/* Groups of data ranks use the communicator of all. */
static void nccl_sendrecv(struct pen_transport *transport, const struct pen_sendrecv *sendrecv) {
  const struct pen_nccl_transport *own = pen_nccl_of(transport);
  const int group = sendrecv->group == PEN_TENSOR ? PEN_TENSOR : PEN_DATA;
  const int peer = (int)pen_group_member(
      transport->plan, pen_transport_process(transport, sendrecv->group, sendrecv->member), group);
  if (sendrecv->send_bytes > 0) {
    own->calls->send(own->group[group], transport->arena + sendrecv->send_offset,
                     sendrecv->send_bytes, peer, transport->collective_stream);
  }
  if (sendrecv->receive_bytes > 0) {
    own->calls->receive(own->group[group], sendrecv->to, sendrecv->receive_bytes, peer,
                        transport->collective_stream);
  }
}

/* Each pair has its own stream: one counter cannot describe the progress of all. */
static void *nccl_send_stream(const struct pen_transport *transport,
                              const struct pen_action *action) {
  return (void)transport, (void)action, NULL;
}

static void nccl_end_step(struct pen_transport *transport) {
  for (uint32_t c = 0; c < transport->profile->channel_count; c++) {
    if (pen_nccl_has_channel(transport, c) && transport->profile->channels[c].message_count > 0) {
      transport->device->event_record(pen_nccl_of(transport)->ready, pair_stream(transport, c));
      transport->device->stream_wait_event(transport->stream, pen_nccl_of(transport)->ready);
    }
  }
}

/* ---- graphs ---- */

static const char *nccl_cannot_capture(struct pen_transport *transport) {
  const bool refused = pen_nccl_of(transport)->put_count > 0 &&
                       pen_nccl_of(transport)->calls->version() < PEN_CAPTURED_VERSION;
  return refused ? "NCCL's puts can be captured from 2.30 on; PEN_NCCL=send can be before" : NULL;
}

static const char *nccl_clear_error(struct pen_transport *transport) {
  return pen_nccl_of(transport)->calls->clear_error();
}

static bool nccl_all_captured(struct pen_transport *transport, bool captured) {
  double count = captured;
  pen_nccl_sum_numbers(transport, &count, 1);
  return count >= pen_process_count(transport->plan);
}

/* ---- faults ---- */

/* The lower number is the earlier rank: by steps, then actions; of two ranks at the same action the
 * one that waits for no other rank. */
static uint64_t progress_of(const struct pen_rank_state *state) {
  return (uint64_t)atomic_load(&state->published.count) << 32 | pen_action_index(state) << 1 |
         (atomic_load(&state->waits_for) != 0);
}

/* The rank of a communicator with the least progress, according to what the hosts publish: the
 * other ranks continue past a rank that has exited or is stopped, up to where they need it. If
 * several have the least, for instance in one exchange, it is this rank, which has seen the
 * error: NCCL reports that a communicator is broken, not where. If a process has died, the watchdog
 * of its host knows which, and reports it before this rank does. Of two it is the other one. */
static uint32_t last_of(const struct pen_transport *transport, int group) {
  const uint32_t count = pen_group_size(transport->plan, group);
  uint64_t least = UINT64_MAX;
  uint32_t found = pen_transport_self(transport);
  if (count == 2) {
    const uint32_t first = pen_transport_process(transport, group, 0);
    return first == found ? pen_transport_process(transport, group, 1) : first;
  }
  for (uint32_t i = 0; i < count; i++) {
    const uint32_t peer = pen_transport_process(transport, group, i);
    const uint64_t at = progress_of(&transport->shared->ranks[peer]);
    found = at < least ? peer : at == least ? pen_transport_self(transport) : found;
    least = at < least ? at : least;
  }
  return found;
}

/* Polls one communicator in each call: the host calls this thousands of times a second. *peer is
 * the rank at the other end; if there are several, the one with the least progress. */
static const char *nccl_error(struct pen_transport *transport, uint32_t *peer) {
  struct pen_nccl_transport *own = pen_nccl_of(transport);
  const char *why = own->calls->error();
  *peer = pen_transport_self(transport);
  if (why != NULL) {
    return why;
  }
  const uint32_t channels = transport->profile->channel_count;
  own->polled = (own->polled + 1) % (channels + 1 + PEN_COORDINATES);
  const int group = (int)(own->polled - channels) - 1;
  if (group >= 0 && own->group[group] != NULL) {
    *peer = last_of(transport, group);
    return own->calls->async_error(own->group[group]);
  }
  if (own->polled >= channels) {
    return own->calls->async_error(own->all);
  }
  if (own->pairs[own->polled].communicator == NULL) {
    return NULL;
  }
  const struct pen_channel *channel = &transport->profile->channels[own->polled];
  *peer = pen_transport_process(
      transport, PEN_PIPELINE,
      channel->from_rank == transport->rank ? channel->to_rank : channel->from_rank);
  return own->calls->async_error(own->pairs[own->polled].communicator);
}

static void nccl_abort(struct pen_transport *transport) {
  struct pen_nccl_transport *own = pen_nccl_of(transport);
  for (uint32_t c = 0; c < transport->profile->channel_count; c++) {
    if (own->pairs[c].communicator != NULL) {
      own->calls->abort(own->pairs[c].communicator);
    }
  }
  for (int g = 0; g < PEN_COORDINATES; g++) {
    if (own->group[g] != NULL) {
      own->calls->abort(own->group[g]);
    }
  }
  if (own->all != NULL) {
    own->calls->abort(own->all);
  }
}

static const struct pen_transport_ops nccl_ops = {
    .name = "nccl",
    .export_handles = nccl_export,
    .connect = pen_nccl_connect,
    .send = nccl_send,
    .receive = nccl_receive,
    .wait = nccl_wait,
    .wait_sent = nccl_wait_sent,
    .publish = nccl_publish,
    .gather = nccl_gather,
    .end_step = nccl_end_step,
    .wait_group = nccl_wait_group,
    .signal_group = pen_transport_no_signal,
    .member_arena = nccl_member_arena,
    .group_begin = nccl_group_begin,
    .sendrecv = nccl_sendrecv,
    .group_end = nccl_group_end,
    .send_stream = nccl_send_stream,
    .cannot_capture = nccl_cannot_capture,
    .clear_error = nccl_clear_error,
    .all_captured = nccl_all_captured,
    .error = nccl_error,
    .abort = nccl_abort,
};

struct pen_transport *pen_nccl_open_with(const struct pen_nccl_calls *calls,
                                         const struct pen_transport_config *config) {
  const struct pen_profile *profile = config->profile;
  const struct pen_device *device = config->device;
  struct pen_nccl_transport *made = pen_allocate(1, sizeof *made, "a transport");
  pen_transport_fill(&made->base, config);
  pen_transport_list_actions(&made->base);
  made->base.ops = &nccl_ops;
  made->base.rendezvous = true;
  made->calls = calls;
  made->no_puts = pen_nccl_no_puts(calls);
  made->ready = device->event_create();
  made->pairs = pen_allocate(profile->channel_count + 1u, sizeof *made->pairs, "a transport");
  made->done = pen_allocate(profile->message_count + 1u, sizeof *made->done, "a transport");
  made->credited = pen_allocate(profile->message_count + 1u, sizeof *made->credited, "a transport");
  for (uint32_t m = 0; m < profile->message_count; m++) {
    made->done[m] = pen_nccl_has_channel(&made->base, profile->messages[m].channel)
                        ? device->event_create()
                        : NULL;
  }
  pen_nccl_check(&made->base, made->ready, "events");
  return &made->base;
}

/* Linked only into a binary whose plan uses NCCL (Makefile.am, NCCL_LINK); in others the name is
 * null. */
extern const struct pen_nccl_calls pen_nccl __attribute__((weak));

struct pen_transport *pen_nccl_open(const struct pen_transport_config *config) {
  return &pen_nccl == NULL ? NULL : pen_nccl_open_with(&pen_nccl, config);
}

void *pen_nccl_allocate(const struct pen_plan *plan, uint32_t rank,
                        const struct pen_device *device) {
  (void)device;
  if (&pen_nccl == NULL) {
    return NULL;
  }
  void *arena = pen_nccl.allocate(pen_nccl_arena_bytes(&pen_nccl, plan, rank));
  if (arena == NULL) {
    pen_fail(PEN_EXIT_SYSTEM, "rank %u, transport nccl: the arena: %s", rank, pen_nccl.error());
  }
  return arena;
}
