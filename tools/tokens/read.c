/* read.c: reads documents from plain bytes, ids of 16 or 32 bits, or a field of JSON lines.
 *
 * A document ends with its end-of-text token, or with its file (or line). The end-of-text token is
 * added to text that does not end with it; ids are not changed. */
#define _GNU_SOURCE 1
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <time.h>
#include <unistd.h>

#include <jansson.h>

#include "tools/tokens/tokens.h"

enum { READ_BYTES = 1 << 20, BAR_CELLS = 30 };
static const double show_seconds = 0.1;

/* State of the reading of all inputs. */
static struct {
  const struct tokens_settings *settings;
  struct tokens_sink *sink;
  bool inside; /* a document has begun */
  bool empty;  /* no token of the current file or line was read */
  bool shows_progress;
  uint64_t read_bytes, known_bytes; /* of all inputs; known 0: unknown */
  double start_seconds, shown_seconds;
} reading;

/* ---- progress ---- */

double tokens_now_seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void show_progress(double now) {
  double seconds = now - reading.start_seconds;
  char bar[BAR_CELLS + 1];
  double share = reading.known_bytes ? (double)reading.read_bytes / (double)reading.known_bytes : 0;
  int cells = share < 1 ? (int)(share * BAR_CELLS) : BAR_CELLS;
  memset(bar, '.', BAR_CELLS);
  memset(bar, '#', (size_t)cells);
  bar[BAR_CELLS] = 0;
  fprintf(stderr, "\r\033[K");
  if (reading.known_bytes) {
    fprintf(stderr, "[%s] %3.0f%%  ", bar, 100 * (share < 1 ? share : 1));
  }
  fprintf(stderr, "%.1f MB  %.1f MB/s", (double)reading.read_bytes * 1e-6,
          seconds > 0 ? (double)reading.read_bytes * 1e-6 / seconds : 0);
  if (reading.known_bytes && share > 0) {
    fprintf(stderr, "  %.0f s left", seconds / share * (1 - (share < 1 ? share : 1)));
  }
}

static void count_bytes(size_t bytes) {
  reading.read_bytes += bytes;
  double now = reading.shows_progress ? tokens_now_seconds() : 0;
  if (reading.shows_progress && now - reading.shown_seconds >= show_seconds) {
    reading.shown_seconds = now;
    show_progress(now);
  }
}

/* ---- documents ---- */

/* Passes tokens to the sink, divided after each end-of-text token. */
static void pass_tokens(const uint32_t *tokens, size_t count) {
  const struct tokens_settings *settings = reading.settings;
  while (count > 0) {
    size_t length = count;
    bool ends = false;
    for (size_t i = 0; settings->has_end_of_text && i < count && !ends; i++) {
      ends = tokens[i] == settings->end_of_text;
      length = ends ? i + 1 : count;
    }
    reading.sink->take_tokens(reading.sink, tokens, length);
    reading.inside = !ends;
    reading.empty = false;
    if (ends) {
      reading.sink->end_document(reading.sink);
    }
    tokens += length;
    count -= length;
  }
}

/* The end of a file or line ends its document, unless the document has ended. An empty file or line
 * is a document too, so that documents are numbered like files or lines. */
static void end_input(bool is_text) {
  bool ended = !reading.inside && !reading.empty;
  bool adds = is_text && reading.inside;
  reading.empty = true;
  if (ended) {
    return;
  }
  if (adds && reading.settings->has_end_of_text) {
    reading.sink->take_tokens(reading.sink, &reading.settings->end_of_text, 1);
  }
  reading.sink->end_document(reading.sink);
  reading.inside = false;
}

static void pass_bytes(const unsigned char *bytes, size_t count) {
  static uint32_t tokens[1 << 16];
  while (count > 0) {
    size_t some = count < sizeof tokens / sizeof *tokens ? count : sizeof tokens / sizeof *tokens;
    for (size_t i = 0; i < some; i++) {
      tokens[i] = bytes[i];
    }
    pass_tokens(tokens, some);
    bytes += some;
    count -= some;
  }
}

/* ---- kinds of input ---- */

/* Fills the buffer despite signals and short reads of pipes; fewer bytes only at the end. */
static size_t fill_buffer(int in, const char *path, unsigned char *to, size_t bytes) {
  size_t got = 0;
  for (ssize_t count; got < bytes; got += (size_t)count) {
    count = read(in, to + got, bytes - got);
    if (count < 0 && errno == EINTR) {
      count = 0;
    } else if (count < 0) {
      tokens_fail(EX_NOINPUT, "%s: cannot read: %s", path, strerror(errno));
    } else if (count == 0) {
      break;
    }
  }
  return got;
}

static void read_bytes(int in, const char *path) {
  static unsigned char bytes[READ_BYTES];
  for (size_t count; (count = fill_buffer(in, path, bytes, sizeof bytes)) != 0;) {
    pass_bytes(bytes, count);
    count_bytes(count);
  }
  end_input(true);
}

static void read_ids(int in, const char *path) {
  static unsigned char bytes[READ_BYTES];
  static uint32_t tokens[READ_BYTES / 2];
  size_t width = reading.settings->input == TOKENS_INPUT_IDS16 ? 2 : 4;
  for (size_t count; (count = fill_buffer(in, path, bytes, sizeof bytes)) != 0;) {
    if (count % width) {
      tokens_fail(EX_DATAERR,
                  "%s: its size is not a multiple of %zu bytes, as ids of %zu bits need", path,
                  width, 8 * width);
    }
    for (size_t i = 0; i < count / width; i++) {
      const unsigned char *from = bytes + i * width;
      tokens[i] = (uint32_t)from[0] | (uint32_t)from[1] << 8;
      tokens[i] |= width == 4 ? (uint32_t)from[2] << 16 | (uint32_t)from[3] << 24 : 0;
      if (tokens[i] > INT32_MAX) {
        tokens_fail(EX_DATAERR, "%s: id %" PRIu32 ": ids go up to %d", path, tokens[i], INT32_MAX);
      }
    }
    pass_tokens(tokens, count / width);
    count_bytes(count);
  }
  end_input(false);
}

static bool is_blank(const char *text, size_t bytes) {
  while (bytes > 0 && strchr(" \t\r\n", text[bytes - 1]) != NULL && text[bytes - 1] != 0) {
    bytes--;
  }
  return bytes == 0;
}

static void read_line(const char *path, uint64_t number, const char *line, size_t bytes) {
  const char *field = reading.settings->field;
  json_error_t error;
  json_t *object = json_loadb(line, bytes, JSON_ALLOW_NUL, &error);
  if (object == NULL) {
    tokens_fail(EX_DATAERR, "%s:%" PRIu64 ": not JSON: %s", path, number, error.text);
  }
  const json_t *text = json_object_get(object, field);
  if (!json_is_string(text)) {
    tokens_fail(EX_DATAERR, "%s:%" PRIu64 ": %s \"%s\" %s", path, number,
                text == NULL ? "no field" : "the field", field,
                text == NULL ? "in an object on this line" : "is not a string");
  }
  pass_bytes((const unsigned char *)json_string_value(text), json_string_length(text));
  end_input(true);
  json_decref(object);
}

static void read_lines(int in, const char *path) {
  FILE *file = fdopen(dup(in), "r");
  char *line = NULL;
  size_t capacity = 0;
  uint64_t number = 0;
  errno = 0;
  for (ssize_t bytes; file != NULL && (bytes = getline(&line, &capacity, file)) >= 0;) {
    number++;
    if (!is_blank(line, (size_t)bytes)) {
      read_line(path, number, line, (size_t)bytes);
    }
    count_bytes((size_t)bytes);
  }
  if (file == NULL || ferror(file)) {
    tokens_fail(EX_NOINPUT, "%s: cannot read: %s", path, strerror(errno));
  }
  free(line);
  fclose(file);
}

/* ---- all inputs ---- */

static void read_one(const char *path) {
  bool standard = strcmp(path, "-") == 0;
  int in = standard ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
  if (in < 0) {
    tokens_fail(EX_NOINPUT, "%s: %s", path, strerror(errno));
  }
  if (reading.settings->field != NULL) {
    read_lines(in, path);
  } else if (reading.settings->input == TOKENS_INPUT_BYTES) {
    read_bytes(in, path);
  } else {
    read_ids(in, path);
  }
  if (!standard) {
    close(in);
  }
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
  reading.settings = settings;
  reading.sink = sink;
  reading.empty = true;
  reading.shows_progress = !settings->quiet && isatty(STDERR_FILENO);
  reading.known_bytes = known_bytes(settings);
  reading.start_seconds = tokens_now_seconds();
  for (int i = 0; i < settings->input_count; i++) {
    read_one(settings->inputs[i]);
  }
  sink->finish_file(sink);
  if (reading.shows_progress) {
    fprintf(stderr, "\r\033[K");
  }
  return reading.read_bytes;
}
