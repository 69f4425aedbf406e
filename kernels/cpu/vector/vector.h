/* vector.h: f32 vectors as wide as the instruction set supports, with GNU C vector types; loads and
 * stores.
 *
 * Intrinsics are used only for what the language lacks: fused multiply-add, square root, maximum.
 * The sources are compiled with -ffp-contract=off: an addition and a multiplication are fused by
 * madd() only, so that the bits of an element do not depend on whether a loop's body or its tail
 * computes it. The `_n` functions handle the n <= LANES elements at the end of a row; missing lanes
 * read as zero.
 *
 * `stored` is the C type of an op's dtype (":t" in ops.def): float, or bf16 if compiled with
 * PEN_STORED_BF16. load() and store() take either: bf16 to f32 is exact, f32 to bf16 rounds to
 * nearest, ties to even. The conversion uses integers on all instruction sets except avx512bf16,
 * whose instruction treats subnormal numbers as zero, as its products do.
 */
#ifndef PEN_VECTOR_H
#define PEN_VECTOR_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined __x86_64__
#include <immintrin.h>
#endif

#ifndef PEN_VECTOR_BYTES
#if defined __AVX512F__
#define PEN_VECTOR_BYTES 64
#elif defined __AVX2__
#define PEN_VECTOR_BYTES 32
#else
#define PEN_VECTOR_BYTES 16
#endif
#endif

enum { LANES = PEN_VECTOR_BYTES / 4 };

/* The upper half of an f32. A struct, so that no code computes with the bits. */
typedef struct {
  uint16_t bits;
} bf16;

#ifdef PEN_STORED_BF16
typedef bf16 stored;
#else
typedef float stored;
#endif

typedef float vf __attribute__((vector_size(PEN_VECTOR_BYTES)));
typedef uint16_t vh __attribute__((vector_size(PEN_VECTOR_BYTES / 2)));
typedef int32_t vi __attribute__((vector_size(PEN_VECTOR_BYTES)));
typedef uint32_t vu __attribute__((vector_size(PEN_VECTOR_BYTES)));

/* Precedes a loop of at most 24 constant iterations and unrolls it fully. Without it clang keeps
 * arrays of vectors in memory (matrix products at 0.2 to 0.4 of their rate). */
#ifdef __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 24")
#endif

#define inline_always static inline __attribute__((always_inline, unused))

inline_always vf splat(float x) { return x - (vf){0}; }

/* 0, 1, 2, ... */
inline_always vi lane_numbers(void) {
  vi v;
  for (int i = 0; i < LANES; i++) v[i] = i;
  return v;
}

/* mask ? a : b; each lane of the mask is 0 or -1, as comparisons give it */
inline_always vf choose(vi mask, vf a, vf b) { return (vf)(((vi)a & mask) | ((vi)b & ~mask)); }

inline_always vf widened(vh v) { return (vf)(__builtin_convertvector(v, vu) << 16); }

/* Adds half a unit in the last place, less one bit if the last kept bit is even. A NaN keeps its
 * upper bits and becomes quiet: rounding could make it an infinity, or a zero with the wrong sign.
 */
inline_always vu upper_half(vf v) {
  const vu bits = (vu)v;
  const vu rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16, quiet = (bits >> 16) | 0x40;
  return (vu)choose(v == v, (vf)rounded, (vf)quiet);
}

inline_always vh narrowed(vf v) {
#ifdef PEN_PAIRS
  return (vh)_mm512_cvtneps_pbh((__m512)v);
#elif PEN_VECTOR_BYTES == 32 && defined __AVX2__
  const __m256i half = (__m256i)upper_half(v);
  return (vh)_mm_packus_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
#else
  return __builtin_convertvector(upper_half(v), vh);
#endif
}

inline_always vf load_f32(const float *p) {
  vf v;
  memcpy(&v, p, sizeof v);
  return v;
}

inline_always vf load_bf16(const bf16 *p) {
  vh v;
  memcpy(&v, p, sizeof v);
  return widened(v);
}

inline_always vu load_u32(const uint32_t *p) {
  vu v;
  memcpy(&v, p, sizeof v);
  return v;
}

inline_always void store_u32(uint32_t *p, vu v) { memcpy(p, &v, sizeof v); }

inline_always void store_f32(float *p, vf v) { memcpy(p, &v, sizeof v); }

inline_always void store_bf16(bf16 *p, vf v) {
  const vh half = narrowed(v);
  memcpy(p, &half, sizeof half);
}

inline_always vf load_n_f32(const float *p, size_t n) {
  if (n >= LANES) return load_f32(p);
  vf v = {0};
  memcpy(&v, p, n * sizeof *p);
  return v;
}

inline_always vf load_n_bf16(const bf16 *p, size_t n) {
  if (n >= LANES) return load_bf16(p);
  vh v = {0};
  memcpy(&v, p, n * sizeof *p);
  return widened(v);
}

inline_always void store_n_f32(float *p, vf v, size_t n) {
  if (n >= LANES)
    store_f32(p, v);
  else
    memcpy(p, &v, n * sizeof *p);
}

inline_always void store_n_bf16(bf16 *p, vf v, size_t n) {
  const vh half = narrowed(v);
  if (n >= LANES)
    memcpy(p, &half, sizeof half);
  else
    memcpy(p, &half, n * sizeof *p);
}

inline_always float widen_f32(float x) { return x; }
inline_always float widen_bf16(bf16 x) { return widened((vh){x.bits})[0]; }

#define load(p) _Generic(*(p), float : load_f32, bf16 : load_bf16, uint32_t : load_u32)(p)
#define store(p, v) _Generic(*(p), float : store_f32, bf16 : store_bf16, uint32_t : store_u32)(p, v)
#define load_n(p, n) _Generic(*(p), float : load_n_f32, bf16 : load_n_bf16)(p, n)
#define store_n(p, v, n) _Generic(*(p), float : store_n_f32, bf16 : store_n_bf16)(p, v, n)
#define widen(x) _Generic((x), float : widen_f32, bf16 : widen_bf16)(x)

inline_always vf absolute(vf x) { return (vf)((vi)x & 0x7fffffff); }

/* a b + c, rounded once if the CPU supports it (all sets except the baseline) */
inline_always vf madd(vf a, vf b, vf c) {
#if PEN_VECTOR_BYTES == 64 && defined __AVX512F__
  return (vf)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif PEN_VECTOR_BYTES == 32 && defined __FMA__
  return (vf)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#else
  return a * b + c;
#endif
}

/* the maximum of a and b; b if either is NaN */
inline_always vf maximum(vf a, vf b) {
#if PEN_VECTOR_BYTES == 64 && defined __AVX512F__
  return (vf)_mm512_max_ps((__m512)a, (__m512)b);
#elif PEN_VECTOR_BYTES == 32 && defined __AVX__
  return (vf)_mm256_max_ps((__m256)a, (__m256)b);
#elif PEN_VECTOR_BYTES == 16 && defined __SSE2__
  return (vf)_mm_max_ps((__m128)a, (__m128)b);
#else
  return choose(a > b, a, b);
#endif
}

inline_always vf square_root(vf x) {
#if PEN_VECTOR_BYTES == 64 && defined __AVX512F__
  return (vf)_mm512_sqrt_ps((__m512)x);
#elif PEN_VECTOR_BYTES == 32 && defined __AVX__
  return (vf)_mm256_sqrt_ps((__m256)x);
#elif PEN_VECTOR_BYTES == 16 && defined __SSE2__
  return (vf)_mm_sqrt_ps((__m128)x);
#else
  vf y;
  for (int i = 0; i < LANES; i++) y[i] = __builtin_sqrtf(x[i]);
  return y;
#endif
}

#if PEN_VECTOR_BYTES == 64
#define PEN_ROTATED(v, by)                                                                  \
  __builtin_shufflevector(v, v, by, by + 1, by + 2, by + 3, by + 4, by + 5, by + 6, by + 7, \
                          (by + 8) % 16, (by + 9) % 16, (by + 10) % 16, (by + 11) % 16,     \
                          (by + 12) % 16, (by + 13) % 16, (by + 14) % 16, (by + 15) % 16)
#define PEN_ZIPPED(a, b, from)                                                                     \
  __builtin_shufflevector(a, b, from, from + 16, from + 1, from + 17, from + 2, from + 18,         \
                          from + 3, from + 19, from + 4, from + 20, from + 5, from + 21, from + 6, \
                          from + 22, from + 7, from + 23)
#elif PEN_VECTOR_BYTES == 32
#define PEN_ROTATED(v, by)                                                              \
  __builtin_shufflevector(v, v, by, by + 1, by + 2, by + 3, (by + 4) % 8, (by + 5) % 8, \
                          (by + 6) % 8, (by + 7) % 8)
#define PEN_ZIPPED(a, b, from)                                                                     \
  __builtin_shufflevector(a, b, from, from + 8, from + 1, from + 9, from + 2, from + 10, from + 3, \
                          from + 11)
#else
#define PEN_ROTATED(v, by) __builtin_shufflevector(v, v, by, by + 1, (by + 2) % 4, (by + 3) % 4)
#define PEN_ZIPPED(a, b, from) __builtin_shufflevector(a, b, from, from + 4, from + 1, from + 5)
#endif

/* Sum or maximum over the lanes: adds the upper half to the lower, repeatedly. */
inline_always float lanes_sum(vf v) {
#if PEN_VECTOR_BYTES == 64
  v += PEN_ROTATED(v, 8);
#endif
#if PEN_VECTOR_BYTES >= 32
  v += PEN_ROTATED(v, 4);
#endif
  v += PEN_ROTATED(v, 2);
  return v[0] + v[1];
}

inline_always float lanes_maximum(vf v) {
#if PEN_VECTOR_BYTES == 64
  v = maximum(v, PEN_ROTATED(v, 8));
#endif
#if PEN_VECTOR_BYTES >= 32
  v = maximum(v, PEN_ROTATED(v, 4));
#endif
  v = maximum(v, PEN_ROTATED(v, 2));
  return v[0] > v[1] ? v[0] : v[1];
}

/* Transposes a LANES x LANES matrix in log2(LANES) rounds. A round interleaves row i of the upper
 * half with row i of the lower half, which rotates the bits of an element's index (row, column) by
 * one. */
inline_always void transpose(vf row[LANES]) {
  for (int round = 1; round < LANES; round *= 2) {
    vf next[LANES];
    UNROLL
    for (int i = 0; i < LANES / 2; i++) {
      next[2 * i] = PEN_ZIPPED(row[i], row[i + LANES / 2], 0);
      next[2 * i + 1] = PEN_ZIPPED(row[i], row[i + LANES / 2], LANES / 2);
    }
    memcpy(row, next, sizeof next);
  }
}

#endif
