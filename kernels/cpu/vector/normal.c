/* normal.c: pen_normal(), standard normals from a counter: Philox4x32-10 (Salmon et al. 2011), then
 * Box-Muller in f64.
 *
 * Counter c gives values 4c .. 4c+3; its 64 bits are the two low words, the two high words are
 * zero. Of the four words w that Philox returns, the first pair gives values 0 and 1, the second 2
 * and 3: u = (w0 + 1/2) / 2^32, angle = 2 pi w1 / 2^32, n0 = sqrt(-2 ln u) cos(angle), n1 = sqrt(-2
 * ln u) sin(angle).
 *
 * One counter is processed in each f64 lane. No multiply-add is fused, and square root and division
 * are exact, so that all instruction sets give the same bits.
 */
#include "kernels/cpu/vector/isa.h"
#include "kernels/cpu/vector/vector.h"

enum {
  ROUNDS = 10,
  WORDS = 4, /* of a counter; also the values from it */
  COUNTERS = PEN_VECTOR_BYTES / 8,
  BATCH = WORDS * COUNTERS,
};

typedef double vd __attribute__((vector_size(PEN_VECTOR_BYTES)));
typedef uint64_t vw __attribute__((vector_size(PEN_VECTOR_BYTES)));

/* The 64-bit product of the low halves of each lane. */
inline_always vw multiply_words(vw a, vw b) {
#if PEN_VECTOR_BYTES == 64 && defined __AVX512F__
  return (vw)_mm512_mul_epu32((__m512i)a, (__m512i)b);
#elif PEN_VECTOR_BYTES == 32 && defined __AVX2__
  return (vw)_mm256_mul_epu32((__m256i)a, (__m256i)b);
#elif PEN_VECTOR_BYTES == 16 && defined __SSE2__
  return (vw)_mm_mul_epu32((__m128i)a, (__m128i)b);
#else
  return (a & 0xffffffffu) * (b & 0xffffffffu);
#endif
}

inline_always vd square_roots(vd x) {
#if PEN_VECTOR_BYTES == 64 && defined __AVX512F__
  return (vd)_mm512_sqrt_pd((__m512d)x);
#elif PEN_VECTOR_BYTES == 32 && defined __AVX__
  return (vd)_mm256_sqrt_pd((__m256d)x);
#elif PEN_VECTOR_BYTES == 16 && defined __SSE2__
  return (vd)_mm_sqrt_pd((__m128d)x);
#else
  vd y;
  for (int i = 0; i < COUNTERS; i++) y[i] = __builtin_sqrt(x[i]);
  return y;
#endif
}

/* Integers below 2^52 as f64: set the fraction of 2^52, then subtract 2^52. */
inline_always vd number(vw n) { return (vd)(n | 0x4330000000000000u) - 0x1p52; }

inline_always vd choose_number(vw mask, vd a, vd b) {
  return (vd)(((vw)a & mask) | ((vw)b & ~mask));
}

static inline void philox(vw word[WORDS], vw counter, const uint32_t key[2]) {
  const vw low = (vw){0} + 0xffffffffu, left_factor = (vw){0} + 0xD2511F53u,
           right_factor = (vw){0} + 0xCD9E8D57u;
  vw a = counter & low, b = counter >> 32, c = {0}, d = {0};
  uint32_t key0 = key[0], key1 = key[1];
  for (int round = 0; round < ROUNDS; round++) {
    const vw left = multiply_words(a, left_factor), right = multiply_words(c, right_factor);
    a = (right >> 32) ^ b ^ key0;
    c = (left >> 32) ^ d ^ key1;
    b = right & low;
    d = left & low;
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  word[0] = a, word[1] = b, word[2] = c, word[3] = d;
}

/* ln u for 0 < u < 1: u = 2^e m with m from sqrt(1/2) to sqrt(2), ln m = 2 artanh(s) with s =
 * (m-1)/(m+1), by its series. */
static inline vd logarithm(vd u) {
  const vw bits = (vw)u, half = (vw)((vd){0} + 0x1.6a09e667f3bcdp-1); /* sqrt(1/2) */
  const vw shifted =
      bits - half; /* the upper 12 bits: the exponent of u / sqrt(1/2), rounded down */
  const vd m = (vd)(bits - (shifted & 0xfff0000000000000u));
  const vd e = number((shifted >> 52) ^ 0x800u) - 2048.0; /* 12 bits, signed */
  const vd s = (m - 1.0) / (m + 1.0), z = s * s;
  vd sum = {0};
  for (int k = 10; k >= 0; k--) sum = sum * z + 2.0 / (2 * k + 1);
  return e * 0.69314718055994530942 + s * sum;
}

/* (-1)^k / (2k+1)! and (-1)^k / (2k)!: Taylor series; the next term is below 1e-16 at pi/4. */
enum { TERMS = 9 };
static const double sine_term[TERMS] = {1,
                                        -1 / 6.0,
                                        1 / 120.0,
                                        -1 / 5040.0,
                                        1 / 362880.0,
                                        -1 / 39916800.0,
                                        1 / 6227020800.0,
                                        -1 / 1307674368000.0,
                                        1 / 355687428096000.0};
static const double cosine_term[TERMS] = {1,
                                          -1 / 2.0,
                                          1 / 24.0,
                                          -1 / 720.0,
                                          1 / 40320.0,
                                          -1 / 3628800.0,
                                          1 / 479001600.0,
                                          -1 / 87178291200.0,
                                          1 / 20922789888000.0};

/* cos and sin of 2 pi w / 2^32: the nearest multiple of pi/2 is removed in integers; the rest is at
 * most pi/4. */
static inline void turn(vw w, vd *cosine, vd *sine) {
  const vw moved = (w + 0x20000000u) & 0xffffffffu, quarter = moved >> 30;
  const vd x = (number(moved & 0x3fffffffu) - 0x1p29) * (6.28318530717958647693 * 0x1p-32),
           z = x * x;
  vd s = {0}, c = {0};
  for (int k = TERMS - 1; k >= 0; k--) {
    s = s * z + sine_term[k];
    c = c * z + cosine_term[k];
  }
  s *= x;
  const vw swap = -(quarter & 1), minus_c = ((quarter + 1) & 2) << 62,
           minus_s = (quarter & 2) << 62;
  *cosine = (vd)((vw)choose_number(swap, s, c) ^ minus_c);
  *sine = (vd)((vw)choose_number(swap, c, s) ^ minus_s);
}

/* The values of COUNTERS counters, starting at `counter`. */
static void batch_normals(float y[BATCH], uint64_t counter, const uint32_t key[2],
                          double deviation) {
  vw counters = {0}, word[WORDS];
  for (int i = 0; i < COUNTERS; i++) counters[i] = counter + (uint64_t)i;
  philox(word, counters, key);
  for (int k = 0; k < WORDS; k += 2) {
    vd cosine, sine;
    turn(word[k + 1], &cosine, &sine);
    const vd radius = square_roots(logarithm((number(word[k]) + 0.5) * 0x1p-32) * -2.0);
    const vd first = radius * cosine * deviation, second = radius * sine * deviation;
    for (int i = 0; i < COUNTERS; i++) {
      y[WORDS * i + k] = (float)first[i];
      y[WORDS * i + k + 1] = (float)second[i];
    }
  }
}

void PEN_NAME(normal)(float *y, size_t count, uint64_t first, const uint32_t key[2],
                      double deviation) {
  float batch[BATCH];
  size_t skip = first % WORDS; /* values of the first counter */
  for (uint64_t counter = first / WORDS; count; counter += COUNTERS) {
    const size_t n = count < BATCH - skip ? count : BATCH - skip;
    batch_normals(batch, counter, key, deviation);
    memcpy(y, batch + skip, n * sizeof *y);
    y += n, count -= n, skip = 0;
  }
}
