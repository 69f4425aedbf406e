/* safetensors_header.c: parses and checks the JSON header of a safetensors file, which may be
 * damaged or hostile. */
#include "runtime/base/safetensors_header.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/message.h"
#include "runtime/base/check.h"

_Noreturn void pen_safetensors_fail(const struct pen_safetensors *file, const char *name,
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
    pen_safetensors_fail(file, tensor->name, "shape is no list");
  }
  if (json_array_size(shape) > PEN_SAFETENSORS_DIMS_MAX) {
    pen_safetensors_fail(file, tensor->name, "more than 8 dimensions");
  }
  tensor->dim_count = (uint32_t)json_array_size(shape);
  tensor->count = 1;
  for (uint32_t i = 0; i < tensor->dim_count; i++) {
    if (natural(json_array_get(shape, i), &tensor->dim[i])) {
      pen_safetensors_fail(file, tensor->name, "a dimension is no whole number of 0 or more");
    }
    if (__builtin_mul_overflow(tensor->count, tensor->dim[i], &tensor->count)) {
      pen_safetensors_fail(file, tensor->name, "its shape overflows");
    }
  }
}

static void parse_offsets(const struct pen_safetensors *file, struct pen_stored *tensor,
                          const json_t *offsets) {
  uint64_t begin, end, bytes, data_bytes = file->file_bytes - file->data_offset;
  if (json_array_size(offsets) != 2 || natural(json_array_get(offsets, 0), &begin) ||
      natural(json_array_get(offsets, 1), &end) || begin > end) {
    pen_safetensors_fail(file, tensor->name, "data_offsets are no [begin, end]");
  }
  if (__builtin_mul_overflow(tensor->count, (uint64_t)pen_stored_dtypes[tensor->format].bytes,
                             &bytes) ||
      bytes != end - begin) {
    char text[PEN_SHOWN_BYTES];
    pen_fail(PEN_EXIT_DATA, "%s: tensor %s: %llu bytes for %llu elements of %s", file->path,
             pen_shown(text, tensor->name), (unsigned long long)(end - begin),
             (unsigned long long)tensor->count, pen_stored_dtypes[tensor->format].name);
  }
  if (end > data_bytes) {
    pen_safetensors_fail(file, tensor->name,
                         "reaches past the end of the file: is the file truncated?");
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
    pen_safetensors_fail(file, name, "its entry is no object");
  }
  const char *dtype = json_string_value(json_object_get(value, "dtype"));
  if (dtype == NULL) {
    pen_safetensors_fail(file, name, "no dtype");
  }
  for (tensor->format = 0; tensor->format < PEN_STORED_DTYPES; tensor->format++) {
    if (strcmp(dtype, pen_stored_dtypes[tensor->format].name) == 0) {
      break;
    }
  }
  if (tensor->format == PEN_STORED_DTYPES) {
    snprintf(reason, sizeof reason, "dtype %.40s: must be F32, BF16 or F16",
             pen_shown(text, dtype));
    pen_safetensors_fail(file, name, reason);
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
      pen_safetensors_fail(file, tensor->name, reason);
    }
    if (tensor->offset > past_end) {
      pen_safetensors_fail(file, tensor->name, "a hole lies before it");
    }
    past_end = tensor->past_end;
  }
  if (past_end != file->file_bytes) {
    pen_fail(PEN_EXIT_DATA, "%s: %llu bytes after the last tensor", file->path,
             (unsigned long long)(file->file_bytes - past_end));
  }
}

void pen_safetensors_take_prefix(struct pen_safetensors *file,
                                 const unsigned char prefix[PEN_SAFETENSORS_PREFIX_BYTES]) {
  uint64_t header_bytes;
  if (file->file_bytes < sizeof header_bytes) {
    pen_fail(PEN_EXIT_DATA, "%s: %llu bytes: too short for a safetensors file", file->path,
             (unsigned long long)file->file_bytes);
  }
  memcpy(&header_bytes, prefix, sizeof header_bytes);
  if (header_bytes > PEN_SAFETENSORS_HEADER_MAX ||
      header_bytes > file->file_bytes - sizeof header_bytes) {
    pen_fail(PEN_EXIT_DATA,
             "%s: a header of %llu bytes in a file of %llu: truncated, or no safetensors file",
             file->path, (unsigned long long)header_bytes, (unsigned long long)file->file_bytes);
  }
  file->data_offset = sizeof header_bytes + header_bytes;
}

void pen_safetensors_parse_header(struct pen_safetensors *file, const char *text, size_t bytes) {
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

struct pen_stored *pen_safetensors_find(const struct pen_safetensors *file, const char *name) {
  struct pen_stored key = {.name = (char *)name};
  return file->count != 0 ? bsearch(&key, file->tensors, file->count, sizeof key, by_name) : NULL;
}

void pen_safetensors_free_header(struct pen_safetensors *file) {
  for (size_t i = 0; i < file->count; i++) {
    free(file->tensors[i].name);
  }
  free(file->tensors);
}

const char *pen_safetensors_shape_text(char text[PEN_SHOWN_BYTES], uint32_t dim_count,
                                       const uint64_t *dim) {
  size_t used = (size_t)snprintf(text, PEN_SHOWN_BYTES, "[");
  for (uint32_t i = 0; i < dim_count && used < PEN_SHOWN_BYTES - 24; i++) {
    used += (size_t)snprintf(text + used, PEN_SHOWN_BYTES - used, "%s%llu", i ? ", " : "",
                             (unsigned long long)dim[i]);
  }
  snprintf(text + used, PEN_SHOWN_BYTES - used, "]");
  return text;
}
