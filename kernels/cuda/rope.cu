/* rope.cu: ROPE and ROPE_DX: rotation of queries and keys by position (Su et al. 2021), with split
 * halves as in Llama: (lo, hi) -> (lo cos - hi sin, hi cos + lo sin); backward with -sin. y may be
 * x. With starts, positions count from the start of the document. ROPE_QKV and ROPE_QKV_DX rotate
 * the first heads of each row; if y is not x, the others are copied. Launch: a thread for each 16
 * bytes of low halves of a head at a position, or for each pair if a half is not a multiple of 16
 * bytes. ROPE_PART and ROPE_PART_DX rotate the first elements of each head, of halves or adjacent
 * ones: a thread for each pair, and for each of the others, which it copies. */
#include "kernels/cuda/device.cuh"

namespace {

template <class T, int N>
__global__ void __launch_bounds__(THREADS)
    rotate(T *y, const T *x, const float *table, const int32_t *starts, int64_t count, int sequence,
           int heads, int all, int rotated, int half, float turn) {
  const int64_t thread = (int64_t)blockIdx.x * THREADS + threadIdx.x;
  if (thread >= count) return;
  const int in_head = half / N;
  const int64_t vector = thread / in_head; /* among batch x sequence x heads */
  const int i = (int)(thread - vector * in_head) * N;
  const int64_t row = vector / heads, head = vector + row * (all - heads);
  const int position = (int)(row % sequence) - (starts ? starts[row] : 0);
  const float *angles = table + (int64_t)position * 2 * half + i;
  const int64_t at = head * 2 * half + i;
  lanes<N> lo = load<N>(x + at), hi = load<N>(x + at + half);
  if (vector - row * heads >= rotated) {
    store(y + at, lo);
    store(y + at + half, hi);
    return;
  }
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
__global__ void __launch_bounds__(THREADS)
    rotate_part(T *y, const T *x, const float *table, const int32_t *starts, int64_t count,
                int sequence, int heads, int head_dim, int half, bool pairs, float turn) {
  const int64_t thread = (int64_t)blockIdx.x * THREADS + threadIdx.x;
  if (thread >= count) return;
  const int in_head = head_dim - half;
  const int64_t vector = thread / in_head; /* among batch x sequence x heads */
  const int i = (int)(thread - vector * in_head);
  x += vector * head_dim;
  y += vector * head_dim;
  if (i >= half) {
    y[half + i] = x[half + i];
    return;
  }
  const int64_t row = vector / heads;
  const int position = (int)(row % sequence) - (starts ? starts[row] : 0);
  const float *angles = table + (int64_t)position * 2 * half + i;
  const int low = pairs ? 2 * i : i, high = pairs ? 2 * i + 1 : half + i;
  const float l = widen(x[low]), h = widen(x[high]), c = angles[0], s = angles[half] * turn;
  store(y + low, lanes<1>{{l * c - h * s}});
  store(y + high, lanes<1>{{h * c + l * s}});
}

template <class T>
void rotate_parts(const struct pen_call *call, float turn) {
  const int sequence = (int)call->dim[1], heads = (int)call->dim[2], head_dim = (int)call->dim[3],
            half = (int)call->dim[5] / 2;
  const int64_t count = call->dim[0] * call->dim[1] * heads * (head_dim - half);
  PEN_LAUNCH(rotate_part<T>, dim3((unsigned)ceiling(count, THREADS)), dim3(THREADS), 0,
             call->stream, (T *)call->operand[3], (const T *)call->operand[0],
             (const float *)call->operand[1], (const int32_t *)call->operand[2], count, sequence,
             heads, head_dim, half, call->dim[6] > 0, turn);
}

/* Of each row, which has `all` heads, the first. */
template <class T>
void rotate_heads(const struct pen_call *call, int rotated, float turn) {
  const int sequence = (int)call->dim[1], all = (int)call->dim[2], half = (int)call->dim[3] / 2,
            heads = call->operand[3] == call->operand[0] ? rotated : all;
  const int64_t pairs = call->dim[0] * call->dim[1] * heads * half,
                count = is_wide<T>(half) ? pairs / WIDE<T> : pairs;
  const auto kernel = is_wide<T>(half) ? rotate<T, WIDE<T>> : rotate<T, 1>;
  PEN_LAUNCH(kernel, dim3((unsigned)ceiling(count, THREADS)), dim3(THREADS), 0, call->stream,
             (T *)call->operand[3], (const T *)call->operand[0], (const float *)call->operand[1],
             (const int32_t *)call->operand[2], count, sequence, heads, all, rotated, half, turn);
}

int heads_of_q_and_k(const struct pen_call *call) { return (int)(call->dim[5] + call->dim[6]); }

template <class T>
void rope_of(const struct pen_call *call) {
  rotate_heads<T>(call, (int)call->dim[2], 1.0f);
}

template <class T>
void rope_dx_of(const struct pen_call *call) {
  rotate_heads<T>(call, (int)call->dim[2], -1.0f);
}

template <class T>
void rope_qkv_of(const struct pen_call *call) {
  rotate_heads<T>(call, heads_of_q_and_k(call), 1.0f);
}

template <class T>
void rope_qkv_dx_of(const struct pen_call *call) {
  rotate_heads<T>(call, heads_of_q_and_k(call), -1.0f);
}

template <class T>
void rope_part_of(const struct pen_call *call) {
  rotate_parts<T>(call, 1.0f);
}

template <class T>
void rope_part_dx_of(const struct pen_call *call) {
  rotate_parts<T>(call, -1.0f);
}

} /* namespace */

PEN_CUDA_BOTH(rope)
PEN_CUDA_BOTH(rope_dx)
PEN_CUDA_BOTH(rope_qkv)
PEN_CUDA_BOTH(rope_qkv_dx)
PEN_CUDA_BOTH(rope_part)
PEN_CUDA_BOTH(rope_part_dx)
