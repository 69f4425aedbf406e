/* partition.c: layers over stages, stages over ranks.
 *
 * Evenly: the embedding counts for virtual_pre layers and the head for virtual_post. Every stage gets (layers + pre + post) /
 * stages, the early ones one more until the remainder is spent; then the virtual layers come off the first and the last stage.
 */
#include <string.h>

#include "gen/gen.h"

/* Names the setting that leaves a stage with nothing to compute. */
static _Noreturn void fail_empty(const struct pen_topology *t, uint32_t stage, uint32_t stage_count, int64_t share) {
  if (stage == 0 && t->partition_virtual_pre && t->partition_virtual_pre >= share)
    pen_topology_fail(t, "partition.virtual_pre", "leaves stage 0 with no layer: less than its share of %lld", (long long)share);
  if (stage + 1 == stage_count && t->partition_virtual_post && share > 0)
    pen_topology_fail(t, "partition.virtual_post", "leaves stage %u with no layer: less than its share of %lld", stage,
                      (long long)share);
  pen_topology_fail(t, "model.layers", "leaves stage %u with no layer: at least one for each of the %u stages, ranks x stages_per_rank",
                    stage, stage_count);
}

static void share_evenly(const struct pen_topology *t, struct pen_partition *partition) {
  uint32_t stages = partition->stage_count, first = 0;
  int64_t pre = t->partition_virtual_pre, post = t->partition_virtual_post, total = t->model_layers + pre + post;
  for (uint32_t stage = 0; stage < stages; stage++) {
    int64_t share = total / stages + (stage < total % stages);
    int64_t count = share - (stage == 0 ? pre : 0) - (stage + 1 == stages ? post : 0);
    if (count < 1) fail_empty(t, stage, stages, share);
    partition->span[stage] = (struct pen_span){first, first + (uint32_t)count};
    first += (uint32_t)count;
  }
}

static void share_as_listed(const struct pen_topology *t, struct pen_partition *partition) {
  const struct pen_integers *list = &t->partition_layers;
  uint32_t stages = partition->stage_count, first = 0;
  int64_t sum = 0;
  if (list->count != stages)
    pen_topology_fail(t, "partition.layers", "a list of %u counts, one a stage; here are %zu", stages, list->count);
  for (uint32_t stage = 0; stage < stages; stage++) {
    if (list->value[stage] == 0 && stage > 0 && stage + 1 < stages)
      pen_topology_fail(t, "partition.layers", "stage %u has no layer; only the first and the last may have none", stage);
    sum += list->value[stage];
  }
  if (sum != t->model_layers)
    pen_topology_fail(t, "partition.layers", "counts whose sum is model.layers = %lld, not %lld", (long long)t->model_layers,
                      (long long)sum);
  for (uint32_t stage = 0; stage < stages; stage++) {
    partition->span[stage] = (struct pen_span){first, first + (uint32_t)list->value[stage]};
    first = partition->span[stage].past_last_layer;
  }
}

struct pen_partition *pen_partition(const struct pen_topology *t) {
  struct pen_partition *partition = pen_new(1, sizeof *partition);
  partition->rank_count = (uint32_t)t->pipeline_ranks;
  partition->stages_per_rank = (uint32_t)t->pipeline_stages_per_rank;
  partition->stage_count = partition->rank_count * partition->stages_per_rank;
  partition->microbatch_count = (uint32_t)t->pipeline_microbatches;
  partition->span = pen_new(partition->stage_count, sizeof *partition->span);
  partition->rank_of = pen_new(partition->stage_count, sizeof *partition->rank_of);
  if (t->partition_layers.value) {
    share_as_listed(t, partition);
  } else {
    share_evenly(t, partition);
  }
  bool zigzag = !strcmp(t->pipeline_placement, "v");
  for (uint32_t stage = 0; stage < partition->stage_count; stage++) {
    uint32_t round = stage / partition->rank_count, place = stage % partition->rank_count;
    partition->rank_of[stage] = zigzag && round % 2 ? partition->rank_count - 1 - place : place;
  }
  return partition;
}
