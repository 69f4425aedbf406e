/* compose.c: runs the rule of a schedule.
 *
 * A rule (one file in this folder, with its source) reads ranks, stages of each rank and
 * microbatches, and appends actions with pen_order_add() and pairs a|b with pen_order_overlap().
 * The columns of the schedule's row give what several rules share:
 *
 *   warmup  the row's; or pipeline.warmup; or 1 with one stage a rank or a split backward, else 2
 *   splits  whether the backward is split into I and W
 *
 * so that zb_h1 and interleaved are only rows. pen_topology_validate() has checked stages a rank
 * and placement; a rule itself checks what else it needs. */
#include "gen/schedule/schedule.h"

#include "gen/base/arena.h"
#include "gen/base/error.h"
#include "gen/schedule/internal.h"
#include "gen/topology/schedule_table.h"

/* The columns of schedules.def that are functions; null: no rule, or no condition. */
static const struct {
  void (*compose)(const struct pen_composer *composer);
  bool (*suits)(uint32_t ranks, uint32_t stages_per_rank, uint32_t microbatches);
} rules[] = {
#define PEN_SCHEDULE(key, compose, suits, ...) {compose, suits},
#include "gen/topology/schedules.def"
};

bool pen_schedule_suits(const struct pen_schedule *schedule, uint32_t ranks,
                        uint32_t stages_per_rank, uint32_t microbatches) {
  size_t row = (size_t)(schedule - pen_schedules);
  return !rules[row].suits || rules[row].suits(ranks, stages_per_rank, microbatches);
}

void pen_order_add(const struct pen_composer *composer, uint32_t rank, int kind,
                   uint32_t local_stage, uint32_t microbatch) {
  struct pen_order *order = composer->order;
  uint32_t stage = composer->stages[(size_t)rank * composer->stages_per_rank + local_stage];
  if (order->count[rank] == composer->rank_capacity)
    pen_stop(PEN_EXIT_INTERNAL,
             "penstock-gen: internal error: the rule of a schedule adds too many actions");
  order->action[rank][order->count[rank]++] = (struct pen_compute){
      .kind = (uint8_t)kind, .stage = (uint16_t)stage, .microbatch = microbatch};
}

void pen_order_overlap(const struct pen_composer *composer, uint32_t rank) {
  composer->order->action[rank][composer->order->count[rank] - 1].overlaps = true;
}

/* A composer with an empty order; a rank has at most `kinds` actions a stage and microbatch. */
static struct pen_composer new_composer(const struct pen_topology *topology,
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
  const enum pen_schedule_kind row = topology->pipeline_schedule;
  if (!rules[row].compose)
    pen_stop(PEN_EXIT_INTERNAL, "penstock-gen: internal error: schedule %s has no rule",
             schedule->name);
  struct pen_composer composer = new_composer(topology, partition, schedule->trains ? 3 : 1);
  composer.warmup = pen_schedule_warmup(schedule, topology, partition->stages_per_rank);
  composer.splits = pen_schedule_splits(schedule, topology);
  rules[row].compose(&composer);
  return composer.order;
}

struct pen_order *pen_compose_forward(const struct pen_partition *partition) {
  struct pen_composer composer = new_composer(NULL, partition, 1);
  pen_compose_inference(&composer);
  return composer.order;
}

bool pen_order_has_pair(const struct pen_order *order) {
  for (uint32_t rank = 0; rank < order->rank_count; rank++)
    for (uint32_t index = 0; index < order->count[rank]; index++)
      if (order->action[rank][index].overlaps) return true;
  return false;
}
