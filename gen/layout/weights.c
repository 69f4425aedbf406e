/* weights.c: the weights of all stages, and the matrix that embedding and head share. */
#include "gen/layout/weights.h"
#include <string.h>
#include "gen/base/arena.h"
#include "gen/base/error.h"
#include "runtime/plan/audit_sum.h"
#include "runtime/plan/shard.h"

struct pen_weight *pen_list_weights(const struct pen_partition *partition,
                                    struct pen_graph *const *graph, uint32_t *first_weight,
                                    struct pen_plan *plan) {
  size_t total = 0;
  uint32_t stacked = 0;
  for (uint32_t s = 0; s < partition->stage_count; s++) {
    first_weight[s] = (uint32_t)total;
    total += pen_own_weights(graph[s]);
  }
  struct pen_weight *weights = pen_new(total + 1, sizeof *weights);
  for (uint32_t s = 0; s < partition->stage_count; s++)
    for (size_t i = 0; i < pen_own_weights(graph[s]); i++) {
      struct pen_weight *weight = &weights[first_weight[s] + i];
      *weight = graph[s]->weight[i];
      weight->rank = partition->rank_of[s];
      weight->stacked_before = stacked;
      stacked += pen_tensor_count(weight) - 1;
    }
  plan->weight_count = (uint32_t)total;
  plan->stacked = stacked;
  return weights;
}

/* The index of the weight of that name. */
static uint32_t find_weight(const struct pen_weight *weights, uint32_t count, const char *name) {
  for (uint32_t w = 0; w < count; w++)
    if (!strcmp(weights[w].name, name)) return w;
  pen_stop(PEN_EXIT_INTERNAL, "layout: there is no weight %s to tie", name);
}

struct pen_tie *pen_find_ties(const struct pen_partition *partition, struct pen_graph *const *graph,
                              struct pen_weight *weights, uint32_t weight_count, uint32_t *count) {
  const struct pen_graph *head = graph[partition->stage_count - 1];
  *count = (uint32_t)(head->weight_count - pen_own_weights(head));
  struct pen_tie *ties = *count ? pen_new(*count, sizeof *ties) : NULL;
  for (uint32_t n = 0; n < *count; n++) {
    const struct pen_weight *read = &head->weight[head->tied + n],
                            *of_first = &head->weight[head->tied + n % head->own_splits];
    const uint32_t w = find_weight(weights, weight_count, read->name);
    if (read->split != n || read->split_count != *count)
      pen_stop(PEN_EXIT_INTERNAL, "layout: %s is not one of the last weights of stage %u",
               read->name, head->stage);
    weights[w].bf16_offset = of_first->bf16_offset;
    ties[n] = (struct pen_tie){.weight = w,
                               .rank = partition->rank_of[head->stage],
                               .dtype = of_first->bf16_offset == UINT64_MAX ? PEN_F32 : PEN_BF16,
                               .gradient_offset = UINT64_MAX};
  }
  return ties;
}

uint64_t pen_tied_value_bytes(const struct pen_plan *plan, const struct pen_tie *tie) {
  return pen_bytes_passed(plan->audits,
                          plan->weights[tie->weight].count * pen_dtype_bytes(tie->dtype));
}

uint64_t pen_tied_message_bytes(const struct pen_plan *plan, int kind) {
  uint64_t bytes = 0;
  for (uint32_t n = 0; n < pen_local_tie_count(plan); n++) {
    const struct pen_tie *tie = &plan->ties[n];
    const uint64_t count = plan->weights[tie->weight].count,
                   gradient = pen_gradients_are_sharded(plan) ? pen_shard_most_of(plan, tie->weight)
                                                              : count;
    bytes = pen_aligned(bytes) +
            (kind == PEN_SEND_V ? pen_tied_value_bytes(plan, tie) : gradient * sizeof(float));
  }
  return bytes;
}
