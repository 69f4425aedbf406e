/* save.c: the order of a checkpoint over the ranks: rank 0 creates the files, all ranks write their
 * tensors, rank 0 completes it. A rank that fails sets a status in shared memory, which all read
 * after the next barrier. Where ranks write shards or splits of a tensor, one of them reads it back
 * for its checksum when all have written. */
#include "runtime/plan/shard.h"
#include "runtime/rank/save.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/check.h"
#include "runtime/base/files.h"
#include "runtime/base/seal.h"
#include "runtime/storage/checkpoint_prune.h"
#include "runtime/storage/tensor_splits.h"

/* Only the first failure is printed. */
static void report_save_failure(struct pen_control *control, const struct pen_saving *saving,
                                const struct pen_save_failure *failure) {
  uint32_t none = 0;
  if (atomic_compare_exchange_strong(&control->save_status, &none, (uint32_t)failure->status)) {
    pen_warn("%s; step %" PRIu64 " is not saved%s", failure->message, saving->state.step,
             saving->last ? "" : ", training continues");
  }
}

static bool write_tensors(struct pen_endpoint *endpoint, const struct pen_saving *saving,
                          unsigned char (*digests)[PEN_DIGEST_BYTES],
                          struct pen_save_failure *failure) {
  if (saving->view != NULL) {
    return pen_checkpoint_write_seen(endpoint->plan, endpoint->global, saving->view,
                                     saving->directory, saving->state.step, digests, failure);
  }
  return pen_checkpoint_write(endpoint->plan, endpoint->global, endpoint->arena, saving->directory,
                              saving->state.step, digests, failure);
}

/* What the manifest says is done is in the log, also after the host has failed. */
static void sync_log(const struct pen_saving *saving) {
  if (saving->log >= 0 && pen_file_sync(saving->log) != 0) {
    pen_warn("--log: cannot sync: %s", strerror(errno));
  }
}

/* Global rank 0, when all have written. */
static void complete_checkpoint(struct pen_endpoint *endpoint, const struct pen_saving *saving,
                                unsigned char (*digests)[PEN_DIGEST_BYTES]) {
  struct pen_control *control = endpoint->shared->control;
  struct pen_save_failure failure;
  const bool here = pen_folder_is(saving->directory, saving->locked);
  sync_log(saving);
  if (atomic_load(&control->save_status) != 0) {
    if (here) {
      pen_checkpoint_abandon(saving->directory);
    }
  } else if (!pen_checkpoint_finish(endpoint->plan, saving->directory, &saving->state, saving->kept,
                                    digests, &failure)) {
    report_save_failure(control, saving, &failure);
  } else {
    if (saving->overwrites && atomic_load(&control->saved_step) == 0) {
      pen_checkpoint_remove_others(saving->directory, saving->state.step);
    }
    atomic_store(&control->saved_step, saving->state.step);
    if (saving->keep != 0) {
      pen_checkpoint_prune(saving->directory, saving->state.step, saving->keep);
    }
  }
  atomic_store(&control->saving, 0);
}

bool pen_save_together(struct pen_endpoint *endpoint, const struct pen_saving *saving,
                       int *status) {
  unsigned char(*digests)[PEN_DIGEST_BYTES] =
      (unsigned char(*)[PEN_DIGEST_BYTES])endpoint->shared->checksums;
  struct pen_control *control = endpoint->shared->control;
  struct pen_save_failure failure;
  if (endpoint->global == 0) {
    atomic_store(&control->save_status, 0);
    atomic_store(&control->saving, 1);
    if (!pen_checkpoint_begin(saving->directory, saving->locked, endpoint->plan, saving->state.step,
                              &failure)) {
      report_save_failure(control, saving, &failure);
    }
  }
  if (!pen_endpoint_barrier(endpoint)) {
    return false;
  }
  if (atomic_load(&control->save_status) == 0 &&
      !write_tensors(endpoint, saving, digests, &failure)) {
    report_save_failure(control, saving, &failure);
  }
  if (!pen_endpoint_barrier(endpoint)) {
    return false;
  }
  if (pen_moments_are_sharded(endpoint->plan) || pen_has_splits(endpoint->plan)) {
    bool written = atomic_load(&control->save_status) == 0;
    if (written && !pen_checkpoint_digest(endpoint->plan, endpoint->global, saving->directory,
                                          saving->state.step, digests, &failure)) {
      report_save_failure(control, saving, &failure);
    }
    if (!pen_endpoint_barrier(endpoint)) {
      return false;
    }
  }
  if (endpoint->global == 0) {
    complete_checkpoint(endpoint, saving, digests);
  }
  /* All ranks wait until it is complete: a rank that waited for rank 0's disk within a step would
   * report rank 0 as stalled. */
  bool going = pen_endpoint_barrier(endpoint);
  *status = (int)atomic_load(&control->save_status);
  return going;
}

bool pen_save(struct pen_endpoint *endpoint, const struct pen_saving *saving, int *status) {
  atomic_store_explicit(&endpoint->self->phase, PEN_PHASE_SAVE, memory_order_relaxed);
  pen_unseal();
  bool saved = pen_save_together(endpoint, saving, status);
  pen_seal();
  atomic_store_explicit(&endpoint->self->phase, PEN_PHASE_STEPS, memory_order_relaxed);
  return saved;
}
