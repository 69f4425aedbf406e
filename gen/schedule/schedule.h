/* schedules.h: the table of schedules, and what a schedule's rule has to work with. */
#ifndef PEN_SCHEDULES_H
#define PEN_SCHEDULES_H

#include <stdio.h>

#include "gen/partition/partition.h"
#include "gen/schedule/order.h"
#include "gen/topology/topology.h"

/* What a rule gets and what it fills. Stages of a rank are counted from 0 in rising order: its
 * local stages. */
struct pen_composer {
  const struct pen_topology *topology;
  const struct pen_partition *partition;
  uint32_t rank_count, stages_per_rank, microbatch_count;
  uint32_t warmup; /* as the schedule's row or the topology says; see pen_schedule_warmup() */
  bool splits;     /* backward is I and W; see pen_schedule_splits() */
  const uint32_t *stages; /* [rank][local stage] */
  struct pen_order *order;
  uint32_t rank_capacity; /* actions that fit a rank: F, I and W of every stage and microbatch */
};

/* Whether a schedule takes the backward apart: never, as pipeline.zero_bubble says, or always (some
 * of it or all). */
enum pen_split { PEN_SPLIT_NEVER, PEN_SPLIT_SETTING, PEN_SPLIT_ALWAYS };

/* Where the order is from, if no rule makes it. */
enum pen_given { PEN_GIVEN_BY_RULE, PEN_GIVEN_BY_FILE, PEN_GIVEN_BY_SEARCH };

/* The columns of schedules.def. */
struct pen_schedule {
  const char *name;
  const char *
      placement; /* "loop" or "v": where the stages lie, unless pipeline.placement says otherwise */
  bool strict;   /* the rule holds on this placement alone */
  uint32_t stages_minimum, stages_maximum; /* of pipeline.stages_per_rank */
  bool trains;                             /* false: forwards alone; see also struct pen_topology */
  enum pen_given given; /* but for a rule's, bubble and peak are as the order has them */
  bool (*suits)(uint32_t ranks, uint32_t stages_per_rank,
                uint32_t microbatches); /* null: all that the columns allow */
  uint32_t warmup;                      /* 0: as pipeline.warmup says */
  enum pen_split split;
  const char *rule,
      *source; /* one sentence for --list-schedules and the manual; where it is from */
  const char *bubble, *peak, *holds; /* expressions as text; see schedules.def */
  void (*compose)(const struct pen_composer *composer);
};

/* Of the rows that have one: what their rules demand of numbers, without a word. */
bool pen_rounds_divide(uint32_t ranks, uint32_t stages_per_rank,
                       uint32_t microbatches); /* one_forward_one_backward.c */
bool pen_two_a_rank(uint32_t ranks, uint32_t stages_per_rank,
                    uint32_t microbatches); /* dual_pipe_v.c */

extern const struct pen_schedule pen_schedules[];
extern const uint32_t pen_schedule_count;

/* The row of that name, or null. */
const struct pen_schedule *pen_schedule_of(const char *name);

/* 1 or 2: the row's, else the topology's, else 1 with one stage a rank or with zero_bubble, else 2.
 */
uint32_t pen_schedule_warmup(const struct pen_schedule *schedule,
                             const struct pen_topology *topology, uint32_t stages_per_rank);
bool pen_schedule_splits(const struct pen_schedule *schedule, const struct pen_topology *topology);

/* Appends an action of a rank's local stage to its order. */
void pen_order_add(const struct pen_composer *composer, uint32_t rank, int kind,
                   uint32_t local_stage, uint32_t microbatch);

/* Makes the last action of the rank the first of a pair a|b with the one that is added next. */
void pen_order_overlap(const struct pen_composer *composer, uint32_t rank);

/* ---- schedule_list.c: the table in words, for --list-schedules and the manual ---- */

/* What P, s, m, w, bubble and peak mean. */
extern const char pen_schedule_notation[];
/* `2 a rank, in a V`. */
const char *pen_schedule_stages(const struct pen_schedule *schedule);
/* The row's bubble or peak, and where it holds. */
const char *pen_schedule_figure(const struct pen_schedule *schedule, const char *expression);
void pen_schedules_list(FILE *out);

/* ---- schedules/building_block.c ---- */

enum { PEN_BLOCK_TICKS = 6 };

/* When a rank runs the F and I of microbatch 0, in ticks: F of its stage on the way down, F of its
 * stage on the way up, I of that, I of the first. */
struct pen_building_block {
  uint32_t offset[4];
};

/* Repeats the block, [rank], for every microbatch, squeezes out what time it can, and fills with W;
 * a rank holds at most `limit` stage activations. Two stages a rank in a V. */
void pen_compose_building_block(const struct pen_composer *composer,
                                const struct pen_building_block *block, uint32_t limit);

#define PEN_SCHEDULE(key, function, ...) \
  void pen_schedule_##function(const struct pen_composer *composer);
#include "gen/topology/schedules.def"

#endif
