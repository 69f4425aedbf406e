/* embedding_split.c: EMBEDDING, EMBEDDING_SELECT, INDEX_SELECT, and SPLIT and the like: copies, the
 * same source for all instruction sets. */
#include <string.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/threads.h"

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

/* ---- parts of rows ---- */

/* A row of x is a row of each part, one after the other. */
struct parts {
  unsigned char *x, *part[3];
  size_t count, bytes[3]; /* of a row of each */
  bool joins;             /* writes x */
};

static void move_rows(const void *context, size_t thread, size_t first, size_t past) {
  const struct parts *p = context;
  unsigned char *x = p->x + first * (p->bytes[0] + p->bytes[1] + p->bytes[2]);
  (void)thread;
  for (size_t r = first; r < past; r++)
    for (size_t k = 0; k < p->count; x += p->bytes[k++])
      memcpy(p->joins ? x : p->part[k] + r * p->bytes[k],
             p->joins ? p->part[k] + r * p->bytes[k] : x, p->bytes[k]);
}

/* Of `rows` rows, whose parts have these widths. */
static void move_parts(const struct pen_call *call, size_t count, bool joins, int64_t rows,
                       const int64_t *width, size_t element_bytes) {
  struct parts parts = {.x = call->operand[joins ? count : 0], .count = count, .joins = joins};
  size_t all = 0;
  for (size_t k = 0; k < count; k++) {
    parts.part[k] = call->operand[joins ? k : k + 1];
    parts.bytes[k] = (size_t)width[k] * element_bytes;
    all += (size_t)width[k];
  }
  pen_parallel_rows((size_t)rows, all, move_rows, &parts);
}

/* SPLIT and SPLIT_DX have three equal parts. */
static void move_equal(const struct pen_call *call, bool joins, size_t element_bytes) {
  const int64_t width[] = {call->dim[1], call->dim[1], call->dim[1]};
  move_parts(call, 3, joins, call->dim[0], width, element_bytes);
}

static void move_unequal(const struct pen_call *call, size_t count, bool joins,
                         size_t element_bytes) {
  move_parts(call, count, joins, call->dim[0] * call->dim[1], call->dim + 3, element_bytes);
}

void pen_split(const struct pen_call *call) { move_equal(call, false, sizeof(float)); }
void pen_split_bf16(const struct pen_call *call) { move_equal(call, false, sizeof(uint16_t)); }
void pen_split_dx(const struct pen_call *call) { move_equal(call, true, sizeof(float)); }
void pen_split_dx_bf16(const struct pen_call *call) { move_equal(call, true, sizeof(uint16_t)); }
void pen_split_2(const struct pen_call *call) { move_unequal(call, 2, false, sizeof(float)); }
void pen_split_2_bf16(const struct pen_call *call) {
  move_unequal(call, 2, false, sizeof(uint16_t));
}
void pen_join_2(const struct pen_call *call) { move_unequal(call, 2, true, sizeof(float)); }
void pen_join_2_bf16(const struct pen_call *call) { move_unequal(call, 2, true, sizeof(uint16_t)); }
void pen_split_3(const struct pen_call *call) { move_unequal(call, 3, false, sizeof(float)); }
void pen_split_3_bf16(const struct pen_call *call) {
  move_unequal(call, 3, false, sizeof(uint16_t));
}
void pen_join_3(const struct pen_call *call) { move_unequal(call, 3, true, sizeof(float)); }
void pen_join_3_bf16(const struct pen_call *call) { move_unequal(call, 3, true, sizeof(uint16_t)); }
