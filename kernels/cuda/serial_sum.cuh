/* serial_sum.cuh: a sum in f64 in rising order, as ops.def requires for losses and kernels.h for
 * norms: one thread adds what the block has loaded. An addition takes some 16 cycles, 1000 of them
 * 10 microseconds. */
#ifndef PEN_CUDA_SERIAL_SUM_CUH
#define PEN_CUDA_SERIAL_SUM_CUH

#include "kernels/cuda/device.cuh"

/* The sum of x[count], in thread 0 of the block. */
template <class T>
static __device__ inline double serial_total(const T *x, int64_t count) {
  enum { TILE = 4 * THREADS };
  __shared__ double tile[2][TILE]; /* one is added while the next is loaded */
  double total = 0;
  for (int64_t base = 0, turn = 0; base < count; base += TILE, turn ^= 1) {
    for (int i = (int)threadIdx.x; i < TILE && base + i < count; i += THREADS)
      tile[turn][i] = (double)widen(x[base + i]);
    __syncthreads();
    if (threadIdx.x == 0) {
      const int loaded = count - base < TILE ? (int)(count - base) : TILE;
#pragma unroll 8
      for (int i = 0; i < loaded; i++) total += tile[turn][i];
    }
  }
  return total;
}

template <class T>
__global__ void __launch_bounds__(THREADS) serial_sum(double *sum, const T *x, int64_t count) {
  const double total = serial_total(x, count);
  if (threadIdx.x == 0) *sum = total;
}

#endif
