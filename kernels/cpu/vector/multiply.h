/* multiply.h: the inner loop of all matrix products of vector/: a tile of ROWS x PANEL sums in
 * registers.
 *
 * A step takes one element of each row of the left factor and one row of PANEL elements of the
 * right factor. A sum starts from a given value and adds one product a step, in rising order: the
 * bits of an element do not depend on the position of its tile. The loop is unrolled by four steps:
 * when threads share a core, each instruction that is no multiply-add costs time (with four steps a
 * tile of ATTENTION reaches 0.82 of peak, with one 0.73; alone on the core 0.98 and 0.96).
 *
 * The including file defines TILE_ROWS and TILE_VECTORS, the size of a tile; with TILE_PAIRS an
 * element is a word of two bf16, the numbers of two steps, the first in the lower half.
 */
#ifndef PEN_MULTIPLY_H
#define PEN_MULTIPLY_H

#include "kernels/cpu/vector/vector.h"

enum {
  ROWS = TILE_ROWS,
  VECTORS = TILE_VECTORS,  /* in a row of a tile */
  PANEL = VECTORS * LANES, /* floats in a row of a tile */
  BASES = (ROWS + 2) / 3,  /* one base address for three rows */
};

#ifdef TILE_PAIRS
typedef uint32_t element;
typedef vu elements;
enum { NUMBERS = 2 }; /* in an element */
#else
typedef float element;
typedef vf elements;
enum { NUMBERS = 1 };
#endif

/* The number of elements, one a step, that hold so many numbers. */
static inline size_t steps_of(size_t numbers) { return (numbers + NUMBERS - 1) / NUMBERS; }

/* A vector of elements from `left` numbers; missing ones are zero. */
inline_always elements load_elements(const stored *from, size_t left) {
#ifdef TILE_PAIRS
  vu v = {0};
  if (left >= LANES * NUMBERS)
    memcpy(&v, from, sizeof v);
  else
    memcpy(&v, from, left * sizeof *from);
  return v;
#else
  return load_n(from, left);
#endif
}

/* sum += a times some vectors of a row of the right factor. Compilers hoist broadcasts until sums
 * are spilled (GCC 12: a sixth of the rate), so that inline assembly fixes the order where
 * registers are few. For pairs it makes the broadcast part of the instruction (1% of the rate),
 * which treats subnormal numbers as zero; without it the upper halves come first. */
inline_always void multiply_row(vf *sum, const element *a, const elements *b, int vectors) {
#if defined TILE_PAIRS && defined PEN_PAIRS
  UNROLL
  for (int v = 0; v < vectors; v++)
    __asm__("vdpbf16ps %1%{1to16%}, %2, %0" : "+v"(sum[v]) : "m"(*a), "v"(b[v]));
#elif defined TILE_PAIRS
  uint32_t pair;
  memcpy(&pair, a, sizeof pair);
  const vu x = pair - (vu){0};
  UNROLL
  for (int v = 0; v < vectors; v++) {
    sum[v] = madd((vf)(x & 0xffff0000), (vf)(b[v] & 0xffff0000), sum[v]);
    sum[v] = madd((vf)(x << 16), (vf)(b[v] << 16), sum[v]);
  }
#elif PEN_VECTOR_BYTES == 32 && defined __FMA__
  vf x;
  __asm__ volatile("vbroadcastss %1, %0" : "=x"(x) : "m"(*a));
  UNROLL
  for (int v = 0; v < vectors; v++)
    __asm__ volatile("vfmadd231ps %2, %1, %0" : "+x"(sum[v]) : "x"(x), "x"(b[v]));
#else
  const vf x = splat(*a);
  UNROLL
  for (int v = 0; v < vectors; v++) sum[v] = madd(x, b[v], sum[v]);
#endif
}

/* One step: an element of each row times b[0 .. PANEL]. Three rows share a base address. */
inline_always void multiply_step(vf sum[ROWS][VECTORS], size_t rows,
                                 const element *const base[BASES], size_t a_row, const element *b) {
  elements right[VECTORS];
  UNROLL
  for (int v = 0; v < VECTORS; v++) right[v] = load(b + v * LANES);
  UNROLL
  for (size_t r = 0; r < rows; r++)
    multiply_row(sum[r], base[r / 3] + r % 3 * a_row, right, VECTORS);
}

/* Advances the bases by a step. With 64-byte vectors each base is updated by itself: otherwise the
 * compiler keeps old and new addresses and runs out of registers (24 x 16 with GCC 12: 1 to 4% of
 * the rate; attention 6 x 16: 0 to 5%; with 32 bytes it is 2% slower). */
inline_always void advance(const element *base[BASES], size_t a_step) {
  UNROLL
  for (size_t i = 0; i < BASES; i++) {
    base[i] += a_step;
#if PEN_VECTOR_BYTES == 64
    __asm__("" : "+r"(base[i]));
#endif
  }
}

/* sum += A B over `steps` steps: element (row, step) of A is a[row a_row + step a_step], the row of
 * B is b[step b_step]; `rows` and one stride of A are constants of the caller. */
inline_always void multiply_steps(vf sum[ROWS][VECTORS], size_t rows, size_t steps,
                                  const element *a, size_t a_row, size_t a_step, const element *b,
                                  size_t b_step) {
  const element *base[BASES];
  for (size_t i = 0; i < BASES; i++) base[i] = a + 3 * i * a_row;
  for (; steps >= 4; steps -= 4, b += 4 * b_step) UNROLL
  for (size_t k = 0; k < 4; k++, advance(base, a_step))
    multiply_step(sum, rows, base, a_row, b + k * b_step);
  for (; steps > 0; steps--, b += b_step, advance(base, a_step))
    multiply_step(sum, rows, base, a_row, b);
}

#endif
