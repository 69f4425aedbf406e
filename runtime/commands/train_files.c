/* train_files.c: the folder of checkpoints, the data and the log of train (see train_files.h). */
#include "runtime/commands/train_files.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/check.h"
#include "runtime/base/files.h"
#include "runtime/observe/step_log.h"
#include "runtime/storage/checkpoint_prune.h"
#include "runtime/storage/checkpoint_tensors.h"
#include "runtime/storage/folder_mark.h"

/* Fails if the folder is a checkpoint, not one that holds checkpoints. */
static void check_is_parent_folder(const char *folder) {
  char file[PATH_MAX];
  if (pen_path_join(file, folder, pen_checkpoint_files[PEN_OPTIMIZER_FILE]) == 0 &&
      access(file, F_OK) == 0) {
    pen_fail(PEN_EXIT_USAGE,
             "--checkpoint %s: is one checkpoint itself: name the folder that holds it", folder);
  }
}

/* Copies a path as one word of the shell. */
static void quote(char text[PATH_MAX], const char *path) {
  static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._+-";
  size_t used = 0;
  if (path[strspn(path, plain)] == '\0') {
    snprintf(text, PATH_MAX, "%s", path);
    return;
  }
  text[used++] = '\'';
  for (; *path != '\0' && used + 6 < PATH_MAX; path++) {
    used += (size_t)snprintf(text + used, PATH_MAX - used, *path == '\'' ? "'\\%c'" : "%c", *path);
  }
  snprintf(text + used, PATH_MAX - used, "'");
}

/* The step of the manifest in a folder; -1: it has none. */
static int64_t step_in(const char *folder) {
  char manifest[PATH_MAX];
  if (pen_path_join(manifest, folder, pen_checkpoint_files[PEN_MANIFEST_FILE]) != 0) {
    return -1;
  }
  json_t *root = json_load_file(manifest, 0, NULL);
  const json_t *step = json_object_get(root, "step");
  const int64_t number = json_is_integer(step) ? (int64_t)json_integer_value(step) : -1;
  json_decref(root);
  return number;
}

/* A copy that followed links has made a folder of `latest`, which no save can replace. Fails with
 * the command that makes a link of it again. */
static void check_latest(const char *folder) {
  char latest[PATH_MAX], step_folder[PATH_MAX + 32], dir[PATH_MAX], aside[64] = "latest.old";
  struct stat status;
  uint64_t newest;
  if (pen_path_join(latest, folder, "latest") != 0 || lstat(latest, &status) != 0 ||
      S_ISLNK(status.st_mode)) {
    return;
  }
  int64_t step = S_ISDIR(status.st_mode) ? step_in(latest) : -1;
  if (step < 0 && pen_checkpoint_newest(folder, UINT64_MAX, &newest)) {
    step = (int64_t)newest;
  }
  quote(dir, folder);
  snprintf(step_folder, sizeof step_folder, "%s/step-%08" PRId64, folder, step);
  if (step >= 0 && lstat(step_folder, &status) != 0) {
    snprintf(aside, sizeof aside, "step-%08" PRId64, step);
  }
  char link[PATH_MAX + 64] = "";
  if (step >= 0) {
    snprintf(link, sizeof link, " && ln -s step-%08" PRId64 " %s/latest", step, dir);
  }
  pen_fail(
      PEN_EXIT_CANNOT_CREATE,
      "--checkpoint %s: latest is no link to a checkpoint, as after a copy that follows links: "
      "mv %s/latest %s/%s%s",
      folder, dir, dir, aside, link);
}

/* What a former run has saved is continued, or replaced on demand. */
static void check_former_run(const struct pen_run *run) {
  const char *name = run->plan->name, *folder = run->options->checkpoint;
  uint64_t newest;
  if (run->options->resume || !pen_checkpoint_newest(folder, UINT64_MAX, &newest)) {
    return;
  }
  if (!run->options->overwrite) {
    pen_fail(PEN_EXIT_CANNOT_CREATE,
             "--checkpoint %s: holds checkpoints up to step-%08" PRIu64
             ": --resume continues from the latest, --overwrite removes them after the first save",
             folder, newest);
  }
  pen_say(name,
          "%s: the checkpoints of a former run, up to step-%08" PRIu64
          ", are removed after the first save",
          folder, newest);
}

/* A run that was killed just before may hold the lock a little longer. */
void pen_train_folder_open(struct pen_run *run) {
  const double lock_timeout_s = 2;
  const char *folder = run->options->checkpoint;
  check_is_parent_folder(folder);
  if (pen_folder_make(folder) != 0 || access(folder, W_OK | X_OK) != 0) {
    pen_fail(PEN_EXIT_CANNOT_CREATE, "--checkpoint %s: %s", folder, strerror(errno));
  }
  if (run->local.first != 0) {
    return;
  }
  if (pen_folder_lock(folder, lock_timeout_s, &run->checkpoints) < 0) {
    pen_fail(PEN_EXIT_CANNOT_CREATE, "--checkpoint %s: %s", folder,
             errno == EWOULDBLOCK ? "another run saves there" : strerror(errno));
  }
  check_latest(folder);
  check_former_run(run);
  if (run->plan->host_count > 1 && pen_folder_mark_write(folder) != 0) {
    pen_fail(PEN_EXIT_CANNOT_CREATE, "--checkpoint %s: %s", folder, strerror(errno));
  }
}

/* ---- data ---- */

static const char *kind_of(const struct pen_data *data, bool rows, uint64_t bytes) {
  return bytes == 0            ? "no file"
         : data->named != NULL ? "a file of samples"
         : rows                ? "a packed file"
                               : "a plain file";
}

static _Noreturn void fail_other_data(const struct pen_run *run,
                                      const struct pen_checkpoint_info *found) {
  const struct pen_data_place *then = &found->state.place, now = pen_data_place_of(&run->data, 0);
  const bool other_size =
      then->file.bytes != now.file.bytes || then->rows != now.rows || now.file.bytes == 0;
  char why[160] = "its checksum is another one";
  if (other_size) {
    snprintf(why, sizeof why, "%s of %" PRIu64 " bytes, it was %s of %" PRIu64,
             kind_of(&run->data, now.rows, now.file.bytes), now.file.bytes,
             kind_of(&run->data, then->rows, then->file.bytes), then->file.bytes);
  }
  pen_fail(PEN_EXIT_DATA,
           "--data %s: not the file%s that %s has read: %s; --new-data reads %s beginning",
           run->data.path == NULL ? "" : run->data.path, now.file_count > 0 ? "s" : "", found->path,
           why, now.file_count > 0 ? "them from their" : "it from its");
}

/* "shuffled by seed 7"; `text` has 48 bytes. */
static const char *order_text(char text[48], bool shuffled, uint64_t seed) {
  snprintf(text, 48, shuffled ? "shuffled by seed %" PRIu64 : "in its own order", seed);
  return text;
}

static _Noreturn void fail_other_order(const struct pen_run *run,
                                       const struct pen_checkpoint_info *found) {
  const struct pen_data_place *then = &found->state.place;
  const struct pen_window_order *now = &run->data.order;
  char before[48], after[48], options[64] = "without --shuffle it";
  if (then->shuffled) {
    snprintf(options, sizeof options, "--shuffle --shuffle-seed %" PRIu64, then->shuffle_seed);
  }
  pen_fail(PEN_EXIT_DATA,
           "--data %s: %s has read it %s, this run reads it %s: %s continues; --new-data reads it "
           "from its beginning",
           run->data.path, found->path, order_text(before, then->shuffled, then->shuffle_seed),
           order_text(after, now->shuffled, now->seed), options);
}

/* Less than a window is read again; or, at the end of an epoch, left out. */
static void say_other_windows(const struct pen_run *run, const struct pen_data_place *place,
                              uint64_t again) {
  const struct pen_data *data = &run->data;
  char where[160];
  if (data->order.shuffled || data->file_count > 0) {
    snprintf(where, sizeof where,
             "continues after %" PRIu64 " tokens of epoch %" PRIu64
             "; %s, some are read again or left out in this epoch",
             place->read, place->epoch, data->order.shuffled ? "shuffled" : "of several files");
  } else if (run->cursor < place->epoch * data->window_count) {
    snprintf(where, sizeof where,
             "continues at token %" PRIu64 " of epoch %" PRIu64 "; %" PRIu64
             " tokens are read again",
             place->read, place->epoch, again);
  } else {
    snprintf(where, sizeof where,
             "continues with epoch %" PRIu64 "; the last %" PRIu64
             " tokens of the one before fill no window",
             place->epoch + 1, data->token_count - 1 - place->read);
  }
  pen_warn("%s: windows of %" PRIu64 " tokens, before of %" PRIu64 ": %s", data->path,
           data->sequence, place->sequence, where);
}

void pen_train_data_continue(struct pen_run *run, const struct pen_checkpoint_info *found) {
  if (run->options->mailbox != NULL) { /* its caller knows which samples come next */
    run->cursor = found->state.cursor;
    return;
  }
  const struct pen_data_place *place = &found->state.place;
  const char *path = run->data.path == NULL ? "the data" : run->data.path;
  const bool says = run->local.first == 0, fits = pen_data_place_fits(&run->data, place),
             in_order = pen_data_place_in_order(&run->data, place);
  uint64_t again;
  if (!place->known && in_order) {
    run->cursor = found->state.cursor;
    if (says && run->data.path != NULL) {
      pen_warn(
          "%s: of a version that did not keep which data were read: continues at window %" PRIu64
          " of %s",
          found->path, run->cursor, path);
    }
  } else if (fits && in_order) {
    run->cursor = pen_data_place_cursor(&run->data, place, &again);
    if (says && !place->rows && place->sequence != run->data.sequence) {
      say_other_windows(run, place, again);
    }
  } else if (run->options->new_data) {
    run->cursor = 0;
    if (says) {
      pen_warn(fits ? "%s: in another order than that of %s: read from its beginning"
                    : "%s: other data than those of %s: read from their beginning",
               path, found->path);
    }
  } else if (fits || !place->known) {
    fail_other_order(run, found);
  } else {
    fail_other_data(run, found);
  }
}

/* ---- the log ---- */

void pen_train_log_open(struct pen_run *run) {
  const struct pen_options *options = run->options;
  if (run->local.first == 0) {
    run->log_descriptor = pen_log_create(options->log, options->resume      ? PEN_LOG_CONTINUED
                                                       : options->overwrite ? PEN_LOG_OVERWRITTEN
                                                                            : PEN_LOG_NEW);
  }
}
