/* rmsnorm.cu: RMSNORM (Zhang and Sennrich 2019): rstd = 1/sqrt(mean(x^2) + epsilon), y = x rstd
 * (gain + offset). Launch: a warp for a row up to 1024 wide, else a block;
 * 16-byte accesses if rows are multiples of 16 bytes. Sums: a thread adds its elements in rising
 * order, then warp_sum or block_sum. Traffic: an element twice; the second read of x hits the
 * cache. */
#include "kernels/cuda/device.cuh"

namespace {

/* T threads for each row of elements E. */
template <class E, int T, int N>
__global__ void __launch_bounds__(THREADS)
    normalise(E *y, float *rstd, const E *x, const float *gain, int64_t rows, int width,
              float epsilon, float offset) {
  const int64_t row = (int64_t)blockIdx.x * (THREADS / T) + threadIdx.x / T;
  if (row >= rows) /* uniform in a warp; never true if T == THREADS */
    return;
  const int first = (int)(threadIdx.x % T) * N;
  x += row * width;
  y += row * width;
  float sum = 0;
  for (int i = first; i < width; i += T * N) {
    const lanes<N> a = load<N>(x + i);
#pragma unroll
    for (int k = 0; k < N; k++) sum = fmaf(a.v[k], a.v[k], sum);
  }
  const float factor = 1.0f / sqrtf(block_sum<T>(sum) / (float)width + epsilon);
  if (first == 0) rstd[row] = factor;
  for (int i = first; i < width; i += T * N) {
    lanes<N> a = load<N>(x + i);
    const lanes<N> g = load_or<N>(gain, i, 1.0f);
#pragma unroll
    for (int k = 0; k < N; k++) a.v[k] = a.v[k] * factor * (g.v[k] + offset);
    store(y + i, a);
  }
}

template <class E>
void rmsnorm_of(const struct pen_call *call) {
  static void (*const kernels[2][2])(E *, float *, const E *, const float *, int64_t, int, float,
                                     float) = {
      {normalise<E, WARP, 1>, normalise<E, WARP, WIDE<E>>},
      {normalise<E, THREADS, 1>, normalise<E, THREADS, WIDE<E>>},
  };
  const int64_t rows = call->dim[0], width = call->dim[1];
  const int wide = width > 1024;
  const auto kernel = kernels[wide][is_wide<E>(width)];
  PEN_LAUNCH(kernel, dim3((unsigned)ceiling(rows, wide ? 1 : THREADS / WARP)), dim3(THREADS), 0,
             call->stream, (E *)call->operand[2], (float *)call->operand[3],
             (const E *)call->operand[0], (const float *)call->operand[1], rows, (int)width,
             (float)call->real[0], (float)call->real[1]);
}

} /* namespace */

PEN_CUDA_BOTH(rmsnorm)
