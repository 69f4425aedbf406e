/* attention.cuh: what the attention kernels share, for f32 and bf16: shapes, and delta for the
 * backward. */
#ifndef PEN_CUDA_ATTENTION_CUH
#define PEN_CUDA_ATTENTION_CUH

#include <math.h>

#include "kernels/cuda/device.cuh"

struct attention_shape {
  int sequence, heads, group, head_dim; /* group: query heads of a key-value head */
  int window;                           /* how many keys a query sees at most */
  int keys, later; /* of a sequence; how many of them after its own place a query sees */
  int64_t q_row, k_row, o_row; /* elements between positions: of q and dq; of k, v, dk and dv; of o
                                  and do */
  float scale;                 /* of the scores: 1/sqrt(head_dim) */
  float cap;                   /* of the scores before that; 0: none */
};

static inline attention_shape shape_of(const struct pen_call *call) {
  const int64_t *const dim = call->dim, q_row = dim[2] * dim[4];
  return {(int)dim[1],
          (int)dim[2],
          (int)(dim[2] / dim[3]),
          (int)dim[4],
          (int)dim[5],
          (int)dim[1],
          0,
          q_row,
          dim[3] * dim[4],
          q_row,
          (float)(1 / sqrt((double)dim[4])),
          (float)(call->real[0] * sqrt((double)dim[4]))};
}

/* The same of rows that have the heads of q, k and v. */
static inline attention_shape qkv_shape_of(const struct pen_call *call) {
  attention_shape s = shape_of(call);
  s.q_row = s.k_row = call->dim[6] * call->dim[4];
  return s;
}

/* The same of ATTENTION_FULL: all queries see all keys. */
static inline attention_shape full_shape_of(const struct pen_call *call) {
  attention_shape s = shape_of(call);
  s.keys = s.later = (int)call->dim[5];
  s.window = s.sequence + s.keys;
  return s;
}

/* Which of two kernels a launch has: the plain one is causal, without a cap and a mask. */
static inline bool is_general(const attention_shape &s) { return s.later > 0 || s.cap > 0; }

/* Where k and v are in such a row. */
static inline int64_t k_of_row(const int64_t *dim) { return dim[2] * dim[4]; }
static inline int64_t v_of_row(const int64_t *dim) { return (dim[2] + dim[3]) * dim[4]; }

template <class T>
struct attention_operands {
  const T *q, *k, *v;
  const int32_t *starts; /* may be null */
  T *o;
  float *lse;
  const int32_t *mask; /* of keys: 0 where they are hidden; may be null */
};

template <class T>
static inline attention_operands<T> operands_of(const struct pen_call *call) {
  return {(const T *)call->operand[0],
          (const T *)call->operand[1],
          (const T *)call->operand[2],
          (const int32_t *)call->operand[3],
          (T *)call->operand[4],
          (float *)call->operand[5],
          NULL};
}

template <class T>
static inline attention_operands<T> full_operands_of(const struct pen_call *call) {
  attention_operands<T> p = operands_of<T>(call);
  p.starts = NULL;
  p.mask = (const int32_t *)call->operand[3];
  return p;
}

template <class T>
static inline attention_operands<T> qkv_operands_of(const struct pen_call *call) {
  const T *const qkv = (const T *)call->operand[0];
  return {qkv,
          qkv + k_of_row(call->dim),
          qkv + v_of_row(call->dim),
          (const int32_t *)call->operand[1],
          (T *)call->operand[2],
          (float *)call->operand[3],
          NULL};
}

/* The first key that a query sees: the start of its document or of its window. It rises along a
 * sequence. `starts` is that of a sequence, or null: all documents start at 0. After the end of the
 * sequence the result does not matter. */
static __device__ inline int first_seen(const int32_t *starts, int query,
                                        const attention_shape &s) {
  const int start = starts && query < s.sequence ? starts[query] : 0,
            of_window = query + 1 - s.window;
  return start > of_window ? start : of_window;
}

/* Past the last key that the queries before `past` see. */
template <bool GENERAL>
static __device__ inline int past_seen(int past, const attention_shape &s) {
  const int seen = past + (GENERAL ? s.later : 0);
  return seen < s.keys ? seen : s.keys;
}

/* Whether a query sees a key, but for the start of its document or window. */
template <bool GENERAL>
static __device__ inline bool is_seen(int key, int query, const attention_shape &s,
                                      const int32_t *mask) {
  if (!GENERAL) return key <= query;
  return key < past_seen<true>(query + 1, s) && (mask == NULL || mask[key] != 0);
}

/* A score, capped, with the derivative of that. */
struct capped_score {
  float score, slope;
};

static __device__ inline capped_score cap_score(float score, const attention_shape &s) {
  if (s.cap == 0) return {score, 1.0f};
  const float t = tanhf(score / s.cap);
  return {t * s.cap, 1.0f - t * t};
}

/* What the thread block of a head and a sequence, which are its x and z, reads and writes from that
 * query on. */
template <class T>
static __device__ inline attention_operands<T> sequence_block(const attention_operands<T> &p,
                                                              const attention_shape &s,
                                                              int first_query) {
  const int head = (int)blockIdx.x;
  const int64_t batch = blockIdx.z, row = batch * s.sequence + first_query,
                k_from = batch * s.keys * s.k_row + head / s.group * s.head_dim;
  return {p.q + row * s.q_row + head * s.head_dim,
          p.k + k_from,
          p.v + k_from,
          p.starts ? p.starts + batch * s.sequence : NULL,
          p.o + row * s.o_row + head * s.head_dim,
          p.lse + (batch * s.heads + head) * s.sequence + first_query,
          p.mask ? p.mask + batch * s.keys : NULL};
}

/* ---- over a cache ---- */

template <class T>
struct cached_operands {
  const T *q, *k, *v;
  const int32_t *starts, *slot;
  T *o, *keys, *values;
  int64_t from_row, positions; /* elements between positions of k and v; tokens of a slot */
};

template <class T>
static inline cached_operands<T> cached_operands_of(const struct pen_call *call) {
  return {(const T *)call->operand[0],
          (const T *)call->operand[1],
          (const T *)call->operand[2],
          (const int32_t *)call->operand[3],
          (const int32_t *)call->operand[4],
          (T *)call->operand[5],
          (T *)call->operand[6],
          (T *)call->operand[7],
          call->dim[3] * call->dim[4],
          call->dim[7]};
}

template <class T>
static inline cached_operands<T> cached_qkv_operands_of(const struct pen_call *call) {
  const T *const qkv = (const T *)call->operand[0];
  return {qkv,
          qkv + k_of_row(call->dim),
          qkv + v_of_row(call->dim),
          (const int32_t *)call->operand[1],
          (const int32_t *)call->operand[2],
          (T *)call->operand[3],
          (T *)call->operand[4],
          (T *)call->operand[5],
          call->dim[8] * call->dim[4],
          call->dim[7]};
}

/* Of rows that have the heads of q, k and v; k_row is that of the cache. */
static inline attention_shape cached_qkv_shape_of(const struct pen_call *call) {
  attention_shape s = shape_of(call);
  s.q_row = call->dim[8] * call->dim[4];
  return s;
}

/* Writes k and v of the new tokens to the cache, N elements at a time. Launch: a block for each
 * token. */
template <class T, int N>
__global__ void __launch_bounds__(THREADS)
    write_cache(cached_operands<T> p, int sequence, int64_t width) {
  const int64_t row = blockIdx.x;
  const int slot = p.slot[row / sequence];
  if (slot < 0) return;
  const int64_t to = (slot * p.positions - p.starts[row] + row % sequence) * width,
                from = row * p.from_row;
  for (int64_t i = (int64_t)threadIdx.x * N; i < width; i += THREADS * N) {
    store(p.keys + to + i, load<N>(p.k + from + i));
    store(p.values + to + i, load<N>(p.v + from + i));
  }
}

template <class T>
static inline void launch_write_cache(const struct pen_call *call, const cached_operands<T> &p,
                                      const attention_shape &s) {
  constexpr int n = WIDE<T>;
  const auto kernel = is_wide<T>(s.head_dim) ? write_cache<T, n> : write_cache<T, 1>;
  PEN_LAUNCH(kernel, dim3((unsigned)(call->dim[0] * call->dim[1])), dim3(THREADS), 0, call->stream,
             p, s.sequence, s.k_row);
}

/* What a block of threads attends to: `row` is the first of its queries among the new tokens.
 * Positions count from the start of the text, and s.sequence and s.keys are where they end. A
 * sequence without a slot gets zeros, of up to `queries` rows: false. */
template <class T>
static __device__ inline bool take_cached(attention_operands<T> &block, attention_shape &s,
                                          const cached_operands<T> &p, int row, int queries,
                                          int &first_query) {
  const int head = (int)blockIdx.x, tokens = s.sequence,
            rows = tokens - row < queries ? tokens - row : queries;
  const int64_t batch = blockIdx.z, from = batch * tokens + row, slot = p.slot[batch];
  T *const o = p.o + from * s.o_row + head * s.head_dim;
  if (slot < 0) {
    for (int i = (int)threadIdx.x; i < rows * s.head_dim; i += (int)blockDim.x)
      o[i / s.head_dim * s.o_row + i % s.head_dim] = 0;
    return false;
  }
  const int first = -p.starts[batch * tokens];
  const int64_t k_from = slot * p.positions * s.k_row + head / s.group * s.head_dim;
  block = {p.q + from * s.q_row + head * s.head_dim,
           p.keys + k_from,
           p.values + k_from,
           NULL,
           o,
           NULL,
           NULL};
  s.sequence = s.keys = first + tokens;
  first_query = first + row;
  return true;
}

static inline int64_t q_count(const int64_t *dim) { return dim[0] * dim[1] * dim[2] * dim[4]; }

/* The workspace of the backward: delta[batch][heads][sequence], then dq if dq replaces q. */
static inline size_t delta_bytes(const int64_t *dim) {
  return (size_t)ceiling(dim[0] * dim[1] * dim[2], 64) * 64 * sizeof(float);
}

/* delta[b,h,t] = sum of do o over a head's vector. Launch: a warp for each vector, in memory order.
 */
template <class T>
__global__ void __launch_bounds__(THREADS)
    sum_delta(float *delta, const T *dout, const T *o, int64_t vectors, attention_shape s) {
  const int64_t vector = (int64_t)blockIdx.x * (THREADS / WARP) + threadIdx.x / WARP;
  if (vector >= vectors) return;
  float sum = 0;
  for (int i = (int)threadIdx.x % WARP; i < s.head_dim; i += WARP)
    sum = fmaf(widen(dout[vector * s.head_dim + i]), widen(o[vector * s.head_dim + i]), sum);
  sum = warp_sum(sum);
  const int64_t row = vector / s.heads, batch = row / s.sequence;
  if (threadIdx.x % WARP == 0)
    delta[(batch * s.heads + vector % s.heads) * s.sequence + row % s.sequence] = sum;
}

template <class T>
static inline void launch_delta(const struct pen_call *call, const T *o) {
  const int64_t vectors = call->dim[0] * call->dim[1] * call->dim[2];
  PEN_LAUNCH(sum_delta<T>, dim3((unsigned)ceiling(vectors, THREADS / WARP)), dim3(THREADS), 0,
             call->stream, (float *)call->workspace, (const T *)call->operand[0], o, vectors,
             shape_of(call));
}

/* Where dq is computed: in the workspace if it replaces q, which the kernel of dk and dv reads
 * later. */
static inline void *dq_place(const struct pen_call *call) {
  return call->operand[7] == call->operand[1] ? (char *)call->workspace + delta_bytes(call->dim)
                                              : (char *)call->operand[7];
}

static inline void copy_dq_back(const struct pen_call *call, size_t element_bytes) {
  if (dq_place(call) != call->operand[7])
    pen_cuda_note("copying dq",
                  cudaMemcpyAsync(call->operand[7], dq_place(call),
                                  (size_t)q_count(call->dim) * element_bytes,
                                  cudaMemcpyDeviceToDevice, (cudaStream_t)call->stream));
}

#endif
