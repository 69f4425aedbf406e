/* attention.cu: ATTENTION and ATTENTION_QKV in f32, without tensor cores, whose f32 is TF32:
 * causal, grouped-query, online softmax (Milakov and Gimelshein 2018; Dao 2023). The loop is that
 * of attention_bf16.cu.
 *
 * Launch: heads x (blocks of 64 queries, the longest first) x batch, 256 threads; blocks of 32
 * keys, from the first that the first query sees to the diagonal, rising. head_dim is at most 256.
 * Shared memory: q, a block of keys, one of values, and e^scores.
 */
#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/plain_product.cuh"

namespace {

enum { R = 4, QUERIES = SIDE * R, C = 2, KEYS = SIDE * C, CHANCE_STRIDE = KEYS + 4 };

/* The state of a thread for its R queries; sum covers only this thread's columns until the end. */
template <int D>
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
template <int D>
__device__ inline void online_softmax(carried_f32<D> &carry, float scores[R][C], float *chance,
                                      float scale, int first_key, int first_query) {
#pragma unroll
  for (int r = 0; r < R; r++) {
    const int row = team() * R + r;
    float most = carry.most[r];
#pragma unroll
    for (int c = 0; c < C; c++) {
      const int key = first_key + place() + SIDE * c;
      scores[r][c] =
          key <= first_query + row && key >= carry.first[r] ? scores[r][c] * scale : -INFINITY;
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

template <int D>
__device__ inline void write_output(const carried_f32<D> &carry, float *o, float *lse,
                                    const attention_shape &s, int first_query) {
#pragma unroll
  for (int r = 0; r < R; r++) {
    const int query = first_query + team() * R + r;
    const float sum = half_warp_sum(carry.sum[r]), factor = 1.0f / sum;
    if (query >= s.sequence) continue;
    if (place() == 0) lse[query] = carry.most[r] + logf(sum);
#pragma unroll
    for (int j = 0; j < D / SIDE; j++)
      if (place() + SIDE * j < s.head_dim)
        o[query * s.o_row + place() + SIDE * j] = carry.output[r][j] * factor;
  }
}

template <int D>
__global__ void __launch_bounds__(THREADS) attend(attention_operands<float> p, attention_shape s) {
  enum { STRIDE = plain_tile<D>::STRIDE };
  PEN_SHARED(shared);
  const plain_tile<D> q_tile = {(float *)shared}, k_tile = {q_tile.at + QUERIES * STRIDE},
                      v_tile = {k_tile.at + KEYS * STRIDE};
  float *const chance = v_tile.at + KEYS * STRIDE;
  const int head = (int)blockIdx.x, first_query = (int)(gridDim.y - 1 - blockIdx.y) * QUERIES;
  const int64_t batch = blockIdx.z;
  const int64_t q_from = batch * s.sequence * s.q_row + head * s.head_dim;
  const int64_t o_from = batch * s.sequence * s.o_row + head * s.head_dim;
  const int64_t k_from = batch * s.sequence * s.k_row + head / s.group * s.head_dim;
  const int past = first_query + QUERIES < s.sequence ? first_query + QUERIES
                                                      : s.sequence; /* the end of the keys */
  const int32_t *const begins = p.starts ? p.starts + batch * s.sequence : NULL;
  carried_f32<D> carry = {};
#pragma unroll
  for (int r = 0; r < R; r++) {
    carry.most[r] = -INFINITY;
    carry.first[r] = first_seen(begins, first_query + team() * R + r, s);
  }
  copy_plain<D, QUERIES>(q_tile, p.q + q_from + first_query * s.q_row, s.q_row,
                         s.sequence - first_query, s.head_dim);
  for (int first_key = first_seen(begins, first_query, s) / KEYS * KEYS; first_key < past;
       first_key += KEYS) {
    __syncthreads(); /* the previous block is no longer read */
    copy_plain<D, KEYS>(k_tile, p.k + k_from + first_key * s.k_row, s.k_row, s.sequence - first_key,
                        s.head_dim);
    copy_plain<D, KEYS>(v_tile, p.v + k_from + first_key * s.k_row, s.k_row, s.sequence - first_key,
                        s.head_dim);
    __syncthreads();
    float scores[R][C];
    plain_products<D, R, C>(scores, q_tile, k_tile);
    online_softmax<D>(carry, scores, chance, s.scale, first_key, first_query);
    __syncwarp(); /* one warp writes and reads a row */
    add_plain_products<D, R, KEYS>(carry.output, chance, CHANCE_STRIDE, v_tile);
    __syncwarp();
  }
  write_output<D>(carry, p.o + o_from, p.lse + (batch * s.heads + head) * s.sequence, s,
                  first_query);
}

typedef void attend_kernel(attention_operands<float>, attention_shape);

const struct attention_variant {
  attend_kernel *kernel;
  int head_dim;
} variants[] = {{attend<32>, 32}, {attend<64>, 64}, {attend<128>, 128}, {attend<256>, 256}};
enum { VARIANTS = sizeof variants / sizeof *variants };

size_t shared_bytes(const attention_variant &v) {
  return (size_t)((QUERIES + 2 * KEYS) * (v.head_dim + 4) + QUERIES * CHANCE_STRIDE) *
         sizeof(float);
}

/* Null: head_dim is too large. */
const attention_variant *choose(int64_t head_dim) {
  for (const attention_variant &v : variants)
    if (v.head_dim >= head_dim) return &v;
  return NULL;
}

void launch(const struct pen_call *call, const attention_operands<float> &p,
            const attention_shape &s) {
  const int64_t *dim = call->dim;
  const attention_variant *const chosen = choose(dim[4]);
  if (chosen == NULL) {
    pen_cuda_note_text("ATTENTION", "head_dim must be at most 256");
    return;
  }
  const dim3 grid((unsigned)dim[2], (unsigned)ceiling(dim[1], QUERIES), (unsigned)dim[0]);
  PEN_LAUNCH(chosen->kernel, grid, dim3(THREADS), shared_bytes(*chosen), call->stream, p, s);
}

} /* namespace */

void pen_cuda_attention_open(void) {
  for (int i = 0; i < VARIANTS; i++)
    pen_cuda_allow_shared("shared memory for ATTENTION", (const void *)variants[i].kernel,
                          shared_bytes(variants[i]));
}

size_t pen_cuda_attention_shared(const int64_t dim[PEN_DIMS_MAX]) {
  const attention_variant *const chosen = choose(dim[4]);
  return chosen == NULL ? 0 : shared_bytes(*chosen);
}

void pen_cuda_attention(const struct pen_call *call) {
  launch(call, operands_of<float>(call), shape_of(call->dim));
}

void pen_cuda_attention_qkv(const struct pen_call *call) {
  launch(call, qkv_operands_of<float>(call), qkv_shape_of(call->dim));
}
