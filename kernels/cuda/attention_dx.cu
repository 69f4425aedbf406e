/* attention_dx.cu: ATTENTION_DX over f32 without tensor cores: attention_dx_bf16.cu says how the
 * work is cut; here the probabilities and their slopes pass through shared memory.
 *
 * Launch: delta; heads x (blocks of queries, the longest walk first) x batch; kv_heads x (blocks of
 * keys) x batch; 256 threads. 64 rows stand and 32 walk; past a head_dim of 128, 32 and 32, and
 * from 65 on where a block may not have the shared memory; how many stand changes no bits. head_dim
 * is at most 256. Order: queries' heads rising, in each blocks rising. Workspace: see
 * attention.cuh. */
#include "kernels/cuda/attention_dx.cuh"
#include "kernels/cuda/plain_product.cuh"

namespace {

enum { C = 2, WALK = SIDE * C, CHANCE_STRIDE = WALK + 4 };

/* chance = p, slope = ds, of scores and of do v^T, from the first standing and the first walking
 * row on. */
template <int R, bool KEYS_STAND>
__device__ inline void recall(float *chance, float *slope, float scores[R][C], float slopes[R][C],
                              const statistic *of_query, float scale, int standing, int walking) {
#pragma unroll
  for (int r = 0; r < R; r++)
#pragma unroll
    for (int c = 0; c < C; c++) {
      const int row = team() * R + r, column = place() + SIDE * c;
      const statistic query = of_query[KEYS_STAND ? column : row];
      const int key = KEYS_STAND ? standing + row : walking + column,
                asks = KEYS_STAND ? walking + column : standing + row;
      const bool seen = key <= asks && key >= query.first;
      const float p = seen ? expf(fmaf(scores[r][c], scale, -query.lse)) : 0.0f;
      chance[row * CHANCE_STRIDE + column] = p;
      slope[row * CHANCE_STRIDE + column] = p * (slopes[r][c] - query.delta);
    }
}

template <int D, int R>
__device__ inline void write_rows(float *to, int64_t to_row, float sum[R][D / SIDE], int first_row,
                                  const attention_shape &s, float factor) {
#pragma unroll
  for (int r = 0; r < R; r++)
#pragma unroll
    for (int j = 0; j < D / SIDE; j++) {
      const int row = first_row + team() * R + r, column = place() + SIDE * j;
      if (row < s.sequence && column < s.head_dim) to[row * to_row + column] = sum[r][j] * factor;
    }
}

template <int D, int R, bool KEYS_STAND>
__global__ void __launch_bounds__(THREADS) differentiate(operands<float> p, attention_shape s) {
  enum { STAND = SIDE * R, STRIDE = plain_tile<D>::STRIDE, STATISTICS = KEYS_STAND ? WALK : STAND };
  PEN_SHARED(shared);
  __shared__ statistic of_query[STATISTICS];
  const plain_tile<D> stand1 = {(float *)shared}, stand2 = {stand1.at + STAND * STRIDE};
  const plain_tile<D> walk1 = {stand2.at + STAND * STRIDE}, walk2 = {walk1.at + WALK * STRIDE};
  float *const chance = walk2.at + WALK * STRIDE, *const slope = chance + STAND * CHANCE_STRIDE;
  const int64_t batch = blockIdx.z;
  const int first_row = (int)(KEYS_STAND ? blockIdx.y : gridDim.y - 1 - blockIdx.y) * STAND,
            thread = (int)threadIdx.x;
  const walk<STAND, WALK, KEYS_STAND> way(s, begins_of(p, s, batch), first_row);
  const int kv_head = KEYS_STAND ? (int)blockIdx.x : (int)blockIdx.x / s.group;
  const int64_t q_from = batch * s.sequence * s.q_row,
                k_from = batch * s.sequence * s.k_row + kv_head * s.head_dim;
  const int64_t stand_row = KEYS_STAND ? s.k_row : s.q_row,
                walk_row = KEYS_STAND ? s.q_row : s.k_row;
  const int64_t stand_from = KEYS_STAND ? k_from : q_from + way.first.head * s.head_dim;
  const int64_t stand_at = stand_from + first_row * stand_row;
  copy_plain<D, STAND>(stand1, (KEYS_STAND ? p.k : p.q) + stand_at, stand_row,
                       s.sequence - first_row, s.head_dim);
  copy_plain<D, STAND>(stand2, (KEYS_STAND ? p.v : p.dout) + stand_at, stand_row,
                       s.sequence - first_row, s.head_dim);
  float sum1[R][D / SIDE] = {}, sum2[R][D / SIDE] = {}; /* dk or dq; dv */
  auto place = way.first;
  for (int step = 0; step < way.steps; step++, place = way.after(place)) {
    const int row = place.row, head = place.head;
    const int64_t at = row * walk_row + (KEYS_STAND ? q_from + head * s.head_dim : k_from);
    __syncthreads(); /* nobody reads the step before any more */
    copy_plain<D, WALK>(walk1, (KEYS_STAND ? p.q : p.k) + at, walk_row, s.sequence - row,
                        s.head_dim);
    copy_plain<D, WALK>(walk2, (KEYS_STAND ? p.dout : p.v) + at, walk_row, s.sequence - row,
                        s.head_dim);
    if (thread < STATISTICS)
      of_query[thread] =
          statistic_of(p, s, batch, head, (KEYS_STAND ? row : first_row) + thread, 1);
    __syncthreads();
    float scores[R][C], slopes[R][C];
    plain_products<D, R, C>(scores, stand1, walk1);
    plain_products<D, R, C>(slopes, stand2, walk2);
    recall<R, KEYS_STAND>(chance, slope, scores, slopes, of_query, s.scale, first_row, row);
    __syncwarp(); /* a row is written and read by one warp */
    add_plain_products<D, R, WALK>(sum1, slope, CHANCE_STRIDE, walk1);
    if (KEYS_STAND) add_plain_products<D, R, WALK>(sum2, chance, CHANCE_STRIDE, walk2);
  }
  write_rows<D, R>((KEYS_STAND ? p.dk : p.dq) + stand_from, stand_row, sum1, first_row, s, s.scale);
  if (KEYS_STAND) write_rows<D, R>(p.dv + stand_from, stand_row, sum2, first_row, s, 1.0f);
}

typedef void differentiate_kernel(operands<float>, attention_shape);

const struct variant {
  differentiate_kernel *of_keys, *of_queries;
  int head_dim, stand;
} variants[] = {
    {differentiate<32, 4, true>, differentiate<32, 4, false>, 32, 64},
    {differentiate<64, 4, true>, differentiate<64, 4, false>, 64, 64},
    {differentiate<128, 4, true>, differentiate<128, 4, false>, 128, 64},
    {differentiate<128, 2, true>, differentiate<128, 2, false>, 128, 32},
    {differentiate<256, 2, true>, differentiate<256, 2, false>, 256, 32},
};
enum { VARIANTS = sizeof variants / sizeof *variants };

size_t shared_bytes(const variant &v) {
  return (size_t)(2 * (v.stand + WALK) * (v.head_dim + 4) + 2 * v.stand * CHANCE_STRIDE) *
         sizeof(float);
}

/* The first that the chip has the shared memory for; else the one that wants least. Null: head_dim
 * is too large. */
const variant *choose(int64_t head_dim) {
  const variant *chosen = NULL;
  for (const variant &v : variants)
    if (v.head_dim >= head_dim && (!chosen || (v.head_dim == chosen->head_dim &&
                                               shared_bytes(*chosen) > pen_cuda_chip.shared_bytes)))
      chosen = &v;
  return chosen;
}

} /* namespace */

void pen_cuda_attention_dx_open(void) {
  for (int i = 0; i < VARIANTS; i++) {
    pen_cuda_grant("shared memory for ATTENTION_DX", (const void *)variants[i].of_keys,
                   shared_bytes(variants[i]));
    pen_cuda_grant("shared memory for ATTENTION_DX", (const void *)variants[i].of_queries,
                   shared_bytes(variants[i]));
  }
}

size_t pen_cuda_attention_dx_workspace(const int64_t dim[PEN_DIMS_MAX]) {
  return delta_bytes(dim) + (size_t)q_count(dim) * sizeof(float);
}

size_t pen_cuda_attention_dx_shared(const int64_t dim[PEN_DIMS_MAX]) {
  const variant *const chosen = choose(dim[4]);
  return chosen == NULL ? 0 : shared_bytes(*chosen);
}

void pen_cuda_attention_dx(const struct pen_call *call) {
  const int64_t *dim = call->dim;
  const variant *const chosen = choose(dim[4]);
  if (chosen == NULL) {
    pen_cuda_note_text("ATTENTION_DX", "head_dim must be at most 256");
    return;
  }
  const operands<float> p = {(const float *)call->operand[0], (const float *)call->operand[1],
                             (const float *)call->operand[2], (const float *)call->operand[3],
                             (const float *)call->operand[5], (const float *)call->workspace,
                             (float *)dq_place(call),         (float *)call->operand[8],
                             (float *)call->operand[9],       (const int32_t *)call->operand[6]};
  const unsigned blocks = (unsigned)ceiling(dim[1], chosen->stand);
  const attention_shape s = shape_of(dim);
  launch_delta<float>(call);
  PEN_LAUNCH(chosen->of_queries, dim3((unsigned)dim[2], blocks, (unsigned)dim[0]), dim3(THREADS),
             shared_bytes(*chosen), call->stream, p, s);
  PEN_LAUNCH(chosen->of_keys, dim3((unsigned)dim[3], blocks, (unsigned)dim[0]), dim3(THREADS),
             shared_bytes(*chosen), call->stream, p, s);
  move_dq(call, sizeof(float));
}
