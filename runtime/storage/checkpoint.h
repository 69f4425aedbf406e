/* checkpoint.h: saving and finding the state of a training run, DIR/step-NNNNNNNN/ (design.md §10).
 *
 * A save is begun by rank 0, written by all ranks, each its own tensors in place, and finished by
 * rank 0; the caller puts a barrier between the three. Each byte is written by one process: of what
 * replicas share out each writes its shard; what all have is written by one of them, by turns.
 * Where moments are cut, all call digest between write and finish, with a barrier around it. It
 * happens in DIR/step-NNNNNNNN.tmp/, which is synced and then renamed, so that DIR/latest names a
 * complete checkpoint at every instant. Nothing from begin to abandon calls an allocator.
 *
 * Saving tells of a failure and leaves it to the caller whether to go on; what is not finite is
 * never saved, and ends the run. Begin and finish, when they fail, remove what they made; after a
 * failing write, somebody calls abandon when no rank writes any more. Loading fails through
 * pen_fail() with the file and the cause: PEN_EXIT_NO_INPUT (absent, unreadable), PEN_EXIT_DATA
 * (damaged, or of another model).
 */
#ifndef PEN_CHECKPOINT_H
#define PEN_CHECKPOINT_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "runtime/storage/checkpoint_tensors.h"
#include "runtime/plan/plan.h"

/* All that a checkpoint's folder holds. */
enum {
  PEN_MODEL_FILE,
  PEN_OPTIMIZER_FILE,
  PEN_MANIFEST_FILE,
  PEN_CONFIG_FILE,
  PEN_CHECKPOINT_FILES
};
extern const char *const pen_checkpoint_files[PEN_CHECKPOINT_FILES];

struct pen_checkpoint_info {
  uint64_t step, cursor;
  char path[PATH_MAX]; /* of the checkpoint's folder */
};

/* Finds what DIR/latest names and checks all of it but the tensors' values: manifest, model digest,
 * headers and sizes of both files. 0: found, *out is filled; 1: no DIR, or no `latest` in it.
 * Before the seal; call it once, not in every rank. */
int pen_checkpoint_find(const char *dir, const struct pen_plan *plan,
                        struct pen_checkpoint_info *out);

/* The same of a checkpoint whose moments nobody will read: its optimizer.safetensors may be absent.
 * A run that prunes meanwhile leaves it there until this process and all that it forks have left;
 * one that makes the same step anew takes its place. */
int pen_checkpoint_find_weights(const char *dir, const struct pen_plan *plan,
                                struct pen_checkpoint_info *out);

/* The folder that lead(name, folder) finds. If it is a checkpoint's, a run that prunes leaves it
 * there as above; until that is so it may be taken away, and the name leads to another by then.
 * Gives what lead() does: 0 where it has found one. */
int pen_checkpoint_share(int (*lead)(const char *name, char folder[PATH_MAX]), const char *name,
                         char folder[PATH_MAX]);

/* The greatest step of the complete checkpoints in DIR, whatever wrote them; false: there is none.
 */
bool pen_checkpoint_newest(const char *dir, uint64_t *step);

/* Reads the weights and moments of one rank of a replica into its arena; each tensor's SHA-256 must
 * be the manifest's, each element finite. `path` is pen_checkpoint_info.path. Before the seal. */
void pen_checkpoint_load(const struct pen_plan *plan, uint32_t replica, uint32_t rank,
                         unsigned char *arena, const char *path);

/* The same without the moments: enough for evaluation. */
void pen_checkpoint_load_weights(const struct pen_plan *plan, uint32_t replica, uint32_t rank,
                                 unsigned char *arena, const char *path);

/* Why a save failed. */
struct pen_save_failure {
  int status; /* PEN_EXIT_CANNOT_CREATE, PEN_EXIT_CANNOT_WRITE */
  char message[PATH_MAX + 256];
};

/* Rank 0: makes DIR and its parents where absent, removes what a killed run left there (step-*.tmp,
 * latest.tmp), and makes DIR/step-NNNNNNNN.tmp/ with both tensor files at full size, their space
 * reserved. False: it failed. */
bool pen_checkpoint_begin(const char *dir, const struct pen_plan *plan, uint64_t step,
                          struct pen_save_failure *failure);

/* Every rank, after begin: writes its tensors, syncs them, and leaves their SHA-256 in
 * digests[PEN_CHECKPOINT_TENSORS * weight_index + part] (shared memory; of [PEN_CHECKPOINT_TENSORS
 * * weight_count] each rank writes the entries of its own weights). Fails (PEN_EXIT_DATA) on a
 * tensor that is not finite; false: it failed otherwise. */
bool pen_checkpoint_write(const struct pen_plan *plan, uint32_t replica, uint32_t rank,
                          const unsigned char *arena, const char *dir, uint64_t step,
                          unsigned char (*digests)[PEN_DIGEST_BYTES],
                          struct pen_save_failure *failure);

/* The same for an arena that does not lie in this process's memory: look() brings up to
 * PEN_LOOK_BYTES of it here, until it is called again. */
enum { PEN_LOOK_BYTES = 1 << 18 };
struct pen_arena_view {
  const unsigned char *(*look)(void *context, uint64_t offset, size_t bytes);
  void *context;
};
bool pen_checkpoint_write_seen(const struct pen_plan *plan, uint32_t replica, uint32_t rank,
                               const struct pen_arena_view *view, const char *dir, uint64_t step,
                               unsigned char (*digests)[PEN_DIGEST_BYTES],
                               struct pen_save_failure *failure);

/* Every rank, after every rank's write: leaves the SHA-256 of tensors that were written in shards,
 * which one replica reads back. False: it failed. */
bool pen_checkpoint_digest(const struct pen_plan *plan, uint32_t replica, uint32_t rank,
                           const char *dir, uint64_t step,
                           unsigned char (*digests)[PEN_DIGEST_BYTES],
                           struct pen_save_failure *failure);

/* Rank 0, after every rank's write: adds manifest.json and config.json, syncs, renames the folder
 * to step-NNNNNNNN (in exchange for an older one of that step), and points DIR/latest at it.
 * `cursor` is that of the next step. False: it failed. */
bool pen_checkpoint_finish(const struct pen_plan *plan, const char *dir, uint64_t step,
                           uint64_t cursor, unsigned char (*digests)[PEN_DIGEST_BYTES],
                           struct pen_save_failure *failure);

/* Rank 0, after finish: removes checkpoints of DIR, the oldest first, until there are no more than
 * `keep` of steps up to `step`. Those of later steps, which a run that was taken up again further
 * back has left, stay; so does what is being read, until the next time, and what is newer. Never
 * fails. */
void pen_checkpoint_prune(const char *dir, uint64_t step, uint64_t keep);

/* Removes whatever an unfinished save left in DIR, of that step or another. Never fails; complete
 * checkpoints are not touched. For the launcher when a run ends by a fault. No rank may be writing
 * any more. */
void pen_checkpoint_abandon(const char *dir);

#endif
