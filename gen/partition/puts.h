/* puts.h: what the collectives of a stage move, as rows of `puts` (plan.def) before the layout
 * places them: without bases, offsets and staging memory. What collectives send, take and stage, is
 * a sum over these. */
#ifndef PEN_PARTITION_PUTS_H
#define PEN_PARTITION_PUTS_H

#include "gen/model/graph.h"
#include "gen/partition/partition.h"

/* One row, and the value of the stage that it makes, or that it moves. */
struct pen_stage_put {
  struct pen_put row;
  uint32_t value; /* of an action: PEN_NONE, but of UNSHARD */
};

struct pen_stage_puts {
  struct pen_stage_put *put;
  size_t count;
};

/* The stages of a partition, whose weights the plan numbers from `first_weight` on. `head`: the
 * graph of the last stage, which may read the embedding's weight. */
struct pen_put_source {
  const struct pen_partition *partition;
  const struct pen_graph *graph, *head;
  uint32_t first_weight;
};

/* Whether a replica keeps only its shard of a weight's value (PEN_F32) or bf16 copy; `tied`: with
 * the head. A weight with a bf16 copy is read as that, so its value may be a shard; a tied weight
 * is read as both and is whole. */
bool pen_weight_is_sharded(uint8_t sharding, bool has_bf16, bool tied, int dtype);

/* Lists what an action of that kind moves of the stage (`list` is empty): of each weight that is
 * trained the gradient, or what all keep whole of it; UNSHARD: what programs read of sharded
 * weights. */
void pen_list_puts(const struct pen_put_source *of, int kind, struct pen_stage_puts *list);

/* What an op moves that is a collective, or the first of one, in a program: ALL_GATHER,
 * REDUCE_SCATTER, an exchange between tensor ranks. */
struct pen_put pen_put_of_op(const struct pen_put_source *of, const struct pen_op *op);

/* The staging memory that an ADD of a weight takes for what comes from one other member: its
 * largest cut, aligned; else 0. */
uint64_t pen_staging_bytes(const struct pen_partition *partition, const struct pen_put *put,
                           const struct pen_weight *weight);

#endif
