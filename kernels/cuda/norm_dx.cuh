/* norm_dx.cuh: what RMSNORM_DX and LAYERNORM_DX share: the walk over rows, which adds up along each
 * row what its dx needs (pulls), and over all rows the gradients of gain and bias (sums). dx may
 * lie on a.
 *
 * A NORM is what one kind of norm knows of a row; it has PULLS pulls, and as many sums:
 *     NORM::of(p, row)
 *     gather(pull, sum, d, x, g)   adds one element's share, of dy, x and gain, to each pull and to
 * its column's sums settle(pull, width)          makes of the pulls of the whole row what slope()
 * wants slope(pull, d, x, g, a)      the element's dx Launch: a block for each run of rows
 * (column_sums.cuh). A warp takes a row up to 1024 wide, the block one beyond. Rows of whole
 * sixteens, of up to 4 a thread where the block takes them, are held in registers from the first
 * look to the second, and the sums of a thread's columns, too; a block's next row is on its way
 * while its threads meet. Others are read twice, and the sums stand in shared memory. Order of the
 * sums: rows of a run that fall to the same warp, rising; warps, rising; then the runs. Of the
 * pulls: a thread's elements, rising; then as block_sum(). Workspace: PARTS rows of f32 for each
 * sum. Moves an element three times, four with an addend. */
#ifndef PEN_CUDA_NORM_DX_CUH
#define PEN_CUDA_NORM_DX_CUH

#include "kernels/cuda/column_sums.cuh"

template <class E>
struct norm_dx {
  E *dx;
  float *part; /* [sums][parts][width] */
  const E *dy, *x;
  const float *gain, *mean, *rstd;
  const E *a;
  int64_t rows, rows_a_part;
  int width;
};

/* The sums of T threads' pulls, in each of them. One barrier: who writes here waits at the next
 * turn's for those who still read. */
template <int T, int PULLS>
static __device__ inline void over_row(float pull[PULLS], int64_t turn) {
  __shared__ float of_warp[2][T / WARP][PULLS];
#pragma unroll
  for (int i = 0; i < PULLS; i++) pull[i] = warp_sum(pull[i]);
  if (T == WARP) return;
  float(*const mine)[PULLS] = of_warp[turn % 2];
#pragma unroll
  for (int i = 0; i < PULLS; i++)
    if (threadIdx.x % WARP == 0) mine[threadIdx.x / WARP][i] = pull[i];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < PULLS; i++) {
    pull[i] = mine[0][i];
#pragma unroll
    for (int w = 1; w < T / WARP; w++) pull[i] += mine[w][i];
  }
}

/* A row as it is read: K times 16 bytes a thread of dy and of x. */
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

/* Every step-th row from `row` on, before `end`; sums[PULLS][stride] get those of this thread's
 * columns. */
template <class NORM, class E, int T, int K>
static __device__ inline void hold_rows(const norm_dx<E> &p, int64_t row, int64_t end, int step,
                                        float *sums, int stride) {
  enum {
    N = WIDE<E>,
    PULLS = NORM::PULLS,
    AHEAD = T > WARP /* warps that wait for no other make up for each other's waits */
  };
  typedef held_row<NORM, E, T, K> held_row;
  float sum[K][N][PULLS] = {};
  held_row held = {};
  if (row < end) held = held_row::of(p, row);
  for (int64_t turn = 0; row < end; row += step, turn++) {
    const bool more = row + step < end;
    held_row next = held;
    if (AHEAD && more) next = held_row::of(p, row + step);
    uint4 a[K] = {};
    if (p.a) held_row::read(a, p, p.a, row);
    float pull[PULLS] = {};
#pragma unroll
    for (int k = 0; k < K; k++)
      if (held_row::has(k, p.width)) {
        const lanes<N> d = spread<E>(held.d[k]), x = spread<E>(held.x[k]),
                       g = load<N>(p.gain + held_row::place(p, 0, k));
#pragma unroll
        for (int j = 0; j < N; j++) held.norm.gather(pull, sum[k][j], d.v[j], x.v[j], g.v[j]);
      }
    over_row<T, PULLS>(pull, turn);
    held.norm.settle(pull, p.width);
#pragma unroll
    for (int k = 0; k < K; k++)
      if (held_row::has(k, p.width)) {
        const lanes<N> d = spread<E>(held.d[k]), x = spread<E>(held.x[k]),
                       g = load<N>(p.gain + held_row::place(p, 0, k));
        lanes<N> out = spread<E>(a[k]);
#pragma unroll
        for (int j = 0; j < N; j++)
          out.v[j] = held.norm.slope(pull, d.v[j], x.v[j], g.v[j], out.v[j]);
        store(p.dx + held_row::place(p, row, k), out);
      }
    held = !AHEAD && more ? held_row::of(p, row + step) : next;
  }
#pragma unroll
  for (int k = 0; k < K; k++)
    if (held_row::has(k, p.width))
#pragma unroll
      for (int j = 0; j < N * PULLS; j++)
        sums[j % PULLS * stride + held_row::place(p, 0, k) + j / PULLS] =
            sum[k][j / PULLS][j % PULLS];
}

/* The same of rows that are too long for registers, N elements at once. */
template <class NORM, class E, int T, int N>
static __device__ inline void reread_rows(const norm_dx<E> &p, int64_t row, int64_t end, int step,
                                          float *sums, int stride) {
  enum { PULLS = NORM::PULLS };
  const int first = (int)(threadIdx.x % T) * N;
  for (int64_t turn = 0; row < end; row += step, turn++) {
    const NORM norm = NORM::of(p, row);
    const int64_t at = row * p.width;
    float pull[PULLS] = {};
    for (int i = first; i < p.width; i += T * N) {
      const lanes<N> d = load<N>(p.dy + at + i), x = load<N>(p.x + at + i), g = load<N>(p.gain + i);
      lanes<N> total[PULLS];
#pragma unroll
      for (int t = 0; t < PULLS; t++) total[t] = load<N>(sums + t * stride + i);
#pragma unroll
      for (int j = 0; j < N; j++) {
        float sum[PULLS];
        for (int t = 0; t < PULLS; t++) sum[t] = total[t].v[j];
        norm.gather(pull, sum, d.v[j], x.v[j], g.v[j]);
        for (int t = 0; t < PULLS; t++) total[t].v[j] = sum[t];
      }
#pragma unroll
      for (int t = 0; t < PULLS; t++) store(sums + t * stride + i, total[t]);
    }
    over_row<T, PULLS>(pull, turn);
    norm.settle(pull, p.width);
    for (int i = first; i < p.width; i += T * N) {
      const lanes<N> d = load<N>(p.dy + at + i), x = load<N>(p.x + at + i), g = load<N>(p.gain + i);
      lanes<N> out = {};
      if (p.a) out = load<N>(p.a + at + i);
#pragma unroll
      for (int j = 0; j < N; j++) out.v[j] = norm.slope(pull, d.v[j], x.v[j], g.v[j], out.v[j]);
      store(p.dx + at + i, out);
    }
  }
}

/* K > 0: rows are held, K times 16 bytes a thread; else they are read twice, N elements at once. */
template <class NORM, class E, int T, int K, int N>
__global__ void __launch_bounds__(THREADS, K < 4 ? 2 : 1) differentiate_norm(norm_dx<E> p) {
  PEN_SHARED(shared);
  enum { TEAMS = THREADS / T };
  const int stride = (p.width + 3) / 4 * 4, team = (int)threadIdx.x / T;
  float *const sums = (float *)shared, *const own = sums + team * NORM::PULLS *
                                                               stride; /* [TEAMS][PULLS][stride] */
  for (int i = (int)threadIdx.x; i < TEAMS * NORM::PULLS * stride; i += THREADS) sums[i] = 0;
  __syncthreads();
  const int64_t begin = blockIdx.x * p.rows_a_part, past = begin + p.rows_a_part,
                end = past < p.rows ? past : p.rows;
  if constexpr (K > 0)
    hold_rows<NORM, E, T, K>(p, begin + team, end, TEAMS, own, stride);
  else
    reread_rows<NORM, E, T, N>(p, begin + team, end, TEAMS, own, stride);
  __syncthreads();
  for (int i = (int)threadIdx.x; i < p.width * NORM::PULLS; i += THREADS) {
    const int of = i / p.width, column = i % p.width;
    float sum = sums[of * stride + column];
    for (int t = 1; t < TEAMS; t++) sum += sums[(t * NORM::PULLS + of) * stride + column];
    p.part[(of * (int64_t)gridDim.x + blockIdx.x) * p.width + column] = sum;
  }
}

/* ---- launching ---- */
enum {
  NORM_STATIC_BYTES = 1024 /* of shared memory, and more than the kernels have of what is static */
};

template <class NORM, class E>
struct norm_kernels {
  typedef void kernel(norm_dx<E>);
  enum {
    BY_LANE = WIDE<E> == 4 ? 8 : 4,
    BY_THREAD = 4
  }; /* how many sixteens one holds at most: bf16 are twice as many numbers */
  template <int K>
  static constexpr kernel *warps_hold = differentiate_norm < NORM,
                          E, WARP, K<BY_LANE ? K : BY_LANE, 1>;
  static constexpr kernel *holding[2][8] = {
      {warps_hold<1>, warps_hold<2>, warps_hold<3>, warps_hold<4>, warps_hold<6>, warps_hold<6>,
       warps_hold<8>, warps_hold<8>},
      {differentiate_norm<NORM, E, THREADS, 1, 1>, differentiate_norm<NORM, E, THREADS, 2, 1>,
       differentiate_norm<NORM, E, THREADS, 3, 1>, differentiate_norm<NORM, E, THREADS, 4, 1>},
  };
  static constexpr kernel *rereading[3] = {differentiate_norm<NORM, E, WARP, 0, 1>,
                                           differentiate_norm<NORM, E, THREADS, 0, 1>,
                                           differentiate_norm<NORM, E, THREADS, 0, WIDE<E>>};

  static bool is_by_warps(int64_t width) { return width <= WARP * BY_LANE * WIDE<E>; } /* 1024 */
  static kernel *of(int64_t width) {
    const bool by_warps = is_by_warps(width);
    const int64_t sixteens = ceiling(width, WIDE<E>);
    if (is_wide<E>(width) && sixteens <= BY_THREAD * THREADS)
      return holding[!by_warps][ceiling(sixteens, by_warps ? WARP : THREADS) - 1];
    return rereading[by_warps ? 0 : is_wide<E>(width) ? 2 : 1];
  }
  /* The shared memory of its blocks: sums of each team. */
  static size_t shared(int64_t width) {
    return (size_t)(NORM::PULLS * (is_by_warps(width) ? THREADS / WARP : 1)) *
           (size_t)ceiling(width, 4) * 4 * sizeof(float);
  }
  /* Past 48 KiB, a kernel must be granted it. */
  static void open(const char *what) {
    const size_t bytes = pen_cuda_chip.shared_bytes - NORM_STATIC_BYTES;
    for (int i = 0; i < 8 + BY_THREAD; i++)
      pen_cuda_allow_shared(what, (const void *)holding[i / 8][i % 8], bytes);
    for (int i = 0; i < 3; i++) pen_cuda_allow_shared(what, (const void *)rereading[i], bytes);
  }
  static void launch(const norm_dx<E> &p, void *stream) {
    PEN_LAUNCH(of(p.width), dim3((unsigned)parts_of(p.rows)), dim3(THREADS), shared(p.width),
               stream, p);
  }
};

#endif
