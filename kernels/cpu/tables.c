/* tables.c: ROPE_TABLE, EMBEDDING, SPLIT and SPLIT_DX: f64 library calls and copies, the same for every instruction set. */
#include <math.h>
#include <string.h>

#include "kernels/cpu/cpu.h"

/* table[t,0,i] = cos(t theta^(-i/half)), table[t,1,i] = sin of it (Su et al. 2021) */
void pen_rope_table(const struct pen_call *call) {
  float *table = call->operand[0];
  const int64_t sequence = call->dim[0], half = call->dim[1];
  for (int64_t i = 0; i < half; i++) {
    const double frequency = pow(call->real[0], -(double)i / (double)half);
    for (int64_t t = 0; t < sequence; t++) {
      const double angle = (double)t * frequency;
      table[t * 2 * half + i] = (float)cos(angle);
      table[t * 2 * half + half + i] = (float)sin(angle);
    }
  }
}

/* y[r] = table[tokens[r]]. The runtime checks tokens as it reads them; one out of range gives a row of NaN. */
void pen_embedding(const struct pen_call *call) {
  const int32_t *tokens = call->operand[0];
  const float *table = call->operand[1];
  float *y = call->operand[2];
  const size_t width = (size_t)call->dim[1];
  for (int64_t r = 0; r < call->dim[0]; r++, y += width)
    if (tokens[r] >= 0 && tokens[r] < call->dim[2])
      memcpy(y, table + (size_t)tokens[r] * width, width * sizeof *y);
    else
      memset(y, 0xff, width * sizeof *y);
}

/* q, k and v of a row stand one after the other in x[rows,3,width]. */
void pen_split(const struct pen_call *call) {
  const float *x = call->operand[0];
  const size_t width = (size_t)call->dim[1];
  for (size_t r = 0; r < (size_t)call->dim[0]; r++)
    for (size_t part = 0; part < 3; part++, x += width)
      memcpy((float *)call->operand[1 + part] + r * width, x, width * sizeof *x);
}

void pen_split_dx(const struct pen_call *call) {
  float *dx = call->operand[3];
  const size_t width = (size_t)call->dim[1];
  for (size_t r = 0; r < (size_t)call->dim[0]; r++)
    for (size_t part = 0; part < 3; part++, dx += width)
      memcpy(dx, (const float *)call->operand[part] + r * width, width * sizeof *dx);
}
