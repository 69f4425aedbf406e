/* ipc.c: the link between ranks of one host, each with an arena on a GPU: on one GPU, or on several that reach each other's memory.
 *
 * Every rank opens the arenas of those that it writes to (CUDA IPC; the blocks' names go by the memory of control.h). A message is then a
 * copy into its home, and news of it a word beside: the flags of the step part (plan.h), in the arena of whoever waits for them. A word
 * is 0 or 1: the one that waits for 1 sets 0 again, so that each step does the same and can be a graph. No kernel spins: words are written and
 * awaited by the streams themselves (CUDA Driver API, "Stream Memory Operations").
 *
 *     queue's stream   ... computes X | ready --+ ......................... reuse: waits for left | computes over X
 *     copy stream                               +-> [credit = 1?, 0] copy X -> home | arrival := 1 | left
 *     receiver's copy stream  ... credit := 1 (if any) | ...
 *     receiver's       ... | [arrival = 1?, 0] computes with it
 *
 * One copy stream a rank: all that others hear of it, messages, credits and board, leaves in the order of its rows, so that whoever has heard
 * of a row knows that the messages of the rows before it are gone, too. That is what homes without a credit are proved by
 * (verify_memory.c). Nothing waits longer than where each row is done before the next (shm.c), hence no deadlock where that has none.
 *
 * No word is set anew before it was read: the next step's news of a message needs its home, whose last use comes behind the wait; the
 * next credit comes behind the message that the last one let go; entries of the board come behind the computation of the next
 * step, of which each rank's depends on each gathering rank's. */
#include <stdio.h>
#include <stdlib.h>

#include "runtime/check.h"
#include "runtime/link.h"

struct ipc_link {
  struct pen_link link;
  void *copies;           /* stream */
  void *ready;            /* event: the queue's stream, for what is to leave */
  void **left;            /* [messages] events: gone from its source; null for others' messages */
  unsigned char **arenas; /* [ranks]: as this process sees them; null where nothing is written */
};

static struct ipc_link *ipc_of(struct pen_link *link) { return (struct ipc_link *)link; }

static const struct pen_message *message_of(const struct pen_link *link, uint32_t message) { return &link->profile->messages[message]; }

static const struct pen_channel *channel_of(const struct pen_link *link, uint32_t message) {
  return &link->profile->channels[message_of(link, message)->channel];
}

/* ---- the words of a rank, see plan.h ---- */

enum word { ARRIVAL, CREDIT, PUBLISHED };

static uint32_t *word_of(struct pen_link *link, uint32_t rank, enum word what, uint32_t index) {
  const uint32_t first[] = {[ARRIVAL] = 0, [CREDIT] = link->profile->message_count, [PUBLISHED] = 2 * link->profile->message_count};
  unsigned char *arena = rank == link->rank ? link->queue->arena : ipc_of(link)->arenas[rank];
  pen_assert(arena != NULL);
  return (uint32_t *)(arena + link->plan->memory[rank].flags_offset) + first[what] + index;
}

/* Waits for an own word, and takes it. */
static void take(struct pen_link *link, enum word what, uint32_t index, void *stream) {
  uint32_t *word = word_of(link, link->rank, what, index);
  link->queue->order->await(word, 1, stream);
  link->queue->order->mark(word, 0, stream);
}

/* ---- before the seal ---- */

static void must_be_well(const struct pen_link *link, const void *made, const char *what) {
  const char *why = link->queue->device->error();
  if (made == NULL || why != NULL) {
    pen_fail(PEN_EXIT_SYSTEM, "rank %u, transport ipc: %s: %s", link->rank, what, why == NULL ? "none" : why);
  }
}

static void offer(struct pen_link *link) {
  link->queue->order->share(link->queue->arena, link->shared->ranks[link->rank].memory_name);
  must_be_well(link, link, "naming the arena for other ranks");
}

/* Whom this rank writes to: receivers of its messages, senders that want its credits, and who gathers. */
static bool writes_to(const struct pen_link *link, uint32_t rank) {
  bool writes = link->gathers[rank];
  for (uint32_t c = 0; c < link->profile->channel_count && !writes; c++) {
    const struct pen_channel *channel = &link->profile->channels[c];
    writes = (channel->from_rank == link->rank && channel->to_rank == rank) || (channel->to_rank == link->rank && channel->from_rank == rank);
  }
  return writes && rank != link->rank;
}

static void connect(struct pen_link *link) {
  if (link->first != NULL) {
    ipc_of(link)->arenas = ((const struct ipc_link *)link->first)->arenas;
    return;
  }
  for (uint32_t r = 0; r < link->plan->rank_count; r++) {
    if (writes_to(link, r)) {
      char what[80];
      snprintf(what, sizeof what, "reaching the memory of rank %u (on one GPU, or on peers?)", r);
      ipc_of(link)->arenas[r] = link->queue->order->reach(link->shared->ranks[r].memory_name);
      must_be_well(link, ipc_of(link)->arenas[r], what);
    }
  }
}

/* ---- rows ---- */

static void follow_queue(struct pen_link *link) {
  link->queue->order->record(ipc_of(link)->ready, link->queue->stream);
  link->queue->order->follow(ipc_of(link)->copies, ipc_of(link)->ready);
}

static void send(struct pen_link *link, uint32_t index) {
  const struct pen_message *message = message_of(link, index);
  const uint32_t to = channel_of(link, index)->to_rank;
  const struct pen_order_calls *order = link->queue->order;
  void *stream = ipc_of(link)->copies;
  follow_queue(link);
  if (message->credit != PEN_NONE) {
    take(link, CREDIT, index, stream);
  }
  order->copy(ipc_of(link)->arenas[to] + message->target_offset, link->queue->arena + message->source_offset, message->bytes, stream);
  order->mark(word_of(link, to, ARRIVAL, index), 1, stream);
  order->record(ipc_of(link)->left[index], stream);
}

static void reuse(struct pen_link *link, uint32_t index) { link->queue->order->follow(link->queue->stream, ipc_of(link)->left[index]); }

/* Whoever sends from the home has left it before: the copy stream keeps the order of rows. */
static void credit(struct pen_link *link, uint32_t index, uint32_t row) {
  (void)row;
  if (message_of(link, index)->credit != PEN_NONE) {
    follow_queue(link);
    link->queue->order->mark(word_of(link, channel_of(link, index)->from_rank, CREDIT, index), 1, ipc_of(link)->copies);
  }
}

static void wait(struct pen_link *link, uint32_t index) { take(link, ARRIVAL, index, link->queue->stream); }

static void copy_entries(struct pen_link *link, uint32_t rank) {
  const struct pen_plan *plan = link->plan;
  const double *from = (const double *)(link->queue->arena + plan->memory[link->rank].board_offset);
  double *to = (double *)(ipc_of(link)->arenas[rank] + plan->memory[rank].board_offset);
  for (uint32_t first, past = 0; pen_link_entries(link, true, &first, &past);) {
    link->queue->order->copy(to + first, from + first, (past - first) * sizeof *to, ipc_of(link)->copies);
  }
}

static void publish(struct pen_link *link) {
  follow_queue(link);
  for (uint32_t r = 0; r < link->plan->rank_count; r++) {
    if (link->gathers[r] && r != link->rank) {
      copy_entries(link, r);
      link->queue->order->mark(word_of(link, r, PUBLISHED, link->rank), 1, ipc_of(link)->copies);
    }
  }
}

static void gather(struct pen_link *link) {
  for (uint32_t r = 0; r < link->plan->rank_count; r++) {
    if (r != link->rank) {
      take(link, PUBLISHED, r, link->queue->stream);
    }
  }
}

static void end(struct pen_link *link) {
  link->queue->order->record(ipc_of(link)->ready, ipc_of(link)->copies);
  link->queue->order->follow(link->queue->stream, ipc_of(link)->ready);
}

static const char *no_error(struct pen_link *link, uint32_t *peer) {
  *peer = link->rank; /* what goes wrong here is the device's to say */
  return NULL;
}

static void no_abort(struct pen_link *link) { (void)link; /* nothing on the device outlives the process */ }

static const struct pen_link_kind ipc = {
    .name = "ipc",
    .offer = offer,
    .connect = connect,
    .send = send,
    .reuse = reuse,
    .credit = credit,
    .wait = wait,
    .publish = publish,
    .gather = gather,
    .end = end,
    .uncaptured = pen_link_captures,
    .forget = pen_link_captures,
    .all_captured = pen_link_captured,
    .error = no_error,
    .abort = no_abort,
};

struct pen_link *pen_ipc_open(struct pen_queue *queue, const struct pen_profile *profile, const struct pen_shared *shared, uint32_t rank) {
  struct ipc_link *made = calloc(1, sizeof *made);
  pen_check(made != NULL, "no memory for a link");
  pen_link_fill(&made->link, queue, profile, shared, rank);
  made->link.kind = &ipc;
  made->copies = queue->device->stream_open();
  made->ready = queue->order->event_open();
  made->left = calloc(profile->message_count + 1u, sizeof *made->left);
  made->arenas = calloc(queue->plan->rank_count, sizeof *made->arenas);
  pen_check(made->left != NULL && made->arenas != NULL, "no memory for a link");
  for (uint32_t m = 0; m < profile->message_count; m++) {
    made->left[m] = channel_of(&made->link, m)->from_rank == rank ? queue->order->event_open() : NULL;
  }
  must_be_well(&made->link, made->copies, "a stream and its events");
  return &made->link;
}
