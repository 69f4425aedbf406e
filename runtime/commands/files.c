/* files.c: checks of the files that the options name (see files.h). */
#include "runtime/commands/files.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/same_file.h"
#include "runtime/base/check.h"
#include "runtime/base/files.h"
#include "runtime/base/patterns.h"
#include "runtime/data/bucket.h"

/* The options that name files. */
static const struct named_file {
  const char *option;
  size_t offset; /* of the path in struct pen_options */
  bool written;
  const char *suffix; /* of its temporary file; null: none */
} named_files[] = {
    {"--prompts", offsetof(struct pen_options, prompts), false, NULL},
    {"--init", offsetof(struct pen_options, init), false, NULL},
    {"--checkpoint", offsetof(struct pen_options, checkpoint), false, NULL},
    {"--secret-file", offsetof(struct pen_options, secret_file), false, NULL},
    {"--log", offsetof(struct pen_options, log), true, NULL},
    {"--metrics", offsetof(struct pen_options, metrics), true, ".tmp"},
    {"--trace", offsetof(struct pen_options, trace), true, NULL},
    {"--output", offsetof(struct pen_options, output), true, ".tmp"}, /* of init */
    {"--logits", offsetof(struct pen_options, logits), true, ".tmp"},
    {"--outputs", offsetof(struct pen_options, outputs), true, ".tmp"},
};
enum { NAMED_FILE_COUNT = sizeof named_files / sizeof *named_files };

static const char *path_of(const struct pen_options *options, const struct named_file *file) {
  const char *path = *(const char *const *)((const char *)options + file->offset);
  const bool by_variable =
      path == NULL && file->offset == offsetof(struct pen_options, secret_file);
  return by_variable ? getenv("PENSTOCK_SECRET_FILE") : path;
}

/* What `train` makes in the folder of its checkpoints. */
static bool is_checkpoint_name(const char *name) {
  return strncmp(name, "latest", 6) == 0 || strncmp(name, "step-", 5) == 0 ||
         strcmp(name, ".run") == 0 || strcmp(name, ".latest.tmp") == 0;
}

static void check_not_in_checkpoints(const struct pen_named_file *file, const char *folder) {
  char path[PATH_MAX];
  const char *name = pen_split_path(file->path, path);
  struct stat one, two;
  if (is_checkpoint_name(name) && stat(path, &one) == 0 && stat(folder, &two) == 0 &&
      pen_file_same(&one, &two)) {
    pen_fail(PEN_EXIT_USAGE, "%s %s: a name of the checkpoints of --checkpoint %s", file->name,
             file->path, folder);
  }
}

static void add_read_files(struct pen_named_file *file, const char *option,
                           const struct pen_texts *paths) {
  for (size_t i = 0; i < paths->count; i++) {
    file[i] = (struct pen_named_file){option, paths->text[i], false, NULL};
  }
}

void pen_check_files_differ(const struct pen_options *options) {
  const size_t data = options->data.count, evaluated = options->eval_data.count,
               count = NAMED_FILE_COUNT + data + evaluated;
  struct pen_named_file *file = pen_allocate(count, sizeof *file, "%zu files", count);
  char conflict[PEN_CONFLICT_BYTES];
  for (size_t i = 0; i < NAMED_FILE_COUNT; i++) {
    file[i] = (struct pen_named_file){named_files[i].option, path_of(options, &named_files[i]),
                                      named_files[i].written, named_files[i].suffix};
    if (options->checkpoint != NULL && file[i].path != NULL && file[i].written) {
      check_not_in_checkpoints(&file[i], options->checkpoint);
    }
  }
  add_read_files(file + NAMED_FILE_COUNT, "--data", &options->data);
  add_read_files(file + NAMED_FILE_COUNT + data, "--eval-data", &options->eval_data);
  if (pen_find_conflict(file, count, conflict)) {
    pen_fail(PEN_EXIT_USAGE, "%s", conflict);
  }
  free(file);
}

void pen_check_weights_not_written(const struct pen_run *run) {
  const char *path = run->checkpoint_path != NULL ? run->checkpoint_path : run->weights_path;
  char parent[PATH_MAX];
  struct stat status;
  const bool is_index = path != NULL && stat(path, &status) == 0 && S_ISREG(status.st_mode) &&
                        strlen(path) > 5 && strcmp(path + strlen(path) - 5, ".json") == 0;
  if (is_index) {
    pen_split_path(path, parent); /* beside it are the files that it names */
    path = parent;
  }
  DIR *folder = path == NULL ? NULL : opendir(path);
  for (const struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;) {
    char file[PATH_MAX];
    const char *ending = strrchr(entry->d_name, '.');
    if (ending == NULL ||
        (strcmp(ending, ".safetensors") != 0 && (is_index || strcmp(ending, ".json") != 0)) ||
        pen_path_join(file, path, entry->d_name) != 0) {
      continue;
    }
    for (size_t i = 0; i < NAMED_FILE_COUNT; i++) {
      const char *written = named_files[i].written ? path_of(run->options, &named_files[i]) : NULL;
      char temporary[PATH_MAX];
      if (written != NULL && (pen_same_file(file, written) ||
                              (named_files[i].suffix != NULL &&
                               pen_path_suffix(temporary, written, named_files[i].suffix) == 0 &&
                               pen_same_file(file, temporary)))) {
        pen_fail(PEN_EXIT_USAGE, "%s %s: a file of the weights that are read from %s",
                 named_files[i].option, written, path);
      }
    }
  }
  if (folder != NULL) {
    closedir(folder);
  }
}

void pen_check_reads_texts(const struct pen_plan *plan, const char *command) {
  if (!plan->needs_tokens) {
    pen_fail(PEN_EXIT_USAGE, "%s: this binary's model is not a language model: it reads no tokens",
             command);
  }
  if (plan->no_texts != NULL) {
    pen_fail(PEN_EXIT_USAGE, "%s: this binary's model %s", command, plan->no_texts);
  }
}

void pen_check_data_given(const struct pen_plan *plan, const struct pen_options *options,
                          const char *command) {
  if (options->mailbox != NULL) {
    return;
  }
  const bool by_name = plan->input_count > 0 && strcmp(command, "score") != 0;
  if (plan->needs_tokens && options->data.count == 0) {
    pen_fail(PEN_EXIT_USAGE, "%s needs --data FILE: %s", command,
             by_name ? "a safetensors file that has its inputs by name"
                     : "a token file, as penstock-tokens writes it");
  }
  if (by_name && options->given.ids) {
    pen_fail(PEN_EXIT_USAGE, "--ids %" PRIu64 ": the model's inputs are read by name from the data",
             options->ids);
  }
  if (options->given.ids && options->ids != 16 && options->ids != 32) {
    pen_fail(PEN_EXIT_USAGE, "--ids %" PRIu64 ": 16 or 32, the bits of a token id", options->ids);
  }
}

struct pen_texts pen_token_paths(const struct pen_plan *plan, const char *option,
                                 const struct pen_texts *paths, bool weighted) {
  for (size_t i = 0; i < paths->count && !plan->needs_tokens; i++) {
    if (access(paths->text[i], R_OK) != 0) {
      pen_fail(PEN_EXIT_NO_INPUT, "%s: %s", paths->text[i], strerror(errno));
    }
    pen_say(plan->name, "%s %s is not read: the model makes its own inputs", option,
            paths->text[i]);
  }
  struct pen_texts all = *paths;
  if (plan->input_count > 0 && !weighted) {
    pen_parts_expand(&all);
  }
  return plan->needs_tokens ? all : (struct pen_texts){.count = 0};
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
