/* device.cuh: what the .cu files share: launches, vector loads and stores, and sums over a warp or
 * a block in a fixed order.
 *
 * PEN_EMULATED: a test compiles the .cu files for the host, after a header that defines PEN_LAUNCH,
 * PEN_SHARED, the CUDA keywords and the functions below that use PTX.
 */
#ifndef PEN_CUDA_DEVICE_CUH
#define PEN_CUDA_DEVICE_CUH

#include "kernels/cuda/cuda.h"

#ifndef PEN_EMULATED
#define PEN_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)              \
  do {                                                                          \
    kernel<<<grid, block, shared_bytes, (cudaStream_t)(stream)>>>(__VA_ARGS__); \
    pen_cuda_note(#kernel, cudaGetLastError());                                 \
  } while (0)
/* The dynamic shared memory of a launch. */
#define PEN_SHARED(name) extern __shared__ __align__(16) unsigned char name[]
#endif

enum { WARP = 32, THREADS = 256 /* of a block, unless a file has another number */ };

static inline int64_t ceiling(int64_t count, int64_t by) { return (count + by - 1) / by; }

/* ---- bf16: its bits, the upper half of an f32 ---- */
typedef uint16_t bf16;

static __device__ inline float widen(float x) { return x; }
static __device__ inline double widen(double x) { return x; }
static __device__ inline float widen(bf16 x) { return __uint_as_float((uint32_t)x << 16); }

#ifndef PEN_EMULATED
/* Rounds to nearest even; `low` is the low half. */
static __device__ inline uint32_t pack(float low, float high) {
  uint32_t both;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}

/* 2^x and 1/x within about two units in the last place; 2^-infinity and 1/infinity are 0. */
static __device__ inline float power_of_two(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

static __device__ inline float reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
#endif

/* N adjacent elements in f32, loaded and stored together: 16 bytes, or one element. */
template <int N>
struct lanes {
  float v[N];
};

template <class T>
constexpr int WIDE = 16 / (int)sizeof(T);

/* Are rows of that width multiples of 16 bytes, and so aligned? */
template <class T>
static inline bool is_wide(int64_t width) {
  return width % WIDE<T> == 0;
}

/* Converts 16 loaded bytes. */
template <class T>
static __device__ inline lanes<WIDE<T>> spread(const uint4 &from) {
  const uint32_t word[4] = {from.x, from.y, from.z, from.w};
  lanes<WIDE<T>> x;
#pragma unroll
  for (int k = 0; k < 4; k++)
    if constexpr (WIDE<T> == 4) {
      x.v[k] = __uint_as_float(word[k]);
    } else {
      x.v[2 * k] = __uint_as_float(word[k] << 16);
      x.v[2 * k + 1] = __uint_as_float(word[k] & 0xffff0000u);
    }
  return x;
}

template <int N>
static __device__ inline lanes<N> load(const float *p) {
  lanes<N> x;
  if constexpr (N == 1)
    x.v[0] = *p;
  else
#pragma unroll
    for (int k = 0; k < N; k += 4) {
      const float4 four = *(const float4 *)(p + k);
      x.v[k] = four.x, x.v[k + 1] = four.y, x.v[k + 2] = four.z, x.v[k + 3] = four.w;
    }
  return x;
}

template <int N>
static __device__ inline lanes<N> load(const bf16 *p) {
  lanes<N> x;
  if constexpr (N == 1) {
    x.v[0] = widen(*p);
  } else {
    static_assert(N == 8, "16 bytes");
    x = spread<bf16>(*(const uint4 *)p);
  }
  return x;
}

/* Elements from p + i on; N times `other` if p is null. */
template <int N>
static __device__ inline lanes<N> load_or(const float *p, int64_t i, float other) {
  if (p) return load<N>(p + i);
  lanes<N> x;
#pragma unroll
  for (int k = 0; k < N; k++) x.v[k] = other;
  return x;
}

template <int N>
static __device__ inline void store(float *p, const lanes<N> &x) {
  if constexpr (N == 1)
    *p = x.v[0];
  else
#pragma unroll
    for (int k = 0; k < N; k += 4)
      *(float4 *)(p + k) = make_float4(x.v[k], x.v[k + 1], x.v[k + 2], x.v[k + 3]);
}

template <int N>
static __device__ inline void store(bf16 *p, const lanes<N> &x) {
  if constexpr (N == 1)
    *p = (bf16)pack(x.v[0], 0.0f);
  else
    *(uint4 *)p = make_uint4(pack(x.v[0], x.v[1]), pack(x.v[2], x.v[3]), pack(x.v[4], x.v[5]),
                             pack(x.v[6], x.v[7]));
}

/* The sum or maximum over the warp, in each lane: lane l with l^16, then l^8, ... */
template <class T>
static __device__ inline T warp_sum(T x) {
#pragma unroll
  for (int apart = WARP / 2; apart; apart /= 2) x += __shfl_xor_sync(0xffffffffu, x, apart);
  return x;
}

static __device__ inline float warp_maximum(float x) {
#pragma unroll
  for (int apart = WARP / 2; apart; apart /= 2)
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, apart));
  return x;
}

/* The sum over a block of B threads: the sums of warps in rising order. All threads must call it
 * and receive the sum. */
template <int B, class T>
static __device__ inline T block_sum(T x) {
  if (B == WARP) return warp_sum(x);
  __shared__ T of_warp[B / WARP];
  x = warp_sum(x);
  __syncthreads(); /* a previous call may still read of_warp */
  if (threadIdx.x % WARP == 0) of_warp[threadIdx.x / WARP] = x;
  __syncthreads();
  T sum = of_warp[0];
#pragma unroll
  for (int w = 1; w < B / WARP; w++) sum += of_warp[w];
  return sum;
}

/* ---- element-wise operations ----
 * An OP has run<N>(i) for elements i .. i+N-1, which loads all of them before it stores any, so
 * that outputs may be inputs. Launch: a thread for each 16 bytes of T; the last thread processes
 * the rest one by one. */
template <class OP, int N>
__global__ void __launch_bounds__(THREADS) each(OP op, int64_t count) {
  int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * N;
  if (i + N <= count) {
    op.template run<N>(i);
    return;
  }
  for (; i < count; i++) op.template run<1>(i);
}

template <class T, class OP>
static inline void launch_each(const OP &op, int64_t count, void *stream) {
  constexpr int n = WIDE<T>;
  const auto kernel = each<OP, n>;
  if (count > 0)
    PEN_LAUNCH(kernel, dim3((unsigned)ceiling(count, n * THREADS)), dim3(THREADS), 0, stream, op,
               count);
}

/* The functions of an operation for f32 and bf16, from the template name_of. */
#define PEN_CUDA_BOTH(name)                                                     \
  void pen_cuda_##name(const struct pen_call *call) { name##_of<float>(call); } \
  void pen_cuda_##name##_bf16(const struct pen_call *call) { name##_of<bf16>(call); }

#endif
