/* schedule_table.c: the table of schedules, and what its columns mean for a topology. */
#include "gen/topology/schedule_table.h"

#define PEN_SCHEDULE(key, compose, suits, label, bubble_expression, peak_expression, \
                     holds_expression, ...)                                          \
  {.name = label,                                                                    \
   .bubble = #bubble_expression,                                                     \
   .peak = #peak_expression,                                                         \
   .holds = #holds_expression,                                                       \
   __VA_ARGS__},
const struct pen_schedule pen_schedules[] = {
#include "gen/topology/schedules.def"
};
const uint32_t pen_schedule_count = sizeof pen_schedules / sizeof pen_schedules[0];

uint32_t pen_schedule_warmup(const struct pen_schedule *schedule,
                             const struct pen_topology *topology, uint32_t stages_per_rank) {
  if (schedule->warmup) return schedule->warmup;
  if (topology->has_pipeline_warmup) return (uint32_t)topology->pipeline_warmup;
  return stages_per_rank == 1 || pen_schedule_splits(schedule, topology) ? 1 : 2;
}

bool pen_schedule_splits(const struct pen_schedule *schedule, const struct pen_topology *topology) {
  return schedule->split == PEN_SPLIT_ALWAYS ||
         (schedule->split == PEN_SPLIT_SETTING && topology->pipeline_zero_bubble);
}
