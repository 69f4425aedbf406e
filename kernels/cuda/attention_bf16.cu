/* attention_bf16.cu: ATTENTION and ATTENTION_CACHED, and the same of fused products (_QKV), which
 * are causal, and ATTENTION_FULL, in bf16 on tensor cores: grouped-query, online softmax (Milakov
 * and Gimelshein 2018; Dao 2023, FlashAttention-2).
 *
 * A block has one head and QUERIES queries, 16 M for each warp, and iterates over blocks of KEYS
 * keys up to the diagonal. Scores stay in registers; rounded to bf16 they are the left operand of
 * the product with v. Keys and values are loaded by cp.async: the next keys during the softmax, the
 * values during the product with the keys. Sums of e^score use the f32 values before rounding.
 *
 * Launch: heads x (blocks of queries, the longest first) x batch, 128 threads. Order: blocks of
 * keys from the first that the first query sees, rising. A warp skips a block of which its queries
 * see no key. Shared memory: q, and a block of keys and of values, so that two blocks of threads
 * fit a processor.
 *
 * Over a cache: as in attention.cu; a block has 64 queries, so that a chunk of a prompt is one.
 */
#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/mma.cuh"

namespace {

enum { WARPS = 4, BLOCK = WARPS * WARP };

/* The state of a warp for its 16 M queries. */
template <int D, int M>
struct carried_bf16 {
  float output[M][D / 8][4];
  float most[M][2], sum[M][2]; /* for rows g and g + 8 of the lane; sum covers only this lane's
                                  columns until the end */
};

/* Sets scores to -infinity where `hides` returns true for m, half (rows g or g + 8 of 16) and the
 * key's index within KEYS. */
template <int M, int KEYS, class HIDES>
__device__ inline void mask(float scores[M][KEYS / 8][4], const HIDES &hides) {
  const int lane = (int)threadIdx.x % WARP;
#pragma unroll
  for (int m = 0; m < M; m++)
#pragma unroll
    for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
      for (int i = 0; i < 4; i++)
        if (hides(m, i / 2, n * 8 + lane % 4 * 2 + i % 2)) scores[m][n][i] = -INFINITY;
}

/* Caps scores, and sets those to -infinity that a query does not see. */
template <int M, int KEYS>
__device__ inline void adapt(float scores[M][KEYS / 8][4], const attention_shape &s,
                             const int32_t *shown, int first_key, int own) {
  if (s.cap > 0)
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
      for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) scores[m][n][i] = cap_score(scores[m][n][i], s).score;
  const int query = own + (int)threadIdx.x % WARP / 4;
  mask<M, KEYS>(scores, [&](int m, int half, int key) {
    return !is_seen<true>(first_key + key, query + m * 16 + half * 8, s, shown);
  });
}

/* Scores become e^(score - maximum of the row); the output and the sum are scaled down when the
 * maximum grows. */
template <int D, int M, int KEYS>
__device__ inline void online_softmax(carried_bf16<D, M> &c, float scores[M][KEYS / 8][4],
                                      float scale) {
#pragma unroll
  for (int m = 0; m < M; m++)
#pragma unroll
    for (int half = 0; half < 2; half++) {
      float most = c.most[m][half];
#pragma unroll
      for (int n = 0; n < KEYS / 8; n++)
        most = fmaxf(most, fmaxf(scores[m][n][2 * half], scores[m][n][2 * half + 1]));
      most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
      most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
      /* The maximum of a row that has seen no key of its document yet is -infinity. */
      const float from = most == -INFINITY ? 0.0f : most;
      const float shrink = power_of_two((c.most[m][half] - from) * scale), shift = from * scale;
      c.most[m][half] = most;
      float sum = c.sum[m][half] * shrink;
#pragma unroll
      for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
        for (int i = 2 * half; i < 2 * half + 2; i++) {
          scores[m][n][i] = power_of_two(fmaf(scores[m][n][i], scale, -shift));
          sum += scores[m][n][i];
        }
      c.sum[m][half] = sum;
#pragma unroll
      for (int n = 0; n < D / 8; n++) {
        c.output[m][n][2 * half] *= shrink;
        c.output[m][n][2 * half + 1] *= shrink;
      }
    }
}

/* Divides by the sums and writes o and lse (null: not) of the existing rows, which are those of
 * first_query. */
template <int D, int M, bool GENERAL>
__device__ inline void write_output(const carried_bf16<D, M> &c, bf16 *o, float *lse,
                                    const attention_shape &s, int first_query, int own_row) {
  const int lane = (int)threadIdx.x % WARP;
#pragma unroll
  for (int m = 0; m < M; m++)
#pragma unroll
    for (int half = 0; half < 2; half++) {
      float sum = c.sum[m][half];
      sum += __shfl_xor_sync(0xffffffffu, sum, 1);
      sum += __shfl_xor_sync(0xffffffffu, sum, 2);
      const int row = own_row + m * 16 + half * 8 + lane / 4;
      if (first_query + row >= s.sequence) continue;
      const bool sees = !GENERAL || sum != 0;
      const float factor = sees ? 1.0f / sum : 0.0f;
      if (lse && lane % 4 == 0)
        lse[row] = sees ? 0.693147181f * fmaf(c.most[m][half], s.scale, log2f(sum)) : 0.0f;
#pragma unroll
      for (int n = 0; n < D / 8; n++) {
        const int column = n * 8 + lane % 4 * 2;
        if (column < s.head_dim)
          *(uint32_t *)(o + row * s.o_row + column) =
              pack(c.output[m][n][2 * half] * factor, c.output[m][n][2 * half + 1] * factor);
      }
    }
}

/* WARPS 16 M queries of a head by a block of threads: q, o and lse are those of first_query, k, v
 * and starts those of the sequence. */
template <int D, int M, int KEYS, bool GENERAL>
__device__ inline void attend_queries(const attention_operands<bf16> &p, const attention_shape &s,
                                      int first_query) {
  enum { QUERIES = WARPS * M * 16, STRIDE = tile_of<D>::STRIDE };
  PEN_SHARED(shared);
  const tile_of<D> q_tile = {(bf16 *)shared}, k_tile = {q_tile.at + QUERIES * STRIDE},
                   v_tile = {k_tile.at + KEYS * STRIDE};
  const int past = past_seen<GENERAL>(first_query + QUERIES, s);
  const int own_row = (int)threadIdx.x / WARP * M * 16, own = first_query + own_row,
            own_past = own + M * 16;
  const int begin = first_seen(p.starts, first_query, s) / KEYS * KEYS;
  const int last_first = first_seen(p.starts, (own_past < s.sequence ? own_past : s.sequence) - 1,
                                    s); /* the first key that the last query of this warp sees */
  carried_bf16<D, M> carry = {};
#pragma unroll
  for (int m = 0; m < M; m++) carry.most[m][0] = carry.most[m][1] = -INFINITY;
  copy_tile<D, QUERIES, BLOCK>(q_tile, p.q, s.q_row, s.sequence - first_query, s.head_dim);
  copy_tile<D, KEYS, BLOCK>(k_tile, p.k + begin * s.k_row, s.k_row, s.keys - begin, s.head_dim);
  copies_commit();
  for (int first_key = begin; first_key < past; first_key += KEYS) {
    const int next = first_key + KEYS;
    copy_tile<D, KEYS, BLOCK>(v_tile, p.v + first_key * s.k_row, s.k_row, s.keys - first_key,
                              s.head_dim);
    copies_commit();
    copies_wait<1>();
    __syncthreads(); /* q and the keys of this block are loaded */
    const bool sees = first_key < past_seen<GENERAL>(own_past, s);
    float scores[M][KEYS / 8][4];
    if (sees) {
      memset(scores, 0, sizeof scores);
      add_transposed<D, M, KEYS>(scores, q_tile, k_tile, own_row);
    }
    __syncthreads(); /* the keys are no longer read */
    if (next < past)
      copy_tile<D, KEYS, BLOCK>(k_tile, p.k + next * s.k_row, s.k_row, s.keys - next, s.head_dim);
    copies_commit();
    if (sees) {
      if (GENERAL) {
        adapt<M, KEYS>(scores, s, p.mask, first_key, own);
      } else if (next > own + 1) {
        const int above = own - first_key + (int)threadIdx.x % WARP / 4;
        mask<M, KEYS>(
            scores, [above](int m, int half, int key) { return key > above + m * 16 + half * 8; });
      }
      if (first_key < last_first) {
        int first[M * 2];
#pragma unroll
        for (int half = 0; half < 2 * M; half++)
          first[half] =
              first_seen(p.starts, own + half * 8 + (int)threadIdx.x % WARP / 4, s) - first_key;
        mask<M, KEYS>(scores,
                      [&first](int m, int half, int key) { return key < first[2 * m + half]; });
      }
      online_softmax<D, M, KEYS>(carry, scores, s.scale);
    }
    copies_wait<1>();
    __syncthreads(); /* the values are loaded */
    if (sees) add_products<D, M, KEYS>(carry.output, scores, v_tile);
    __syncthreads(); /* the values are no longer read */
  }
  copies_wait<0>();
  write_output<D, M, GENERAL>(carry, p.o, p.lse, s, first_query, own_row);
}

template <int D, int M, int KEYS, bool GENERAL>
__global__ void __launch_bounds__(BLOCK) attend(attention_operands<bf16> p, attention_shape s) {
  enum { QUERIES = WARPS * M * 16 };
  const int first_query = (int)(gridDim.y - 1 - blockIdx.y) * QUERIES;
  attend_queries<D, M, KEYS, GENERAL>(sequence_block(p, s, first_query), s, first_query);
}

template <int D, int KEYS, bool GENERAL>
__global__ void __launch_bounds__(BLOCK) attend_cached(cached_operands<bf16> p, attention_shape s) {
  enum { QUERIES = WARPS * 16 };
  attention_operands<bf16> block;
  int first_query;
  if (take_cached(block, s, p, (int)blockIdx.y * QUERIES, QUERIES, first_query))
    attend_queries<D, 1, KEYS, GENERAL>(block, s, first_query);
}

/* The largest head_dim of each variant, whose kernels are the plain one and the general one; 32
 * queries a warp if registers suffice. Over a cache: 16. */
struct attention_bf16_variant {
  void (*kernel[2])(attention_operands<bf16>, attention_shape);
  void (*cached[2])(cached_operands<bf16>, attention_shape);
  int head_dim, queries, keys;
};

template <int D, int M, int KEYS>
constexpr attention_bf16_variant variant_of() {
  return {{attend<D, M, KEYS, false>, attend<D, M, KEYS, true>},
          {attend_cached<D, KEYS, false>, attend_cached<D, KEYS, true>},
          D,
          WARPS * M * 16,
          KEYS};
}

const attention_bf16_variant variants[] = {variant_of<32, 2, 64>(), variant_of<64, 2, 64>(),
                                           variant_of<96, 2, 64>(), variant_of<128, 2, 64>()};
enum { CACHED_QUERIES = WARPS * 16 };

size_t shared_bytes(const attention_bf16_variant &v, int queries) {
  return (size_t)((queries + 2 * v.keys) * (v.head_dim + 8)) * sizeof(bf16);
}

/* Null: head_dim is too large. */
const attention_bf16_variant *choose(int64_t head_dim) {
  for (const attention_bf16_variant &v : variants)
    if (v.head_dim >= head_dim) return &v;
  return NULL;
}

/* The same, of an op; null: an error was noted. */
const attention_bf16_variant *choose_for(const char *op, int64_t head_dim) {
  const attention_bf16_variant *const chosen = head_dim % 8 == 0 ? choose(head_dim) : NULL;
  if (chosen == NULL) pen_cuda_note_text(op, "head_dim must be a multiple of 8, at most 128");
  return chosen;
}

void launch(const struct pen_call *call, const attention_operands<bf16> &p, attention_shape s) {
  const int64_t *dim = call->dim;
  const attention_bf16_variant *const chosen = choose_for("ATTENTION over bf16", dim[4]);
  if (chosen == NULL) return;
  s.scale *= 1.44269504f; /* exponentials have base 2 */
  const dim3 grid((unsigned)dim[2], (unsigned)ceiling(dim[1], chosen->queries), (unsigned)dim[0]);
  PEN_LAUNCH(chosen->kernel[is_general(s)], grid, dim3(BLOCK),
             shared_bytes(*chosen, chosen->queries), call->stream, p, s);
}

void launch_cached(const struct pen_call *call, const cached_operands<bf16> &p, attention_shape s) {
  const int64_t *dim = call->dim;
  const attention_bf16_variant *const chosen = choose_for("ATTENTION_CACHED over bf16", dim[4]);
  if (chosen == NULL) return;
  s.scale *= 1.44269504f;
  const dim3 grid((unsigned)dim[2], (unsigned)ceiling(dim[1], CACHED_QUERIES), (unsigned)dim[0]);
  launch_write_cache(call, p, s);
  PEN_LAUNCH(chosen->cached[is_general(s)], grid, dim3(BLOCK),
             shared_bytes(*chosen, CACHED_QUERIES), call->stream, p, s);
}

} /* namespace */

void pen_cuda_attention_bf16_open(void) {
  for (const attention_bf16_variant &v : variants)
    for (int general = 0; general < 2; general++) {
      pen_cuda_allow_shared("shared memory for ATTENTION", (const void *)v.kernel[general],
                            shared_bytes(v, v.queries));
      pen_cuda_allow_shared("shared memory for ATTENTION_CACHED", (const void *)v.cached[general],
                            shared_bytes(v, CACHED_QUERIES));
    }
}

size_t pen_cuda_attention_bf16_shared(const int64_t dim[PEN_DIMS_MAX]) {
  const attention_bf16_variant *const chosen = choose(dim[4]);
  return chosen == NULL ? 0 : shared_bytes(*chosen, chosen->queries);
}

size_t pen_cuda_attention_cached_bf16_shared(const int64_t dim[PEN_DIMS_MAX]) {
  const attention_bf16_variant *const chosen = choose(dim[4]);
  return chosen == NULL ? 0 : shared_bytes(*chosen, CACHED_QUERIES);
}

void pen_cuda_attention_bf16(const struct pen_call *call) {
  launch(call, operands_of<bf16>(call), shape_of(call));
}

void pen_cuda_attention_full_bf16(const struct pen_call *call) {
  launch(call, full_operands_of<bf16>(call), full_shape_of(call));
}

void pen_cuda_attention_qkv_bf16(const struct pen_call *call) {
  launch(call, qkv_operands_of<bf16>(call), qkv_shape_of(call));
}

void pen_cuda_attention_cached_bf16(const struct pen_call *call) {
  launch_cached(call, cached_operands_of<bf16>(call), shape_of(call));
}

void pen_cuda_attention_cached_qkv_bf16(const struct pen_call *call) {
  launch_cached(call, cached_qkv_operands_of<bf16>(call), cached_qkv_shape_of(call));
}
