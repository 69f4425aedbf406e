/* split.cu: SPLIT and SPLIT_DX: the three parts of each row of x[rows,3,width] as three tensors,
 * and the inverse. Launch: a thread for each 16 bytes of x, or for each element if rows are not
 * multiples of 16 bytes. Traffic: an element twice. */
#include "kernels/cuda/device.cuh"

namespace {

template <class T>
struct parts {
  T *at[3];
};

template <class T, int N, bool JOINS>
__global__ void __launch_bounds__(THREADS) move(T *x, parts<T> part, int64_t count, int width) {
  const int64_t thread = (int64_t)blockIdx.x * THREADS + threadIdx.x;
  if (thread >= count) return;
  const int in_part = width / N;
  const int64_t row_part = thread / in_part, row = row_part / 3;
  T *other = part.at[row_part - row * 3] + row * width + (thread - row_part * in_part) * N;
  if (JOINS)
    store(x + thread * N, load<N>(other));
  else
    store(other, load<N>(x + thread * N));
}

template <class T, bool JOINS>
void launch(const struct pen_call *call, void *x, const parts<T> &part) {
  const int width = (int)call->dim[1], n = is_wide<T>(width) ? WIDE<T> : 1;
  const int64_t count = call->dim[0] * 3 * width / n;
  const auto kernel = n == 1 ? move<T, 1, JOINS> : move<T, WIDE<T>, JOINS>;
  PEN_LAUNCH(kernel, dim3((unsigned)ceiling(count, THREADS)), dim3(THREADS), 0, call->stream,
             (T *)x, part, count, width);
}

template <class T>
void split_of(const struct pen_call *call) {
  const parts<T> part = {{(T *)call->operand[1], (T *)call->operand[2], (T *)call->operand[3]}};
  launch<T, false>(call, call->operand[0], part);
}

template <class T>
void split_dx_of(const struct pen_call *call) {
  const parts<T> part = {{(T *)call->operand[0], (T *)call->operand[1], (T *)call->operand[2]}};
  launch<T, true>(call, call->operand[3], part);
}

} /* namespace */

PEN_CUDA_BOTH(split)
PEN_CUDA_BOTH(split_dx)
