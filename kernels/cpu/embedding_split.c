/* embedding_split.c: EMBEDDING, SPLIT and SPLIT_DX: copies, the same source for all instruction
 * sets. */
#include <string.h>

#include "kernels/cpu/cpu.h"

/* Copies `count` elements of an f32 table into a tensor of the op's dtype. */
typedef void copy_row(void *to, const float *from, size_t count);

static void copy_f32(void *to, const float *from, size_t count) {
  memcpy(to, from, count * sizeof *from);
}
static void copy_bf16(void *to, const float *from, size_t count) {
  pen_f32_to_bf16(to, from, count);
}

/* y[r] = table[tokens[r]]. The runtime checks tokens when it reads them; a token out of range gives
 * a row of NaN. */
static void embed(const struct pen_call *call, copy_row *copy, size_t element_bytes) {
  const int32_t *tokens = call->operand[0];
  const float *table = call->operand[1];
  unsigned char *y = call->operand[2];
  const size_t width = (size_t)call->dim[1];
  for (int64_t r = 0; r < call->dim[0]; r++, y += width * element_bytes)
    if (tokens[r] >= 0 && tokens[r] < call->dim[2])
      copy(y, table + (size_t)tokens[r] * width, width);
    else
      memset(y, 0xff, width * element_bytes); /* NaN, in either dtype */
}

void pen_embedding(const struct pen_call *call) { embed(call, copy_f32, sizeof(float)); }
void pen_embedding_bf16(const struct pen_call *call) { embed(call, copy_bf16, sizeof(uint16_t)); }

/* x is [rows,3,width]: q, k and v of a row are adjacent. */
static void split(const struct pen_call *call, size_t element_bytes) {
  const unsigned char *x = call->operand[0];
  const size_t bytes = (size_t)call->dim[1] * element_bytes;
  for (size_t r = 0; r < (size_t)call->dim[0]; r++)
    for (size_t part = 0; part < 3; part++, x += bytes)
      memcpy((unsigned char *)call->operand[1 + part] + r * bytes, x, bytes);
}

static void split_dx(const struct pen_call *call, size_t element_bytes) {
  unsigned char *dx = call->operand[3];
  const size_t bytes = (size_t)call->dim[1] * element_bytes;
  for (size_t r = 0; r < (size_t)call->dim[0]; r++)
    for (size_t part = 0; part < 3; part++, dx += bytes)
      memcpy(dx, (const unsigned char *)call->operand[part] + r * bytes, bytes);
}

void pen_split(const struct pen_call *call) { split(call, sizeof(float)); }
void pen_split_bf16(const struct pen_call *call) { split(call, sizeof(uint16_t)); }
void pen_split_dx(const struct pen_call *call) { split_dx(call, sizeof(float)); }
void pen_split_dx_bf16(const struct pen_call *call) { split_dx(call, sizeof(uint16_t)); }
