/* rope_frequency.h: ROPE_TABLE's frequencies, for the CPU and for CUDA alike. */
#ifndef PEN_ROPE_FREQUENCY_H
#define PEN_ROPE_FREQUENCY_H

#include <math.h>
#include <stdint.h>

#if defined __CUDACC__ || defined PEN_EMULATED
#define PEN_THERE __device__
#else
#define PEN_THERE
#endif

/* What pair i of `half` turns by from one position to the next; `real` is the op's theta, factor,
 * slope, offset. */
static PEN_THERE inline double pen_rope_frequency(const double real[4], int64_t i, int64_t half) {
  const double plain = pow(real[0], -(double)i / (double)half), factor = real[1],
               kept = real[2] * plain - real[3];
  if (factor > 0)
    return plain * (kept <= 0 ? 1 / factor : kept >= 1 ? 1 : kept + (1 - kept) / factor);
  return plain;
}

#endif
