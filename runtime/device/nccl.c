/* nccl.c: the link between ranks on any hosts, each with a GPU of its own, by NCCL: one-sided puts
 * with signals where all ranks' NCCL has them, sends and receives where not.
 *
 * Every directed pair of ranks that talk has a communicator and, on either side, a stream of its
 * own, so that a slow pair holds up no other. All are made before the seal: the communicator of all
 * ranks from an id that rank 0 makes, the pairs' by splitting it, round by round (pairs.h); then
 * the arena is registered with each, and they are warmed with it, so that no connection and no
 * buffer is made later.
 *
 *     queue's stream      ... computes X | ready --+ ......................... reuse: waits for
 * left | computes over X pair's, on sender                            +-> send X | left pair's, on
 * receiver ... free --> receive into the home | came its queue's stream  ... RECV
 * ................................ WAIT: waits for came | computes with it
 *
 * By sends, a receive is put there by its RECV row, so that nothing comes before the home is free:
 * no credits. On a pair messages keep their order, which is what NCCL matches them by. No plan has
 * a deadlock where a send waits for its receive, with one lane a pair or one for all of a rank's
 * (verify_deadlock.c): so NCCL may buffer or not, and run what one GPU was given in turn.
 *
 * By puts, the sender writes the home itself, and signals that it has; what goes back is the signal
 * of a credit:
 *
 *     pair's, on sender        [waits for a credit] put X into the home, signal | left
 *     pair's, on receiver      RECV: [signals a credit] waits for the signal | came
 *
 * Both waits stand where the receive would stand, on the pair's stream, and not at the WAIT row: in
 * a graph NCCL holds a put back until the wait for the one before is done (it has one flag a
 * signal: src/rma/rma_ce.cc), and so no put waits for more than a send would. A credit is given
 * where the plan has one, and where its proof that none is needed does not hold here. That speaks
 * of rows that the sender has heard of (verify_memory.c). What computes in them is done; but what
 * leaves in them goes by other pairs' streams, and may not have left; and a sender hears of others
 * by WAIT_NORM only if all ranks gather.
 *
 * The board is summed over all ranks, each having its own entries and zeros elsewhere: x + 0 is x,
 * to the bit. Where not all ranks gather, none need wait for others at a step's end: homes are safe
 * by receives and credits alone.
 *
 * Replicas. The peers of a rank have a communicator, too. What a row of the exchange wants of them
 * it swaps, all in one group, on the queue's stream: each sends what the others' same row wants. So
 * a row needs no word of how far its peers are. Let all replicas run in step along an order in
 * which the rows of one can run one by one: swaps then meet at once, and no replica adds a
 * deadlock. Gradients come to staging, and are added up there by the same kernel, in the replicas'
 * order, as where they are read in place: what ncclReduceScatter adds first depends on the
 * algorithm, the protocol and the channels that NCCL chooses, and its bits with them.
 *
 * NCCL keeps one account of signals for graphs and another for calls that are not captured, and
 * wants what is captured to be so on both sides (User Guide, "Using NCCL with CUDA Graphs"): all
 * ranks replay a graph, or none does. */
#include <stdlib.h>

#include "runtime/base/check.h"
#include "runtime/device/nccl_internal.h"
#include "runtime/comm/step_stats.h"
#include "kernels/kernels.h"

/* ---- before the seal: see nccl_join.c ---- */

static void offer(struct pen_link *link) {
  if (pen_link_self(link) == 0) {
    pen_nccl_of(link)->calls->make_id(link->shared->control->nccl_id);
    pen_nccl_must_be_well(link, link, "making an id for all ranks");
  }
}

/* ---- rows ---- */

/* What comes on a pair's stream is behind what is on the queue's. */
static void *follow_queue(struct pen_link *link, uint32_t message) {
  void *stream = pen_nccl_of(link)->pairs[pen_message_of(link, message)->channel].stream;
  link->queue->device->event_record(pen_nccl_of(link)->ready, link->queue->stream);
  link->queue->device->stream_wait_event(stream, pen_nccl_of(link)->ready);
  return stream;
}

static void send(struct pen_link *link, uint32_t index) {
  struct pen_nccl_link *own = pen_nccl_of(link);
  const struct pen_message *message = pen_message_of(link, index);
  const struct pen_pair *pair = &own->pairs[message->channel];
  const unsigned char *from = link->queue->arena + message->source_offset;
  void *stream = follow_queue(link, index);
  if (pair->window != NULL && own->credited[index]) {
    own->calls->await(pair->communicator, PEN_RECEIVER, stream);
  }
  if (pair->window != NULL) {
    own->calls->put(pair->communicator, from, message->bytes, PEN_RECEIVER, pair->window,
                    message->target_offset, stream);
  } else {
    own->calls->send(pair->communicator, from, message->bytes, PEN_RECEIVER, stream);
  }
  link->queue->device->event_record(own->done[index], stream);
}

static void reuse(struct pen_link *link, uint32_t index) {
  link->queue->device->stream_wait_event(link->queue->stream, pen_nccl_of(link)->done[index]);
}

static void credit(struct pen_link *link, uint32_t index, uint32_t row) {
  struct pen_nccl_link *own = pen_nccl_of(link);
  const struct pen_message *message = pen_message_of(link, index);
  const struct pen_pair *pair = &own->pairs[message->channel];
  void *stream = follow_queue(link, index);
  for (uint32_t i = link->reuse.first[row]; i < link->reuse.first[row + 1]; i++) {
    link->queue->device->stream_wait_event(stream, own->done[link->reuse.message[i]]);
  }
  if (pair->window != NULL && own->credited[index]) {
    own->calls->signal(pair->communicator, PEN_SENDER, stream);
  }
  if (pair->window != NULL) {
    own->calls->await(pair->communicator, PEN_SENDER, stream);
  } else {
    own->calls->receive(pair->communicator, link->queue->arena + message->target_offset,
                        message->bytes, PEN_SENDER, stream);
  }
  link->queue->device->event_record(own->done[index], stream);
}

static void wait(struct pen_link *link, uint32_t index) {
  link->queue->device->stream_wait_event(link->queue->stream, pen_nccl_of(link)->done[index]);
}

static void zero_entries(struct pen_link *link, size_t first, size_t past) {
  if (past > first) {
    link->queue->device->zero(pen_nccl_board_of(link) + first, (past - first) * sizeof(double),
                              link->queue->stream);
  }
}

/* Others' entries are what the last sum left there. */
static void publish(struct pen_link *link) {
  const struct pen_plan *plan = link->plan;
  const size_t own = pen_step_stats_first(plan, link->replica),
               past_own = pen_step_stats_first(plan, link->replica + 1);
  for (uint32_t first, past = 0;
       link->all_gather && pen_link_entries(link, false, &first, &past);) {
    zero_entries(link, own + first, own + past);
  }
  if (link->all_gather && plan->replica_count > 1) { /* the sum is of whole boards then */
    const bool has_losses = pen_last_stage_rank(plan, link->profile) == link->rank;
    zero_entries(link, 0, own);
    zero_entries(link, own + plan->weight_count, has_losses ? 0 : past_own);
    zero_entries(link, past_own, pen_step_stats_first(plan, plan->replica_count));
  }
}

static void gather(struct pen_link *link) {
  struct pen_nccl_link *own = pen_nccl_of(link);
  if (link->all_gather) {
    own->calls->sum(own->all, pen_nccl_board_of(link), pen_nccl_sum_count(link->plan),
                    link->queue->stream);
  }
}

/* ---- the exchange between replicas: see the top ---- */

static void peers_reached(struct pen_link *link, uint32_t count) { (void)link, (void)count; }
static void exchanged(struct pen_link *link) { (void)link; }
static const unsigned char *peer_arena(struct pen_link *link, uint32_t replica) {
  return (void)link, (void)replica, NULL;
}
static void swap_begin(struct pen_link *link) { pen_nccl_of(link)->calls->group_begin(); }
static void swap_end(struct pen_link *link) { pen_nccl_of(link)->calls->group_end(); }

static void swap(struct pen_link *link, const struct pen_sendrecv *swap) {
  struct pen_nccl_link *own = pen_nccl_of(link);
  if (swap->our_bytes > 0) {
    own->calls->send(own->peers, link->queue->arena + swap->ours, swap->our_bytes,
                     (int)swap->replica, link->queue->stream);
  }
  if (swap->their_bytes > 0) {
    own->calls->receive(own->peers, swap->to, swap->their_bytes, (int)swap->replica,
                        link->queue->stream);
  }
}

/* Each pair has its stream: how far they are could not be told by one word. */
static void *leaving(const struct pen_link *link, const struct pen_action *row) {
  return (void)link, (void)row, NULL;
}

static void end(struct pen_link *link) {
  for (uint32_t c = 0; c < link->profile->channel_count; c++) {
    if (pen_is_mine(link, c) && link->profile->channels[c].message_count > 0) {
      link->queue->device->event_record(pen_nccl_of(link)->ready,
                                        pen_nccl_of(link)->pairs[c].stream);
      link->queue->device->stream_wait_event(link->queue->stream, pen_nccl_of(link)->ready);
    }
  }
}

/* ---- graphs ---- */

static const char *uncaptured(struct pen_link *link) {
  const bool refused = pen_nccl_of(link)->put_count > 0 &&
                       pen_nccl_of(link)->calls->version() < PEN_CAPTURED_VERSION;
  return refused ? "NCCL's puts can be captured from 2.30 on; PEN_NCCL=send can be before" : NULL;
}

static const char *forget(struct pen_link *link) { return pen_nccl_of(link)->calls->forget(); }

static bool all_captured(struct pen_link *link, bool captured) {
  double count = captured;
  pen_nccl_add_up(link, &count, 1);
  return count >= pen_process_count(link->plan);
}

/* ---- faults ---- */

/* Lower is further behind: by steps, by rows, and of what stands at the same row what waits for no
 * other rank before what does. */
static uint64_t place_of(const struct pen_rank_state *state) {
  return (uint64_t)atomic_load(&state->published.count) << 32 | pen_action_index(state) << 1 |
         (atomic_load(&state->waits_for) != 0);
}

/* Of a rank's peers the one that is behind all others, by what their hosts tell: whoever has left,
 * or stands still, is passed by the others, up to where these need it. Several may be as far
 * behind, as where all are in one swap. Which of them it is cannot be known here: NCCL says of a
 * communicator that it is broken, and not where. Then it is the own rank, which has seen it; and
 * where a process has died its host's watch, which knows whose, speaks before this rank does. */
static uint32_t last_peer(const struct pen_link *link) {
  uint64_t least = UINT64_MAX;
  uint32_t found = pen_link_self(link);
  for (uint32_t d = 0; d < link->plan->replica_count; d++) {
    const uint32_t peer = d * link->plan->rank_count + link->rank;
    const uint64_t at = place_of(&link->shared->ranks[peer]);
    found = at < least ? peer : at == least ? pen_link_self(link) : found;
    least = at < least ? at : least;
  }
  return found;
}

/* One communicator a look: the host looks thousands of times a second. The peer is who is at its
 * other end, where that is one rank; of several, the one that is behind. */
static const char *error(struct pen_link *link, uint32_t *peer) {
  struct pen_nccl_link *own = pen_nccl_of(link);
  const char *why = own->calls->error();
  *peer = pen_link_self(link);
  if (why != NULL) {
    return why;
  }
  own->asked = (own->asked + 1) % (link->profile->channel_count + 2);
  if (own->asked > link->profile->channel_count && own->peers != NULL) {
    *peer = link->plan->replica_count == 2
                ? (1 - link->replica) * link->plan->rank_count + link->rank
                : last_peer(link);
    return own->calls->trouble(own->peers);
  }
  if (own->asked >= link->profile->channel_count) {
    return own->calls->trouble(own->all);
  }
  if (own->pairs[own->asked].communicator == NULL) {
    return NULL;
  }
  const struct pen_channel *channel = &link->profile->channels[own->asked];
  *peer = pen_link_process(
      link, channel->from_rank == link->rank ? channel->to_rank : channel->from_rank);
  return own->calls->trouble(own->pairs[own->asked].communicator);
}

static void abort_all(struct pen_link *link) {
  struct pen_nccl_link *own = pen_nccl_of(link);
  for (uint32_t c = 0; c < link->profile->channel_count; c++) {
    if (own->pairs[c].communicator != NULL) {
      own->calls->abort(own->pairs[c].communicator);
    }
  }
  if (own->peers != NULL) {
    own->calls->abort(own->peers);
  }
  if (own->all != NULL) {
    own->calls->abort(own->all);
  }
}

static const struct pen_link_kind nccl = {
    .name = "nccl",
    .offer = offer,
    .connect = pen_nccl_join,
    .send = send,
    .reuse = reuse,
    .credit = credit,
    .wait = wait,
    .publish = publish,
    .gather = gather,
    .peers_reached = peers_reached,
    .exchanged = exchanged,
    .peer_arena = peer_arena,
    .swap_begin = swap_begin,
    .swap = swap,
    .swap_end = swap_end,
    .leaving = leaving,
    .end = end,
    .uncaptured = uncaptured,
    .forget = forget,
    .all_captured = all_captured,
    .error = error,
    .abort = abort_all,
};

struct pen_link *pen_nccl_open_with(const struct pen_nccl_calls *calls,
                                    struct pen_stream_state *queue,
                                    const struct pen_profile *profile,
                                    const struct pen_shared *shared, uint32_t global) {
  const uint32_t channels = profile->channel_count;
  struct pen_nccl_link *made = calloc(1, sizeof *made);
  pen_check(made != NULL, "no memory for a link");
  pen_link_fill(&made->link, queue, profile, shared, global);
  made->link.kind = &nccl;
  made->link.meets = true;
  made->calls = calls;
  made->no_puts = pen_nccl_no_puts(calls);
  made->ready = queue->device->event_create();
  made->pairs = calloc(channels + 1u, sizeof *made->pairs);
  made->done = calloc(profile->message_count + 1u, sizeof *made->done);
  made->credited = calloc(profile->message_count + 1u, sizeof *made->credited);
  pen_check(made->pairs != NULL && made->done != NULL && made->credited != NULL,
            "no memory for a link");
  for (uint32_t m = 0; m < profile->message_count; m++) {
    made->done[m] = pen_is_mine(&made->link, profile->messages[m].channel)
                        ? queue->device->event_create()
                        : NULL;
  }
  pen_nccl_must_be_well(&made->link, made->ready, "events");
  return &made->link;
}

/* A binary whose plan does not want NCCL has no trace of it: the name stays null unless the link
 * asks for it (Makefile.am, NCCL_LINK). */
extern const struct pen_nccl_calls pen_nccl __attribute__((weak));

struct pen_link *pen_nccl_open(struct pen_stream_state *queue, const struct pen_profile *profile,
                               const struct pen_shared *shared, uint32_t global) {
  return &pen_nccl == NULL ? NULL : pen_nccl_open_with(&pen_nccl, queue, profile, shared, global);
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
