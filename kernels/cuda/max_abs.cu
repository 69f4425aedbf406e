/* max_abs.cu: pen_max_abs(): the maximum of |x[i]|, NaN if any is. Without the sign bit, floats are
 * ordered as their bits, and NaN is above all: compares integers, and any order gives the same
 * bits. Launch: a block for each PEN_NORM_BLOCK elements, then one block over their results.
 * Workspace: 8 bytes for each block of elements. */
#include "kernels/cuda/device.cuh"

namespace {

/* The maximum over the block, in thread 0. */
__device__ inline uint32_t block_greatest(uint32_t most) {
  __shared__ uint32_t of_warp[THREADS / WARP];
#pragma unroll
  for (int apart = WARP / 2; apart; apart /= 2) {
    const uint32_t other = __shfl_xor_sync(0xffffffffu, most, apart);
    most = other > most ? other : most;
  }
  if (threadIdx.x % WARP == 0) of_warp[threadIdx.x / WARP] = most;
  __syncthreads();
  for (int w = 0; w < THREADS / WARP && threadIdx.x == 0; w++)
    most = of_warp[w] > most ? of_warp[w] : most;
  return most;
}

__device__ inline uint32_t magnitude(float x) { return __float_as_uint(x) & 0x7fffffffu; }

__global__ void __launch_bounds__(THREADS)
    of_blocks(uint32_t *part, const float *x, int64_t count) {
  const int64_t begin = (int64_t)blockIdx.x * PEN_NORM_BLOCK;
  const int64_t end = begin + PEN_NORM_BLOCK < count ? begin + PEN_NORM_BLOCK : count;
  uint32_t most = 0;
  for (int64_t i = begin + threadIdx.x; i < end; i += THREADS) {
    const uint32_t here = magnitude(x[i]);
    most = here > most ? here : most;
  }
  most = block_greatest(most);
  if (threadIdx.x == 0) part[blockIdx.x] = most;
}

__global__ void __launch_bounds__(THREADS)
    of_parts(double *greatest, const uint32_t *part, int64_t blocks) {
  uint32_t most = 0;
  for (int64_t i = threadIdx.x; i < blocks; i += THREADS) most = part[i] > most ? part[i] : most;
  most = block_greatest(most);
  if (threadIdx.x == 0) *greatest = (double)__uint_as_float(most);
}

} /* namespace */

void pen_cuda_max_abs(double *greatest, const float *x, size_t count, void *workspace,
                      void *stream) {
  const int64_t blocks = ceiling((int64_t)count, PEN_NORM_BLOCK);
  uint32_t *part = (uint32_t *)workspace;
  if (blocks)
    PEN_LAUNCH(of_blocks, dim3((unsigned)blocks), dim3(THREADS), 0, stream, part, x,
               (int64_t)count);
  PEN_LAUNCH(of_parts, dim3(1), dim3(THREADS), 0, stream, greatest, part, blocks);
}
