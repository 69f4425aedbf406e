/* messages.h: the messages of a profile while it is lowered, and the channels that carry them. */
#ifndef PEN_MESSAGES_H
#define PEN_MESSAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gen/lower/lower.h"
#include "gen/partition/partition.h"
#include "runtime/plan/plan.h"

/* What a message carries: the output of F; the gradient of the input, from B or I; the gradient of
 * a tied weight from the head's rank; the updated tied weight to it. */
enum pen_message_type {
  PEN_MESSAGE_OUTPUT,
  PEN_MESSAGE_GRADIENT,
  PEN_MESSAGE_TIED_GRADIENT,
  PEN_MESSAGE_TIED_WEIGHT,
  PEN_MESSAGE_TYPES
};

/* The kinds of the actions of each type. */
extern const uint8_t pen_message_send[PEN_MESSAGE_TYPES], pen_message_receive[PEN_MESSAGE_TYPES],
    pen_message_wait[PEN_MESSAGE_TYPES];

/* The type that a compute action of this kind reads and writes, or a SEND or RECV of it has; not
 * for those of a tied weight. */
static inline enum pen_message_type pen_message_type_of(int kind) {
  return kind == PEN_F || kind == PEN_SEND_F || kind == PEN_RECV_F ? PEN_MESSAGE_OUTPUT
                                                                   : PEN_MESSAGE_GRADIENT;
}

/* The stage that reads what `stage` sends; PEN_NONE: none, at an end of the model. */
static inline uint32_t pen_message_reader(const struct pen_partition *partition,
                                          enum pen_message_type type, uint32_t stage) {
  uint32_t last = partition->stage_count - 1;
  switch (type) {
    case PEN_MESSAGE_OUTPUT: return stage < last ? stage + 1 : PEN_NONE;
    case PEN_MESSAGE_GRADIENT: return stage ? stage - 1 : PEN_NONE;
    default: return last - stage; /* between the first stage and the last */
  }
}

/* Whether `stage` sends to another rank. */
static inline bool pen_message_crosses(const struct pen_partition *partition,
                                       enum pen_message_type type, uint32_t stage) {
  uint32_t reader = pen_message_reader(partition, type, stage);
  return reader != PEN_NONE && partition->rank_of[reader] != partition->rank_of[stage];
}

/* The messages so far, which are in lowered->message. */
struct pen_message_table {
  const struct pen_partition *partition;
  struct pen_lowered *lowered;
  /* OUTPUT, GRADIENT: [sending stage * microbatches + microbatch]; others: [1] */
  uint32_t *index[PEN_MESSAGE_TYPES];
};

/* Starts a table without messages, and lists the channels in `lowered`: every directed pair of
 * ranks that may communicate, sorted. `backward`: there are gradients; `tied`: and messages of a
 * tied weight. */
struct pen_message_table pen_messages_start(const struct pen_partition *partition,
                                            struct pen_lowered *lowered, bool backward, bool tied);

/* Allocates the memory for so many messages. */
void pen_messages_reserve(struct pen_message_table *table, size_t count);

/* Adds a message, the last of its channel; returns its index. */
uint32_t pen_message_add(struct pen_message_table *table, enum pen_message_type type,
                         uint32_t stage, uint32_t microbatch);

/* The index of the message that `stage` sends; PEN_NONE: it is not added yet. */
uint32_t pen_message_find(const struct pen_message_table *table, enum pen_message_type type,
                          uint32_t stage, uint32_t microbatch);

#endif
