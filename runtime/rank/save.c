/* save.c: the order of a checkpoint over the ranks: rank 0 makes the files, all write their
 * tensors, rank 0 makes it whole. A rank that fails says so in shared memory, and all know of it at
 * the next barrier. Where replicas write parts of a tensor, one of them reads it back for its
 * checksum when all have written. */
#include "runtime/plan/shard.h"
#include "runtime/rank/save.h"

#include <inttypes.h>
#include <stdio.h>

#include "runtime/base/check.h"
#include "runtime/base/seal.h"
#include "runtime/storage/checkpoint_prune.h"

/* The first to fail speaks for all. */
static void note_failure(struct pen_control *control, const struct pen_saving *saving,
                         const struct pen_save_failure *failure) {
  uint32_t none = 0;
  if (atomic_compare_exchange_strong(&control->save_status, &none, (uint32_t)failure->status)) {
    pen_warn("%s; step %" PRIu64 " is not saved%s", failure->message, saving->steps,
             saving->last ? "" : ", training goes on");
  }
}

static bool write(struct pen_transport *end, const struct pen_saving *saving,
                  unsigned char (*digests)[PEN_DIGEST_BYTES], struct pen_save_failure *failure) {
  if (saving->view != NULL) {
    return pen_checkpoint_write_seen(end->plan, end->replica, end->rank, saving->view,
                                     saving->directory, saving->steps, digests, failure);
  }
  return pen_checkpoint_write(end->plan, end->replica, end->rank, end->arena, saving->directory,
                              saving->steps, digests, failure);
}

/* Rank 0's part at the end. */
static void finish(struct pen_transport *end, const struct pen_saving *saving,
                   unsigned char (*digests)[PEN_DIGEST_BYTES]) {
  struct pen_control *control = end->shared->control;
  struct pen_save_failure failure;
  if (atomic_load(&control->save_status) != 0) {
    pen_checkpoint_abandon(saving->directory);
  } else if (!pen_checkpoint_finish(end->plan, saving->directory, saving->steps, saving->cursor,
                                    digests, &failure)) {
    note_failure(control, saving, &failure);
  } else {
    atomic_store(&control->saved_step, saving->steps);
    if (saving->keep != 0) {
      pen_checkpoint_prune(saving->directory, saving->steps, saving->keep);
    }
  }
  atomic_store(&control->saving, 0);
}

bool pen_save_together(struct pen_transport *end, const struct pen_saving *saving, int *status) {
  unsigned char(*digests)[PEN_DIGEST_BYTES] =
      (unsigned char(*)[PEN_DIGEST_BYTES])end->shared->checksums;
  struct pen_control *control = end->shared->control;
  struct pen_save_failure failure;
  if (end->global == 0) {
    atomic_store(&control->save_status, 0);
    atomic_store(&control->saving, 1);
    if (!pen_checkpoint_begin(saving->directory, end->plan, saving->steps, &failure)) {
      note_failure(control, saving, &failure);
    }
  }
  if (!end->kind->barrier(end)) {
    return false;
  }
  if (atomic_load(&control->save_status) == 0 && !write(end, saving, digests, &failure)) {
    note_failure(control, saving, &failure);
  }
  if (!end->kind->barrier(end)) {
    return false;
  }
  if (pen_moments_are_sharded(end->plan)) {
    bool written = atomic_load(&control->save_status) == 0;
    if (written && !pen_checkpoint_digest(end->plan, end->replica, end->rank, saving->directory,
                                          saving->steps, digests, &failure)) {
      note_failure(control, saving, &failure);
    }
    if (!end->kind->barrier(end)) {
      return false;
    }
  }
  if (end->global == 0) {
    finish(end, saving, digests);
  }
  /* Nobody goes on before it stands: a rank that waits for rank 0's disk within a step would look
   * at a stalled peer. */
  bool going = end->kind->barrier(end);
  *status = (int)atomic_load(&control->save_status);
  return going;
}

bool pen_save(struct pen_transport *end, const struct pen_saving *saving, int *status) {
  atomic_store_explicit(&end->self->phase, PEN_PHASE_SAVE, memory_order_relaxed);
  pen_unseal();
  bool saved = pen_save_together(end, saving, status);
  pen_seal();
  atomic_store_explicit(&end->self->phase, PEN_PHASE_STEPS, memory_order_relaxed);
  return saved;
}
