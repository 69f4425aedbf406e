/* bias_dw.cu: BIAS_DW: dbias += sum over rows of dy; the sum is computed first, or is
 * a sum of runs.
 *
 * Launch: (columns of 32 threads) x (parts of rows, column_sums.cuh), 256 threads: a thread has the
 * columns of 16 bytes (one column if rows are not multiples of 16 bytes) of every eighth row of its
 * part. Then the parts are added. Order: every eighth row of a part, rising; the eight, rising;
 * then the parts. Workspace: PARTS rows of f32, or RUN_PARTS a run. Traffic: an element once.
 *
 * cuBLASLt's epilogue of AFFINE_DW (BGRADA) is not used: it writes the sum instead of accumulating,
 * in an undocumented order that may differ between algorithms. It would save reading dy once.
 */
#include "kernels/cuda/column_sums.cuh"

namespace {

enum { TEAMS = THREADS / WARP };

template <class E, int N, bool RUNS>
__global__ void __launch_bounds__(THREADS)
    sum_part(float *part, const E *dy, row_part rows, int width) {
  __shared__ float of_team[TEAMS][WARP * N];
  const int lane = (int)threadIdx.x % WARP, team = (int)threadIdx.x / WARP,
            first = (int)blockIdx.x * WARP * N, number = (int)blockIdx.y;
  const int column = first + lane * N;
  const row_part own = part_at<RUNS>(rows, number);
  lanes<N> sum = {};
  for (int64_t i = own.begin + team; i < own.end && column < width; i += TEAMS) {
    const lanes<N> d = load<N>(dy + row_at<RUNS>(own, number, i) * width + column);
#pragma unroll
    for (int k = 0; k < N; k++) sum.v[k] += d.v[k];
  }
#pragma unroll
  for (int k = 0; k < N; k++) of_team[team][lane * N + k] = sum.v[k];
  __syncthreads();
  for (int i = (int)threadIdx.x; i < WARP * N && first + i < width; i += THREADS) {
    float total = of_team[0][i];
    for (int t = 1; t < TEAMS; t++) total += of_team[t][i];
    part[(int64_t)number * width + first + i] = total;
  }
}

template <class E, bool RUNS>
void add_columns(const struct pen_call *call) {
  float *part = (float *)call->workspace;
  const int64_t width = call->dim[1];
  const summed_rows of = summed_rows::of(call->dim);
  const dim3 grid((unsigned)ceiling(width, is_wide<E>(width) ? WARP * WIDE<E> : WARP),
                  (unsigned)of.blocks());
  const auto kernel = is_wide<E>(width) ? sum_part<E, WIDE<E>, RUNS> : sum_part<E, 1, RUNS>;
  PEN_LAUNCH(kernel, grid, dim3(THREADS), 0, call->stream, part, (const E *)call->operand[0],
             part_of(of), (int)width);
  launch_parts<true>((float *)call->operand[1], part, of, width, call->stream);
}

template <class E>
void bias_dw_of(const struct pen_call *call) {
  (call->dim[3] > 0 ? add_columns<E, true> : add_columns<E, false>)(call);
}

} /* namespace */

PEN_CUDA_BOTH(bias_dw)
