/* position.cu: POSITION: y[r] = x[r] + table[position of r]; with starts, positions count from the
 * start of the document. BIAS: the same with a table of one row. y may be x. Launch: a thread for
 * each 16 bytes of y, or for each element if rows are not multiples of 16 bytes. Traffic: an
 * element twice; the table is in the cache after the first sequence. */
#include "kernels/cuda/device.cuh"

namespace {

template <class E, int N>
__global__ void __launch_bounds__(THREADS)
    add_table(E *y, const E *x, const float *table, const int32_t *starts, int64_t count, int width,
              int sequence) {
  const int64_t thread = (int64_t)blockIdx.x * THREADS + threadIdx.x;
  if (thread >= count) return;
  const int in_row = width / N;
  const int64_t row = thread / in_row, i = (thread - row * in_row) * N;
  const int position = (int)(row % sequence) - (starts ? starts[row] : 0);
  lanes<N> a = load<N>(x + row * width + i);
  const lanes<N> b = load<N>(table + (int64_t)position * width + i);
#pragma unroll
  for (int k = 0; k < N; k++) a.v[k] += b.v[k];
  store(y + row * width + i, a);
}

template <class E>
void position_of(const struct pen_call *call) {
  const int width = (int)call->dim[1], sequence = (int)call->dim[2];
  const int64_t count = call->dim[0] * width / (is_wide<E>(width) ? WIDE<E> : 1);
  const auto kernel = is_wide<E>(width) ? add_table<E, WIDE<E>> : add_table<E, 1>;
  PEN_LAUNCH(kernel, dim3((unsigned)ceiling(count, THREADS)), dim3(THREADS), 0, call->stream,
             (E *)call->operand[3], (const E *)call->operand[0], (const float *)call->operand[1],
             (const int32_t *)call->operand[2], count, width, sequence);
}

template <class E>
void bias_of(const struct pen_call *call) {
  struct pen_call rows = *call;
  rows.operand[2] = NULL;
  rows.operand[3] = call->operand[2];
  rows.dim[2] = rows.dim[3] = 1;
  position_of<E>(&rows);
}

} /* namespace */

PEN_CUDA_BOTH(position)
PEN_CUDA_BOTH(bias)
