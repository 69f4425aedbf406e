/* file_kinds.h: files of other formats that people give in place of the right one, known by their
 * first bytes or their name, and what to do with each. */
#ifndef PEN_BASE_FILE_KINDS_H
#define PEN_BASE_FILE_KINDS_H

#include <stddef.h>

/* What a file was given as: a bit for each. */
enum pen_file_use {
  PEN_FILE_TEXT = 1,
  PEN_FILE_JSON_LINES = 2,
  PEN_FILE_IDS = 4,     /* numbers without a header */
  PEN_FILE_TOKENS = 8,  /* a token file, for --data */
  PEN_FILE_WEIGHTS = 16 /* a safetensors file */
};

enum { PEN_FILE_KIND_BYTES = 64 }; /* as many first bytes are looked at */

struct pen_file_kind {
  unsigned uses; /* that the file is not fit for */
  const char *name, *advice;
  const char *start;  /* bytes of the file, from offset `at` on; null: any */
  size_t start_bytes; /* of `start` */
  size_t at;
  const char *ending; /* of the path; null: any */
};

/* The kind of a file that begins with these bytes and is not fit for the use, or null. The message
 * is "PATH: NAME: ADVICE". */
const struct pen_file_kind *pen_file_kind_of(enum pen_file_use use, const char *path,
                                             const void *first, size_t bytes);

/* Bytes of the byte order mark of UTF-8 that a text begins with, 3 or 0: readers of text pass it
 * over. */
size_t pen_mark_bytes(const char *text, size_t bytes);

#endif
