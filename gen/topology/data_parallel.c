/* data_parallel.c: resolves the settings of the group data_parallel. */
#include "gen/topology/data_parallel.h"

#include <string.h>

#include "gen/topology/message.h"

enum pen_sharding pen_sharding_of(const struct pen_topology *t) {
  static const char *const texts[] = {"none", "optimizer", "gradients", "weights"};
  int sharding = PEN_SHARD_WEIGHTS;
  while (sharding > PEN_SHARD_NONE && strcmp(texts[sharding], t->data_parallel_shard) != 0)
    sharding--;
  if (t->data_parallel_replicas == 1 || (!t->trains && sharding != PEN_SHARD_WEIGHTS))
    return PEN_SHARD_NONE;
  return (enum pen_sharding)sharding;
}

bool pen_gathers_units(const struct pen_topology *t) {
  return pen_sharding_of(t) == PEN_SHARD_WEIGHTS && !strcmp(t->data_parallel_unit, "layer");
}

bool pen_reduces_microbatches(const struct pen_topology *t) {
  return t->trains && !strcmp(t->data_parallel_reduce, "microbatch");
}

bool pen_shards_gradients(const struct pen_topology *t) {
  return pen_reduces_microbatches(t) && pen_sharding_of(t) >= PEN_SHARD_GRADIENTS;
}

void pen_data_parallel_set_defaults(struct pen_topology *t) {
  bool by_layer = !strcmp(t->data_parallel_unit, "layer");
  if (!t->has_data_parallel_reduce)
    t->data_parallel_reduce =
        by_layer || !strcmp(t->data_parallel_shard, "gradients") ? "microbatch" : "step";
  if (!t->has_data_parallel_reshard && by_layer) t->data_parallel_reshard = "use";
  if (!t->has_data_parallel_shard_ranks) t->data_parallel_shard_ranks = t->data_parallel_replicas;
}

void pen_data_parallel_validate(const struct pen_topology *t) {
  if (!strcmp(t->data_parallel_shard, "gradients") && !strcmp(t->data_parallel_reduce, "step"))
    pen_topology_fail(t, "data_parallel.reduce",
                      "\"microbatch\", with data_parallel.shard = \"gradients\": a rank does not "
                      "keep whole gradients to the step's end");
  if (!strcmp(t->data_parallel_unit, "layer") && !strcmp(t->data_parallel_reshard, "step"))
    pen_topology_fail(t, "data_parallel.reshard",
                      "\"use\", with data_parallel.unit = \"layer\": a unit's weights are dropped "
                      "after each use");
  if (t->data_parallel_replicas % t->data_parallel_shard_ranks)
    pen_topology_fail(t, "data_parallel.shard_ranks", "a divisor of data_parallel.replicas = %lld",
                      (long long)t->data_parallel_replicas);
}
