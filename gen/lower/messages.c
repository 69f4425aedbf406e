/* messages.c: the messages of a profile while it is lowered, and the channels that carry them. */
#include "gen/lower/messages.h"

#include <stdlib.h>
#include <string.h>

#include "gen/base/arena.h"

const uint8_t pen_message_send[PEN_MESSAGE_TYPES] = {PEN_SEND_F, PEN_SEND_B, PEN_SEND_G,
                                                     PEN_SEND_V},
              pen_message_receive[PEN_MESSAGE_TYPES] = {PEN_RECV_F, PEN_RECV_B, PEN_RECV_G,
                                                        PEN_RECV_V},
              pen_message_wait[PEN_MESSAGE_TYPES] = {PEN_WAIT_F, PEN_WAIT_B, PEN_WAIT_G,
                                                     PEN_WAIT_V};

/* ---- channels ---- */

static int compare_channels(const void *a, const void *b) {
  const struct pen_channel *x = a, *y = b;
  if (x->from_rank != y->from_rank) return x->from_rank < y->from_rank ? -1 : 1;
  return (x->to_rank > y->to_rank) - (x->to_rank < y->to_rank);
}

static void list_channels(const struct pen_partition *p, struct pen_lowered *lowered, bool backward,
                          bool tied) {
  struct pen_channel *channel = pen_new(2 * (size_t)p->stage_count + 1, sizeof *channel);
  uint32_t count = 0, kept = 0;
  if (tied) {
    uint32_t owner = p->rank_of[0], head = p->rank_of[p->stage_count - 1];
    channel[count++] = (struct pen_channel){.from_rank = head, .to_rank = owner};
    channel[count++] = (struct pen_channel){.from_rank = owner, .to_rank = head};
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
  lowered->channel = channel;
  lowered->channel_count = kept;
}

static uint32_t find_channel(const struct pen_lowered *lowered, uint32_t from, uint32_t to) {
  struct pen_channel key = {.from_rank = from, .to_rank = to};
  struct pen_channel *found =
      bsearch(&key, lowered->channel, lowered->channel_count, sizeof key, compare_channels);
  return found ? (uint32_t)(found - lowered->channel) : PEN_NONE;
}

/* ---- messages ---- */

static uint32_t *index_at(const struct pen_message_table *table, enum pen_message_type type,
                          uint32_t stage, uint32_t microbatch) {
  if (type > PEN_MESSAGE_GRADIENT) return table->index[type];
  return &table->index[type][(size_t)stage * table->partition->microbatch_count + microbatch];
}

struct pen_message_table pen_messages_start(const struct pen_partition *partition,
                                            struct pen_lowered *lowered, bool backward, bool tied) {
  struct pen_message_table table = {.partition = partition, .lowered = lowered};
  for (int type = 0; type < PEN_MESSAGE_TYPES; type++) {
    size_t count = type > PEN_MESSAGE_GRADIENT
                       ? 1
                       : (size_t)partition->stage_count * partition->microbatch_count;
    table.index[type] = pen_new(count, sizeof **table.index);
    memset(table.index[type], 0xff, count * sizeof **table.index);
  }
  list_channels(partition, lowered, backward, tied);
  return table;
}

void pen_messages_reserve(struct pen_message_table *table, size_t count) {
  table->lowered->message = pen_new(count, sizeof *table->lowered->message);
}

uint32_t pen_message_add(struct pen_message_table *table, enum pen_message_type type,
                         uint32_t stage, uint32_t microbatch) {
  struct pen_lowered *lowered = table->lowered;
  const uint32_t *rank_of = table->partition->rank_of;
  uint32_t reader = pen_message_reader(table->partition, type, stage),
           channel = find_channel(lowered, rank_of[stage], rank_of[reader]),
           index = lowered->message_count++;
  PEN_RESERVE(lowered->message, index + 1);
  lowered->message[index] =
      (struct pen_message){.kind = pen_message_send[type],
                           .stage = (uint16_t)stage,
                           .microbatch = microbatch,
                           .channel = channel,
                           .sequence = lowered->channel[channel].message_count++,
                           .credit = PEN_NONE};
  *index_at(table, type, stage, microbatch) = index;
  return index;
}

uint32_t pen_message_find(const struct pen_message_table *table, enum pen_message_type type,
                          uint32_t stage, uint32_t microbatch) {
  return *index_at(table, type, stage, microbatch);
}
