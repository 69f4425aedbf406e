/* npy_file.c: reads the header of a NumPy array of token ids (see npy_file.h). */
#include "runtime/data/npy_file.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/message.h"
#include "runtime/base/check.h"

#define MAGIC "\x93NUMPY"
enum { VERSION_AT = 6, LENGTH_AT = 8, HEADER_BYTES_MAX = 4096, VALUE_BYTES = 64 };

bool pen_npy_begins(const unsigned char *file) {
  return memcmp(file, MAGIC, sizeof MAGIC - 1) == 0;
}

/* The length has two bytes in version 1, four in versions 2 and 3. Sets where the numbers begin. */
static void copy_header(char header[HEADER_BYTES_MAX + 1], uint64_t *numbers_at, const char *path,
                        const unsigned char *file, uint64_t file_bytes) {
  const uint64_t length_bytes = file[VERSION_AT] == 1 ? 2 : 4, header_at = LENGTH_AT + length_bytes;
  uint64_t length = 0;
  if (file[VERSION_AT] < 1 || file[VERSION_AT] > 3) {
    pen_fail(PEN_EXIT_DATA, "%s: a NumPy array of format version %u; versions 1 to 3 are known",
             path, file[VERSION_AT]);
  }
  for (uint64_t b = 0; b < length_bytes && header_at <= file_bytes; b++) {
    length |= (uint64_t)file[LENGTH_AT + b] << 8 * b;
  }
  if (header_at > file_bytes || length > file_bytes - header_at || length > HEADER_BYTES_MAX) {
    pen_fail(PEN_EXIT_DATA, "%s: a NumPy array whose header is cut short, or longer than %d bytes",
             path, HEADER_BYTES_MAX);
  }
  memcpy(header, file + header_at, length);
  header[length] = '\0';
  *numbers_at = header_at + length;
}

/* Copies the value of a key up to the first of `ends`; "none" without the key. */
static void copy_value(char value[VALUE_BYTES], const char *header, const char *key,
                       const char *ends) {
  const char *at = strstr(header, key);
  at = at == NULL ? "none" : at + strlen(key);
  at += strspn(at, " ");
  snprintf(value, VALUE_BYTES, "%.*s", (int)strcspn(at, ends), at);
}

struct pen_npy pen_npy_read(const char *path, const unsigned char *file, uint64_t file_bytes) {
  char header[HEADER_BYTES_MAX + 1], type[VALUE_BYTES], shape[VALUE_BYTES], shown[PEN_SHOWN_BYTES],
      end = '\0';
  uint64_t numbers_at, count;
  copy_header(header, &numbers_at, path, file, file_bytes);
  copy_value(type, header, "'descr':", ",}");
  copy_value(shape, header, "'shape':", ")}");
  const uint32_t number_bytes = strcmp(type, "'<u2'") == 0 ? 2 : strcmp(type, "'<u4'") == 0 ? 4 : 0;
  if (number_bytes == 0) {
    pen_fail(PEN_EXIT_DATA,
             "%s: a NumPy array of type %s: token ids are of type '<u2' or '<u4'; save it with "
             "Python, numpy.save(FILE, ids.astype(\"<u4\"))",
             path, pen_shown(shown, type));
  }
  if (sscanf(shape, "(%20" SCNu64 "%c%c", &count, &end, &end) != 2 || end != ',') {
    pen_fail(
        PEN_EXIT_DATA,
        "%s: a NumPy array whose shape is not (N,): token ids have one dimension; save it with "
        "Python, numpy.save(FILE, ids.reshape(-1))",
        path);
  }
  const uint64_t left = file_bytes - numbers_at;
  if (count != left / number_bytes || left % number_bytes != 0) {
    pen_fail(PEN_EXIT_DATA,
             "%s: %" PRIu64 " bytes: its header counts %" PRIu64
             " numbers of %u bytes, and %" PRIu64 " bytes follow",
             path, file_bytes, count, number_bytes, left);
  }
  return (struct pen_npy){file + numbers_at, count, number_bytes};
}
