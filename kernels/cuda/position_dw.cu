/* position_dw.cu: POSITION_DW: dtable[position of r] += dy[r], rows in rising order, without
 * atomics and with the bits of the CPU.
 *
 * A thread has the columns of 16 bytes (one column if rows are not multiples of 16 bytes) of a row
 * of the table. Without starts it adds row t of each sequence; with starts it scans all rows for
 * those at position t of their document. Launch: sequence x runs of 256 threads' columns. Traffic:
 * an element once; with starts each row of the table scans all starts, from the second-level cache.
 */
#include "kernels/cuda/device.cuh"

namespace {

template <class E, int N>
__global__ void __launch_bounds__(THREADS)
    gather_rows(float *dtable, const E *dy, const int32_t *starts, int64_t rows, int width,
                int sequence) {
  const int position = (int)blockIdx.x, column = ((int)blockIdx.y * THREADS + (int)threadIdx.x) * N;
  if (column >= width) return;
  float *to = dtable + (int64_t)position * width + column;
  lanes<N> sum = load<N>(to);
  const int step = starts ? 1 : sequence;
  for (int64_t row = position; row < rows; row += step) {
    if (starts && (int)(row % sequence) - starts[row] != position) continue;
    const lanes<N> d = load<N>(dy + row * width + column);
#pragma unroll
    for (int k = 0; k < N; k++) sum.v[k] += d.v[k];
  }
  store(to, sum);
}

template <class E>
void position_dw_of(const struct pen_call *call) {
  const int width = (int)call->dim[1], sequence = (int)call->dim[2];
  const dim3 grid((unsigned)sequence,
                  (unsigned)ceiling(width, is_wide<E>(width) ? WIDE<E> * THREADS : THREADS));
  const auto kernel = is_wide<E>(width) ? gather_rows<E, WIDE<E>> : gather_rows<E, 1>;
  PEN_LAUNCH(kernel, grid, dim3(THREADS), 0, call->stream, (float *)call->operand[2],
             (const E *)call->operand[0], (const int32_t *)call->operand[1], call->dim[0], width,
             sequence);
}

} /* namespace */

PEN_CUDA_BOTH(position_dw)
