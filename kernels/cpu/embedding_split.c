/* embedding_split.c: EMBEDDING, EMBEDDING_SELECT, INDEX_SELECT, SPLIT and SPLIT_DX: copies, the
 * same source for all instruction sets. */
#include <string.h>

#include "kernels/cpu/cpu.h"

/* y[r] = x[index[r]]. The runtime checks indices when it makes them; one out of range gives a row
 * of NaN. */
static void select_rows(const struct pen_call *call, size_t element_bytes) {
  const unsigned char *x = call->operand[0];
  const int32_t *index = call->operand[1];
  const size_t bytes = (size_t)call->dim[1] * element_bytes;
  unsigned char *y = call->operand[2];
  for (int64_t r = 0; r < call->dim[0]; r++, y += bytes)
    if (index[r] >= 0 && index[r] < call->dim[2])
      memcpy(y, x + (size_t)index[r] * bytes, bytes);
    else
      memset(y, 0xff, bytes); /* NaN, in either dtype */
}

void pen_index_select(const struct pen_call *call) { select_rows(call, sizeof(float)); }
void pen_index_select_bf16(const struct pen_call *call) { select_rows(call, sizeof(uint16_t)); }

/* A row that the table does not have: that of a, which may be y, or `other` in each byte. */
static void take_row(unsigned char *y, const unsigned char *a, int other, size_t row,
                     size_t bytes) {
  if (a == NULL)
    memset(y + row * bytes, other, bytes);
  else if (a != y)
    memcpy(y + row * bytes, a + row * bytes, bytes);
}

/* y[r] = table[tokens[r] - first]. The runtime checks tokens when it reads them; one out of range
 * gives a row of NaN, or what a has. */
static void embed(const struct pen_call *call, size_t element_bytes) {
  const int32_t *tokens = call->operand[0];
  const float *table = call->operand[1];
  const unsigned char *a = call->operand[2];
  unsigned char *y = call->operand[3];
  const size_t width = (size_t)call->dim[1], bytes = width * element_bytes;
  for (size_t r = 0; r < (size_t)call->dim[0]; r++) {
    const int64_t row = tokens[r] - call->dim[3];
    const bool has = row >= 0 && row < call->dim[2],
               exists = tokens[r] >= 0 && tokens[r] < call->dim[4];
    if (!has)
      take_row(y, a, exists ? 0 : 0xff, r, bytes);
    else if (element_bytes == sizeof(float))
      memcpy(y + r * bytes, table + (size_t)row * width, bytes);
    else
      pen_f32_to_bf16((uint16_t *)(y + r * bytes), table + (size_t)row * width, width);
  }
}

void pen_embedding(const struct pen_call *call) { embed(call, sizeof(float)); }
void pen_embedding_bf16(const struct pen_call *call) { embed(call, sizeof(uint16_t)); }

/* Rows that a tensor rank has embedded, among those of the others; a may be y. */
static void choose_rows(const struct pen_call *call, size_t element_bytes) {
  const int32_t *tokens = call->operand[0];
  const unsigned char *x = call->operand[1], *a = call->operand[2];
  unsigned char *y = call->operand[3];
  const size_t bytes = (size_t)call->dim[1] * element_bytes;
  for (size_t r = 0; r < (size_t)call->dim[0]; r++) {
    const int64_t row = tokens[r] - call->dim[3];
    take_row(y, row >= 0 && row < call->dim[2] ? x : a, 0, r, bytes);
  }
}

void pen_embedding_select(const struct pen_call *call) { choose_rows(call, sizeof(float)); }
void pen_embedding_select_bf16(const struct pen_call *call) { choose_rows(call, sizeof(uint16_t)); }

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
