/* logits.cu: of a split of the vocabulary: LOGITS_MAXIMUM and LOGITS_SUM, a number for each row,
 * and LOGITS_JOIN, which puts the split's columns among those of all.
 *
 * Launch: a block of 1024 threads for each row, 256 if the split has at most 4096 tokens;
 * LOGITS_JOIN: a thread for each element. Sums: a thread adds its exponentials in f32, the sums of
 * threads are added in f64 (block_sum). A NaN may be lost from the maximum; it is in the sum.
 * Traffic: an element once.
 */
#include <math.h>

#include "kernels/cuda/logit_rows.cuh"

namespace {

template <class T>
struct greatest {
  const T *x;
  float most;
  template <int N>
  __device__ void run(int i) {
    const lanes<N> a = load<N>(x + i);
#pragma unroll
    for (int k = 0; k < N; k++) most = fmaxf(most, a.v[k]);
  }
};

template <class T, int B>
__global__ void __launch_bounds__(B)
    row_maximum(float *maximum, const T *logits, const float *before, int vocab) {
  const int64_t row = blockIdx.x, at = row * vocab;
  greatest<T> own = {logits + at, -INFINITY};
  over_row<B, WIDE<T>>(span_of<WIDE<T>>(at, vocab), own);
  const float most = block_maximum<B>(own.most);
  if (threadIdx.x == 0) maximum[row] = before && !(most > before[row]) ? before[row] : most;
}

template <class T>
struct exponentials {
  const T *x;
  float most, sum;
  template <int N>
  __device__ void run(int i) {
    const lanes<N> a = load<N>(x + i);
#pragma unroll
    for (int k = 0; k < N; k++) sum += exponential<T>(a.v[k] - most);
  }
};

template <class T, int B>
__global__ void __launch_bounds__(B)
    row_sum(double *sum, const T *logits, const float *maximum, int vocab) {
  const int64_t row = blockIdx.x, at = row * vocab;
  exponentials<T> own = {logits + at, maximum[row], 0};
  over_row<B, WIDE<T>>(span_of<WIDE<T>>(at, vocab), own);
  const double all = block_sum<B>((double)own.sum);
  if (threadIdx.x == 0) sum[row] = all;
}

template <class T>
void logits_maximum_of(const struct pen_call *call) {
  const int vocab = (int)call->dim[1], threads = row_threads(vocab);
  const auto kernel = threads > THREADS ? row_maximum<T, ROW_THREADS> : row_maximum<T, THREADS>;
  PEN_LAUNCH(kernel, dim3((unsigned)call->dim[0]), dim3((unsigned)threads), 0, call->stream,
             (float *)call->operand[2], (const T *)call->operand[0],
             (const float *)call->operand[1], vocab);
}

template <class T>
void logits_sum_of(const struct pen_call *call) {
  const int vocab = (int)call->dim[1], threads = row_threads(vocab);
  const auto kernel = threads > THREADS ? row_sum<T, ROW_THREADS> : row_sum<T, THREADS>;
  PEN_LAUNCH(kernel, dim3((unsigned)call->dim[0]), dim3((unsigned)threads), 0, call->stream,
             (double *)call->operand[2], (const T *)call->operand[0],
             (const float *)call->operand[1], vocab);
}

/* y may be a. */
template <class T>
__global__ void __launch_bounds__(THREADS)
    join(T *y, const T *logits, const T *a, int64_t count, int vocab, int first, int tokens) {
  const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
  if (i >= count) return;
  const int64_t row = i / tokens;
  const int column = (int)(i - row * tokens) - first;
  if (column >= 0 && column < vocab)
    y[i] = logits[row * vocab + column];
  else if (a != y)
    y[i] = a ? a[i] : T(0);
}

template <class T>
void logits_join_of(const struct pen_call *call) {
  const int64_t count = call->dim[0] * call->dim[3];
  PEN_LAUNCH(join<T>, dim3((unsigned)ceiling(count, THREADS)), dim3(THREADS), 0, call->stream,
             (T *)call->operand[2], (const T *)call->operand[0], (const T *)call->operand[1], count,
             (int)call->dim[1], (int)call->dim[2], (int)call->dim[3]);
}

} /* namespace */

PEN_CUDA_BOTH(logits_maximum)
PEN_CUDA_BOTH(logits_sum)
PEN_CUDA_BOTH(logits_join)
