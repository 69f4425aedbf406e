/* attention.cuh: what the attention kernels share, over f32 and over bf16: shapes, and delta for
 * the backward. */
#ifndef PEN_CUDA_ATTENTION_CUH
#define PEN_CUDA_ATTENTION_CUH

#include <math.h>

#include "kernels/cuda/device.cuh"

struct attention_shape {
  int sequence, heads, group, head_dim; /* group: query heads to a key-value head */
  int64_t q_row, k_row;                 /* from a position to the next */
  float scale;                          /* of the scores: 1/sqrt(head_dim) */
};

static inline attention_shape shape_of(const int64_t *dim) {
  return {(int)dim[1],     (int)dim[2],     (int)(dim[2] / dim[3]),           (int)dim[4],
          dim[2] * dim[4], dim[3] * dim[4], (float)(1 / sqrt((double)dim[4]))};
}

/* Where windows hold documents, a query sees keys from the start of its own on; starts rise along a
 * sequence. `starts` is a sequence's, or null: all begin at 0. What is past the end sees what is
 * there: nobody reads it. */
static __device__ inline int first_seen(const int32_t *starts, int query, int sequence) {
  return starts && query < sequence ? starts[query] : 0;
}

static inline int64_t q_count(const int64_t *dim) { return dim[0] * dim[1] * dim[2] * dim[4]; }

/* The workspace of the backward: delta[batch][heads][sequence], then dq, which waits there where it
 * goes in q's place. */
static inline size_t delta_bytes(const int64_t *dim) {
  return (size_t)ceiling(dim[0] * dim[1] * dim[2], 64) * 64 * sizeof(float);
}

/* delta[b,h,t] = sum of do o over a head's vector. Launch: a warp a vector, vectors in memory's
 * order. */
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
static inline void launch_delta(const struct pen_call *call) {
  const int64_t vectors = call->dim[0] * call->dim[1] * call->dim[2];
  PEN_LAUNCH(sum_delta<T>, dim3((unsigned)ceiling(vectors, THREADS / WARP)), dim3(THREADS), 0,
             call->stream, (float *)call->workspace, (const T *)call->operand[0],
             (const T *)call->operand[4], vectors, shape_of(call->dim));
}

/* Where dq is made: in the workspace when its own place is q's, which the kernel of dk and dv reads
 * after it. */
static inline void *dq_place(const struct pen_call *call) {
  return call->operand[7] == call->operand[1] ? (char *)call->workspace + delta_bytes(call->dim)
                                              : (char *)call->operand[7];
}

static inline void move_dq(const struct pen_call *call, size_t element_bytes) {
  if (dq_place(call) != call->operand[7])
    pen_cuda_note("dq to its place",
                  cudaMemcpyAsync(call->operand[7], dq_place(call),
                                  (size_t)q_count(call->dim) * element_bytes,
                                  cudaMemcpyDeviceToDevice, (cudaStream_t)call->stream));
}

#endif
