/* rope.cu: ROPE and ROPE_DX: rotation of queries and keys by position (Su et al. 2021), with split
 * halves as in Llama: (lo, hi) -> (lo cos - hi sin, hi cos + lo sin); backward with -sin. y may be
 * x. With starts, positions count from the start of the document. Launch: a thread for each 16
 * bytes of low halves of a head at a position, or for each pair if a half is not a multiple of 16
 * bytes. */
#include "kernels/cuda/device.cuh"

namespace {

template <class T, int N>
__global__ void __launch_bounds__(THREADS)
    rotate(T *y, const T *x, const float *table, const int32_t *starts, int64_t count, int sequence,
           int heads, int half, float turn) {
  const int64_t thread = (int64_t)blockIdx.x * THREADS + threadIdx.x;
  if (thread >= count) return;
  const int in_head = half / N;
  const int64_t head = thread / in_head; /* among batch x sequence x heads */
  const int i = (int)(thread - head * in_head) * N;
  const int64_t row = head / heads;
  const int position = (int)(row % sequence) - (starts ? starts[row] : 0);
  const float *angles = table + (int64_t)position * 2 * half + i;
  const int64_t at = head * 2 * half + i;
  lanes<N> lo = load<N>(x + at), hi = load<N>(x + at + half);
  const lanes<N> cosine = load<N>(angles), sine = load<N>(angles + half);
#pragma unroll
  for (int k = 0; k < N; k++) {
    const float l = lo.v[k], h = hi.v[k], c = cosine.v[k], s = sine.v[k] * turn;
    lo.v[k] = l * c - h * s;
    hi.v[k] = h * c + l * s;
  }
  store(y + at, lo);
  store(y + at + half, hi);
}

template <class T>
void rotate_all(const struct pen_call *call, float turn) {
  const int sequence = (int)call->dim[1], heads = (int)call->dim[2], half = (int)call->dim[3] / 2;
  const int64_t pairs = call->dim[0] * call->dim[1] * call->dim[2] * half,
                count = is_wide<T>(half) ? pairs / WIDE<T> : pairs;
  const auto kernel = is_wide<T>(half) ? rotate<T, WIDE<T>> : rotate<T, 1>;
  PEN_LAUNCH(kernel, dim3((unsigned)ceiling(count, THREADS)), dim3(THREADS), 0, call->stream,
             (T *)call->operand[3], (const T *)call->operand[0], (const float *)call->operand[1],
             (const int32_t *)call->operand[2], count, sequence, heads, half, turn);
}

template <class T>
void rope_of(const struct pen_call *call) {
  rotate_all<T>(call, 1.0f);
}

template <class T>
void rope_dx_of(const struct pen_call *call) {
  rotate_all<T>(call, -1.0f);
}

} /* namespace */

PEN_CUDA_BOTH(rope)
PEN_CUDA_BOTH(rope_dx)
