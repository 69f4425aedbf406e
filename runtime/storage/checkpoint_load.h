/* checkpoint_load.h: finds and loads the state of a training run, DIR/step-NNNNNNNN/
 * (docs/contracts.md section 10). Every function ends the process through pen_fail() with the file
 * and the cause: PEN_EXIT_NO_INPUT (absent, unreadable), PEN_EXIT_DATA (damaged, or of another
 * model). All are called before pen_seal(). */
#ifndef PEN_CHECKPOINT_LOAD_H
#define PEN_CHECKPOINT_LOAD_H

#include <limits.h>
#include <stdint.h>

#include "runtime/plan/plan.h"
#include "runtime/storage/loading.h"
#include "runtime/storage/checkpoint_state.h"

struct pen_checkpoint_info {
  struct pen_checkpoint_state state; /* updates: with moments; the list is the process's until it
                                        ends */
  bool latest_is_missing;            /* the newest complete one was taken */
  char path[PATH_MAX];               /* of the checkpoint's folder */
  /* With moments: weights that were frozen when it was saved and are trained now, whose moments
   * start at zero; and weights that were trained and are frozen, whose moments are not read;
   * weights that were trained with another momentum, 0 or not, of SGD. */
  uint32_t unfrozen_count, frozen_count, momentum_count;
  uint32_t unchosen_count; /* routers without counts of choices, which this run balances by */
};

/* Finds the checkpoint that DIR/latest names, or the newest complete one where there is no
 * `latest`, and checks all of it except the values of the tensors: manifest, model digest, headers
 * and sizes of both files. 0: found, *out is filled; 1: no DIR, or no checkpoint in it. One process
 * calls it once, before the ranks start. */
int pen_checkpoint_find(const char *dir, const struct pen_plan *plan,
                        struct pen_checkpoint_info *out);

/* The same of `latest` for a command that reads no moments: optimizer.safetensors may be absent. A
 * concurrent run does not prune the checkpoint until this process and its children have ended, but
 * may replace it when it saves the same step again. */
int pen_checkpoint_find_weights(const char *dir, const struct pen_plan *plan,
                                struct pen_checkpoint_info *out);

/* Resolves `name` to a folder by lead(name, folder), and locks the folder against pruning as above
 * if it is a checkpoint's. Resolves again if the folder was removed before the lock was taken.
 * Returns what lead() returns: 0 if it found a folder. */
int pen_checkpoint_share(int (*lead)(const char *name, char folder[PATH_MAX]), const char *name,
                         char folder[PATH_MAX]);

/* Reads the weights and moments of one process into its arena. The SHA-256 of each tensor
 * must match the manifest, and each element must be finite. `path` is pen_checkpoint_info.path. */
void pen_checkpoint_load(const struct pen_loading *to, const char *path);

/* The same without the moments, for evaluation. */
void pen_checkpoint_load_weights(const struct pen_loading *to, const char *path);

#endif
