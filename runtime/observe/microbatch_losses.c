/* microbatch_losses.c: the losses of microbatches in the log (see microbatch_losses.h). */
#include "runtime/observe/microbatch_losses.h"

#include <stdio.h>
#include <stdlib.h>

#include "runtime/base/check.h"
#include "runtime/base/text_writer.h"
#include "runtime/comm/step_stats.h"
#include "runtime/data/windows.h"

static const char member[] = ",\"microbatch_losses\":[";

static size_t entries(const struct pen_plan *plan) {
  return (size_t)pen_group_size(plan, PEN_DATA) * plan->loss_count;
}

size_t pen_microbatch_losses_bytes(const struct pen_plan *plan) {
  return sizeof member + entries(plan) * PEN_JSON_NUMBER_BYTES;
}

void pen_microbatch_losses_open(struct pen_microbatch_losses *losses, const struct pen_plan *plan) {
  const size_t count = entries(plan);
  *losses = (struct pen_microbatch_losses){
      .plan = plan,
      .targets = pen_allocate(PEN_STEP_STATS_DEPTH * count + 1, sizeof *losses->targets,
                              "the losses of %zu microbatches", count),
  };
}

void pen_microbatch_losses_count(struct pen_microbatch_losses *losses, uint64_t step,
                                 const struct pen_data *data, uint32_t count) {
  if (losses->targets == NULL) {
    return;
  }
  const struct pen_plan *plan = losses->plan;
  uint64_t *targets = losses->targets + step % PEN_STEP_STATS_DEPTH * entries(plan);
  uint64_t window = data->cursor;
  losses->counts[step % PEN_STEP_STATS_DEPTH] = count;
  for (uint32_t d = 0; d < pen_group_size(plan, PEN_DATA); d++) {
    for (uint32_t m = 0; m < count; m++, window += data->microbatch) {
      targets[d * plan->loss_count + m] = plan->share_count > 0
                                              ? data->microbatch
                                              : pen_data_targets(data, window, data->microbatch);
    }
  }
}

size_t pen_microbatch_losses_write(const struct pen_microbatch_losses *losses, char *text,
                                   size_t bytes, uint64_t step, const double *stats) {
  const struct pen_plan *plan = losses->plan;
  const uint64_t *targets = losses->targets + step % PEN_STEP_STATS_DEPTH * entries(plan);
  const char *separator = member;
  size_t used = 0;
  for (uint32_t d = 0; d < pen_group_size(plan, PEN_DATA); d++) {
    const double *sums = stats + pen_step_stats_first(plan, d) + pen_entry_count(plan);
    for (uint32_t m = 0; m < losses->counts[step % PEN_STEP_STATS_DEPTH]; m++) {
      const uint64_t count = targets[d * plan->loss_count + m];
      used += (size_t)snprintf(text + used, bytes - used, "%s", separator);
      used += (size_t)pen_json_mean(text + used, bytes - used, count,
                                    plan->loss_is_mean ? sums[m] / (double)count : sums[m]);
      separator = ",";
    }
  }
  return used + (size_t)snprintf(text + used, bytes - used, "]");
}
