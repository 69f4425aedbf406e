/* data_parallel.c: resolves the settings of the group data_parallel. */
#include "gen/topology/data_parallel.h"

#include "gen/topology/message.h"

enum pen_sharding pen_sharding_of(const struct pen_topology *t) {
  const enum pen_sharding sharding = t->data_parallel_shard;
  return t->data_parallel_replicas == 1 || (!t->trains && sharding != PEN_SHARD_WEIGHTS)
             ? PEN_SHARD_NONE
             : sharding;
}

bool pen_gathers_units(const struct pen_topology *t) {
  return pen_sharding_of(t) == PEN_SHARD_WEIGHTS && t->data_parallel_unit == PEN_GATHER_LAYER;
}

bool pen_reduces_microbatches(const struct pen_topology *t) {
  return t->trains && t->data_parallel_reduce == PEN_REDUCE_MICROBATCH;
}

bool pen_shards_gradients(const struct pen_topology *t) {
  return pen_reduces_microbatches(t) && pen_sharding_of(t) >= PEN_SHARD_GRADIENTS;
}

void pen_data_parallel_set_defaults(struct pen_topology *t) {
  bool by_layer = t->data_parallel_unit == PEN_GATHER_LAYER;
  if (!t->has_data_parallel_reduce)
    t->data_parallel_reduce = by_layer || t->data_parallel_shard == PEN_SHARD_GRADIENTS
                                  ? PEN_REDUCE_MICROBATCH
                                  : PEN_REDUCE_STEP;
  if (!t->has_data_parallel_reshard && by_layer) t->data_parallel_reshard = PEN_RESHARD_USE;
  if (!t->has_data_parallel_shard_ranks) t->data_parallel_shard_ranks = t->data_parallel_replicas;
}

void pen_data_parallel_validate(const struct pen_topology *t) {
  if (t->data_parallel_shard == PEN_SHARD_GRADIENTS && t->data_parallel_reduce == PEN_REDUCE_STEP)
    pen_topology_fail(t, "data_parallel.reduce",
                      "\"microbatch\", with data_parallel.shard = \"gradients\": a rank does not "
                      "keep whole gradients to the step's end");
  if (t->data_parallel_unit == PEN_GATHER_LAYER && t->data_parallel_reshard == PEN_RESHARD_STEP)
    pen_topology_fail(t, "data_parallel.reshard",
                      "\"use\", with data_parallel.unit = \"layer\": a unit's weights are dropped "
                      "after each use");
  if (t->data_parallel_replicas % t->data_parallel_shard_ranks)
    pen_topology_fail(t, "data_parallel.shard_ranks", "a divisor of data_parallel.replicas = %lld",
                      (long long)t->data_parallel_replicas);
}
