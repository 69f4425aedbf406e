/* safetensors.c: reads tensor files that may be damaged or hostile, and starts our own. */
#define _GNU_SOURCE 1
#include "runtime/storage/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <nettle/sha2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/check.h"
#include "runtime/base/crc32.h"
#include "runtime/base/files.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "tensors are written as they lie in memory: a little-endian machine is needed"
#endif

enum { READ_BYTES = 1 << 16, SAMPLE_BYTES = 4096 };

struct pen_safetensors {
  const char *path; /* the caller's */
  int fd;
  uint64_t data_offset, file_bytes;
  struct pen_stored *tensors; /* by name */
  size_t count;
};

/* ---- dtypes ---- */

static void widen_f32(float *out, const unsigned char *in, size_t count) {
  memcpy(out, in, 4 * count);
}

static void widen_bf16(float *out, const unsigned char *in, size_t count) {
  for (size_t i = 0; i < count; i++) {
    uint32_t bits = (uint32_t)in[2 * i] << 16 | (uint32_t)in[2 * i + 1] << 24;
    memcpy(out + i, &bits, 4);
  }
}

/* IEEE 754 binary16: 1 sign, 5 exponent, 10 fraction bits. Every value is exact in f32. */
static void widen_f16(float *out, const unsigned char *in, size_t count) {
  for (size_t i = 0; i < count; i++) {
    unsigned half = in[2 * i] | (unsigned)in[2 * i + 1] << 8;
    int exponent = half >> 10 & 31;
    float fraction = (float)(half & 1023), value;
    if (exponent == 31) {
      value = fraction == 0 ? INFINITY : NAN;
    } else if (exponent == 0) {
      value = fraction * 0x1p-24f;
    } else {
      value = ldexpf(fraction + 1024, exponent - 25);
    }
    out[i] = half >> 15 ? -value : value;
  }
}

static const struct format {
  const char *name;
  unsigned bytes;
  void (*widen)(float *out, const unsigned char *in, size_t count);
} formats[] = {
    {"F32", 4, widen_f32},
    {"BF16", 2, widen_bf16},
    {"F16", 2, widen_f16},
    /* What a file may hold beside weights, but no weight may be of. */
    {"BOOL", 1, NULL},
    {"U8", 1, NULL},
    {"I8", 1, NULL},
    {"U16", 2, NULL},
    {"I16", 2, NULL},
    {"U32", 4, NULL},
    {"I32", 4, NULL},
    {"U64", 8, NULL},
    {"I64", 8, NULL},
    {"F64", 8, NULL},
    {"F8_E4M3", 1, NULL},
    {"F8_E5M2", 1, NULL},
};
enum { FORMATS = sizeof formats / sizeof *formats };

/* ---- the header ---- */

static _Noreturn void bad_tensor(const struct pen_safetensors *file, const char *name,
                                 const char *reason) {
  char text[PEN_SHOWN_BYTES];
  pen_fail(PEN_EXIT_DATA, "%s: tensor %s: %s", file->path, pen_shown(text, name), reason);
}

/* Reads a JSON integer that is not negative into *out. */
static int natural(const json_t *value, uint64_t *out) {
  if (!json_is_integer(value) || json_integer_value(value) < 0) {
    return -1;
  }
  *out = (uint64_t)json_integer_value(value);
  return 0;
}

static void parse_shape(const struct pen_safetensors *file, struct pen_stored *tensor,
                        const json_t *shape) {
  if (!json_is_array(shape)) {
    bad_tensor(file, tensor->name, "shape is no list");
  }
  if (json_array_size(shape) > PEN_SAFETENSORS_DIMS_MAX) {
    bad_tensor(file, tensor->name, "more than 8 dimensions");
  }
  tensor->dim_count = (uint32_t)json_array_size(shape);
  tensor->count = 1;
  for (uint32_t i = 0; i < tensor->dim_count; i++) {
    if (natural(json_array_get(shape, i), &tensor->dim[i])) {
      bad_tensor(file, tensor->name, "a dimension is no whole number of 0 or more");
    }
    if (__builtin_mul_overflow(tensor->count, tensor->dim[i], &tensor->count)) {
      bad_tensor(file, tensor->name, "its shape overflows");
    }
  }
}

static void parse_offsets(const struct pen_safetensors *file, struct pen_stored *tensor,
                          const json_t *offsets) {
  uint64_t begin, end, bytes, data_bytes = file->file_bytes - file->data_offset;
  if (json_array_size(offsets) != 2 || natural(json_array_get(offsets, 0), &begin) ||
      natural(json_array_get(offsets, 1), &end) || begin > end) {
    bad_tensor(file, tensor->name, "data_offsets are no [begin, end]");
  }
  if (__builtin_mul_overflow(tensor->count, (uint64_t)formats[tensor->format].bytes, &bytes) ||
      bytes != end - begin) {
    char text[PEN_SHOWN_BYTES];
    pen_fail(PEN_EXIT_DATA, "%s: tensor %s: %llu bytes for %llu elements of %s", file->path,
             pen_shown(text, tensor->name), (unsigned long long)(end - begin),
             (unsigned long long)tensor->count, formats[tensor->format].name);
  }
  if (end > data_bytes) {
    bad_tensor(file, tensor->name, "reaches past the end of the file: is the file truncated?");
  }
  tensor->offset = file->data_offset + begin;
  tensor->past_end = file->data_offset + end;
}

static void parse_tensor(const struct pen_safetensors *file, struct pen_stored *tensor,
                         const char *name, const json_t *value) {
  char reason[PEN_SHOWN_BYTES], text[PEN_SHOWN_BYTES];
  tensor->name = strdup(name);
  if (tensor->name == NULL) {
    pen_fail(PEN_EXIT_SYSTEM, "%s: out of memory", file->path);
  }
  if (!json_is_object(value)) {
    bad_tensor(file, name, "its entry is no object");
  }
  const char *dtype = json_string_value(json_object_get(value, "dtype"));
  if (dtype == NULL) {
    bad_tensor(file, name, "no dtype");
  }
  for (tensor->format = 0; tensor->format < FORMATS; tensor->format++) {
    if (strcmp(dtype, formats[tensor->format].name) == 0) {
      break;
    }
  }
  if (tensor->format == FORMATS) {
    snprintf(reason, sizeof reason, "dtype %.40s: F32, BF16 or F16 is wanted",
             pen_shown(text, dtype));
    bad_tensor(file, name, reason);
  }
  parse_shape(file, tensor, json_object_get(value, "shape"));
  parse_offsets(file, tensor, json_object_get(value, "data_offsets"));
}

static int by_offset(const void *left, const void *right) {
  const struct pen_stored *a = left, *b = right;
  if (a->offset != b->offset) {
    return a->offset < b->offset ? -1 : 1;
  }
  return a->past_end < b->past_end ? -1 : a->past_end > b->past_end;
}

static int by_name(const void *left, const void *right) {
  const struct pen_stored *a = left, *b = right;
  return strcmp(a->name, b->name);
}

/* The tensors must follow one another from the header's end to the file's end. */
static void check_cover(struct pen_safetensors *file) {
  char reason[2 * PEN_SHOWN_BYTES], text[PEN_SHOWN_BYTES];
  uint64_t past_end = file->data_offset;
  qsort(file->tensors, file->count, sizeof *file->tensors, by_offset);
  for (size_t i = 0; i < file->count; i++) {
    const struct pen_stored *tensor = &file->tensors[i];
    if (tensor->offset < past_end) {
      snprintf(reason, sizeof reason, "overlaps tensor %s",
               pen_shown(text, file->tensors[i - 1].name));
      bad_tensor(file, tensor->name, reason);
    }
    if (tensor->offset > past_end) {
      bad_tensor(file, tensor->name, "a hole lies before it");
    }
    past_end = tensor->past_end;
  }
  if (past_end != file->file_bytes) {
    pen_fail(PEN_EXIT_DATA, "%s: %llu bytes after the last tensor", file->path,
             (unsigned long long)(file->file_bytes - past_end));
  }
}

static void parse_header(struct pen_safetensors *file, const char *text, size_t bytes) {
  json_error_t error;
  char shown_error[PEN_SHOWN_BYTES];
  json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
  if (root == NULL) {
    pen_fail(PEN_EXIT_DATA, "%s: header: %s", file->path, pen_shown(shown_error, error.text));
  }
  if (!json_is_object(root)) {
    pen_fail(PEN_EXIT_DATA, "%s: header: no JSON object", file->path);
  }
  file->tensors = calloc(json_object_size(root) + 1, sizeof *file->tensors);
  if (file->tensors == NULL) {
    pen_fail(PEN_EXIT_SYSTEM, "%s: out of memory", file->path);
  }
  const char *name;
  json_t *value;
  json_object_foreach(root, name, value) if (strcmp(name, "__metadata__") != 0) {
    parse_tensor(file, &file->tensors[file->count++], name, value);
  }
  json_decref(root);
  check_cover(file);
  qsort(file->tensors, file->count, sizeof *file->tensors, by_name);
}

/* Reads exactly that many bytes, or fails. */
static void read_exactly(const struct pen_safetensors *file, void *out, size_t count,
                         uint64_t offset) {
  int64_t done = pen_file_read_at(file->fd, out, count, offset);
  if (done < 0) {
    pen_fail(PEN_EXIT_NO_INPUT, "%s: cannot read: %s", file->path, strerror(errno));
  }
  if ((size_t)done < count) {
    pen_fail(PEN_EXIT_DATA, "%s: truncated at byte %lld", file->path, (long long)offset + done);
  }
}

static void open_regular(struct pen_safetensors *file) {
  struct stat status;
  if (stat(file->path, &status)) {
    pen_fail(PEN_EXIT_NO_INPUT, "%s: %s", file->path, strerror(errno));
  }
  if (!S_ISREG(status.st_mode)) {
    pen_fail(PEN_EXIT_NO_INPUT, "%s: not a regular file", file->path);
  }
  file->fd = open(file->path, O_RDONLY | O_CLOEXEC);
  if (file->fd < 0) {
    pen_fail(PEN_EXIT_NO_INPUT, "%s: %s", file->path, strerror(errno));
  }
  file->file_bytes = (uint64_t)status.st_size;
}

struct pen_safetensors *pen_safetensors_open(const char *path) {
  struct pen_safetensors *file = calloc(1, sizeof *file);
  if (file == NULL) {
    pen_fail(PEN_EXIT_SYSTEM, "%s: out of memory", path);
  }
  file->path = path;
  open_regular(file);
  uint64_t header_bytes;
  if (file->file_bytes < sizeof header_bytes) {
    pen_fail(PEN_EXIT_DATA, "%s: %llu bytes: too short for a safetensors file", path,
             (unsigned long long)file->file_bytes);
  }
  read_exactly(file, &header_bytes, sizeof header_bytes, 0);
  if (header_bytes > PEN_SAFETENSORS_HEADER_MAX ||
      header_bytes > file->file_bytes - sizeof header_bytes) {
    pen_fail(PEN_EXIT_DATA,
             "%s: a header of %llu bytes in a file of %llu: truncated, or no safetensors file",
             path, (unsigned long long)header_bytes, (unsigned long long)file->file_bytes);
  }
  file->data_offset = sizeof header_bytes + header_bytes;
  char *text = malloc(header_bytes + 1);
  if (text == NULL) {
    pen_fail(PEN_EXIT_SYSTEM, "%s: out of memory", path);
  }
  read_exactly(file, text, header_bytes, sizeof header_bytes);
  parse_header(file, text, header_bytes);
  free(text);
  return file;
}

void pen_safetensors_close(struct pen_safetensors *file) {
  for (size_t i = 0; i < file->count; i++) {
    free(file->tensors[i].name);
  }
  free(file->tensors);
  close(file->fd);
  free(file);
}

/* ---- tensors ---- */

/* "[2, 3]" */
static const char *shape_text(char text[PEN_SHOWN_BYTES], uint32_t dim_count, const uint64_t *dim) {
  size_t used = (size_t)snprintf(text, PEN_SHOWN_BYTES, "[");
  for (uint32_t i = 0; i < dim_count && used < PEN_SHOWN_BYTES - 24; i++) {
    used += (size_t)snprintf(text + used, PEN_SHOWN_BYTES - used, "%s%llu", i ? ", " : "",
                             (unsigned long long)dim[i]);
  }
  snprintf(text + used, PEN_SHOWN_BYTES - used, "]");
  return text;
}

static struct pen_stored *find(const struct pen_safetensors *file, const char *name) {
  struct pen_stored key = {.name = (char *)name};
  return file->count != 0 ? bsearch(&key, file->tensors, file->count, sizeof key, by_name) : NULL;
}

bool pen_safetensors_has(const struct pen_safetensors *file, const char *name) {
  return find(file, name) != NULL;
}

void pen_safetensors_ignore(struct pen_safetensors *file, const char *ending) {
  size_t tail = strlen(ending);
  for (size_t i = 0; i < file->count; i++) {
    size_t length = strlen(file->tensors[i].name);
    if (length >= tail && strcmp(file->tensors[i].name + length - tail, ending) == 0) {
      file->tensors[i].checked = 1;
    }
  }
}

const struct pen_stored *pen_safetensors_expect(struct pen_safetensors *file, const char *name,
                                                uint32_t dim_count, const uint64_t *dim) {
  struct pen_stored *found = find(file, name);
  if (found == NULL) {
    bad_tensor(file, name, "missing");
  }
  if (formats[found->format].widen == NULL) {
    char reason[PEN_SHOWN_BYTES];
    snprintf(reason, sizeof reason, "dtype %s: F32, BF16 or F16 is wanted",
             formats[found->format].name);
    bad_tensor(file, name, reason);
  }
  if (found->dim_count != dim_count || memcmp(found->dim, dim, dim_count * sizeof *dim) != 0) {
    char has[PEN_SHOWN_BYTES], wants[PEN_SHOWN_BYTES];
    pen_fail(PEN_EXIT_DATA, "%s: tensor %s: shape %s where the model has %s", file->path, name,
             shape_text(has, found->dim_count, found->dim), shape_text(wants, dim_count, dim));
  }
  found->checked = 1;
  return found;
}

void pen_safetensors_expect_no_more(const struct pen_safetensors *file) {
  for (size_t i = 0; i < file->count; i++) {
    if (!file->tensors[i].checked) {
      bad_tensor(file, file->tensors[i].name, "not a part of this model");
    }
  }
}

static void check_finite(const struct pen_safetensors *file, const struct pen_stored *tensor,
                         const float *x, size_t count, uint64_t first) {
  int bad = 0;
  for (size_t i = 0; i < count; i++) {
    bad |= !(fabsf(x[i]) <= 3.402823466e+38f);
  }
  for (size_t i = 0; bad && i < count; i++)
    if (!isfinite(x[i])) {
      char reason[PEN_SHOWN_BYTES];
      snprintf(reason, sizeof reason, "element %llu is %s", (unsigned long long)(first + i),
               isnan(x[i]) ? "not a number" : "infinite");
      bad_tensor(file, tensor->name, reason);
    }
}

void pen_safetensors_read(const struct pen_safetensors *file, const struct pen_stored *tensor,
                          float *out, unsigned char digest[32]) {
  const struct format *format = &formats[tensor->format];
  const uint64_t chunk = READ_BYTES / format->bytes;
  unsigned char bytes[READ_BYTES];
  struct sha256_ctx hash;
  sha256_init(&hash);
  for (uint64_t first = 0; first < tensor->count; first += chunk) {
    size_t count = (size_t)(tensor->count - first < chunk ? tensor->count - first : chunk);
    read_exactly(file, bytes, count * format->bytes, tensor->offset + first * format->bytes);
    if (digest) {
      sha256_update(&hash, count * format->bytes, bytes);
    }
    format->widen(out + first, bytes, count);
    check_finite(file, tensor, out + first, count, first);
  }
  if (digest) {
    sha256_digest(&hash, SHA256_DIGEST_SIZE, digest);
  }
}

uint32_t pen_safetensors_sample(const struct pen_safetensors *file, const struct pen_stored *tensor,
                                uint32_t before) {
  unsigned char bytes[SAMPLE_BYTES];
  const uint64_t stored = tensor->past_end - tensor->offset;
  const size_t count = stored < sizeof bytes ? (size_t)stored : sizeof bytes;
  read_exactly(file, bytes, count, tensor->offset);
  return pen_crc32(pen_crc32(before, &tensor->format, sizeof tensor->format), bytes, count);
}

/* ---- our own files ---- */

int pen_safetensors_start(int fd, const char *json, uint64_t data_offset) {
  char blanks[256];
  size_t text_bytes = strlen(json);
  if (data_offset < PEN_SAFETENSORS_PREFIX_BYTES ||
      text_bytes > data_offset - PEN_SAFETENSORS_PREFIX_BYTES) {
    errno = EOVERFLOW;
    return -1;
  }
  uint64_t header_bytes = data_offset - PEN_SAFETENSORS_PREFIX_BYTES,
           padding = header_bytes - text_bytes;
  if (pen_file_write(fd, &header_bytes, sizeof header_bytes) ||
      pen_file_write(fd, json, text_bytes)) {
    return -1;
  }
  memset(blanks, ' ', sizeof blanks);
  while (padding) {
    size_t part = padding < sizeof blanks ? (size_t)padding : sizeof blanks;
    if (pen_file_write(fd, blanks, part)) {
      return -1;
    }
    padding -= part;
  }
  return 0;
}
