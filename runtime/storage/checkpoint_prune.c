/* checkpoint_prune.c: lists and removes checkpoints, without an allocator. */
#define _GNU_SOURCE 1
#include "runtime/storage/checkpoint_prune.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/files.h"
#include "runtime/storage/checkpoint_tensors.h"
#include "runtime/storage/kept_files.h"

const char *const pen_temporary_links[PEN_TEMPORARY_LINKS] = {"latest.tmp", ".latest.tmp"};

/* ---- leftovers ---- */

/* Whether a name is step-NNNNNNNN and what follows, and the step. */
static bool is_step(const char *name, const char *ending, uint64_t *step) {
  if (strncmp(name, "step-", 5) != 0) {
    return false;
  }
  size_t digits = strspn(name + 5, "0123456789");
  *step = 0;
  for (size_t i = 0; i < digits; i++) {
    *step = 10 * *step + (uint64_t)(name[5 + i] - '0');
  }
  return digits >= 8 && digits <= 19 && strcmp(name + 5 + digits, ending) == 0;
}

/* Whether a path is a folder, and no link to one. */
static bool is_folder(const char *path) {
  struct stat status;
  return lstat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

bool pen_checkpoint_exists(const char *folder) {
  char manifest[PATH_MAX];
  struct stat status;
  return is_folder(folder) &&
         pen_path_join(manifest, folder, pen_checkpoint_files[PEN_MANIFEST_FILE]) == 0 &&
         lstat(manifest, &status) == 0 && S_ISREG(status.st_mode);
}

void pen_checkpoint_remove(const char *folder) {
  char path[PATH_MAX];
  if (!is_folder(folder)) {
    return;
  }
  for (int i = 0; i < PEN_CHECKPOINT_FILES; i++) {
    if (pen_path_join(path, folder, pen_checkpoint_files[i]) == 0) {
      unlink(path);
    }
  }
  for (int i = 0; i < PEN_KEPT_FILES; i++) {
    if (pen_path_join(path, folder, pen_kept_file_names[i]) == 0) {
      unlink(path);
    }
  }
  rmdir(folder);
}

/* What is to be done with the checkpoints of DIR, or with unfinished ones. */
struct step_visit {
  const char *dir, *ending;
  void (*visit)(void *context, const char *name, uint64_t step);
  void *context;
};

/* A name that is_step() is ours if it is a folder: complete with a manifest. Links, files and
 * folders of others are left alone. */
static void visit_step(void *context, const char *name) {
  const struct step_visit *steps = context;
  char path[PATH_MAX];
  uint64_t step;
  if (is_step(name, steps->ending, &step) && pen_path_join(path, steps->dir, name) == 0 &&
      (*steps->ending == '\0' ? pen_checkpoint_exists(path) : is_folder(path))) {
    steps->visit(steps->context, name, step);
  }
}

static void each_step(const char *dir, const char *ending,
                      void (*visit)(void *context, const char *name, uint64_t step),
                      void *context) {
  pen_folder_each(dir, visit_step, &(struct step_visit){dir, ending, visit, context});
}

static void remove_unfinished(void *dir, const char *name, uint64_t step) {
  char path[PATH_MAX];
  (void)step;
  if (pen_path_join(path, dir, name) == 0) {
    pen_checkpoint_remove(path);
  }
}

void pen_checkpoint_abandon(const char *dir) {
  char path[PATH_MAX];
  struct stat status;
  each_step(dir, ".tmp", remove_unfinished, (void *)(uintptr_t)dir);
  for (int i = 0; i < PEN_TEMPORARY_LINKS; i++) {
    if (pen_path_join(path, dir, pen_temporary_links[i]) == 0 && lstat(path, &status) == 0 &&
        S_ISLNK(status.st_mode)) {
      unlink(path);
    }
  }
}

struct newest_step {
  uint64_t past, step;
  bool found;
};

static void take_greatest(void *context, const char *name, uint64_t step) {
  struct newest_step *newest = context;
  (void)name;
  if (step < newest->past && (!newest->found || step > newest->step)) {
    newest->step = step;
    newest->found = true;
  }
}

bool pen_checkpoint_latest(const char *dir, uint64_t *step) {
  char path[PATH_MAX], target[PATH_MAX];
  const ssize_t length =
      pen_path_join(path, dir, "latest") == 0 ? readlink(path, target, sizeof target - 1) : -1;
  if (length < 0) {
    return false;
  }
  target[length] = '\0';
  const char *slash = strrchr(target, '/');
  return is_step(slash == NULL ? target : slash + 1, "", step);
}

bool pen_checkpoint_newest(const char *dir, uint64_t past, uint64_t *step) {
  struct newest_step newest = {.past = past};
  each_step(dir, "", take_greatest, &newest);
  *step = newest.step;
  return newest.found;
}

/* ---- pruning ---- */

/* How many checkpoints there are of steps up to `newest`, and the oldest of them from `first` on.
 */
struct pruning {
  uint64_t newest, first, count, oldest;
};

static void count_steps(void *context, const char *name, uint64_t step) {
  struct pruning *pruning = context;
  (void)name;
  if (step <= pruning->newest) {
    pruning->oldest = step >= pruning->first && step < pruning->oldest ? step : pruning->oldest;
    pruning->count++;
  }
}

/* A folder that is being removed has the name of an unfinished one, so that what is left of it goes
 * with the next save. One that is being read stays, and so do files of others. */
static void remove_step(const char *dir, uint64_t step) {
  char path[PATH_MAX], temporary[PATH_MAX], name[PEN_CHECKPOINT_NAME_BYTES];
  snprintf(name, sizeof name, "step-%08llu", (unsigned long long)step);
  int taken = pen_path_join(path, dir, name) == 0 ? pen_folder_try_lock(path) : -1;
  if (taken >= 0 && pen_path_suffix(temporary, path, ".tmp") == 0 && rename(path, temporary) == 0) {
    pen_checkpoint_remove(temporary);
    if (is_folder(temporary)) { /* it holds files of others */
      rename(temporary, path);
    }
  }
  if (taken >= 0) {
    close(taken);
  }
}

/* The oldest goes first, until no more than `keep` are left: whatever interrupts it, the newest are
 * there. */
void pen_checkpoint_prune(const char *dir, uint64_t step, uint64_t keep) {
  struct pruning pruning = {.newest = step};
  for (;; pruning.first = pruning.oldest + 1) {
    pruning.count = 0;
    pruning.oldest = step;
    each_step(dir, "", count_steps, &pruning);
    if (pruning.count <= keep || pruning.oldest == step) {
      return;
    }
    remove_step(dir, pruning.oldest);
  }
}

/* The oldest step from `first` on that is not `newest`. */
static void take_other(void *context, const char *name, uint64_t step) {
  struct pruning *pruning = context;
  (void)name;
  if (step != pruning->newest && step >= pruning->first && step < pruning->oldest) {
    pruning->oldest = step;
  }
}

void pen_checkpoint_remove_others(const char *dir, uint64_t step) {
  struct pruning pruning = {.newest = step};
  for (;; pruning.first = pruning.oldest + 1) {
    pruning.oldest = UINT64_MAX;
    each_step(dir, "", take_other, &pruning);
    if (pruning.oldest == UINT64_MAX) {
      return;
    }
    remove_step(dir, pruning.oldest);
  }
}
