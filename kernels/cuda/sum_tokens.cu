/* sum_tokens.cu: SUM_TOKENS, REPEAT_TOKENS. Launch: a thread for a column of a sequence, which adds
 * the tokens in rising order; element-wise (device.cuh). Traffic: an element once. */
#include "kernels/cuda/device.cuh"

namespace {

template <class T>
struct sum_token {
  const T *x;
  T *y;
  int64_t sequence, width;
  float divisor;
  template <int N>
  __device__ void run(int64_t i) const {
#pragma unroll
    for (int k = 0; k < N; k++) {
      const T *from = x + (i + k) / width * sequence * width + (i + k) % width;
      lanes<1> sum = {{0}};
      for (int64_t t = 0; t < sequence; t++) sum.v[0] += widen(from[t * width]);
      sum.v[0] /= divisor;
      store(y + i + k, sum);
    }
  }
};

template <class T>
struct repeat_token {
  const T *x;
  T *y;
  int64_t sequence, width;
  float divisor;
  template <int N>
  __device__ void run(int64_t i) const {
    lanes<N> value;
#pragma unroll
    for (int k = 0; k < N; k++)
      value.v[k] = widen(x[(i + k) / (sequence * width) * width + (i + k) % width]) / divisor;
    store(y + i, value);
  }
};

float divisor_of(const struct pen_call *call) { return call->dim[3] ? (float)call->dim[1] : 1.0f; }

template <class T>
void sum_tokens_of(const struct pen_call *call) {
  const sum_token<T> op = {(const T *)call->operand[0], (T *)call->operand[1], call->dim[1],
                           call->dim[2], divisor_of(call)};
  launch_each<T>(op, call->dim[0] * call->dim[2], call->stream);
}
template <class T>
void repeat_tokens_of(const struct pen_call *call) {
  const repeat_token<T> op = {(const T *)call->operand[0], (T *)call->operand[1], call->dim[1],
                              call->dim[2], divisor_of(call)};
  launch_each<T>(op, call->dim[0] * call->dim[1] * call->dim[2], call->stream);
}

} /* namespace */

PEN_CUDA_BOTH(sum_tokens)
PEN_CUDA_BOTH(repeat_tokens)
