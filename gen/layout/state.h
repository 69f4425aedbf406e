/* laying.h: what layout.c, place.c and tables.c share while one profile is laid out. */
#ifndef PEN_LAYING_H
#define PEN_LAYING_H

#include "gen/layout/layout.h"
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

/* ---- place.c ---- */

/* Slots for messages, then the activation part of every rank: fills blocks, places, scratch,
 * receive_bytes, slot_count, activation_bytes and live_bytes. */
void pen_place(struct pen_layout_state *l);

/* ---- step_part.c ---- */

/* The plan's feeds while they are listed. */
struct pen_staged_inputs {
  struct pen_staged_input *feed;
  uint32_t *microbatches; /* the most of a step that is fed it */
  uint32_t count;
  size_t capacity, counts_capacity;
};

/* Places the step part of a rank's arena from `at` on, with the rank's feeds, and counts its pinned
 * memory; returns where the part ends. `l` is [profile_count]. */
uint64_t pen_device_control_place(const struct pen_layout_state *l, size_t profile_count,
                                  uint32_t rank, uint64_t at, struct pen_staged_inputs *feeds);

/* ---- tables.c ---- */

/* The profile's tables, once persistent offsets are known. Rows and places are needed no more then,
 * and freed. */
struct pen_profile pen_tables(struct pen_layout_state *l);

#endif
