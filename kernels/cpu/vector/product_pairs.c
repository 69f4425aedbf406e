/* product_pairs.c: matrix products of bf16 (product.h) by instructions that multiply two numbers of k in one step, and add both products to
 * an f32.
 *
 * Of a factor that is stored by rows of k an element is there already, two numbers side by side; of one that is not, two rows are read and
 * their numbers put side by side as they are copied. Products of two bf16 are exact in f32; in which order a step's two are added, and that
 * subnormal numbers count as zero, is the processor's.
 */
#define TILE_PAIRS
#include "kernels/cpu/vector/product.h"

/* to[i] = the numbers even[i] and odd[i] in one word */
inline_always void pair_up(uint32_t *to, const bf16 *even, const bf16 *odd, size_t count) {
  for (size_t i = 0; i < count; i++)
    to[i] = even[i].bits | (uint32_t)odd[i].bits << 16;
}

static void copy_panels(uint32_t *to, const struct pen_factor *right, size_t first, size_t column, size_t depth, size_t width) {
  const size_t whole = width / PANEL * PANEL, row = right->row;
  const bf16 *even = (const bf16 *)right->at + 2 * first * row + column;
  for (size_t k = 0; k < depth; k++, even += 2 * row, to += PANEL) {
    const bf16 *odd = even + row;
    uint32_t *panel = to;
    for (size_t j = 0; j < whole; j += PANEL, panel += depth * PANEL) {
      __builtin_prefetch(even + STEPS_AHEAD_RIGHT * row + j);
      __builtin_prefetch(odd + STEPS_AHEAD_RIGHT * row + j);
      pair_up(panel, even + j, odd + j, PANEL);
    }
    if (whole < width) {
      memset(panel, 0, PANEL * sizeof *panel);
      pair_up(panel, even + whole, odd + whole, width - whole);
    }
  }
}

static void copy_strips(uint32_t *to, const struct pen_factor *left, size_t first, size_t i, size_t rows, size_t depth, size_t ask) {
  const size_t whole = rows / ROWS, row = left->row;
  const bf16 *even = (const bf16 *)left->at + 2 * first * row + i;
  for (size_t k = 0; k < depth; k++, even += 2 * row, to += ROWS) {
    const bf16 *odd = even + row;
    for (size_t j = 0; j < ask; j += LINE * NUMBERS) {
      __builtin_prefetch(even + STEPS_AHEAD_LEFT * row + j);
      __builtin_prefetch(odd + STEPS_AHEAD_LEFT * row + j);
    }
    uint32_t *strip = to;
    for (size_t s = 0; s < whole; s++, strip += depth * ROWS)
      pair_up(strip, even + s * ROWS, odd + s * ROWS, ROWS);
    pair_up(strip, even + whole * ROWS, odd + whole * ROWS, rows - whole * ROWS);
  }
}
