/* lower.c: from a compute order to rows: sends, receives, waits, and the end of the step.
 *
 * The simulated run is replayed in global order. When an action whose result another rank needs
 * ends, its message is entered: SEND into the sender's list, RECV into the receiver's, at the same
 * turn; so the receive stands before the first action that the receiver starts after the message
 * left, and both ranks hold their communication in one common order. One common order of all rows
 * exists, hence no deadlock however little the transport buffers (the argument of PyTorch's
 * _add_send_recv, with time instead of list position as the clock). A WAIT stands right before the
 * action that reads the message, so that a RECV never holds up computation that does not need it;
 * the waits of both of a pair a|b stand before a, for b starts with it.
 *
 * A transport may begin to move a message only when its receive stands, and until then the sender
 * may have to wait (for the credit of a put, for its partner in a rendezvous). So where the
 * receiver computes while the message leaves, the receive is put before that computation, which
 * then hides the way. Receives keep their order: those already behind it go along.
 *
 * A tied matrix that learns (struct pen_tie), its head on another rank than its embedding: the
 * head's gradient leaves as a message like any other when the head's rank has computed all that it
 * does in the step, so that it travels while the owner still computes; the owner waits for it
 * before it joins the two. The updated weight goes back behind UPDATE, and is awaited at once: the
 * head is not wanted before the next step's first microbatch has come all the way from the
 * embedding, so nobody loses time.
 *
 * End of a step: every rank publishes its squares of gradient norms and its losses; with clipping
 * all gather them before the update; without, only rank 0 gathers, for the log, and nobody waits
 * for it. With replicas exchange.c says where their rows stand. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "gen/base/arena.h"
#include "gen/base/error.h"
#include "gen/partition/partition.h"
#include "gen/partition/training.h"
#include "gen/schedule/order.h"
#include "gen/timing/timing.h"
#include "gen/timing/gradient_exchange.h"
#include "gen/lower/lower.h"
#include "runtime/plan/plan.h"

enum { MOVED_MAX = 4 }; /* rows of a pair with a WAIT each */

/* What messages carry, and the kinds of their rows. */
enum way { FORWARD, BACKWARD, HEAD_GRADIENT, HEAD_VALUE, WAYS };
static const uint8_t send_kind[WAYS] = {PEN_SEND_F, PEN_SEND_B, PEN_SEND_G, PEN_SEND_V},
                     receive_kind[WAYS] = {PEN_RECV_F, PEN_RECV_B, PEN_RECV_G, PEN_RECV_V},
                     wait_kind[WAYS] = {PEN_WAIT_F, PEN_WAIT_B, PEN_WAIT_G, PEN_WAIT_V};

/* A message that waits to leave. */
struct pending {
  double end;
  uint64_t turn;
  enum way way;
  uint32_t stage, microbatch;
};

/* The compute action that a rank is at: its first row (a pair's, a WAIT's) and when it ends. */
struct running {
  uint32_t first_row, row_count;
  double end;
};

struct lowering {
  const struct pen_partition *partition;
  struct running *running;                /* [rank] */
  const struct pen_collectives *exchange; /* null: no replicas */
  uint32_t *exchanged;                    /* [rank] rows of it that stand */
  struct pen_lowered *out;
  size_t *capacity; /* [rank] */
  size_t message_capacity;
  uint32_t *message_of[2];    /* F, B: [stage * microbatches + microbatch], by sending stage */
  uint32_t tie_message[WAYS]; /* HEAD_GRADIENT, HEAD_VALUE */
  bool joins, ties_ranks; /* a tied matrix learns; its head is on another rank than its embedding */
  struct pending *heap;
  size_t heap_count, heap_capacity;
};

/* Adds an action; `message` is 0 for kinds without one. Returns it, for further columns. */
static struct pen_action *append(struct lowering *l, uint32_t rank, int kind, uint32_t stage,
                                 uint32_t microbatch, uint32_t message) {
  uint32_t n = l->out->count[rank]++;
  l->out->action[rank] =
      pen_grow(l->out->action[rank], &l->capacity[rank], n + 1u, sizeof **l->out->action);
  l->out->action[rank][n] = (struct pen_action){.kind = (uint8_t)kind,
                                                .stage = (uint16_t)stage,
                                                .microbatch = microbatch,
                                                .message = message};
  return &l->out->action[rank][n];
}

/* What a compute, SEND or RECV row of the schedule hands on or takes. */
static enum way way_of(int kind) {
  return kind == PEN_F || kind == PEN_SEND_F || kind == PEN_RECV_F ? FORWARD : BACKWARD;
}

/* ---- channels ---- */

static int compare_channels(const void *a, const void *b) {
  const struct pen_channel *x = a, *y = b;
  if (x->from_rank != y->from_rank) return x->from_rank < y->from_rank ? -1 : 1;
  return (x->to_rank > y->to_rank) - (x->to_rank < y->to_rank);
}

static uint32_t owner_of_tie(const struct lowering *l) { return l->partition->rank_of[0]; }

static uint32_t head_of_tie(const struct lowering *l) {
  return l->partition->rank_of[l->partition->stage_count - 1];
}

/* Every directed pair of ranks that may talk in this profile, sorted, once. */
static void make_channels(struct lowering *l, bool backward) {
  const struct pen_partition *p = l->partition;
  struct pen_channel *channel = pen_new(2 * (size_t)p->stage_count + 1, sizeof *channel);
  uint32_t count = 0, kept = 0;
  if (l->ties_ranks) {
    channel[count++] =
        (struct pen_channel){.from_rank = head_of_tie(l), .to_rank = owner_of_tie(l)};
    channel[count++] =
        (struct pen_channel){.from_rank = owner_of_tie(l), .to_rank = head_of_tie(l)};
  }
  for (uint32_t s = 0; s + 1 < p->stage_count; s++) {
    uint32_t from = p->rank_of[s], to = p->rank_of[s + 1];
    if (from == to) continue;
    channel[count++] = (struct pen_channel){.from_rank = from, .to_rank = to};
    if (backward) channel[count++] = (struct pen_channel){.from_rank = to, .to_rank = from};
  }
  qsort(channel, count, sizeof *channel, compare_channels);
  for (uint32_t i = 0; i < count; i++)
    if (!kept || compare_channels(&channel[kept - 1], &channel[i])) channel[kept++] = channel[i];
  l->out->channel = channel;
  l->out->channel_count = kept;
}

static uint32_t channel_of(const struct lowering *l, uint32_t from, uint32_t to) {
  struct pen_channel key = {.from_rank = from, .to_rank = to};
  struct pen_channel *found =
      bsearch(&key, l->out->channel, l->out->channel_count, sizeof key, compare_channels);
  return found ? (uint32_t)(found - l->out->channel) : PEN_NONE;
}

/* ---- messages ---- */

static size_t slot_of(const struct lowering *l, uint32_t stage, uint32_t microbatch) {
  return (size_t)stage * l->partition->microbatch_count + microbatch;
}

/* The stage that reads what `stage` sends, or PEN_NONE at the end of the model. */
static uint32_t reader_of(const struct lowering *l, enum way way, uint32_t stage) {
  uint32_t last = l->partition->stage_count - 1;
  switch (way) {
    case FORWARD: return stage < last ? stage + 1 : PEN_NONE;
    case BACKWARD: return stage ? stage - 1 : PEN_NONE;
    default: return last - stage; /* between the first and the last */
  }
}

static bool crosses(const struct lowering *l, enum way way, uint32_t stage) {
  uint32_t reader = reader_of(l, way, stage);
  return reader != PEN_NONE && l->partition->rank_of[reader] != l->partition->rank_of[stage];
}

static uint32_t *message_at(struct lowering *l, enum way way, uint32_t stage, uint32_t microbatch) {
  return way <= BACKWARD ? &l->message_of[way][slot_of(l, stage, microbatch)]
                         : &l->tie_message[way];
}

/* A new message, last on its channel. */
static uint32_t add_message(struct lowering *l, enum way way, uint32_t stage, uint32_t microbatch) {
  struct pen_lowered *out = l->out;
  uint32_t reader = reader_of(l, way, stage);
  uint32_t channel = channel_of(l, l->partition->rank_of[stage], l->partition->rank_of[reader]);
  out->message =
      pen_grow(out->message, &l->message_capacity, out->message_count + 1u, sizeof *out->message);
  out->message[out->message_count] =
      (struct pen_message){.kind = send_kind[way],
                           .stage = (uint16_t)stage,
                           .microbatch = microbatch,
                           .channel = channel,
                           .sequence = out->channel[channel].message_count++,
                           .credit = PEN_NONE};
  *message_at(l, way, stage, microbatch) = out->message_count;
  return out->message_count++;
}

/* ---- the replay ---- */

static bool before(const struct pending *a, const struct pending *b) {
  return a->end != b->end ? a->end < b->end : a->turn < b->turn;
}

static void push(struct lowering *l, struct pending item) {
  l->heap = pen_grow(l->heap, &l->heap_capacity, l->heap_count + 1, sizeof *l->heap);
  size_t i = l->heap_count++;
  for (; i && before(&item, &l->heap[(i - 1) / 2]); i = (i - 1) / 2)
    l->heap[i] = l->heap[(i - 1) / 2];
  l->heap[i] = item;
}

static struct pending pop(struct lowering *l) {
  struct pending top = l->heap[0], last = l->heap[--l->heap_count];
  size_t i = 0;
  for (size_t child = 1; child < l->heap_count; child = 2 * i + 1) {
    if (child + 1 < l->heap_count && before(&l->heap[child + 1], &l->heap[child])) child++;
    if (!before(&l->heap[child], &last)) break;
    l->heap[i] = l->heap[child];
    i = child;
  }
  l->heap[i] = last;
  return top;
}

/* Moves what a rank computes behind the receives that follow it. */
static void postpone(struct lowering *l, uint32_t rank) {
  struct running *running = &l->running[rank];
  struct pen_action *row = &l->out->action[rank][running->first_row], moved[MOVED_MAX];
  uint32_t after = l->out->count[rank] - running->first_row - running->row_count;
  if (running->row_count > MOVED_MAX) return;
  memcpy(moved, row, running->row_count * sizeof *row);
  memmove(row, row + running->row_count, after * sizeof *row);
  memcpy(row + after, moved, running->row_count * sizeof *row);
  running->first_row += after;
}

/* Enters a message into both ranks' lists. */
static void enter(struct lowering *l, enum way way, uint32_t stage, uint32_t microbatch) {
  uint32_t message = add_message(l, way, stage, microbatch), reader = reader_of(l, way, stage);
  append(l, l->partition->rank_of[stage], send_kind[way], stage, microbatch, message);
  append(l, l->partition->rank_of[reader], receive_kind[way], reader, microbatch, message);
}

/* Enters the messages of all actions that have ended by `time`. */
static void deliver(struct lowering *l, double time) {
  while (l->heap_count && l->heap[0].end <= time) {
    struct pending item = pop(l);
    uint32_t to = l->partition->rank_of[reader_of(l, item.way, item.stage)];
    enter(l, item.way, item.stage, item.microbatch);
    if (l->running[to].end > item.end) postpone(l, to);
  }
}

/* The wait for what a compute action reads from another rank, if anything. */
static void append_wait(struct lowering *l, uint32_t rank, int kind, uint32_t stage,
                        uint32_t microbatch) {
  enum way way = way_of(kind);
  if (kind == PEN_W || (way == BACKWARD ? stage + 1 == l->partition->stage_count : stage == 0))
    return;
  uint32_t sender = way == BACKWARD ? stage + 1u : stage - 1u;
  if (!crosses(l, way, sender)) return;
  append(l, rank, wait_kind[way], stage, microbatch, *message_at(l, way, sender, microbatch));
}

/* The rows of the exchange that stand before a compute action of a rank. */
static void append_exchange(struct lowering *l, uint32_t rank, uint32_t index) {
  if (!l->exchange) return;
  const struct pen_collective *row = l->exchange->row[rank];
  for (uint32_t *next = &l->exchanged[rank];
       *next < l->exchange->count[rank] && row[*next].before <= index; (*next)++)
    append(l, rank, row[*next].kind, row[*next].stage, 0, 0);
}

/* What a rank does at the end of a step of training; `gathers` before the update. */
static void end_training_step(struct lowering *l, uint32_t rank, bool gathers) {
  uint32_t last = l->partition->stage_count - 1;
  bool owns = l->joins && rank == owner_of_tie(l), heads = l->ties_ranks && rank == head_of_tie(l);
  append_exchange(l, rank, PEN_AFTER_TIED_GRAD - 1);
  if (owns && l->ties_ranks) append(l, rank, PEN_WAIT_G, 0, 0, l->tie_message[HEAD_GRADIENT]);
  if (owns)
    append(l, rank, PEN_ADD_TIED_GRAD, 0, 0,
           l->ties_ranks ? l->tie_message[HEAD_GRADIENT] : PEN_NONE);
  append_exchange(l, rank, PEN_AFTER_TIED_GRAD);
  append(l, rank, PEN_NORM, 0, 0, 0);
  append(l, rank, PEN_PUBLISH, 0, 0, 0);
  if (gathers) append(l, rank, PEN_WAIT_NORM, 0, 0, 0);
  append(l, rank, PEN_UPDATE, 0, 0, 0);
  append_exchange(l, rank, PEN_AFTER_UPDATE);
  if (owns && l->ties_ranks) append(l, rank, PEN_SEND_V, 0, 0, l->tie_message[HEAD_VALUE]);
  if (heads) append(l, rank, PEN_RECV_V, last, 0, l->tie_message[HEAD_VALUE]);
  if (heads) append(l, rank, PEN_WAIT_V, last, 0, l->tie_message[HEAD_VALUE]);
}

/* What each row of the exchange waits for: the row that it continues; UPDATE the last above it. */
static void number_exchange(struct lowering *l, uint32_t rank) {
  uint32_t *last[PEN_ACTION_KINDS] = {0}, ended = 0, updated = 0;
  const uint8_t follows[PEN_ACTION_KINDS] = {
      [PEN_REDUCE_SCATTER] = PEN_GRAD_READY, [PEN_ALL_GATHER_GRAD] = PEN_REDUCE_SCATTER};
  for (int kind = PEN_GRAD_READY; kind < PEN_ACTION_KINDS; kind++)
    last[kind] = pen_new(l->partition->stage_count, sizeof(uint32_t));
  for (uint32_t i = 0; l->exchange && i < l->out->count[rank]; i++) {
    struct pen_action *row = &l->out->action[rank][i];
    if (!pen_kind_is_collective(row->kind)) continue;
    if (row->kind == PEN_UPDATE)
      row->awaited_collective = ended;
    else if (row->kind == PEN_ALL_GATHER_WEIGHT)
      row->awaited_collective = updated;
    else if (follows[row->kind]) /* the others wait for earlier steps alone */
      row->awaited_collective = last[follows[row->kind]][row->stage];
    ended++;
    if (row->kind == PEN_UPDATE) updated = ended;
    if (row->kind != PEN_UPDATE) last[row->kind][row->stage] = ended;
  }
}

static void end_step(struct lowering *l, int profile_kind, bool gather_before_update) {
  bool train = profile_kind == PEN_TRAIN;
  if (l->ties_ranks) add_message(l, HEAD_VALUE, 0, 0);
  for (uint32_t rank = 0; rank < l->out->rank_count; rank++) {
    if (!train) append_exchange(l, rank, PEN_AFTER_UPDATE);
    if (train)
      end_training_step(l, rank, gather_before_update);
    else
      append(l, rank, PEN_PUBLISH, 0, 0, 0);
    if (rank == 0 && !(train && gather_before_update)) append(l, rank, PEN_WAIT_NORM, 0, 0, 0);
    number_exchange(l, rank);
  }
}

static struct lowering start(const struct pen_partition *partition,
                             const struct pen_training *training, bool backward) {
  struct lowering l = {.partition = partition,
                       .out = pen_new(1, sizeof(struct pen_lowered)),
                       .joins = backward && training->adds_tied_gradient};
  l.ties_ranks = l.joins && owner_of_tie(&l) != head_of_tie(&l);
  size_t slots = (size_t)partition->stage_count * partition->microbatch_count;
  l.out->rank_count = partition->rank_count;
  l.out->count = pen_new(partition->rank_count, sizeof *l.out->count);
  l.out->action = pen_new(partition->rank_count, sizeof *l.out->action);
  l.capacity = pen_new(partition->rank_count, sizeof *l.capacity);
  l.exchanged = pen_new(partition->rank_count, sizeof *l.exchanged);
  for (int b = 0; b < 2; b++) {
    l.message_of[b] = pen_new(slots, sizeof **l.message_of);
    memset(l.message_of[b], 0xff, slots * sizeof **l.message_of);
  }
  make_channels(&l, backward);
  return l;
}

/* A compute action by its place in the orders. */
struct event {
  uint32_t rank, index;
};

/* All compute actions by turn, which numbers them from 0. */
static struct event *sorted_events(const struct pen_order *order, const struct pen_timing *timing,
                                   size_t *count) {
  *count = 0;
  for (uint32_t r = 0; r < order->rank_count; r++) *count += order->count[r];
  struct event *event = pen_new(*count + 1, sizeof *event);
  for (uint32_t r = 0; r < order->rank_count; r++)
    for (uint32_t i = 0; i < order->count[r]; i++) {
      if (timing->turn[r][i] >= *count)
        pen_stop(70, "lower: the order of rank %u stops at action %u", r, i);
      event[timing->turn[r][i]] = (struct event){r, i};
    }
  return event;
}

/* Makes room for the rows of every rank. */
static void reserve(struct lowering *l, const struct pen_order *order) {
  enum { STEP_END_MAX = 10 };
  size_t messages = 0, *rows = pen_new(order->rank_count, sizeof *rows);
  for (uint32_t r = 0; r < order->rank_count; r++)
    for (uint32_t i = 0; i < order->count[r]; i++) {
      const struct pen_compute *c = &order->action[r][i];
      enum way way = way_of(c->kind);
      rows[r]++;
      if (c->kind == PEN_W || !crosses(l, way, c->stage)) continue;
      messages++;
      rows[r]++;
      rows[l->partition->rank_of[reader_of(l, way, c->stage)]] += 2;
    }
  for (uint32_t r = 0; r < order->rank_count; r++) {
    l->capacity[r] = rows[r] + STEP_END_MAX + (l->exchange ? l->exchange->count[r] : 0);
    l->out->action[r] = pen_new(l->capacity[r], sizeof **l->out->action);
  }
  l->message_capacity = messages + 2;
  l->out->message = pen_new(l->message_capacity, sizeof *l->out->message);
}

/* Appends a compute action; the second of a pair runs with the first, before which the waits of
 * both stand. */
static void append_compute(struct lowering *l, uint32_t rank, const struct pen_compute *c,
                           double end, bool second) {
  struct running *running = &l->running[rank];
  if (!second) {
    *running = (struct running){l->out->count[rank], 0, end};
    append_wait(l, rank, c->kind, c->stage, c->microbatch);
  }
  if (c->overlaps) append_wait(l, rank, c[1].kind, c[1].stage, c[1].microbatch);
  append(l, rank, c->kind, c->stage, c->microbatch, 0)->overlaps = c->overlaps;
  running->row_count = l->out->count[rank] - running->first_row;
}

struct pen_lowered *pen_lower(const struct pen_order *order, const struct pen_partition *partition,
                              const struct pen_training *training, const struct pen_timing *timing,
                              int profile_kind) {
  struct lowering l = start(partition, training, profile_kind == PEN_TRAIN);
  l.running = pen_new(partition->rank_count, sizeof *l.running);
  l.exchange = timing->exchange ? timing->exchange
                                : pen_collectives_of(order, partition, training, NULL, NULL,
                                                     PEN_COLLECTIVES_LAST, profile_kind);
  reserve(&l, order);
  size_t count;
  const struct event *event = sorted_events(order, timing, &count);
  for (size_t i = 0; i < count; i++) {
    uint32_t rank = event[i].rank, index = event[i].index;
    const struct pen_compute *c = &order->action[rank][index];
    bool second =
        index > 0 &&
        c[-1]
            .overlaps; /* of a pair: it comes at the next turn, and stands right behind the first */
    double ends = timing->end[rank][index];
    if (!second) deliver(&l, timing->start[rank][index]);
    if (!second) append_exchange(&l, rank, index);
    append_compute(&l, rank, c, ends, second);
    if (c->kind != PEN_W && crosses(&l, way_of(c->kind), c->stage))
      push(&l, (struct pending){ends, i, way_of(c->kind), c->stage, c->microbatch});
    bool last = l.ties_ranks && rank == head_of_tie(&l) && index + 1 == order->count[rank];
    if (last) push(&l, (struct pending){ends, count, HEAD_GRADIENT, partition->stage_count - 1, 0});
  }
  deliver(&l, (double)INFINITY);
  end_step(&l, profile_kind, training->waits_for_norm);
  return l.out;
}

struct pen_lowered *pen_lower_forward(const struct pen_order *order,
                                      const struct pen_partition *partition,
                                      const struct pen_training *training) {
  struct pen_stage_cost *cost = pen_new(partition->stage_count, sizeof *cost);
  for (uint32_t s = 0; s < partition->stage_count; s++) cost[s].forward = 1;
  return pen_lower(order, partition, training, pen_simulate(order, partition, training, cost, -1),
                   PEN_EVAL);
}

struct pen_order *pen_order_of_actions(struct pen_action *const *action, const uint32_t *count,
                                       uint32_t rank_count) {
  struct pen_order *order = pen_new(1, sizeof *order);
  *order = (struct pen_order){rank_count, pen_new(rank_count, sizeof(uint32_t)),
                              pen_new(rank_count, sizeof(struct pen_compute *))};
  for (uint32_t r = 0; r < rank_count; r++) {
    order->action[r] = pen_new(count[r] + 1u, sizeof **order->action);
    for (uint32_t i = 0; i < count[r]; i++) {
      const struct pen_action *a = &action[r][i];
      if (a->kind <= PEN_W)
        order->action[r][order->count[r]++] =
            (struct pen_compute){a->kind, a->overlaps, a->stage, a->microbatch};
    }
  }
  return order;
}

struct pen_lowered *pen_lower_given(struct pen_action *const *action, const uint32_t *count,
                                    const struct pen_partition *partition,
                                    const struct pen_training *training, int profile_kind) {
  struct lowering l = start(partition, training, profile_kind == PEN_TRAIN);
  l.exchange =
      pen_collectives_of(pen_order_of_actions(action, count, partition->rank_count), partition,
                         training, NULL, NULL, PEN_COLLECTIVES_LAST, profile_kind);
  for (uint32_t r = 0; r < partition->rank_count; r++)
    for (uint32_t i = 0; i < count[r]; i++) {
      const struct pen_action *a = &action[r][i];
      if (pen_kind_sends(a->kind)) add_message(&l, way_of(a->kind), a->stage, a->microbatch);
    }
  for (uint32_t r = 0; r < partition->rank_count; r++)
    for (uint32_t i = 0, computed = 0; i < count[r]; i++) {
      const struct pen_action *a = &action[r][i];
      uint32_t message = 0;
      enum way way = way_of(a->kind);
      bool computes = a->kind <= PEN_W;
      if (pen_kind_sends(a->kind))
        message = *message_at(&l, way, a->stage, a->microbatch);
      else if (pen_kind_receives(a->kind))
        message =
            *message_at(&l, way, way == BACKWARD ? a->stage + 1u : a->stage - 1u, a->microbatch);
      bool first = computes && (i == 0 || !a[-1].overlaps);
      if (first) append_exchange(&l, r, computed);
      if (first) append_wait(&l, r, a->kind, a->stage, a->microbatch);
      computed += computes;
      if (a->overlaps) append_wait(&l, r, a[1].kind, a[1].stage, a[1].microbatch);
      append(&l, r, a->kind, a->stage, a->microbatch, message)->overlaps = a->overlaps;
    }
  if (l.ties_ranks)
    enter(&l, HEAD_GRADIENT, partition->stage_count - 1,
          0); /* given rows have no time: behind all others */
  end_step(&l, profile_kind, training->waits_for_norm);
  return l.out;
}
