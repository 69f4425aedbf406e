/* compose.c: from a schedule's name to the order of computation: finds its row in schedules.def and
 * lets the row's rule fill the order.
 *
 * An order is a list of F, B, I and W for each rank: no message, no time, no memory. A rule
 * (gen/schedules/, one file each, with its source) sees ranks, stages of each rank and
 * microbatches, and adds one action after another with pen_order_add(), a pair a|b with
 * pen_order_overlap(). What rules share is settled here, by the columns of their row:
 *
 *   warmup   the row's, else pipeline.warmup, else 1 with one stage a rank or a split backward,
 * else 2 splits   whether backward comes apart into I and W: as the row says, which may leave it to
 * pipeline.zero_bubble
 *
 * so that names such as zb_h1 or interleaved are rows alone. What a row demands of the stages a
 * rank and of their placement was checked when the topology was settled (settle.c); what a rule
 * demands of other numbers it checks itself. Nothing here sees that an order is complete or comes
 * to an end: the simulation and the verifier do. Eval runs the forwards of the same placement by
 * the rule of `inference`, whatever the training's schedule. */
#include <string.h>

#include "gen/schedule/schedule.h"
#include "gen/base/arena.h"
#include "gen/base/error.h"
#include "gen/partition/partition.h"
#include "gen/schedule/order.h"
#include "gen/schedule/compose.h"
#include "gen/topology/topology.h"

#define PEN_SCHEDULE(key, function, label, bubble_expression, peak_expression, holds_expression, \
                     ...)                                                                        \
  {.name = label,                                                                                \
   .bubble = #bubble_expression,                                                                 \
   .peak = #peak_expression,                                                                     \
   .holds = #holds_expression,                                                                   \
   .compose = pen_schedule_##function,                                                           \
   __VA_ARGS__},
const struct pen_schedule pen_schedules[] = {
#include "gen/topology/schedules.def"
};
const uint32_t pen_schedule_count = sizeof pen_schedules / sizeof pen_schedules[0];

const struct pen_schedule *pen_schedule_of(const char *name) {
  for (uint32_t index = 0; index < pen_schedule_count; index++)
    if (strcmp(pen_schedules[index].name, name) == 0) return &pen_schedules[index];
  return 0;
}

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

void pen_order_add(const struct pen_composer *composer, uint32_t rank, int kind,
                   uint32_t local_stage, uint32_t microbatch) {
  struct pen_order *order = composer->order;
  uint32_t stage = composer->stages[(size_t)rank * composer->stages_per_rank + local_stage];
  if (order->count[rank] == composer->rank_capacity)
    pen_stop(70, "compose: a schedule's rule made more actions than there are");
  order->action[rank][order->count[rank]++] = (struct pen_compute){
      .kind = (uint8_t)kind, .stage = (uint16_t)stage, .microbatch = microbatch};
}

void pen_order_overlap(const struct pen_composer *composer, uint32_t rank) {
  composer->order->action[rank][composer->order->count[rank] - 1].overlaps = true;
}

static struct pen_composer start(const struct pen_topology *topology,
                                 const struct pen_partition *partition, uint32_t kinds) {
  struct pen_order *order = pen_new(1, sizeof *order);
  struct pen_composer composer = {
      .topology = topology,
      .partition = partition,
      .rank_count = partition->rank_count,
      .stages_per_rank = partition->stages_per_rank,
      .microbatch_count = partition->microbatch_count,
      .stages = pen_partition_stages(partition),
      .order = order,
      .rank_capacity = kinds * partition->stages_per_rank * partition->microbatch_count};
  order->rank_count = partition->rank_count;
  order->count = pen_new(partition->rank_count, sizeof *order->count);
  order->action = pen_new(partition->rank_count, sizeof *order->action);
  for (uint32_t rank = 0; rank < partition->rank_count; rank++)
    order->action[rank] = pen_new(composer.rank_capacity, sizeof **order->action);
  return composer;
}

struct pen_order *pen_compose(const struct pen_topology *topology,
                              const struct pen_partition *partition) {
  const struct pen_schedule *schedule = pen_schedule_of(topology->pipeline_schedule);
  if (!schedule) pen_topology_fail(topology, "pipeline.schedule", "there is no such schedule");
  struct pen_composer composer = start(topology, partition, schedule->trains ? 3 : 1);
  composer.warmup = pen_schedule_warmup(schedule, topology, partition->stages_per_rank);
  composer.splits = pen_schedule_splits(schedule, topology);
  schedule->compose(&composer);
  return composer.order;
}

struct pen_order *pen_compose_forward(const struct pen_partition *partition) {
  struct pen_composer composer = start(0, partition, 1);
  pen_schedule_inference(&composer);
  return composer.order;
}

bool pen_order_has_pair(const struct pen_order *order) {
  for (uint32_t rank = 0; rank < order->rank_count; rank++)
    for (uint32_t index = 0; index < order->count[rank]; index++)
      if (order->action[rank][index].overlaps) return true;
  return false;
}
