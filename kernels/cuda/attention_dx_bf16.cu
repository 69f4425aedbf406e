/* attention_dx_bf16.cu: ATTENTION_DX over bf16 on tensor cores, probabilities made again from lse block by block (Dao 2023).
 *
 * With s = q k^T/sqrt(head_dim), p = e^(s - lse) and delta = sum of do o over a row:
 *     dv = p^T do,   ds = p (do v^T - delta),   dq = ds k/sqrt(head_dim),   dk = ds^T q/sqrt(head_dim).
 * Two kernels of one template, so that nothing is added atomically. In each a block of 64 rows stands, 16 a warp, and blocks of the
 * other side walk past it: keys stand and queries walk (all heads of the group, one after the other) for dk and dv; queries stand and
 * keys walk for dq. Either way the scores are (standing) x (walking), and stay in registers. It costs 7 products where 5 would do
 * with atomics. The next block to walk comes by cp.async into the other half of a double buffer.
 *
 * Launch: delta; (blocks of 64 queries, the longest walk first) x heads x batch; (blocks of 64 keys) x kv_heads x batch; 128 threads.
 * Order: queries' heads rising, in each blocks rising. dq goes in q's place last, dk and dv in k's and v's: a block reads no keys but its
 * own there. Workspace: see attention.cuh. */
#include "kernels/cuda/attention_dx.cuh"
#include "kernels/cuda/mma.cuh"

namespace {

enum { WARPS = 4, BLOCK = WARPS * WARP, STAND = WARPS * 16 };

/* Scores are taken to powers of two. */
#define LOG2_E 1.44269504f

/* Scores become p: row and column are of the whole block's product, from the first standing and the first walking row on. */
template <int WALK, bool KEYS_STAND>
__device__ inline void recall(float scores[1][WALK / 8][4], const statistic *of_query, float scale, int own_row, int standing, int walking) {
  const int lane = (int)threadIdx.x % WARP;
#pragma unroll
  for (int n = 0; n < WALK / 8; n++)
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const int row = own_row + lane / 4 + i / 2 * 8, column = n * 8 + lane % 4 * 2 + i % 2;
      const statistic &query = of_query[KEYS_STAND ? column : row];
      const int key = KEYS_STAND ? standing + row : walking + column, asks = KEYS_STAND ? walking + column : standing + row;
      const bool seen = key <= asks && key >= query.first;
      scores[0][n][i] = seen ? power_of_two(fmaf(scores[0][n][i], scale, -query.lse)) : 0.0f;
    }
}

/* slopes become ds = p (do v^T - delta) */
template <int WALK, bool KEYS_STAND>
__device__ inline void slope(float slopes[1][WALK / 8][4], float p[1][WALK / 8][4], const statistic *of_query, int own_row) {
  const int lane = (int)threadIdx.x % WARP;
#pragma unroll
  for (int n = 0; n < WALK / 8; n++)
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const int row = own_row + lane / 4 + i / 2 * 8, column = n * 8 + lane % 4 * 2 + i % 2;
      slopes[0][n][i] = p[0][n][i] * (slopes[0][n][i] - of_query[KEYS_STAND ? column : row].delta);
    }
}

/* Writes a warp's 16 rows, as many as there are. `to` is row 0 of the sequence. */
template <int D>
__device__ inline void write_rows(bf16 *to, int64_t to_row, float sum[1][D / 8][4], int first_row, const attention_shape &s, float factor) {
  const int lane = (int)threadIdx.x % WARP;
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const int row = first_row + half * 8 + lane / 4;
#pragma unroll
    for (int n = 0; n < D / 8; n++) {
      const int column = n * 8 + lane % 4 * 2;
      if (row < s.sequence && column < s.head_dim)
        *(uint32_t *)(to + row * to_row + column) = pack(sum[0][n][2 * half] * factor, sum[0][n][2 * half + 1] * factor);
    }
  }
}

template <int D, int WALK, bool KEYS_STAND> __global__ void __launch_bounds__(BLOCK) differentiate(operands<bf16> p, attention_shape s) {
  enum { STRIDE = tile_of<D>::STRIDE, STATISTICS = KEYS_STAND ? WALK : STAND };
  PEN_SHARED(shared);
  const tile_of<D> stand1 = {(bf16 *)shared}, stand2 = {stand1.at + STAND * STRIDE};
  bf16 *const walking = stand2.at + STAND * STRIDE; /* [2 steps][2 tiles][WALK][STRIDE] */
  statistic *const statistics = (statistic *)(walking + 4 * WALK * STRIDE); /* [2 or 1][STATISTICS] */
  const int64_t batch = blockIdx.z;
  const int first_row = (int)(KEYS_STAND ? blockIdx.x : gridDim.x - 1 - blockIdx.x) * STAND;
  const int own_row = (int)threadIdx.x / WARP * 16, thread = (int)threadIdx.x;
  const walk<STAND, WALK, KEYS_STAND> way(s, begins_of(p, s, batch), first_row);
  const int kv_head = KEYS_STAND ? (int)blockIdx.y : (int)blockIdx.y / s.group;
  const int64_t q_from = batch * s.sequence * s.q_row, k_from = batch * s.sequence * s.k_row + kv_head * s.head_dim;
  const int64_t stand_row = KEYS_STAND ? s.k_row : s.q_row, walk_row = KEYS_STAND ? s.q_row : s.k_row;
  const int64_t stand_from = (KEYS_STAND ? k_from : q_from + way.head * s.head_dim);
  const bf16 *const walk1 = KEYS_STAND ? p.q + q_from : p.k + k_from, *const walk2 = KEYS_STAND ? p.dout + q_from : p.v + k_from;

  const auto start_walk = [&](int step) {
    const int row = way.row_of(step);
    const int64_t at = row * walk_row + (KEYS_STAND ? way.head_of(step) * s.head_dim : 0);
    bf16 *const to = walking + step % 2 * 2 * WALK * STRIDE;
    copy_tile<D, WALK, BLOCK>({to}, walk1 + at, walk_row, s.sequence - row, s.head_dim);
    copy_tile<D, WALK, BLOCK>({to + WALK * STRIDE}, walk2 + at, walk_row, s.sequence - row, s.head_dim);
  };
  const int64_t stand_at = stand_from + first_row * stand_row;
  copy_tile<D, STAND, BLOCK>(stand1, (KEYS_STAND ? p.k : p.q) + stand_at, stand_row, s.sequence - first_row, s.head_dim);
  copy_tile<D, STAND, BLOCK>(stand2, (KEYS_STAND ? p.v : p.dout) + stand_at, stand_row, s.sequence - first_row, s.head_dim);
  start_walk(0);
  copies_commit();
  if (thread < STATISTICS)
    statistics[thread] = statistic_of(p, s, batch, way.head, (KEYS_STAND ? way.start : first_row) + thread, LOG2_E);

  float sum1[1][D / 8][4] = {}, sum2[1][D / 8][4] = {}; /* dk or dq; dv */
  for (int step = 0; step < way.steps; step++) {
    statistic next = {};
    if (step + 1 < way.steps) {
      start_walk(step + 1);
      if (KEYS_STAND && thread < STATISTICS)
        next = statistic_of(p, s, batch, way.head_of(step + 1), way.row_of(step + 1) + thread, LOG2_E);
    }
    copies_commit();
    copies_wait<1>();
    __syncthreads(); /* this step's rows are there */
    const tile_of<D> tile1 = {walking + step % 2 * 2 * WALK * STRIDE}, tile2 = {tile1.at + WALK * STRIDE};
    const statistic *of_query = statistics + (KEYS_STAND ? step % 2 * STATISTICS : 0);
    float probable[1][WALK / 8][4], slopes[1][WALK / 8][4];
    products<D, 1, WALK>(probable, stand1, tile1, own_row);
    recall<WALK, KEYS_STAND>(probable, of_query, s.scale * LOG2_E, own_row, first_row, way.row_of(step));
    if (KEYS_STAND)
      add_products<D, 1, WALK>(sum2, probable, tile2);
    products<D, 1, WALK>(slopes, stand2, tile2, own_row);
    slope<WALK, KEYS_STAND>(slopes, probable, of_query, own_row);
    add_products<D, 1, WALK>(sum1, slopes, tile1);
    if (KEYS_STAND && thread < STATISTICS)
      statistics[(step + 1) % 2 * STATISTICS + thread] = next;
    __syncthreads(); /* nobody reads this step's rows any more */
  }
  copies_wait<0>();
  write_rows<D>((KEYS_STAND ? p.dk : p.dq) + stand_from, stand_row, sum1, first_row + own_row, s, s.scale);
  if (KEYS_STAND)
    write_rows<D>(p.dv + stand_from, stand_row, sum2, first_row + own_row, s, 1.0f);
}

typedef void differentiate_kernel(operands<bf16>, attention_shape);

const struct variant {
  differentiate_kernel *of_keys, *of_queries;
  int head_dim, walk;
} variants[] = {
  {differentiate<32, 64, true>, differentiate<32, 64, false>, 32, 64},
  {differentiate<64, 64, true>, differentiate<64, 64, false>, 64, 64},
  {differentiate<96, 64, true>, differentiate<96, 64, false>, 96, 64},
  {differentiate<128, 64, true>, differentiate<128, 64, false>, 128, 64},
};
enum { VARIANTS = sizeof variants / sizeof *variants };

size_t shared_bytes(const variant &v) {
  return (size_t)((2 * STAND + 4 * v.walk) * (v.head_dim + 8)) * sizeof(bf16) + (size_t)(2 * v.walk) * sizeof(statistic);
}

} /* namespace */

void pen_cuda_attention_dx_bf16_open(void) {
  for (int i = 0; i < VARIANTS; i++) {
    pen_cuda_grant("shared memory for ATTENTION_DX", (const void *)variants[i].of_keys, shared_bytes(variants[i]));
    pen_cuda_grant("shared memory for ATTENTION_DX", (const void *)variants[i].of_queries, shared_bytes(variants[i]));
  }
}

size_t pen_cuda_attention_dx_bf16_workspace(const int64_t dim[PEN_DIMS_MAX]) {
  return delta_bytes(dim) + (size_t)q_count(dim) * sizeof(bf16);
}

void pen_cuda_attention_dx_bf16(const struct pen_call *call) {
  const int64_t *dim = call->dim;
  const variant *chosen = variants;
  while (chosen < variants + VARIANTS && chosen->head_dim < dim[4])
    chosen++;
  if (chosen == variants + VARIANTS || dim[4] % 8 != 0) {
    pen_cuda_note_text("ATTENTION_DX over bf16", "head_dim must be a multiple of 8, at most 128");
    return;
  }
  const operands<bf16> p = {(const bf16 *)call->operand[0],  (const bf16 *)call->operand[1],   (const bf16 *)call->operand[2],
                            (const bf16 *)call->operand[3],  (const float *)call->operand[5],  (const float *)call->workspace,
                            (bf16 *)dq_place(call),          (bf16 *)call->operand[8],         (bf16 *)call->operand[9],
                            (const int32_t *)call->operand[6]};
  const unsigned blocks = (unsigned)ceiling(dim[1], STAND);
  const attention_shape s = shape_of(dim);
  launch_delta<bf16>(call);
  PEN_LAUNCH(chosen->of_queries, dim3(blocks, (unsigned)dim[2], (unsigned)dim[0]), dim3(BLOCK), shared_bytes(*chosen), call->stream, p, s);
  PEN_LAUNCH(chosen->of_keys, dim3(blocks, (unsigned)dim[3], (unsigned)dim[0]), dim3(BLOCK), shared_bytes(*chosen), call->stream, p, s);
  move_dq(call, sizeof(bf16));
}
