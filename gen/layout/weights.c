/* weights.c: the weights of all stages, and the one that embedding and head share. */
#include "gen/layout/weights.h"
#include <string.h>
#include "gen/base/arena.h"
#include "gen/base/error.h"

/* How many weights a stage owns: all except the last if that is the embedding's. */
static size_t own_weights(const struct pen_graph *graph) {
  if (graph->tied == PEN_NONE) return graph->weight_count;
  if (graph->tied + 1 != graph->weight_count)
    pen_stop(PEN_EXIT_INTERNAL, "layout: the tied weight of stage %u is not its last",
             graph->stage);
  return graph->tied;
}

struct pen_weight *pen_list_weights(const struct pen_partition *partition,
                                    struct pen_graph *const *graph, uint32_t *first_weight,
                                    uint32_t *count) {
  size_t total = 0;
  for (uint32_t s = 0; s < partition->stage_count; s++) {
    first_weight[s] = (uint32_t)total;
    total += own_weights(graph[s]);
  }
  struct pen_weight *weights = pen_new(total + 1, sizeof *weights);
  for (uint32_t s = 0; s < partition->stage_count; s++)
    for (size_t i = 0; i < own_weights(graph[s]); i++) {
      struct pen_weight *weight = &weights[first_weight[s] + i];
      *weight = graph[s]->weight[i];
      weight->rank = partition->rank_of[s];
    }
  *count = (uint32_t)total;
  return weights;
}

struct pen_tie *pen_find_tie(const struct pen_partition *partition, struct pen_graph *const *graph,
                             struct pen_weight *weights, uint32_t count) {
  const struct pen_graph *last = graph[partition->stage_count - 1];
  if (last->tied == PEN_NONE) return NULL;
  struct pen_tie *tie = pen_new(1, sizeof *tie);
  *tie = (struct pen_tie){.rank = partition->rank_of[last->stage], .gradient_offset = UINT64_MAX};
  while (tie->weight < count && strcmp(weights[tie->weight].name, last->weight[last->tied].name))
    tie->weight++;
  if (tie->weight == count)
    pen_stop(PEN_EXIT_INTERNAL, "layout: there is no weight %s to tie",
             last->weight[last->tied].name);
  weights[tie->weight].bf16_offset = last->weight[last->tied].bf16_offset;
  tie->dtype = weights[tie->weight].bf16_offset == UINT64_MAX ? PEN_F32 : PEN_BF16;
  return tie;
}
