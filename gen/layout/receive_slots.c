/* receive_slots.c: receive slots, and which messages need a credit.
 *
 * A slot is in use from the RECV action of its message to the last reader. Messages take slots in
 * the order of their RECV actions, each the one that has been free longest: interval colouring
 * (Gupta, Lee and Leung 1979), with as few slots as possible. A sender must then often wait until
 * the slot is free. A few more slots (`spare`) let it use one whose last reader it knows is done.
 *
 * What a sender knows of a receiver: after it has waited for a message that the receiver sent in
 * action q, all actions before q are done; after it has received a credit that the receiver gave in
 * action q, all up to q. A message needs a credit only if its sender does not know, when it sends,
 * that the last reader of the slot is done. Messages arrive on a channel in the order in which they
 * are sent, so one pass over the RECV actions of a receiver follows the knowledge of each sender;
 * and a credit for the first message that needs one serves as many of the next as any choice.
 *
 * The head's gradient of a tied weight always has a credit. Its sender seldom knows of an action of
 * this step at the other end of the pipeline: without a credit its slot, as large as the embedding,
 * would be reserved from the first action on; with one, other buffers use it until the RECV. The
 * message is sent at that time (lower.c), so the credit arrives in time.
 *
 * Steps repeat. At the start of a step a sender that has run WAIT_NORM knows all of the step
 * before; any other knows what it knew at the end of that step, by messages and credits. */
#include <stdlib.h>
#include <string.h>

#include "gen/layout/receive_slots.h"
#include "gen/base/arena.h"
#include "gen/base/heap.h"
#include "gen/base/error.h"
#include "gen/lower/lower.h"
#include "runtime/plan/plan.h"

/* Of one message. */
struct message_fact {
  uint32_t receive_action, send_action, last_reader;
  int64_t known; /* last action of the receiver in this step that messages have made known to the
                    sender when it sends; -1: none */
  int64_t known_before; /* the same for the step before, at this step's start; INT64_MAX: all */
  uint32_t slot;
};

/* A slot and, while messages are placed, its latest message. */
struct receive_slot {
  uint64_t bytes, offset;
  uint32_t last_message; /* in this step */
};

/* Slots of one size, by the last reader of their latest message, which frees them. */
struct slot_pool {
  uint64_t bytes;
  struct pen_heap slots;
  size_t total; /* free and taken */
};

enum { POOLS_MAX = 64 };

struct pen_slot_assignment {
  struct pen_lowered *lowered;
  struct message_fact *fact;
  const uint64_t *bytes;
  uint32_t *message, *first_message; /* by receiver, in the order of RECV actions; [rank + 1] */
  int64_t *credited; /* [channel] scratch: the last action that a credit made known; -1: none */
  int64_t *credited_before; /* [channel] the same at the end of the step before; -1: none */
  bool *tried;              /* [channel] scratch */
  struct receive_slot *slot;
  uint32_t *last;    /* [slot] scratch of follow_credits(): its message */
  bool *used_before; /* [slot] it has had a message in this step */
  size_t slot_count;
  struct slot_pool pool[POOLS_MAX];
  size_t pool_count;
};

/* ---- facts ---- */

/* Sets receive_action and send_action, and lists the messages of each rank. */
static void find_ends(struct pen_slot_assignment *p) {
  const struct pen_lowered *l = p->lowered;
  uint32_t count = 0;
  for (uint32_t r = 0; r < l->rank_count; r++) {
    p->first_message[r] = count;
    for (uint32_t i = 0; i < l->count[r]; i++) {
      const struct pen_action *a = &l->action[r][i];
      if (pen_kind_sends(a->kind)) p->fact[a->message].send_action = i;
      if (!pen_kind_receives(a->kind) || a->kind == PEN_RECV_V)
        continue; /* its target is no slot */
      p->fact[a->message].receive_action = i;
      p->message[count++] = a->message;
    }
  }
  p->first_message[l->rank_count] = count;
}

/* Channels by sender: channel[first[rank] .. first[rank + 1]). They are sorted by sender. */
static void find_channels(const struct pen_lowered *l, uint32_t *first) {
  uint32_t c = 0;
  for (uint32_t r = 0; r < l->rank_count; r++) {
    first[r] = c;
    while (c < l->channel_count && l->channel[c].from_rank == r) c++;
  }
  first[l->rank_count] = c;
}

/* Sets `known` for the messages of one rank; known_at_end is [channel]. `known` is scratch, [rank],
 * all -1 before and after. */
static void follow_rank(struct pen_slot_assignment *p, uint32_t rank, const uint32_t *first_channel,
                        int64_t *known, int64_t *known_at_end) {
  const struct pen_lowered *l = p->lowered;
  bool gathers = false;
  for (uint32_t i = 0; i < l->count[rank]; i++) {
    const struct pen_action *a = &l->action[rank][i];
    gathers = gathers || a->kind == PEN_WAIT_NORM;
    if (!pen_has_message(a)) continue;
    const struct pen_channel *channel = &l->channel[l->message[a->message].channel];
    if (pen_kind_sends(a->kind)) p->fact[a->message].known = known[channel->to_rank];
    if (pen_kind_waits(a->kind) &&
        (int64_t)p->fact[a->message].send_action > known[channel->from_rank] + 1)
      known[channel->from_rank] = (int64_t)p->fact[a->message].send_action - 1;
  }
  for (uint32_t c = first_channel[rank]; c < first_channel[rank + 1]; c++)
    known_at_end[c] = gathers ? INT64_MAX : known[l->channel[c].to_rank];
  for (uint32_t i = 0; i < l->count[rank]; i++)
    if (pen_has_message(&l->action[rank][i])) {
      const struct pen_channel *channel =
          &l->channel[l->message[l->action[rank][i].message].channel];
      known[channel->from_rank] = known[channel->to_rank] = -1;
    }
}

struct pen_slot_assignment *pen_slots_prepare(struct pen_lowered *lowered,
                                              const uint32_t *last_reader, const uint64_t *bytes) {
  struct pen_slot_assignment *p = pen_new(1, sizeof *p);
  uint32_t ranks = lowered->rank_count, messages = lowered->message_count,
           channels = lowered->channel_count;
  *p = (struct pen_slot_assignment){
      .lowered = lowered,
      .bytes = bytes,
      .fact = pen_new(messages + 1u, sizeof *p->fact),
      .message = pen_new(messages + 1u, sizeof *p->message),
      .first_message = pen_new(ranks + 1u, sizeof *p->first_message),
      .credited = pen_new(channels + 1u, sizeof *p->credited),
      .credited_before = pen_new(channels + 1u, sizeof *p->credited_before),
      .tried = pen_new(channels + 1u, sizeof *p->tried)};
  find_ends(p);
  int64_t *known = pen_new(ranks, sizeof *known),
          *known_at_end = pen_new(channels + 1u, sizeof *known_at_end);
  uint32_t *first_channel = pen_new(ranks + 1u, sizeof *first_channel);
  find_channels(lowered, first_channel);
  for (uint32_t r = 0; r < ranks; r++) known[r] = -1;
  for (uint32_t r = 0; r < ranks; r++) follow_rank(p, r, first_channel, known, known_at_end);
  for (uint32_t m = 0; m < messages; m++) {
    p->fact[m].last_reader = last_reader[m];
    p->fact[m].known_before = known_at_end[lowered->message[m].channel];
  }
  return p;
}

/* ---- free slots of one size ---- */

static struct slot_pool *pool_of(struct pen_slot_assignment *p, uint64_t bytes) {
  size_t i = 0;
  while (i < p->pool_count && p->pool[i].bytes != bytes) i++;
  if (i == POOLS_MAX)
    pen_stop(PEN_EXIT_INTERNAL, "layout: messages of more than %d sizes", POOLS_MAX);
  if (i == p->pool_count) {
    p->pool[i].bytes = bytes;
    p->pool[i].slots.count = p->pool[i].total = 0;
    p->pool_count++;
  }
  return &p->pool[i];
}

/* ---- slots and credits of one rank ---- */

/* The last action of this step that a message's sender knows is done; -1: none. */
static int64_t known_to(const struct pen_slot_assignment *p, uint32_t message) {
  int64_t credited = p->credited[p->lowered->message[message].channel],
          known = p->fact[message].known;
  return credited > known ? credited : known;
}

static void reset_credits(struct pen_slot_assignment *p, const uint32_t *message, size_t count) {
  for (size_t i = 0; i < count; i++) p->credited[p->lowered->message[message[i]].channel] = -1;
}

static void record_credit(struct pen_slot_assignment *p, uint32_t message) {
  p->credited[p->lowered->message[message].channel] = p->fact[message].receive_action;
}

/* The slot for a message: one that its sender knows is free; else, while there are fewer than
 * `spare_until`, a new one; else one that is free by then, with a credit; else a new one. */
static uint32_t choose_slot(struct pen_slot_assignment *p, uint32_t message, size_t spare_until) {
  struct slot_pool *pool = pool_of(p, p->bytes[message]);
  if (pool->slots.count && pool->slots.item[0].key < p->fact[message].receive_action) {
    bool known = (int64_t)pool->slots.item[0].key <= known_to(p, message);
    if (known || pool->total >= spare_until) {
      if (!known) record_credit(p, message);
      return (uint32_t)pen_heap_pop(&pool->slots).value;
    }
  }
  pool->total++;
  PEN_RESERVE(p->slot, p->slot_count + 1);
  p->slot[p->slot_count] = (struct receive_slot){.bytes = p->bytes[message]};
  return (uint32_t)p->slot_count++;
}

/* Assigns the messages of a rank to slots, of each size up to `spare` more than needed. A slot is
 * in its pool while in use, too: the key of the heap says after which action it is free. */
static void assign_slots(struct pen_slot_assignment *p, const uint32_t *message, size_t count,
                         const size_t *needed, size_t spare) {
  p->slot_count = 0;
  for (size_t i = 0; i < p->pool_count; i++) p->pool[i].slots.count = p->pool[i].total = 0;
  reset_credits(p, message, count);
  for (size_t i = 0; i < count; i++) {
    struct slot_pool *pool = pool_of(p, p->bytes[message[i]]);
    uint32_t slot = choose_slot(p, message[i], needed ? needed[pool - p->pool] + spare : 0);
    p->slot[slot].last_message = message[i];
    p->fact[message[i]].slot = slot;
    pen_heap_push(&pool->slots, (struct pen_heap_item){p->fact[message[i]].last_reader, 0, slot});
  }
}

/* The last action of the step before that a message's sender knows is done at the start of this. */
static int64_t known_before(const struct pen_slot_assignment *p, uint32_t message) {
  int64_t credited = p->credited_before[p->lowered->message[message].channel],
          known = p->fact[message].known_before;
  return credited > known ? credited : known;
}

/* Gives credits to the messages that need one; or, with `given`, checks that the credits suffice.
 * Sets from which action on each message's slot is reserved for it. */
static bool follow_credits(struct pen_slot_assignment *p, const uint32_t *message, size_t count,
                           bool given, struct pen_receive_slot *place) {
  uint32_t *last = p->last;
  bool *used_before = p->used_before, enough = true;
  memset(used_before, 0, p->slot_count);
  for (size_t s = 0; s < p->slot_count; s++) last[s] = p->slot[s].last_message;
  reset_credits(p, message, count);
  for (size_t i = 0; i < count; i++) {
    const struct message_fact *fact = &p->fact[message[i]];
    struct pen_message *m = &p->lowered->message[message[i]];
    int64_t known = known_to(p, message[i]), earlier = known_before(p, message[i]),
            before = p->fact[last[fact->slot]].last_reader;
    bool needs = m->kind == PEN_SEND_G ||
                 (used_before[fact->slot] ? known < before : known < 0 && earlier < before);
    if (!given) m->credit = needs ? 0 : PEN_NONE; /* numbered by pen_slots_number_credits */
    bool credit = m->credit != PEN_NONE;
    enough = enough && (credit || !needs);
    if (credit) record_credit(p, message[i]);
    place[i] = (struct pen_receive_slot){
        p->slot[fact->slot].offset, p->bytes[message[i]],
        credit ? fact->receive_action : (uint32_t)(known + 1), fact->last_reader,
        !credit && known < 0 && earlier != INT64_MAX ? (uint32_t)(earlier + 1) : PEN_NONE};
    last[fact->slot] = message[i];
    used_before[fact->slot] = true;
  }
  return enough;
}

/* Records what the credits of the step before make known. */
static void record_credits_before(struct pen_slot_assignment *p, const uint32_t *message,
                                  size_t count) {
  for (size_t i = 0; i < count; i++)
    p->credited_before[p->lowered->message[message[i]].channel] = -1;
  for (size_t i = 0; i < count; i++)
    if (p->lowered->message[message[i]].credit != PEN_NONE)
      p->credited_before[p->lowered->message[message[i]].channel] =
          p->fact[message[i]].receive_action;
}

/* First as if the credits of the step before made nothing known. Then each credit that is needed
 * only because of the step before (the first of its channel: later the sender knows of this step)
 * is taken away if the others suffice. */
static void decide_credits(struct pen_slot_assignment *p, const uint32_t *message, size_t count,
                           struct pen_receive_slot *place) {
  for (size_t i = 0; i < count; i++) {
    p->credited_before[p->lowered->message[message[i]].channel] = -1;
    p->tried[p->lowered->message[message[i]].channel] = false;
  }
  follow_credits(p, message, count, false, place);
  for (size_t i = 0; i < count; i++) {
    struct pen_message *m = &p->lowered->message[message[i]];
    if (m->credit == PEN_NONE || p->tried[m->channel] ||
        p->fact[message[i]].known_before == INT64_MAX)
      continue;
    p->tried[m->channel] = true;
    m->credit = PEN_NONE;
    record_credits_before(p, message, count);
    if (!follow_credits(p, message, count, true, place)) m->credit = 0;
  }
  record_credits_before(p, message, count);
  follow_credits(p, message, count, true, place);
}

struct pen_receive_region pen_slots_place(struct pen_slot_assignment *p, uint32_t rank,
                                          uint32_t spare) {
  const uint32_t *message = &p->message[p->first_message[rank]];
  size_t count = p->first_message[rank + 1] - p->first_message[rank], needed[POOLS_MAX];
  p->pool_count = 0;
  assign_slots(p, message, count, NULL, 0);
  for (size_t i = 0; i < p->pool_count; i++) needed[i] = p->pool[i].total;
  if (spare) assign_slots(p, message, count, needed, spare);
  struct pen_receive_region region = {.slot_count = (uint32_t)p->slot_count,
                                      .message_count = count,
                                      .message = pen_new(count + 1, sizeof *region.message)};
  for (size_t s = 0; s < p->slot_count; s++) {
    p->slot[s].offset = region.bytes;
    region.bytes += pen_aligned(p->slot[s].bytes);
  }
  for (size_t i = 0; i < count; i++)
    p->lowered->message[message[i]].target_offset = p->slot[p->fact[message[i]].slot].offset;
  PEN_RESERVE(p->last, p->slot_count + 1);
  PEN_RESERVE(p->used_before, p->slot_count + 1);
  decide_credits(p, message, count, region.message);
  return region;
}

void pen_slots_number_credits(struct pen_slot_assignment *p) {
  struct pen_lowered *l = p->lowered;
  for (uint32_t m = 0; m < l->message_count; m++)
    if (l->message[m].credit != PEN_NONE)
      l->message[m].credit = l->channel[l->message[m].channel].credit_count++;
  pen_free(p->fact);
  pen_free(p->message);
}
