/* split.cu: SPLIT, SPLIT_2 and SPLIT_3: the parts of each row of x, or of each of its blocks, as
 * tensors; and the inverse, SPLIT_DX, JOIN_2 and JOIN_3. Launch: a thread for each 16 bytes of x,
 * or for each element if parts are not multiples of 16 bytes. Traffic: an element twice. */
#include "kernels/cuda/device.cuh"

namespace {

template <class T>
struct row_parts {
  T *at[3];
  int first[4]; /* column of each part, and past the last */
};

template <class T, int N, bool JOINS>
__global__ void __launch_bounds__(THREADS) move(T *x, row_parts<T> part, int64_t count) {
  const int64_t thread = (int64_t)blockIdx.x * THREADS + threadIdx.x;
  if (thread >= count) return;
  const int in_row = part.first[3] / N;
  const int64_t row = thread / in_row;
  const int column = (int)(thread - row * in_row) * N,
            k = (column >= part.first[1]) + (column >= part.first[2]);
  T *other = part.at[k] + row * (part.first[k + 1] - part.first[k]) + column - part.first[k];
  if (JOINS)
    store(x + thread * N, load<N>(other));
  else
    store(other, load<N>(x + thread * N));
}

/* `rows` rows of parts that are so wide. */
template <class T, bool JOINS>
void move_parts(const struct pen_call *call, int count, int64_t rows, const int64_t *width) {
  row_parts<T> part = {};
  bool wide = true;
  for (int k = 0; k < 3; k++) {
    part.first[k + 1] = part.first[k] + (k < count ? (int)width[k] : 0);
    wide = wide && (k >= count || is_wide<T>(width[k]));
  }
  for (int k = 0; k < count; k++) part.at[k] = (T *)call->operand[JOINS ? k : k + 1];
  const int64_t threads = rows * part.first[3] / (wide ? WIDE<T> : 1);
  const auto kernel = wide ? move<T, WIDE<T>, JOINS> : move<T, 1, JOINS>;
  PEN_LAUNCH(kernel, dim3((unsigned)ceiling(threads, THREADS)), dim3(THREADS), 0, call->stream,
             (T *)call->operand[JOINS ? count : 0], part, threads);
}

template <class T, bool JOINS>
void move_equal(const struct pen_call *call) {
  const int64_t width[] = {call->dim[1], call->dim[1], call->dim[1]};
  move_parts<T, JOINS>(call, 3, call->dim[0], width);
}

template <class T, int COUNT, bool JOINS>
void move_unequal(const struct pen_call *call) {
  move_parts<T, JOINS>(call, COUNT, call->dim[0] * call->dim[1], call->dim + 3);
}

template <class T>
void split_of(const struct pen_call *call) {
  move_equal<T, false>(call);
}

template <class T>
void split_dx_of(const struct pen_call *call) {
  move_equal<T, true>(call);
}

template <class T>
void split_2_of(const struct pen_call *call) {
  move_unequal<T, 2, false>(call);
}

template <class T>
void join_2_of(const struct pen_call *call) {
  move_unequal<T, 2, true>(call);
}

template <class T>
void split_3_of(const struct pen_call *call) {
  move_unequal<T, 3, false>(call);
}

template <class T>
void join_3_of(const struct pen_call *call) {
  move_unequal<T, 3, true>(call);
}

} /* namespace */

PEN_CUDA_BOTH(split)
PEN_CUDA_BOTH(split_dx)
PEN_CUDA_BOTH(split_2)
PEN_CUDA_BOTH(join_2)
PEN_CUDA_BOTH(split_3)
PEN_CUDA_BOTH(join_3)
