/* embedding_split.c: EMBEDDING, INDEX_SELECT, SPLIT and SPLIT_DX: copies, the same source for all
 * instruction sets. */
#include <string.h>

#include "kernels/cpu/cpu.h"

/* A kind of rows: bytes of an element of `from` and of `to`, and how `count` of them are copied. */
struct row_copy {
  size_t from_bytes, to_bytes;
  void (*copy)(void *to, const void *from, size_t count);
};

static void copy_f32(void *to, const void *from, size_t count) {
  memcpy(to, from, count * sizeof(float));
}
static void copy_bf16(void *to, const void *from, size_t count) {
  memcpy(to, from, count * sizeof(uint16_t));
}
static void round_f32(void *to, const void *from, size_t count) {
  pen_f32_to_bf16(to, from, count);
}

static const struct row_copy f32 = {sizeof(float), sizeof(float), copy_f32},
                             bf16 = {sizeof(uint16_t), sizeof(uint16_t), copy_bf16},
                             rounded = {sizeof(float), sizeof(uint16_t), round_f32};

/* y[r] = x[index[r]]. The runtime checks indices when it makes them; one out of range gives a row
 * of NaN. */
static void select_rows(const struct pen_call *call, const int32_t *index, const unsigned char *x,
                        const struct row_copy *row) {
  const size_t width = (size_t)call->dim[1];
  unsigned char *y = call->operand[2];
  for (int64_t r = 0; r < call->dim[0]; r++, y += width * row->to_bytes)
    if (index[r] >= 0 && index[r] < call->dim[2])
      row->copy(y, x + (size_t)index[r] * width * row->from_bytes, width);
    else
      memset(y, 0xff, width * row->to_bytes); /* NaN, in either dtype */
}

void pen_embedding(const struct pen_call *call) {
  select_rows(call, call->operand[0], call->operand[1], &f32);
}
void pen_embedding_bf16(const struct pen_call *call) {
  select_rows(call, call->operand[0], call->operand[1], &rounded);
}
void pen_index_select(const struct pen_call *call) {
  select_rows(call, call->operand[1], call->operand[0], &f32);
}
void pen_index_select_bf16(const struct pen_call *call) {
  select_rows(call, call->operand[1], call->operand[0], &bf16);
}

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
