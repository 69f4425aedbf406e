/* rope.cu: ROPE and ROPE_DX, the rotation of query and key by position (Su et al. 2021), halves split as in Llama:
 * (lo, hi) -> (lo cos - hi sin, hi cos + lo sin); backward with -sin. y may lie on x.
 * Launch: a thread for each four pairs of one head at one position, or each pair where head_dim/2 is not a multiple of 4. */
#include "kernels/cuda/device.cuh"

namespace {

template <int N>
__global__ void __launch_bounds__(THREADS)
rotate(float *y, const float *x, const float *table, int64_t count, int sequence, int heads, int half, float turn) {
  const int64_t thread = (int64_t)blockIdx.x * THREADS + threadIdx.x;
  if (thread >= count)
    return;
  const int in_head = half / N;
  const int64_t head = thread / in_head; /* among batch x sequence x heads */
  const int i = (int)(thread - head * in_head) * N;
  const int position = (int)(head / heads % sequence);
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

void rotate_all(const struct pen_call *call, float turn) {
  const float *x = (const float *)call->operand[0], *table = (const float *)call->operand[1];
  float *y = (float *)call->operand[3];
  const int sequence = (int)call->dim[1], heads = (int)call->dim[2], half = (int)call->dim[3] / 2;
  const int64_t pairs = call->dim[0] * call->dim[1] * call->dim[2] * half;
  const int64_t count = half % 4 ? pairs : pairs / 4;
  const dim3 grid((unsigned)ceiling(count, THREADS));
  if (half % 4)
    PEN_LAUNCH(rotate<1>, grid, dim3(THREADS), 0, call->stream, y, x, table, count, sequence, heads, half, turn);
  else
    PEN_LAUNCH(rotate<4>, grid, dim3(THREADS), 0, call->stream, y, x, table, count, sequence, heads, half, turn);
}

} /* namespace */

void pen_cuda_rope(const struct pen_call *call) { rotate_all(call, 1.0f); }

void pen_cuda_rope_dx(const struct pen_call *call) { rotate_all(call, -1.0f); }
