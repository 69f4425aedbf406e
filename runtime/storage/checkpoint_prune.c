/* checkpoint_prune.c: lists and removes checkpoints, without an allocator. */
#define _GNU_SOURCE 1
#include "runtime/storage/checkpoint_prune.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "runtime/base/files.h"
#include "runtime/storage/checkpoint_tensors.h"
#include "runtime/storage/kept_files.h"

enum { ENTRY_BYTES = 4096 };

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

void pen_checkpoint_remove(const char *folder) {
  char path[PATH_MAX];
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

/* Calls `visit` for each folder's name in DIR that is_step(). readdir() would want an allocator;
 * the system call wants none. */
static void each_step(const char *dir, const char *ending,
                      void (*visit)(void *context, const char *name, uint64_t step),
                      void *context) {
  _Alignas(struct dirent64) char entries[ENTRY_BYTES];
  uint64_t step;
  int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) {
    return;
  }
  for (long count; (count = syscall(SYS_getdents64, fd, entries, sizeof entries)) > 0;) {
    for (long at = 0; at < count;) {
      const struct dirent64 *entry = (const struct dirent64 *)(entries + at);
      if (is_step(entry->d_name, ending, &step)) {
        visit(context, entry->d_name, step);
      }
      at += entry->d_reclen;
    }
  }
  close(fd);
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
  each_step(dir, ".tmp", remove_unfinished, (void *)(uintptr_t)dir);
  if (pen_path_join(path, dir, "latest.tmp") == 0) {
    unlink(path);
  }
}

static void take_greatest(void *greatest, const char *name, uint64_t step) {
  uint64_t *most = greatest;
  (void)name;
  *most = *most == UINT64_MAX || step > *most ? step : *most;
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

bool pen_checkpoint_newest(const char *dir, uint64_t *step) {
  *step = UINT64_MAX; /* more digits than a name has */
  each_step(dir, "", take_greatest, step);
  return *step != UINT64_MAX;
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

/* The oldest goes first, until no more than `keep` are left: whatever interrupts it, the newest are
 * there. One that is being read stays. A folder that is being removed has the name of an
 * unfinished one, so that what is left of it goes with the next save. */
void pen_checkpoint_prune(const char *dir, uint64_t step, uint64_t keep) {
  struct pruning pruning = {.newest = step};
  char path[PATH_MAX], temporary[PATH_MAX], name[PEN_CHECKPOINT_NAME_BYTES];
  for (;; pruning.first = pruning.oldest + 1) {
    pruning.count = 0;
    pruning.oldest = step;
    each_step(dir, "", count_steps, &pruning);
    if (pruning.count <= keep || pruning.oldest == step) {
      return;
    }
    snprintf(name, sizeof name, "step-%08llu", (unsigned long long)pruning.oldest);
    int taken = pen_path_join(path, dir, name) == 0 ? pen_folder_try_lock(path) : -1;
    if (taken >= 0 && pen_path_suffix(temporary, path, ".tmp") == 0 &&
        rename(path, temporary) == 0) {
      pen_checkpoint_remove(temporary);
    }
    if (taken >= 0) {
      close(taken);
    }
  }
}
