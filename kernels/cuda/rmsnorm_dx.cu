/* rmsnorm_dx.cu: RMSNORM_DX: dx = rstd (dy gain - x rstd^2 mean(dy gain x)) + a, dgain = sum over rows of dy x rstd.
 * dx may lie on a.
 *
 * Launch: a block for each run of rows (column_sums.cuh); a warp takes a row up to 1024 wide, the block beyond. A thread keeps the sums of
 * the columns that it owns in shared memory.
 * Order of dgain: rows of a run that fall to the same warp, rising; warps, rising; then the runs. Workspace: PARTS rows of f32. Moves an
 * element three times, four with an addend. */
#include "kernels/cuda/column_sums.cuh"

namespace {

template <class E> struct problem {
  E *dx;
  float *part; /* [parts][width] */
  const E *dy, *x;
  const float *gain, *rstd;
  const E *a;
  int64_t rows, rows_a_part;
  int width;
};

/* The sum of dy gain x of one row over this thread's columns; adds dy x rstd to their dgain on the way. T threads work on a row. */
template <int T, int N, class E> __device__ inline float gain_pass(const problem<E> &p, int64_t at, float rstd, float *dgain, int first) {
  float sum = 0;
  for (int i = first; i < p.width; i += T * N) {
    const lanes<N> d = load<N>(p.dy + at + i), x = load<N>(p.x + at + i), g = load<N>(p.gain + i);
    lanes<N> total = load<N>(dgain + i);
#pragma unroll
    for (int k = 0; k < N; k++) {
      const float product = d.v[k] * x.v[k];
      sum = fmaf(product, g.v[k], sum);
      total.v[k] = fmaf(product, rstd, total.v[k]);
    }
    store(dgain + i, total);
  }
  return sum;
}

template <int T, int N, class E> __device__ inline void input_pass(const problem<E> &p, int64_t at, float rstd, float mean, int first) {
  const float pull = -rstd * rstd * rstd * mean;
  for (int i = first; i < p.width; i += T * N) {
    const lanes<N> d = load<N>(p.dy + at + i), x = load<N>(p.x + at + i), g = load<N>(p.gain + i);
    lanes<N> out = {};
    if (p.a)
      out = load<N>(p.a + at + i);
#pragma unroll
    for (int k = 0; k < N; k++)
      out.v[k] = fmaf(d.v[k] * g.v[k], rstd, fmaf(x.v[k], pull, out.v[k]));
    store(p.dx + at + i, out);
  }
}

template <class E, int T, int N> __global__ void __launch_bounds__(THREADS) differentiate(problem<E> p) {
  PEN_SHARED(shared);
  float *sums = (float *)shared; /* [THREADS / T][stride] */
  const int stride = (p.width + 3) / 4 * 4, team = (int)threadIdx.x / T, first = (int)(threadIdx.x % T) * N;
  float *dgain = sums + team * stride;
  for (int i = (int)threadIdx.x; i < THREADS / T * stride; i += THREADS)
    sums[i] = 0;
  __syncthreads();
  const int64_t begin = blockIdx.x * p.rows_a_part;
  const int64_t end = begin + p.rows_a_part < p.rows ? begin + p.rows_a_part : p.rows;
  for (int64_t row = begin + team; row < end; row += THREADS / T) {
    const float rstd = p.rstd[row];
    const float mean = block_sum<T>(gain_pass<T, N>(p, row * p.width, rstd, dgain, first)) / (float)p.width;
    input_pass<T, N>(p, row * p.width, rstd, mean, first);
  }
  __syncthreads();
  for (int i = (int)threadIdx.x; i < p.width; i += THREADS) {
    float sum = sums[i];
    for (int t = 1; t < THREADS / T; t++)
      sum += sums[t * stride + i];
    p.part[(int64_t)blockIdx.x * p.width + i] = sum;
  }
}

template <class E> struct kernels {
  static constexpr void (*of[2][2])(problem<E>) = {
    {differentiate<E, WARP, 1>, differentiate<E, WARP, WIDE<E>>},
    {differentiate<E, THREADS, 1>, differentiate<E, THREADS, WIDE<E>>},
  };
};

enum { STATIC_BYTES = 1024 /* and more than the kernels have of what is static */ };

bool is_wide_row(int64_t width) { return width > 1024; }

size_t sums_bytes(int64_t width) { return (size_t)(is_wide_row(width) ? 1 : THREADS / WARP) * (size_t)ceiling(width, 4) * 16; }

template <class E> void rmsnorm_dx_of(const struct pen_call *call) {
  const int64_t rows = call->dim[0], width = call->dim[1];
  float *part = (float *)call->workspace;
  const problem<E> p = {(E *)call->operand[5],           part,
                        (const E *)call->operand[0],     (const E *)call->operand[1],
                        (const float *)call->operand[2], (const float *)call->operand[3],
                        (const E *)call->operand[4],     rows,
                        rows_a_part(rows),               (int)width};
  const auto kernel = kernels<E>::of[is_wide_row(width)][is_wide<E>(width)];
  PEN_LAUNCH(kernel, dim3((unsigned)parts_of(rows)), dim3(THREADS), sums_bytes(width), call->stream, p);
  launch_parts<false>((float *)call->operand[6], part, rows, width, call->stream);
}

} /* namespace */

size_t pen_cuda_rmsnorm_dx_shared(const int64_t dim[PEN_DIMS_MAX]) { return sums_bytes(dim[1]) + STATIC_BYTES; }

size_t pen_cuda_rmsnorm_dx_workspace(const int64_t dim[PEN_DIMS_MAX]) { return part_bytes(dim[0], dim[1]); }

/* A row of sums stands in shared memory: past 48 KiB, 12288 wide, a kernel must be granted it. */
void pen_cuda_rmsnorm_dx_open(void) {
  for (int n = 0; n < 2; n++) {
    pen_cuda_grant("shared memory for RMSNORM_DX", (const void *)kernels<float>::of[1][n], pen_cuda_chip.shared_bytes - STATIC_BYTES);
    pen_cuda_grant("shared memory for RMSNORM_DX", (const void *)kernels<bf16>::of[1][n], pen_cuda_chip.shared_bytes - STATIC_BYTES);
  }
}

PEN_CUDA_BOTH(rmsnorm_dx)
