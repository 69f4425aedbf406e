/* position.cu: POSITION: y[r] = x[r] + table[position of r]; with starts, positions count from the
 * start of the document; the rows are of all of a sequence, or of a run of it; the table begins
 * with row `offset`. BIAS: the same with a table of one row. y may be x. Launch: a thread for each
 * 16 bytes of y, or for each element if rows are not multiples of 16 bytes. Traffic: an element
 * twice; the table is in the cache after the first sequence. */
#include "kernels/cuda/device.cuh"

namespace {

/* y and x have the `run` positions from `first` on of each sequence, starts has all. */
template <class E>
struct positions {
  E *y;
  const E *x;
  const float *table;
  const int32_t *starts;
  int64_t units; /* threads */
  int width, sequence, run, first;
};

template <class E, int N>
__global__ void __launch_bounds__(THREADS) add_table(positions<E> p) {
  const int64_t thread = (int64_t)blockIdx.x * THREADS + threadIdx.x;
  if (thread >= p.units) return;
  const int in_row = p.width / N;
  const int64_t row = thread / in_row, i = (thread - row * in_row) * N, at = row / p.run;
  const int in_sequence = p.first + (int)(row - at * p.run),
            position = in_sequence - (p.starts ? p.starts[at * p.sequence + in_sequence] : 0);
  lanes<N> a = load<N>(p.x + row * p.width + i);
  const lanes<N> b = load<N>(p.table + (int64_t)position * p.width + i);
#pragma unroll
  for (int k = 0; k < N; k++) a.v[k] += b.v[k];
  store(p.y + row * p.width + i, a);
}

template <class E>
void launch(const struct pen_call *call, positions<E> p, int64_t rows) {
  const bool wide = is_wide<E>(p.width);
  const auto kernel = wide ? add_table<E, WIDE<E>> : add_table<E, 1>;
  p.units = rows * p.width / (wide ? WIDE<E> : 1);
  PEN_LAUNCH(kernel, dim3((unsigned)ceiling(p.units, THREADS)), dim3(THREADS), 0, call->stream, p);
}

template <class E>
void position_of(const struct pen_call *call) {
  launch<E>(call,
            {(E *)call->operand[3], (const E *)call->operand[0],
             (const float *)call->operand[1] + call->dim[8] * call->dim[1],
             (const int32_t *)call->operand[2], 0, (int)call->dim[1], (int)call->dim[2],
             (int)call->dim[6], (int)call->dim[7]},
            call->dim[5]);
}

template <class E>
void bias_of(const struct pen_call *call) {
  launch<E>(call,
            {(E *)call->operand[2], (const E *)call->operand[0], (const float *)call->operand[1],
             NULL, 0, (int)call->dim[1], 1, 1, 0},
            call->dim[0]);
}

} /* namespace */

PEN_CUDA_BOTH(position)
PEN_CUDA_BOTH(bias)
