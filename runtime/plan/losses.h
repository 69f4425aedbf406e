/* losses.h: the loss table: a row of the model's loss, and two of each layer whose router has
 * losses, a microbatch each column. A rank has the rows of its stages, and step statistics have
 * all. There they are followed by a row of each router: how often each expert was chosen. */
#ifndef PEN_PLAN_LOSSES_H
#define PEN_PLAN_LOSSES_H

#include "runtime/plan/plan.h"

/* The rows of the loss table, and its entries; the entries of a replica's step statistics. */
static inline uint32_t pen_loss_rows(const struct pen_plan *plan) {
  return 1 + 2 * plan->router_loss_count;
}
static inline uint64_t pen_loss_entries(const struct pen_plan *plan) {
  return (uint64_t)pen_loss_rows(plan) * plan->loss_count;
}
static inline uint64_t pen_stats_entries(const struct pen_plan *plan) {
  return pen_entry_count(plan) + pen_loss_entries(plan) +
         (plan->router_count ? (uint64_t)plan->router_count * plan->routers->experts : 0);
}

/* The rows of a replica's step statistics: of the loss table, then of the routers. Of one: its
 * first entry, how many it has, and the stage that computes it. */
static inline uint32_t pen_stats_rows(const struct pen_plan *plan) {
  return pen_loss_rows(plan) + plan->router_count;
}
static inline uint64_t pen_stats_row_first(const struct pen_plan *plan, uint32_t row) {
  const uint32_t losses = row < pen_loss_rows(plan) ? row : pen_loss_rows(plan);
  return pen_entry_count(plan) + (uint64_t)losses * plan->loss_count +
         (row > losses ? (uint64_t)(row - losses) * plan->routers->experts : 0);
}
static inline uint32_t pen_stats_row_entries(const struct pen_plan *plan, uint32_t row) {
  return row < pen_loss_rows(plan) ? plan->loss_count : plan->routers->experts;
}

/* Of a row of the loss table: the stage that computes it, and where it is in the arena of the
 * stage's rank. */
static inline uint32_t pen_loss_row_stage(const struct pen_plan *plan, uint32_t row) {
  return row == 0 ? plan->stage_count - 1 : plan->router_losses[(row - 1) / 2].stage;
}
static inline uint32_t pen_stats_row_stage(const struct pen_plan *plan, uint32_t row) {
  return row < pen_loss_rows(plan) ? pen_loss_row_stage(plan, row)
                                   : plan->routers[row - pen_loss_rows(plan)].stage;
}
static inline uint64_t pen_loss_row_offset(const struct pen_plan *plan, uint32_t row) {
  return row == 0 ? plan->loss_offset
                  : plan->router_losses[(row - 1) / 2].offset +
                        (row - 1) % 2 * plan->loss_count * sizeof(double);
}

/* Where the loss table of a rank is in its arena; UINT64_MAX: it computes no loss. */
static inline uint64_t pen_loss_table_offset(const struct pen_plan *plan,
                                             const struct pen_profile *profile, uint32_t rank) {
  for (uint32_t row = 0; row < pen_loss_rows(plan); row++)
    if (profile->stages[pen_loss_row_stage(plan, row)].rank == rank)
      return pen_loss_row_offset(plan, row) - (uint64_t)row * plan->loss_count * sizeof(double);
  return UINT64_MAX;
}

/* The bytes of a rank that have losses, and choices of its routers. */
static inline uint64_t pen_loss_bytes(const struct pen_plan *plan,
                                      const struct pen_profile *profile, uint32_t rank) {
  uint64_t bytes = 0;
  if (pen_loss_table_offset(plan, profile, rank) != UINT64_MAX)
    bytes = pen_aligned(pen_loss_entries(plan) * sizeof(double));
  for (uint32_t n = 0; n < plan->router_count; n++)
    if (profile->stages[plan->routers[n].stage].rank == rank)
      bytes += pen_aligned(plan->routers[n].experts * sizeof(double));
  return bytes;
}

/* Whether a process writes a row of the step statistics of its replica. */
static inline bool pen_has_stats_row(const struct pen_plan *plan, const struct pen_profile *profile,
                                     uint32_t row, uint32_t global) {
  const uint32_t rank = profile->stages[pen_stats_row_stage(plan, row)].rank;
  return pen_in_group(plan, global, PEN_DATA, pen_group_process(plan, 0, PEN_PIPELINE, rank));
}

#endif
