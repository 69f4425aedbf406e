/* source.h: a topology file as text, with its includes expanded and its values stored as written.
 */
#ifndef PEN_SOURCE_H
#define PEN_SOURCE_H

#include <nettle/sha2.h>
#include <stdbool.h>
#include <stddef.h>

/* A value as written: 17, 1e-3, true, "loop", or a bare word that is none of these. */
struct pen_literal {
  const char *text;   /* as written, quotes included */
  const char *string; /* the content of a quoted string; null for a bare word */
};

/* One `NAME = VALUE` of the file, at any depth. */
struct pen_written {
  const char *group, *name; /* group: the enclosing group, "" at the top */
  size_t depth;             /* number of enclosing groups */
  size_t enclosing;         /* which group that is, by the order of their openings; 0: none */
  size_t file, line;
  const char *value; /* as written, on one line, truncated if long */
};

struct pen_source {
  /* The text for libconfig, without comments, with includes expanded. Every value is replaced by
   * its index in `literal`, because libconfig 1.5 wraps large integers, refuses [1, 2.5] and does
   * not keep a value as written. */
  char *text;
  size_t bytes;
  struct pen_literal *literal;
  size_t literal_count;
  struct pen_written *written;
  size_t written_count;
  /* Every file read, in order, the topology first; the origin of each line of `text`. */
  const char **file;
  size_t file_count;
  struct pen_line {
    size_t file, line;
  } * line;
  size_t line_count;
};

/* Reads a file and all its includes, and hashes their bytes. Ends the generator (66 a file cannot
 * be read, 78 not a topology). */
struct pen_source *pen_source_read(const char *path, struct sha256_ctx *hash);

/* `FILE:LINE: ` of a line of `text`, counted from 1. */
const char *pen_source_where(const struct pen_source *source, size_t line);

/* The last setting of that name within `depth` groups, or null. */
const struct pen_written *pen_source_find(const struct pen_source *source, size_t depth,
                                          const char *group, const char *name);

/* The same, but the one with so many before it, in the order of the file. */
const struct pen_written *pen_source_find_after(const struct pen_source *source, size_t depth,
                                                const char *group, const char *name, size_t before);

#endif
