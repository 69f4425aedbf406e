/* schedules.h: the table of schedules, and what a schedule's rule has to work with. */
#ifndef PEN_SCHEDULES_H
#define PEN_SCHEDULES_H

#include "gen/gen.h"

/* What a rule gets and what it fills. Stages of a rank are counted from 0 in rising order: its local stages. */
struct pen_composer {
  const struct pen_topology *topology;
  uint32_t rank_count, stages_per_rank, microbatch_count;
  const uint32_t *stages; /* [rank][local stage] */
  struct pen_order *order;
  uint32_t rank_capacity; /* actions that fit a rank: F, I and W of every stage and microbatch */
};

/* The columns of schedules.def. */
struct pen_schedule {
  const char *name, *placement;
  bool strict;
  uint32_t stages_minimum, stages_maximum;
  bool trains;
  const char *rule, *source;
  void (*compose)(const struct pen_composer *composer);
};

extern const struct pen_schedule pen_schedules[];
extern const uint32_t pen_schedule_count;

/* The row of that name, or null. */
const struct pen_schedule *pen_schedule_of(const char *name);

/* Appends an action of a rank's local stage to its order. */
void pen_order_add(const struct pen_composer *composer, uint32_t rank, int kind, uint32_t local_stage, uint32_t microbatch);

#define PEN_SCHEDULE(function, name, placement, strict, minimum, maximum, trains, rule, source)                                \
  void pen_schedule_##function(const struct pen_composer *composer);
#include "gen/schedules.def"

#endif
