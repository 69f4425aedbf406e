/* mma.cuh: tensor core operations: bf16 products with f32 sums for a warp (PTX ISA 9.7.14,
 * mma.m16n8k16, ldmatrix), and asynchronous copies to shared memory (cp.async).
 *
 * Fragments of lane l, g = l/4, t = l%4; a register holds two adjacent bf16, the lower index in the
 * low half: A 16x16  a0 (g, 2t)  a1 (g+8, 2t)  a2 (g, 2t+8)  a3 (g+8, 2t+8) B 16x8   b0 (2t, g)  b1
 * (2t+8, g)                  two neighbours in a column C 16x8   c0 (g, 2t)  c1 (g, 2t+1)  c2 (g+8,
 * 2t)  c3 (g+8, 2t+1) Two adjacent C tiles, rounded, are an A fragment of the next product.
 */
#ifndef PEN_CUDA_MMA_CUH
#define PEN_CUDA_MMA_CUH

#include "kernels/cuda/device.cuh"

#ifndef PEN_EMULATED

/* c += a b */
static __device__ inline void mma(float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* Loads four 8x8 matrices of bf16: lane l gives the address of row l%8 of matrix l/8, 16-byte
 * aligned, in shared memory. Register i of lane l receives elements (l/4, 2(l%4)) and its right
 * neighbour of matrix i; transposed: (2(l%4), l/4) and its lower neighbour. */
static __device__ inline void load_matrices(uint32_t r[4], const bf16 *row) {
  const uint32_t at = (uint32_t)__cvta_generic_to_shared(row);
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(at)
               : "memory");
}

static __device__ inline void load_matrices_transposed(uint32_t r[4], const bf16 *row) {
  const uint32_t at = (uint32_t)__cvta_generic_to_shared(row);
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(at)
               : "memory");
}

/* Copies 16 bytes from global to shared memory, or zeros if not `valid`; complete after
 * copies_wait() and a barrier. */
static __device__ inline void copy_async(bf16 *shared, const bf16 *global, bool valid) {
  const uint32_t at = (uint32_t)__cvta_generic_to_shared(shared);
  const int bytes = valid ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(global), "r"(bytes)
               : "memory");
}

/* Ends a group of copies; waits until at most LEFT groups are in progress. */
static __device__ inline void copies_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int LEFT>
static __device__ inline void copies_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}

#endif

/* ---- tiles in shared memory: rows of D bf16 and 16 bytes of padding, so that eight consecutive
 * rows are in different banks ---- */
template <int D>
struct tile_of {
  enum { STRIDE = D + 8 };
  bf16 *at;
  __device__ bf16 *row(int r) const { return at + r * STRIDE; }
};

/* Starts to copy ROWS rows of `width` (a multiple of 8, at most D) by B threads; rows from `rows`
 * on and columns from `width` on become zero. `from` is row 0, rows are from_row apart. A thread
 * has the same columns in all its rows, so that it needs one address. */
template <int D, int ROWS, int B>
static __device__ inline void copy_tile(tile_of<D> tile, const bf16 *from, int64_t from_row,
                                        int rows, int width) {
  enum { THREADS_A_ROW = D / 8 & -(D / 8) /* threads */, ROWS_AT_ONCE = B / THREADS_A_ROW };
  static_assert(ROWS % ROWS_AT_ONCE == 0, "as many copies for each thread");
  const int first_row = (int)threadIdx.x / THREADS_A_ROW,
            first_column = (int)threadIdx.x % THREADS_A_ROW * 8;
  const bf16 *const first = from + first_row * from_row + first_column;
#pragma unroll
  for (int r = 0; r < ROWS; r += ROWS_AT_ONCE)
#pragma unroll
    for (int c = 0; c < D; c += THREADS_A_ROW * 8) {
      const bool valid = first_row + r < rows && first_column + c < width;
      copy_async(tile.row(first_row + r) + first_column + c,
                 valid ? first + r * from_row + c : from, valid);
    }
}

/* The A fragment of rows r .. r+15, columns c .. c+15. */
template <int D>
static __device__ inline void load_a(uint32_t a[4], tile_of<D> tile, int r, int c) {
  const int lane = (int)threadIdx.x % WARP;
  load_matrices(a, tile.row(r + lane % 16) + c + lane / 16 * 8);
}

/* Two B fragments of the tile's transpose, b[0..1] and b[2..3]: columns r .. r+7 and r+8 .. r+15 of
 * B are rows of the tile, its rows c .. c+15 are columns of the tile. */
template <int D>
static __device__ inline void load_b_transposed(uint32_t b[4], tile_of<D> tile, int r, int c) {
  const int lane = (int)threadIdx.x % WARP;
  load_matrices(b, tile.row(r + lane % 8 + lane / 16 * 8) + c + lane / 8 % 2 * 8);
}

/* Two B fragments of the tile: rows r .. r+15, columns c .. c+7 and c+8 .. c+15. */
template <int D>
static __device__ inline void load_b(uint32_t b[4], tile_of<D> tile, int r, int c) {
  const int lane = (int)threadIdx.x % WARP;
  load_matrices_transposed(b, tile.row(r + lane % 16) + c + lane / 16 * 8);
}

/* sum += left right^T, for 16 M rows of left from first_row on and all N rows of right, by a warp.
 */
template <int D, int M, int N>
static __device__ inline void add_transposed(float sum[M][N / 8][4], tile_of<D> left,
                                             tile_of<D> right, int first_row) {
#pragma unroll
  for (int c = 0; c < D; c += 16) {
    uint32_t a[M][4];
#pragma unroll
    for (int m = 0; m < M; m++) load_a(a[m], left, first_row + 16 * m, c);
#pragma unroll
    for (int n = 0; n < N / 8; n += 2) {
      uint32_t b[4];
      load_b_transposed(b, right, n * 8, c);
#pragma unroll
      for (int m = 0; m < M; m++) {
        mma(sum[m][n], a[m], b[0], b[1]);
        mma(sum[m][n + 1], a[m], b[2], b[3]);
      }
    }
  }
}

/* sum += left right: left has the layout of the result of add_transposed(), and is rounded to bf16;
 * right has N rows. */
template <int D, int M, int N>
static __device__ inline void add_products(float sum[M][D / 8][4], float left[M][N / 8][4],
                                           tile_of<D> right) {
#pragma unroll
  for (int j = 0; j < N / 16; j++) {
    uint32_t a[M][4];
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
      for (int i = 0; i < 4; i++)
        a[m][i] = pack(left[m][2 * j + i / 2][i % 2 * 2], left[m][2 * j + i / 2][i % 2 * 2 + 1]);
#pragma unroll
    for (int n = 0; n < D / 8; n += 2) {
      uint32_t b[4];
      load_b(b, right, j * 16, n * 8);
#pragma unroll
      for (int m = 0; m < M; m++) {
        mma(sum[m][n], a[m], b[0], b[1]);
        mma(sum[m][n + 1], a[m], b[2], b[3]);
      }
    }
  }
}

#endif
