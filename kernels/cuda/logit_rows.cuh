/* logit_rows.cuh: what the losses share: a block goes over a row of logits. */
#ifndef PEN_CUDA_LOGIT_ROWS_CUH
#define PEN_CUDA_LOGIT_ROWS_CUH

#include "kernels/cuda/exponential.cuh"

enum { ROW_THREADS = 1024 };

/* The threads of a block that has a row. */
static inline int row_threads(int64_t vocab) {
  return vocab > 4096 ? (int)ROW_THREADS : (int)THREADS;
}

/* A row may be unaligned: `head` elements one by one, then `wide` times the N elements of 16 bytes,
 * aligned, then the rest one by one. */
struct span {
  int head, wide, count;
};

template <int N>
static __device__ inline span span_of(int64_t at, int count) {
  const int head = (int)((N - at % N) % N);
  const int from = head < count ? head : count;
  return {from, (count - from) / N, count};
}

/* Calls f.run<N>(i) and f.run<1>(i) over a row, with B threads. */
template <int B, int N, class F>
static __device__ inline void over_row(const span &s, F &f) {
  for (int i = (int)threadIdx.x; i < s.wide; i += B) f.template run<N>(s.head + N * i);
  for (int i = (int)threadIdx.x; i < s.count - N * s.wide; i += B)
    f.template run<1>(i < s.head ? i : i + N * s.wide);
}

/* The maximum of a thread's elements, and the sum of their e^(x - maximum). */
template <class T>
struct soft_sum {
  const T *x;
  float most, sum;
  template <int N>
  __device__ void run(int i) {
    const lanes<N> a = load<N>(x + i);
    float high = a.v[0];
#pragma unroll
    for (int k = 1; k < N; k++) high = fmaxf(high, a.v[k]);
    if (high > most) {
      sum *= exponential<T>(most - high);
      most = high;
    }
#pragma unroll
    for (int k = 0; k < N; k++) sum += exponential<T>(a.v[k] - most);
  }
};

/* dx = factor e^(x - most), less `scale` at the target, if the row has it. */
template <class T>
struct logit_gradient {
  const T *x;
  T *dx;
  float most, factor;
  int target;
  float scale;
  template <int N>
  __device__ void run(int i) {
    lanes<N> a = load<N>(x + i);
#pragma unroll
    for (int k = 0; k < N; k++) {
      a.v[k] = exponential<T>(a.v[k] - most) * factor;
      if (i + k == target) a.v[k] -= scale;
    }
    store(dx + i, a);
  }
};

/* dx = 0 */
template <class T>
struct nothing {
  T *dx;
  template <int N>
  __device__ void run(int i) {
    store(dx + i, lanes<N>{});
  }
};

template <int B>
static __device__ inline float block_maximum(float x) {
  __shared__ float of_warp[B / WARP];
  x = warp_maximum(x);
  if (threadIdx.x % WARP == 0) of_warp[threadIdx.x / WARP] = x;
  __syncthreads();
  float most = of_warp[0];
#pragma unroll
  for (int w = 1; w < B / WARP; w++) most = fmaxf(most, of_warp[w]);
  return most;
}

#endif
