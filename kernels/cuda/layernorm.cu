/* layernorm.cu: LAYERNORM (Ba et al. 2016): rstd = 1/sqrt(mean((x - mean)^2) + epsilon), y = (x -
 * mean) rstd gain + bias. The variance is computed from x - mean in a
 * second pass, so that a mean much larger than the deviation costs no precision. Launch: as
 * RMSNORM: a warp for a row up to 1024 wide, else a block; 16-byte accesses if rows are multiples
 * of 16 bytes. Sums: a thread adds its elements in rising order, then warp_sum or block_sum.
 * Traffic: an element twice; later reads of x hit the cache.
 */
#include "kernels/cuda/device.cuh"

namespace {

template <class E>
struct layernorm_operands {
  E *y;
  float *mean, *rstd;
  const E *x;
  const float *gain, *bias;
  int64_t rows;
  int width;
  float epsilon;
};

/* The sum over a row of x - mean, or of its square, by T threads. */
template <int T, int N, bool SQUARES, class E>
__device__ inline float row_sum(const E *x, float mean, int first, int width) {
  float sum = 0;
  for (int i = first; i < width; i += T * N) {
    const lanes<N> a = load<N>(x + i);
#pragma unroll
    for (int k = 0; k < N; k++) {
      const float left = a.v[k] - mean;
      sum = SQUARES ? fmaf(left, left, sum) : sum + left;
    }
  }
  return block_sum<T>(sum);
}

template <class E, int T, int N>
__global__ void __launch_bounds__(THREADS) normalise(layernorm_operands<E> p) {
  const int64_t row = (int64_t)blockIdx.x * (THREADS / T) + threadIdx.x / T;
  if (row >= p.rows) /* uniform in a warp; never true if T == THREADS */
    return;
  const int first = (int)(threadIdx.x % T) * N;
  const E *x = p.x + row * p.width;
  const float mean = row_sum<T, N, false>(x, 0.0f, first, p.width) / (float)p.width;
  const float rstd =
      1.0f / sqrtf(row_sum<T, N, true>(x, mean, first, p.width) / (float)p.width + p.epsilon);
  if (first == 0) {
    p.mean[row] = mean;
    p.rstd[row] = rstd;
  }
  for (int i = first; i < p.width; i += T * N) {
    lanes<N> a = load<N>(x + i);
    const lanes<N> g = load_or<N>(p.gain, i, 1.0f), b = load_or<N>(p.bias, i, 0.0f);
#pragma unroll
    for (int k = 0; k < N; k++) a.v[k] = fmaf((a.v[k] - mean) * rstd, g.v[k], b.v[k]);
    store(p.y + row * p.width + i, a);
  }
}

template <class E>
void layernorm_of(const struct pen_call *call) {
  static void (*const kernels[2][2])(layernorm_operands<E>) = {
      {normalise<E, WARP, 1>, normalise<E, WARP, WIDE<E>>},
      {normalise<E, THREADS, 1>, normalise<E, THREADS, WIDE<E>>},
  };
  const int64_t rows = call->dim[0], width = call->dim[1];
  const layernorm_operands<E> p = {(E *)call->operand[3],
                                   (float *)call->operand[4],
                                   (float *)call->operand[5],
                                   (const E *)call->operand[0],
                                   (const float *)call->operand[1],
                                   (const float *)call->operand[2],
                                   rows,
                                   (int)width,
                                   (float)call->real[0]};
  const int wide = width > 1024;
  const auto kernel = kernels[wide][is_wide<E>(width)];
  PEN_LAUNCH(kernel, dim3((unsigned)ceiling(rows, wide ? 1 : THREADS / WARP)), dim3(THREADS), 0,
             call->stream, p);
}

} /* namespace */

PEN_CUDA_BOTH(layernorm)
