/* read.c: reads all inputs: plain bytes, ids of 16 or 32 bits, and by lines.c JSON lines. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sysexits.h>

#include "tools/tokens/tokens.h"

enum { READ_BYTES = 1 << 20 };

/* ---- kinds of input ---- */

/* The first bytes of the input, which were read to see what it is: they are read again. */
static struct {
  char bytes[PEN_FILE_KIND_BYTES];
  size_t count, used;
} start;

/* Fewer bytes only at the end. */
static size_t fill_buffer(FILE *in, void *to, size_t bytes) {
  const size_t left = start.count - start.used, got = left < bytes ? left : bytes;
  memcpy(to, start.bytes + start.used, got);
  start.used += got;
  return got + fread((char *)to + got, 1, bytes - got, in);
}

static void read_bytes(FILE *in) {
  static char bytes[READ_BYTES];
  for (size_t count; (count = fill_buffer(in, bytes, sizeof bytes)) != 0;) {
    tokens_pass_text(bytes, count, 0);
  }
  tokens_end_input(true);
}

static uint32_t little_endian(const unsigned char *from, size_t width) {
  uint32_t low = (uint32_t)from[0] | (uint32_t)from[1] << 8;
  return width == 2 ? low : low | (uint32_t)from[2] << 16 | (uint32_t)from[3] << 24;
}

static uint32_t id_at(const char *path, const unsigned char *from, size_t width) {
  uint32_t id = little_endian(from, width);
  if (id > INT32_MAX) {
    tokens_fail(EX_DATAERR, "%s: id %" PRIu32 ": ids go up to %d", path, id, INT32_MAX);
  }
  return id;
}

static void read_ids(FILE *in, const char *path, size_t width) {
  static unsigned char bytes[READ_BYTES];
  static uint32_t tokens[READ_BYTES / 2];
  for (size_t count; (count = fill_buffer(in, bytes, sizeof bytes)) != 0;) {
    if (count % width) {
      tokens_fail(EX_DATAERR,
                  "%s: its size is not a multiple of %zu bytes, as ids of %zu bits need", path,
                  width, 8 * width);
    }
    for (size_t i = 0; i < count / width; i++) {
      tokens[i] = id_at(path, bytes + i * width, width);
    }
    tokens_pass(tokens, count / width);
  }
  tokens_end_input(false);
}

/* Documents of ids, each as its count in 32 bits, the ids, and a byte for each: 1 if it counts. */
static void read_masked(FILE *in, const char *path, size_t width) {
  unsigned char head[4], *body = NULL;
  uint32_t *tokens = NULL;
  size_t body_capacity = 0, token_capacity = 0, got;
  for (uint64_t number = 0; (got = fill_buffer(in, head, sizeof head)) != 0; number++) {
    uint32_t count = little_endian(head, sizeof head);
    size_t bytes = (size_t)count * (width + 1);
    bool whole = got == sizeof head && count <= INT32_MAX;
    for (size_t filled = 0; whole && filled < bytes;) { /* memory for what there is to read */
      size_t some = bytes - filled < READ_BYTES ? bytes - filled : READ_BYTES;
      body = tokens_grow_array(body, &body_capacity, filled + some, 1);
      whole = fill_buffer(in, body + filled, some) == some;
      filled += some;
    }
    if (!whole) {
      tokens_fail(EX_DATAERR, "%s: document %" PRIu64 " is cut short", path, number);
    }
    tokens = tokens_grow_array(tokens, &token_capacity, count, sizeof *tokens);
    for (size_t i = 0; i < count; i++) {
      unsigned char counts = body[count * width + i];
      if (counts > 1) {
        tokens_fail(EX_DATAERR, "%s: document %" PRIu64 ", id %zu: mask %u: 0 or 1", path, number,
                    i, counts);
      }
      tokens[i] = id_at(path, body + i * width, width) | (counts ? 0 : TOKENS_IGNORED);
    }
    tokens_pass(tokens, count);
    tokens_end_input(false);
  }
  free(body);
  free(tokens);
}

/* ---- all inputs ---- */

/* Bytes of an id of the input. */
static size_t id_width(const struct tokens_settings *settings) {
  return settings->input == TOKENS_INPUT_IDS16 ? 2 : 4;
}

static void check_start(enum pen_file_use use, FILE *in, const char *path) {
  start.count = start.used = 0;
  start.count = fill_buffer(in, start.bytes, sizeof start.bytes);
  tokens_check_kind(use, path, start.bytes, start.count);
}

static void read_one(const struct tokens_settings *settings, const char *path) {
  FILE *in = tokens_open(path);
  if (settings->field != NULL || settings->messages) {
    tokens_read_lines(settings, in, path);
  } else if (settings->masks) {
    check_start(PEN_FILE_IDS, in, path);
    read_masked(in, path, id_width(settings));
  } else if (settings->input == TOKENS_INPUT_BYTES) {
    check_start(PEN_FILE_TEXT, in, path);
    read_bytes(in);
  } else {
    check_start(PEN_FILE_IDS, in, path);
    read_ids(in, path, id_width(settings));
  }
  tokens_close(in);
}

static uint64_t known_bytes(const struct tokens_settings *settings) {
  uint64_t known = 0;
  for (int i = 0; i < settings->input_count; i++) {
    struct stat status;
    if (strcmp(settings->inputs[i], "-") == 0 || stat(settings->inputs[i], &status) != 0 ||
        !S_ISREG(status.st_mode)) {
      return 0;
    }
    known += (uint64_t)status.st_size;
  }
  return known;
}

uint64_t tokens_read(const struct tokens_settings *settings, struct tokens_sink *sink) {
  tokens_documents_begin(settings, sink);
  tokens_progress_begin(settings->quiet, known_bytes(settings));
  for (int i = 0; i < settings->input_count; i++) {
    read_one(settings, settings->inputs[i]);
  }
  sink->finish_file(sink);
  return tokens_progress_end();
}
