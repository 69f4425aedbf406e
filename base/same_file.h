/* same_file.h: an output is never an input, nor another output, and never a file of a checkpoint:
 * one check of the files that a command line names. */
#ifndef PEN_BASE_SAME_FILE_H
#define PEN_BASE_SAME_FILE_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

struct pen_named_file {
  const char *name; /* as messages name it: "-o", "--log", "the topology" */
  const char *path; /* null: not given; "-": standard input, or output, which is not compared */
  bool written;
  const char *suffix; /* of the temporary file PATH SUFFIX that is written; null: none */
};

enum { PEN_CONFLICT_BYTES = 1024 };

/* Copies the folder of a path, with its last slash, "./" if it has none; returns the name after it.
 */
const char *pen_split_path(const char *path, char folder[PATH_MAX]);

/* Whether both paths name one regular file, by device and inode; files that do not exist yet are
 * compared by folder and name. False if one is null. */
bool pen_same_file(const char *path, const char *other);

/* Whether one of the files may not be written, for it, or its temporary file, is another one of
 * them, or is in the folder of a checkpoint, which has a manifest. Says why: "-o X: the same file
 * as --costs". The caller ends with status 64. */
bool pen_find_conflict(const struct pen_named_file *file, size_t count,
                       char conflict[PEN_CONFLICT_BYTES]);

#endif
