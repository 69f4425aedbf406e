/* internal.h: what the rules of schedules read and fill. */
#ifndef PEN_SCHEDULE_INTERNAL_H
#define PEN_SCHEDULE_INTERNAL_H

#include "gen/partition/partition.h"
#include "gen/schedule/order.h"
#include "gen/topology/topology.h"

/* What a rule reads, and the order that it fills. The local stages of a rank are numbered from 0
 * in ascending order. */
struct pen_composer {
  const struct pen_topology *topology; /* null: forwards of eval */
  const struct pen_partition *partition;
  uint32_t rank_count, stages_per_rank, microbatch_count;
  uint32_t warmup;        /* see pen_schedule_warmup() */
  bool splits;            /* backward is I and W; see pen_schedule_splits() */
  const uint32_t *stages; /* [rank][local stage] */
  struct pen_order *order;
  uint32_t rank_capacity; /* most actions of a rank: F, I and W of every stage and microbatch */
};

/* Appends an action of a rank's local stage to its order. */
void pen_order_add(const struct pen_composer *composer, uint32_t rank, int kind,
                   uint32_t local_stage, uint32_t microbatch);

/* Makes the last action of the rank the first of a pair a|b with the action that is added next. */
void pen_order_overlap(const struct pen_composer *composer, uint32_t rank);

/* ---- building_block.c ---- */

enum { PEN_BLOCK_TICKS = 6 };

/* When a rank runs F and I of microbatch 0, in ticks: F of its stage on the way down, F of its
 * stage on the way up, I of the latter, I of the former. */
struct pen_building_block {
  uint32_t offset[4];
};

/* Repeats the block, [rank], for every microbatch, removes idle ticks, and fills the rest with W; a
 * rank holds at most `limit` stage activations. Two stages a rank in a V. */
void pen_compose_building_block(const struct pen_composer *composer,
                                const struct pen_building_block *block, uint32_t limit);

/* ---- the rules, one file each ---- */

void pen_compose_1f1b(const struct pen_composer *composer);
void pen_compose_dual_pipe_v(const struct pen_composer *composer);
void pen_compose_gpipe(const struct pen_composer *composer);
void pen_compose_inference(const struct pen_composer *composer);
void pen_compose_looped_bfs(const struct pen_composer *composer);
void pen_compose_v_half(const struct pen_composer *composer);
void pen_compose_v_min(const struct pen_composer *composer);
void pen_compose_zero_bubble_v(const struct pen_composer *composer);

/* Which numbers a rule accepts: 1f1b.c, dual_pipe_v.c. */
bool pen_1f1b_suits(uint32_t ranks, uint32_t stages_per_rank, uint32_t microbatches);
bool pen_dual_pipe_v_suits(uint32_t ranks, uint32_t stages_per_rank, uint32_t microbatches);

#endif
