/* product.c: matrix products of f32 (product.h). */
#include "kernels/cpu/vector/product.h"

/* Reads each row once, whole, so that the hardware prefetches it. (One panel after another, 64
 * bytes of each row at a time, costs 1 to 3% of products whose factors are in no cache.) */
static void copy_panels(float *to, const struct pen_matrix *right, size_t first, size_t column,
                        size_t depth, size_t width) {
  const size_t whole = width / PANEL * PANEL, row = right->row;
  const float *from = number_at(right, first, column);
  for (size_t k = 0; k < depth; k++, from += row, to += PANEL) {
    float *panel = to;
    for (size_t j = 0; j < whole; j += PANEL, panel += depth * PANEL) {
      __builtin_prefetch(from + STEPS_AHEAD_RIGHT * row + j);
      for (size_t i = 0; i < PANEL; i += LANES) store(panel + i, load(from + j + i));
    }
    for (size_t i = 0; whole < width && i < PANEL; i += LANES)
      store(panel + i, whole + i < width ? load_n(from + whole + i, width - whole - i) : (vf){0});
  }
}

static void copy_strips(float *to, const struct pen_matrix *left, size_t first, size_t i,
                        size_t rows, size_t depth, size_t ask) {
  const size_t whole = rows / ROWS, row = left->row;
  const float *from = number_at(left, first, i);
  for (size_t k = 0; k < depth; k++, from += row, to += ROWS) {
    for (size_t j = 0; j < ask; j += LINE) __builtin_prefetch(from + STEPS_AHEAD_LEFT * row + j);
    float *strip = to;
    for (size_t s = 0; s < whole; s++, strip += depth * ROWS)
      memcpy(strip, from + s * ROWS, ROWS * sizeof *to);
    memcpy(strip, from + whole * ROWS, (rows - whole * ROWS) * sizeof *to);
  }
}
