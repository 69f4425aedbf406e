/* layernorm_dx.cu: LAYERNORM_DX: with n = (x - mean) rstd: dx = rstd (dy gain - mean(dy gain) - n mean(dy gain n)) + a,
 * dgain = sum over rows of dy n, dbias = sum over rows of dy. dx may lie on a.
 *
 * Launch: as RMSNORM_DX: a block for each run of rows (column_sums.cuh); a warp takes a row up to 1024 wide, the block beyond. A thread
 * keeps the sums of the columns that it owns, of dgain and of dbias, in shared memory.
 * Order of dgain and dbias: rows of a run that fall to the same warp, rising; warps, rising; then the runs. Workspace: twice PARTS rows of
 * f32. Moves an element three times, four with an addend. */
#include "kernels/cuda/column_sums.cuh"

namespace {

template <class E> struct problem {
  E *dx;
  float *gain_part, *bias_part; /* [parts][width] */
  const E *dy, *x;
  const float *gain, *mean, *rstd;
  const E *a;
  int64_t rows, rows_a_part;
  int width;
};

/* Over one row: the sums of dy gain, and of dy gain n. */
struct pulls {
  float plain, along;
};

/* This thread's share of the two; adds dy n and dy to its columns' dgain and dbias on the way. T threads work on a row. */
template <int T, int N, class E>
__device__ inline pulls gradient_pass(const problem<E> &p, int64_t row, float *dgain, float *dbias, int first) {
  const float mean = p.mean[row], rstd = p.rstd[row];
  const int64_t at = row * p.width;
  pulls pull = {0, 0};
  for (int i = first; i < p.width; i += T * N) {
    const lanes<N> d = load<N>(p.dy + at + i), x = load<N>(p.x + at + i), g = load<N>(p.gain + i);
    lanes<N> gains = load<N>(dgain + i), biases = load<N>(dbias + i);
#pragma unroll
    for (int k = 0; k < N; k++) {
      const float n = (x.v[k] - mean) * rstd, product = d.v[k] * g.v[k];
      pull.plain += product;
      pull.along = fmaf(product, n, pull.along);
      gains.v[k] = fmaf(d.v[k], n, gains.v[k]);
      biases.v[k] += d.v[k];
    }
    store(dgain + i, gains);
    store(dbias + i, biases);
  }
  return pull;
}

template <int T, int N, class E> __device__ inline void input_pass(const problem<E> &p, int64_t row, pulls mean_pull, int first) {
  const float mean = p.mean[row], rstd = p.rstd[row];
  const int64_t at = row * p.width;
  for (int i = first; i < p.width; i += T * N) {
    const lanes<N> d = load<N>(p.dy + at + i), x = load<N>(p.x + at + i), g = load<N>(p.gain + i);
    lanes<N> out = {};
    if (p.a)
      out = load<N>(p.a + at + i);
#pragma unroll
    for (int k = 0; k < N; k++) {
      const float n = (x.v[k] - mean) * rstd;
      out.v[k] = fmaf(fmaf(n, -mean_pull.along, d.v[k] * g.v[k] - mean_pull.plain), rstd, out.v[k]);
    }
    store(p.dx + at + i, out);
  }
}

/* The teams' sums of one column, teams in rising order. */
__device__ inline float over_teams(const float *sums, int teams, int apart, int column) {
  float sum = sums[column];
  for (int t = 1; t < teams; t++)
    sum += sums[t * apart + column];
  return sum;
}

template <class E, int T, int N> __global__ void __launch_bounds__(THREADS) differentiate(problem<E> p) {
  PEN_SHARED(shared);
  float *sums = (float *)shared; /* [THREADS / T][2][stride]: dgain, dbias */
  const int stride = (p.width + 3) / 4 * 4, team = (int)threadIdx.x / T, first = (int)(threadIdx.x % T) * N;
  float *dgain = sums + team * 2 * stride, *dbias = dgain + stride;
  for (int i = (int)threadIdx.x; i < THREADS / T * 2 * stride; i += THREADS)
    sums[i] = 0;
  __syncthreads();
  const int64_t begin = blockIdx.x * p.rows_a_part;
  const int64_t end = begin + p.rows_a_part < p.rows ? begin + p.rows_a_part : p.rows;
  for (int64_t row = begin + team; row < end; row += THREADS / T) {
    pulls pull = gradient_pass<T, N>(p, row, dgain, dbias, first);
    pull.plain = block_sum<T>(pull.plain) / (float)p.width;
    pull.along = block_sum<T>(pull.along) / (float)p.width;
    input_pass<T, N>(p, row, pull, first);
  }
  __syncthreads();
  for (int i = (int)threadIdx.x; i < p.width; i += THREADS) {
    p.gain_part[(int64_t)blockIdx.x * p.width + i] = over_teams(sums, THREADS / T, 2 * stride, i);
    p.bias_part[(int64_t)blockIdx.x * p.width + i] = over_teams(sums + stride, THREADS / T, 2 * stride, i);
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

size_t sums_bytes(int64_t width) { return (size_t)(is_wide_row(width) ? 1 : THREADS / WARP) * (size_t)ceiling(width, 4) * 32; }

template <class E> void layernorm_dx_of(const struct pen_call *call) {
  const int64_t rows = call->dim[0], width = call->dim[1];
  float *gain_part = (float *)call->workspace, *bias_part = gain_part + parts_of(rows) * width;
  const problem<E> p = {(E *)call->operand[6],           gain_part,
                        bias_part,                       (const E *)call->operand[0],
                        (const E *)call->operand[1],     (const float *)call->operand[2],
                        (const float *)call->operand[3], (const float *)call->operand[4],
                        (const E *)call->operand[5],     rows,
                        rows_a_part(rows),               (int)width};
  const auto kernel = kernels<E>::of[is_wide_row(width)][is_wide<E>(width)];
  PEN_LAUNCH(kernel, dim3((unsigned)parts_of(rows)), dim3(THREADS), sums_bytes(width), call->stream, p);
  launch_parts<false>((float *)call->operand[7], gain_part, rows, width, call->stream);
  launch_parts<false>((float *)call->operand[8], bias_part, rows, width, call->stream);
}

} /* namespace */

size_t pen_cuda_layernorm_dx_shared(const int64_t dim[PEN_DIMS_MAX]) { return sums_bytes(dim[1]) + STATIC_BYTES; }

size_t pen_cuda_layernorm_dx_workspace(const int64_t dim[PEN_DIMS_MAX]) { return 2 * part_bytes(dim[0], dim[1]); }

/* Two rows of sums a warp, or a block, stand in shared memory: past 48 KiB, 768 or 6144 wide, a kernel must be granted it. */
void pen_cuda_layernorm_dx_open(void) {
  const size_t bytes = pen_cuda_chip.shared_bytes - STATIC_BYTES;
  for (int i = 0; i < 4; i++) {
    pen_cuda_grant("shared memory for LAYERNORM_DX", (const void *)kernels<float>::of[i / 2][i % 2], bytes);
    pen_cuda_grant("shared memory for LAYERNORM_DX", (const void *)kernels<bf16>::of[i / 2][i % 2], bytes);
  }
}

PEN_CUDA_BOTH(layernorm_dx)
