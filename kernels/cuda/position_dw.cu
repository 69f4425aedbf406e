/* position_dw.cu: POSITION_DW: dtable[offset + position of r] += dy[r], rows in rising order,
 * without atomics and with the bits of the CPU. Or of each row of the table a sum of runs is added:
 * rows in rising order within a run, then the runs pairwise (pairwise_sum.cuh).
 *
 * A thread has the columns of 16 bytes (one column if rows are not multiples of 16 bytes) of a row
 * of the table. Without starts it adds row t of each sequence; with starts it scans all rows for
 * those at position t of their document. Launch: sequence x as many blocks as columns need.
 * Traffic: an element once; with starts each row of the table scans all starts, from the
 * second-level cache.
 */
#include "kernels/cuda/pairwise_sum.cuh"

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

/* The rows of a run that are at one position of their document, rising. Without starts they are in
 * the one run that has the position, one in each sequence. */
template <class E, int N>
__device__ inline lanes<N> sum_of_run(const E *dy, const int32_t *starts, int rows, int width,
                                      int sequence, int first, int past, int position) {
  lanes<N> sum = {};
  const int from = starts                                 ? first
                   : first <= position && position < past ? position
                                                          : past,
            end = starts        ? past
                  : from < past ? from + 1
                                : past;
  for (int base = 0; base < rows; base += sequence)
    for (int t = from; t < end; t++) {
      if (starts && t - starts[base + t] != position) continue;
      const lanes<N> d = load<N>(dy + (int64_t)(base + t) * width);
#pragma unroll
      for (int k = 0; k < N; k++) sum.v[k] += d.v[k];
    }
  return sum;
}

template <class E, int N>
__global__ void __launch_bounds__(THREADS)
    gather_runs(float *dtable, const E *dy, const int32_t *starts, int rows, int width,
                int sequence, int run) {
  const int position = (int)blockIdx.x, column = ((int)blockIdx.y * THREADS + (int)threadIdx.x) * N;
  if (column >= width) return;
  pairwise_sum<N> sums;
  for (int first = 0; first < sequence; first += run)
    sums.add(
        sum_of_run<E, N>(dy + column, starts, rows, width, sequence, first, first + run, position));
  float *to = dtable + (int64_t)position * width + column;
  lanes<N> sum = load<N>(to);
  const lanes<N> all = sums.whole();
#pragma unroll
  for (int k = 0; k < N; k++) sum.v[k] += all.v[k];
  store(to, sum);
}

template <class E>
void position_dw_of(const struct pen_call *call) {
  const int width = (int)call->dim[1], sequence = (int)call->dim[2], runs = (int)call->dim[4];
  const auto rows = is_wide<E>(width) ? gather_rows<E, WIDE<E>> : gather_rows<E, 1>;
  const auto of_runs = is_wide<E>(width) ? gather_runs<E, WIDE<E>> : gather_runs<E, 1>;
  const dim3 grid((unsigned)sequence,
                  (unsigned)ceiling(width, is_wide<E>(width) ? WIDE<E> * THREADS : THREADS));
  float *const dtable = (float *)call->operand[2] + call->dim[5] * width;
  const E *const dy = (const E *)call->operand[0];
  const int32_t *const starts = (const int32_t *)call->operand[1];
  if (runs > 0)
    PEN_LAUNCH(of_runs, grid, dim3(THREADS), 0, call->stream, dtable, dy, starts, (int)call->dim[0],
               width, sequence, sequence / runs);
  else
    PEN_LAUNCH(rows, grid, dim3(THREADS), 0, call->stream, dtable, dy, starts, call->dim[0], width,
               sequence);
}

} /* namespace */

PEN_CUDA_BOTH(position_dw)
