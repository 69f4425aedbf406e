/* row_sum.cu: ROW_SUM, ROW_MEAN, GROUP_SUM. Launch: a warp for a row. Sums: a thread adds its
 * elements in rising order, then warp_sum. Their gradients: element-wise (device.cuh). Traffic: an
 * element once. */
#include "kernels/cuda/device.cuh"

namespace {

template <class T, int N>
__global__ void __launch_bounds__(THREADS)
    sum_row(T *y, const T *x, int64_t rows, int width, float divisor) {
  const int64_t row = (int64_t)blockIdx.x * (THREADS / WARP) + threadIdx.x / WARP;
  if (row >= rows) return; /* uniform in a warp */
  float sum = 0;
  for (int i = (int)(threadIdx.x % WARP) * N; i < width; i += WARP * N) {
    const lanes<N> a = load<N>(x + row * width + i);
#pragma unroll
    for (int k = 0; k < N; k++) sum += a.v[k];
  }
  const lanes<1> total = {{warp_sum(sum) / divisor}};
  if (threadIdx.x % WARP == 0) store(y + row, total);
}

template <class T>
void sum_rows(const struct pen_call *call, float divisor) {
  const int64_t rows = call->dim[0], width = call->dim[1];
  const auto kernel = is_wide<T>(width) ? sum_row<T, WIDE<T>> : sum_row<T, 1>;
  PEN_LAUNCH(kernel, dim3((unsigned)ceiling(rows, THREADS / WARP)), dim3(THREADS), 0, call->stream,
             (T *)call->operand[1], (const T *)call->operand[0], rows, (int)width, divisor);
}

template <class T>
struct fill_row {
  const T *dy;
  T *dx;
  int64_t width;
  float divisor;
  template <int N>
  __device__ void run(int64_t i) const {
    lanes<N> d;
#pragma unroll
    for (int k = 0; k < N; k++) d.v[k] = widen(dy[(i + k) / width]) / divisor;
    store(dx + i, d);
  }
};

template <class T>
void fill_rows(const struct pen_call *call, float divisor) {
  const fill_row<T> op = {(const T *)call->operand[0], (T *)call->operand[1], call->dim[1],
                          divisor};
  launch_each<T>(op, call->dim[0] * call->dim[1], call->stream);
}

template <class T>
void row_sum_of(const struct pen_call *call) {
  sum_rows<T>(call, 1.0f);
}
template <class T>
void row_sum_dx_of(const struct pen_call *call) {
  fill_rows<T>(call, 1.0f);
}
template <class T>
void row_mean_of(const struct pen_call *call) {
  sum_rows<T>(call, (float)call->dim[1]);
}
template <class T>
void row_mean_dx_of(const struct pen_call *call) {
  fill_rows<T>(call, (float)call->dim[1]);
}

template <class T>
__global__ void __launch_bounds__(THREADS)
    sum_group(T *y, const T *x, int64_t groups, int64_t run) {
  const int64_t group = (int64_t)blockIdx.x * (THREADS / WARP) + threadIdx.x / WARP;
  if (group >= groups) return; /* uniform in a warp */
  float sum = 0;
  for (int64_t i = threadIdx.x % WARP; i < run; i += WARP) sum += widen(x[group * run + i]);
  const lanes<1> total = {{warp_sum(sum)}};
  for (int64_t i = threadIdx.x % WARP; i < run; i += WARP) store(y + group * run + i, total);
}

template <class T>
void group_sum_of(const struct pen_call *call) {
  const int64_t groups = call->dim[0];
  PEN_LAUNCH(sum_group<T>, dim3((unsigned)ceiling(groups, THREADS / WARP)), dim3(THREADS), 0,
             call->stream, (T *)call->operand[1], (const T *)call->operand[0], groups,
             call->dim[1]);
}

} /* namespace */

PEN_CUDA_BOTH(row_sum)
PEN_CUDA_BOTH(row_sum_dx)
PEN_CUDA_BOTH(row_mean)
PEN_CUDA_BOTH(row_mean_dx)
PEN_CUDA_BOTH(group_sum)
