/* layout.h: the place of every byte. layout.c joins what the parts below find into a struct
 * pen_plan.
 *
 *   pack.c   offsets of rectangles (bytes x lifetime) in one range
 *   slots.c  receive slots and credits
 *   cut.c    into which pieces a stage's kept values are cut
 *   block.c  within a program: where values lie in their base's block; how much is live at once
 *   tenants.c where one more value fits in a block
 *   files.c  the checkpoint's two files: headers and offsets
 */
#ifndef PEN_LAYOUT_H
#define PEN_LAYOUT_H

#include "gen/model/graph.h"
#include "gen/partition/partition.h"
#include "gen/partition/training.h"
#include "gen/lower/lower.h"
#include "gen/topology/topology.h"
#include "runtime/plan/plan.h"
#include "runtime/plan/shard.h"

/* Elements that a replica keeps of a tensor, and whether it keeps a shard alone of a weight's
 * value: what programs read is kept whole, unless weights are shared out. A weight that has a bf16
 * copy is read as that; a tied one as both, and always kept whole. */
static inline uint64_t pen_kept_count(uint64_t count, uint32_t replicas, bool cut) {
  return cut ? pen_shard_most(count, replicas) : count;
}
static inline bool pen_value_is_sharded(enum pen_sharding sharding, bool has_bf16, bool tied) {
  return sharding != PEN_SHARD_NONE && !tied && (has_bf16 || sharding == PEN_SHARD_WEIGHTS);
}
static inline bool pen_bf16_is_sharded(enum pen_sharding sharding, bool has_bf16, bool tied) {
  return sharding == PEN_SHARD_WEIGHTS && !tied && has_bf16;
}

/* What a weight keeps on its rank whatever the activations: itself, its bf16 copy where it has one,
 * and, if it learns, its gradient and two moments, or shards of them; and with memory.snapshot a
 * copy of all that a checkpoint holds of it. Of a tied one the head keeps what it reads, unless it
 * is there already, and its gradient. */
static inline uint64_t pen_resident_bytes(const struct pen_partition *partition,
                                          const struct pen_graph *graph, size_t index) {
  const struct pen_weight *weight = &graph->weight[index];
  bool has_bf16 = weight->bf16_offset != UINT64_MAX;
  bool bf16_sharded =
      index != graph->tied && pen_bf16_is_sharded(partition->sharding, has_bf16, false);
  uint64_t copy =
      has_bf16 ? pen_aligned(pen_kept_count(weight->count, partition->replica_count, bf16_sharded) *
                             sizeof(uint16_t))
               : 0;
  uint64_t whole = pen_aligned(weight->count * sizeof(float));
  uint64_t shard = pen_aligned(pen_kept_count(weight->count, partition->replica_count,
                                              partition->sharding != PEN_SHARD_NONE) *
                               sizeof(float));
  bool learns = graph->training && !weight->frozen,
       together = partition->rank_of[0] == partition->rank_of[graph->stage];
  uint64_t value = pen_value_is_sharded(partition->sharding, has_bf16, false) ? shard : whole,
           stored = value + (learns ? 2 * shard : 0);
  bool snapshot = graph->training && graph->topology->memory_snapshot;
  if (index != graph->tied) return copy + stored * (snapshot ? 2 : 1) + whole * learns;
  return (copy ? copy : together ? 0 : whole) + whole * learns;
}

/* ---- pack.c ---- */

/* Something that occupies `bytes` from row `first` to row `last`, both included. */
struct pen_rectangle {
  uint64_t bytes;
  uint32_t first, last;
  uint64_t offset; /* found by pen_pack */
};

/* Places all but the first `fixed`, which have their places, around those; nothing crosses the
 * offset `wall`. Returns the bytes used, those of the fixed ones included; or UINT64_MAX, with
 * nothing placed, when they cannot be as few as `limit`. Looks no further once they are as few as
 * `goal`, or when it has compared `steps` pairs of rectangles. */
uint64_t pen_pack(struct pen_rectangle *rectangle, size_t fixed, size_t count, uint64_t wall,
                  uint64_t limit, uint64_t goal, size_t steps);

/* ---- block.c ---- */

/* What a stage's values need, base by base. */
struct pen_stage_buffers {
  uint64_t *offset;          /* [value]: within its base's block */
  uint8_t *base;             /* [value]: whose block, which need not be derive's: see block.c */
  uint64_t bytes[PEN_BASES]; /* of one block; SCRATCH: see scratch */
  uint64_t scratch[PEN_PROGRAMS]; /* of one run of the program */
  bool gradient_from_f; /* the block of INPUT_GRADIENT is there from F on: it holds a value for I
                           before */
  /* Last program that uses a boundary value (PEN_PROGRAM_F, _I, _W) when backward is split. */
  int input_last, output_last, output_gradient_last, input_gradient_last;
  /* Live bytes relative to those before the program: the most at any op, and what remains after it.
   * A fused F equals a split F. */
  int64_t peak[PEN_PROGRAMS], remains[PEN_PROGRAMS];
};

/* The bases of SAVED_W's pieces. */
enum { PEN_PIECES = 1 + PEN_BASE_SAVED_W_7 - PEN_BASE_SAVED_W_1 + 1 };
static inline int pen_piece_base(uint32_t piece) {
  return piece ? PEN_BASE_SAVED_W_1 + (int)piece - 1 : PEN_BASE_SAVED_W;
}

/* ---- cut.c ---- */

/* How SAVED_W is cut into pieces: see cut.c. */
enum pen_cut { PEN_CUT_NOT, PEN_CUT_LAYERS, PEN_CUT_BLOCKS, PEN_CUT_ALIKE, PEN_CUT_EVEN, PEN_CUTS };

/* A value that is kept until W, in the order in which F makes them. */
struct pen_saved {
  uint32_t value, part;
  uint32_t block; /* of the stage, from 0 */
  bool handed_on; /* to another block of the stage */
  uint64_t bytes; /* aligned */
};

/* Sizes, falling, that most parts have in common. */
struct pen_common {
  const uint64_t *size;
  size_t count;
  uint64_t bytes; /* their sum */
};

struct pen_cutting {
  enum pen_cut cut;
  uint32_t parts_a_piece;   /* LAYERS: no more than PEN_PIECES pieces may come of it */
  struct pen_common common; /* ALIKE */
  size_t handed_on;         /* BLOCKS: how many values every stage of the rank hands on */
  const bool *runs; /* [program] whether any row runs it, so that its scratch wants a place; null:
                       each does */
};

/* What the parts of a rank's stages have in common; [stages]. */
struct pen_common pen_common_of(const struct pen_saved *const *saved, const size_t *count,
                                size_t stages);
/* The piece of each value, [count]. */
uint8_t *pen_cut(const struct pen_saved *saved, size_t count, const struct pen_cutting *cutting);

/* ---- block.c, again ---- */

/* How many parts (layers, and what stands before, between and after them) a stage's values come
 * from. */
uint32_t pen_parts_of(const struct pen_graph *graph);
struct pen_saved *pen_saved_values_of(const struct pen_partition *partition,
                                      const struct pen_graph *graph, size_t *count);
struct pen_stage_buffers pen_stage_buffers_of(const struct pen_partition *partition,
                                              const struct pen_graph *graph,
                                              const struct pen_cutting *cutting);
/* Whether two stages have the same blocks: they differ in names alone. */
bool pen_graphs_alike(const struct pen_partition *partition, const struct pen_graph *a,
                      const struct pen_graph *b);

/* ---- slots.c ---- */

/* Where a message lies in its receiver's window, and how long nothing else may: rows `first` to
 * `last`, both included; and, unless PEN_NONE, from row `before` to the end of the step before. */
struct pen_receive_slot {
  uint64_t offset, bytes;
  uint32_t first, last, before;
};

/* The slots of one rank. */
struct pen_receive_region {
  uint64_t bytes;
  uint32_t slot_count;
  struct pen_receive_slot *home; /* [home_count], in the order of RECV rows */
  size_t home_count;
};

/* Slots in three steps. `last_reader` and `bytes` are [message]: the row of the receiver that reads
 * it last, and its size; they stay the caller's. */
struct pen_slot_assignment *pen_slots_prepare(struct pen_lowered *lowered,
                                              const uint32_t *last_reader, const uint64_t *bytes);
/* Gives every message to a rank a slot in its window, of each size up to `spare` more than needed,
 * and decides which messages need credits: sets target_offset, and credit to PEN_NONE or 0. May be
 * called again with another `spare`. */
struct pen_receive_region pen_slots_place(struct pen_slot_assignment *slotting, uint32_t rank,
                                          uint32_t spare);
/* When all ranks have slots: numbers the credits and sets the channels' credit counts. Nothing may
 * be asked of the slotting after. */
void pen_slots_number_credits(struct pen_slot_assignment *slotting);

/* ---- files.c ---- */

/* Sets the plan's headers, file sizes and the weights' places in the files. */
void pen_files(struct pen_plan *plan, struct pen_weight *weights);

/* ---- layout.c ---- */

/* What the earlier passes found, for one profile. */
struct pen_profile_input {
  const char *name;
  int kind; /* enum pen_profile_kind */
  struct pen_lowered *lowered;
  struct pen_graph **graph;              /* [stage] */
  const struct pen_topology *topology;   /* of its shape; null: the plan's */
  const struct pen_partition *partition; /* that with its shape's microbatches; null: the plan's */
};

/* ---- generation.c ---- */

enum { PEN_GENERATION_LEAST = 64, PEN_GENERATION_MAX = 32 };

/* Sets the profiles of generation, PEN_GENERATION_MAX at most, and returns how many; none where the
 * model foretells no tokens. */
size_t pen_generation(const struct pen_topology *topology, const struct pen_partition *partition,
                      const struct pen_training *training, struct pen_profile_input *profile);

/* ---- layout.c, again ---- */

/* The finished plan but for its digest. */
struct pen_plan *pen_layout(const struct pen_topology *topology,
                            const struct pen_partition *partition,
                            const struct pen_profile_input *profile, size_t profile_count);

/* Fails (78), naming the rank, when an arena is larger than memory.limit_mib. */
void pen_layout_check_limit(const struct pen_topology *topology, const struct pen_plan *plan);

#endif
