/* internal.h: what the files of gen/layout share: the state of one profile while it is laid out,
 * and of one stage while its buffers are filled. */
#ifndef PEN_LAYOUT_INTERNAL_H
#define PEN_LAYOUT_INTERNAL_H

#include "gen/layout/interval_tree.h"
#include "gen/layout/stage_buffers.h"
#include "gen/lower/profiles.h"
#include "gen/partition/partition.h"
#include "gen/topology/topology.h"
#include "runtime/plan/plan.h"

enum { NO_ROW = UINT32_MAX };

/* Rows of one stage and microbatch on its rank. */
struct rows {
  uint32_t program[PEN_PROGRAMS]; /* F, I, W, B */
  uint32_t send_f, send_b, recv_f, recv_b;
};

/* Where one block of a stage and microbatch went, by base. */
struct places {
  uint64_t base[PEN_BASES];
};

/* One profile while it is laid out. */
struct pen_layout_state {
  const struct pen_layout_state *before; /* the profile laid out before, or null */
  const struct pen_topology *topology;
  const struct pen_partition *partition;
  const struct pen_profile_input *input;
  struct pen_lowered *lowered; /* a copy of the input's, which the layout completes */
  struct pen_plan *plan;
  struct pen_weight *weights;       /* the plan's, writable */
  struct pen_tie *tie;              /* the plan's, writable; null: none */
  struct pen_rank_memory *memory;   /* the plan's, writable */
  uint32_t *first_weight;           /* [stage]: index of its first weight in the plan */
  struct pen_stage_buffers *blocks; /* [stage] */
  uint32_t *stages;                 /* pen_partition_stages() */
  struct rows *rows;                /* [stage * microbatches + microbatch] */
  struct places *places;            /* the same */
  bool runs[PEN_PROGRAMS];          /* whether any row runs such a program */
  uint64_t *receive_bytes;          /* [rank] */
  uint32_t *slot_count;             /* [rank] */
  uint64_t *activation_bytes;       /* [rank] */
  int64_t *live_bytes;              /* [rank]: activations and messages alone */
  uint64_t **scratch; /* [rank][row], null where all share one; like places: see pen_arena_offset */
  uint64_t *shared_scratch; /* [rank] */
  uint64_t **unsharded; /* [rank][row of UNSHARD]; null where weights are not cut; like places */
  uint32_t **tensor_of; /* [stage][value]: index into its rank's tensors */
};

static inline struct rows *pen_stage_actions_of(const struct pen_layout_state *l, uint32_t stage,
                                                uint32_t microbatch) {
  return &l->rows[(size_t)stage * l->partition->microbatch_count + microbatch];
}

static inline struct places *pen_places_of(const struct pen_layout_state *l, uint32_t stage,
                                           uint32_t microbatch) {
  return &l->places[(size_t)stage * l->partition->microbatch_count + microbatch];
}

static inline uint32_t pen_stage_at(const struct pen_layout_state *l, uint32_t rank,
                                    uint32_t local_stage) {
  return l->stages[(size_t)rank * l->partition->stages_per_rank + local_stage];
}

static inline bool pen_same_rank(const struct pen_layout_state *l, uint32_t stage, uint32_t other) {
  return l->partition->rank_of[stage] == l->partition->rank_of[other];
}

/* Places are packed as if the window and the activation part were one range; what persists lies
 * between the two. */
static inline uint64_t pen_arena_offset(const struct pen_layout_state *l, uint32_t rank,
                                        uint64_t place) {
  uint64_t window = l->receive_bytes[rank];
  return place < window ? place : l->memory[rank].persistent_end + (place - window);
}

static inline uint64_t pen_scratch_of(const struct pen_layout_state *l, uint32_t rank,
                                      uint32_t row) {
  return l->scratch[rank] ? l->scratch[rank][row] : l->shared_scratch[rank];
}

/* The plan's staged inputs while they are listed. */
struct pen_staged_inputs {
  struct pen_staged_input *input;
  uint32_t *microbatches; /* [count]: the most of any profile */
  uint32_t count;
  size_t capacity, counts_capacity;
};

/* ---- buffers of a stage ---- */

/* First and last op that use a storage in one program. */
struct pen_op_range {
  bool used;
  uint32_t first, last;
};

/* A stage while its buffers are filled. */
struct pen_buffer_filling {
  const struct pen_partition *partition;
  const struct pen_graph *graph;
  struct pen_op_range *range[PEN_PROGRAMS]; /* [value] */
  struct pen_stage_buffers *buffers;
  struct pen_interval_tree tree[PEN_BASES]; /* the values in the buffer of each base */
};

#endif
