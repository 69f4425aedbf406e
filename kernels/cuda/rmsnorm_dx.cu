/* rmsnorm_dx.cu: RMSNORM_DX: dx = rstd (dy gain - x rstd^2 mean(dy gain x)) + a, dgain = sum over rows of dy x rstd.
 * dx may lie on a.
 *
 * Launch: the rows are cut into at most PARTS equal runs, a block each; a warp takes a row up to 1024 wide, the block beyond. A
 * thread keeps the sums of the columns that it owns in shared memory. A second kernel adds the blocks' sums.
 * Order of dgain: rows of a run that fall to the same warp, rising; warps, rising; then of eight groups of every eighth run, rising
 * in each, the groups, rising. Workspace: PARTS rows of f32. Moves 12 bytes an element, 16 with an addend. */
#include "kernels/cuda/device.cuh"

namespace {

enum { PARTS = 512, COLUMNS = 32, GROUPS = 8 };

struct problem {
  float *dx, *part; /* part[parts][width] */
  const float *dy, *x, *gain, *rstd, *a;
  int64_t rows, rows_a_part;
  int width;
};

/* The sum of dy gain x of one row over this thread's columns; adds dy x rstd to their dgain on the way. */
template <int T, int N> __device__ inline float gain_pass(const problem &p, int64_t at, float rstd, float *dgain, int first) {
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

template <int T, int N> __device__ inline void input_pass(const problem &p, int64_t at, float rstd, float mean, int first) {
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

template <int T, int N> __global__ void __launch_bounds__(THREADS) differentiate(problem p) {
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

__global__ void __launch_bounds__(COLUMNS *GROUPS) add_parts(float *dgain, const float *part, int parts, int width) {
  __shared__ float of_group[GROUPS][COLUMNS];
  const int lane = (int)threadIdx.x % COLUMNS, group = (int)threadIdx.x / COLUMNS;
  const int column = (int)blockIdx.x * COLUMNS + lane;
  float sum = 0;
  if (column < width)
#pragma unroll 8
    for (int i = group; i < parts; i += GROUPS)
      sum += part[(int64_t)i * width + column];
  of_group[group][lane] = sum;
  __syncthreads();
  if (group != 0 || column >= width)
    return;
  for (int g = 1; g < GROUPS; g++)
    sum += of_group[g][lane];
  dgain[column] = sum;
}

typedef void differentiate_kernel(problem);
differentiate_kernel *const kernels[2][2] = {
  {differentiate<WARP, 1>, differentiate<WARP, 4>},
  {differentiate<THREADS, 1>, differentiate<THREADS, 4>},
};

int64_t parts_of(int64_t rows) { return ceiling(rows, ceiling(rows, PARTS)); }

} /* namespace */

size_t pen_cuda_rmsnorm_dx_workspace(const int64_t dim[PEN_DIMS_MAX]) {
  return (size_t)(parts_of(dim[0]) * dim[1]) * sizeof(float);
}

/* A row of sums stands in shared memory: past 48 KiB, 12288 wide, a kernel must be granted it. */
void pen_cuda_rmsnorm_dx_open(void) {
  for (int n = 0; n < 2; n++)
    pen_cuda_grant("shared memory for RMSNORM_DX", (const void *)kernels[1][n], pen_cuda_chip.shared_bytes - 1024 /* what is static */);
}

void pen_cuda_rmsnorm_dx(const struct pen_call *call) {
  const int64_t rows = call->dim[0], width = call->dim[1];
  const problem p = {(float *)call->operand[5],       (float *)call->workspace,        (const float *)call->operand[0],
                     (const float *)call->operand[1], (const float *)call->operand[2], (const float *)call->operand[3],
                     (const float *)call->operand[4], rows, ceiling(rows, PARTS),      (int)width};
  const int wide = width > 1024, parts = (int)parts_of(rows);
  const size_t shared_bytes = (size_t)(wide ? 1 : THREADS / WARP) * (size_t)ceiling(width, 4) * 16;
  differentiate_kernel *const kernel = kernels[wide][width % 4 == 0];
  PEN_LAUNCH(kernel, dim3((unsigned)parts), dim3(THREADS), shared_bytes, call->stream, p);
  PEN_LAUNCH(add_parts, dim3((unsigned)ceiling(width, COLUMNS)), dim3(COLUMNS * GROUPS), 0, call->stream, (float *)call->operand[6],
             (const float *)call->workspace, parts, (int)width);
}
