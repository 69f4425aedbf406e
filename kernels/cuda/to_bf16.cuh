/* to_bf16.cuh: f32 to bf16 with the bits of pen_f32_to_bf16(): to nearest, ties to even; a NaN
 * keeps its upper bits. */
#ifndef PEN_CUDA_NARROW_CUH
#define PEN_CUDA_NARROW_CUH

#include "kernels/cuda/device.cuh"

static __device__ inline uint32_t narrow_bits(float x) {
  const uint32_t bits = __float_as_uint(x);
  return isnan(x) ? bits >> 16 | 0x40 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

static __device__ inline void store_narrow(bf16 *to, const lanes<1> &x) {
  *to = (bf16)narrow_bits(x.v[0]);
}
static __device__ inline void store_narrow(bf16 *to, const lanes<4> &x) {
  *(uint2 *)to = make_uint2(narrow_bits(x.v[0]) | narrow_bits(x.v[1]) << 16,
                            narrow_bits(x.v[2]) | narrow_bits(x.v[3]) << 16);
}

#endif
