/* column_sums.cuh: sums over rows, for each column, in a fixed order: rows are divided into at most
 * PARTS equal parts, a block sums each part into part[parts][width], and the kernel below adds the
 * parts. Order: eight groups of every eighth part, rising in each; the groups, rising; then, if it
 * accumulates, the previous value.
 *
 * A sum of runs (docs/contracts.md, "Splits") is that of the sums of each run, added pairwise. A
 * run's rows, those of the first sequence before those of the next, are divided into at most
 * RUN_PARTS parts: by the shape of a run alone, whatever number of runs a rank has.
 */
#ifndef PEN_CUDA_COLUMN_SUMS_CUH
#define PEN_CUDA_COLUMN_SUMS_CUH

#include "kernels/cuda/pairwise_sum.cuh"

enum {
  PARTS = 264 /* two blocks for each processor of an H200 */,
  RUN_PARTS = 64,
  COLUMNS = 32,
  GROUPS = 8
};
static_assert(PARTS * sizeof(float) == 1056 && RUN_PARTS * sizeof(float) == 256,
              "the workspace in ops.def");

/* The rows of a sum, or of each run of one. */
struct summed_rows {
  int64_t rows;
  int sequence, run; /* with runs: the positions of a sequence, and of a run */
  int runs;
  /* dims: rows, width, sequence, runs; 0 runs: it is no sum of runs */
  static summed_rows of(const int64_t dim[PEN_DIMS_MAX]) {
    if (dim[3] == 0) return {dim[0], 0, 0, 1};
    return {dim[0] / dim[3], (int)dim[2], (int)(dim[2] / dim[3]), (int)dim[3]};
  }
  int64_t rows_a_part() const { return ceiling(rows, run ? RUN_PARTS : PARTS); }
  int64_t parts() const { return ceiling(rows, rows_a_part()); }
  int64_t blocks() const { return runs * parts(); }
};

/* The part of a block: rows [begin, end) of the sum, or of a run. */
struct row_part {
  int64_t begin, end, rows_a_part, rows;
  int sequence, run, parts;
};

static inline row_part part_of(const summed_rows &of) {
  return {0, 0, of.rows_a_part(), of.rows, of.sequence, of.run, (int)of.parts()};
}

/* The part of block `number`. */
template <bool RUNS>
static __device__ inline row_part part_at(row_part p, int number) {
  p.begin = (RUNS ? number % p.parts : number) * p.rows_a_part;
  const int64_t past = p.begin + p.rows_a_part;
  p.end = past < p.rows ? past : p.rows;
  return p;
}

/* Row i of the part of block `number`, as a row of the tensor. */
template <bool RUNS>
static __device__ inline int64_t row_at(const row_part &p, int number, int64_t i) {
  if (!RUNS) return i;
  const int at = (int)i, sequence = at / p.run;
  return (int64_t)sequence * p.sequence + number / p.parts * p.run + (at - sequence * p.run);
}

/* The sum of a column's parts, in the threads of group 0; all threads call it. */
static __device__ inline float sum_of_parts(const float *part, int parts, int width) {
  __shared__ float of_group[GROUPS][COLUMNS];
  const int lane = (int)threadIdx.x % COLUMNS, group = (int)threadIdx.x / COLUMNS;
  const int column = (int)blockIdx.x * COLUMNS + lane;
  float sum = 0;
  if (column < width)
#pragma unroll 8
    for (int i = group; i < parts; i += GROUPS) sum += part[(int64_t)i * width + column];
  __syncthreads(); /* a previous call may still read of_group */
  of_group[group][lane] = sum;
  __syncthreads();
  for (int g = 1; g < GROUPS && group == 0; g++) sum += of_group[g][lane];
  return sum;
}

template <bool ACCUMULATES>
static __device__ inline void put_column(float *to, float sum, int width) {
  const int column = (int)blockIdx.x * COLUMNS + (int)threadIdx.x;
  if (threadIdx.x < COLUMNS && column < width) to[column] = ACCUMULATES ? to[column] + sum : sum;
}

template <bool ACCUMULATES>
__global__ void __launch_bounds__(COLUMNS *GROUPS)
    add_parts(float *to, const float *part, int parts, int width) {
  put_column<ACCUMULATES>(to, sum_of_parts(part, parts, width), width);
}

template <bool ACCUMULATES>
__global__ void __launch_bounds__(COLUMNS *GROUPS)
    add_runs(float *to, const float *part, int parts, int width, int runs) {
  pairwise_sum<1> sums;
  for (int r = 0; r < runs; r++)
    sums.add({{sum_of_parts(part + (int64_t)r * parts * width, parts, width)}});
  put_column<ACCUMULATES>(to, sums.whole().v[0], width);
}

template <bool ACCUMULATES>
static inline void launch_parts(float *to, const float *part, const summed_rows &of, int64_t width,
                                void *stream) {
  const dim3 grid((unsigned)ceiling(width, COLUMNS)), block(COLUMNS * GROUPS);
  if (of.run)
    PEN_LAUNCH(add_runs<ACCUMULATES>, grid, block, 0, stream, to, part, (int)of.parts(), (int)width,
               of.runs);
  else
    PEN_LAUNCH(add_parts<ACCUMULATES>, grid, block, 0, stream, to, part, (int)of.parts(),
               (int)width);
}

#endif
