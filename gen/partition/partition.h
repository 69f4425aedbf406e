/* partition.h: assigns the model's blocks to stages and stages to ranks.
 *
 * In: a topology and a model family. Out: a struct pen_partition. All later passes read it.
 *
 *   partition.c   blocks to stages, stages to ranks
 *   balance.c     divides a list of costs into consecutive parts
 *   block_cost.c  the cost of each block, for partition.balance = "time"
 */
#ifndef PEN_PARTITION_H
#define PEN_PARTITION_H

#include <stdbool.h>
#include <stdint.h>

#include "gen/model/stages.h"
#include "gen/topology/topology.h"
#include "runtime/plan/plan.h"

struct pen_partition {
#define PEN_SIZE(field, setting) uint32_t field;
#include "runtime/plan/groups.def" /* the sizes of process groups */
  uint32_t stage_count, stages_per_rank, microbatch_count;
  enum pen_sharding sharding; /* NONE with one replica, and where nothing is sharded */
  bool gathers_units, reduces_microbatches; /* data_parallel.h */
  struct pen_stages stages;                 /* the blocks of each stage */
  uint32_t *rank_of;                        /* [stage_count] */
  const double *speed;                      /* [rank_count] cluster.speed; NULL: all 1 */
  const uint32_t *host_of;                  /* [process]; NULL: one host */
};

struct pen_block_costs; /* gen/partition/block_cost.h */

/* Whether the topology asks for stages of equal time, so that pen_partition() needs costs. */
bool pen_partition_by_time(const struct pen_topology *topology);

/* Whether the blocks of stages are chosen together with all else (gen/joint/). */
bool pen_partition_is_joint(const struct pen_topology *topology);

/* Assigns the blocks of a family's model to stages, and stages to ranks. Placement "loop": stage s
 * is on rank s mod ranks. "v": stage s is on rank s for s < ranks, then on 2*ranks-1-s, and so on
 * in a zigzag. `costs` may be null unless pen_partition_by_time(). Fails (78) when a stage would
 * have no block, or when a list of the topology does not fit. */
struct pen_partition *pen_partition(const struct pen_topology *topology,
                                    const struct pen_family *family,
                                    const struct pen_block_costs *costs);

/* The same with a given cut: stage s begins at block first_block[s]. */
struct pen_partition *pen_partition_of_blocks(const struct pen_topology *topology,
                                              const struct pen_family *family,
                                              const uint32_t *first_block);

/* A copy with its own rank_of: placement "v" if `zigzag`, else "loop". The blocks of a stage do not
 * depend on it. */
struct pen_partition *pen_partition_placed(const struct pen_partition *partition, bool zigzag);

/* A copy whose stage s begins at block first_block[s]; first_block[0] is 0. */
struct pen_partition *pen_partition_cut(const struct pen_partition *partition,
                                        const uint32_t *first_block);

/* Whether partition.balance = "count" leaves a block to every stage. */
bool pen_partition_divides_evenly(const struct pen_topology *topology,
                                  const struct pen_family *family);

/* The blocks at which a stage may begin by partition.unit, ascending: place[0] is 0, and
 * place[count] the number of blocks. Fails (78) if they are fewer than the stages. */
uint32_t *pen_partition_places(const struct pen_topology *topology,
                               const struct pen_partition *partition, uint32_t *count);

/* The `turn`-th stage of a rank, by placement "v" or "loop". */
static inline uint32_t pen_placed_stage(uint32_t rank_count, bool zigzag, uint32_t rank,
                                        uint32_t turn) {
  return turn * rank_count + (zigzag && turn % 2 ? rank_count - 1 - rank : rank);
}

/* The hosts of the members of the group of a process, [member]; without host_of all 0. */
void pen_group_hosts(const struct pen_group_sizes *sizes, const uint32_t *host_of, uint32_t process,
                     int group, uint32_t *host);

/* The stages of every rank, in ascending order: [rank * stages_per_rank + local stage]. */
uint32_t *pen_partition_stages(const struct pen_partition *partition);

#endif
