/* ipc.c: the link between ranks of one host, each with an arena on a GPU: on one GPU, or on several
 * that reach each other's memory.
 *
 * Every rank opens the arenas of those that it writes to (CUDA IPC; the blocks' names go by the
 * memory of control.h). A message is then a copy into its home, and news of it a word beside: the
 * flags of the step part (plan.h), in the arena of whoever waits for them. A word is 0 or 1: the
 * one that waits for 1 sets 0 again, so that each step does the same and can be a graph. No kernel
 * spins: words are written and awaited by the streams themselves (kernels.h, mark, mark_far and
 * await).
 *
 *     queue's stream   ... computes X | ready --+ ......................... reuse: waits for left |
 * computes over X copy stream                               +-> [credit = 1?, 0] copy X -> home |
 * arrival := 1 | left receiver's copy stream  ... credit := 1 (if any) | ... receiver's       ... |
 * [arrival = 1?, 0] computes with it
 *
 * One copy stream a rank: all that others hear of it, messages, credits and board, leaves in the
 * order of its rows, so that whoever has heard of a row knows that the messages of the rows before
 * it are gone, too. That is what homes without a credit are proved by (verify_memory.c). Nothing
 * waits longer than where each row is done before the next (shm.c), hence no deadlock where that
 * has none.
 *
 * No word is set anew before it was read: the next step's news of a message needs its home, whose
 * last use comes behind the wait; the next credit comes behind the message that the last one let
 * go; entries of the board come behind the computation of the next step, of which each rank's
 * depends on each gathering rank's.
 *
 * Replicas. A row of the exchange reads its peers' memory where it lies: kernels and copies of the
 * queue's stream do. Each has a word at every peer for each of its rows that they wait for, set
 * behind the row on the queue's stream. A row that waits for the first E needs no word where one
 * above it has waited for as many; all lists being alike, each rank knows which words its peers
 * take. UNSHARD reads what the step before has updated: so, where there is one, a step of training
 * ends when all peers have ended their last row. Evaluation updates nothing, and before a step of
 * another profile all ranks have ended theirs. These words, too, are read before they are set anew.
 * UPDATE waits for the last row above it, whose rank has by then taken all words of rows above that
 * one; and every word that a row below the first wait of the next step sets comes when the peer has
 * been heard of in that step. Other replicas' entries of the board come behind REDUCE_SCATTER of
 * the next step, hence behind the last backward of the peer, and this behind something of every
 * rank of its replica. */
#include <stdio.h>
#include <stdlib.h>

#include "kernels/kernels.h"
#include "runtime/base/check.h"
#include "runtime/device/link.h"
#include "runtime/comm/step_stats.h"

struct ipc_link {
  struct pen_link link;
  void *copies; /* stream */
  void *ready;  /* event: the queue's stream, for what is to leave */
  void **left;  /* [messages] events: gone from its source; null for others' messages */
  unsigned char *
      *arenas;   /* [processes]: as this process sees them; null where nothing is written or read */
  bool *awaited; /* [exchange_count + 1]: whether peers wait for the row of that number */
  uint32_t exchanged, heard; /* in the step that is enqueued: rows of the exchange that have ended
                                here; that peers are known to have ended */
};

static struct ipc_link *ipc_of(struct pen_link *link) { return (struct ipc_link *)link; }

static const struct pen_message *message_of(const struct pen_link *link, uint32_t message) {
  return &link->profile->messages[message];
}

/* The process of a rank of this replica. */
static uint32_t process_of(const struct pen_link *link, uint32_t rank) {
  return pen_link_process(link, rank);
}

static const struct pen_channel *channel_of(const struct pen_link *link, uint32_t message) {
  return &link->profile->channels[message_of(link, message)->channel];
}

/* ---- the words of a rank, see plan.h ---- */

enum word { ARRIVAL, CREDIT, PUBLISHED, EXCHANGED };

static uint32_t *word_of(struct pen_link *link, uint32_t process, enum word what, uint32_t index) {
  const uint32_t messages = link->profile->message_count, rank = process % link->plan->rank_count;
  const uint32_t first[] = {[ARRIVAL] = 0,
                            [CREDIT] = messages,
                            [PUBLISHED] = 2 * messages,
                            [EXCHANGED] = 2 * messages + pen_process_count(link->plan)};
  unsigned char *arena =
      process == pen_link_self(link) ? link->queue->arena : ipc_of(link)->arenas[process];
  pen_assert(arena != NULL);
  return (uint32_t *)(arena + link->plan->memory[rank].flags_offset) + first[what] + index;
}

/* Waits for an own word, and takes it. */
static void take(struct pen_link *link, enum word what, uint32_t index, void *stream) {
  uint32_t *word = word_of(link, pen_link_self(link), what, index);
  link->queue->device->wait_value(word, 1, stream);
  link->queue->device->signal(word, 0, stream);
}

/* ---- before the seal ---- */

static void must_be_well(const struct pen_link *link, const void *made, const char *what) {
  const char *why = link->queue->device->error();
  if (made == NULL || why != NULL) {
    pen_fail(PEN_EXIT_SYSTEM, "rank %u, transport ipc: %s: %s", pen_link_self(link), what,
             why == NULL ? "none" : why);
  }
}

static void offer(struct pen_link *link) {
  link->queue->device->export_memory(link->queue->arena,
                                     link->shared->ranks[pen_link_self(link)].memory_name);
  must_be_well(link, link, "naming the arena for other ranks");
}

/* Whose memory this rank writes or reads: receivers of its messages, senders that want its credits,
 * who gathers its entries, and its peers. */
static bool reaches(const struct pen_link *link, uint32_t process) {
  const uint32_t rank = process % link->plan->rank_count;
  const bool ours = process == process_of(link, rank);
  bool reached = pen_link_gathers(link, process) || rank == link->rank;
  for (uint32_t c = 0; c < link->profile->channel_count && ours && !reached; c++) {
    const struct pen_channel *channel = &link->profile->channels[c];
    reached = (channel->from_rank == link->rank && channel->to_rank == rank) ||
              (channel->to_rank == link->rank && channel->from_rank == rank);
  }
  return reached && process != pen_link_self(link);
}

static void connect(struct pen_link *link) {
  if (link->first != NULL) {
    ipc_of(link)->arenas = ((const struct ipc_link *)link->first)->arenas;
    return;
  }
  for (uint32_t r = 0; r < pen_process_count(link->plan); r++) {
    if (reaches(link, r)) {
      char what[80];
      snprintf(what, sizeof what, "reaching the memory of rank %u (on one GPU, or on peers?)", r);
      ipc_of(link)->arenas[r] =
          link->queue->device->import_memory(link->shared->ranks[r].memory_name);
      must_be_well(link, ipc_of(link)->arenas[r], what);
    }
  }
}

/* ---- rows ---- */

static void follow_queue(struct pen_link *link) {
  link->queue->device->event_record(ipc_of(link)->ready, link->queue->stream);
  link->queue->device->stream_wait_event(ipc_of(link)->copies, ipc_of(link)->ready);
}

static void send(struct pen_link *link, uint32_t index) {
  const struct pen_message *message = message_of(link, index);
  const uint32_t to = process_of(link, channel_of(link, index)->to_rank);
  const struct pen_device *device = link->queue->device;
  void *stream = ipc_of(link)->copies;
  follow_queue(link);
  if (message->credit != PEN_NONE) {
    take(link, CREDIT, index, stream);
  }
  device->copy(ipc_of(link)->arenas[to] + message->target_offset,
               link->queue->arena + message->source_offset, message->bytes, stream);
  device->signal_remote(word_of(link, to, ARRIVAL, index), stream);
  device->event_record(ipc_of(link)->left[index], stream);
}

static void reuse(struct pen_link *link, uint32_t index) {
  link->queue->device->stream_wait_event(link->queue->stream, ipc_of(link)->left[index]);
}

/* Whoever sends from the home has left it before: the copy stream keeps the order of rows. */
static void credit(struct pen_link *link, uint32_t index, uint32_t row) {
  (void)row;
  if (message_of(link, index)->credit != PEN_NONE) {
    follow_queue(link);
    link->queue->device->signal_remote(
        word_of(link, process_of(link, channel_of(link, index)->from_rank), CREDIT, index),
        ipc_of(link)->copies);
  }
}

static void wait(struct pen_link *link, uint32_t index) {
  take(link, ARRIVAL, index, link->queue->stream);
}

static void copy_entries(struct pen_link *link, uint32_t process) {
  const struct pen_plan *plan = link->plan;
  const size_t own = pen_step_stats_first(plan, link->replica);
  const double *from =
      (const double *)(link->queue->arena + plan->memory[link->rank].step_stats_offset) + own;
  double *to = (double *)(ipc_of(link)->arenas[process] +
                          plan->memory[process % plan->rank_count].step_stats_offset) +
               own;
  for (uint32_t first, past = 0; pen_link_entries(link, true, &first, &past);) {
    link->queue->device->copy(to + first, from + first, (past - first) * sizeof *to,
                              ipc_of(link)->copies);
  }
}

static void publish(struct pen_link *link) {
  follow_queue(link);
  for (uint32_t r = 0; r < pen_process_count(link->plan); r++) {
    if (pen_link_gathers(link, r) && r != pen_link_self(link)) {
      copy_entries(link, r);
      link->queue->device->signal_remote(word_of(link, r, PUBLISHED, pen_link_self(link)),
                                         ipc_of(link)->copies);
    }
  }
}

/* From all whose entries come: see pen_link_gathers(). */
static void gather(struct pen_link *link) {
  for (uint32_t r = 0; r < pen_process_count(link->plan); r++) {
    const bool comes =
        link->profile->kind == PEN_TRAIN || r / link->plan->rank_count == link->replica;
    if (comes && r != pen_link_self(link)) {
      take(link, PUBLISHED, r, link->queue->stream);
    }
  }
}

/* ---- the exchange between replicas ---- */

/* The words of a peer's rows in this rank's memory, or of this rank's rows in a peer's. */
static uint32_t exchange_word(const struct pen_link *link, uint32_t of_replica, uint32_t number) {
  return of_replica * link->exchange_count + number - 1;
}

static void peers_reached(struct pen_link *link, uint32_t count) {
  struct ipc_link *own = ipc_of(link);
  for (uint32_t d = 0; d < link->plan->replica_count && count > own->heard; d++) {
    if (d != link->replica) {
      take(link, EXCHANGED, exchange_word(link, d, count), link->queue->stream);
    }
  }
  own->heard = count > own->heard ? count : own->heard;
}

static void exchanged(struct pen_link *link) {
  struct ipc_link *own = ipc_of(link);
  own->exchanged++;
  for (uint32_t d = 0; d < link->plan->replica_count && own->awaited[own->exchanged]; d++) {
    if (d != link->replica) {
      const uint32_t peer = d * link->plan->rank_count + link->rank;
      link->queue->device->signal_remote(
          word_of(link, peer, EXCHANGED, exchange_word(link, link->replica, own->exchanged)),
          link->queue->stream);
    }
  }
}

static const unsigned char *peer_arena(struct pen_link *link, uint32_t replica) {
  return replica == link->replica
             ? link->queue->arena
             : ipc_of(link)->arenas[replica * link->plan->rank_count + link->rank];
}

/* Each side takes what it wants. */
static void swap(struct pen_link *link, const struct pen_sendrecv *swap) {
  if (swap->their_bytes > 0) {
    link->queue->device->copy(swap->to, peer_arena(link, swap->replica) + swap->theirs,
                              swap->their_bytes, link->queue->stream);
  }
}

static void no_group(struct pen_link *link) { (void)link; }

/* What is sent leaves, a credit of what is received, and PUBLISH where somebody gathers. */
static void *leaving(const struct pen_link *link, const struct pen_action *row) {
  bool leaves = pen_kind_sends(row->kind);
  if (pen_kind_receives(row->kind)) {
    leaves = message_of(link, row->message)->credit != PEN_NONE;
  }
  for (uint32_t r = 0; r < pen_process_count(link->plan) && row->kind == PEN_PUBLISH; r++) {
    leaves = leaves || (pen_link_gathers(link, r) && r != pen_link_self(link));
  }
  return leaves ? ((const struct ipc_link *)link)->copies : NULL;
}

/* How many rows of the exchange the peers must have ended at a step's end: see the top. */
static uint32_t last_awaited(const struct pen_link *link) {
  const struct pen_rank_program *program = &link->profile->ranks[link->rank];
  bool brings_together = false;
  for (uint32_t i = 0; i < program->action_count; i++) {
    brings_together = brings_together || program->actions[i].kind == PEN_UNSHARD;
  }
  return brings_together && link->profile->kind == PEN_TRAIN ? link->exchange_count : 0;
}

/* Which rows' ends a peer waits for, as peers_reached() does. */
static void find_awaited(struct pen_link *link) {
  const struct pen_rank_program *program = &link->profile->ranks[link->rank];
  uint32_t heard = 0;
  for (uint32_t i = 0; i < program->action_count && link->exchange_count > 0; i++) {
    const struct pen_action *row = &program->actions[i];
    if (pen_kind_is_collective(row->kind) && row->awaited_collective > heard) {
      heard = row->awaited_collective;
      ipc_of(link)->awaited[heard] = true;
    }
  }
  link->end_exchange = last_awaited(link);
  if (link->end_exchange > heard) {
    ipc_of(link)->awaited[link->end_exchange] = true;
  }
}

static void end(struct pen_link *link) {
  peers_reached(link, link->end_exchange);
  ipc_of(link)->exchanged = ipc_of(link)->heard = 0;
  link->queue->device->event_record(ipc_of(link)->ready, ipc_of(link)->copies);
  link->queue->device->stream_wait_event(link->queue->stream, ipc_of(link)->ready);
}

static const char *no_error(struct pen_link *link, uint32_t *peer) {
  *peer = pen_link_self(link); /* what goes wrong here is the device's to say */
  return NULL;
}

static void no_abort(struct pen_link *link) {
  (void)link; /* nothing on the device outlives the process */
}

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
    .peers_reached = peers_reached,
    .exchanged = exchanged,
    .peer_arena = peer_arena,
    .swap_begin = no_group,
    .swap = swap,
    .swap_end = no_group,
    .leaving = leaving,
    .end = end,
    .uncaptured = pen_link_captures,
    .forget = pen_link_captures,
    .all_captured = pen_link_captured,
    .error = no_error,
    .abort = no_abort,
};

struct pen_link *pen_ipc_open(struct pen_stream_state *queue, const struct pen_profile *profile,
                              const struct pen_shared *shared, uint32_t global) {
  struct ipc_link *made = calloc(1, sizeof *made);
  pen_check(made != NULL, "no memory for a link");
  pen_link_fill(&made->link, queue, profile, shared, global);
  made->link.kind = &ipc;
  made->copies = queue->device->stream_create();
  made->ready = queue->device->event_create();
  made->left = calloc(profile->message_count + 1u, sizeof *made->left);
  made->arenas = calloc(pen_process_count(queue->plan), sizeof *made->arenas);
  made->awaited = calloc(made->link.exchange_count + 1u, sizeof *made->awaited);
  pen_check(made->left != NULL && made->arenas != NULL && made->awaited != NULL,
            "no memory for a link");
  find_awaited(&made->link);
  for (uint32_t m = 0; m < profile->message_count; m++) {
    made->left[m] = channel_of(&made->link, m)->from_rank == made->link.rank
                        ? queue->device->event_create()
                        : NULL;
  }
  must_be_well(&made->link, made->copies, "a stream and its events");
  return &made->link;
}
