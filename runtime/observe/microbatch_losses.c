/* microbatch_losses.c: the losses of microbatches in the log (see microbatch_losses.h). */
#include "runtime/observe/microbatch_losses.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime/base/check.h"
#include "runtime/base/text_writer.h"
#include "runtime/comm/step_stats.h"

static const char member[] = ",\"microbatch_losses\":[";

static size_t entries(const struct pen_plan *plan) {
  return (size_t)plan->replica_count * plan->loss_count;
}

void pen_microbatch_losses_open(struct pen_microbatch_losses *losses, const struct pen_plan *plan,
                                size_t before) {
  const size_t count = entries(plan);
  *losses = (struct pen_microbatch_losses){
      .plan = plan,
      .targets = calloc(PEN_STEP_STATS_DEPTH * count + 1, sizeof *losses->targets),
      .line_bytes = before + sizeof member + count * PEN_JSON_NUMBER_BYTES,
  };
  losses->line = malloc(losses->line_bytes);
  pen_check(losses->targets != NULL && losses->line != NULL,
            "no memory for the losses of %zu microbatches", count);
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
  for (uint32_t d = 0; d < plan->replica_count; d++) {
    for (uint32_t m = 0; m < count; m++, window += data->microbatch) {
      targets[d * plan->loss_count + m] = pen_data_targets(data, window, data->microbatch);
    }
  }
}

size_t pen_microbatch_losses_add(struct pen_microbatch_losses *losses, size_t used, uint64_t step,
                                 const double *stats) {
  const struct pen_plan *plan = losses->plan;
  const uint64_t *targets = losses->targets + step % PEN_STEP_STATS_DEPTH * entries(plan);
  const char *separator = member;
  char *line = losses->line;
  for (uint32_t d = 0; d < plan->replica_count; d++) {
    const double *sums = stats + pen_step_stats_first(plan, d) + plan->weight_count;
    for (uint32_t m = 0; m < losses->counts[step % PEN_STEP_STATS_DEPTH]; m++) {
      const uint64_t count = targets[d * plan->loss_count + m];
      const double loss = !plan->loss_is_mean ? sums[m]
                          : count == 0        ? (double)NAN
                                              : sums[m] / (double)count;
      used += (size_t)snprintf(line + used, losses->line_bytes - used, "%s", separator);
      used += (size_t)pen_json_number(line + used, losses->line_bytes - used, loss);
      separator = ",";
    }
  }
  return used + (size_t)snprintf(line + used, losses->line_bytes - used, "]");
}
