/* source.h: a topology file as text: its includes expanded, its literals set aside. */
#ifndef PEN_SOURCE_H
#define PEN_SOURCE_H

#include <nettle/sha2.h>
#include <stdbool.h>
#include <stddef.h>

/* A value as it was written: 17, 1e-3, true, "loop", or a bare word that is none of these. */
struct pen_literal {
  const char *text;   /* as written, quotes included */
  const char *string; /* what a quoted string says; null for a bare word */
};

/* One `NAME = VALUE` of the file, at any depth. */
struct pen_written {
  const char *group, *name; /* group: the name of the group around it, "" at the top */
  size_t depth;             /* groups around it */
  size_t file, line;
  const char *value; /* as written, on one line, cut when long */
};

struct pen_source {
  /* What libconfig reads. Every value is replaced by its index in `literal`, because libconfig 1.5
   * wraps integers that do not fit, refuses [1, 2.5], and forgets how a value was written; comments
   * are gone, includes are in place. */
  char *text;
  size_t bytes, capacity;
  struct pen_literal *literal;
  size_t literal_count, literal_capacity;
  struct pen_written *written;
  size_t written_count, written_capacity;
  /* Every file read, in order, the topology first; the line that a line of `text` stems from. */
  const char **file;
  size_t file_count, file_capacity;
  struct pen_line {
    size_t file, line;
  } * line;
  size_t line_count, line_capacity;
};

/* Reads a file and all that it includes, and hashes their bytes. Ends the generator (66 what cannot
 * be read, 78). */
struct pen_source *pen_source_read(const char *path, struct sha256_ctx *hash);

/* Whether both name one file that is there. Null names none. */
bool pen_same_file(const char *path, const char *other);

/* `FILE:LINE: ` of a line of `text`, counted from 1. */
const char *pen_source_where(const struct pen_source *source, size_t line);

/* The last setting of that name that was written within `depth` groups; null when it was not. */
const struct pen_written *pen_source_find(const struct pen_source *source, size_t depth,
                                          const char *group, const char *name);

#endif
