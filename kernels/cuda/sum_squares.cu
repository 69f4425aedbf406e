/* sum_squares.cu: pen_sum_squares() with the bits of the CPU: f64 over blocks of PEN_NORM_BLOCK
 * elements; in each, element i is added to sum i mod 16, then the upper half is added to the lower;
 * the sums of blocks in rising order. Launch: 16 threads for each block of elements, one for each
 * sum; then one block that adds. A square of an f32 is exact in f64, so that a fused multiply-add
 * has the same bits. Workspace: an f64 for each block of elements. */
#include "kernels/cuda/serial_sum.cuh"

namespace {

enum { SUMS = 16 };

__global__ void __launch_bounds__(THREADS)
    block_squares(double *part, const float *x, int64_t count) {
  const int64_t thread = (int64_t)blockIdx.x * THREADS + threadIdx.x, block = thread / SUMS;
  const int lane = (int)(thread % SUMS);
  const int64_t whole = PEN_NORM_BLOCK, begin = block * whole;
  const int64_t left = count - begin < whole ? count - begin : whole; /* below 1: no such block */
  double sum = 0;
#pragma unroll 8
  for (int64_t i = lane; i < left; i += SUMS) {
    const double value = (double)x[begin + i];
    sum += value * value;
  }
#pragma unroll
  for (int half = SUMS / 2; half; half /= 2)
    sum += __shfl_down_sync(0xffffffffu, sum, (unsigned)half, SUMS);
  if (lane == 0 && left > 0) part[block] = sum;
}

} /* namespace */

void pen_cuda_sum_squares(double *sum, const float *x, size_t count, void *workspace,
                          void *stream) {
  const int64_t blocks = ceiling((int64_t)count, PEN_NORM_BLOCK);
  double *part = (double *)workspace;
  if (blocks)
    PEN_LAUNCH(block_squares, dim3((unsigned)ceiling(blocks * SUMS, THREADS)), dim3(THREADS), 0,
               stream, part, x, (int64_t)count);
  PEN_LAUNCH(serial_sum<double>, dim3(1), dim3(THREADS), 0, stream, sum, part, blocks);
}
