/* lower.c: from a compute order to the actions of every rank: sends, receives, waits, collectives
 * and the end of the step.
 *
 * The simulated step is replayed in global order. When an action ends whose result another rank
 * needs, SEND is appended to the sender's list and RECV to the receiver's, at the same turn. So the
 * receive comes before the first action that the receiver starts after the message is sent, and all
 * actions have one common order. Hence there is no deadlock, however little the transport buffers
 * (the argument of PyTorch's _add_send_recv, with time instead of the position in the list as the
 * clock). A WAIT comes directly before the action that reads the message, so that a RECV does not
 * delay computation that does not read it; the waits of a pair a|b come before a, since b starts
 * with it.
 *
 * A transport may start to move a message only after its receive is posted, and until then the
 * sender may have to wait (for the credit of a put, for its peer in a rendezvous). So if the
 * receiver computes while the message is sent, the receive is put before that computation, which
 * then overlaps with the transfer. The order of receives is kept: earlier ones move with it.
 *
 * A tied weight that is trained (struct pen_tie), whose head and embedding are on different ranks:
 * the head's gradient is sent when the head's rank has run its last action, so that the transfer
 * overlaps with the owner's computation; the owner waits for it before ADD_TIED_GRAD. The updated
 * weight is sent back after UPDATE, and the head's rank waits for it at once: its next use is in
 * the next step, after a microbatch has passed through all other stages, so no time is lost.
 *
 * End of a step: every rank publishes its gradient norms and losses. With clipping all ranks wait
 * for them before UPDATE; without, only rank 0 does, for the log. collectives.c places the
 * collectives of the replicas. */
#include <math.h>
#include <string.h>

#include "gen/base/arena.h"
#include "gen/base/heap.h"
#include "gen/base/error.h"
#include "gen/partition/partition.h"
#include "gen/partition/training.h"
#include "gen/schedule/order.h"
#include "gen/timing/timing.h"
#include "gen/timing/collectives.h"
#include "gen/lower/lower.h"
#include "gen/lower/messages.h"
#include "runtime/plan/plan.h"

enum { MOVED_MAX = 4 }; /* the actions of a pair with a WAIT each */

/* The compute action that a rank runs: its first action (of a pair, or a WAIT) and when it ends. */
struct running {
  uint32_t first, count;
  double end;
};

struct lowering {
  const struct pen_partition *partition;
  const struct pen_training *training;
  struct running *running;                   /* [rank] */
  const struct pen_collectives *collectives; /* NULL: none */
  uint32_t *collective_count;                /* [rank]: appended so far */
  struct pen_lowered *out;
  struct pen_message_table messages;
  bool adds_tied_gradient, sends_tied_gradient; /* a tied weight is trained; on two ranks */
  struct pen_heap pending; /* messages that are not sent yet, by the end of their action */
};

/* Appends an action; `message` is 0 for kinds without one. Returns it, for further columns. */
static struct pen_action *append_action(struct lowering *l, uint32_t rank, int kind, uint32_t stage,
                                        uint32_t microbatch, uint32_t message) {
  uint32_t n = l->out->count[rank]++;
  PEN_RESERVE(l->out->action[rank], n + 1);
  l->out->action[rank][n] = (struct pen_action){.kind = (uint8_t)kind,
                                                .stage = (uint16_t)stage,
                                                .microbatch = microbatch,
                                                .message = message};
  return &l->out->action[rank][n];
}

static uint32_t tied_owner(const struct lowering *l) { return l->partition->rank_of[0]; }

static uint32_t tied_head(const struct lowering *l) {
  return l->partition->rank_of[l->partition->stage_count - 1];
}

/* ---- the replay ---- */

/* Queues a message until its action ends; `turn` orders messages that end together. */
static void add_pending(struct lowering *l, double end, uint64_t turn, enum pen_message_type type,
                        uint32_t stage, uint32_t microbatch) {
  uint64_t value =
      ((uint64_t)type * l->partition->stage_count + stage) * l->partition->microbatch_count +
      microbatch;
  pen_heap_push(&l->pending, (struct pen_heap_item){end, turn, value});
}

/* Moves the compute action that a rank runs after the receives that follow it. */
static void move_after_receives(struct lowering *l, uint32_t rank) {
  struct running *running = &l->running[rank];
  struct pen_action *action = &l->out->action[rank][running->first], moved[MOVED_MAX];
  uint32_t after = l->out->count[rank] - running->first - running->count;
  if (running->count > MOVED_MAX) return;
  memcpy(moved, action, running->count * sizeof *action);
  memmove(action, action + running->count, after * sizeof *action);
  memcpy(action + after, moved, running->count * sizeof *action);
  running->first += after;
}

/* Appends SEND and RECV of a new message. */
static void append_transfer(struct lowering *l, enum pen_message_type type, uint32_t stage,
                            uint32_t microbatch) {
  uint32_t message = pen_message_add(&l->messages, type, stage, microbatch),
           reader = pen_message_reader(l->partition, type, stage);
  append_action(l, l->partition->rank_of[stage], pen_message_send[type], stage, microbatch,
                message);
  append_action(l, l->partition->rank_of[reader], pen_message_receive[type], reader, microbatch,
                message);
}

/* Appends the messages of all actions that have ended by `time`. */
static void append_pending(struct lowering *l, double time) {
  const struct pen_partition *p = l->partition;
  while (l->pending.count && l->pending.item[0].key <= time) {
    struct pen_heap_item first = pen_heap_pop(&l->pending);
    uint32_t microbatch = (uint32_t)(first.value % p->microbatch_count),
             group = (uint32_t)(first.value / p->microbatch_count), stage = group % p->stage_count;
    enum pen_message_type type = group / p->stage_count;
    uint32_t to = p->rank_of[pen_message_reader(p, type, stage)];
    append_transfer(l, type, stage, microbatch);
    if (l->running[to].end > first.key) move_after_receives(l, to);
  }
}

/* Appends the WAIT for the message that a compute action reads, if it comes from another rank. */
static void append_wait(struct lowering *l, uint32_t rank, int kind, uint32_t stage,
                        uint32_t microbatch) {
  enum pen_message_type type = pen_message_type_of(kind);
  bool backward = type == PEN_MESSAGE_GRADIENT;
  if (kind == PEN_W || (backward ? stage + 1 == l->partition->stage_count : stage == 0)) return;
  uint32_t sender = backward ? stage + 1u : stage - 1u;
  if (!pen_message_crosses(l->partition, type, sender)) return;
  append_action(l, rank, pen_message_wait[type], stage, microbatch,
                pen_message_find(&l->messages, type, sender, microbatch));
}

/* Appends the collectives that precede a compute action of a rank. */
static void append_collectives(struct lowering *l, uint32_t rank, uint32_t index) {
  if (!l->collectives) return;
  const struct pen_placed_collective *collective = l->collectives->collective[rank];
  for (uint32_t *next = &l->collective_count[rank];
       *next < l->collectives->count[rank] && collective[*next].before <= index; (*next)++)
    append_action(l, rank, collective[*next].kind, collective[*next].stage, 0, 0);
}

/* Appends the end of a training step; `waits_for_norm`: before UPDATE. */
static void append_training_end(struct lowering *l, uint32_t rank, bool waits_for_norm) {
  uint32_t last = l->partition->stage_count - 1;
  bool owner = l->adds_tied_gradient && rank == tied_owner(l),
       head = l->sends_tied_gradient && rank == tied_head(l);
  uint32_t gradient = !l->sends_tied_gradient
                          ? PEN_NONE
                          : pen_message_find(&l->messages, PEN_MESSAGE_TIED_GRADIENT, last, 0),
           weight = pen_message_find(&l->messages, PEN_MESSAGE_TIED_WEIGHT, 0, 0);
  append_collectives(l, rank, PEN_AFTER_TIED_GRAD - 1);
  if (owner && l->sends_tied_gradient) append_action(l, rank, PEN_WAIT_G, 0, 0, gradient);
  if (owner) append_action(l, rank, PEN_ADD_TIED_GRAD, 0, 0, gradient);
  append_collectives(l, rank, PEN_AFTER_TIED_GRAD);
  append_action(l, rank, PEN_NORM, 0, 0, 0);
  append_action(l, rank, PEN_PUBLISH, 0, 0, 0);
  if (waits_for_norm) append_action(l, rank, PEN_WAIT_NORM, 0, 0, 0);
  append_action(l, rank, PEN_UPDATE, 0, 0, 0);
  append_collectives(l, rank, PEN_AFTER_UPDATE);
  if (owner && l->sends_tied_gradient) append_action(l, rank, PEN_SEND_V, 0, 0, weight);
  if (head) append_action(l, rank, PEN_RECV_V, last, 0, weight);
  if (head) append_action(l, rank, PEN_WAIT_V, last, 0, weight);
}

/* The collectives that the program of a compute action completes. */
static uint32_t program_collectives(const struct lowering *l, int kind, uint32_t stage) {
  int program = pen_program_of(kind);
  return program < 0 || !l->training->program_collectives
             ? 0
             : l->training->program_collectives[stage * PEN_PROGRAMS + (uint32_t)program];
}

/* The last collective of the action's stage that it continues, from GRAD_READY on; 0: none, it
 * waits only for earlier steps. */
static uint32_t last_before(uint32_t *const last[PEN_ACTION_KINDS],
                            const struct pen_action *action) {
  static const uint8_t chain[] = {PEN_GRAD_READY, PEN_REDUCE_SCATTER, PEN_REDUCE_GROUPS,
                                  PEN_GATHER_GROUPS, PEN_ALL_GATHER_GRAD};
  size_t place = sizeof chain;
  while (place > 0 && chain[place - 1] != action->kind) place--;
  for (size_t i = place > 0 ? place - 1 : 0; i-- > 0;)
    if (last[chain[i]][action->stage]) return last[chain[i]][action->stage];
  return 0;
}

/* Two actions that exchange values between tensor ranks run one after the other, not as a pair. */
static void separate_exchanges(struct lowering *l, uint32_t rank) {
  for (uint32_t i = 0; l->training->exchanges && i < l->out->count[rank]; i++)
    l->out->action[rank][i].overlaps = false;
}

/* Sets awaited_collective: of a compute action with collectives, and of UPDATE, the last before it;
 * of a collective that continues another, that one; of ALL_GATHER_WEIGHT that UPDATE. Two actions
 * with collectives run one after the other, not as a pair: collectives have one order. */
static void number_collectives(struct lowering *l, uint32_t rank) {
  uint32_t *last[PEN_ACTION_KINDS] = {0}, ended = 0, updated = 0;
  if (pen_group_size(l->partition, PEN_DATA) <= 1) return;
  for (int kind = PEN_GRAD_READY; kind < PEN_ACTION_KINDS; kind++)
    last[kind] = pen_new(l->partition->stage_count, sizeof(uint32_t));
  for (uint32_t i = 0; i < l->out->count[rank]; i++) {
    struct pen_action *action = &l->out->action[rank][i];
    uint32_t within = program_collectives(l, action->kind, action->stage);
    if (within) action->awaited_collective = ended;
    if (within && action->overlaps)
      action->overlaps = !program_collectives(l, action[1].kind, action[1].stage);
    ended += within;
    if (!pen_kind_is_collective(action->kind)) continue;
    if (action->kind == PEN_UPDATE)
      action->awaited_collective = ended;
    else if (action->kind == PEN_ALL_GATHER_WEIGHT)
      action->awaited_collective = updated;
    else
      action->awaited_collective = last_before(last, action);
    ended++;
    if (action->kind == PEN_UPDATE) updated = ended;
    if (action->kind != PEN_UPDATE) last[action->kind][action->stage] = ended;
  }
  for (int kind = PEN_GRAD_READY; kind < PEN_ACTION_KINDS; kind++) pen_free(last[kind]);
}

/* In a step that is logged, rank 0 waits for the statistics of all. */
static void append_step_end(struct lowering *l, int profile_kind, bool waits_for_norm) {
  bool train = profile_kind == PEN_TRAIN,
       logged = train || pen_profile_kind_evaluates(profile_kind);
  if (l->sends_tied_gradient) pen_message_add(&l->messages, PEN_MESSAGE_TIED_WEIGHT, 0, 0);
  for (uint32_t rank = 0; rank < l->out->rank_count; rank++) {
    if (!train) append_collectives(l, rank, PEN_AFTER_UPDATE);
    if (train)
      append_training_end(l, rank, waits_for_norm);
    else
      append_action(l, rank, PEN_PUBLISH, 0, 0, 0);
    if (rank == 0 && logged && !(train && waits_for_norm))
      append_action(l, rank, PEN_WAIT_NORM, 0, 0, 0);
    number_collectives(l, rank);
    separate_exchanges(l, rank);
  }
}

static struct lowering start_lowering(const struct pen_partition *partition,
                                      const struct pen_training *training, bool backward) {
  struct lowering l = {.partition = partition,
                       .training = training,
                       .out = pen_new(1, sizeof(struct pen_lowered)),
                       .adds_tied_gradient = backward && training->adds_tied_gradient};
  l.sends_tied_gradient = l.adds_tied_gradient && tied_owner(&l) != tied_head(&l);
  l.out->rank_count = partition->rank_count;
  l.out->count = pen_new(partition->rank_count, sizeof *l.out->count);
  l.out->action = pen_new(partition->rank_count, sizeof *l.out->action);
  l.collective_count = pen_new(partition->rank_count, sizeof *l.collective_count);
  l.messages = pen_messages_start(partition, l.out, backward, l.sends_tied_gradient);
  return l;
}

/* A compute action of an order. */
struct event {
  uint32_t rank, index;
};

/* All compute actions, by turn. */
static struct event *sorted_events(const struct pen_order *order, const struct pen_timing *timing,
                                   size_t *count) {
  *count = 0;
  for (uint32_t r = 0; r < order->rank_count; r++) *count += order->count[r];
  struct event *event = pen_new(*count + 1, sizeof *event);
  for (uint32_t r = 0; r < order->rank_count; r++)
    for (uint32_t i = 0; i < order->count[r]; i++) {
      if (timing->turn[r][i] >= *count)
        pen_stop(PEN_EXIT_INTERNAL, "lower: the order of rank %u stops at action %u", r, i);
      event[timing->turn[r][i]] = (struct event){r, i};
    }
  return event;
}

/* Allocates the memory for the actions and messages. */
static void reserve_actions(struct lowering *l, const struct pen_order *order) {
  enum { STEP_END_MAX = 10 };
  size_t messages = 0, *actions = pen_new(order->rank_count, sizeof *actions);
  for (uint32_t r = 0; r < order->rank_count; r++)
    for (uint32_t i = 0; i < order->count[r]; i++) {
      const struct pen_compute *c = &order->action[r][i];
      enum pen_message_type type = pen_message_type_of(c->kind);
      actions[r]++;
      if (c->kind == PEN_W || !pen_message_crosses(l->partition, type, c->stage)) continue;
      messages++;
      actions[r]++;
      actions[l->partition->rank_of[pen_message_reader(l->partition, type, c->stage)]] += 2;
    }
  for (uint32_t r = 0; r < order->rank_count; r++) {
    const size_t most = actions[r] + STEP_END_MAX + (l->collectives ? l->collectives->count[r] : 0);
    l->out->action[r] = pen_new(most, sizeof **l->out->action);
  }
  pen_messages_reserve(&l->messages, messages + 2);
}

/* Appends a compute action with its waits. The second of a pair runs with the first, and its waits
 * come before the first. */
static void append_compute(struct lowering *l, uint32_t rank, const struct pen_compute *c,
                           double end, bool second) {
  struct running *running = &l->running[rank];
  if (!second) {
    *running = (struct running){l->out->count[rank], 0, end};
    append_wait(l, rank, c->kind, c->stage, c->microbatch);
  }
  if (c->overlaps) append_wait(l, rank, c[1].kind, c[1].stage, c[1].microbatch);
  append_action(l, rank, c->kind, c->stage, c->microbatch, 0)->overlaps = c->overlaps;
  running->count = l->out->count[rank] - running->first;
}

struct pen_lowered *pen_lower(const struct pen_order *order, const struct pen_partition *partition,
                              const struct pen_training *training, const struct pen_timing *timing,
                              int profile_kind) {
  struct lowering l = start_lowering(partition, training, profile_kind == PEN_TRAIN);
  l.running = pen_new(partition->rank_count, sizeof *l.running);
  l.collectives = timing->collectives ? timing->collectives
                                      : pen_collectives_of(order, partition, training, NULL, NULL,
                                                           PEN_COLLECTIVES_LAST, profile_kind);
  reserve_actions(&l, order);
  size_t count;
  const struct event *event = sorted_events(order, timing, &count);
  for (size_t i = 0; i < count; i++) {
    uint32_t rank = event[i].rank, index = event[i].index;
    const struct pen_compute *c = &order->action[rank][index];
    bool second = index > 0 && c[-1].overlaps; /* of a pair: its turn is the next */
    double ends = timing->end[rank][index];
    if (!second) append_pending(&l, timing->start[rank][index]);
    if (!second) append_collectives(&l, rank, index);
    append_compute(&l, rank, c, ends, second);
    enum pen_message_type type = pen_message_type_of(c->kind);
    if (c->kind != PEN_W && pen_message_crosses(partition, type, c->stage))
      add_pending(&l, ends, i, type, c->stage, c->microbatch);
    bool last = l.sends_tied_gradient && rank == tied_head(&l) && index + 1 == order->count[rank];
    if (last)
      add_pending(&l, ends, count, PEN_MESSAGE_TIED_GRADIENT, partition->stage_count - 1, 0);
  }
  append_pending(&l, (double)INFINITY);
  append_step_end(&l, profile_kind, training->waits_for_norm);
  return l.out;
}

struct pen_lowered *pen_lower_forward(const struct pen_order *order,
                                      const struct pen_partition *partition,
                                      const struct pen_training *training, int profile_kind) {
  struct pen_stage_cost *cost = pen_new(partition->stage_count, sizeof *cost);
  for (uint32_t s = 0; s < partition->stage_count; s++) cost[s].forward = 1;
  return pen_lower(order, partition, training, pen_simulate(order, partition, training, cost, -1),
                   profile_kind);
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

/* Appends the actions of a rank's given list, with their waits and collectives. */
static void append_given(struct lowering *l, uint32_t rank, const struct pen_action *action,
                         uint32_t count) {
  for (uint32_t i = 0, computed = 0; i < count; i++) {
    const struct pen_action *a = &action[i];
    enum pen_message_type type = pen_message_type_of(a->kind);
    bool computes = a->kind <= PEN_W, first = computes && (i == 0 || !a[-1].overlaps);
    uint32_t message = 0;
    if (pen_kind_sends(a->kind))
      message = pen_message_find(&l->messages, type, a->stage, a->microbatch);
    else if (pen_kind_receives(a->kind))
      message = pen_message_find(&l->messages, type,
                                 type == PEN_MESSAGE_GRADIENT ? a->stage + 1u : a->stage - 1u,
                                 a->microbatch);
    if (first) append_collectives(l, rank, computed);
    if (first) append_wait(l, rank, a->kind, a->stage, a->microbatch);
    computed += computes;
    if (a->overlaps) append_wait(l, rank, a[1].kind, a[1].stage, a[1].microbatch);
    append_action(l, rank, a->kind, a->stage, a->microbatch, message)->overlaps = a->overlaps;
  }
}

struct pen_lowered *pen_lower_given(struct pen_action *const *action, const uint32_t *count,
                                    const struct pen_partition *partition,
                                    const struct pen_training *training, int profile_kind) {
  struct lowering l = start_lowering(partition, training, profile_kind == PEN_TRAIN);
  l.collectives =
      pen_collectives_of(pen_order_of_actions(action, count, partition->rank_count), partition,
                         training, NULL, NULL, PEN_COLLECTIVES_LAST, profile_kind);
  for (uint32_t r = 0; r < partition->rank_count; r++)
    for (uint32_t i = 0; i < count[r]; i++) {
      const struct pen_action *a = &action[r][i];
      if (pen_kind_sends(a->kind))
        pen_message_add(&l.messages, pen_message_type_of(a->kind), a->stage, a->microbatch);
    }
  for (uint32_t r = 0; r < partition->rank_count; r++) append_given(&l, r, action[r], count[r]);
  if (l.sends_tied_gradient) /* given actions have no time: after all others */
    append_transfer(&l, PEN_MESSAGE_TIED_GRADIENT, partition->stage_count - 1, 0);
  append_step_end(&l, profile_kind, training->waits_for_norm);
  return l.out;
}
