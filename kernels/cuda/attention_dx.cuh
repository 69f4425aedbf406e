/* attention_dx.cuh: what the kernels of ATTENTION_DX share, for f32 and bf16: operands, the inner
 * loop of a block, and the statistics of a query. */
#ifndef PEN_CUDA_ATTENTION_DX_CUH
#define PEN_CUDA_ATTENTION_DX_CUH

#include "kernels/cuda/attention.cuh"

template <class T>
struct operands {
  const T *dout, *q, *k, *v, *o;
  const float *lse, *delta;
  T *dq, *dk, *dv;
  const int32_t *starts; /* may be null */
  const int32_t *mask;   /* of keys: 0 where they are hidden; may be null */
};

template <class T>
static inline operands<T> dx_operands_of(const struct pen_call *call) {
  return {(const T *)call->operand[0],
          (const T *)call->operand[1],
          (const T *)call->operand[2],
          (const T *)call->operand[3],
          (const T *)call->operand[4],
          (const float *)call->operand[5],
          (const float *)call->workspace,
          (T *)dq_place(call),
          (T *)call->operand[8],
          (T *)call->operand[9],
          (const int32_t *)call->operand[6],
          NULL};
}

template <class T>
static inline operands<T> full_dx_operands_of(const struct pen_call *call) {
  operands<T> p = dx_operands_of<T>(call);
  p.mask = p.starts;
  p.starts = NULL;
  return p;
}

template <class T>
static inline operands<T> qkv_dx_operands_of(const struct pen_call *call) {
  const int64_t k_at = k_of_row(call->dim), v_at = v_of_row(call->dim);
  const T *const qkv = (const T *)call->operand[1];
  T *const dqkv = (T *)call->operand[5];
  return {(const T *)call->operand[0],
          qkv,
          qkv + k_at,
          qkv + v_at,
          (const T *)call->operand[2],
          (const float *)call->operand[3],
          (const float *)call->workspace,
          dqkv,
          dqkv + k_at,
          dqkv + v_at,
          (const int32_t *)call->operand[4],
          NULL};
}

/* How many rows a sequence has of keys, or of queries. */
template <bool KEYS>
__device__ inline int rows_in(const attention_shape &s) {
  return KEYS ? s.keys : s.sequence;
}

/* The rows of a head from a position on, and the elements between two. */
template <class T>
struct head_rows {
  const T *at;
  int64_t apart;
};

/* What a product has on one side: q, or k, and beside it do, or v, from the same position. */
template <class T, bool KEYS>
struct row_pair {
  head_rows<T> first, second;
  __device__ row_pair(const operands<T> &p, const attention_shape &s, int64_t batch, int head,
                      int row)
      : first(rows_of(KEYS ? p.k : p.q, KEYS ? s.k_row : s.q_row, s, batch, head, row)),
        second(rows_of(KEYS ? p.v : p.dout, KEYS ? s.k_row : s.o_row, s, batch, head, row)) {}
  __device__ static head_rows<T> rows_of(const T *x, int64_t apart, const attention_shape &s,
                                         int64_t batch, int head, int row) {
    return {x + (batch * rows_in<KEYS>(s) + row) * apart + head * s.head_dim, apart};
  }
};

/* The inner loop of a block of threads: each step has a head and the first of INNER rows. Keys
 * begin with the first that the first outer query sees. Queries begin with the first that sees the
 * first outer key, and end where none sees the last outer
 * key, by its window or its document: starts rise, so that a binary search finds the end. */
template <int OUTER, int INNER, bool KEYS_OUTER, bool GENERAL>
struct inner_loop {
  struct step_place {
    int head, row;
  };
  step_place first; /* the head: the first of the group, or that of the block */
  int past, steps;
  __device__ inner_loop(const attention_shape &s, const int32_t *starts, int first_row) {
    first.head = (int)blockIdx.x * (KEYS_OUTER ? s.group : 1);
    const int asks = !GENERAL || s.later == 0 ? first_row
                     : first_row > s.later    ? first_row - s.later
                                              : 0;
    first.row = (KEYS_OUTER ? asks : first_seen(starts, first_row, s)) / INNER * INNER;
    past = first_row + OUTER + (KEYS_OUTER ? s.window - 1 : GENERAL ? s.later : 0);
    if (past > rows_in<!KEYS_OUTER>(s)) past = rows_in<!KEYS_OUTER>(s);
    int blocks = (past - first.row + INNER - 1) / INNER;
    if (KEYS_OUTER && starts) {
      int past_last = blocks;
      for (blocks = 1; blocks < past_last;) { /* the first sees; from past_last on none does */
        const int middle = blocks + (past_last - blocks) / 2;
        if (starts[first.row + middle * INNER] < first_row + OUTER)
          blocks = middle + 1;
        else
          past_last = middle;
      }
      past = first.row + blocks * INNER;
    }
    steps = KEYS_OUTER ? s.group * blocks : blocks;
  }
  __device__ step_place after(step_place at) const {
    if (!KEYS_OUTER || at.row + INNER < past) return {at.head, at.row + INNER};
    return {at.head + 1, first.row};
  }
};

/* lse (times `unit`), delta and the first key of a query; INFINITY after the end of the sequence,
 * so that p is 0. */
struct statistic {
  float lse, delta;
  int first;
};

/* The starts of a sequence; null: none. */
template <class T>
__device__ inline const int32_t *begins_of(const operands<T> &p, const attention_shape &s,
                                           int64_t batch) {
  return p.starts ? p.starts + batch * s.sequence : NULL;
}

template <class T>
__device__ inline statistic statistic_of(const operands<T> &p, const attention_shape &s,
                                         int64_t batch, int head, int query, float unit) {
  if (query >= s.sequence) return {INFINITY, 0, 0};
  const int64_t at = (batch * s.heads + head) * s.sequence + query;
  return {p.lse[at] * unit, p.delta[at], first_seen(begins_of(p, s, batch), query, s)};
}

#endif
