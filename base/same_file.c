/* same_file.c: whether a command would write over what it reads (see same_file.h). */
#define _GNU_SOURCE 1
#include "base/same_file.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SHOWN_BYTES = 300 }; /* of a path */

const char *pen_split_path(const char *path, char folder[PATH_MAX]) {
  const char *slash = strrchr(path, '/');
  snprintf(folder, PATH_MAX, "%.*s", slash == NULL ? 2 : (int)(slash - path + 1),
           slash == NULL ? "./" : path);
  return slash == NULL ? path : slash + 1;
}

static bool is_same(const struct stat *one, const struct stat *other) {
  return one->st_dev == other->st_dev && one->st_ino == other->st_ino;
}

/* Follows the symbolic links of a path to a name that does not exist; returns it, or `path`. */
static const char *follow_links(const char *path, char target[PATH_MAX]) {
  enum { LINKS_MAX = 40 };
  char link[PATH_MAX], folder[PATH_MAX];
  for (int links = 0; links < LINKS_MAX; links++) {
    const ssize_t bytes = readlink(path, link, sizeof link - 1);
    if (bytes < 0) break;
    link[bytes] = '\0';
    pen_split_path(path, folder);
    const int length = snprintf(target, PATH_MAX, "%s%s", *link == '/' ? "" : folder, link);
    if (length < 0 || length >= PATH_MAX) break;
    path = target;
  }
  return path;
}

bool pen_same_file(const char *path, const char *other) {
  struct stat one, two;
  if (path == NULL || other == NULL) return false;
  const bool missing = stat(path, &one) != 0, other_missing = stat(other, &two) != 0;
  if (!missing && !other_missing) return S_ISREG(one.st_mode) && is_same(&one, &two);
  if (!missing || !other_missing) return false;
  char folder[PATH_MAX], other_folder[PATH_MAX], target[PATH_MAX], other_target[PATH_MAX];
  path = follow_links(path, target);
  other = follow_links(other, other_target);
  const bool same_name =
      strcmp(pen_split_path(path, folder), pen_split_path(other, other_folder)) == 0;
  return same_name && stat(folder, &one) == 0 && stat(other_folder, &two) == 0 &&
         is_same(&one, &two);
}

/* Whether a path, or what it is a link to, is in a folder of a checkpoint. */
static bool is_in_checkpoint(const char *path) {
  static const char *const names[] = {"manifest.json", "model.safetensors"};
  char folder[PATH_MAX], file[PATH_MAX], target[PATH_MAX];
  struct stat status;
  pen_split_path(follow_links(path, target), folder);
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    const int length = snprintf(file, sizeof file, "%s%s", folder, names[i]);
    if (length < 0 || length >= (int)sizeof file || stat(file, &status) != 0) return false;
  }
  return true;
}

/* The path of a file, or of its temporary one; null: it has none. */
static const char *path_of(const struct pen_named_file *file, bool temporary,
                           char memory[PATH_MAX]) {
  if (file->path == NULL || (file->written && strcmp(file->path, "-") == 0)) return NULL;
  if (strcmp(file->path, "-") == 0) return temporary ? NULL : "/dev/stdin";
  if (!temporary) return file->path;
  if (!file->written || file->suffix == NULL) return NULL;
  const int length = snprintf(memory, PATH_MAX, "%s%s", file->path, file->suffix);
  return length < 0 || length >= PATH_MAX ? NULL : memory;
}

/* Whether a file that is written is the other one, by either of their paths. */
static bool is_other(const struct pen_named_file *file, const struct pen_named_file *other,
                     char conflict[PEN_CONFLICT_BYTES]) {
  char memory[PATH_MAX], other_memory[PATH_MAX];
  for (int pair = 0; pair < 4; pair++) {
    const bool temporary = pair % 2 != 0;
    const char *path = path_of(file, temporary, memory);
    const char *second = path_of(other, pair / 2 != 0, other_memory);
    if (pen_same_file(path, second)) {
      snprintf(conflict, PEN_CONFLICT_BYTES, "%s %.*s: %sthe same file as %s%s", file->name,
               SHOWN_BYTES, file->path, temporary ? "its temporary file is " : "", other->name,
               pair / 2 != 0 ? "'s temporary file" : "");
      return true;
    }
  }
  return false;
}

bool pen_find_conflict(const struct pen_named_file *file, size_t count,
                       char conflict[PEN_CONFLICT_BYTES]) {
  for (size_t i = 0; i < count; i++) {
    if (file[i].path == NULL || !file[i].written || strcmp(file[i].path, "-") == 0) continue;
    for (size_t j = 0; j < count; j++) {
      if (i != j && is_other(&file[i], &file[j], conflict)) return true;
    }
    if (is_in_checkpoint(file[i].path)) {
      snprintf(conflict, PEN_CONFLICT_BYTES, "%s %.*s: in the folder of a checkpoint", file[i].name,
               SHOWN_BYTES, file[i].path);
      return true;
    }
  }
  return false;
}
