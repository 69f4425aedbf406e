/* tokens.h: the parts of penstock-tokens:
 *
 *   tokens.c        the command line, the output's coming and going, the report
 *   tokens_read.c   inputs become documents of tokens
 *   tokens_write.c  documents become one stream: llm.c's files
 *   tokens_pack.c   documents become windows: packed files (runtime/data/packed_file.h)
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
  const char
      *field; /* inputs are JSON lines, and this field's bytes are the tokens; null: they are not */
  bool has_end_of_text;
  uint32_t end_of_text;
  uint32_t window; /* tokens of a packed window; 0: no packing */
  uint32_t pad_to;
  bool single; /* a window a document */
  bool quiet;
  const char *output;
  char **inputs;
  int input_count;
};

/* Whoever takes the documents. What a document ends with, if anything, has been taken already. */
struct tokens_sink {
  void (*take)(struct tokens_sink *sink, const uint32_t *tokens,
               size_t count);               /* the next tokens of the document at hand */
  void (*end)(struct tokens_sink *sink);    /* it ends here; it may be empty */
  void (*finish)(struct tokens_sink *sink); /* there are no more: completes the file */
  int descriptor;
  const char *path;        /* of the output, for messages */
  uint64_t token_count;    /* taken */
  uint64_t document_count; /* ended, but for the empty */
};

/* tokens.c: says what is wrong, removes what is unfinished, and exits. */
_Noreturn void tokens_fail(int status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* tokens_read.c: hands all inputs to the sink, and shows how far it is when standard error is a
 * terminal. Returns the bytes read. */
uint64_t tokens_read(const struct tokens_settings *settings, struct tokens_sink *sink);
/* On a clock that only goes on. */
double tokens_now_seconds(void);

/* tokens_write.c: a file in llm.c's format: of 16 bits a token, or of 32 when ids of 32 bits are
 * read. */
struct tokens_sink *tokens_plain(const struct tokens_settings *settings, int descriptor,
                                 const char *path);
/* Writes, by way of a buffer that tokens_flush() empties; both fail (74). */
void tokens_write(const struct tokens_sink *sink, const void *bytes, size_t count);
void tokens_flush(const struct tokens_sink *sink);
/* Bytes of a token in the output. */
uint32_t tokens_width(const struct tokens_settings *settings);

/* tokens_pack.c: a packed file. */
struct tokens_sink *tokens_packer(const struct tokens_settings *settings, int descriptor,
                                  const char *path);
/* After finish: how full the windows are, on standard error. */
void tokens_pack_report(const struct tokens_sink *sink);

#endif
