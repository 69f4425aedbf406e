/* safetensors.c: reads tensor files that may be damaged or hostile, and starts our own. */
#define _GNU_SOURCE 1
#include "runtime/storage/safetensors.h"

#include <errno.h>
#include <math.h>
#include <nettle/sha2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file_kinds.h"
#include "base/input_file.h"
#include "base/message.h"
#include "runtime/base/check.h"
#include "runtime/base/crc32.h"
#include "runtime/base/files.h"
#include "runtime/base/safetensors_header.h"
#include "runtime/base/text_writer.h"
#include "runtime/plan/plan.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "tensors are stored in memory order: a little-endian machine is required"
#endif

enum { READ_BYTES = 1 << 16, SAMPLE_BYTES = 4096, UNUSED_NAMED = 3 };

/* ---- dtypes ---- */

static void copy_f32(float *out, const unsigned char *in, size_t count) {
  memcpy(out, in, 4 * count);
}

static void bf16_to_f32(float *out, const unsigned char *in, size_t count) {
  for (size_t i = 0; i < count; i++) {
    uint32_t bits = (uint32_t)in[2 * i] << 16 | (uint32_t)in[2 * i + 1] << 24;
    memcpy(out + i, &bits, 4);
  }
}

/* IEEE 754 binary16: 1 sign, 5 exponent, 10 fraction bits. Every value is exact in f32. */
static void f16_to_f32(float *out, const unsigned char *in, size_t count) {
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

/* How a stored dtype is converted to f32; null: a dtype that no weight may have. */
static void (*const to_f32[PEN_STORED_DTYPES])(float *out, const unsigned char *in,
                                               size_t count) = {
    [PEN_STORED_F32] = copy_f32,
    [PEN_STORED_BF16] = bf16_to_f32,
    [PEN_STORED_F16] = f16_to_f32,
};

/* ---- opening ---- */

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
  struct pen_input_error error;
  file->fd = pen_input_open(file->path, PEN_INPUT_DATA, &file->file_bytes, &error);
  if (file->fd < 0) {
    pen_fail(error.status, "%s: %s", file->path, error.text);
  }
}

/* A header begins with `{`; what does not may be a file of another format. */
static void check_kind(const struct pen_safetensors *file) {
  unsigned char first[PEN_FILE_KIND_BYTES];
  int64_t bytes = pen_file_read_at(file->fd, first, sizeof first, 0);
  const struct pen_file_kind *kind =
      bytes <= 0 || (bytes > 8 && first[8] == '{')
          ? NULL
          : pen_file_kind_of(PEN_FILE_WEIGHTS, file->path, first, (size_t)bytes);
  if (kind != NULL) {
    pen_fail(PEN_EXIT_DATA, "%s: %s: %s", file->path, kind->name, kind->advice);
  }
}

struct pen_safetensors *pen_safetensors_open(const char *path) {
  struct pen_safetensors *file = calloc(1, sizeof *file);
  if (file == NULL) {
    pen_fail(PEN_EXIT_SYSTEM, "%s: out of memory", path);
  }
  file->path = path;
  open_regular(file);
  check_kind(file);
  unsigned char prefix[PEN_SAFETENSORS_PREFIX_BYTES] = {0};
  if (file->file_bytes >= sizeof prefix) {
    read_exactly(file, prefix, sizeof prefix, 0);
  }
  pen_safetensors_take_prefix(file, prefix);
  const uint64_t header_bytes = file->data_offset - sizeof prefix;
  char *text = malloc(header_bytes + 1);
  if (text == NULL) {
    pen_fail(PEN_EXIT_SYSTEM, "%s: out of memory", path);
  }
  read_exactly(file, text, header_bytes, sizeof prefix);
  pen_safetensors_parse_header(file, text, header_bytes);
  free(text);
  return file;
}

void pen_safetensors_close(struct pen_safetensors *file) {
  pen_safetensors_free_header(file);
  close(file->fd);
  free(file);
}

/* ---- tensors ---- */

bool pen_safetensors_has(const struct pen_safetensors *file, const char *name) {
  return pen_safetensors_find(file, name) != NULL;
}

const struct pen_stored *pen_safetensors_expect(struct pen_safetensors *file, const char *name,
                                                uint32_t dim_count, const uint64_t *dim) {
  struct pen_stored *found = pen_safetensors_find(file, name);
  if (found == NULL) {
    pen_safetensors_fail(file, name, "missing");
  }
  if (to_f32[found->format] == NULL) {
    char reason[PEN_SHOWN_BYTES];
    snprintf(reason, sizeof reason, "dtype %s: must be F32, BF16 or F16",
             pen_stored_dtypes[found->format].name);
    pen_safetensors_fail(file, name, reason);
  }
  if (found->dim_count != dim_count || memcmp(found->dim, dim, dim_count * sizeof *dim) != 0) {
    char has[PEN_SHOWN_BYTES], wants[PEN_SHOWN_BYTES];
    pen_fail(PEN_EXIT_DATA, "%s: tensor %s: shape %s where the model has %s", file->path, name,
             pen_safetensors_shape_text(has, found->dim_count, found->dim),
             pen_safetensors_shape_text(wants, dim_count, dim));
  }
  found->checked = 1;
  return found;
}

const struct pen_stored *pen_safetensors_expect_weight(struct pen_safetensors *file,
                                                       const char *name,
                                                       const struct pen_weight *weight) {
  uint32_t count;
  const uint64_t *shape = pen_file_shape(weight, &count);
  return pen_safetensors_expect(file, name, count, shape);
}

void pen_safetensors_expect_no_more(struct pen_safetensors *const *file, size_t count,
                                    bool (*passes)(const void *context, const char *name),
                                    const void *context) {
  char names[UNUSED_NAMED * (PEN_SHOWN_BYTES + 2) + 1] = "", shown[PEN_SHOWN_BYTES];
  const struct pen_safetensors *first = NULL;
  const char *name = NULL;
  size_t unused = 0, used = 0;
  for (size_t f = 0; f < count; f++) {
    for (size_t i = 0; i < file[f]->count; i++) {
      const struct pen_stored *tensor = &file[f]->tensors[i];
      if (tensor->checked || (passes != NULL && passes(context, tensor->name))) {
        continue;
      }
      if (unused < UNUSED_NAMED) {
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", unused ? ", " : "",
                                 pen_shown(shown, tensor->name));
      }
      first = unused == 0 ? file[f] : first;
      name = unused == 0 ? tensor->name : name;
      unused++;
    }
  }
  if (unused == 1) {
    pen_safetensors_fail(first, name, "not a part of this model");
  }
  if (unused > 1) {
    pen_fail(PEN_EXIT_DATA, "%s: %zu tensors are not a part of this model: %s%s", first->path,
             unused, names, unused > UNUSED_NAMED ? ", ..." : "");
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
      pen_safetensors_fail(file, tensor->name, reason);
    }
}

void pen_safetensors_read(const struct pen_safetensors *file, const struct pen_stored *tensor,
                          float *out, unsigned char digest[32]) {
  const size_t element_bytes = pen_stored_dtypes[tensor->format].bytes;
  const uint64_t chunk = READ_BYTES / element_bytes;
  unsigned char bytes[READ_BYTES];
  struct sha256_ctx hash;
  sha256_init(&hash);
  for (uint64_t first = 0; first < tensor->count; first += chunk) {
    size_t count = (size_t)(tensor->count - first < chunk ? tensor->count - first : chunk);
    read_exactly(file, bytes, count * element_bytes, tensor->offset + first * element_bytes);
    if (digest) {
      sha256_update(&hash, count * element_bytes, bytes);
    }
    to_f32[tensor->format](out + first, bytes, count);
    check_finite(file, tensor, out + first, count, first);
  }
  if (digest) {
    sha256_digest(&hash, SHA256_DIGEST_SIZE, digest);
  }
}

bool pen_safetensors_equal(const struct pen_safetensors *a_file, const struct pen_stored *a,
                           const struct pen_safetensors *b_file, const struct pen_stored *b) {
  enum { ELEMENTS = READ_BYTES / 4 };
  static unsigned char bytes[READ_BYTES];
  static float a_values[ELEMENTS], b_values[ELEMENTS];
  const size_t a_bytes = pen_stored_dtypes[a->format].bytes,
               b_bytes = pen_stored_dtypes[b->format].bytes;
  bool same = a->dim_count == b->dim_count &&
              memcmp(a->dim, b->dim, a->dim_count * sizeof *a->dim) == 0 &&
              to_f32[a->format] != NULL && to_f32[b->format] != NULL;
  for (uint64_t first = 0; same && first < a->count; first += ELEMENTS) {
    const size_t count = a->count - first < ELEMENTS ? (size_t)(a->count - first) : ELEMENTS;
    read_exactly(a_file, bytes, count * a_bytes, a->offset + first * a_bytes);
    to_f32[a->format](a_values, bytes, count);
    read_exactly(b_file, bytes, count * b_bytes, b->offset + first * b_bytes);
    to_f32[b->format](b_values, bytes, count);
    same = memcmp(a_values, b_values, count * sizeof *a_values) == 0;
  }
  return same;
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
