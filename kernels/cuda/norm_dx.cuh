/* norm_dx.cuh: what RMSNORM_DX and LAYERNORM_DX share: the loop over rows, which sums along each
 * row what its dx needs (row sums), and over the rows the gradients of gain and bias (column sums).
 * dx may be a.
 *
 * A NORM has ROW_SUMS row sums and as many column sums:
 *     NORM::of(p, row)
 *     accumulate(row_sum, sum, d, x, g)  adds the terms of an element of dy, x and gain
 *     finish_row(row_sum, width)         prepares complete row sums for element_dx()
 *     element_dx(row_sum, d, x, g, a)    dx of an element
 * Launch: a block for each part of the rows (column_sums.cuh). A warp has a row up to 1024 wide, a
 * block a wider one. If rows are multiples of 16 bytes, and at most 4 times 16 bytes a thread for a
 * block, a row is loaded once into registers, as are the column sums of a thread; a block loads its
 * next row before it synchronizes. Other rows are read twice, with column sums in shared memory.
 * Order of column sums: rows of a part in the same warp, rising; warps, rising; then the parts.
 * Order of row sums: the elements of a thread, rising; then as block_sum(). Workspace: PARTS rows
 * of f32, or RUN_PARTS a run, for each column sum. Traffic: an element three times, four with an
 * addend.
 */
#ifndef PEN_CUDA_NORM_DX_CUH
#define PEN_CUDA_NORM_DX_CUH

#include "kernels/cuda/column_sums.cuh"

template <class E>
struct norm_dx {
  E *dx;
  float *part; /* [sums][blocks][width] */
  const E *dy, *x;
  const float *gain, *mean, *rstd;
  const E *a;
  row_part rows;
  int width;
  float offset; /* of RMSNORM's gains */
};

/* The row sums over T threads, in each thread. One barrier a row: the two halves of the buffer
 * alternate. */
template <int T, int ROW_SUMS>
static __device__ inline void sum_over_row(float row_sum[ROW_SUMS], int64_t turn) {
  __shared__ float of_warp[2][T / WARP][ROW_SUMS];
#pragma unroll
  for (int i = 0; i < ROW_SUMS; i++) row_sum[i] = warp_sum(row_sum[i]);
  if (T == WARP) return;
  float(*const mine)[ROW_SUMS] = of_warp[turn % 2];
#pragma unroll
  for (int i = 0; i < ROW_SUMS; i++)
    if (threadIdx.x % WARP == 0) mine[threadIdx.x / WARP][i] = row_sum[i];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < ROW_SUMS; i++) {
    row_sum[i] = mine[0][i];
#pragma unroll
    for (int w = 1; w < T / WARP; w++) row_sum[i] += mine[w][i];
  }
}

/* A loaded row: K times 16 bytes a thread of dy and of x. */
template <class NORM, class E, int T, int K>
struct held_row {
  uint4 d[K], x[K];
  NORM norm;
  static __device__ bool has(int k, int width) {
    return ((int)threadIdx.x % T + k * T) * WIDE<E> < width;
  }
  static __device__ int64_t place(const norm_dx<E> &p, int64_t row, int k) {
    return row * p.width + ((int)threadIdx.x % T + k * T) * WIDE<E>;
  }
  static __device__ void read(uint4 to[K], const norm_dx<E> &p, const E *from, int64_t row) {
#pragma unroll
    for (int k = 0; k < K; k++)
      to[k] = has(k, p.width) ? *(const uint4 *)(from + place(p, row, k)) : make_uint4(0, 0, 0, 0);
  }
  static __device__ held_row of(const norm_dx<E> &p, int64_t row) {
    held_row held;
    read(held.d, p, p.dy, row);
    read(held.x, p, p.x, row);
    held.norm = NORM::of(p, row);
    return held;
  }
};

/* The rows i, i + step, ... of the block's part; adds the column sums of this thread to
 * sums[ROW_SUMS][stride]. */
template <class NORM, class E, int T, int K, bool RUNS>
static __device__ inline void process_held_rows(const norm_dx<E> &p, const row_part &own, int64_t i,
                                                int step, float *sums, int stride) {
  enum {
    N = WIDE<E>,
    ROW_SUMS = NORM::ROW_SUMS,
    AHEAD = T > WARP /* warps that run independently hide the latency of each other */
  };
  typedef held_row<NORM, E, T, K> held_row;
  const int number = (int)blockIdx.x;
  float sum[K][N][ROW_SUMS] = {};
  held_row held = {};
  if (i < own.end) held = held_row::of(p, row_at<RUNS>(own, number, i));
  for (int64_t turn = 0; i < own.end; i += step, turn++) {
    const int64_t row = row_at<RUNS>(own, number, i);
    const bool more = i + step < own.end;
    held_row next = held;
    if (AHEAD && more) next = held_row::of(p, row_at<RUNS>(own, number, i + step));
    uint4 a[K] = {};
    if (p.a) held_row::read(a, p, p.a, row);
    float row_sum[ROW_SUMS] = {};
#pragma unroll
    for (int k = 0; k < K; k++)
      if (held_row::has(k, p.width)) {
        const lanes<N> d = spread<E>(held.d[k]), x = spread<E>(held.x[k]),
                       g = load_or<N>(p.gain, held_row::place(p, 0, k), 1.0f);
#pragma unroll
        for (int j = 0; j < N; j++)
          held.norm.accumulate(row_sum, sum[k][j], d.v[j], x.v[j], g.v[j]);
      }
    sum_over_row<T, ROW_SUMS>(row_sum, turn);
    held.norm.finish_row(row_sum, p.width);
#pragma unroll
    for (int k = 0; k < K; k++)
      if (held_row::has(k, p.width)) {
        const lanes<N> d = spread<E>(held.d[k]), x = spread<E>(held.x[k]),
                       g = load_or<N>(p.gain, held_row::place(p, 0, k), 1.0f);
        lanes<N> out = spread<E>(a[k]);
#pragma unroll
        for (int j = 0; j < N; j++)
          out.v[j] = held.norm.element_dx(row_sum, d.v[j], x.v[j], g.v[j], out.v[j]);
        store(p.dx + held_row::place(p, row, k), out);
      }
    held = !AHEAD && more ? held_row::of(p, row_at<RUNS>(own, number, i + step)) : next;
  }
#pragma unroll
  for (int k = 0; k < K; k++)
    if (held_row::has(k, p.width))
#pragma unroll
      for (int j = 0; j < N * ROW_SUMS; j++)
        sums[j % ROW_SUMS * stride + held_row::place(p, 0, k) + j / ROW_SUMS] =
            sum[k][j / ROW_SUMS][j % ROW_SUMS];
}

/* The same for rows that do not fit in registers, N elements at a time. */
template <class NORM, class E, int T, int N, bool RUNS>
static __device__ inline void process_reread_rows(const norm_dx<E> &p, const row_part &own,
                                                  int64_t index, int step, float *sums,
                                                  int stride) {
  enum { ROW_SUMS = NORM::ROW_SUMS };
  const int first = (int)(threadIdx.x % T) * N;
  for (int64_t turn = 0; index < own.end; index += step, turn++) {
    const int64_t row = row_at<RUNS>(own, (int)blockIdx.x, index);
    const NORM norm = NORM::of(p, row);
    const int64_t at = row * p.width;
    float row_sum[ROW_SUMS] = {};
    for (int i = first; i < p.width; i += T * N) {
      const lanes<N> d = load<N>(p.dy + at + i), x = load<N>(p.x + at + i),
                     g = load_or<N>(p.gain, i, 1.0f);
      lanes<N> total[ROW_SUMS];
#pragma unroll
      for (int t = 0; t < ROW_SUMS; t++) total[t] = load<N>(sums + t * stride + i);
#pragma unroll
      for (int j = 0; j < N; j++) {
        float sum[ROW_SUMS];
        for (int t = 0; t < ROW_SUMS; t++) sum[t] = total[t].v[j];
        norm.accumulate(row_sum, sum, d.v[j], x.v[j], g.v[j]);
        for (int t = 0; t < ROW_SUMS; t++) total[t].v[j] = sum[t];
      }
#pragma unroll
      for (int t = 0; t < ROW_SUMS; t++) store(sums + t * stride + i, total[t]);
    }
    sum_over_row<T, ROW_SUMS>(row_sum, turn);
    norm.finish_row(row_sum, p.width);
    for (int i = first; i < p.width; i += T * N) {
      const lanes<N> d = load<N>(p.dy + at + i), x = load<N>(p.x + at + i),
                     g = load_or<N>(p.gain, i, 1.0f);
      lanes<N> out = {};
      if (p.a) out = load<N>(p.a + at + i);
#pragma unroll
      for (int j = 0; j < N; j++)
        out.v[j] = norm.element_dx(row_sum, d.v[j], x.v[j], g.v[j], out.v[j]);
      store(p.dx + at + i, out);
    }
  }
}

/* K > 0: rows stay in registers, K times 16 bytes a thread; else they are read twice, N elements at
 * a time. */
template <class NORM, class E, int T, int K, int N, bool RUNS>
__global__ void __launch_bounds__(THREADS, K < 4 ? 2 : 1) differentiate_norm(norm_dx<E> p) {
  PEN_SHARED(shared);
  enum { TEAMS = THREADS / T };
  const int stride = (p.width + 3) / 4 * 4, team = (int)threadIdx.x / T;
  float *const sums = (float *)shared, *const own =
                                           sums + team * NORM::ROW_SUMS *
                                                      stride; /* [TEAMS][ROW_SUMS][stride] */
  for (int i = (int)threadIdx.x; i < TEAMS * NORM::ROW_SUMS * stride; i += THREADS) sums[i] = 0;
  __syncthreads();
  const row_part rows = part_at<RUNS>(p.rows, (int)blockIdx.x);
  if constexpr (K > 0)
    process_held_rows<NORM, E, T, K, RUNS>(p, rows, rows.begin + team, TEAMS, own, stride);
  else
    process_reread_rows<NORM, E, T, N, RUNS>(p, rows, rows.begin + team, TEAMS, own, stride);
  __syncthreads();
  for (int i = (int)threadIdx.x; i < p.width * NORM::ROW_SUMS; i += THREADS) {
    const int of = i / p.width, column = i % p.width;
    float sum = sums[of * stride + column];
    for (int t = 1; t < TEAMS; t++) sum += sums[(t * NORM::ROW_SUMS + of) * stride + column];
    p.part[(of * (int64_t)gridDim.x + blockIdx.x) * p.width + column] = sum;
  }
}

/* ---- launch ---- */
enum {
  NORM_STATIC_BYTES = 1024 /* of shared memory: more than the static shared memory of the kernels */
};

template <class NORM, class E, bool RUNS>
struct norm_kernels {
  typedef void kernel(norm_dx<E>);
  enum {
    BY_LANE = WIDE<E> == 4 ? 8 : 4,
    BY_THREAD = 4
  }; /* how many times 16 bytes a lane or a thread holds at most */
  template <int K>
  static constexpr kernel *warps_hold =
      differentiate_norm<NORM, E, WARP, (K < BY_LANE ? K : BY_LANE), 1, RUNS>;
  static constexpr kernel *holding[2][8] = {
      {warps_hold<1>, warps_hold<2>, warps_hold<3>, warps_hold<4>, warps_hold<6>, warps_hold<6>,
       warps_hold<8>, warps_hold<8>},
      {differentiate_norm<NORM, E, THREADS, 1, 1, RUNS>,
       differentiate_norm<NORM, E, THREADS, 2, 1, RUNS>,
       differentiate_norm<NORM, E, THREADS, 3, 1, RUNS>,
       differentiate_norm<NORM, E, THREADS, 4, 1, RUNS>},
  };
  static constexpr kernel *rereading[3] = {differentiate_norm<NORM, E, WARP, 0, 1, RUNS>,
                                           differentiate_norm<NORM, E, THREADS, 0, 1, RUNS>,
                                           differentiate_norm<NORM, E, THREADS, 0, WIDE<E>, RUNS>};

  static bool is_by_warps(int64_t width) { return width <= WARP * BY_LANE * WIDE<E>; } /* 1024 */
  static kernel *of(int64_t width) {
    const bool by_warps = is_by_warps(width);
    const int64_t sixteens = ceiling(width, WIDE<E>);
    if (is_wide<E>(width) && sixteens <= BY_THREAD * THREADS)
      return holding[!by_warps][ceiling(sixteens, by_warps ? WARP : THREADS) - 1];
    return rereading[by_warps ? 0 : is_wide<E>(width) ? 2 : 1];
  }
  /* The dynamic shared memory: column sums of each team. */
  static size_t shared(int64_t width) {
    return (size_t)(NORM::ROW_SUMS * (is_by_warps(width) ? THREADS / WARP : 1)) *
           (size_t)ceiling(width, 4) * 4 * sizeof(float);
  }
  /* More than 48 KiB of shared memory must be allowed. */
  static void open(const char *what) {
    const size_t bytes = pen_cuda_chip.shared_bytes - NORM_STATIC_BYTES;
    for (int i = 0; i < 8 + BY_THREAD; i++)
      pen_cuda_allow_shared(what, (const void *)holding[i / 8][i % 8], bytes);
    for (int i = 0; i < 3; i++) pen_cuda_allow_shared(what, (const void *)rereading[i], bytes);
  }
  /* Adds the parts of the column sums to to[ROW_SUMS], too; one that is null is not wanted. */
  static void launch(norm_dx<E> p, const summed_rows &rows, float *const *to, void *stream) {
    p.rows = part_of(rows);
    PEN_LAUNCH(of(p.width), dim3((unsigned)rows.blocks()), dim3(THREADS), shared(p.width), stream,
               p);
    for (int s = 0; s < NORM::ROW_SUMS; s++)
      if (to[s])
        launch_parts<false>(to[s], p.part + s * rows.blocks() * p.width, rows, p.width, stream);
  }
};

#endif
