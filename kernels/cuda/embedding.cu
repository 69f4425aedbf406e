/* embedding.cu: EMBEDDING: y[r] = table[tokens[r]]; a token out of range gives a row of NaN (the runtime checks tokens).
 * Launch: a thread for each four elements of y, or each element where width is not a multiple of 4. Moves 8 bytes an element. */
#include "kernels/cuda/device.cuh"

namespace {

template <int N>
__global__ void __launch_bounds__(THREADS)
look_up(float *y, const int32_t *tokens, const float *table, int64_t count, int width, int vocab) {
  const int64_t thread = (int64_t)blockIdx.x * THREADS + threadIdx.x;
  if (thread >= count)
    return;
  const int in_row = width / N;
  const int64_t row = thread / in_row;
  const int64_t i = (thread - row * in_row) * N;
  const int token = tokens[row];
  lanes<N> value;
  if (token >= 0 && token < vocab) {
    value = load<N>(table + (int64_t)token * width + i);
  } else {
#pragma unroll
    for (int k = 0; k < N; k++)
      value.v[k] = nanf("");
  }
  store(y + row * width + i, value);
}

} /* namespace */

void pen_cuda_embedding(const struct pen_call *call) {
  const int32_t *tokens = (const int32_t *)call->operand[0];
  const float *table = (const float *)call->operand[1];
  float *y = (float *)call->operand[2];
  const int width = (int)call->dim[1], vocab = (int)call->dim[2];
  const int64_t count = call->dim[0] * width / (width % 4 ? 1 : 4);
  const dim3 grid((unsigned)ceiling(count, THREADS));
  if (width % 4)
    PEN_LAUNCH(look_up<1>, grid, dim3(THREADS), 0, call->stream, y, tokens, table, count, width, vocab);
  else
    PEN_LAUNCH(look_up<4>, grid, dim3(THREADS), 0, call->stream, y, tokens, table, count, width, vocab);
}
