/* copy_blocks.cu: COPY_BLOCKS, SELECT_TOKENS, SHARD_SEQUENCE and UNSHARD_SEQUENCE: some blocks of
 * each row, put into a row of zeros or added to a row. Launch: a thread for each element of y.
 * Traffic: what is copied twice, y and a once. */
#include "kernels/cuda/device.cuh"

namespace {

/* Of each row of x, of `from` elements, those from `source` on go to those of y from `target` on.
 */
template <class T>
struct copy_row {
  const T *x, *a; /* a null: 0 */
  T *y;
  int64_t from, to, source, target;
  template <int N>
  __device__ void run(int64_t i) const {
    lanes<N> sum;
    if (a)
      sum = load<N>(a + i);
    else
#pragma unroll
      for (int k = 0; k < N; k++) sum.v[k] = 0.0f;
#pragma unroll
    for (int k = 0; k < N; k++) {
      const int64_t row = (i + k) / to, at = i + k - row * to - target + source;
      if (at < source || at >= from) continue;
      const float added = widen(x[row * from + at]);
      sum.v[k] = a ? sum.v[k] + added : added;
    }
    store(y + i, sum);
  }
};

template <class T>
void copy_blocks_of(const struct pen_call *call) {
  const int64_t inner = call->dim[4];
  const copy_row<T> op = {(const T *)call->operand[0], (const T *)call->operand[1],
                          (T *)call->operand[2],       call->dim[2] * inner,
                          call->dim[3] * inner,        call->dim[5] * inner,
                          call->dim[6] * inner};
  launch_each<T>(op, call->dim[0] * call->dim[1] * op.to, call->stream);
}

/* Of each sequence of x so many tokens from the `first` on. */
template <class T>
void copy_tokens(const struct pen_call *call, int64_t tokens, int64_t first) {
  const int64_t width = call->dim[3];
  const copy_row<T> op = {(const T *)call->operand[0],
                          NULL,
                          (T *)call->operand[1],
                          call->dim[1] * width,
                          tokens * width,
                          first * width,
                          0};
  launch_each<T>(op, call->dim[0] * op.to, call->stream);
}

template <class T>
void select_tokens_of(const struct pen_call *call) {
  copy_tokens<T>(call, call->dim[2], call->dim[4]);
}

template <class T>
void shard_sequence_of(const struct pen_call *call) {
  copy_tokens<T>(call, call->dim[2], call->dim[4]);
}

template <class T>
void unshard_sequence_of(const struct pen_call *call) {
  copy_tokens<T>(call, call->dim[1], 0);
}

} /* namespace */

PEN_CUDA_BOTH(copy_blocks)
PEN_CUDA_BOTH(select_tokens)
PEN_CUDA_BOTH(shard_sequence)
PEN_CUDA_BOTH(unshard_sequence)
