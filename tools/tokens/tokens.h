/* tokens.h: the parts of penstock-tokens, which turns text and token ids into token files.
 *
 *   tokens.c  the command line, creating and renaming the output, the report
 *   read.c    inputs -> documents of tokens
 *   write.c   documents -> one stream in llm.c's format
 *   pack.c    documents -> windows of a packed file (runtime/data/packed_file.h)
 *   fail.c    errors
 *
 * read.c hands documents to a struct tokens_sink, which write.c or pack.c provides. Errors end the
 * program through tokens_fail(); at exit the unfinished output is removed.
 */
#ifndef PEN_TOKENS_H
#define PEN_TOKENS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How inputs are read. */
enum tokens_input { TOKENS_INPUT_NONE, TOKENS_INPUT_BYTES, TOKENS_INPUT_IDS16, TOKENS_INPUT_IDS32 };

struct tokens_settings {
  enum tokens_input input;
  const char *field; /* inputs are JSON lines, the bytes of this field the tokens; null: not JSON */
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

/* Receives the documents. The end-of-text token of a document is passed to take_tokens(). */
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

/* read.c: hands all inputs to the sink, and shows progress when standard error is a terminal.
 * Returns the bytes read. */
uint64_t tokens_read(const struct tokens_settings *settings, struct tokens_sink *sink);
/* CLOCK_MONOTONIC. */
double tokens_now_seconds(void);

/* write.c: a file in llm.c's format, 16 bits a token, or 32 when ids of 32 bits are read. */
struct tokens_sink *tokens_plain(const struct tokens_settings *settings, int descriptor,
                                 const char *path);
/* Writes through a buffer that tokens_flush() empties. Both fail with 74. */
void tokens_write(const struct tokens_sink *sink, const void *bytes, size_t count);
void tokens_flush(const struct tokens_sink *sink);
/* Bytes of a token in the output. */
uint32_t tokens_width(const struct tokens_settings *settings);

/* pack.c: a packed file. */
struct tokens_sink *tokens_packer(const struct tokens_settings *settings, int descriptor,
                                  const char *path);
/* After finish_file(): prints to standard error how full the windows are. */
void tokens_pack_report(const struct tokens_sink *sink);

#endif
