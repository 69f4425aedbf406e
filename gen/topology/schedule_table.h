/* schedule_table.h: the table of schedules (schedules.def) as data. gen/schedule/compose.c has the
 * rules. */
#ifndef PEN_SCHEDULE_TABLE_H
#define PEN_SCHEDULE_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "gen/topology/topology.h"
#include "runtime/plan/plan.h"

/* Whether a schedule splits the backward into I and W: never, as pipeline.zero_bubble says, or
 * always (all backwards or some). */
enum pen_split { PEN_SPLIT_NEVER, PEN_SPLIT_SETTING, PEN_SPLIT_ALWAYS };

/* Where the order comes from. */
enum pen_given { PEN_GIVEN_BY_RULE, PEN_GIVEN_BY_FILE, PEN_GIVEN_BY_SEARCH };

/* One row of schedules.def, [enum pen_schedule_kind]. */
struct pen_schedule {
  const char *name;
  enum pen_placement placement;            /* the default of pipeline.placement */
  bool strict;                             /* the rule supports this placement only */
  uint32_t stages_minimum, stages_maximum; /* of pipeline.stages_per_rank */
  bool trains;                             /* false: forward-only; see struct pen_topology */
  enum pen_given given;                    /* bubble and peak are known only of BY_RULE */
  uint32_t warmup;                         /* 0: pipeline.warmup */
  enum pen_split split;
  enum pen_backward_order backward_order; /* of each stage's microbatches (plan.h) */
  const char *rule, *source; /* one sentence for --list-schedules and the manual; its source */
  const char *bubble, *peak, *holds; /* C expressions as text; see schedules.def */
};

extern const struct pen_schedule pen_schedules[];
extern const uint32_t pen_schedule_count;

/* The row of an enumerator. */
static inline const struct pen_schedule *pen_schedule_of(enum pen_schedule_kind kind) {
  return &pen_schedules[kind];
}

/* 1 or 2: that of the row; if it has none, pipeline.warmup; if not set, 1 with one stage per rank
 * or with a split backward, else 2. */
uint32_t pen_schedule_warmup(const struct pen_schedule *schedule,
                             const struct pen_topology *topology, uint32_t stages_per_rank);

/* Whether the schedule splits the backward with the topology's settings. */
bool pen_schedule_splits(const struct pen_schedule *schedule, const struct pen_topology *topology);

/* Reads pipeline.schedule_file and adds it to the sources. Ends the generator (66) if it cannot be
 * read. */
void pen_topology_read_schedule_file(struct pen_topology *topology);

/* "loop" or "v", by the stages in the first row of the file. */
enum pen_placement pen_topology_placement_of_file(const struct pen_topology *topology);

#endif
