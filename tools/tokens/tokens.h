/* tokens.h: the parts of penstock-tokens, which turns text and token ids into token files.
 *
 *   tokens.c     the command line, creating and renaming the output, the report
 *   source.c     opens and decompresses inputs
 *   read.c       inputs -> tokens
 *   lines.c      JSON lines -> tokens
 *   documents.c  tokens -> documents
 *   write.c      documents -> one stream in llm.c's format
 *   pack.c       documents -> windows of a packed file (runtime/data/packed_file.h)
 *   mask.c       documents -> the mask of targets that count
 *   progress.c   how much was read
 *   fail.c       errors
 *
 * documents.c hands documents to a struct tokens_sink, which write.c or pack.c provides. Errors end
 * the program through tokens_fail(); at exit the unfinished output is removed.
 */
#ifndef PEN_TOKENS_H
#define PEN_TOKENS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/file_kinds.h"

/* How inputs are read. */
enum tokens_input { TOKENS_INPUT_NONE, TOKENS_INPUT_BYTES, TOKENS_INPUT_IDS16, TOKENS_INPUT_IDS32 };

/* A token with this bit is not a target that counts: ids go up to INT32_MAX. */
#define TOKENS_IGNORED (UINT32_C(1) << 31)

struct tokens_settings {
  enum tokens_input input;
  /* Inputs are JSON lines, the bytes of this field the tokens; null: they are not, or chats. */
  const char *field;
  const char *prompt_field; /* the bytes of this field come first, and do not count; null: none */
  bool messages;            /* inputs are JSON lines of chats */
  bool masks;               /* inputs are documents of ids with masks */
  bool has_mask;            /* the output has one; end-of-text tokens do not end its documents */
  bool has_end_of_text;
  uint32_t end_of_text;
  uint32_t window; /* tokens of a packed window; 0: no packing */
  uint32_t pad_to;
  bool single; /* one document a window */
  bool quiet;
  const char *output;
  char **inputs;
  int input_count;
};

/* Receives the documents. With a mask, tokens that do not count have the bit TOKENS_IGNORED. The
 * end-of-text token of a document is passed to take_tokens(). */
struct tokens_sink {
  /* The next tokens of the current document. */
  void (*take_tokens)(struct tokens_sink *sink, const uint32_t *tokens, size_t count);
  void (*end_document)(struct tokens_sink *sink); /* the document may be empty */
  void (*finish_file)(struct tokens_sink *sink);  /* after the last document */
  int descriptor;
  const char *path;        /* of the output, for messages */
  uint64_t token_count;    /* received */
  uint64_t document_count; /* ended and not empty */
};

/* Prints the message and exits with the status. */
_Noreturn void tokens_fail(int status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

void tokens_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Fails (65) with what to do if a file of another format begins so. */
void tokens_check_kind(enum pen_file_use use, const char *path, const void *first, size_t bytes);

/* progress.c: shows on a terminal how much was read, unless quiet; `known_bytes`: of all inputs, 0:
 * unknown. */
void tokens_progress_begin(bool quiet, uint64_t known_bytes);
void tokens_count_read(size_t bytes);
uint64_t tokens_progress_end(void); /* returns the bytes read */
/* CLOCK_MONOTONIC. */
double tokens_now_seconds(void);

/* documents.c: hands tokens to a sink, divided into documents. */
void tokens_documents_begin(const struct tokens_settings *settings, struct tokens_sink *sink);
/* The next tokens. Without a mask an end-of-text token ends a document. */
void tokens_pass(const uint32_t *tokens, size_t count);
/* The next tokens, one for each byte; `ignored` is 0 or TOKENS_IGNORED. */
void tokens_pass_text(const char *text, size_t bytes, uint32_t ignored);
/* The end of a file or line ends its document, unless the document has ended. An empty file or line
 * is a document too, so that documents are numbered like files or lines. Without a mask, text that
 * does not end with the end-of-text token receives it. */
void tokens_end_input(bool is_text);

/* source.c: opens an input, `-` for standard input, and reads what it is without its compression.
 * One is open at a time. Fails, also when it is read, with 66 where it cannot be read, with 65
 * where its compressed bytes are damaged. */
FILE *tokens_open(const char *path);
void tokens_close(FILE *stream);

/* lines.c: reads JSON lines. */
void tokens_read_lines(const struct tokens_settings *settings, FILE *in, const char *path);

/* read.c: hands all inputs to the sink, and shows progress when standard error is a terminal.
 * Returns the bytes read. */
uint64_t tokens_read(const struct tokens_settings *settings, struct tokens_sink *sink);

/* mask.c: the file's mask (runtime/data/target_mask.h), in memory until all tokens are written. */
struct tokens_mask {
  bool exists; /* else nothing is added or written */
  unsigned char *bits;
  uint64_t token_count, target_count;
  size_t capacity; /* bytes */
};
/* Adds `count` tokens; those with the bit TOKENS_IGNORED do not count. */
void tokens_mask_add(struct tokens_mask *mask, const uint32_t *tokens, size_t count);
/* Makes room in an array for `count` elements; doubles the capacity. */
void *tokens_grow_array(void *array, size_t *capacity, size_t count, size_t bytes);

/* write.c: a file in llm.c's format, 16 bits a token, or 32 when ids of 32 bits are read. */
struct tokens_sink *tokens_plain(const struct tokens_settings *settings, int descriptor,
                                 const char *path);
/* After finish_file(): prints to standard error how many targets count, in a file with a mask. */
void tokens_plain_report(const struct tokens_sink *sink);
/* Writes through a buffer that tokens_flush() empties. Both fail with 74. */
void tokens_write(const struct tokens_sink *sink, const void *bytes, size_t count);
void tokens_flush(const struct tokens_sink *sink);
/* Writes the mask. Returns the CRC-32 of it and what precedes it, whose CRC-32 is `crc`. */
uint32_t tokens_write_mask(const struct tokens_sink *sink, const struct tokens_mask *mask,
                           uint32_t crc);
/* Bytes of a token in the output. */
uint32_t tokens_width(const struct tokens_settings *settings);

/* pack.c: a packed file. */
struct tokens_sink *tokens_packer(const struct tokens_settings *settings, int descriptor,
                                  const char *path);
/* After finish_file(): prints to standard error how full the windows are. */
void tokens_pack_report(const struct tokens_sink *sink);

#endif
