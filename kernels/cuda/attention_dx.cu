/* attention_dx.cu: ATTENTION_DX and ATTENTION_QKV_DX in f32, without tensor cores. The work is
 * divided as in attention_dx_bf16.cu; here p and ds pass through shared memory.
 *
 * Launch: delta; heads x (blocks of queries, the longest inner loop first) x batch; kv_heads x
 * (blocks of keys) x batch; 256 threads. 64 outer and 32 inner rows; above a head_dim of 128, or
 * above 64 if a block cannot have the shared memory, 32 and 32. The number of outer rows does not
 * change bits. head_dim is at most 256. Order: heads of queries rising, blocks of each rising.
 * Workspace: see attention.cuh.
 */
#include "kernels/cuda/attention_dx.cuh"
#include "kernels/cuda/plain_product.cuh"

namespace {

enum { C = 2, INNER = SIDE * C, CHANCE_STRIDE = INNER + 4 };

/* chance = p, slope = ds, from the scores and do v^T of the tile at outer_row and inner_row. */
template <int R, bool KEYS_OUTER>
__device__ inline void recompute_probabilities(float *chance, float *slope, float scores[R][C],
                                               float slopes[R][C], const statistic *of_query,
                                               float scale, int outer_row, int inner_row) {
#pragma unroll
  for (int r = 0; r < R; r++)
#pragma unroll
    for (int c = 0; c < C; c++) {
      const int row = team() * R + r, column = place() + SIDE * c;
      const statistic query = of_query[KEYS_OUTER ? column : row];
      const int key = KEYS_OUTER ? outer_row + row : inner_row + column,
                asks = KEYS_OUTER ? inner_row + column : outer_row + row;
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

template <int D, int R, bool KEYS_OUTER>
__global__ void __launch_bounds__(THREADS) differentiate(operands<float> p, attention_shape s) {
  enum {
    OUTER = SIDE * R,
    STRIDE = plain_tile<D>::STRIDE,
    STATISTICS = KEYS_OUTER ? INNER : OUTER
  };
  PEN_SHARED(shared);
  __shared__ statistic of_query[STATISTICS];
  const plain_tile<D> outer1 = {(float *)shared}, outer2 = {outer1.at + OUTER * STRIDE};
  const plain_tile<D> inner1 = {outer2.at + OUTER * STRIDE}, inner2 = {inner1.at + INNER * STRIDE};
  float *const chance = inner2.at + INNER * STRIDE, *const slope = chance + OUTER * CHANCE_STRIDE;
  const int64_t batch = blockIdx.z;
  const int first_row = (int)(KEYS_OUTER ? blockIdx.y : gridDim.y - 1 - blockIdx.y) * OUTER,
            thread = (int)threadIdx.x;
  const inner_loop<OUTER, INNER, KEYS_OUTER> loop(s, begins_of(p, s, batch), first_row);
  const int kv_head = KEYS_OUTER ? (int)blockIdx.x : (int)blockIdx.x / s.group;
  const int outer_head = KEYS_OUTER ? kv_head : loop.first.head;
  const row_pair<float, KEYS_OUTER> outer(p, s, batch, outer_head, first_row);
  copy_plain<D, OUTER>(outer1, outer.first.at, outer.first.apart, s.sequence - first_row,
                       s.head_dim);
  copy_plain<D, OUTER>(outer2, outer.second.at, outer.second.apart, s.sequence - first_row,
                       s.head_dim);
  float sum1[R][D / SIDE] = {}, sum2[R][D / SIDE] = {}; /* dk or dq; dv */
  auto next = loop.first;
  for (int step = 0; step < loop.steps; step++, next = loop.after(next)) {
    const int row = next.row, head = next.head;
    const row_pair<float, !KEYS_OUTER> inner(p, s, batch, KEYS_OUTER ? head : kv_head, row);
    __syncthreads(); /* the previous step is no longer read */
    copy_plain<D, INNER>(inner1, inner.first.at, inner.first.apart, s.sequence - row, s.head_dim);
    copy_plain<D, INNER>(inner2, inner.second.at, inner.second.apart, s.sequence - row, s.head_dim);
    if (thread < STATISTICS)
      of_query[thread] =
          statistic_of(p, s, batch, head, (KEYS_OUTER ? row : first_row) + thread, 1);
    __syncthreads();
    float scores[R][C], slopes[R][C];
    plain_products<D, R, C>(scores, outer1, inner1);
    plain_products<D, R, C>(slopes, outer2, inner2);
    recompute_probabilities<R, KEYS_OUTER>(chance, slope, scores, slopes, of_query, s.scale,
                                           first_row, row);
    __syncwarp(); /* one warp writes and reads a row */
    add_plain_products<D, R, INNER>(sum1, slope, CHANCE_STRIDE, inner1);
    if (KEYS_OUTER) add_plain_products<D, R, INNER>(sum2, chance, CHANCE_STRIDE, inner2);
  }
  const int64_t apart = outer.first.apart,
                from = batch * s.sequence * apart + outer_head * s.head_dim;
  write_rows<D, R>((KEYS_OUTER ? p.dk : p.dq) + from, apart, sum1, first_row, s, s.scale);
  if (KEYS_OUTER) write_rows<D, R>(p.dv + from, apart, sum2, first_row, s, 1.0f);
}

typedef void differentiate_kernel(operands<float>, attention_shape);

const struct attention_dx_variant {
  differentiate_kernel *of_keys, *of_queries;
  int head_dim, outer_rows;
} variants[] = {
    {differentiate<32, 4, true>, differentiate<32, 4, false>, 32, 64},
    {differentiate<64, 4, true>, differentiate<64, 4, false>, 64, 64},
    {differentiate<128, 4, true>, differentiate<128, 4, false>, 128, 64},
    {differentiate<128, 2, true>, differentiate<128, 2, false>, 128, 32},
    {differentiate<256, 2, true>, differentiate<256, 2, false>, 256, 32},
};
enum { VARIANTS = sizeof variants / sizeof *variants };

size_t shared_bytes(const attention_dx_variant &v) {
  return (size_t)(2 * (v.outer_rows + INNER) * (v.head_dim + 4) +
                  2 * v.outer_rows * CHANCE_STRIDE) *
         sizeof(float);
}

/* The first variant whose shared memory this GPU has; else the one that needs least. Null: head_dim
 * is too large. */
const attention_dx_variant *choose(int64_t head_dim) {
  const attention_dx_variant *chosen = NULL;
  for (const attention_dx_variant &v : variants)
    if (v.head_dim >= head_dim && (!chosen || (v.head_dim == chosen->head_dim &&
                                               shared_bytes(*chosen) > pen_cuda_chip.shared_bytes)))
      chosen = &v;
  return chosen;
}

void launch(const struct pen_call *call, const operands<float> &p, const attention_shape &s) {
  const int64_t *dim = call->dim;
  const attention_dx_variant *const chosen = choose(dim[4]);
  if (chosen == NULL) {
    pen_cuda_note_text("ATTENTION_DX", "head_dim must be at most 256");
    return;
  }
  const unsigned blocks = (unsigned)ceiling(dim[1], chosen->outer_rows);
  launch_delta(call, p.o);
  PEN_LAUNCH(chosen->of_queries, dim3((unsigned)dim[2], blocks, (unsigned)dim[0]), dim3(THREADS),
             shared_bytes(*chosen), call->stream, p, s);
  PEN_LAUNCH(chosen->of_keys, dim3((unsigned)dim[3], blocks, (unsigned)dim[0]), dim3(THREADS),
             shared_bytes(*chosen), call->stream, p, s);
}

} /* namespace */

void pen_cuda_attention_dx_open(void) {
  for (int i = 0; i < VARIANTS; i++) {
    pen_cuda_allow_shared("shared memory for ATTENTION_DX", (const void *)variants[i].of_keys,
                          shared_bytes(variants[i]));
    pen_cuda_allow_shared("shared memory for ATTENTION_DX", (const void *)variants[i].of_queries,
                          shared_bytes(variants[i]));
  }
}

size_t pen_cuda_attention_dx_shared(const int64_t dim[PEN_DIMS_MAX]) {
  const attention_dx_variant *const chosen = choose(dim[4]);
  return chosen == NULL ? 0 : shared_bytes(*chosen);
}

void pen_cuda_attention_dx(const struct pen_call *call) {
  launch(call, dx_operands_of<float>(call), shape_of(call->dim));
  copy_dq_back(call, sizeof(float));
}

void pen_cuda_attention_qkv_dx(const struct pen_call *call) {
  launch(call, qkv_dx_operands_of<float>(call), qkv_shape_of(call->dim));
}
