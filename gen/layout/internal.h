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

enum { NO_ACTION = UINT32_MAX };

/* The actions of one stage and microbatch, as indices into the list of its rank. */
struct pen_stage_actions {
  uint32_t program[PEN_PROGRAMS]; /* F, I, W, B */
  uint32_t send_f, send_b, recv_f, recv_b;
};

/* The plan's tensor rank dims while they are listed. */
struct pen_tensor_rank_dims {
  struct pen_tensor_rank_dim *dim;
  size_t count;
};

/* One profile while it is laid out. */
struct pen_layout_state {
  const struct pen_layout_state *before; /* the profile laid out before; NULL: none */
  const struct pen_topology *topology;
  const struct pen_partition *partition;
  const struct pen_profile_input *input;
  struct pen_lowered *lowered; /* taken over from the input; the layout completes it */
  struct pen_plan *plan;
  struct pen_weight *weights;                    /* the plan's, writable */
  struct pen_tie *ties;                          /* the plan's, writable; NULL: none */
  struct pen_rank_memory *memory;                /* the plan's, writable */
  struct pen_tensor_rank_dims *tensor_rank_dims; /* of all profiles */
  uint32_t number;                               /* of the profile */
  uint32_t *first_weight;                        /* [stage]: index into `weights` */
  struct pen_stage_buffers *buffers;             /* [stage] */
  uint32_t *stages;                              /* pen_partition_stages() */
  struct pen_stage_actions *stage_actions;       /* [stage * microbatches + microbatch] */
  uint64_t *places;     /* [stage * microbatches + microbatch][place_count]: see pen_place_of() */
  uint32_t place_count; /* from base INPUT on: to OUTPUT; in training to SAVED_W_7 */
  bool runs[PEN_PROGRAMS];    /* whether any action runs such a program */
  uint64_t *receive_bytes;    /* [rank] */
  uint32_t *slot_count;       /* [rank] */
  uint64_t *activation_bytes; /* [rank] */
  int64_t *live_bytes;        /* [rank]: activations and messages alone */
  /* Offsets as in `places`. */
  uint64_t **scratch;       /* [rank][action]; [rank] is NULL if all share one */
  uint64_t *shared_scratch; /* [rank] */
  uint64_t **unsharded;     /* [rank][UNSHARD action]; [rank] is NULL without sharded weights */
  uint32_t **tensor_of;     /* [stage][value]: index into the tensors of its rank */
};

static inline struct pen_stage_actions *pen_stage_actions_of(const struct pen_layout_state *l,
                                                             uint32_t stage, uint32_t microbatch) {
  return &l->stage_actions[(size_t)stage * l->partition->microbatch_count + microbatch];
}

/* The offset of a buffer of one stage and microbatch, as pen_arena_offset() takes it. */
static inline uint64_t *pen_place_of(const struct pen_layout_state *l, uint32_t stage,
                                     uint32_t microbatch, int base) {
  size_t row = (size_t)stage * l->partition->microbatch_count + microbatch;
  return &l->places[row * l->place_count + (uint32_t)(base - PEN_BASE_INPUT)];
}

static inline uint32_t pen_stage_at(const struct pen_layout_state *l, uint32_t rank,
                                    uint32_t local_stage) {
  return l->stages[(size_t)rank * l->partition->stages_per_rank + local_stage];
}

static inline bool pen_same_rank(const struct pen_layout_state *l, uint32_t stage, uint32_t other) {
  return l->partition->rank_of[stage] == l->partition->rank_of[other];
}

/* Buffers are packed as if the activations came just after the receive region. In the arena what
 * persists is between the two. */
static inline uint64_t pen_arena_offset(const struct pen_layout_state *l, uint32_t rank,
                                        uint64_t packed_offset) {
  uint64_t receive_bytes = l->receive_bytes[rank];
  return packed_offset < receive_bytes
             ? packed_offset
             : l->memory[rank].persistent_end + (packed_offset - receive_bytes);
}

/* The bytes at the arena's end that a profile leaves to the cache: the texts of generation have
 * their keys and values from step to step. All other profiles use them. */
static inline uint64_t pen_cache_beside(const struct pen_layout_state *l, uint32_t rank) {
  return pen_profile_kind_generates(l->input->kind) ? l->memory[rank].cache_bytes : 0;
}

static inline uint64_t pen_scratch_of(const struct pen_layout_state *l, uint32_t rank,
                                      uint32_t action) {
  return l->scratch[rank] ? l->scratch[rank][action] : l->shared_scratch[rank];
}

/* The plan's staged inputs while they are listed. */
struct pen_staged_inputs {
  struct pen_staged_input *input;
  uint32_t *microbatches; /* [count]: the most of any profile */
  uint32_t count;
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
