/* write.c: writes token files in llm.c's format: 256 little-endian int32 (magic number, version,
 * count of tokens, zeros), then the tokens: uint16 with magic 20240520 and version 1, uint32 with
 * magic 20240801 and version 7 (llm.c's format for Llama 3). With a mask the header's fourth number
 * is 1, the fifth the mask's CRC-32, and the mask follows the tokens. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sysexits.h>

#include "runtime/base/crc32.h"
#include "runtime/base/files.h"
#include "runtime/data/target_mask.h"
#include "tools/tokens/tokens.h"

enum { HEADER_INTS = 256, BUFFER_TOKENS = 1 << 16 };

static struct {
  struct tokens_sink sink;
  uint32_t width;
  struct tokens_mask mask;
} plain;

uint32_t tokens_width(const struct tokens_settings *settings) {
  return settings->input == TOKENS_INPUT_IDS32 ? 4 : 2;
}

/* Bytes not written yet: documents are short. */
static unsigned char buffer[1 << 16];
static size_t buffered_bytes;

static void write_now(const struct tokens_sink *sink, const void *bytes, size_t count) {
  if (pen_file_write(sink->descriptor, bytes, count)) {
    tokens_fail(EX_IOERR, "%s: cannot write: %s", sink->path, strerror(errno));
  }
}

void tokens_flush(const struct tokens_sink *sink) {
  write_now(sink, buffer, buffered_bytes);
  buffered_bytes = 0;
}

void tokens_write(const struct tokens_sink *sink, const void *bytes, size_t count) {
  if (count > sizeof buffer - buffered_bytes) {
    tokens_flush(sink);
  }
  if (count > sizeof buffer) {
    write_now(sink, bytes, count);
    return;
  }
  memcpy(buffer + buffered_bytes, bytes, count);
  buffered_bytes += count;
}

uint32_t tokens_write_mask(const struct tokens_sink *sink, const struct tokens_mask *mask,
                           uint32_t crc) {
  const size_t bytes = pen_target_mask_bytes(mask->token_count);
  if (bytes == 0) {
    return crc;
  }
  tokens_write(sink, mask->bits, bytes);
  return pen_crc32(crc, mask->bits, bytes);
}

/* Writes at most BUFFER_TOKENS tokens of 16 bits. */
static void write16(const struct tokens_sink *sink, const uint32_t *tokens, size_t count) {
  static uint16_t narrow[BUFFER_TOKENS];
  for (size_t i = 0; i < count; i++) {
    narrow[i] = (uint16_t)tokens[i];
  }
  tokens_write(sink, narrow, count * sizeof *narrow);
}

static void write32(const struct tokens_sink *sink, const uint32_t *tokens, size_t count) {
  static uint32_t unmarked[BUFFER_TOKENS];
  for (size_t i = 0; i < count; i++) {
    unmarked[i] = tokens[i] & ~TOKENS_IGNORED;
  }
  tokens_write(sink, unmarked, count * sizeof *unmarked);
}

static void take_plain(struct tokens_sink *sink, const uint32_t *tokens, size_t count) {
  sink->token_count += count;
  if (sink->token_count > INT32_MAX) {
    tokens_fail(EX_DATAERR,
                "%s: more than %d tokens in all, which is what the format can count; --pack has no "
                "such bound",
                sink->path, INT32_MAX);
  }
  tokens_mask_add(&plain.mask, tokens, count);
  while (count > 0) {
    size_t some = count < BUFFER_TOKENS ? count : BUFFER_TOKENS;
    (plain.width == 2 ? write16 : write32)(sink, tokens, some);
    tokens += some;
    count -= some;
  }
}

static void end_plain(struct tokens_sink *sink) { sink->document_count++; }

/* The header is written last: it has the count. */
static void finish_plain(struct tokens_sink *sink) {
  uint32_t mask_crc = tokens_write_mask(sink, &plain.mask, 0);
  tokens_flush(sink);
  int32_t header[HEADER_INTS] = {plain.width == 2 ? 20240520 : 20240801, plain.width == 2 ? 1 : 7,
                                 (int32_t)sink->token_count, plain.mask.exists, (int32_t)mask_crc};
  if (pen_file_write_at(sink->descriptor, header, sizeof header, 0)) {
    tokens_fail(EX_IOERR, "%s: cannot write: %s", sink->path, strerror(errno));
  }
}

struct tokens_sink *tokens_plain(const struct tokens_settings *settings, int descriptor,
                                 const char *path) {
  static const int32_t zeros[HEADER_INTS];
  plain.sink = (struct tokens_sink){.take_tokens = take_plain,
                                    .end_document = end_plain,
                                    .finish_file = finish_plain,
                                    .descriptor = descriptor,
                                    .path = path};
  plain.width = tokens_width(settings);
  plain.mask.exists = settings->has_mask;
  tokens_write(&plain.sink, zeros, sizeof zeros);
  return &plain.sink;
}

void tokens_plain_report(const struct tokens_sink *sink) {
  if (plain.mask.exists) {
    tokens_say("%" PRIu64 " documents, %" PRIu64 " of %" PRIu64 " tokens are targets that count",
               sink->document_count, plain.mask.target_count, sink->token_count);
  }
}
