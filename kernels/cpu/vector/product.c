/* product.c: matrix products in tiles held in registers, over copies that the caches hold (Goto and van de Geijn 2008).
 *
 * result[m,n] = left[m,k] right[k,n] + addend goes by blocks of at most PEN_PRODUCT_WIDTH columns, of DEPTH steps of k, and of HEIGHT rows;
 * the first two are cut into equal parts. A block of the right factor (k x n) is copied into panels of PANEL columns, each
 * step's numbers side by side; one panel stays in the nearest caches while HEIGHT rows of the left factor pass it, ROWS at a time:
 *
 *     right panels  [panel][depth][PANEL]   zero past the last column
 *     left strips   [strip][depth][ROWS]    only where the left factor is stored transposed
 *     left rows     [HEIGHT][depth + LINE]  only where rows stand a multiple of 4 KiB apart, so that all fall to one set of the caches
 *
 * Elsewhere rows of the left factor are read where they are. Nothing is cleared: a tile's sums start at zero in the registers, and what is
 * added to them is read as the tile is stored.
 *
 * Bits: an element is the sum over blocks of k, in rising order, of sums over the steps of a block, in rising order, one multiply-add
 * each; the addend comes first. So it depends on its row, its column and k alone, not on m, n or which rows stand beside it.
 */
#include "kernels/cpu/vector/isa.h"

/* 24 or 12 sums: as many as the registers hold beside the right factor's. With vectors of 64 bytes a panel is one of them wide: on Zen 4
 * 12 x 32 makes 0.93 of the rate of 24 x 16, by shape 0.90 to 0.99. */
#define TILE_ROWS (LANES == 16 ? 24 : 6)
#define TILE_VECTORS (LANES == 16 ? 1 : 2)
#include "kernels/cpu/vector/multiply.h"

enum {
  HEIGHT = PEN_PRODUCT_HEIGHT,
  DEPTH = LANES == 16 ? PEN_PRODUCT_DEPTH : PEN_PRODUCT_DEPTH / 2, /* with 64 bytes 2% faster than half, with 32 no faster */
  LINE = 16,             /* floats in a cache line */
  PAGE = 1024,           /* floats in 4 KiB */
  STEPS_AHEAD_RIGHT = 4, /* how far copies ask ahead of themselves for rows that the machine cannot guess */
  STEPS_AHEAD_LEFT = 8,
};
_Static_assert(HEIGHT % ROWS == 0 && PEN_PRODUCT_WIDTH % PANEL == 0, "blocks are whole tiles");
_Static_assert((int)PANEL <= PEN_PRODUCT_PANEL, "the workspace of ops.def has room for a panel past the last column");

static size_t least(size_t a, size_t b) { return a < b ? a : b; }
static size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

/* The size of the equal parts, at most `most` each, that something is cut into, in whole `units`. */
static size_t part_of(size_t whole, size_t most, size_t unit) {
  const size_t parts = (whole + most - 1) / most;
  return parts > 1 ? round_up((whole + parts - 1) / parts, unit) : whole;
}

/* ---- a tile ---- */

/* What a tile is made of: its left element (row, step) is a[row a_row + step a_step], where a_step is a constant of the function. */
struct tile {
  size_t depth;
  const float *a, *b;
  size_t a_row;
  const float *addend; /* null: none */
  float *result;
  size_t result_row; /* of the addend, too */
};

inline_always void multiply_tile(const struct tile *t, size_t rows, size_t a_row, size_t a_step) {
  vf sum[ROWS][VECTORS];
  UNROLL
  for (size_t r = 0; r < rows; r++) {
    UNROLL
    for (int v = 0; v < VECTORS; v++)
      sum[r][v] = (vf){0};
    __builtin_prefetch(t->result + r * t->result_row, 1);
  }
  multiply_steps(sum, rows, t->depth, t->a, a_row, a_step, t->b, PANEL);
  UNROLL
  for (size_t r = 0; r < rows; r++)
    UNROLL
    for (int v = 0; v < VECTORS; v++) {
      const size_t at = r * t->result_row + v * LANES;
      if (t->addend)
        sum[r][v] = load(t->addend + at) + sum[r][v];
      store(t->result + at, sum[r][v]);
    }
}

typedef void tile_function(const struct tile *);

/* The last rows of a factor make a tile of fewer rows; a function each, and for strips another. */
#define TILE(rows)                                                                                                     \
  __attribute__((noinline)) static void tile_of_rows_##rows(const struct tile *t) { multiply_tile(t, rows, t->a_row, 1); } \
  __attribute__((noinline)) static void tile_of_strip_##rows(const struct tile *t) { multiply_tile(t, rows, 1, ROWS); }
#if PEN_VECTOR_BYTES == 64
#define TILES(row)                                                                                                        \
  row(1) row(2) row(3) row(4) row(5) row(6) row(7) row(8) row(9) row(10) row(11) row(12) row(13) row(14) row(15) row(16) \
  row(17) row(18) row(19) row(20) row(21) row(22) row(23) row(24)
#else
#define TILES(row) row(1) row(2) row(3) row(4) row(5) row(6)
#endif
TILES(TILE)
#define OF_ROWS(rows) [rows] = tile_of_rows_##rows,
#define OF_STRIP(rows) [rows] = tile_of_strip_##rows,
static tile_function *const tile_of_rows[ROWS + 1] = { TILES(OF_ROWS) }, *const tile_of_strip[ROWS + 1] = { TILES(OF_STRIP) };

/* A tile that fewer columns are wanted of goes by a copy. */
static void multiply_narrow(tile_function *multiply, const struct tile *whole, size_t rows, size_t width) {
  float space[ROWS * PANEL];
  struct tile t = *whole;
  t.result = space, t.result_row = PANEL;
  t.addend = whole->addend ? space : NULL;
  memset(space, 0, sizeof space);
  for (size_t r = 0; whole->addend && r < rows; r++)
    memcpy(space + r * PANEL, whole->addend + r * whole->result_row, width * sizeof *space);
  multiply(&t);
  for (size_t r = 0; r < rows; r++)
    memcpy(whole->result + r * whole->result_row, space + r * PANEL, width * sizeof *space);
}

/* ---- copies ---- */

/* The panels of a right factor that is stored by rows of n: each row is read once, whole, so that the machine sees what comes next. (One
 * panel after the other, 64 bytes of each row at a time, cost 1 to 3% of products whose factors are in no cache.) */
static void copy_panels(float *to, const float *from, size_t row, size_t depth, size_t width) {
  const size_t whole = width / PANEL * PANEL;
  for (size_t k = 0; k < depth; k++, from += row, to += PANEL) {
    float *panel = to;
    for (size_t j = 0; j < whole; j += PANEL, panel += depth * PANEL) {
      __builtin_prefetch(from + STEPS_AHEAD_RIGHT * row + j);
      for (size_t i = 0; i < PANEL; i += LANES)
        store(panel + i, load(from + j + i));
    }
    for (size_t i = 0; whole < width && i < PANEL; i += LANES)
      store(panel + i, whole + i < width ? load_n(from + whole + i, width - whole - i) : (vf){0});
  }
}

/* A panel of one that is stored transposed, by rows of k: squares are turned in registers. */
static void copy_panel_transposed(float *to, const float *from, size_t row, size_t depth, size_t width) {
  for (size_t half = 0; half < PANEL; half += LANES)
    for (size_t k = 0; k < depth; k += LANES) {
      const size_t steps = least(LANES, depth - k);
      vf square[LANES];
      for (size_t i = 0; i < LANES; i++)
        square[i] = half + i < width ? load_n(from + (half + i) * row + k, steps) : (vf){0};
      transpose(square);
      for (size_t i = 0; i < steps; i++)
        store(to + (k + i) * PANEL + half, square[i]);
    }
}

static void copy_right(float *to, const struct pen_factor *right, size_t first, size_t column, size_t depth, size_t width) {
  if (!right->transposed)
    copy_panels(to, right->at + first * right->row + column, right->row, depth, width);
  for (size_t j = 0; right->transposed && j < width; j += PANEL, to += depth * PANEL)
    copy_panel_transposed(to, right->at + (column + j) * right->row + first, right->row, depth, width - j);
}

/* Strips of a left factor that is stored transposed, by rows of m: each row of it is read once, whole. The last strip's missing rows are
 * not read by anyone. `ask`: how many floats of each row to ask for ahead of time, those of the blocks that follow among them. */
static void copy_strips(float *to, const float *from, size_t row, size_t rows, size_t depth, size_t ask) {
  const size_t whole = rows / ROWS;
  for (size_t k = 0; k < depth; k++, from += row, to += ROWS) {
    for (size_t i = 0; i < ask; i += LINE)
      __builtin_prefetch(from + STEPS_AHEAD_LEFT * row + i);
    float *strip = to;
    for (size_t s = 0; s < whole; s++, strip += depth * ROWS)
      memcpy(strip, from + s * ROWS, ROWS * sizeof *to);
    memcpy(strip, from + whole * ROWS, (rows - whole * ROWS) * sizeof *to);
  }
}

/* ---- blocks ---- */

/* The left factor of a block, as its tiles read it. */
struct strips {
  const float *at;
  size_t strip, row;
  tile_function *const *tile;
};

static struct strips take_left(const struct pen_factor *left, size_t i, size_t first, size_t rows, size_t depth, float *space) {
  if (left->transposed) {
    const size_t ask = i == 0 && left->row <= PAGE ? left->row : rows;
    copy_strips(space, left->at + first * left->row + i, left->row, rows, depth, ask);
    return (struct strips){ space, depth * ROWS, 1, tile_of_strip };
  }
  const float *from = left->at + i * left->row + first;
  if (left->row % PAGE != 0)
    return (struct strips){ from, left->row * ROWS, left->row, tile_of_rows };
  for (size_t r = 0; r < rows; r++)
    memcpy(space + r * (depth + LINE), from + r * left->row, depth * sizeof *space);
  return (struct strips){ space, (depth + LINE) * ROWS, depth + LINE, tile_of_rows };
}

/* A block of the result: its rows are HEIGHT at most. */
struct block {
  size_t rows, columns, depth, result_row;
  const float *panels, *addend;
  float *result;
};

static void multiply_block(const struct block *b, const struct strips *left) {
  for (size_t j = 0; j < b->columns; j += PANEL)
    for (size_t i = 0; i < b->rows; i += ROWS) {
      const size_t at = i * b->result_row + j, rows = least(ROWS, b->rows - i);
      const struct tile t = { b->depth, left->at + i / ROWS * left->strip, b->panels + j * b->depth, left->row,
                              b->addend ? b->addend + at : NULL, b->result + at, b->result_row };
      if (b->columns - j >= PANEL)
        left->tile[rows](&t);
      else
        multiply_narrow(left->tile[rows], &t, rows, b->columns - j);
    }
}

void PEN_NAME(multiply)(const struct pen_product *p) {
  const size_t width = part_of(p->n, PEN_PRODUCT_WIDTH, PANEL), depth = part_of(p->k, DEPTH, 4);
  float *panels = p->workspace, *space = panels + round_up(round_up(width, PANEL) * depth, LINE);
  for (size_t j = 0; j < p->n; j += width)
    for (size_t first = 0; first < p->k; first += depth) {
      struct block b = { .columns = least(width, p->n - j), .depth = least(depth, p->k - first), .result_row = p->result_row, .panels = panels };
      copy_right(panels, &p->right, first, j, b.depth, b.columns);
      for (size_t i = 0; i < p->m; i += HEIGHT) {
        const float *addend = first > 0 ? p->result : p->addend;
        b.rows = least(HEIGHT, p->m - i);
        b.result = p->result + i * p->result_row + j;
        b.addend = addend ? addend + i * p->result_row + j : NULL;
        const struct strips left = take_left(&p->left, i, first, b.rows, b.depth, space);
        multiply_block(&b, &left);
      }
    }
}
