/* checkpoint_save.c: saves the state of a run so that a crash at any instant leaves the last good
 * checkpoint in place. */
#define _GNU_SOURCE 1
#include "runtime/plan/shard.h"
#include "runtime/storage/checkpoint_save.h"

#include <errno.h>
#include <fcntl.h>
#include <float.h>
#include <math.h>
#include <nettle/sha2.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/check.h"
#include "runtime/base/files.h"
#include "runtime/storage/checkpoint_prune.h"
#include "runtime/storage/manifest.h"
#include "runtime/storage/safetensors.h"
#include "runtime/storage/tensor_splits.h"

/* The names that one save works with. */
struct save {
  const char *dir;
  char name[PEN_CHECKPOINT_NAME_BYTES]; /* step-NNNNNNNN */
  char folder[PATH_MAX];                /* where it will be */
  char temporary[PATH_MAX];             /* where it is made */
};

/* Notes what could not be done; errno holds the cause. Returns false. */
static bool failed(struct pen_save_failure *failure, int status, const char *path) {
  failure->status = status;
  snprintf(failure->message, sizeof failure->message, "%s: cannot %s: %s", path,
           status == PEN_EXIT_CANNOT_CREATE ? "create" : "write", strerror(errno));
  return false;
}

static bool name_save(struct save *save, const char *dir, uint64_t step,
                      struct pen_save_failure *failure) {
  save->dir = dir;
  snprintf(save->name, sizeof save->name, "step-%08llu", (unsigned long long)step);
  return (pen_path_join(save->folder, dir, save->name) == 0 &&
          pen_path_suffix(save->temporary, save->folder, ".tmp") == 0) ||
         failed(failure, PEN_EXIT_CANNOT_CREATE, dir);
}

/* Opens a file of the save, creating it if flags say so; path receives its name. */
static int open_part(const struct save *save, int file, int flags, char path[PATH_MAX]) {
  if (pen_path_join(path, save->temporary, pen_checkpoint_files[file])) {
    return -1;
  }
  return open(path, flags | O_WRONLY | O_CLOEXEC | O_NOFOLLOW, 0666);
}

static bool start_tensors(const struct save *save, int file, const char *header,
                          uint64_t data_offset, uint64_t bytes, struct pen_save_failure *failure) {
  char path[PATH_MAX];
  int fd = open_part(save, file, O_CREAT | O_EXCL, path);
  if (fd < 0) {
    return failed(failure, PEN_EXIT_CANNOT_CREATE, path);
  }
  bool good =
      (pen_file_reserve(fd, bytes) == 0 && pen_safetensors_start(fd, header, data_offset) == 0) ||
      failed(failure, PEN_EXIT_CANNOT_WRITE, path);
  return (close(fd) == 0 || !good || failed(failure, PEN_EXIT_CANNOT_WRITE, path)) && good;
}

static bool begin(struct save *save, const struct pen_plan *plan,
                  struct pen_save_failure *failure) {
  pen_checkpoint_abandon(save->dir);
  if (mkdir(save->temporary, 0777)) {
    return failed(failure, PEN_EXIT_CANNOT_CREATE, save->temporary);
  }
  return start_tensors(save, PEN_MODEL_FILE, plan->model_header, pen_model_data_offset(plan),
                       plan->model_file_bytes, failure) &&
         start_tensors(save, PEN_OPTIMIZER_FILE, plan->optimizer_header,
                       pen_optimizer_data_offset(plan), plan->optimizer_file_bytes, failure);
}

/* The run has locked one folder: another one of that name may be another run's. */
static bool is_there(const char *dir, const struct pen_folder_id *locked,
                     struct pen_save_failure *failure) {
  if (locked->inode == 0 ? pen_folder_make(dir) == 0 : pen_folder_is(dir, locked)) {
    return true;
  }
  const bool replaced = errno == ESTALE;
  failed(failure, PEN_EXIT_CANNOT_CREATE, dir);
  if (locked->inode != 0) {
    snprintf(failure->message, sizeof failure->message,
             "--checkpoint %s: the folder was %s since this run began", dir,
             replaced ? "replaced" : "moved or removed");
  }
  return false;
}

bool pen_checkpoint_begin(const char *dir, const struct pen_folder_id *locked,
                          const struct pen_plan *plan, uint64_t step,
                          struct pen_save_failure *failure) {
  struct save save;
  pen_files_report_size_limit();
  if (!is_there(dir, locked, failure)) {
    return false;
  }
  bool good = name_save(&save, dir, step, failure) && begin(&save, plan, failure);
  if (!good) {
    pen_checkpoint_abandon(dir);
  }
  return good;
}

/* A checkpoint with infinite or undefined numbers would take the place of one that is good. */
static void refuse_nonsense(const struct save *save, const struct pen_weight *weight,
                            const unsigned char *values, size_t bytes) {
  const float *x = (const float *)values;
  int bad = 0;
  for (size_t i = 0; i < bytes / sizeof *x; i++) {
    bad |= !(fabsf(x[i]) <= FLT_MAX);
  }
  if (bad) {
    pen_fail(PEN_EXIT_DATA, "%s: tensor %s is not finite; not saved; %s is unchanged", save->name,
             weight->name, save->dir);
  }
}

/* Looks at, writes and hashes one tensor or a piece of it, in pieces that stay in the cache between
 * the three. */
static int write_tensor(const struct save *save, const struct pen_weight *weight, int fd,
                        const struct pen_arena_view *view, uint64_t from, uint64_t count,
                        uint64_t offset, unsigned char digest[PEN_DIGEST_BYTES]) {
  struct sha256_ctx hash;
  sha256_init(&hash);
  while (count > 0) {
    size_t part = count < PEN_LOOK_BYTES ? (size_t)count : PEN_LOOK_BYTES;
    const unsigned char *bytes = view->look(view->context, from, part);
    refuse_nonsense(save, weight, bytes, part);
    sha256_update(&hash, part, bytes);
    if (pen_file_write_at(fd, bytes, part, offset)) {
      return -1;
    }
    from += part;
    offset += part;
    count -= part;
  }
  sha256_digest(&hash, PEN_DIGEST_BYTES, digest);
  return 0;
}

/* Whether a rank writes only some of a tensor's elements: then its digest is made of the file. */
static bool is_cut(const struct pen_plan *plan, uint32_t weight_index,
                   enum pen_checkpoint_tensor part) {
  return pen_checkpoint_tensor_is_sharded(plan, weight_index, part) ||
         plan->weights[weight_index].split_count > 1;
}

/* Writes what this data rank writes of one part of a weight. */
static int write_part(const struct save *save, const struct pen_plan *plan, uint32_t weight_index,
                      enum pen_checkpoint_tensor part, uint32_t global, int fd,
                      const struct pen_arena_view *view,
                      unsigned char (*digests)[PEN_DIGEST_BYTES]) {
  const struct pen_weight *weight = &plan->weights[weight_index];
  unsigned char unused[PEN_DIGEST_BYTES];
  struct pen_shard kept = pen_checkpoint_tensor_kept(plan, weight_index, part,
                                                     pen_group_member(plan, global, PEN_DATA));
  const uint64_t arena = pen_checkpoint_arena_offset(weight, part),
                 file = pen_checkpoint_file_offset(weight, part), past = kept.first + kept.count;
  int result = 0;
  if (!pen_checkpoint_tensor_is_stored(weight, part) ||
      (!pen_checkpoint_tensor_is_sharded(plan, weight_index, part) &&
       !pen_is_writer(plan, weight_index, global))) {
    return 0;
  }
  for (uint64_t first = kept.first; first < past && result == 0;) {
    const struct pen_tensor_run run = pen_first_run(weight, first, past - first);
    const uint32_t number =
        (uint32_t)(weight->stack > 0 ? run.tensor_element / pen_one_tensor_elements(weight) : 0);
    result =
        write_tensor(save, weight, fd, view, arena + (first - kept.first) * sizeof(float),
                     run.count * sizeof(float), file + run.tensor_element * sizeof(float),
                     is_cut(plan, weight_index, part)
                         ? unused
                         : digests[pen_checkpoint_digest_of(plan, weight_index, number, part)]);
    first += run.count;
  }
  return result;
}

/* The parts first to last of a process's weights, into the file that holds them. The folder is left
 * to others on failure: they may still be writing. */
static bool write_parts(const struct save *save, int file, const struct pen_plan *plan,
                        uint32_t global, const struct pen_arena_view *view,
                        enum pen_checkpoint_tensor first, enum pen_checkpoint_tensor last,
                        unsigned char (*digests)[PEN_DIGEST_BYTES],
                        struct pen_save_failure *failure) {
  char path[PATH_MAX];
  int fd = open_part(save, file, 0, path);
  int result = fd < 0 ? -1 : 0;
  for (uint32_t i = 0; i < plan->weight_count && !result; i++) {
    for (enum pen_checkpoint_tensor part = first;
         part <= last && pen_owns_weight(plan, &plan->weights[i], global) && !result; part++) {
      result = write_part(save, plan, i, part, global, fd, view, digests);
    }
  }
  result = fd < 0 ? -1 : pen_file_sync_close(fd, result);
  return result == 0 || failed(failure, PEN_EXIT_CANNOT_WRITE, path);
}

bool pen_checkpoint_write_seen(const struct pen_plan *plan, uint32_t global,
                               const struct pen_arena_view *view, const char *dir, uint64_t step,
                               unsigned char (*digests)[PEN_DIGEST_BYTES],
                               struct pen_save_failure *failure) {
  struct save save;
  pen_files_report_size_limit();
  return name_save(&save, dir, step, failure) &&
         write_parts(&save, PEN_MODEL_FILE, plan, global, view, PEN_CHECKPOINT_VALUE,
                     PEN_CHECKPOINT_VALUE, digests, failure) &&
         write_parts(&save, PEN_OPTIMIZER_FILE, plan, global, view, PEN_CHECKPOINT_EXP_AVG,
                     PEN_CHECKPOINT_EXP_AVG_SQ, digests, failure);
}

static const unsigned char *look_here(void *context, uint64_t offset, size_t bytes) {
  (void)bytes;
  return (const unsigned char *)context + offset;
}

bool pen_checkpoint_write(const struct pen_plan *plan, uint32_t global, const unsigned char *arena,
                          const char *dir, uint64_t step,
                          unsigned char (*digests)[PEN_DIGEST_BYTES],
                          struct pen_save_failure *failure) {
  const struct pen_arena_view here = {.look = look_here, .context = (void *)arena};
  return pen_checkpoint_write_seen(plan, global, &here, dir, step, digests, failure);
}

/* Hashes bytes of a file. */
static int hash_file(int fd, uint64_t offset, uint64_t bytes,
                     unsigned char digest[PEN_DIGEST_BYTES]) {
  unsigned char piece[1 << 16];
  struct sha256_ctx hash;
  sha256_init(&hash);
  while (bytes > 0) {
    ssize_t got =
        pread(fd, piece, bytes < sizeof piece ? (size_t)bytes : sizeof piece, (off_t)offset);
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got <= 0) {
      errno = got == 0 ? EIO : errno;
      return -1;
    }
    sha256_update(&hash, (size_t)got, piece);
    offset += (uint64_t)got;
    bytes -= (uint64_t)got;
  }
  sha256_digest(&hash, PEN_DIGEST_BYTES, digest);
  return 0;
}

bool pen_checkpoint_digest(const struct pen_plan *plan, uint32_t global, const char *dir,
                           uint64_t step, unsigned char (*digests)[PEN_DIGEST_BYTES],
                           struct pen_save_failure *failure) {
  static const int file_of[PEN_CHECKPOINT_TENSORS] = {
      [PEN_CHECKPOINT_VALUE] = PEN_MODEL_FILE,
      [PEN_CHECKPOINT_EXP_AVG] = PEN_OPTIMIZER_FILE,
      [PEN_CHECKPOINT_EXP_AVG_SQ] = PEN_OPTIMIZER_FILE};
  struct save save;
  char path[PATH_MAX];
  bool good = name_save(&save, dir, step, failure);
  for (enum pen_checkpoint_tensor part = 0; part < PEN_CHECKPOINT_TENSORS && good; part++) {
    int fd = pen_path_join(path, save.temporary, pen_checkpoint_files[file_of[part]])
                 ? -1
                 : open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    int result = fd < 0 ? -1 : 0;
    for (uint32_t i = 0; i < plan->weight_count && result == 0; i++) {
      const struct pen_weight *weight = &plan->weights[i];
      bool reads = pen_is_writer(plan, i, global) && weight->split == 0 &&
                   pen_checkpoint_tensor_is_stored(weight, part) && is_cut(plan, i, part);
      const uint64_t bytes = pen_one_tensor_elements(weight) * sizeof(float);
      for (uint32_t n = 0; reads && n < pen_tensor_count(weight) && result == 0; n++) {
        result = hash_file(fd, pen_checkpoint_file_offset(weight, part) + n * bytes, bytes,
                           digests[pen_checkpoint_digest_of(plan, i, n, part)]);
      }
    }
    good = result == 0 || failed(failure, PEN_EXIT_CANNOT_WRITE, path);
    if (fd >= 0) {
      close(fd);
    }
  }
  return good;
}

/* Syncs one file of the save again: the sync of a rank need not have covered the header, nor a rank
 * on another host. */
static bool sync_part(const struct save *save, int file, struct pen_save_failure *failure) {
  char path[PATH_MAX];
  int fd = open_part(save, file, 0, path);
  return (fd >= 0 && pen_file_sync_close(fd, 0) == 0) ||
         failed(failure, PEN_EXIT_CANNOT_WRITE, path);
}

static bool add_manifest(const struct save *save, const struct pen_plan *plan,
                         const struct pen_checkpoint_state *state,
                         unsigned char (*digests)[PEN_DIGEST_BYTES],
                         struct pen_save_failure *failure) {
  char path[PATH_MAX];
  int fd = open_part(save, PEN_MANIFEST_FILE, O_CREAT | O_EXCL, path);
  if (fd < 0) {
    return failed(failure, PEN_EXIT_CANNOT_CREATE, path);
  }
  return pen_file_sync_close(fd, pen_manifest_write(fd, plan, state, digests)) == 0 ||
         failed(failure, PEN_EXIT_CANNOT_WRITE, path);
}

static bool add_config(const struct save *save, const char *text,
                       struct pen_save_failure *failure) {
  char path[PATH_MAX];
  int fd = open_part(save, PEN_CONFIG_FILE, O_CREAT | O_EXCL, path);
  if (fd < 0) {
    return failed(failure, PEN_EXIT_CANNOT_CREATE, path);
  }
  const int result = pen_file_write(fd, text, strlen(text));
  return pen_file_sync_close(fd, result) == 0 || failed(failure, PEN_EXIT_CANNOT_WRITE, path);
}

static bool add_kept(const struct save *save, const struct pen_kept_files *kept,
                     struct pen_save_failure *failure) {
  char path[PATH_MAX];
  return kept == NULL || pen_kept_files_write(kept, save->temporary, path) == 0 ||
         failed(failure, PEN_EXIT_CANNOT_WRITE, path);
}

/* Moves a file of others from the older folder of a step into the new one. */
static void keep_other(void *context, const char *name) {
  const struct save *save = context;
  char from[PATH_MAX], to[PATH_MAX];
  if (strcmp(name, ".") != 0 && strcmp(name, "..") != 0 &&
      pen_path_join(from, save->temporary, name) == 0 &&
      pen_path_join(to, save->folder, name) == 0) {
    renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE);
  }
}

/* Gives the finished folder its name. One of that name may be there, from a run before, and
 * `latest` may point at it: the two then change places at one stroke, and the old one goes; files
 * of others that were in it are in the new one then. */
static bool take_place(const struct save *save, struct pen_save_failure *failure) {
  int result = rename(save->temporary, save->folder);
  if (result && (errno == EEXIST || errno == ENOTEMPTY)) {
    result = renameat2(AT_FDCWD, save->temporary, AT_FDCWD, save->folder, RENAME_EXCHANGE);
    if (result && (errno == EINVAL || errno == ENOSYS)) {
      failure->status = PEN_EXIT_CANNOT_CREATE;
      snprintf(failure->message, sizeof failure->message,
               "%s: cannot create: it exists, and this file system cannot exchange it: remove it",
               save->folder);
      return false;
    }
    if (result == 0) {
      pen_checkpoint_remove(save->temporary);
      pen_folder_each(save->temporary, keep_other, (void *)(uintptr_t)save);
      rmdir(save->temporary);
    }
  }
  if (result) {
    return failed(failure, PEN_EXIT_CANNOT_CREATE, save->folder);
  }
  return pen_folder_sync(save->dir) == 0 || failed(failure, PEN_EXIT_CANNOT_WRITE, save->dir);
}

/* Makes a link to the new checkpoint, of the first temporary name that others do not have. */
static int make_link(const struct save *save, char temporary[PATH_MAX]) {
  int result = -1;
  errno = EEXIST;
  for (int i = 0; i < PEN_TEMPORARY_LINKS && result && errno == EEXIST; i++) {
    result = pen_path_join(temporary, save->dir, pen_temporary_links[i]) ||
                     symlink(save->name, temporary)
                 ? -1
                 : 0;
  }
  return result;
}

/* Points DIR/latest, a relative link, at the new checkpoint. */
static bool point_latest(const struct save *save, struct pen_save_failure *failure) {
  char latest[PATH_MAX], temporary[PATH_MAX];
  if (pen_path_join(latest, save->dir, "latest") || make_link(save, temporary) ||
      rename(temporary, latest)) {
    return failed(failure, PEN_EXIT_CANNOT_CREATE, latest);
  }
  return pen_folder_sync(save->dir) == 0 || failed(failure, PEN_EXIT_CANNOT_WRITE, save->dir);
}

bool pen_checkpoint_finish(const struct pen_plan *plan, const char *dir,
                           const struct pen_checkpoint_state *state,
                           const struct pen_kept_files *kept,
                           unsigned char (*digests)[PEN_DIGEST_BYTES],
                           struct pen_save_failure *failure) {
  struct save save;
  const char *config = kept != NULL && kept->config != NULL ? kept->config : plan->config_json;
  pen_files_report_size_limit();
  bool good = name_save(&save, dir, state->step, failure) &&
              add_manifest(&save, plan, state, digests, failure) &&
              add_config(&save, config, failure) && add_kept(&save, kept, failure) &&
              sync_part(&save, PEN_MODEL_FILE, failure) &&
              sync_part(&save, PEN_OPTIMIZER_FILE, failure) &&
              (pen_folder_sync(save.temporary) == 0 ||
               failed(failure, PEN_EXIT_CANNOT_WRITE, save.temporary)) &&
              take_place(&save, failure) && point_latest(&save, failure);
  if (!good && access(save.temporary, F_OK) == 0) { /* else another folder has the name now */
    pen_checkpoint_abandon(dir);
  }
  return good;
}
