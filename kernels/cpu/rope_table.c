/* tables.c: ROPE_TABLE, EMBEDDING, SPLIT and SPLIT_DX: f64 library calls and copies, the same
 * source for every instruction set. */
#include <math.h>
#include <string.h>

#include "kernels/cpu/cpu.h"
#include "kernels/rope_frequency.h"

/* table[t,0,i] = cos(t f_i), table[t,1,i] = sin of it (Su et al. 2021) */
void pen_rope_table(const struct pen_call *call) {
  float *table = call->operand[0];
  const int64_t sequence = call->dim[0], half = call->dim[1];
  for (int64_t i = 0; i < half; i++) {
    const double frequency = pen_rope_frequency(call->real, i, half);
    for (int64_t t = 0; t < sequence; t++) {
      const double angle = (double)t * frequency;
      table[t * 2 * half + i] = (float)cos(angle);
      table[t * 2 * half + half + i] = (float)sin(angle);
    }
  }
}

/* Copies `count` numbers of a table of f32 into a tensor of the op's dtype. */
typedef void copy(void *to, const float *from, size_t count);

static void copy_f32(void *to, const float *from, size_t count) {
  memcpy(to, from, count * sizeof *from);
}
static void copy_bf16(void *to, const float *from, size_t count) {
  pen_f32_to_bf16(to, from, count);
}

/* y[r] = table[tokens[r]]. The runtime checks tokens as it reads them; one out of range gives a row
 * of NaN. */
static void embed(const struct pen_call *call, copy *copy_row, size_t element_bytes) {
  const int32_t *tokens = call->operand[0];
  const float *table = call->operand[1];
  unsigned char *y = call->operand[2];
  const size_t width = (size_t)call->dim[1];
  for (int64_t r = 0; r < call->dim[0]; r++, y += width * element_bytes)
    if (tokens[r] >= 0 && tokens[r] < call->dim[2])
      copy_row(y, table + (size_t)tokens[r] * width, width);
    else
      memset(y, 0xff, width * element_bytes); /* NaN, in either dtype */
}

void pen_embedding(const struct pen_call *call) { embed(call, copy_f32, sizeof(float)); }
void pen_embedding_bf16(const struct pen_call *call) { embed(call, copy_bf16, sizeof(uint16_t)); }

/* q, k and v of a row stand one after the other in x[rows,3,width]. */
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
