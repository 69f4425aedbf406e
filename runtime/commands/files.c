/* files.c: checks of the files that the options name (see files.h). */
#include "runtime/commands/files.h"

#include <dirent.h>
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/check.h"
#include "runtime/base/files.h"

/* The options that name files. */
static const struct named_file {
  const char *option;
  size_t offset; /* of the path in struct pen_options */
  bool written;
} named_files[] = {
    {"--data", offsetof(struct pen_options, data), false},
    {"--eval-data", offsetof(struct pen_options, eval_data), false},
    {"--init", offsetof(struct pen_options, init), false},
    {"--log", offsetof(struct pen_options, log), true},
    {"--metrics", offsetof(struct pen_options, metrics), true},
    {"--trace", offsetof(struct pen_options, trace), true},
    {"--measure", offsetof(struct pen_options, measure), true},
    {"--output", offsetof(struct pen_options, output), true},
    {"--logits", offsetof(struct pen_options, logits), true},
};
enum { NAMED_FILE_COUNT = sizeof named_files / sizeof *named_files };

static const char *path_of(const struct pen_options *options, const struct named_file *file) {
  return *(const char *const *)((const char *)options + file->offset);
}

/* Copies the folder of a path; returns the name after it. */
static const char *split_path(const char *path, char folder[PATH_MAX]) {
  const char *slash = strrchr(path, '/');
  snprintf(folder, PATH_MAX, "%.*s", slash == NULL ? 1 : (int)(slash - path + 1),
           slash == NULL ? "." : path);
  return slash == NULL ? path : slash + 1;
}

/* Whether both paths name one regular file. Files that do not exist yet are compared by folder and
 * name. */
static bool same_file(const char *path, const char *other) {
  struct stat one, two;
  int missing = stat(path, &one) != 0, other_missing = stat(other, &two) != 0;
  if (!missing && !other_missing) {
    return S_ISREG(one.st_mode) && pen_file_same(&one, &two);
  }
  char folder[PATH_MAX], other_folder[PATH_MAX];
  bool same_name = strcmp(split_path(path, folder), split_path(other, other_folder)) == 0;
  return missing && other_missing && same_name && stat(folder, &one) == 0 &&
         stat(other_folder, &two) == 0 && pen_file_same(&one, &two);
}

void pen_check_files_differ(const struct pen_options *options) {
  for (size_t i = 0; i < NAMED_FILE_COUNT; i++) {
    const char *path = path_of(options, &named_files[i]);
    for (size_t j = 0; j < NAMED_FILE_COUNT && named_files[i].written && path != NULL; j++) {
      const char *other = path_of(options, &named_files[j]);
      if (i != j && other != NULL && same_file(path, other)) {
        pen_fail(PEN_EXIT_USAGE, "%s %s: the same file as that of %s", named_files[i].option, path,
                 named_files[j].option);
      }
    }
  }
}

void pen_check_weights_not_written(const struct pen_run *run) {
  const char *path = run->checkpoint_path != NULL ? run->checkpoint_path : run->weights_path;
  DIR *folder = path == NULL ? NULL : opendir(path);
  for (const struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;) {
    char file[PATH_MAX];
    const char *ending = strrchr(entry->d_name, '.');
    if (ending == NULL || (strcmp(ending, ".safetensors") != 0 && strcmp(ending, ".json") != 0) ||
        pen_path_join(file, path, entry->d_name) != 0) {
      continue;
    }
    for (size_t i = 0; i < NAMED_FILE_COUNT; i++) {
      const char *written = named_files[i].written ? path_of(run->options, &named_files[i]) : NULL;
      if (written != NULL && same_file(file, written)) {
        pen_fail(PEN_EXIT_USAGE, "%s %s: a file of the weights that are read from %s",
                 named_files[i].option, written, path);
      }
    }
  }
  if (folder != NULL) {
    closedir(folder);
  }
}

void pen_check_data_given(const struct pen_plan *plan, const struct pen_options *options,
                          const char *command) {
  if (plan->needs_tokens && options->data == NULL) {
    pen_fail(PEN_EXIT_USAGE, "%s needs --data FILE: a token file, as penstock-tokens writes it",
             command);
  }
}

const char *pen_token_path(const struct pen_plan *plan, const char *option, const char *path) {
  if (plan->needs_tokens || path == NULL) {
    return path;
  }
  if (access(path, R_OK) != 0) {
    pen_fail(PEN_EXIT_NO_INPUT, "%s: %s", path, strerror(errno));
  }
  fprintf(stderr, "%s: %s %s is not read: the model makes its own inputs\n", plan->name, option,
          path);
  return NULL;
}

/* Whether a folder holds checkpoints and is none itself; sets the path of the latest. */
static bool holds_checkpoints(const char *folder, char latest[PATH_MAX]) {
  static const char *const weights[] = {"model.safetensors", "model.safetensors.index.json"};
  char file[PATH_MAX];
  bool has_weights = false;
  for (size_t i = 0; i < sizeof weights / sizeof *weights; i++) {
    has_weights =
        has_weights || (pen_path_join(file, folder, weights[i]) == 0 && access(file, F_OK) == 0);
  }
  return !has_weights && pen_path_join(latest, folder, "latest") == 0 && access(latest, F_OK) == 0;
}

int pen_resolve_path(const char *path, char resolved[PATH_MAX]) {
  char folder[PATH_MAX], real[PATH_MAX], latest[PATH_MAX];
  if (holds_checkpoints(path, latest)) {
    path = latest;
  }
  struct stat status;
  const char *slash = strrchr(path, '/'), *file = "";
  size_t length = strlen(path);
  if (slash != NULL && stat(path, &status) == 0 && !S_ISDIR(status.st_mode)) {
    file = slash;
    length = (size_t)(slash - path);
  }
  while (length > 1 && path[length - 1] == '/') {
    length--;
  }
  snprintf(folder, sizeof folder, "%.*s", (int)length, path);
  bool is_link =
      lstat(folder, &status) == 0 && S_ISLNK(status.st_mode) && realpath(folder, real) != NULL;
  if (pen_path_suffix(resolved, is_link ? real : path, is_link ? file : "") != 0) {
    pen_fail(PEN_EXIT_NO_INPUT, "%s: %s", path, strerror(errno));
  }
  return 0;
}
