/* embedding.cu: EMBEDDING: y[r] = table[tokens[r]]; a token out of range gives a row of NaN (the
 * runtime checks tokens). Launch: a thread for each 16 bytes of y, or for each element if rows are
 * not multiples of 16 bytes. Traffic: an element twice. */
#include "kernels/cuda/device.cuh"

namespace {

template <class T, int N>
__global__ void __launch_bounds__(THREADS)
    look_up(T *y, const int32_t *tokens, const float *table, int64_t count, int width, int vocab) {
  const int64_t thread = (int64_t)blockIdx.x * THREADS + threadIdx.x;
  if (thread >= count) return;
  const int in_row = width / N;
  const int64_t row = thread / in_row;
  const int64_t i = (thread - row * in_row) * N;
  const int token = tokens[row];
  lanes<N> value;
  if (token >= 0 && token < vocab) {
    value = load<N>(table + (int64_t)token * width + i);
  } else {
#pragma unroll
    for (int k = 0; k < N; k++) value.v[k] = nanf("");
  }
  store(y + row * width + i, value);
}

template <class T>
void embedding_of(const struct pen_call *call) {
  const int width = (int)call->dim[1], vocab = (int)call->dim[2];
  const int64_t count = call->dim[0] * width / (is_wide<T>(width) ? WIDE<T> : 1);
  const auto kernel = is_wide<T>(width) ? look_up<T, WIDE<T>> : look_up<T, 1>;
  PEN_LAUNCH(kernel, dim3((unsigned)ceiling(count, THREADS)), dim3(THREADS), 0, call->stream,
             (T *)call->operand[2], (const int32_t *)call->operand[0],
             (const float *)call->operand[1], count, width, vocab);
}

} /* namespace */

PEN_CUDA_BOTH(embedding)
