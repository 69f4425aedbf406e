/* partition.h: assigns the model's blocks to stages and stages to ranks.
 *
 * In: a topology and a model family. Out: a struct pen_partition. All later passes read it.
 *
 *   partition.c   blocks to stages, stages to ranks
 *   balance.c     divides a list of costs into consecutive parts
 *   block_cost.c  the time of each block, for partition.by = "time"
 */
#ifndef PEN_PARTITION_H
#define PEN_PARTITION_H

#include <stdbool.h>
#include <stdint.h>

#include "gen/topology/topology.h"
#include "runtime/plan/plan.h"

struct pen_family;      /* gen/families/families.h */
struct pen_model_block; /* gen/families/families.h */

/* The blocks [first, past) of the model that a stage holds, and the layers that begin in it. */
struct pen_span {
  uint32_t first_layer, past_last_layer;
  uint32_t first_block, past_last_block;
};

struct pen_partition {
  uint32_t rank_count, stage_count, stages_per_rank, microbatch_count;
  uint32_t replica_count;     /* 0 counts as 1 */
  enum pen_sharding sharding; /* NONE with one replica, and where nothing is sharded */
  struct pen_span *span;      /* [stage_count] */
  uint32_t *rank_of;          /* [stage_count] */
  const struct pen_family *family;
  bool reshards_each_use; /* data_parallel.reshard */
  bool *weights_in_w;     /* [stage]: its W, too, reads weights that UNSHARD gathers; null until the
                             programs are known */
  bool joins;   /* a tied matrix is trained: the head's gradient is added to the embedding's once a
                   step (struct pen_tie) */
  bool gathers; /* no rank runs the optimizer before all ranks have published their norms
                   (clip_norm) */
  const struct pen_model_block *block; /* [block_count] all blocks of the model, in order */
  uint32_t block_count;
};

/* Placement "loop": stage s is on rank s mod ranks. "v": stage s is on rank s for s < ranks, then
 * on 2*ranks-1-s, and so on in a zigzag. Fails (78) when a stage would have no block, or when a
 * list of the topology does not fit. */
struct pen_partition *pen_partition(const struct pen_topology *topology);

/* The same with the blocks of a family that need not be in the table of families. */
struct pen_partition *pen_partition_of(const struct pen_topology *topology,
                                       const struct pen_family *family);

/* Sets rank_of again. The blocks of a stage do not depend on it. */
void pen_partition_place(struct pen_partition *partition, bool zigzag);

/* The stages of every rank, ascending: [rank * stages_per_rank + local stage]. */
uint32_t *pen_partition_stages(const struct pen_partition *partition);

#endif
