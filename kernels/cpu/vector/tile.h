/* tile.h: what ATTENTION and ATTENTION_DX share: a small block product held in registers, and the copies it reads.
 *
 * A tile is TILE_ROWS x PANEL numbers of a product C = A B. In each step it takes one column of A, element by element, and one
 * row of B, PANEL elements side by side. Its sums start from what is given and rise with the step, one multiply-add each: the
 * bits of an element do not depend on where its tile stands. Copies have rows that are zero past the width and an odd number
 * of cache lines apart, so that a column of them spreads over all sets of the first-level cache.
 */
#ifndef PEN_CPU_TILE_H
#define PEN_CPU_TILE_H

#include "kernels/cpu/vector/vector.h"

enum {
  TILE_VECTORS = 2,                       /* in a row of a tile */
  PANEL = TILE_VECTORS * LANES,           /* floats in a row of a tile */
  TILE_ROWS = LANES == 16 ? 12 : 6,       /* 24 or 12 sums: as many as the registers hold beside the operands */
  QUERY_BLOCK = 48,                       /* queries worked on at once; in both attention kernels a multiple of TILE_ROWS */
  LINE = 16,                              /* floats in a cache line */
};

struct tile {
  vf sum[TILE_ROWS][TILE_VECTORS];
};

static inline size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

/* Floats from row to row of a copy that is `width` floats wide. */
static inline size_t copy_stride(size_t width) {
  const size_t lines = round_up(width, PANEL) / LINE + (round_up(width, PANEL) % LINE != 0);
  return (lines | 1) * LINE;
}

/* tile += A B over `steps` steps: A's element (row, step) is a[row a_row + step a_step], B's row starts at b[step b_step]. */
inline_always void tile_multiply(struct tile *t, size_t steps, const float *a, size_t a_row, size_t a_step,
                                 const float *b, size_t b_step) {
  struct tile c = *t;
  for (size_t s = 0; s < steps; s++, a += a_step, b += b_step) {
    const vf b0 = load(b), b1 = load(b + LANES);
#pragma GCC unroll 12
    for (size_t r = 0; r < TILE_ROWS; r++) {
      const vf ar = splat(a[r * a_row]);
      c.sum[r][0] = madd(ar, b0, c.sum[r][0]);
      c.sum[r][1] = madd(ar, b1, c.sum[r][1]);
    }
  }
  *t = c;
}

inline_always void tile_load(struct tile *t, const float *c, size_t c_row) {
#pragma GCC unroll 12
  for (size_t r = 0; r < TILE_ROWS; r++)
    for (size_t v = 0; v < TILE_VECTORS; v++)
      t->sum[r][v] = load(c + r * c_row + v * LANES);
}

inline_always void tile_store(const struct tile *t, float *c, size_t c_row) {
#pragma GCC unroll 12
  for (size_t r = 0; r < TILE_ROWS; r++)
    for (size_t v = 0; v < TILE_VECTORS; v++)
      store(c + r * c_row + v * LANES, t->sum[r][v]);
}

/* The products stay functions of their own: within the kernels' loops the compiler runs out of registers (10% of the time of
 * ATTENTION and ATTENTION_DX at head size 32 on Zen 3). */
#define TILE_FUNCTION __attribute__((noinline, unused)) static

/* C[TILE_ROWS][PANEL] = A B, for A by rows (element (row, step) at a[row a_row + step]). */
TILE_FUNCTION void product(float *c, size_t c_row, size_t steps, const float *a, size_t a_row, const float *b,
                           size_t b_step) {
  struct tile t = {0};
  tile_multiply(&t, steps, a, a_row, 1, b, b_step);
  tile_store(&t, c, c_row);
}

/* C += A B, for A by rows. */
TILE_FUNCTION void product_add(float *c, size_t c_row, size_t steps, const float *a, size_t a_row, const float *b,
                               size_t b_step) {
  struct tile t;
  tile_load(&t, c, c_row);
  tile_multiply(&t, steps, a, a_row, 1, b, b_step);
  tile_store(&t, c, c_row);
}

/* C += A^T B, for A^T by columns (element (row, step) at a[step a_step + row]). */
TILE_FUNCTION void product_add_transposed(float *c, size_t c_row, size_t steps, const float *a, size_t a_step,
                                          const float *b, size_t b_step) {
  struct tile t;
  tile_load(&t, c, c_row);
  tile_multiply(&t, steps, a, 1, a_step, b, b_step);
  tile_store(&t, c, c_row);
}

/* Asks for rows that are copied next: `width` elements each, too far apart for the machine to guess. */
static inline void prefetch_rows(const stored *from, size_t from_row, size_t rows, size_t width) {
  for (size_t r = 0; r < rows; r++)
    for (size_t i = 0; i < width; i += LINE * sizeof(float) / sizeof *from)
      __builtin_prefetch(from + r * from_row + i);
}

/* The block of queries after this one: where its first row starts, counted like `at` in floats, and how many rows it has, 0 after
 * the last. Blocks follow each other within a head, heads within a sequence. */
struct next_block {
  size_t at, rows;
};

static inline struct next_block block_after(size_t at, size_t first_query, size_t sequence, size_t head, size_t heads,
                                            size_t head_dim) {
  const size_t row = heads * head_dim, following = first_query + QUERY_BLOCK;
  if (following < sequence)
    return (struct next_block){at + QUERY_BLOCK * row, sequence - following < QUERY_BLOCK ? sequence - following : QUERY_BLOCK};
  if (head + 1 < heads)
    return (struct next_block){at - first_query * row + head_dim, sequence < QUERY_BLOCK ? sequence : QUERY_BLOCK};
  return (struct next_block){at, 0};
}

/* Copies rows times factor to rows of copy_stride(width); zero past the width up to PANEL, and `padded` rows in all. */
static inline void copy_rows(float *to, const stored *from, size_t from_row, size_t rows, size_t padded, size_t width,
                             float factor) {
  const size_t stride = copy_stride(width), panels = round_up(width, PANEL);
  for (size_t r = 0; r < rows; r++)
    for (size_t i = 0; i < panels; i += LANES)
      store(to + r * stride + i, i < width ? load_n(from + r * from_row + i, width - i) * factor : splat(0.0f));
  memset(to + rows * stride, 0, (padded - rows) * stride * sizeof *to);
}

/* LANES columns of a panel: to[step PANEL + lane] = from[lane from_row + step]; `lanes` rows are there, the others are zero. */
static inline void copy_square(float *to, const stored *from, size_t from_row, size_t lanes, size_t width) {
  for (size_t i = 0; i < width; i += LANES) {
    const size_t n = width - i < LANES ? width - i : LANES;
    vf row[LANES];
    for (size_t r = 0; r < LANES; r++)
      row[r] = r < lanes ? load_n(from + r * from_row + i, n) : splat(0.0f);
    transpose(row);
    for (size_t s = 0; s < n; s++)
      store(to + (i + s) * PANEL, row[s]);
  }
}

/* Copies rows as transposed panels, PANEL of them side by side: to[row / PANEL][width][row mod PANEL]; missing rows are zero. */
static inline void copy_panels(float *to, const stored *from, size_t from_row, size_t rows, size_t padded, size_t width) {
  for (size_t first = 0; first < padded; first += LANES) {
    const size_t lanes = first >= rows ? 0 : rows - first < LANES ? rows - first : LANES;
    float *panel = to + first / PANEL * PANEL * width + first % PANEL;
    copy_square(panel, from + (lanes ? first * from_row : 0), from_row, lanes, width);
  }
}

/* Takes floats from the front of a workspace, in whole cache lines. */
static inline float *take(float **workspace, size_t count) {
  float *taken = *workspace;
  *workspace += round_up(count, LINE);
  return taken;
}

#endif
