/* safetensors_header.h: the parsed header of an open safetensors file. */
#ifndef PEN_SAFETENSORS_HEADER_H
#define PEN_SAFETENSORS_HEADER_H

#include <stddef.h>
#include <stdint.h>

#include "base/message.h"
#include "runtime/base/stored_dtypes.h"

enum {
  PEN_SAFETENSORS_HEADER_MAX =
      100 * 1000 * 1000, /* bytes: the limit of the reference implementation */
  PEN_SAFETENSORS_DIMS_MAX = 8,
  PEN_SAFETENSORS_PREFIX_BYTES = 8, /* the header's length */
};

/* One tensor of a file. */
struct pen_stored {
  char *name;
  uint8_t format;  /* enum pen_stored_dtype_index */
  uint8_t checked; /* by pen_safetensors_expect() */
  uint32_t dim_count;
  uint64_t dim[PEN_SAFETENSORS_DIMS_MAX];
  uint64_t count;            /* elements */
  uint64_t offset, past_end; /* bytes from the start of the file */
};

/* An open file whose header has been checked. */
struct pen_safetensors {
  const char *path; /* the caller's */
  int fd;
  uint64_t data_offset, file_bytes;
  struct pen_stored *tensors; /* by name */
  size_t count;
};

/* Sets file->data_offset by the first bytes of a file of file->file_bytes, its prefix. Fails
 * (PEN_EXIT_DATA) unless the header that it announces fits the file. */
void pen_safetensors_take_prefix(struct pen_safetensors *file,
                                 const unsigned char prefix[PEN_SAFETENSORS_PREFIX_BYTES]);

/* Fills file->tensors, sorted by name, from the header's JSON text, and checks that the tensors
 * cover the file from data_offset to its end. Fails (PEN_EXIT_DATA). Allocates. */
void pen_safetensors_parse_header(struct pen_safetensors *file, const char *text, size_t bytes);

/* Frees what that has allocated. */
void pen_safetensors_free_header(struct pen_safetensors *file);

/* The tensor of that name, or null. */
struct pen_stored *pen_safetensors_find(const struct pen_safetensors *file, const char *name);

/* "[2, 3]" */
const char *pen_safetensors_shape_text(char text[PEN_SHOWN_BYTES], uint32_t dim_count,
                                       const uint64_t *dim);

/* Fails (PEN_EXIT_DATA) with the file's path, the tensor's name and the reason. */
_Noreturn void pen_safetensors_fail(const struct pen_safetensors *file, const char *name,
                                    const char *reason);

#endif
