/* attention.cu: ATTENTION and ATTENTION_CACHED, and the same of fused products (_QKV), which are
 * causal, and ATTENTION_FULL, in f32, without tensor cores, whose f32 is TF32: grouped-query,
 * online softmax (Milakov and Gimelshein 2018; Dao 2023). The loop is that of attention_bf16.cu.
 *
 * Launch: heads x (blocks of 64 queries, the longest first) x batch, 256 threads; blocks of 32
 * keys, from the first that the first query sees to the diagonal, rising. head_dim is at most 256.
 * Shared memory: q, a block of keys, one of values, and e^scores.
 *
 * Over a cache: first k and v are written there, then blocks of 16 queries read it. The position of
 * the first is read from memory, so that a captured launch serves every step. Sums have the order
 * of ATTENTION, whatever the block.
 */
#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/plain_product.cuh"

namespace {

enum { C = 2, KEYS = SIDE * C, CHANCE_STRIDE = KEYS + 4 };

/* The queries of a thread: of a block of ATTENTION's, and of one over a cache. */
enum { R_OF_SEQUENCE = 4, R_OF_CACHE = 1 };

/* The state of a thread for its R queries; sum covers only this thread's columns until the end. */
template <int D, int R>
struct carried_f32 {
  float output[R][D / SIDE], most[R], sum[R];
  int first[R]; /* the first key that it sees */
};

__device__ inline float half_warp_maximum(float x) {
#pragma unroll
  for (int apart = SIDE / 2; apart; apart /= 2)
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, apart));
  return x;
}

__device__ inline float half_warp_sum(float x) {
#pragma unroll
  for (int apart = SIDE / 2; apart; apart /= 2) x += __shfl_xor_sync(0xffffffffu, x, apart);
  return x;
}

/* Scores become probabilities e^(score - maximum of the row), not normalized. A row that has seen
 * no key yet has the maximum -infinity. */
template <int D, int R, bool GENERAL>
__device__ inline void online_softmax(carried_f32<D, R> &carry, float scores[R][C], float *chance,
                                      const attention_shape &s, const int32_t *mask, int first_key,
                                      int first_query) {
#pragma unroll
  for (int r = 0; r < R; r++) {
    const int row = team() * R + r;
    float most = carry.most[r];
#pragma unroll
    for (int c = 0; c < C; c++) {
      const int key = first_key + place() + SIDE * c;
      if (GENERAL) scores[r][c] = cap_score(scores[r][c], s).score;
      scores[r][c] = is_seen<GENERAL>(key, first_query + row, s, mask) && key >= carry.first[r]
                         ? scores[r][c] * s.scale
                         : -INFINITY;
      most = fmaxf(most, scores[r][c]);
    }
    most = half_warp_maximum(most);
    const float shift = most == -INFINITY ? 0.0f : most, shrink = expf(carry.most[r] - shift);
    carry.most[r] = most;
    carry.sum[r] *= shrink;
#pragma unroll
    for (int j = 0; j < D / SIDE; j++) carry.output[r][j] *= shrink;
#pragma unroll
    for (int c = 0; c < C; c++) {
      const float e = expf(scores[r][c] - shift);
      carry.sum[r] += e;
      chance[row * CHANCE_STRIDE + place() + SIDE * c] = e;
    }
  }
}

template <int D, int R, bool GENERAL>
__device__ inline void write_output(const carried_f32<D, R> &carry, float *o, float *lse,
                                    const attention_shape &s, int first_query) {
#pragma unroll
  for (int r = 0; r < R; r++) {
    const int row = team() * R + r;
    const float sum = half_warp_sum(carry.sum[r]);
    const bool sees = !GENERAL || sum != 0;
    const float factor = sees ? 1.0f / sum : 0.0f;
    if (first_query + row >= s.sequence) continue;
    if (lse && place() == 0) lse[row] = sees ? carry.most[r] + logf(sum) : 0.0f;
#pragma unroll
    for (int j = 0; j < D / SIDE; j++)
      if (place() + SIDE * j < s.head_dim)
        o[row * s.o_row + place() + SIDE * j] = carry.output[r][j] * factor;
  }
}

/* 16 R queries of a head by a block of threads: q, o and lse are those of first_query, k, v and
 * starts those of the sequence. */
template <int D, int R, bool GENERAL>
__device__ inline void attend_queries(const attention_operands<float> &p, const attention_shape &s,
                                      int first_query) {
  enum { STRIDE = plain_tile<D>::STRIDE, QUERIES = SIDE * R };
  PEN_SHARED(shared);
  const plain_tile<D> q_tile = {(float *)shared}, k_tile = {q_tile.at + QUERIES * STRIDE},
                      v_tile = {k_tile.at + KEYS * STRIDE};
  float *const chance = v_tile.at + KEYS * STRIDE;
  const int past = past_seen<GENERAL>(first_query + QUERIES, s);
  carried_f32<D, R> carry = {};
#pragma unroll
  for (int r = 0; r < R; r++) {
    carry.most[r] = -INFINITY;
    carry.first[r] = first_seen(p.starts, first_query + team() * R + r, s);
  }
  copy_plain<D, QUERIES>(q_tile, p.q, s.q_row, s.sequence - first_query, s.head_dim);
  for (int first_key = first_seen(p.starts, first_query, s) / KEYS * KEYS; first_key < past;
       first_key += KEYS) {
    __syncthreads(); /* the previous block is no longer read */
    copy_plain<D, KEYS>(k_tile, p.k + first_key * s.k_row, s.k_row, s.keys - first_key, s.head_dim);
    copy_plain<D, KEYS>(v_tile, p.v + first_key * s.k_row, s.k_row, s.keys - first_key, s.head_dim);
    __syncthreads();
    float scores[R][C];
    plain_products<D, R, C>(scores, q_tile, k_tile);
    online_softmax<D, R, GENERAL>(carry, scores, chance, s, p.mask, first_key, first_query);
    __syncwarp(); /* one warp writes and reads a row */
    add_plain_products<D, R, KEYS>(carry.output, chance, CHANCE_STRIDE, v_tile);
    __syncwarp();
  }
  write_output<D, R, GENERAL>(carry, p.o, p.lse, s, first_query);
}

template <int D, bool GENERAL>
__global__ void __launch_bounds__(THREADS) attend(attention_operands<float> p, attention_shape s) {
  enum { QUERIES = SIDE * R_OF_SEQUENCE };
  const int first_query = (int)(gridDim.y - 1 - blockIdx.y) * QUERIES;
  attend_queries<D, R_OF_SEQUENCE, GENERAL>(sequence_block(p, s, first_query), s, first_query);
}

template <int D, bool GENERAL>
__global__ void __launch_bounds__(THREADS)
    attend_cached(cached_operands<float> p, attention_shape s) {
  enum { QUERIES = SIDE * R_OF_CACHE };
  attention_operands<float> block;
  int first_query;
  if (take_cached(block, s, p, (int)blockIdx.y * QUERIES, QUERIES, first_query))
    attend_queries<D, R_OF_CACHE, GENERAL>(block, s, first_query);
}

/* Kernels: the plain one and the general one. */
struct attention_variant {
  void (*kernel[2])(attention_operands<float>, attention_shape);
  void (*cached[2])(cached_operands<float>, attention_shape);
  int head_dim;
};

template <int D>
constexpr attention_variant variant_of() {
  return {
      {attend<D, false>, attend<D, true>}, {attend_cached<D, false>, attend_cached<D, true>}, D};
}

const attention_variant variants[] = {variant_of<32>(), variant_of<64>(), variant_of<128>(),
                                      variant_of<256>()};

size_t shared_bytes(const attention_variant &v, int r) {
  const int queries = SIDE * r;
  return (size_t)((queries + 2 * KEYS) * (v.head_dim + 4) + queries * CHANCE_STRIDE) *
         sizeof(float);
}

/* Null: head_dim is too large. */
const attention_variant *choose(int64_t head_dim) {
  for (const attention_variant &v : variants)
    if (v.head_dim >= head_dim) return &v;
  return NULL;
}

/* The same, of an op; null: an error was noted. */
const attention_variant *choose_for(const char *op, int64_t head_dim) {
  const attention_variant *const chosen = choose(head_dim);
  if (chosen == NULL) pen_cuda_note_text(op, "head_dim must be at most 256");
  return chosen;
}

void launch(const struct pen_call *call, const attention_operands<float> &p,
            const attention_shape &s) {
  const int64_t *dim = call->dim;
  const attention_variant *const chosen = choose_for("ATTENTION", dim[4]);
  if (chosen == NULL) return;
  const dim3 grid((unsigned)dim[2], (unsigned)ceiling(dim[1], SIDE * R_OF_SEQUENCE),
                  (unsigned)dim[0]);
  PEN_LAUNCH(chosen->kernel[is_general(s)], grid, dim3(THREADS),
             shared_bytes(*chosen, R_OF_SEQUENCE), call->stream, p, s);
}

void launch_cached(const struct pen_call *call, const cached_operands<float> &p,
                   const attention_shape &s) {
  const int64_t *dim = call->dim;
  const attention_variant *const chosen = choose_for("ATTENTION_CACHED", dim[4]);
  if (chosen == NULL) return;
  const dim3 grid((unsigned)dim[2], (unsigned)ceiling(dim[1], SIDE * R_OF_CACHE), (unsigned)dim[0]);
  launch_write_cache(call, p, s);
  PEN_LAUNCH(chosen->cached[is_general(s)], grid, dim3(THREADS), shared_bytes(*chosen, R_OF_CACHE),
             call->stream, p, s);
}

size_t shared_of(const int64_t *dim, int r) {
  const attention_variant *const chosen = choose(dim[4]);
  return chosen == NULL ? 0 : shared_bytes(*chosen, r);
}

} /* namespace */

void pen_cuda_attention_open(void) {
  for (const attention_variant &v : variants)
    for (int general = 0; general < 2; general++) {
      pen_cuda_allow_shared("shared memory for ATTENTION", (const void *)v.kernel[general],
                            shared_bytes(v, R_OF_SEQUENCE));
      pen_cuda_allow_shared("shared memory for ATTENTION_CACHED", (const void *)v.cached[general],
                            shared_bytes(v, R_OF_CACHE));
    }
}

size_t pen_cuda_attention_shared(const int64_t dim[PEN_DIMS_MAX]) {
  return shared_of(dim, R_OF_SEQUENCE);
}

size_t pen_cuda_attention_cached_shared(const int64_t dim[PEN_DIMS_MAX]) {
  return shared_of(dim, R_OF_CACHE);
}

void pen_cuda_attention(const struct pen_call *call) {
  launch(call, operands_of<float>(call), shape_of(call));
}

void pen_cuda_attention_full(const struct pen_call *call) {
  launch(call, full_operands_of<float>(call), full_shape_of(call));
}

void pen_cuda_attention_qkv(const struct pen_call *call) {
  launch(call, qkv_operands_of<float>(call), qkv_shape_of(call));
}

void pen_cuda_attention_cached(const struct pen_call *call) {
  launch_cached(call, cached_operands_of<float>(call), shape_of(call));
}

void pen_cuda_attention_cached_qkv(const struct pen_call *call) {
  launch_cached(call, cached_qkv_operands_of<float>(call), cached_qkv_shape_of(call));
}
