/* bias_dw.cu: BIAS_DW: dbias += sum over rows of dy; the sum is computed first.
 *
 * Launch: (columns of 32 threads) x (runs of rows, column_sums.cuh), 256 threads: a thread has the
 * columns of 16 bytes (one column if rows are not multiples of 16 bytes) of every eighth row of its
 * run. Then the runs are added. Order: every eighth row of a run, rising; the eight, rising; then
 * the runs. Workspace: PARTS rows of f32. Traffic: an element once.
 *
 * cuBLASLt's epilogue of AFFINE_DW (BGRADA) is not used: it writes the sum instead of accumulating,
 * in an undocumented order that may differ between algorithms. It would save reading dy once.
 */
#include "kernels/cuda/column_sums.cuh"

namespace {

enum { TEAMS = THREADS / WARP };

template <class E, int N>
__global__ void __launch_bounds__(THREADS)
    sum_run(float *part, const E *dy, int64_t rows, int64_t run, int width) {
  __shared__ float of_team[TEAMS][WARP * N];
  const int lane = (int)threadIdx.x % WARP, team = (int)threadIdx.x / WARP,
            first = (int)blockIdx.x * WARP * N;
  const int column = first + lane * N;
  const int64_t begin = blockIdx.y * run, end = begin + run < rows ? begin + run : rows;
  lanes<N> sum = {};
  for (int64_t row = begin + team; row < end && column < width; row += TEAMS) {
    const lanes<N> d = load<N>(dy + row * width + column);
#pragma unroll
    for (int k = 0; k < N; k++) sum.v[k] += d.v[k];
  }
#pragma unroll
  for (int k = 0; k < N; k++) of_team[team][lane * N + k] = sum.v[k];
  __syncthreads();
  for (int i = (int)threadIdx.x; i < WARP * N && first + i < width; i += THREADS) {
    float total = of_team[0][i];
    for (int t = 1; t < TEAMS; t++) total += of_team[t][i];
    part[(int64_t)blockIdx.y * width + first + i] = total;
  }
}

template <class E>
void bias_dw_of(const struct pen_call *call) {
  const int64_t rows = call->dim[0], width = call->dim[1];
  float *part = (float *)call->workspace;
  const dim3 grid((unsigned)ceiling(width, is_wide<E>(width) ? WARP * WIDE<E> : WARP),
                  (unsigned)parts_of(rows));
  const auto kernel = is_wide<E>(width) ? sum_run<E, WIDE<E>> : sum_run<E, 1>;
  PEN_LAUNCH(kernel, grid, dim3(THREADS), 0, call->stream, part, (const E *)call->operand[0], rows,
             rows_a_part(rows), (int)width);
  launch_parts<true>((float *)call->operand[1], part, rows, width, call->stream);
}

} /* namespace */

size_t pen_cuda_bias_dw_workspace(const int64_t dim[PEN_DIMS_MAX]) {
  return part_bytes(dim[0], dim[1]);
}

PEN_CUDA_BOTH(bias_dw)
