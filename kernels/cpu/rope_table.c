/* rope_table.c: ROPE_TABLE: cosines and sines in f64, the same source for all instruction sets. */
#include <math.h>

#include "kernels/cpu/cpu.h"
#include "kernels/rope_frequency.h"

/* table[t,0,i] = scale cos(t f_i), table[t,1,i] = scale sin of it (Su et al. 2021) */
void pen_rope_table(const struct pen_call *call) {
  float *table = call->operand[0];
  const int64_t sequence = call->dim[0], half = call->dim[1];
  const double scale = pen_rope_scale(call->real);
  for (int64_t i = 0; i < half; i++) {
    const double frequency = pen_rope_frequency(call->real, i, half);
    for (int64_t t = 0; t < sequence; t++) {
      const double angle = (double)t * frequency;
      table[t * 2 * half + i] = (float)(scale * cos(angle));
      table[t * 2 * half + half + i] = (float)(scale * sin(angle));
    }
  }
}
