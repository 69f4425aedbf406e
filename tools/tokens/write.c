/* tokens_write.c: token files in llm.c's format: 256 little-endian int32 (a magic number, a
 * version, the count of tokens, then zeros), then the tokens: uint16 after 20240520 and 1, uint32
 * after 20240801 and 7, as llm.c's Llama 3 has them. */
#include <errno.h>
#include <string.h>
#include <sysexits.h>

#include "runtime/base/files.h"
#include "tools/tokens/tokens.h"

enum { HEADER_INTS = 256, BUFFER_TOKENS = 1 << 16 };

static struct {
  struct tokens_sink sink;
  uint32_t width;
} plain;

uint32_t tokens_width(const struct tokens_settings *settings) {
  return settings->input == TOKENS_INPUT_IDS32 ? 4 : 2;
}

/* What is not written yet: documents are short. */
static unsigned char waiting[1 << 16];
static size_t waiting_bytes;

static void write_now(const struct tokens_sink *sink, const void *bytes, size_t count) {
  if (pen_file_write(sink->descriptor, bytes, count)) {
    tokens_fail(EX_IOERR, "%s: cannot write: %s", sink->path, strerror(errno));
  }
}

void tokens_flush(const struct tokens_sink *sink) {
  write_now(sink, waiting, waiting_bytes);
  waiting_bytes = 0;
}

void tokens_write(const struct tokens_sink *sink, const void *bytes, size_t count) {
  if (count > sizeof waiting - waiting_bytes) {
    tokens_flush(sink);
  }
  if (count > sizeof waiting) {
    write_now(sink, bytes, count);
    return;
  }
  memcpy(waiting + waiting_bytes, bytes, count);
  waiting_bytes += count;
}

static void take(struct tokens_sink *sink, const uint32_t *tokens, size_t count) {
  static uint16_t narrow[BUFFER_TOKENS];
  sink->token_count += count;
  if (sink->token_count > INT32_MAX) {
    tokens_fail(EX_DATAERR,
                "%s: more than %d tokens in all, which is what the format can count; --pack has no "
                "such bound",
                sink->path, INT32_MAX);
  }
  if (plain.width == sizeof *tokens) {
    tokens_write(sink, tokens, count * sizeof *tokens);
    return;
  }
  while (count > 0) {
    size_t some = count < BUFFER_TOKENS ? count : BUFFER_TOKENS;
    for (size_t i = 0; i < some; i++) {
      narrow[i] = (uint16_t)tokens[i];
    }
    tokens_write(sink, narrow, some * sizeof *narrow);
    tokens += some;
    count -= some;
  }
}

static void end(struct tokens_sink *sink) { sink->document_count++; }

/* The header comes last, since it holds the count. */
static void finish(struct tokens_sink *sink) {
  tokens_flush(sink);
  int32_t header[HEADER_INTS] = {plain.width == 2 ? 20240520 : 20240801, plain.width == 2 ? 1 : 7,
                                 (int32_t)sink->token_count};
  if (pen_file_write_at(sink->descriptor, header, sizeof header, 0)) {
    tokens_fail(EX_IOERR, "%s: cannot write: %s", sink->path, strerror(errno));
  }
}

struct tokens_sink *tokens_plain(const struct tokens_settings *settings, int descriptor,
                                 const char *path) {
  static const int32_t nothing[HEADER_INTS];
  plain.sink = (struct tokens_sink){
      .take = take, .end = end, .finish = finish, .descriptor = descriptor, .path = path};
  plain.width = tokens_width(settings);
  tokens_write(&plain.sink, nothing, sizeof nothing);
  return &plain.sink;
}
