/* verify_arrivals.c: from when on a message may change the bytes of its home: the earliest instant
 * at which its sender could write them.
 *
 * With a credit that is after the receiver's RECV row; else after the last row of the receiver that
 * the sender has heard of when it sends. A sender has heard of a row when it has waited for a
 * message that the receiver sent after it, or for a credit that the receiver gave after it, or has
 * run WAIT_NORM after the receiver's PUBLISH. (What it could know through third ranks does not
 * count.) */
#include <stdlib.h>

#include "gen/verify/internal.h"
#include "gen/base/arena.h"
#include "runtime/plan/plan.h"

/* By channel (sender to receiver): how many rows of the receiver, over both steps, the sender knows
 * to be done. */
struct knowledge {
  uint32_t *known;   /* [channel] */
  uint32_t *reverse; /* [channel] the channel back, or PEN_NONE */
};

/* A channel by its ends, to be sorted. */
struct ends {
  uint32_t from_rank, to_rank, channel;
};

static int compare_ends(const void *a, const void *b) {
  const struct ends *x = a, *y = b;
  if (x->from_rank != y->from_rank) return x->from_rank < y->from_rank ? -1 : 1;
  return (x->to_rank > y->to_rank) - (x->to_rank < y->to_rank);
}

/* The channels sorted by sender, and the channel back of each. */
static struct ends *sort_channels(const struct pen_profile *profile, uint32_t *reverse) {
  uint32_t count = profile->channel_count;
  struct ends *sorted = pen_new((size_t)count + 1, sizeof *sorted);
  for (uint32_t index = 0; index < count; index++)
    sorted[index] =
        (struct ends){profile->channels[index].from_rank, profile->channels[index].to_rank, index};
  qsort(sorted, count, sizeof *sorted, compare_ends);
  for (uint32_t index = 0; index < count; index++) {
    struct ends back = {profile->channels[index].to_rank, profile->channels[index].from_rank, 0};
    const struct ends *found = bsearch(&back, sorted, count, sizeof back, compare_ends);
    reverse[index] = found ? found->channel : PEN_NONE;
  }
  return sorted;
}

static void hear(uint32_t *known, uint32_t rows) {
  if (rows > *known) *known = rows;
}

/* The row of a rank's PUBLISH, plus one. */
static uint32_t published_rows(const struct pen_checked *c, uint32_t rank) {
  for (uint32_t row = c->count[rank]; row-- > 0;)
    if (c->row[rank][row].kind == PEN_PUBLISH) return row + 1;
  return 0;
}

/* Walks a sender's rows over both steps; sets begin[step][message] of what it sends: rows of the
 * receiver that are done by then. */
static void walk_sender(const struct pen_checked *c, const struct pen_profile *profile,
                        uint32_t rank, const struct knowledge *k, const struct ends *out,
                        uint32_t out_count, uint32_t *const begin[2]) {
  for (uint32_t step = 0; step < 2; step++)
    for (uint32_t index = 0; index < c->count[rank]; index++) {
      const struct pen_action *row = &c->row[rank][index];
      if (row->kind == PEN_WAIT_NORM)
        for (uint32_t n = 0; n < out_count; n++)
          hear(&k->known[out[n].channel],
               step * c->count[out[n].to_rank] + published_rows(c, out[n].to_rank));
      if (!pen_is_wait(row->kind) && !pen_is_send(row->kind)) continue;
      const struct pen_message *message = &profile->messages[row->message];
      const struct pen_channel *channel = &profile->channels[message->channel];
      enum pen_direction way = pen_direction_of(message->kind);
      if (pen_is_wait(row->kind)) {
        uint32_t sent = pen_action_index(c, message->kind, message->stage, message->microbatch);
        if (k->reverse[message->channel] != PEN_NONE)
          hear(&k->known[k->reverse[message->channel]], step * c->count[channel->from_rank] + sent);
        continue;
      }
      uint32_t *known = &k->known[message->channel];
      uint32_t received = pen_action_index(c, pen_direction_receive[way],
                                           pen_reader(c, way, message->stage), message->microbatch);
      if (message->credit != PEN_NONE)
        hear(known, step * c->count[channel->to_rank] + received + 1);
      begin[step][row->message] =
          message->credit != PEN_NONE ? step * c->count[channel->to_rank] + received + 1 : *known;
    }
}

void pen_find_arrivals(const struct pen_checked *c, const struct pen_profile *profile,
                       uint32_t *const begin[2]) {
  struct knowledge k = {pen_new((size_t)profile->channel_count + 1, sizeof(uint32_t)),
                        pen_new((size_t)profile->channel_count + 1, sizeof(uint32_t))};
  const struct ends *sorted = sort_channels(profile, k.reverse);
  uint32_t first = 0;
  for (uint32_t rank = 0; rank < c->rank_count; rank++) {
    uint32_t past = first;
    while (past < profile->channel_count && sorted[past].from_rank == rank) past++;
    walk_sender(c, profile, rank, &k, sorted + first, past - first, begin);
    first = past;
  }
}
