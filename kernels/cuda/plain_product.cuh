/* plain_product.cuh: f32 products of tiles in shared memory by a block of 256 threads, for
 * attention in f32.
 *
 * Thread t has rows (t/16) R .. + R-1 and columns t%16, t%16 + 16, ... of a product: 16 lanes, half
 * a warp, share rows. Rows of a tile are D floats and four of padding, so that reads of 16
 * consecutive rows have no bank conflicts.
 */
#ifndef PEN_CUDA_PLAIN_PRODUCT_CUH
#define PEN_CUDA_PLAIN_PRODUCT_CUH

#include "kernels/cuda/device.cuh"

enum { SIDE = 16 };

template <int D>
struct plain_tile {
  enum { STRIDE = D + 4 };
  float *at;
  __device__ float *row(int r) const { return at + r * STRIDE; }
};

static __device__ inline int team() { return (int)threadIdx.x / SIDE; }
static __device__ inline int place() { return (int)threadIdx.x % SIDE; }

/* Copies ROWS rows of `width` (at most D); rows from `rows` on and columns from `width` on become
 * zero. */
template <int D, int ROWS>
static __device__ inline void copy_plain(plain_tile<D> tile, const float *from, int64_t from_row,
                                         int rows, int width) {
  for (int i = (int)threadIdx.x; i < ROWS * D; i += THREADS) {
    const int row = i / D, column = i % D;
    tile.row(row)[column] = row < rows && column < width ? from[row * from_row + column] : 0.0f;
  }
}

/* out = left right^T: R rows of left for each team, 16 C rows of right. */
template <int D, int R, int C>
static __device__ inline void plain_products(float out[R][C], plain_tile<D> left,
                                             plain_tile<D> right) {
#pragma unroll
  for (int r = 0; r < R; r++)
#pragma unroll
    for (int c = 0; c < C; c++) out[r][c] = 0;
#pragma unroll 4
  for (int i = 0; i < D; i += 4) {
    lanes<4> a[R], b[C];
#pragma unroll
    for (int r = 0; r < R; r++) a[r] = load<4>(left.row(team() * R + r) + i);
#pragma unroll
    for (int c = 0; c < C; c++) b[c] = load<4>(right.row(place() + SIDE * c) + i);
#pragma unroll
    for (int r = 0; r < R; r++)
#pragma unroll
      for (int c = 0; c < C; c++)
#pragma unroll
        for (int k = 0; k < 4; k++) out[r][c] = fmaf(a[r].v[k], b[c].v[k], out[r][c]);
  }
}

/* sum += left right: left[..][stride] is in shared memory and has `steps` columns; columns of sum:
 * place() + 16 j. */
template <int D, int R, int STEPS>
static __device__ inline void add_plain_products(float sum[R][D / SIDE], const float *left,
                                                 int stride, plain_tile<D> right) {
#pragma unroll 4
  for (int k = 0; k < STEPS; k++) {
    float a[R];
#pragma unroll
    for (int r = 0; r < R; r++) a[r] = left[(team() * R + r) * stride + k];
    const float *row = right.row(k) + place();
#pragma unroll
    for (int j = 0; j < D / SIDE; j++) {
      const float b = row[SIDE * j];
#pragma unroll
      for (int r = 0; r < R; r++) sum[r][j] = fmaf(a[r], b, sum[r][j]);
    }
  }
}

#endif
