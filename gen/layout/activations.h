/* activations.h: activations and messages in one rank's arena, for one profile. */
#ifndef PEN_ACTIVATIONS_H
#define PEN_ACTIVATIONS_H

#include "gen/layout/internal.h"
#include "gen/layout/pack.h"
#include "gen/layout/receive_slots.h"

/* The rectangles of a rank, and where the offset of each goes. */
struct pen_rank_packing {
  const struct pen_action *action; /* the rank's */
  struct pen_rectangle *rectangle;
  uint64_t **target;
  uint64_t **second; /* also the offset of a buffer that two stages of the rank share; else NULL */
  size_t count;
  size_t fixed;   /* so many, the first, are messages at fixed offsets: */
  bool has_fixed; /* if set, of this rank with so many spare slots */
  uint32_t rank, spare;
  struct pen_receive_region region;
  uint64_t scratch; /* offset of the scratch that all actions share */
};

/* A way to pack a rank. */
struct pen_strategy {
  enum pen_split_kind split;
  uint32_t spare; /* receive slots of each size beyond the least */
  bool shares_scratch;
  size_t steps; /* of searching; 0: first fit alone */
};

/* Sets l->stage_actions. */
void pen_find_stage_actions(struct pen_layout_state *l);
struct pen_slot_assignment *pen_start_slots(struct pen_layout_state *l);
/* Sets the bases of the messages at their readers. */
void pen_set_message_bases(struct pen_layout_state *l);
/* The most bytes that are live at one op of the rank, or at two that overlap, whatever the slots: a
 * message is live from its RECV to its last reader. */
int64_t pen_live_bytes(const struct pen_layout_state *l, uint32_t rank);
/* Packs a rank whose stage buffers are made. Returns the bytes of its receive region and
 * activations; UINT64_MAX, with nothing changed, if they must be more than `limit`. */
uint64_t pen_pack_rank(struct pen_layout_state *l, struct pen_slot_assignment *slots,
                       struct pen_rank_packing *p, uint32_t rank,
                       const struct pen_strategy *strategy, uint64_t limit, uint64_t goal);

#endif
