/* device.cuh: what the .cu files share: launching, and sums over a warp or a block in a fixed order.
 *
 * tests/gpu/emulate.h stands in for CUDA's own words when a test runs these very files on the host, thread by thread.
 */
#ifndef PEN_CUDA_DEVICE_CUH
#define PEN_CUDA_DEVICE_CUH

#include "kernels/cuda/cuda.h"

#ifdef PEN_EMULATED
#include "tests/gpu/emulate.h"
#else
#define PEN_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                                     \
  do {                                                                                                                 \
    kernel<<<grid, block, shared_bytes, (cudaStream_t)(stream)>>>(__VA_ARGS__);                                        \
    pen_cuda_note(#kernel, cudaGetLastError());                                                                        \
  } while (0)
/* The shared memory that a launch asks for. */
#define PEN_SHARED(name) extern __shared__ __align__(16) unsigned char name[]
#endif

enum { WARP = 32, THREADS = 256 /* of a block, where nothing speaks for another number */ };

static inline int64_t ceiling(int64_t count, int64_t by) { return (count + by - 1) / by; }

/* Several neighbouring elements that travel together: four in 16 bytes, or one. */
template <int N> struct lanes {
  float v[N];
};

template <int N> static __device__ inline lanes<N> load(const float *p);
template <> __device__ inline lanes<1> load<1>(const float *p) { return {{*p}}; }
template <> __device__ inline lanes<4> load<4>(const float *p) {
  const float4 four = *(const float4 *)p;
  return {{four.x, four.y, four.z, four.w}};
}

static __device__ inline void store(float *p, const lanes<1> &x) { *p = x.v[0]; }
static __device__ inline void store(float *p, const lanes<4> &x) {
  *(float4 *)p = make_float4(x.v[0], x.v[1], x.v[2], x.v[3]);
}

/* The sum, or the greatest, over the warp, in every lane: lane l with l^16, then l^8, ... */
template <class T> static __device__ inline T warp_sum(T x) {
#pragma unroll
  for (int apart = WARP / 2; apart; apart /= 2)
    x += __shfl_xor_sync(0xffffffffu, x, apart);
  return x;
}

static __device__ inline float warp_maximum(float x) {
#pragma unroll
  for (int apart = WARP / 2; apart; apart /= 2)
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, apart));
  return x;
}

/* The same over a block of B threads: warps' sums in rising order. Every thread gets it; all must call. */
template <int B, class T> static __device__ inline T block_sum(T x) {
  if (B == WARP)
    return warp_sum(x);
  __shared__ T of_warp[B / WARP];
  x = warp_sum(x);
  __syncthreads(); /* of_warp may still be read from a call before */
  if (threadIdx.x % WARP == 0)
    of_warp[threadIdx.x / WARP] = x;
  __syncthreads();
  T sum = of_warp[0];
#pragma unroll
  for (int w = 1; w < B / WARP; w++)
    sum += of_warp[w];
  return sum;
}

/* ---- element-wise operations ----
 * An OP has run<N>(i): elements i .. i+N-1, of which it loads all before it stores any, so that outputs may lie on inputs.
 * Launch: a thread for each four elements; the last thread takes what is left one by one. */
template <class OP> __global__ void __launch_bounds__(THREADS) each(OP op, int64_t count) {
  int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * 4;
  if (i + 4 <= count) {
    op.template run<4>(i);
    return;
  }
  for (; i < count; i++)
    op.template run<1>(i);
}

template <class OP> static inline void launch_each(const OP &op, int64_t count, void *stream) {
  if (count > 0)
    PEN_LAUNCH(each<OP>, dim3((unsigned)ceiling(count, 4 * THREADS)), dim3(THREADS), 0, stream, op, count);
}

#endif
