/* slots.c: receive slots, and which messages need a credit.
 *
 * A slot is taken from the message's RECV row to its last reader. Messages get slots in the order
 * of their RECV rows, each the free one that was given up first: an interval colouring (Gupta, Lee
 * and Leung 1979), so as few slots as can be. With so few a sender must often wait for word that
 * the slot is free. A few more (`spare`) let it take one whose last reader it has heard of already.
 *
 * What a sender knows of a receiver: when it has waited for a message that the receiver sent in row
 * q, all the receiver's rows before q are done; when it has taken a credit of a message received in
 * row q, those up to q. A message needs a credit only when what was in its slot before was last
 * read in a row that its sender knows nothing of by then. Messages arrive on a channel in the order
 * in which they are sent, so one walk over the receiver's RECV rows sees each sender's knowledge
 * grow; and a credit given to the first message that needs one serves as many of the following as
 * any choice could.
 *
 * The head's gradient of a tied matrix has a credit in any case. Its sender seldom knows of a row
 * of this step at the other end of the pipeline, so that without one its slot, as large as the
 * embedding, would be barred from the first row on; with one, what forwards keep lies there until
 * the RECV row. That stands where the message leaves (lower.c), so the credit is there by then.
 *
 * The plan repeats. At the start of a step a sender that has run WAIT_NORM knows all of the step
 * before; any other what it knew at that step's end: by messages, and by the credits of that step.
 */
#include <stdlib.h>
#include <string.h>

#include "gen/layout/receive_slots.h"
#include "gen/base/arena.h"
#include "gen/base/error.h"
#include "gen/lower/lower.h"
#include "runtime/plan/plan.h"

/* Of one message. */
struct fact {
  uint32_t receive_row, send_row, last_reader;
  int64_t known; /* last row of the receiver, this step, that messages have told the sender of when
                    it sends; -1: none */
  int64_t known_before; /* the same for the step before, at this step's start; INT64_MAX: all */
  uint32_t slot;
};

/* A slot and, while messages are placed, its last occupant. */
struct slot {
  uint64_t bytes, offset;
  uint32_t last_message; /* in this step */
};

/* Slots of one size, as a heap: the one given up first on top. */
struct pool {
  uint64_t bytes;
  uint32_t *heap;
  size_t count, capacity, total; /* total: free and taken */
};

enum { POOLS_MAX = 64 };

struct pen_slot_assignment {
  struct pen_lowered *lowered;
  struct fact *fact;
  const uint64_t *bytes;
  uint32_t *message, *first_message; /* by receiver, in the order of RECV rows; [rank + 1] */
  int64_t *told;        /* [channel] scratch: the last row that a credit told of; -1: none */
  int64_t *told_before; /* [channel] the same at the end of the step before, where decisions rest on
                           it; -1: none */
  bool *tried;          /* [channel] scratch */
  struct slot *slot;
  uint32_t *last; /* [slot] scratch of walk_credits: the message in it */
  bool *again;    /* [slot] there has been one in this step */
  size_t slot_count, slot_capacity, last_capacity, again_capacity;
  struct pool pool[POOLS_MAX];
  size_t pool_count;
};

/* ---- facts ---- */

/* Fills receive_row and send_row, and lists each rank's messages. */
static void find_ends(struct pen_slot_assignment *p) {
  const struct pen_lowered *l = p->lowered;
  uint32_t count = 0;
  for (uint32_t r = 0; r < l->rank_count; r++) {
    p->first_message[r] = count;
    for (uint32_t i = 0; i < l->count[r]; i++) {
      const struct pen_action *a = &l->action[r][i];
      if (pen_kind_sends(a->kind)) p->fact[a->message].send_row = i;
      if (!pen_kind_receives(a->kind) || a->kind == PEN_RECV_V)
        continue; /* whose home is no slot */
      p->fact[a->message].receive_row = i;
      p->message[count++] = a->message;
    }
  }
  p->first_message[l->rank_count] = count;
}

/* Channels by sender: channel[first[rank] .. first[rank + 1]). They are sorted by sender already.
 */
static void find_channels(const struct pen_lowered *l, uint32_t *first) {
  uint32_t c = 0;
  for (uint32_t r = 0; r < l->rank_count; r++) {
    first[r] = c;
    while (c < l->channel_count && l->channel[c].from_rank == r) c++;
  }
  first[l->rank_count] = c;
}

/* Fills `known` by walking one rank's rows; known_at_end is [channel]. `known` is scratch, [rank],
 * all -1 before and after. */
static void walk_rank(struct pen_slot_assignment *p, uint32_t rank, const uint32_t *first_channel,
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
        (int64_t)p->fact[a->message].send_row > known[channel->from_rank] + 1)
      known[channel->from_rank] = (int64_t)p->fact[a->message].send_row - 1;
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
  *p = (struct pen_slot_assignment){.lowered = lowered,
                                    .bytes = bytes,
                                    .fact = pen_new(messages + 1u, sizeof *p->fact),
                                    .message = pen_new(messages + 1u, sizeof *p->message),
                                    .first_message = pen_new(ranks + 1u, sizeof *p->first_message),
                                    .told = pen_new(channels + 1u, sizeof *p->told),
                                    .told_before = pen_new(channels + 1u, sizeof *p->told_before),
                                    .tried = pen_new(channels + 1u, sizeof *p->tried)};
  find_ends(p);
  int64_t *known = pen_new(ranks, sizeof *known),
          *known_at_end = pen_new(channels + 1u, sizeof *known_at_end);
  uint32_t *first_channel = pen_new(ranks + 1u, sizeof *first_channel);
  find_channels(lowered, first_channel);
  for (uint32_t r = 0; r < ranks; r++) known[r] = -1;
  for (uint32_t r = 0; r < ranks; r++) walk_rank(p, r, first_channel, known, known_at_end);
  for (uint32_t m = 0; m < messages; m++) {
    p->fact[m].last_reader = last_reader[m];
    p->fact[m].known_before = known_at_end[lowered->message[m].channel];
  }
  return p;
}

/* ---- free slots of one size ---- */

static uint32_t given_up(const struct pen_slot_assignment *p, uint32_t slot) {
  return p->fact[p->slot[slot].last_message].last_reader;
}

static struct pool *pool_of(struct pen_slot_assignment *p, uint64_t bytes) {
  size_t i = 0;
  while (i < p->pool_count && p->pool[i].bytes != bytes) i++;
  if (i == POOLS_MAX) pen_stop(70, "layout: messages of more than %d sizes", POOLS_MAX);
  if (i == p->pool_count) {
    p->pool[i].bytes = bytes;
    p->pool[i].count = p->pool[i].total = 0;
    p->pool_count++;
  }
  return &p->pool[i];
}

static void pool_push(const struct pen_slot_assignment *p, struct pool *pool, uint32_t slot) {
  pool->heap = pen_grow(pool->heap, &pool->capacity, pool->count + 1, sizeof *pool->heap);
  size_t i = pool->count++;
  for (; i && given_up(p, slot) < given_up(p, pool->heap[(i - 1) / 2]); i = (i - 1) / 2)
    pool->heap[i] = pool->heap[(i - 1) / 2];
  pool->heap[i] = slot;
}

static uint32_t pool_pop(const struct pen_slot_assignment *p, struct pool *pool) {
  uint32_t top = pool->heap[0], last = pool->heap[--pool->count];
  size_t i = 0;
  for (size_t child = 1; child < pool->count; child = 2 * i + 1) {
    if (child + 1 < pool->count &&
        given_up(p, pool->heap[child + 1]) < given_up(p, pool->heap[child]))
      child++;
    if (given_up(p, pool->heap[child]) >= given_up(p, last)) break;
    pool->heap[i] = pool->heap[child];
    i = child;
  }
  pool->heap[i] = last;
  return top;
}

/* ---- slots and credits of one rank ---- */

/* The last row of the receiver that a message's sender knows is done; -1: none in this step. */
static int64_t known_to(const struct pen_slot_assignment *p, uint32_t message) {
  int64_t told = p->told[p->lowered->message[message].channel], known = p->fact[message].known;
  return told > known ? told : known;
}

static void forget_credits(struct pen_slot_assignment *p, const uint32_t *message, size_t count) {
  for (size_t i = 0; i < count; i++) p->told[p->lowered->message[message[i]].channel] = -1;
}

static void tell(struct pen_slot_assignment *p, uint32_t message) {
  p->told[p->lowered->message[message].channel] = p->fact[message].receive_row;
}

/* The slot for a message: one known to be free; else, while there are fewer than `spare_until`, a
 * new one; else one that is free by then, with a credit; else a new one. */
static uint32_t choose(struct pen_slot_assignment *p, uint32_t message, size_t spare_until) {
  struct pool *pool = pool_of(p, p->bytes[message]);
  if (pool->count && given_up(p, pool->heap[0]) < p->fact[message].receive_row) {
    bool known = (int64_t)given_up(p, pool->heap[0]) <= known_to(p, message);
    if (known || pool->total >= spare_until) {
      if (!known) tell(p, message);
      return pool_pop(p, pool);
    }
  }
  pool->total++;
  p->slot = pen_grow(p->slot, &p->slot_capacity, p->slot_count + 1, sizeof *p->slot);
  p->slot[p->slot_count] = (struct slot){.bytes = p->bytes[message]};
  return (uint32_t)p->slot_count++;
}

/* Gives every message of a rank a slot; each size gets `spare` more than it needs. A slot is in its
 * pool while taken, too: the heap's key says from which row on it is free. */
static void assign(struct pen_slot_assignment *p, const uint32_t *message, size_t count,
                   const size_t *needed, size_t spare) {
  p->slot_count = 0;
  for (size_t i = 0; i < p->pool_count; i++) p->pool[i].count = p->pool[i].total = 0;
  forget_credits(p, message, count);
  for (size_t i = 0; i < count; i++) {
    struct pool *pool = pool_of(p, p->bytes[message[i]]);
    uint32_t slot = choose(p, message[i], needed ? needed[pool - p->pool] + spare : 0);
    p->slot[slot].last_message = message[i];
    p->fact[message[i]].slot = slot;
    pool_push(p, pool, slot);
  }
}

/* What a message's sender knows of the step before at this step's start. */
static int64_t known_before(const struct pen_slot_assignment *p, uint32_t message) {
  int64_t told = p->told_before[p->lowered->message[message].channel],
          known = p->fact[message].known_before;
  return told > known ? told : known;
}

/* Gives credits to the messages that need one; or, with `given`, sees whether those that have one
 * suffice. Also says from which row on each message's home must be left to it. */
static bool walk_credits(struct pen_slot_assignment *p, const uint32_t *message, size_t count,
                         bool given, struct pen_receive_slot *home) {
  uint32_t *last = p->last;
  bool *again = p->again, enough = true;
  memset(again, 0, p->slot_count);
  for (size_t s = 0; s < p->slot_count; s++) last[s] = p->slot[s].last_message;
  forget_credits(p, message, count);
  for (size_t i = 0; i < count; i++) {
    const struct fact *fact = &p->fact[message[i]];
    struct pen_message *m = &p->lowered->message[message[i]];
    int64_t known = known_to(p, message[i]), earlier = known_before(p, message[i]),
            before = p->fact[last[fact->slot]].last_reader;
    bool needs = m->kind == PEN_SEND_G ||
                 (again[fact->slot] ? known < before : known < 0 && earlier < before);
    if (!given) m->credit = needs ? 0 : PEN_NONE; /* numbered by pen_slots_number_credits */
    bool credit = m->credit != PEN_NONE;
    enough = enough && (credit || !needs);
    if (credit) tell(p, message[i]);
    home[i] = (struct pen_receive_slot){
        p->slot[fact->slot].offset, p->bytes[message[i]],
        credit ? fact->receive_row : (uint32_t)(known + 1), fact->last_reader,
        !credit && known < 0 && earlier != INT64_MAX ? (uint32_t)(earlier + 1) : PEN_NONE};
    last[fact->slot] = message[i];
    again[fact->slot] = true;
  }
  return enough;
}

/* Lets the step before tell what its credits told. */
static void remember(struct pen_slot_assignment *p, const uint32_t *message, size_t count) {
  for (size_t i = 0; i < count; i++) p->told_before[p->lowered->message[message[i]].channel] = -1;
  for (size_t i = 0; i < count; i++)
    if (p->lowered->message[message[i]].credit != PEN_NONE)
      p->told_before[p->lowered->message[message[i]].channel] = p->fact[message[i]].receive_row;
}

/* First as if the credits of the step before told nothing. Then each credit that is there because
 * of the step before (on a channel none but the first: its sender knows of this step from there on)
 * is taken away if the others suffice, those of the step before told. */
static void decide_credits(struct pen_slot_assignment *p, const uint32_t *message, size_t count,
                           struct pen_receive_slot *home) {
  for (size_t i = 0; i < count; i++) {
    p->told_before[p->lowered->message[message[i]].channel] = -1;
    p->tried[p->lowered->message[message[i]].channel] = false;
  }
  walk_credits(p, message, count, false, home);
  for (size_t i = 0; i < count; i++) {
    struct pen_message *m = &p->lowered->message[message[i]];
    if (m->credit == PEN_NONE || p->tried[m->channel] ||
        p->fact[message[i]].known_before == INT64_MAX)
      continue;
    p->tried[m->channel] = true;
    m->credit = PEN_NONE;
    remember(p, message, count);
    if (!walk_credits(p, message, count, true, home)) m->credit = 0;
  }
  remember(p, message, count);
  walk_credits(p, message, count, true, home);
}

struct pen_receive_region pen_slots_place(struct pen_slot_assignment *p, uint32_t rank,
                                          uint32_t spare) {
  const uint32_t *message = &p->message[p->first_message[rank]];
  size_t count = p->first_message[rank + 1] - p->first_message[rank], needed[POOLS_MAX];
  p->pool_count = 0;
  assign(p, message, count, NULL, 0);
  for (size_t i = 0; i < p->pool_count; i++) needed[i] = p->pool[i].total;
  if (spare) assign(p, message, count, needed, spare);
  struct pen_receive_region window = {.slot_count = (uint32_t)p->slot_count,
                                      .message_count = count,
                                      .message = pen_new(count + 1, sizeof *window.message)};
  for (size_t s = 0; s < p->slot_count; s++) {
    p->slot[s].offset = window.bytes;
    window.bytes += pen_aligned(p->slot[s].bytes);
  }
  for (size_t i = 0; i < count; i++)
    p->lowered->message[message[i]].target_offset = p->slot[p->fact[message[i]].slot].offset;
  p->last = pen_grow(p->last, &p->last_capacity, p->slot_count + 1, sizeof *p->last);
  p->again = pen_grow(p->again, &p->again_capacity, p->slot_count + 1, sizeof *p->again);
  decide_credits(p, message, count, window.message);
  return window;
}

void pen_slots_number_credits(struct pen_slot_assignment *p) {
  struct pen_lowered *l = p->lowered;
  for (uint32_t m = 0; m < l->message_count; m++)
    if (l->message[m].credit != PEN_NONE)
      l->message[m].credit = l->channel[l->message[m].channel].credit_count++;
  pen_free(p->fact);
  pen_free(p->message);
}
