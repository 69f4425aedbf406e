/* slots.c: receive slots, and which messages need a credit.
 *
 * A slot is taken from the message's RECV row to its last reader. Taken by RECV row alone the slots are an interval colouring, and
 * as few as can be; but then a sender must often wait for word that the slot is free. So the messages are given slots in the order
 * of their RECV rows, and one whose last reader the sender has already heard of (by a message that the receiver sent after it) is
 * preferred: no credit is needed. A few more slots than the least (SPARE_SLOTS) are spent to that end; beyond, a credit.
 *
 * What a sender knows: when it has waited for a message that the receiver sent in row q, all the receiver's rows up to q are done.
 * The plan repeats. At the start of a step a sender knows all of the step before when there is a barrier; without one, what it knew
 * at that step's end. */
#include <stdlib.h>
#include <string.h>

#include "gen/layout.h"

enum { SPARE_SLOTS = 2 };

/* Of one message. */
struct fact {
  uint32_t receive_row, send_row, last_reader;
  int64_t known;          /* last row of the receiver, this step, that the sender knows is done when it sends; -1: none */
  int64_t known_before;   /* the same for the step before, at this step's start; INT64_MAX: all */
  uint32_t slot;
};

/* A slot's size and, while messages are placed, its last occupant. */
struct slot {
  uint64_t bytes, offset;
  uint32_t first_message, last_message; /* in this step, or PEN_NONE */
};

struct placing {
  struct pen_lowered *lowered;
  struct fact *fact;
  const uint64_t *bytes;
  struct slot *slot;
  size_t slot_count, slot_capacity;
};

/* Fills receive_row and send_row. */
static void find_ends(struct placing *p) {
  const struct pen_lowered *l = p->lowered;
  for (uint32_t r = 0; r < l->rank_count; r++)
    for (uint32_t i = 0; i < l->count[r]; i++) {
      const struct pen_action *a = &l->action[r][i];
      if (a->kind == PEN_SEND_F || a->kind == PEN_SEND_B) p->fact[a->message].send_row = i;
      if (a->kind == PEN_RECV_F || a->kind == PEN_RECV_B) p->fact[a->message].receive_row = i;
    }
}

/* Fills `known` by walking one rank's rows; known_at_end is [channel]. `known` is scratch, [rank], all -1 before and after. */
static void walk_rank(struct placing *p, uint32_t rank, int64_t *known, int64_t *known_at_end) {
  const struct pen_lowered *l = p->lowered;
  for (uint32_t i = 0; i < l->count[rank]; i++) {
    const struct pen_action *a = &l->action[rank][i];
    if (a->message == PEN_NONE) continue;
    const struct pen_channel *channel = &l->channel[l->message[a->message].channel];
    if (a->kind == PEN_SEND_F || a->kind == PEN_SEND_B) p->fact[a->message].known = known[channel->to_rank];
    if ((a->kind == PEN_WAIT_F || a->kind == PEN_WAIT_B) && (int64_t)p->fact[a->message].send_row > known[channel->from_rank])
      known[channel->from_rank] = p->fact[a->message].send_row;
  }
  for (uint32_t c = 0; c < l->channel_count; c++)
    if (l->channel[c].from_rank == rank) known_at_end[c] = known[l->channel[c].to_rank];
  for (uint32_t c = 0; c < l->channel_count; c++)
    if (l->channel[c].to_rank == rank) known[l->channel[c].from_rank] = -1;
}

static void gather_facts(struct placing *p, bool barrier) {
  const struct pen_lowered *l = p->lowered;
  find_ends(p);
  int64_t *known = pen_new(l->rank_count, sizeof *known);
  int64_t *known_at_end = pen_new(l->channel_count + 1u, sizeof *known_at_end);
  for (uint32_t r = 0; r < l->rank_count; r++) known[r] = -1;
  for (uint32_t r = 0; r < l->rank_count; r++) walk_rank(p, r, known, known_at_end);
  for (uint32_t m = 0; m < l->message_count; m++)
    p->fact[m].known_before = barrier ? INT64_MAX : known_at_end[l->message[m].channel];
}

/* Whether the sender of `next` knows that `before`, an earlier message of the same step in the same slot, has been read. */
static bool knows(const struct placing *p, uint32_t next, uint32_t before) {
  return (int64_t)p->fact[before].last_reader <= p->fact[next].known;
}

/* The slot for a message: one known to be free; else a spare; else the one longest free by then (with a credit); else a new one. */
static uint32_t choose(struct placing *p, uint32_t message, size_t spare_until) {
  uint32_t known_free = PEN_NONE, oldest = PEN_NONE;
  for (uint32_t s = 0; s < p->slot_count; s++) {
    const struct slot *slot = &p->slot[s];
    if (slot->bytes != p->bytes[message]) continue;
    uint32_t last = slot->last_message;
    if (p->fact[last].last_reader >= p->fact[message].receive_row) continue;
    if (knows(p, message, last) && known_free == PEN_NONE) known_free = s;
    if (oldest == PEN_NONE || p->fact[last].last_reader < p->fact[p->slot[oldest].last_message].last_reader) oldest = s;
  }
  if (known_free != PEN_NONE) return known_free;
  if (oldest != PEN_NONE && p->slot_count >= spare_until) return oldest;
  p->slot = pen_grow(p->slot, &p->slot_capacity, p->slot_count + 1, sizeof *p->slot);
  p->slot[p->slot_count] = (struct slot){.bytes = p->bytes[message], .first_message = PEN_NONE, .last_message = PEN_NONE};
  return (uint32_t)p->slot_count++;
}

static void assign(struct placing *p, const uint32_t *message, size_t count, size_t spare_until) {
  p->slot_count = 0;
  for (size_t i = 0; i < count; i++) {
    uint32_t s = choose(p, message[i], spare_until);
    if (p->slot[s].first_message == PEN_NONE) p->slot[s].first_message = message[i];
    p->slot[s].last_message = message[i];
    p->fact[message[i]].slot = s;
  }
}

/* Slots of one rank; returns its window's bytes. The first assignment, without spares, shows how few would do. */
static uint64_t place_rank(struct placing *p, const uint32_t *message, size_t count) {
  assign(p, message, count, 0);
  assign(p, message, count, p->slot_count + SPARE_SLOTS);
  uint64_t offset = 0;
  for (size_t s = 0; s < p->slot_count; s++) {
    p->slot[s].offset = offset;
    offset += pen_aligned(p->slot[s].bytes);
  }
  for (size_t i = 0; i < count; i++) p->lowered->message[message[i]].target_offset = p->slot[p->fact[message[i]].slot].offset;
  return offset;
}

/* Whether a message may leave without a credit: its slot's occupant before it, in this step or the last one of the step before, is
 * known to have been read. */
static bool needs_credit(const struct placing *p, uint32_t message, uint32_t before, bool step_before) {
  const struct fact *fact = &p->fact[message];
  if (!step_before) return !knows(p, message, before);
  return fact->known < 0 && fact->known_before < (int64_t)p->fact[before].last_reader;
}

static void decide_credits(struct placing *p, const uint32_t *message, size_t count) {
  uint32_t *last = pen_new(p->slot_count + 1, sizeof *last);
  for (size_t s = 0; s < p->slot_count; s++) last[s] = p->slot[s].last_message;
  bool *second = pen_new(p->slot_count + 1, sizeof *second);
  for (size_t i = 0; i < count; i++) {
    uint32_t s = p->fact[message[i]].slot;
    if (needs_credit(p, message[i], last[s], !second[s])) p->lowered->message[message[i]].credit = 0; /* numbered below */
    last[s] = message[i];
    second[s] = true;
  }
}

/* Credits are counted on a channel in the order of its messages. */
static void number_credits(struct pen_lowered *l) {
  for (uint32_t m = 0; m < l->message_count; m++)
    if (l->message[m].credit != PEN_NONE) l->message[m].credit = l->channel[l->message[m].channel].credit_count++;
}

void pen_slots(struct pen_lowered *lowered, const uint32_t *last_reader, const uint64_t *bytes, bool barrier,
               uint64_t *window_bytes, uint32_t *slot_count) {
  struct placing p = {.lowered = lowered, .bytes = bytes, .fact = pen_new(lowered->message_count + 1u, sizeof *p.fact)};
  for (uint32_t m = 0; m < lowered->message_count; m++) p.fact[m].last_reader = last_reader[m];
  gather_facts(&p, barrier);
  uint32_t *message = pen_new(lowered->message_count + 1u, sizeof *message);
  for (uint32_t r = 0; r < lowered->rank_count; r++) {
    size_t count = 0;
    for (uint32_t i = 0; i < lowered->count[r]; i++) {
      const struct pen_action *a = &lowered->action[r][i];
      if (a->kind == PEN_RECV_F || a->kind == PEN_RECV_B) message[count++] = a->message;
    }
    window_bytes[r] = place_rank(&p, message, count);
    slot_count[r] = (uint32_t)p.slot_count;
    decide_credits(&p, message, count);
  }
  number_credits(lowered);
}
