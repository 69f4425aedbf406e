/* input_file.h: opens what a program reads: a regular file, which no read waits for, of a bounded
 * size. */
#ifndef PEN_BASE_INPUT_FILE_H
#define PEN_BASE_INPUT_FILE_H

#include <stddef.h>
#include <stdint.h>

enum pen_input_kind {
  PEN_INPUT_DATA,    /* token files, weights: of any size */
  PEN_INPUT_JSON,    /* config.json, an index: at most 16 MiB */
  PEN_INPUT_TABLE,   /* CSV, costs: at most 64 MiB */
  PEN_INPUT_ACTIONS, /* each action of a step: at most 256 MiB */
  PEN_INPUT_PROMPTS, /* at most 1 GiB; also a pipe, whose open waits for its writer */
  PEN_INPUT_SECRET   /* at most 4 KiB; also a pipe, which a read may find empty (EAGAIN) */
};

struct pen_input_error {
  int status;     /* of sysexits(3): EX_NOINPUT, EX_DATAERR, or EX_OSERR without memory */
  char text[120]; /* what to say after the path */
};

/* Returns a descriptor, and sets the bytes of a regular file, or 0 of a pipe. -1, with *error. */
int pen_input_open(const char *path, enum pen_input_kind kind, uint64_t *bytes,
                   struct pen_input_error *error);

/* Reads the whole file; a 0 follows its bytes. The caller frees it. Null, with *error. */
char *pen_input_read(const char *path, enum pen_input_kind kind, size_t *bytes,
                     struct pen_input_error *error);

#endif
