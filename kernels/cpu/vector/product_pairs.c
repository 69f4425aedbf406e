/* product_pairs.c: matrix products of bf16 (product.h) by instructions that multiply two numbers of
 * k in a step and add both products to an f32.
 *
 * If a factor is stored by rows of k, an element is two adjacent numbers. If not, two rows are read
 * and interleaved as they are copied. Products of two bf16 are exact in f32. The processor
 * determines the order in which the two products of a step are added, and treats subnormal numbers
 * as zero.
 */
#define TILE_PAIRS
#include "kernels/cpu/vector/product.h"

/* to[i] = even[i] and odd[i] in one word; `odd` null: zeros. */
inline_always void pair_up(uint32_t *to, const bf16 *even, const bf16 *odd, size_t count) {
  if (odd)
    for (size_t i = 0; i < count; i++) to[i] = even[i].bits | (uint32_t)odd[i].bits << 16;
  else
    for (size_t i = 0; i < count; i++) to[i] = even[i].bits;
}

/* Copies one step of a factor, `count` words from two of its rows, in groups of `part`, which are
 * `apart` words apart. */
inline_always void copy_step(uint32_t *to, const bf16 *even, const bf16 *odd, size_t count,
                             size_t part, size_t apart) {
  const size_t whole = count / part * part;
  for (size_t i = 0; i < whole; i += part, to += apart)
    pair_up(to, even + i, odd ? odd + i : NULL, part);
  pair_up(to, even + whole, odd ? odd + whole : NULL, count - whole);
}

/* Prefetches the rows of a step. */
inline_always void prefetch_step(const bf16 *even, const bf16 *odd, size_t count) {
  for (size_t i = 0; i < count; i += LINE * NUMBERS) {
    __builtin_prefetch(even + i);
    __builtin_prefetch(odd + i);
  }
}

/* Reads each row once, as in product.c. */
static void copy_panels(uint32_t *to, const struct pen_matrix *right, size_t first, size_t column,
                        size_t numbers, size_t width) {
  const size_t row = right->row, depth = steps_of(numbers), last = width / PANEL * PANEL;
  const bf16 *even = number_at(right, first, column);
  for (size_t k = 0; k < numbers; k += NUMBERS, even += NUMBERS * row, to += PANEL) {
    prefetch_step(even + NUMBERS * STEPS_AHEAD_RIGHT * row,
                  even + (NUMBERS * STEPS_AHEAD_RIGHT + 1) * row, width);
    if (last < width) memset(to + last * depth, 0, PANEL * sizeof *to);
    copy_step(to, even, k + 1 < numbers ? even + row : NULL, width, PANEL, depth * PANEL);
  }
}

static void copy_strips(uint32_t *to, const struct pen_matrix *left, size_t first, size_t i,
                        size_t rows, size_t numbers, size_t ask) {
  const size_t row = left->row, depth = steps_of(numbers);
  const bf16 *even = number_at(left, first, i);
  for (size_t k = 0; k < numbers; k += NUMBERS, even += NUMBERS * row, to += ROWS) {
    prefetch_step(even + NUMBERS * STEPS_AHEAD_LEFT * row,
                  even + (NUMBERS * STEPS_AHEAD_LEFT + 1) * row, ask);
    copy_step(to, even, k + 1 < numbers ? even + row : NULL, rows, ROWS, depth * ROWS);
  }
}
