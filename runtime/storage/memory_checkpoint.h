/* memory_checkpoint.h: copies of what the ranks of a command carry from step to step (weights,
 * moments, bf16 copies), in memory of the command, so that they outlive the ranks: train
 * --recover-every. Each rank has two copies, which it writes by turns; so when a rank is lost while
 * it writes one, all ranks have the other: no rank ends the next step before all have begun it. */
#ifndef PEN_MEMORY_CHECKPOINT_H
#define PEN_MEMORY_CHECKPOINT_H

#include <stdint.h>

#include "runtime/plan/plan.h"
#include "runtime/plan/rank_set.h"
#include "runtime/storage/checkpoint_save.h"

enum { PEN_MEMORY_COPIES = 2 };

/* Of the ranks of a command, which inherit it. */
struct pen_memory_checkpoints {
  const struct pen_plan *plan;
  struct pen_rank_set ranks;
  unsigned char *memory; /* null: none are kept */
  size_t bytes, rank_bytes;
};

/* Bytes of one copy of the state of a rank of replica 0, which keeps the most. */
size_t pen_memory_checkpoint_bytes(const struct pen_plan *plan, uint32_t rank);

/* Reserves the memory; pages are allocated when ranks write. Fails (71). */
void pen_memory_checkpoints_open(struct pen_memory_checkpoints *checkpoints,
                                 const struct pen_plan *plan, const struct pen_rank_set *ranks);
void pen_memory_checkpoints_close(struct pen_memory_checkpoints *checkpoints);

/* A rank, before its first step: allocates the pages of its copies. */
void pen_memory_checkpoint_touch(const struct pen_memory_checkpoints *checkpoints, uint32_t global);

/* A rank, after the step (from 1): copies its state over its older copy. `cursor` is that of the
 * next step; `view` is null where the arena is in host memory. Allocates nothing. */
void pen_memory_checkpoint_save(const struct pen_memory_checkpoints *checkpoints, uint32_t global,
                                const unsigned char *arena, const struct pen_arena_view *view,
                                uint64_t step, uint64_t cursor);

/* The steps of which all these ranks have a copy, 0 for none, in no order. */
void pen_memory_checkpoint_steps(const struct pen_memory_checkpoints *checkpoints,
                                 uint64_t steps[PEN_MEMORY_COPIES]);

/* The cursor after that step, of which all these ranks have a copy. */
uint64_t pen_memory_checkpoint_cursor(const struct pen_memory_checkpoints *checkpoints,
                                      uint64_t step);

/* A rank: fills its arena, or one in host memory that is laid out as its, from the copy. */
void pen_memory_checkpoint_load(const struct pen_memory_checkpoints *checkpoints, uint32_t global,
                                uint64_t step, unsigned char *arena);

#endif
