/* row_sum.cu: ROW_SUM. Launch: a warp for a row. Sums: a thread adds its elements in rising order,
 * then warp_sum. Traffic: an element once. */
#include "kernels/cuda/device.cuh"

namespace {

template <class T, int N>
__global__ void __launch_bounds__(THREADS) sum_row(T *y, const T *x, int64_t rows, int width) {
  const int64_t row = (int64_t)blockIdx.x * (THREADS / WARP) + threadIdx.x / WARP;
  if (row >= rows) return; /* uniform in a warp */
  float sum = 0;
  for (int i = (int)(threadIdx.x % WARP) * N; i < width; i += WARP * N) {
    const lanes<N> a = load<N>(x + row * width + i);
#pragma unroll
    for (int k = 0; k < N; k++) sum += a.v[k];
  }
  const lanes<1> total = {{warp_sum(sum)}};
  if (threadIdx.x % WARP == 0) store(y + row, total);
}

template <class T>
void row_sum_of(const struct pen_call *call) {
  const int64_t rows = call->dim[0], width = call->dim[1];
  const auto kernel = is_wide<T>(width) ? sum_row<T, WIDE<T>> : sum_row<T, 1>;
  PEN_LAUNCH(kernel, dim3((unsigned)ceiling(rows, THREADS / WARP)), dim3(THREADS), 0, call->stream,
             (T *)call->operand[1], (const T *)call->operand[0], rows, (int)width);
}

} /* namespace */

PEN_CUDA_BOTH(row_sum)
