/* rope_frequency.h: frequencies and scale of ROPE_TABLE, for the CPU and for CUDA. */
#ifndef PEN_ROPE_FREQUENCY_H
#define PEN_ROPE_FREQUENCY_H

#include <math.h>
#include <stdint.h>

#if defined __CUDACC__ || defined PEN_EMULATED
#define PEN_ROPE_DEVICE __device__
#else
#define PEN_ROPE_DEVICE
#endif

/* The angle of pair i of `half` from one position to the next, in radians; real: theta, factor,
 * slope, offset, step of the op. */
static PEN_ROPE_DEVICE inline double pen_rope_frequency(const double real[], int64_t i,
                                                        int64_t half) {
  const double plain = pow(real[0], -(double)i / (double)half), factor = real[1],
               kept = real[2] * plain - real[3] - real[4] * (double)i;
  if (factor > 0)
    return plain * (kept <= 0 ? 1 / factor : kept >= 1 ? 1 : kept + (1 - kept) / factor);
  return plain;
}

/* What cosines and sines are multiplied by: the op's scale, of which 0 is 1. */
static PEN_ROPE_DEVICE inline double pen_rope_scale(const double real[]) {
  return real[5] > 0 ? real[5] : 1;
}

#endif
