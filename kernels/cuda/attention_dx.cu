/* attention_dx.cu: ATTENTION_DX, ATTENTION_QKV_DX and ATTENTION_FULL_DX in f32, without tensor
 * cores. The work is divided as in attention_dx_bf16.cu; here p and ds pass through shared memory.
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
template <int R, bool KEYS_OUTER, bool GENERAL>
__device__ inline void recompute_probabilities(float *chance, float *slope, float scores[R][C],
                                               float slopes[R][C], const statistic *of_query,
                                               const attention_shape &s, const int32_t *mask,
                                               int outer_row, int inner_row) {
#pragma unroll
  for (int r = 0; r < R; r++)
#pragma unroll
    for (int c = 0; c < C; c++) {
      const int row = team() * R + r, column = place() + SIDE * c;
      const statistic query = of_query[KEYS_OUTER ? column : row];
      const int key = KEYS_OUTER ? outer_row + row : inner_row + column,
                asks = KEYS_OUTER ? inner_row + column : outer_row + row;
      const bool seen = is_seen<GENERAL>(key, asks, s, mask) && key >= query.first;
      const capped_score capped =
          GENERAL ? cap_score(scores[r][c], s) : capped_score{scores[r][c], 1.0f};
      const float p = seen ? expf(fmaf(capped.score, s.scale, -query.lse)) : 0.0f;
      chance[row * CHANCE_STRIDE + column] = p;
      slope[row * CHANCE_STRIDE + column] =
          p * (slopes[r][c] - query.delta) * (GENERAL ? capped.slope : 1.0f);
    }
}

template <int D, int R>
__device__ inline void write_rows(float *to, int64_t to_row, float sum[R][D / SIDE], int first_row,
                                  int rows, int head_dim, float factor) {
#pragma unroll
  for (int r = 0; r < R; r++)
#pragma unroll
    for (int j = 0; j < D / SIDE; j++) {
      const int row = first_row + team() * R + r, column = place() + SIDE * j;
      if (row < rows && column < head_dim) to[row * to_row + column] = sum[r][j] * factor;
    }
}

template <int D, int R, bool KEYS_OUTER, bool GENERAL>
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
  const inner_loop<OUTER, INNER, KEYS_OUTER, GENERAL> loop(s, begins_of(p, s, batch), first_row);
  const int kv_head = KEYS_OUTER ? (int)blockIdx.x : (int)blockIdx.x / s.group;
  const int outer_head = KEYS_OUTER ? kv_head : loop.first.head;
  const row_pair<float, KEYS_OUTER> outer(p, s, batch, outer_head, first_row);
  const int outer_rows = rows_in<KEYS_OUTER>(s), inner_rows = rows_in<!KEYS_OUTER>(s);
  const int32_t *const mask = GENERAL && p.mask ? p.mask + batch * s.keys : NULL;
  copy_plain<D, OUTER>(outer1, outer.first.at, outer.first.apart, outer_rows - first_row,
                       s.head_dim);
  copy_plain<D, OUTER>(outer2, outer.second.at, outer.second.apart, outer_rows - first_row,
                       s.head_dim);
  float sum1[R][D / SIDE] = {}, sum2[R][D / SIDE] = {}; /* dk or dq; dv */
  auto next = loop.first;
  for (int step = 0; step < loop.steps; step++, next = loop.after(next)) {
    const int row = next.row, head = next.head;
    const row_pair<float, !KEYS_OUTER> inner(p, s, batch, KEYS_OUTER ? head : kv_head, row);
    __syncthreads(); /* the previous step is no longer read */
    copy_plain<D, INNER>(inner1, inner.first.at, inner.first.apart, inner_rows - row, s.head_dim);
    copy_plain<D, INNER>(inner2, inner.second.at, inner.second.apart, inner_rows - row, s.head_dim);
    if (thread < STATISTICS)
      of_query[thread] =
          statistic_of(p, s, batch, head, (KEYS_OUTER ? row : first_row) + thread, 1);
    __syncthreads();
    float scores[R][C], slopes[R][C];
    plain_products<D, R, C>(scores, outer1, inner1);
    plain_products<D, R, C>(slopes, outer2, inner2);
    recompute_probabilities<R, KEYS_OUTER, GENERAL>(chance, slope, scores, slopes, of_query, s,
                                                    mask, first_row, row);
    __syncwarp(); /* one warp writes and reads a row */
    add_plain_products<D, R, INNER>(sum1, slope, CHANCE_STRIDE, inner1);
    if (KEYS_OUTER) add_plain_products<D, R, INNER>(sum2, chance, CHANCE_STRIDE, inner2);
  }
  const int64_t apart = outer.first.apart,
                from = batch * outer_rows * apart + outer_head * s.head_dim;
  write_rows<D, R>((KEYS_OUTER ? p.dk : p.dq) + from, apart, sum1, first_row, outer_rows,
                   s.head_dim, s.scale);
  if (KEYS_OUTER)
    write_rows<D, R>(p.dv + from, apart, sum2, first_row, outer_rows, s.head_dim, 1.0f);
}

typedef void differentiate_kernel(operands<float>, attention_shape);

/* Kernels: the plain one and the general one. */
struct attention_dx_variant {
  differentiate_kernel *of_keys[2], *of_queries[2];
  int head_dim, outer_rows;
};

template <int D, int R>
constexpr attention_dx_variant variant_of() {
  return {{differentiate<D, R, true, false>, differentiate<D, R, true, true>},
          {differentiate<D, R, false, false>, differentiate<D, R, false, true>},
          D,
          SIDE * R};
}

const attention_dx_variant variants[] = {variant_of<32, 4>(), variant_of<64, 4>(),
                                         variant_of<128, 4>(), variant_of<128, 2>(),
                                         variant_of<256, 2>()};

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
  const unsigned blocks = (unsigned)ceiling(s.sequence, chosen->outer_rows),
                 key_blocks = (unsigned)ceiling(s.keys, chosen->outer_rows);
  launch_delta(call, p.o);
  PEN_LAUNCH(chosen->of_queries[is_general(s)], dim3((unsigned)dim[2], blocks, (unsigned)dim[0]),
             dim3(THREADS), shared_bytes(*chosen), call->stream, p, s);
  PEN_LAUNCH(chosen->of_keys[is_general(s)], dim3((unsigned)dim[3], key_blocks, (unsigned)dim[0]),
             dim3(THREADS), shared_bytes(*chosen), call->stream, p, s);
}

} /* namespace */

void pen_cuda_attention_dx_open(void) {
  for (const attention_dx_variant &v : variants)
    for (int general = 0; general < 2; general++) {
      pen_cuda_allow_shared("shared memory for ATTENTION_DX", (const void *)v.of_keys[general],
                            shared_bytes(v));
      pen_cuda_allow_shared("shared memory for ATTENTION_DX", (const void *)v.of_queries[general],
                            shared_bytes(v));
    }
}

size_t pen_cuda_attention_dx_shared(const int64_t dim[PEN_DIMS_MAX]) {
  const attention_dx_variant *const chosen = choose(dim[4]);
  return chosen == NULL ? 0 : shared_bytes(*chosen);
}

void pen_cuda_attention_dx(const struct pen_call *call) {
  launch(call, dx_operands_of<float>(call), shape_of(call));
  copy_dq_back(call, sizeof(float));
}

void pen_cuda_attention_full_dx(const struct pen_call *call) {
  launch(call, full_dx_operands_of<float>(call), full_shape_of(call));
  copy_dq_back(call, sizeof(float));
}

void pen_cuda_attention_qkv_dx(const struct pen_call *call) {
  launch(call, qkv_dx_operands_of<float>(call), qkv_shape_of(call));
}
