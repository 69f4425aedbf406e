/* exponential.cuh: e^x and 1/(1 + e^-x), as exact as T, the type of the result, requires. f32:
 * within a few units in the last place. bf16: by the GPU's 2^x and 1/x, within 2^-17 of the value;
 * the f32 functions would make a bf16 kernel bound by instructions instead of memory. e^x is
 * infinite above 89, and 1/(1 + e^-x) is 0 below -89. */
#ifndef PEN_CUDA_EXPONENTIAL_CUH
#define PEN_CUDA_EXPONENTIAL_CUH

#include "kernels/cuda/device.cuh"

template <class T>
constexpr bool is_short = sizeof(T) < sizeof(float);

template <class T>
static __device__ inline float exponential(float x) {
  return is_short<T> ? power_of_two(x * 1.44269504f) : expf(x);
}

template <class T>
static __device__ inline float sigmoid(float x) {
  const float sum = 1.0f + exponential<T>(-x);
  return is_short<T> ? reciprocal(sum) : 1.0f / sum;
}

#endif
