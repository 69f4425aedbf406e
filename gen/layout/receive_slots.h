/* receive_slots.h: receive slots of messages, and which messages need a credit. */
#ifndef PEN_RECEIVE_SLOTS_H
#define PEN_RECEIVE_SLOTS_H

#include "gen/lower/lower.h"

/* Where a message is in the receive region, and how long nothing else may be there: from action
 * `first` to `last`, both included; and, unless `before` is PEN_NONE, from action `before` to the
 * end of the previous step. */
struct pen_receive_slot {
  uint64_t offset, bytes;
  uint32_t first, last, before;
};

/* The messages to one rank. */
struct pen_receive_region {
  uint64_t bytes;
  uint32_t slot_count;
  struct pen_receive_slot *message; /* [message_count], in the order of the RECV actions */
  size_t message_count;
};

struct pen_slot_assignment;

/* Starts the assignment. last_reader[message] is the action of the receiver that reads it last,
 * bytes[message] its size; both must outlive the assignment. */
struct pen_slot_assignment *pen_slots_prepare(struct pen_lowered *lowered,
                                              const uint32_t *last_reader, const uint64_t *bytes);
/* Gives every message to a rank a slot, with up to `spare` slots of each size more than needed, and
 * decides which messages need credits: sets target_offset, and credit to PEN_NONE or 0. May be
 * called again with another `spare`. */
struct pen_receive_region pen_slots_place(struct pen_slot_assignment *assignment, uint32_t rank,
                                          uint32_t spare);
/* Numbers the credits, sets the channels' credit counts, and frees the assignment. */
void pen_slots_number_credits(struct pen_slot_assignment *assignment);

#endif
