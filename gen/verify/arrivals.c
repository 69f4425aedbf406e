/* arrivals.c: the earliest moment at which the sender of a message could write its target bytes.
 *
 * With a credit that is after the receiver's RECV; else after the last action of the receiver that
 * the sender knows to be complete when it sends. A sender knows of an action after it has waited
 * for a message that the receiver sent after that action, or for a credit that the receiver gave
 * after it, or has run WAIT_NORM after the receiver's PUBLISH. (What it could know through other
 * ranks does not count.) */
#include <stdlib.h>

#include "gen/verify/internal.h"
#include "gen/base/arena.h"
#include "runtime/plan/plan.h"

/* By channel (sender to receiver): how many actions of the receiver, over both steps, the sender
 * knows to be complete. */
struct knowledge {
  uint32_t *known;   /* [channel] */
  uint32_t *reverse; /* [channel]: the channel in the other direction, or PEN_NONE */
};

/* A channel with its ends, to be sorted. */
struct channel_ends {
  uint32_t from_rank, to_rank, channel;
};

static int compare_ends(const void *a, const void *b) {
  const struct channel_ends *x = a, *y = b;
  if (x->from_rank != y->from_rank) return x->from_rank < y->from_rank ? -1 : 1;
  return (x->to_rank > y->to_rank) - (x->to_rank < y->to_rank);
}

/* The channels sorted by sender, and the reverse channel of each. */
static struct channel_ends *sort_channels(const struct pen_profile *profile, uint32_t *reverse) {
  uint32_t count = profile->channel_count;
  struct channel_ends *sorted = pen_new((size_t)count + 1, sizeof *sorted);
  for (uint32_t index = 0; index < count; index++)
    sorted[index] = (struct channel_ends){profile->channels[index].from_rank,
                                          profile->channels[index].to_rank, index};
  qsort(sorted, count, sizeof *sorted, compare_ends);
  for (uint32_t index = 0; index < count; index++) {
    struct channel_ends back = {profile->channels[index].to_rank,
                                profile->channels[index].from_rank, 0};
    const struct channel_ends *found = bsearch(&back, sorted, count, sizeof back, compare_ends);
    reverse[index] = found ? found->channel : PEN_NONE;
  }
  return sorted;
}

static void raise_known(uint32_t *known, uint32_t actions) {
  if (actions > *known) *known = actions;
}

/* How many actions of a rank are complete after its PUBLISH. */
static uint32_t published_actions(const struct pen_check_context *c, uint32_t rank) {
  for (uint32_t action = c->count[rank]; action-- > 0;)
    if (c->action[rank][action].kind == PEN_PUBLISH) return action + 1;
  return 0;
}

/* Visits the actions of a sender over both steps; sets earliest[step][message] of what it sends. */
static void find_sent_messages(const struct pen_check_context *c, const struct pen_profile *profile,
                               uint32_t rank, const struct knowledge *k,
                               const struct channel_ends *out, uint32_t out_count,
                               uint32_t *const earliest[2]) {
  for (uint32_t step = 0; step < 2; step++)
    for (uint32_t index = 0; index < c->count[rank]; index++) {
      const struct pen_action *action = &c->action[rank][index];
      if (action->kind == PEN_WAIT_NORM)
        for (uint32_t n = 0; n < out_count; n++)
          raise_known(&k->known[out[n].channel],
                      step * c->count[out[n].to_rank] + published_actions(c, out[n].to_rank));
      if (!pen_is_wait(action->kind) && !pen_is_send(action->kind)) continue;
      const struct pen_message *message = &profile->messages[action->message];
      const struct pen_channel *channel = &profile->channels[message->channel];
      enum pen_direction direction = pen_direction_of(message->kind);
      if (pen_is_wait(action->kind)) {
        uint32_t sent = pen_action_position(c, message->kind, message->stage, message->microbatch);
        if (k->reverse[message->channel] != PEN_NONE)
          raise_known(&k->known[k->reverse[message->channel]],
                      step * c->count[channel->from_rank] + sent);
        continue;
      }
      uint32_t *known = &k->known[message->channel];
      uint32_t received = pen_action_position(c, pen_direction_receive[direction],
                                              pen_receiving_stage(c, direction, message->stage),
                                              message->microbatch);
      if (message->credit != PEN_NONE)
        raise_known(known, step * c->count[channel->to_rank] + received + 1);
      earliest[step][action->message] =
          message->credit != PEN_NONE ? step * c->count[channel->to_rank] + received + 1 : *known;
    }
}

void pen_earliest_arrivals(const struct pen_check_context *c, const struct pen_profile *profile,
                           uint32_t *const earliest[2]) {
  struct knowledge k = {pen_new((size_t)profile->channel_count + 1, sizeof(uint32_t)),
                        pen_new((size_t)profile->channel_count + 1, sizeof(uint32_t))};
  const struct channel_ends *sorted = sort_channels(profile, k.reverse);
  uint32_t first = 0;
  for (uint32_t rank = 0; rank < c->rank_count; rank++) {
    uint32_t past = first;
    while (past < profile->channel_count && sorted[past].from_rank == rank) past++;
    find_sent_messages(c, profile, rank, &k, sorted + first, past - first, earliest);
    first = past;
  }
}
