/* safetensors.h: reading and starting files of the safetensors format: 8 bytes of little-endian
 * header length, a JSON header, then the tensors, little-endian, without holes
 * (https://huggingface.co/docs/safetensors).
 *
 * Reading allocates and belongs before the seal. Every function that reads ends the process through
 * pen_fail() when the file is bad (PEN_EXIT_DATA) or absent or unreadable (PEN_EXIT_NO_INPUT), with
 * a message that names the file and, where one is concerned, the tensor.
 */
#ifndef PEN_SAFETENSORS_H
#define PEN_SAFETENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/safetensors_header.h"

struct pen_weight; /* runtime/plan/plan.h */

/* Opens a file and checks its whole header: length, JSON, dtypes, shapes, and that the tensors fill
 * the rest of the file without hole, overlap or overflow. Close with pen_safetensors_close(). */
struct pen_safetensors *pen_safetensors_open(const char *path);
void pen_safetensors_close(struct pen_safetensors *file);

bool pen_safetensors_has(const struct pen_safetensors *file, const char *name);

/* The tensor of that name and shape; fails (PEN_EXIT_DATA) if it is missing, shaped otherwise, or
 * not of F32, BF16 or F16. */
const struct pen_stored *pen_safetensors_expect(struct pen_safetensors *file, const char *name,
                                                uint32_t dim_count, const uint64_t *dim);

/* The same, of a tensor of a weight. */
const struct pen_stored *pen_safetensors_expect_weight(struct pen_safetensors *file,
                                                       const char *name,
                                                       const struct pen_weight *weight);

/* Fails (PEN_EXIT_DATA) if the files hold tensors that were not expected, except those that
 * `passes` takes (null: none): names the first three, and how many there are. */
void pen_safetensors_expect_no_more(struct pen_safetensors *const *file, size_t count,
                                    bool (*passes)(const void *context, const char *name),
                                    const void *context);

/* Whether two tensors have the same shape and, widened to f32, the same bits. */
bool pen_safetensors_equal(const struct pen_safetensors *a_file, const struct pen_stored *a,
                           const struct pen_safetensors *b_file, const struct pen_stored *b);

/* Reads a tensor into out[tensor->count], widening to f32. Fails (PEN_EXIT_DATA) on an element that
 * is not finite. If digest is not null, it gets the SHA-256 of the tensor's bytes as they stand in
 * the file. */
void pen_safetensors_read(const struct pen_safetensors *file, const struct pen_stored *tensor,
                          float *out, unsigned char digest[32]);

/* The CRC-32 of a tensor's dtype and of its first bytes as they stand in the file, up to 4096,
 * after what gave `before`; 0 at first. */
uint32_t pen_safetensors_sample(const struct pen_safetensors *file, const struct pen_stored *tensor,
                                uint32_t before);

/* Writes the length and the JSON text, padded with blanks, so that the tensors begin at
 * data_offset. Calls no allocator. 0, or -1 with errno (EOVERFLOW: the text does not fit). */
int pen_safetensors_start(int fd, const char *json, uint64_t data_offset);

#endif
