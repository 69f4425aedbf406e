/* tile_product.cuh: a tile of a matrix product by a block of 256 threads: result[m,n] = sum over k
 * of left[m,k] right[k,n]. Each element is one chain over rising k, in f32, whatever the place of
 * its row in a tile: by multiplications and additions of f32, or, of bf16, by tensor cores, 16
 * terms at a time. A factor may be stored transposed: left[k,m], right[n,k].
 *
 * A tile has each(f), which calls f(row, column, value) for what the thread has of it. */
#ifndef PEN_CUDA_TILE_PRODUCT_CUH
#define PEN_CUDA_TILE_PRODUCT_CUH

#include <type_traits>

#include "kernels/cuda/mma.cuh"

/* A factor from a tile's first row, or column, on. */
template <class T>
struct factor {
  const T *at;
  int64_t row; /* elements between rows */
};

/* Copies ROWS rows of COLUMNS elements; from `rows` and `columns` on they become zero. */
template <int ROWS, int COLUMNS, int STRIDE, class T, class S>
static __device__ inline void copy_block(T *shared, const S *from, int64_t row, int rows,
                                         int columns) {
  for (int i = (int)threadIdx.x; i < ROWS * COLUMNS; i += THREADS) {
    const int r = i / COLUMNS, c = i % COLUMNS;
    const bool there = r < rows && c < columns;
    if constexpr (sizeof(T) == sizeof(S))
      shared[r * STRIDE + c] = there ? from[r * row + c] : (T)0;
    else
      shared[r * STRIDE + c] = there ? widen(from[r * row + c]) : 0.0f;
  }
}

/* Of factors in f32, or in bf16 that are widened. A thread has four adjacent rows, and every 16th
 * of the columns. */
template <class L, class R, bool LEFT_TRANSPOSED, bool RIGHT_TRANSPOSED>
struct plain_sum {
  enum {
    ROWS = 64,
    COLUMNS = 64,
    DEPTH = 16,
    SIDE = 16,
    EACH = 4,
    LEFT_ROWS = LEFT_TRANSPOSED ? DEPTH : ROWS,
    LEFT_COLUMNS = LEFT_TRANSPOSED ? ROWS : DEPTH,
    RIGHT_ROWS = RIGHT_TRANSPOSED ? COLUMNS : DEPTH,
    RIGHT_COLUMNS = RIGHT_TRANSPOSED ? DEPTH : COLUMNS
  };
  float sum[EACH][EACH] = {};

  __device__ void add(factor<L> left, factor<R> right, int rows, int columns, int depth) {
    __shared__ float l[LEFT_ROWS * (LEFT_COLUMNS + 1)], r[RIGHT_ROWS * (RIGHT_COLUMNS + 1)];
    for (int k = 0; k < depth; k += DEPTH) {
      const int rest = depth - k;
      __syncthreads(); /* what was there may still be read */
      copy_block<LEFT_ROWS, LEFT_COLUMNS, LEFT_COLUMNS + 1>(
          l, left.at + (LEFT_TRANSPOSED ? k * left.row : k), left.row,
          LEFT_TRANSPOSED ? rest : rows, LEFT_TRANSPOSED ? rows : rest);
      copy_block<RIGHT_ROWS, RIGHT_COLUMNS, RIGHT_COLUMNS + 1>(
          r, right.at + (RIGHT_TRANSPOSED ? k : k * right.row), right.row,
          RIGHT_TRANSPOSED ? columns : rest, RIGHT_TRANSPOSED ? rest : columns);
      __syncthreads();
#pragma unroll
      for (int i = 0; i < DEPTH; i++) add_terms(l, r, i);
    }
  }

  __device__ void add_terms(const float *l, const float *r, int k) {
    const int y = (int)threadIdx.x / SIDE * EACH, x = (int)threadIdx.x % SIDE;
    float a[EACH], b[EACH];
#pragma unroll
    for (int i = 0; i < EACH; i++) {
      a[i] =
          LEFT_TRANSPOSED ? l[k * (LEFT_COLUMNS + 1) + y + i] : l[(y + i) * (LEFT_COLUMNS + 1) + k];
      b[i] = RIGHT_TRANSPOSED ? r[(x + SIDE * i) * (RIGHT_COLUMNS + 1) + k]
                              : r[k * (RIGHT_COLUMNS + 1) + x + SIDE * i];
    }
#pragma unroll
    for (int i = 0; i < EACH; i++)
#pragma unroll
      for (int j = 0; j < EACH; j++) sum[i][j] = fmaf(a[i], b[j], sum[i][j]);
  }

  template <class F>
  __device__ void each(const F &f) const {
    const int y = (int)threadIdx.x / SIDE * EACH, x = (int)threadIdx.x % SIDE;
#pragma unroll
    for (int i = 0; i < EACH; i++)
#pragma unroll
      for (int j = 0; j < EACH; j++) f(y + i, x + SIDE * j, sum[i][j]);
  }
};

/* Of factors in bf16, whose rows are multiples of 16 bytes if WIDE. A warp has 32 rows and 32
 * columns. The next step is copied while one is multiplied. */
template <bool LEFT_TRANSPOSED, bool RIGHT_TRANSPOSED, bool WIDE_ROWS>
struct tensor_sum {
  enum {
    ROWS = 64,
    COLUMNS = 128,
    DEPTH = 32,
    LEFT_ROWS = LEFT_TRANSPOSED ? DEPTH : ROWS,
    LEFT_COLUMNS = LEFT_TRANSPOSED ? ROWS : DEPTH,
    RIGHT_ROWS = RIGHT_TRANSPOSED ? COLUMNS : DEPTH,
    RIGHT_COLUMNS = RIGHT_TRANSPOSED ? DEPTH : COLUMNS
  };
  typedef tile_of<LEFT_COLUMNS> left_tile;
  typedef tile_of<RIGHT_COLUMNS> right_tile;
  float sum[2][4][4] = {};

  template <int HIGH, int BROAD>
  static __device__ void start(tile_of<BROAD> tile, const bf16 *from, int64_t row, int rows,
                               int columns) {
    if constexpr (WIDE_ROWS)
      copy_tile<BROAD, HIGH, THREADS>(tile, from, row, rows, columns);
    else
      copy_block<HIGH, BROAD, tile_of<BROAD>::STRIDE>(tile.at, from, row, rows, columns);
  }

  __device__ void add(factor<bf16> left, factor<bf16> right, int rows, int columns, int depth) {
    __shared__ __align__(16) bf16 l[2][LEFT_ROWS * left_tile::STRIDE],
        r[2][RIGHT_ROWS * right_tile::STRIDE];
    const auto start_step = [&](int k) {
      const int rest = depth - k, set = k / DEPTH % 2;
      start<LEFT_ROWS>(left_tile{l[set]}, left.at + (LEFT_TRANSPOSED ? k * left.row : k), left.row,
                       LEFT_TRANSPOSED ? rest : rows, LEFT_TRANSPOSED ? rows : rest);
      start<RIGHT_ROWS>(right_tile{r[set]}, right.at + (RIGHT_TRANSPOSED ? k : k * right.row),
                        right.row, RIGHT_TRANSPOSED ? columns : rest,
                        RIGHT_TRANSPOSED ? rest : columns);
    };
    __syncthreads(); /* what was there may still be read */
    start_step(0);
    copies_commit();
    for (int k = 0; k < depth; k += DEPTH) {
      if (k + DEPTH < depth) start_step(k + DEPTH);
      copies_commit();
      copies_wait<1>();
      __syncthreads();
      add_step(left_tile{l[k / DEPTH % 2]}, right_tile{r[k / DEPTH % 2]});
      __syncthreads();
    }
    copies_wait<0>();
  }

  __device__ void add_step(left_tile left, right_tile right) {
    const int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP, row = warp / 4 * 32,
              column = warp % 4 * 32;
#pragma unroll
    for (int k = 0; k < DEPTH; k += 16) {
      uint32_t a[2][4];
#pragma unroll
      for (int m = 0; m < 2; m++)
        if constexpr (LEFT_TRANSPOSED)
          load_matrices_transposed(
              a[m], left.row(k + lane % 8 + lane / 16 * 8) + row + 16 * m + lane / 8 % 2 * 8);
        else
          load_a(a[m], left, row + 16 * m, k);
#pragma unroll
      for (int n = 0; n < 4; n += 2) {
        uint32_t b[4];
        if constexpr (RIGHT_TRANSPOSED)
          load_b_transposed(b, right, column + 8 * n, k);
        else
          load_b(b, right, k, column + 8 * n);
#pragma unroll
        for (int m = 0; m < 2; m++) {
          mma(sum[m][n], a[m], b[0], b[1]);
          mma(sum[m][n + 1], a[m], b[2], b[3]);
        }
      }
    }
  }

  template <class F>
  __device__ void each(const F &f) const {
    const int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP,
              row = warp / 4 * 32 + lane / 4, column = warp % 4 * 32 + lane % 4 * 2;
#pragma unroll
    for (int m = 0; m < 2; m++)
#pragma unroll
      for (int n = 0; n < 4; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
          f(row + 16 * m + i / 2 * 8, column + 8 * n + i % 2, sum[m][n][i]);
  }
};

template <class T, bool LEFT_TRANSPOSED, bool RIGHT_TRANSPOSED, bool WIDE_ROWS>
using tile_sum = std::conditional_t<sizeof(T) == sizeof(float),
                                    plain_sum<float, float, LEFT_TRANSPOSED, RIGHT_TRANSPOSED>,
                                    tensor_sum<LEFT_TRANSPOSED, RIGHT_TRANSPOSED, WIDE_ROWS>>;

/* The blocks of a launch that walk `tiles` tiles, at most. */
static inline dim3 walking_blocks(int64_t tiles) {
  const int64_t most = 2 * (int64_t)pen_cuda_chip.processors;
  return dim3((unsigned)(tiles < most ? tiles : most));
}

#endif
