/* tile.h: what ATTENTION and ATTENTION_DX share: small block products in registers, and the copies
 * that they read.
 *
 * A tile is ROWS x PANEL elements of a product C = A B (multiply.h), 6 x 16 with AVX2 and AVX-512:
 * larger tiles compute more beyond the diagonal (12 x 32 takes 1.09 to 1.23 times as long with
 * AVX-512 on Zen 4, sequences of 256 and 1024, head sizes 32 and 64). Rows of copies are padded
 * with zeros and an odd number of cache lines apart, so that a column uses all sets of the
 * first-level cache.
 *
 * If the CPU multiplies bf16, factors stay bf16, and an element is a pair: two adjacent numbers of
 * a row of A, or of a column of B; the last one may be paired with zero. Tiles are then 8 x 16,
 * half a panel high, so that each tile of a transposed factor is in one panel; 12 x 16 and 16 x 16
 * are no faster.
 */
#ifndef PEN_TILE_H
#define PEN_TILE_H

#include "kernels/cpu/vector/vector.h"

#ifdef PEN_PAIRS
#define TILE_PAIRS
#endif

#ifdef TILE_PAIRS
#define TILE_ROWS 8
typedef bf16 number; /* of a factor */
#else
#define TILE_ROWS 6
typedef float number;
#endif
#define TILE_VECTORS (LANES == 16 ? 1 : 2)
#include "kernels/cpu/vector/multiply.h"

enum { LINE = 16 }; /* floats in a cache line */

static inline size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

/* Elements between rows of a copy that is `width` elements wide. */
static inline size_t copy_stride(size_t width) {
  const size_t lines = round_up(width, PANEL) / LINE + (round_up(width, PANEL) % LINE != 0);
  return (lines | 1) * LINE;
}

inline_always void tile_load(vf sum[ROWS][VECTORS], const float *c, size_t c_row, size_t rows) {
  UNROLL
  for (size_t r = 0; r < rows; r++)
    for (size_t v = 0; v < VECTORS; v++) sum[r][v] = load(c + r * c_row + v * LANES);
}

inline_always void tile_store(vf sum[ROWS][VECTORS], float *c, size_t c_row, size_t rows) {
  UNROLL
  for (size_t r = 0; r < rows; r++)
    for (size_t v = 0; v < VECTORS; v++) store(c + r * c_row + v * LANES, sum[r][v]);
}

/* Products are not inlined: in the kernels' loops the compiler runs out of registers (10% of the
 * time of ATTENTION and ATTENTION_DX at head size 32 on Zen 3). */
#define TILE_FUNCTION __attribute__((noinline, unused)) static

/* C[rows][PANEL] = A B - offset; A by rows (element (row, step) at a[row a_row + step]), one offset
 * a row. */
inline_always void product_of_rows(float *c, size_t c_row, size_t rows, size_t steps,
                                   const element *a, size_t a_row, const element *b,
                                   const float *offset) {
  vf sum[ROWS][VECTORS] = {0};
  multiply_steps(sum, rows, steps, a, a_row, 1, b, PANEL);
  UNROLL
  for (size_t r = 0; r < rows; r++)
    for (size_t v = 0; v < VECTORS; v++) sum[r][v] -= offset[r];
  tile_store(sum, c, c_row, rows);
}

/* C += A B; A by rows. */
inline_always void product_add_of_rows(float *c, size_t c_row, size_t rows, size_t steps,
                                       const element *a, size_t a_row, const element *b,
                                       size_t b_step) {
  vf sum[ROWS][VECTORS];
  tile_load(sum, c, c_row, rows);
  multiply_steps(sum, rows, steps, a, a_row, 1, b, b_step);
  tile_store(sum, c, c_row, rows);
}

TILE_FUNCTION void product(float *c, size_t c_row, size_t steps, const element *a, size_t a_row,
                           const element *b, const float *offset) {
  product_of_rows(c, c_row, ROWS, steps, a, a_row, b, offset);
}

TILE_FUNCTION void product_add(float *c, size_t c_row, size_t steps, const element *a, size_t a_row,
                               const element *b, size_t b_step) {
  product_add_of_rows(c, c_row, ROWS, steps, a, a_row, b, b_step);
}

/* The same of the first row of a tile. */
TILE_FUNCTION void product_row(float *c, size_t c_row, size_t steps, const element *a, size_t a_row,
                               const element *b, const float *offset) {
  product_of_rows(c, c_row, 1, steps, a, a_row, b, offset);
}

TILE_FUNCTION void product_add_row(float *c, size_t c_row, size_t steps, const element *a,
                                   size_t a_row, const element *b, size_t b_step) {
  product_add_of_rows(c, c_row, 1, steps, a, a_row, b, b_step);
}

/* C += A^T B; A^T by columns (element (row, step) at a[step a_step + row]). */
TILE_FUNCTION void product_add_transposed(float *c, size_t c_row, size_t steps, const element *a,
                                          size_t a_step, const element *b, size_t b_step) {
  vf sum[ROWS][VECTORS];
  tile_load(sum, c, c_row, ROWS);
  multiply_steps(sum, ROWS, steps, a, 1, a_step, b, b_step);
  tile_store(sum, c, c_row, ROWS);
}

/* Rows of an operand that are needed soon, `width` elements each; they are too far apart for the
 * hardware prefetcher. */
struct ahead {
  const stored *rows;
  size_t row, count, width;
};

/* Prefetches a few of them, those of `step`. Called between products shortly before the rows are
 * needed: prefetching all at once stalls, and early prefetches are evicted when threads share the
 * caches (5% of the kernels' time). */
inline_always void prefetch_ahead(const struct ahead *a, size_t step) {
  enum { AT_ONCE = ROWS / 2 };
  for (size_t r = step * AT_ONCE; r < (step + 1) * AT_ONCE && r < a->count; r++)
    for (size_t i = 0; i < a->width; i += LINE * sizeof(float) / sizeof *a->rows)
      __builtin_prefetch(a->rows + r * a->row + i);
}

/* The block of `block` queries after this one: the offset of its first row, in elements as `at`,
 * where rows are `row` apart, and its number of rows, 0 after the last. Blocks follow each other
 * within a head, heads within a sequence. */
struct next_block {
  size_t at, rows;
};

static inline struct next_block block_after(size_t block, size_t at, size_t row, size_t first_query,
                                            size_t sequence, size_t head, size_t heads,
                                            size_t head_dim) {
  const size_t following = first_query + block;
  if (following < sequence)
    return (struct next_block){at + block * row,
                               sequence - following < block ? sequence - following : block};
  if (head + 1 < heads)
    return (struct next_block){at - first_query * row + head_dim,
                               sequence < block ? sequence : block};
  return (struct next_block){at, 0};
}

#ifdef TILE_PAIRS
inline_always vu scaled(vu pairs, float factor) { return (void)factor, pairs; }

/* Two rows as one row of pairs, `left` numbers wide; the second may be null. */
inline_always vu load_step(const stored *first, const stored *second, size_t left) {
  const vu low = (vu)load_n(first, left) >> 16;
  return second ? low | (vu)load_n(second, left) : low;
}
#else
inline_always vf scaled(vf floats, float factor) { return floats * factor; }
inline_always vf load_step(const stored *first, const stored *none, size_t left) {
  return (void)none, load_n(first, left);
}
#endif

/* Copies the rows of a left factor to rows of copy_stride(steps_of(width)), padded with zeros to
 * PANEL, `padded` rows in all. Floats are multiplied by factor. */
static inline void copy_rows(element *to, const stored *from, size_t from_row, size_t rows,
                             size_t padded, size_t width, float factor) {
  const size_t stride = copy_stride(steps_of(width)), panels = round_up(steps_of(width), PANEL);
  for (size_t r = 0; r < rows; r++)
    for (size_t i = 0; i < panels; i += LANES) {
      elements v = {0};
      if (i * NUMBERS < width)
        v = load_elements(from + r * from_row + i * NUMBERS, width - i * NUMBERS);
      store(to + r * stride + i, scaled(v, factor));
    }
  memset(to + rows * stride, 0, (padded - rows) * stride * sizeof *to);
}

/* Copies rows that are the steps of a right factor to rows of copy_stride(width), padded with zeros
 * to PANEL, steps_of(padded) rows in all. */
static inline void copy_steps(element *to, const stored *from, size_t from_row, size_t rows,
                              size_t padded, size_t width) {
  const size_t stride = copy_stride(width), panels = round_up(width, PANEL);
  for (size_t r = 0; r < rows; r += NUMBERS, from += NUMBERS * from_row, to += stride)
    for (size_t i = 0; i < panels; i += LANES) {
      elements v = {0};
      if (i < width) v = load_step(from + i, r + 1 < rows ? from + from_row + i : NULL, width - i);
      store(to + i, v);
    }
  memset(to, 0, (steps_of(padded) - steps_of(rows)) * stride * sizeof *to);
}

/* LANES columns of a panel: to[step PANEL + lane] = the element at from[lane from_row + step
 * NUMBERS]; columns from `lanes` on are zero. */
static inline void copy_square(element *to, const stored *from, size_t from_row, size_t lanes,
                               size_t width) {
  for (size_t i = 0; i < steps_of(width); i += LANES) {
    const size_t steps = steps_of(width) - i < LANES ? steps_of(width) - i : LANES;
    vf row[LANES];
    for (size_t r = 0; r < LANES; r++)
      row[r] = r < lanes ? (vf)load_elements(from + r * from_row + i * NUMBERS, width - i * NUMBERS)
                         : splat(0.0f);
    transpose(row);
    for (size_t s = 0; s < steps; s++) store(to + (i + s) * PANEL, (elements)row[s]);
  }
}

/* Copies rows as transposed panels of PANEL rows: to[row / PANEL][steps_of(width)][row mod PANEL];
 * missing rows are zero. */
static inline void copy_panels(element *to, const stored *from, size_t from_row, size_t rows,
                               size_t padded, size_t width) {
  for (size_t first = 0; first < padded; first += LANES) {
    const size_t lanes = first >= rows ? 0 : rows - first < LANES ? rows - first : LANES;
    element *panel = to + first / PANEL * PANEL * steps_of(width) + first % PANEL;
    copy_square(panel, from + (lanes ? first * from_row : 0), from_row, lanes, width);
  }
}

/* Sets a row s to `rest` from `begin` to `from` and from `count` to `end`; begin is a multiple of
 * LANES, end is rounded up to one. */
inline_always void mask(float *s, size_t begin, size_t from, size_t count, size_t end, float rest) {
  size_t j = begin;
  for (; j + LANES <= from; j += LANES) store(s + j, splat(rest));
  if (j < from)
    store(s + j, choose(lane_numbers() >= (int32_t)(from - j), load(s + j), splat(rest)));
  j = count / LANES * LANES;
  if (j < count)
    store(s + j, choose(lane_numbers() < (int32_t)(count - j), load(s + j), splat(rest)));
  for (j = round_up(count, LANES); j < end; j += LANES) store(s + j, splat(rest));
}

/* Allocates `count` floats or elements from a workspace, in whole cache lines. */
static inline void *allocate_lines(float **workspace, size_t count) {
  float *taken = *workspace;
  *workspace += round_up(count, LINE);
  return taken;
}

#endif
