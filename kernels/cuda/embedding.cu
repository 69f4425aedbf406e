/* embedding.cu: EMBEDDING: y[r] = table[tokens[r] - first]; a token that the table does not have
 * gives the addend's row, or without one zeros; or NaN, if no split of it has (the runtime checks
 * tokens). EMBEDDING_SELECT: so from rows that are there. y may be
 * the addend. INDEX_SELECT: y[r] = x[index[r]], as EMBEDDING from rows of the op's dtype. Launch: a
 * thread for each 16 bytes of y, or for each element if rows are not multiples of 16 bytes.
 * Traffic: an element twice. */
#include "kernels/cuda/device.cuh"

namespace {

/* Where tokens[r] is one of the `count` tokens from `first` on, row r of y is one of `own`, which
 * has a row for each of these tokens (BY_TOKEN), or for each row of y; else it is that of a, or
 * without a all 0, or NaN if there are `all` tokens, but not this one. */
template <class T, class FROM>
struct chosen_rows {
  T *y;
  const int32_t *tokens;
  const FROM *own;
  const T *a;
  int64_t units; /* threads */
  int width, first, count, all;
};

template <class T, class FROM, int N, bool BY_TOKEN>
__global__ void __launch_bounds__(THREADS) choose_rows(chosen_rows<T, FROM> p) {
  const int64_t thread = (int64_t)blockIdx.x * THREADS + threadIdx.x;
  if (thread >= p.units) return;
  const int in_row = p.width / N;
  const int64_t row = thread / in_row;
  const int64_t i = (thread - row * in_row) * N;
  const int token = p.tokens[row] - p.first;
  const bool unknown = p.all > 0 && (p.tokens[row] < 0 || p.tokens[row] >= p.all);
  lanes<N> value;
  if (token >= 0 && token < p.count) {
    value = load<N>(p.own + (BY_TOKEN ? (int64_t)token : row) * p.width + i);
  } else if (p.a) {
    value = load<N>(p.a + row * p.width + i);
  } else {
#pragma unroll
    for (int k = 0; k < N; k++) value.v[k] = unknown ? nanf("") : 0.0f;
  }
  store(p.y + row * p.width + i, value);
}

template <class T, class FROM, bool BY_TOKEN>
void launch(const struct pen_call *call, chosen_rows<T, FROM> p) {
  const bool wide = is_wide<T>(p.width);
  const auto kernel =
      wide ? choose_rows<T, FROM, WIDE<T>, BY_TOKEN> : choose_rows<T, FROM, 1, BY_TOKEN>;
  p.units = call->dim[0] * p.width / (wide ? WIDE<T> : 1);
  PEN_LAUNCH(kernel, dim3((unsigned)ceiling(p.units, THREADS)), dim3(THREADS), 0, call->stream, p);
}

template <class T>
void embedding_of(const struct pen_call *call) {
  launch<T, float, true>(
      call, {(T *)call->operand[3], (const int32_t *)call->operand[0],
             (const float *)call->operand[1], (const T *)call->operand[2], 0, (int)call->dim[1],
             (int)call->dim[3], (int)call->dim[2], (int)call->dim[4]});
}

template <class T>
void embedding_select_of(const struct pen_call *call) {
  launch<T, T, false>(call, {(T *)call->operand[3], (const int32_t *)call->operand[0],
                             (const T *)call->operand[1], (const T *)call->operand[2], 0,
                             (int)call->dim[1], (int)call->dim[3], (int)call->dim[2], 0});
}

template <class T>
void index_select_of(const struct pen_call *call) {
  launch<T, T, true>(
      call, {(T *)call->operand[2], (const int32_t *)call->operand[1], (const T *)call->operand[0],
             NULL, 0, (int)call->dim[1], 0, (int)call->dim[2], (int)call->dim[2]});
}

} /* namespace */

PEN_CUDA_BOTH(embedding)
PEN_CUDA_BOTH(embedding_select)
PEN_CUDA_BOTH(index_select)
