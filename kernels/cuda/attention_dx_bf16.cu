/* attention_dx_bf16.cu: ATTENTION_DX, ATTENTION_QKV_DX and ATTENTION_FULL_DX in bf16 on tensor
 * cores, with probabilities recomputed from lse by blocks (Dao 2023).
 *
 * With s = q k^T/sqrt(head_dim), p = e^(s - lse) and delta = sum of do o over a row:
 *     dv = p^T do,   ds = p (do v^T - delta),
 *     dq = ds k/sqrt(head_dim),   dk = ds^T q/sqrt(head_dim).
 * A cap makes s = cap t, t = tanh(q k^T/(sqrt(head_dim) cap)), and multiplies ds by 1 - t^2.
 * Two kernels of one template, without atomic additions. A block of threads has 64 M outer rows, 16
 * M for each warp, and iterates over blocks of inner rows: for dk and dv keys are outer and
 * queries, of all heads of the group, are inner; for dq queries are outer and keys inner. The
 * scores are (outer) x (inner) and stay in registers. This takes 7 products; with atomics 5 would
 * do. cp.async loads the next inner block into the other half of a double buffer. A warp skips a
 * block in which its queries see no key.
 *
 * Launch: delta; heads x (blocks of queries, the longest inner loop first) x batch; kv_heads x
 * (blocks of keys) x batch; 128 threads. Order: heads of queries rising, inner rows of each rising,
 * 16 at a time; do v^T - delta starts with -delta. So M and INNER do not change bits. dq may
 * replace q, and is written last; dk and dv may replace k and v, since a block reads only its own
 * keys there. Workspace: see attention.cuh.
 */
#include "kernels/cuda/attention_dx.cuh"
#include "kernels/cuda/mma.cuh"

namespace {

enum { WARPS = 4, BLOCK = WARPS * WARP };

/* exponentials have base 2 */
#define LOG2_E 1.44269504f

/* The statistic of the query of a lane's element (m, n, i): of its row if queries are outer, of its
 * column if they are inner. `at`: that of the lane's first element. */
template <bool KEYS_OUTER>
__device__ inline float of_query(const float *at, int m, int n, int i) {
  if (!KEYS_OUTER) return at[m * 16 + i / 2 * 8];
  const float2 two = *(const float2 *)(at + n * 8);
  return i % 2 ? two.y : two.x;
}

/* Calls body(m, n, i) for each element of a lane in 16 M x N. */
template <int M, int N, class BODY>
__device__ inline void each_element(const BODY &body) {
#pragma unroll
  for (int m = 0; m < M; m++)
#pragma unroll
    for (int n = 0; n < N / 8; n++)
#pragma unroll
      for (int i = 0; i < 4; i++) body(m, n, i);
}

/* Clears p where the query does not see the key. */
template <int M, int INNER, bool KEYS_OUTER>
__device__ inline void mask_hidden(float p[M][INNER / 8][4], const int32_t *begins,
                                   const attention_shape &s, int outer_row, int inner_row) {
  const int lane = (int)threadIdx.x % WARP, row = outer_row + lane / 4,
            column = inner_row + lane % 4 * 2;
  const int distance =
      KEYS_OUTER ? row - column
                 : column - row; /* the distance of the key after the query, for element 0 */
  each_element<M, INNER>([&](int m, int n, int i) {
    const int down = m * 16 + i / 2 * 8, right = n * 8 + i % 2;
    if (distance + (KEYS_OUTER ? down - right : right - down) > 0) p[m][n][i] = 0;
  });
  if (begins || s.window < s.sequence)
    each_element<M, INNER>([&](int m, int n, int i) {
      const int at_row = row + m * 16 + i / 2 * 8, at_column = column + n * 8 + i % 2,
                query = KEYS_OUTER ? at_column : at_row;
      if ((KEYS_OUTER ? at_row : at_column) < first_seen(begins, query, s)) p[m][n][i] = 0;
    });
}

/* The same of the general kernel. */
template <int M, int INNER, bool KEYS_OUTER>
__device__ inline void mask_unseen(float p[M][INNER / 8][4], const int32_t *begins,
                                   const int32_t *mask, const attention_shape &s, int outer_row,
                                   int inner_row) {
  const int lane = (int)threadIdx.x % WARP, row = outer_row + lane / 4,
            column = inner_row + lane % 4 * 2;
  each_element<M, INNER>([&](int m, int n, int i) {
    const int at_row = row + m * 16 + i / 2 * 8, at_column = column + n * 8 + i % 2,
              query = KEYS_OUTER ? at_column : at_row, key = KEYS_OUTER ? at_row : at_column;
    if (!is_seen<true>(key, query, s, mask) || key < first_seen(begins, query, s)) p[m][n][i] = 0;
  });
}

/* Writes the existing rows among a warp's 16 M. `to` is row 0 of the sequence. */
template <int D, int M>
__device__ inline void write_rows(bf16 *to, int64_t to_row, float sum[M][D / 8][4], int first_row,
                                  int rows, int head_dim, float factor) {
  const int lane = (int)threadIdx.x % WARP;
#pragma unroll
  for (int half = 0; half < 2 * M; half++) {
    const int row = first_row + half * 8 + lane / 4;
#pragma unroll
    for (int n = 0; n < D / 8; n++) {
      const int column = n * 8 + lane % 4 * 2;
      float *const two = &sum[half / 2][n][half % 2 * 2];
      if (row < rows && column < head_dim)
        *(uint32_t *)(to + row * to_row + column) = pack(two[0] * factor, two[1] * factor);
    }
  }
}

/* The work of a warp in a step: its 16 M rows of the outer tiles times the inner tiles. Adds to dv
 * if keys are outer. */
template <int D, int M, int INNER, bool KEYS_OUTER, bool GENERAL, class HIDE>
__device__ inline void add_step(float dk_or_dq[M][D / 8][4], float dv[M][D / 8][4],
                                const tile_of<D> outer[2], const tile_of<D> inner[2],
                                const float *lse, const float *delta, int own_row,
                                const attention_shape &s, const HIDE &mask_hidden) {
  const float scale = s.scale * LOG2_E;
  float p[M][INNER / 8][4] = {}, slopes[M][INNER / 8][4], of_cap[M][INNER / 8][4];
  add_transposed<D, M, INNER>(p, outer[0], inner[0], own_row);
  if (GENERAL)
    each_element<M, INNER>([&](int m, int n, int i) {
      const capped_score capped = cap_score(p[m][n][i], s);
      p[m][n][i] = capped.score;
      of_cap[m][n][i] = capped.slope;
    });
  each_element<M, INNER>([&](int m, int n, int i) {
    p[m][n][i] = power_of_two(fmaf(p[m][n][i], scale, -of_query<KEYS_OUTER>(lse, m, n, i)));
  });
  mask_hidden(p);
  if (KEYS_OUTER) add_products<D, M, INNER>(dv, p, inner[1]);
  each_element<M, INNER>(
      [&](int m, int n, int i) { slopes[m][n][i] = -of_query<KEYS_OUTER>(delta, m, n, i); });
  add_transposed<D, M, INNER>(slopes, outer[1], inner[1], own_row);
  each_element<M, INNER>([&](int m, int n, int i) { slopes[m][n][i] *= p[m][n][i]; });
  if (GENERAL)
    each_element<M, INNER>([&](int m, int n, int i) { slopes[m][n][i] *= of_cap[m][n][i]; });
  add_products<D, M, INNER>(dk_or_dq, slopes, inner[0]);
}

template <int D, int M, int INNER, bool KEYS_OUTER, bool GENERAL>
__global__ void __launch_bounds__(BLOCK) differentiate(operands<bf16> p, attention_shape s) {
  enum {
    STRIDE = tile_of<D>::STRIDE,
    OUTER = WARPS * 16 * M,
    STATISTICS = KEYS_OUTER ? INNER : OUTER
  };
  PEN_SHARED(shared);
  bf16 *const outer_tiles = (bf16 *)shared;
  const tile_of<D> outer[2] = {{outer_tiles}, {outer_tiles + OUTER * STRIDE}};
  bf16 *const tiles = outer_tiles + 2 * OUTER * STRIDE; /* [2 steps][2 tiles][INNER][STRIDE] */
  float *const statistics =
      (float *)(tiles + 4 * INNER * STRIDE); /* [2 steps, or one][lse, delta][STATISTICS] */
  const int64_t batch = blockIdx.z;
  const int first_row = (int)(KEYS_OUTER ? blockIdx.y : gridDim.y - 1 - blockIdx.y) * OUTER;
  const int thread = (int)threadIdx.x, lane = thread % WARP, own_row = thread / WARP * 16 * M,
            own = first_row + own_row;
  const int32_t *const begins = begins_of(p, s, batch), *const mask = GENERAL && p.mask
                                                                          ? p.mask + batch * s.keys
                                                                          : NULL;
  const int outer_count = rows_in<KEYS_OUTER>(s), inner_count = rows_in<!KEYS_OUTER>(s);
  const inner_loop<OUTER, INNER, KEYS_OUTER, GENERAL> loop(s, begins, first_row);
  const int kv_head = KEYS_OUTER ? (int)blockIdx.x : (int)blockIdx.x / s.group;
  const int outer_head = KEYS_OUTER ? kv_head : loop.first.head;

  auto at = loop.first, next = at;
  const auto copy_inner = [&](int step) {
    const row_pair<bf16, !KEYS_OUTER> from(p, s, batch, KEYS_OUTER ? next.head : kv_head, next.row);
    bf16 *const to = tiles + step % 2 * 2 * INNER * STRIDE;
    copy_tile<D, INNER, BLOCK>({to}, from.first.at, from.first.apart, inner_count - next.row,
                               s.head_dim);
    copy_tile<D, INNER, BLOCK>({to + INNER * STRIDE}, from.second.at, from.second.apart,
                               inner_count - next.row, s.head_dim);
    copies_commit();
  };
  const row_pair<bf16, KEYS_OUTER> outer_rows(p, s, batch, outer_head, first_row);
  copy_tile<D, OUTER, BLOCK>(outer[0], outer_rows.first.at, outer_rows.first.apart,
                             outer_count - first_row, s.head_dim);
  copy_tile<D, OUTER, BLOCK>(outer[1], outer_rows.second.at, outer_rows.second.apart,
                             outer_count - first_row, s.head_dim);
  copy_inner(0);

  const bool keeps = thread < STATISTICS;
  const auto known = [&](int row) {
    return statistic_of(p, s, batch, next.head, row + thread, LOG2_E);
  };
  const auto keep = [&](int step, statistic of) {
    float *const to = statistics + step % 2 * 2 * STATISTICS + thread;
    to[0] = of.lse, to[STATISTICS] = of.delta;
  };
  if (keeps) keep(0, known(KEYS_OUTER ? next.row : first_row));

  float sum1[M][D / 8][4] = {}, sum2[M][D / 8][4] = {}; /* dk or dq; dv */
  for (int step = 0; step < loop.steps; step++) {
    copies_wait<0>();
    __syncthreads(); /* the rows of this step are loaded, and the previous step is no longer read */
    statistic of_next = {};
    if (step + 1 < loop.steps) {
      next = loop.after(at);
      copy_inner(step + 1);
      if (KEYS_OUTER && keeps) of_next = known(next.row);
    }
    /* The keys and the queries of this warp in this step. */
    const int row = at.row, key = KEYS_OUTER ? own : row,
              key_past = key + (KEYS_OUTER ? 16 * M : INNER);
    const int asks = KEYS_OUTER ? row : own, asks_past = asks + (KEYS_OUTER ? INNER : 16 * M);
    const int last = (asks_past < s.sequence ? asks_past : s.sequence) - 1;
    const bool all_seen = !GENERAL && key_past - 1 <= asks && key >= first_seen(begins, last, s);
    bf16 *const tile = tiles + step % 2 * 2 * INNER * STRIDE;
    const tile_of<D> inner[2] = {{tile}, {tile + INNER * STRIDE}};
    const float *const lse =
        statistics + (KEYS_OUTER ? step % 2 * 2 * STATISTICS + lane % 4 * 2 : own_row + lane / 4);
    const auto mask_step = [&](float probable[M][INNER / 8][4]) {
      if (GENERAL)
        mask_unseen<M, INNER, KEYS_OUTER>(probable, begins, mask, s, own, row);
      else if (!all_seen)
        mask_hidden<M, INNER, KEYS_OUTER>(probable, begins, s, own, row);
    };
    if (key < asks_past + (GENERAL ? s.later : 0))
      add_step<D, M, INNER, KEYS_OUTER, GENERAL>(sum1, sum2, outer, inner, lse, lse + STATISTICS,
                                                 own_row, s, mask_step);
    if (KEYS_OUTER && keeps) keep(step + 1, of_next);
    at = next;
  }
  const int64_t apart = outer_rows.first.apart,
                from = batch * outer_count * apart + outer_head * s.head_dim;
  write_rows<D, M>((KEYS_OUTER ? p.dk : p.dq) + from, apart, sum1, own, outer_count, s.head_dim,
                   s.scale);
  if (KEYS_OUTER) write_rows<D, M>(p.dv + from, apart, sum2, own, outer_count, s.head_dim, 1.0f);
}

struct attention_dx_bf16_variant {
  void (*kernel)(operands<bf16>, attention_shape);
  int head_dim, outer_rows;
  size_t shared_bytes;
};

template <int D, int M, int INNER, bool KEYS_OUTER, bool GENERAL = false>
constexpr attention_dx_bf16_variant variant_of() {
  enum {
    OUTER = WARPS * 16 * M,
    ROWS = 2 * OUTER + 4 * INNER,
    KNOWN = KEYS_OUTER ? 2 * INNER : OUTER
  };
  return {differentiate<D, M, INNER, KEYS_OUTER, GENERAL>, D, OUTER,
          ROWS * tile_of<D>::STRIDE * sizeof(bf16) + KNOWN * 2 * sizeof(float)};
}

/* The largest head_dim of each variant, large blocks first; as many rows as registers hold. */
const attention_dx_bf16_variant of_keys[] = {
    variant_of<32, 2, 64, true>(), variant_of<32, 1, 64, true>(), variant_of<64, 2, 32, true>(),
    variant_of<64, 1, 64, true>(), variant_of<96, 1, 64, true>(), variant_of<128, 1, 48, true>()};
const attention_dx_bf16_variant of_queries[] = {
    variant_of<32, 2, 64, false>(),  variant_of<32, 1, 64, false>(), variant_of<64, 2, 48, false>(),
    variant_of<64, 1, 64, false>(),  variant_of<96, 2, 32, false>(), variant_of<96, 1, 64, false>(),
    variant_of<128, 2, 32, false>(), variant_of<128, 1, 48, false>()};

/* The general ones have more in registers. */
const attention_dx_bf16_variant general_of_keys[] = {
    variant_of<32, 1, 64, true, true>(), variant_of<64, 1, 64, true, true>(),
    variant_of<96, 1, 64, true, true>(), variant_of<128, 1, 48, true, true>()};
const attention_dx_bf16_variant general_of_queries[] = {
    variant_of<32, 1, 64, false, true>(), variant_of<64, 1, 64, false, true>(),
    variant_of<96, 1, 64, false, true>(), variant_of<128, 1, 48, false, true>()};

/* Large blocks read shared memory less, but keep all processors busy only if there are more of them
 * than two for each processor; and the GPU must have their shared memory. Null: head_dim is too
 * large. */
template <size_t COUNT>
const attention_dx_bf16_variant *choose(const attention_dx_bf16_variant (&variants)[COUNT],
                                        const int64_t *dim, int64_t heads) {
  const attention_dx_bf16_variant *chosen = NULL;
  for (const attention_dx_bf16_variant &v : variants) {
    if (v.head_dim < dim[4] || (chosen && chosen->head_dim < v.head_dim)) continue;
    chosen = &v;
    if (ceiling(dim[1], v.outer_rows) * heads * dim[0] > 2 * pen_cuda_chip.processors &&
        v.shared_bytes <= pen_cuda_chip.shared_bytes)
      break;
  }
  return chosen;
}

template <size_t COUNT>
void allow_shared_of(const attention_dx_bf16_variant (&variants)[COUNT]) {
  for (const attention_dx_bf16_variant &v : variants)
    pen_cuda_allow_shared("shared memory for ATTENTION_DX", (const void *)v.kernel, v.shared_bytes);
}

void launch_all(const struct pen_call *call, const operands<bf16> &p, const attention_shape &s) {
  const int64_t *dim = call->dim;
  const bool general = is_general(s);
  const attention_dx_bf16_variant *const queries = general ? choose(general_of_queries, dim, dim[2])
                                                           : choose(of_queries, dim, dim[2]),
                                         *const keys = general
                                                           ? choose(general_of_keys, dim, dim[3])
                                                           : choose(of_keys, dim, dim[3]);
  if (queries == NULL || keys == NULL || dim[4] % 8 != 0) {
    pen_cuda_note_text("ATTENTION_DX over bf16", "head_dim must be a multiple of 8, at most 128");
    return;
  }
  const auto launch = [&](const attention_dx_bf16_variant &v, int64_t heads, int64_t rows) {
    const dim3 grid((unsigned)heads, (unsigned)ceiling(rows, v.outer_rows), (unsigned)dim[0]);
    PEN_LAUNCH(v.kernel, grid, dim3(BLOCK), v.shared_bytes, call->stream, p, s);
  };
  launch_delta(call, p.o);
  launch(*queries, dim[2], s.sequence);
  launch(*keys, dim[3], s.keys);
}

} /* namespace */

void pen_cuda_attention_dx_bf16_open(void) {
  allow_shared_of(of_keys);
  allow_shared_of(of_queries);
  allow_shared_of(general_of_keys);
  allow_shared_of(general_of_queries);
}

size_t pen_cuda_attention_dx_bf16_shared(const int64_t dim[PEN_DIMS_MAX]) {
  const attention_dx_bf16_variant *const queries = choose(of_queries, dim, dim[2]), *const keys =
                                                                                        choose(
                                                                                            of_keys,
                                                                                            dim,
                                                                                            dim[3]);
  return queries == NULL || keys == NULL              ? 0
         : queries->shared_bytes > keys->shared_bytes ? queries->shared_bytes
                                                      : keys->shared_bytes;
}

void pen_cuda_attention_dx_bf16(const struct pen_call *call) {
  launch_all(call, dx_operands_of<bf16>(call), shape_of(call));
  copy_dq_back(call, sizeof(bf16));
}

void pen_cuda_attention_full_dx_bf16(const struct pen_call *call) {
  launch_all(call, full_dx_operands_of<bf16>(call), full_shape_of(call));
  copy_dq_back(call, sizeof(bf16));
}

void pen_cuda_attention_qkv_dx_bf16(const struct pen_call *call) {
  launch_all(call, qkv_dx_operands_of<bf16>(call), qkv_shape_of(call));
}
