/* normal.cu: pen_normal(): standard normals from a counter, Philox4x32-10 (Salmon et al. 2011),
 * then Box-Muller in f64, with the bits of the CPU: the steps of kernels/cpu/vector/normal.c, which
 * explains them; each is an IEEE operation rounded once (__dmul_rn and similar functions are never
 * fused). Launch: a thread for each counter, four values; at start, and for inputs of the mlp
 * family. */
#include "kernels/cuda/device.cuh"

namespace {

__device__ inline double mul(double a, double b) { return __dmul_rn(a, b); }
__device__ inline double add(double a, double b) { return __dadd_rn(a, b); }

struct philox_key {
  uint32_t word[2];
};

__device__ inline void philox(uint32_t word[4], uint64_t counter, philox_key key) {
  uint32_t a = (uint32_t)counter, b = (uint32_t)(counter >> 32), c = 0, d = 0;
  for (int round = 0; round < 10; round++) {
    const uint64_t left = (uint64_t)a * 0xD2511F53u, right = (uint64_t)c * 0xCD9E8D57u;
    a = (uint32_t)(right >> 32) ^ b ^ key.word[0];
    c = (uint32_t)(left >> 32) ^ d ^ key.word[1];
    b = (uint32_t)right;
    d = (uint32_t)left;
    key.word[0] += 0x9E3779B9u;
    key.word[1] += 0xBB67AE85u;
  }
  word[0] = a, word[1] = b, word[2] = c, word[3] = d;
}

/* ln u for 0 < u < 1: u = 2^e m with m from sqrt(1/2) to sqrt(2), ln m = 2 artanh(s) with s =
 * (m-1)/(m+1), by its series. */
__device__ inline double logarithm(double u) {
  const int64_t bits = __double_as_longlong(u),
                shifted = bits - __double_as_longlong(0.70710678118654752440);
  const double m = __longlong_as_double(bits - (shifted & (int64_t)0xfff0000000000000u));
  const double e = (double)(shifted >> 52);
  const double s = __ddiv_rn(add(m, -1.0), add(m, 1.0)), z = mul(s, s);
  double sum = 0;
#pragma unroll
  for (int k = 10; k >= 0; k--) sum = add(mul(sum, z), 2.0 / (2 * k + 1));
  return add(mul(e, 0.69314718055994530942), mul(s, sum));
}

/* cos and sin of 2 pi w / 2^32: the nearest multiple of pi/2 is removed in integers; the rest is at
 * most pi/4. */
__device__ inline void turn(uint32_t w, double *cosine, double *sine) {
  const double sine_term[] = {1,
                              -1 / 6.0,
                              1 / 120.0,
                              -1 / 5040.0,
                              1 / 362880.0,
                              -1 / 39916800.0,
                              1 / 6227020800.0,
                              -1 / 1307674368000.0,
                              1 / 355687428096000.0};
  const double cosine_term[] = {1,
                                -1 / 2.0,
                                1 / 24.0,
                                -1 / 720.0,
                                1 / 40320.0,
                                -1 / 3628800.0,
                                1 / 479001600.0,
                                -1 / 87178291200.0,
                                1 / 20922789888000.0};
  const uint32_t moved = w + 0x20000000u, quarter = moved >> 30;
  const double x = mul((double)(int32_t)((moved & 0x3fffffffu) - 0x20000000u),
                       6.28318530717958647693 / 4294967296.0),
               z = mul(x, x);
  double s = 0, c = 0;
#pragma unroll
  for (int k = 8; k >= 0; k--) {
    s = add(mul(s, z), sine_term[k]);
    c = add(mul(c, z), cosine_term[k]);
  }
  s = mul(s, x);
  const double along = quarter & 1 ? s : c, across = quarter & 1 ? c : s;
  *cosine = (quarter + 1) & 2 ? -along : along;
  *sine = quarter & 2 ? -across : across;
}

__global__ void __launch_bounds__(THREADS)
    fill_normal(float *y, uint64_t count, uint64_t first, philox_key key, double deviation) {
  const uint64_t counter = first / 4 + (uint64_t)blockIdx.x * THREADS + threadIdx.x;
  const uint64_t begin = counter * 4;
  if (begin >= first + count) return;
  uint32_t word[4];
  philox(word, counter, key);
#pragma unroll
  for (int k = 0; k < 4; k += 2) {
    double cosine, sine;
    turn(word[k + 1], &cosine, &sine);
    const double u = mul(add((double)word[k], 0.5), 1 / 4294967296.0);
    const double radius = __dsqrt_rn(mul(logarithm(u), -2.0));
    if (begin + k >= first && begin + k < first + count)
      y[begin + k - first] = (float)mul(mul(radius, cosine), deviation);
    if (begin + k + 1 >= first && begin + k + 1 < first + count)
      y[begin + k + 1 - first] = (float)mul(mul(radius, sine), deviation);
  }
}

} /* namespace */

void pen_cuda_normal(float *y, size_t count, uint64_t first, const uint32_t key[2],
                     double deviation, void *stream) {
  if (count == 0) return;
  const uint64_t counters = (first + count - 1) / 4 - first / 4 + 1;
  const philox_key words = {{key[0], key[1]}};
  PEN_LAUNCH(fill_normal, dim3((unsigned)ceiling((int64_t)counters, THREADS)), dim3(THREADS), 0,
             stream, y, (uint64_t)count, first, words, deviation);
}
