/* memory_checkpoint.h: copies of what the ranks of a host carry from step to step (weights,
 * moments, bf16 copies), in memory of a command, so that they outlive the ranks: train
 * --recover-every. Each rank writes its two copies alternately: so when a rank is lost while it
 * writes one, all ranks have the one before: no rank ends the next step before all have begun it.
 *
 * With several hosts the command of the next host holds the same copies (control/mirror.h). There a
 * rank begins a copy when the one before is on the next host, so each rank has a third copy: when a
 * host is lost, the newest copies on the next host are up to two steps old. */
#ifndef PEN_MEMORY_CHECKPOINT_H
#define PEN_MEMORY_CHECKPOINT_H

#include <stdint.h>

#include "runtime/base/futex_counter.h"
#include "runtime/plan/plan.h"
#include "runtime/plan/rank_set.h"
#include "runtime/storage/checkpoint_save.h"
#include "runtime/storage/checkpoint_tensors.h"
#include "runtime/storage/loading.h"

enum { PEN_MEMORY_COPIES = 2, PEN_MIRRORED_COPIES = 3, PEN_MEMORY_COPIES_MAX = 3 };

/* In the memory, for the command and its ranks. */
struct pen_memory_checkpoint_control {
  struct pen_futex_counter written;  /* copies that ranks have written */
  struct pen_futex_counter mirrored; /* copies that have come to the next host */
  _Atomic uint64_t mirrored_step;
  _Atomic uint32_t waits; /* 1: a rank waits for mirrored_step before it begins the next copy */
};

/* Of the ranks of a host. The ranks inherit it. */
struct pen_memory_checkpoints {
  const struct pen_plan *plan;
  struct pen_rank_set ranks;
  uint32_t copies;
  unsigned char *memory; /* null: none are kept */
  struct pen_memory_checkpoint_control *control;
  size_t bytes, rank_bytes;
};

/* Where the run stands after the step of a copy: the cursor of the next one, and `most` of struct
 * pen_update_counts. */
struct pen_state_position {
  uint64_t cursor, updates;
};

/* What a copy holds of a weight, one after the other, and then of a tied matrix of another rank:
 * first the tensors of checkpoints, by their number. */
enum pen_state_kind { PEN_STATE_BF16 = PEN_CHECKPOINT_TENSORS, PEN_STATE_TIE, PEN_STATE_KINDS };
struct pen_state_part {
  uint32_t weight;
  int kind;
  uint64_t offset, bytes; /* in the arena */
};

/* Calls `visit` for each part of a rank's state that the next step reads, in the order of a copy.
 */
void pen_memory_state_visit(const struct pen_plan *plan, uint32_t global,
                            void (*visit)(void *context, const struct pen_state_part *part),
                            void *context);

/* Bytes of one copy of the state of a rank of replica 0, which keeps the most. */
size_t pen_memory_checkpoint_bytes(const struct pen_plan *plan, uint32_t rank);

/* Bytes of a copy of this rank. */
size_t pen_memory_copy_bytes(const struct pen_plan *plan, uint32_t global);

/* Reserves the memory for so many copies; pages are allocated when they are written. Fails (71). */
void pen_memory_checkpoints_open(struct pen_memory_checkpoints *checkpoints,
                                 const struct pen_plan *plan, const struct pen_rank_set *ranks,
                                 uint32_t copies);
void pen_memory_checkpoints_close(struct pen_memory_checkpoints *checkpoints);

/* A rank, before its first step: allocates the pages of its copies. */
void pen_memory_checkpoint_touch(const struct pen_memory_checkpoints *checkpoints, uint32_t global);

/* A rank, before it copies its state: waits until its newest copy is on the next host too, if
 * copies are sent there. */
void pen_memory_checkpoint_wait(const struct pen_memory_checkpoints *checkpoints, uint32_t global);

/* A rank, after the step (from 1): copies its state over its older copy. `view` is null where the
 * arena is in host memory. Allocates nothing. */
void pen_memory_checkpoint_save(const struct pen_memory_checkpoints *checkpoints, uint32_t global,
                                const unsigned char *arena, const struct pen_arena_view *view,
                                uint64_t step, const struct pen_state_position *position);

/* The oldest copy of a rank, to be written: incomplete from now on. And when it is complete. */
unsigned char *pen_memory_copy_begin(const struct pen_memory_checkpoints *checkpoints,
                                     uint32_t global);
void pen_memory_copy_end(const struct pen_memory_checkpoints *checkpoints, uint32_t global,
                         const unsigned char *copy, uint64_t step,
                         const struct pen_state_position *position);

/* The copy of a step, which the rank has. */
const unsigned char *pen_memory_copy_of(const struct pen_memory_checkpoints *checkpoints,
                                        uint32_t global, uint64_t step);

/* The steps of which all these ranks have a copy, 0 for none, in no order. */
void pen_memory_checkpoint_steps(const struct pen_memory_checkpoints *checkpoints,
                                 uint64_t steps[PEN_MEMORY_COPIES_MAX]);

/* Forgets the copies of later steps. No rank runs. */
void pen_memory_checkpoints_forget(const struct pen_memory_checkpoints *checkpoints, uint64_t step);

/* The position after that step, of which all these ranks have a copy. */
struct pen_state_position pen_memory_checkpoint_position(
    const struct pen_memory_checkpoints *checkpoints, uint64_t step);

/* A rank: fills its arena from the copy. */
void pen_memory_checkpoint_load(const struct pen_memory_checkpoints *checkpoints,
                                const struct pen_loading *to, uint64_t step);

#endif
