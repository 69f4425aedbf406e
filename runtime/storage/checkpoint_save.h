/* checkpoint_save.h: saves the state of a training run as DIR/step-NNNNNNNN/ (docs/contracts.md
 * section 10).
 *
 * Rank 0 calls begin, all ranks write their own tensors in place, rank 0 calls finish; the caller
 * puts a barrier between the three. Each byte is written by one process: data ranks write the
 * shards of sharded tensors, and take turns with the others (pen_is_writer()). Where moments are
 * sharded, all ranks call digest between write and finish, with a barrier around it. The files are
 * made in DIR/step-NNNNNNNN.tmp/, which is synced and then renamed, so DIR/latest always names a
 * complete checkpoint. Nothing here allocates.
 *
 * A function that fails returns false with the reason, and the caller decides whether to continue;
 * a value that is not finite ends the run. Begin and finish remove their files when they fail;
 * after a failed write the caller calls pen_checkpoint_abandon() when no rank writes any more.
 */
#ifndef PEN_CHECKPOINT_SAVE_H
#define PEN_CHECKPOINT_SAVE_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/files.h"
#include "runtime/plan/plan.h"
#include "runtime/storage/checkpoint_state.h"
#include "runtime/storage/kept_files.h"

struct pen_save_failure {
  int status; /* PEN_EXIT_CANNOT_CREATE, PEN_EXIT_CANNOT_WRITE */
  char message[PATH_MAX + 256];
};

/* Rank 0: removes what an interrupted run left in DIR (step-*.tmp, latest.tmp), and makes
 * DIR/step-NNNNNNNN.tmp/ with both tensor files at full size, their space reserved. Fails if DIR is
 * not the folder that the run has locked; if it has locked none, makes DIR and its parents. */
bool pen_checkpoint_begin(const char *dir, const struct pen_folder_id *locked,
                          const struct pen_plan *plan, uint64_t step,
                          struct pen_save_failure *failure);

/* Every rank, after begin: writes and syncs its tensors, and stores their SHA-256 in
 * digests[PEN_CHECKPOINT_TENSORS * weight_index + tensor], which is shared memory of
 * [PEN_CHECKPOINT_TENSORS * weight_count] entries. Ends the run (PEN_EXIT_DATA) on a value that is
 * not finite. */
bool pen_checkpoint_write(const struct pen_plan *plan, uint32_t global, const unsigned char *arena,
                          const char *dir, uint64_t step,
                          unsigned char (*digests)[PEN_DIGEST_BYTES],
                          struct pen_save_failure *failure);

/* The same for an arena in device memory: look() copies up to PEN_LOOK_BYTES of it to the host,
 * valid until the next call. */
enum { PEN_LOOK_BYTES = 1 << 18 };
struct pen_arena_view {
  const unsigned char *(*look)(void *context, uint64_t offset, size_t bytes);
  void *context;
};
bool pen_checkpoint_write_seen(const struct pen_plan *plan, uint32_t global,
                               const struct pen_arena_view *view, const char *dir, uint64_t step,
                               unsigned char (*digests)[PEN_DIGEST_BYTES],
                               struct pen_save_failure *failure);

/* Every rank, after every rank's write: stores the SHA-256 of tensors that were written in shards
 * or pieces, which one data rank reads back. */
bool pen_checkpoint_digest(const struct pen_plan *plan, uint32_t global, const char *dir,
                           uint64_t step, unsigned char (*digests)[PEN_DIGEST_BYTES],
                           struct pen_save_failure *failure);

/* Rank 0, after every rank's write: adds manifest.json and config.json, syncs, renames the folder
 * to step-NNNNNNNN (exchanged with an older one of that step), and points DIR/latest at it.
 * `kept`: what the folder has besides, or null. */
bool pen_checkpoint_finish(const struct pen_plan *plan, const char *dir,
                           const struct pen_checkpoint_state *state,
                           const struct pen_kept_files *kept,
                           unsigned char (*digests)[PEN_DIGEST_BYTES],
                           struct pen_save_failure *failure);

#endif
