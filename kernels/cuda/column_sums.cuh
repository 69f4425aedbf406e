/* column_sums.cuh: sums over rows, for each column, in a fixed order: rows are divided into at most
 * PARTS equal runs, a block sums each run into part[parts][width], and the kernel below adds the
 * runs. Order: eight groups of every eighth run, rising in each; the groups, rising; then, if it
 * accumulates, the previous value. */
#ifndef PEN_CUDA_COLUMN_SUMS_CUH
#define PEN_CUDA_COLUMN_SUMS_CUH

#include "kernels/cuda/device.cuh"

enum { PARTS = 264 /* two blocks for each processor of an H200 */, COLUMNS = 32, GROUPS = 8 };

static inline int64_t rows_a_part(int64_t rows) { return ceiling(rows, PARTS); }
static inline int64_t parts_of(int64_t rows) { return ceiling(rows, rows_a_part(rows)); }

/* The workspace of one such sum. */
static inline size_t part_bytes(int64_t rows, int64_t width) {
  return (size_t)(parts_of(rows) * width) * sizeof(float);
}

template <bool ACCUMULATES>
__global__ void __launch_bounds__(COLUMNS *GROUPS)
    add_parts(float *to, const float *part, int parts, int width) {
  __shared__ float of_group[GROUPS][COLUMNS];
  const int lane = (int)threadIdx.x % COLUMNS, group = (int)threadIdx.x / COLUMNS;
  const int column = (int)blockIdx.x * COLUMNS + lane;
  float sum = 0;
  if (column < width)
#pragma unroll 8
    for (int i = group; i < parts; i += GROUPS) sum += part[(int64_t)i * width + column];
  of_group[group][lane] = sum;
  __syncthreads();
  if (group != 0 || column >= width) return;
  for (int g = 1; g < GROUPS; g++) sum += of_group[g][lane];
  to[column] = ACCUMULATES ? to[column] + sum : sum;
}

template <bool ACCUMULATES>
static inline void launch_parts(float *to, const float *part, int64_t rows, int64_t width,
                                void *stream) {
  PEN_LAUNCH(add_parts<ACCUMULATES>, dim3((unsigned)ceiling(width, COLUMNS)),
             dim3(COLUMNS * GROUPS), 0, stream, to, part, (int)parts_of(rows), (int)width);
}

#endif
