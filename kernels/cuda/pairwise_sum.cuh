/* pairwise_sum.cuh: a sum of as many terms as a power of two, added pairwise: (0+1)+(2+3), as the
 * gradients of splits are (docs/contracts.md, "Splits"). Terms come in rising order; what waits for
 * its other half is kept, one sum for each power of two. */
#ifndef PEN_CUDA_PAIRWISE_SUM_CUH
#define PEN_CUDA_PAIRWISE_SUM_CUH

#include "kernels/cuda/device.cuh"

enum { PAIRWISE_LEVELS = 16 /* 2^15 terms: more than a sequence of that many runs has */ };

template <int N>
struct pairwise_sum {
  lanes<N> kept[PAIRWISE_LEVELS];
  unsigned count = 0; /* of terms so far: bit b is set where kept[b] has 2^b of them */

  __device__ void add(lanes<N> term) {
    int level = 0;
    for (; count >> level & 1; level++)
#pragma unroll
      for (int k = 0; k < N; k++) term.v[k] = kept[level].v[k] + term.v[k];
    kept[level] = term;
    count++;
  }

  /* The sum of all; the count is a power of two. */
  __device__ lanes<N> whole() const {
    int level = 0;
    while (!(count >> level & 1)) level++;
    return kept[level];
  }
};

#endif
