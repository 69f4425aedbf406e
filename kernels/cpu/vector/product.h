/* product.h: matrix products in tiles held in registers, over copies that fit the caches (Goto and
 * van de Geijn 2008).
 *
 * result[m,n] = left[m,k] right[k,n] + addend by blocks of at most PEN_PRODUCT_WIDTH columns, DEPTH
 * steps and HEIGHT rows; columns and steps are divided into equal parts. A step is an element of
 * each row of the left factor and of each column of the right one (multiply.h): one number of k in
 * product.c, two in product_pairs.c. Both include this file and define how rows are copied. A block
 * of the right factor is copied into panels of PANEL columns, with each step's elements adjacent; a
 * panel stays in the first-level cache while HEIGHT rows of the left factor are multiplied, ROWS at
 * a time:
 *
 *     right panels  [panel][depth][PANEL]   zero after the last column
 *     left strips   [strip][depth][ROWS]    only if the left factor is stored transposed
 *     left rows     [HEIGHT][depth + LINE]  only if rows are a multiple of 2 KiB apart, and so map
 *                                           to few cache sets, or start within an element
 *
 * Each thread (threads.h) has copies of its own. Few rows are multiplied without them (few_rows.h).
 *
 * Elements that k does not fill are zero. Otherwise the left factor is not copied. Sums start at
 * zero in the registers; the addend is read when the tile is stored.
 *
 * Bits: an element of the result is the sum over blocks of k, in rising order, of sums over the
 * steps of a block, in rising order, one multiply-add each; the addend is added to the first block,
 * the bias to the total. It depends on its row, its column and k alone, not on m, n or other rows.
 */
#ifndef PEN_PRODUCT_H
#define PEN_PRODUCT_H

#include "kernels/cpu/threads.h"
#include "kernels/cpu/vector/isa.h"

/* 24 or 12 sums: as many as fit the registers. With 64-byte vectors a panel is one vector wide: on
 * Zen 4, 12 x 32 reaches 0.93 of the rate of 24 x 16, by shape 0.90 to 0.99. */
#define TILE_ROWS (LANES == 16 ? 24 : 6)
#define TILE_VECTORS (LANES == 16 ? 1 : 2)
#include "kernels/cpu/vector/multiply.h"

enum {
  HEIGHT = PEN_PRODUCT_HEIGHT,
  DEPTH = LANES == 16 || NUMBERS > 1
              ? PEN_PRODUCT_DEPTH
              : PEN_PRODUCT_DEPTH / 2, /* with 64 bytes 2% faster than half, with 32 no faster */
  LINE = 16,                           /* elements in a cache line */
  HALF_PAGE =
      512, /* elements in 2 KiB: copying rows this far apart gives 1.3 of the rate on Zen 4 */
  SHARE_ROWS = ROWS > 6 ? ROWS / 3 : ROWS, /* a thread's rows are a multiple */
  STEPS_AHEAD_RIGHT = 4,                   /* steps that copies prefetch ahead */
  STEPS_AHEAD_LEFT = 8,
};
_Static_assert(HEIGHT % ROWS == 0 && PEN_PRODUCT_WIDTH % PANEL == 0, "blocks are whole tiles");
_Static_assert(NUMBERS == 1 || NUMBERS * DEPTH == PEN_PAIR_DEPTH,
               "what is rounded is one block of k");
_Static_assert((int)PANEL <= PEN_PRODUCT_PANEL,
               "the workspace of ops.def has room for a panel past the last column");

static size_t least(size_t a, size_t b) { return a < b ? a : b; }
static size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

/* The size of equal parts of `whole`, at most `most` each, in multiples of `unit`. */
static size_t part_of(size_t whole, size_t most, size_t unit) {
  const size_t parts = (whole + most - 1) / most;
  return parts > 1 ? round_up((whole + parts - 1) / parts, unit) : whole;
}

/* ---- a tile ---- */

/* Where the sums of a tile are stored, and what is added; rows, except the bias, are `row` apart.
 */
struct sum_target {
  float *result;
  const float *addend;         /* null: none */
  struct pen_rounding rounded; /* if rounded.result is set, sums are stored there */
  size_t row;
};

/* Is the result bf16? Constant false for f32 factors. */
inline_always int rounds(const struct sum_target *to) { return NUMBERS > 1 && to->rounded.result; }

/* The target i rows and j columns further. */
inline_always struct sum_target target_at(const struct sum_target *p, size_t i, size_t j) {
  const size_t at = i * p->row + j;
  struct sum_target to = *p;
  if (rounds(p)) {
    to.rounded.result += at;
    to.rounded.addend = to.rounded.addend ? to.rounded.addend + at : NULL;
    to.rounded.bias = to.rounded.bias ? to.rounded.bias + j : NULL;
  } else {
    to.result += at;
    to.addend = to.addend ? to.addend + at : NULL;
  }
  return to;
}

/* The first `width` columns of each row; so does store_rounded(). */
inline_always void store_sums(const struct sum_target *to, vf sum[ROWS][VECTORS], size_t rows,
                              size_t width) {
  UNROLL
  for (size_t r = 0; r < rows; r++) UNROLL
  for (size_t v = 0; v < VECTORS; v++) {
    const size_t at = r * to->row + v * LANES, left = width > v * LANES ? width - v * LANES : 0;
    if (to->addend) sum[r][v] = load_n(to->addend + at, left) + sum[r][v];
    store_n(to->result + at, sum[r][v], left);
  }
}

inline_always void store_rounded(const struct sum_target *to, vf sum[ROWS][VECTORS], size_t rows,
                                 size_t width) {
  const struct pen_rounding *place = &to->rounded;
  for (size_t j = 0, v = 0; j < width; j += LANES, v++) {
    if (place->addend) UNROLL
    for (size_t r = 0; r < rows; r++)
      sum[r][v] += load_n((const bf16 *)place->addend + r * to->row + j, width - j);
    const vf bias = place->bias ? load_n(place->bias + j, width - j) : (vf){0};
    UNROLL
    for (size_t r = 0; r < rows; r++)
      store_n((bf16 *)place->result + r * to->row + j, sum[r][v] + bias, width - j);
  }
}

/* The factors and the target of a tile: the left element (row, step) is a[row a_row + step a_step];
 * a_step is a constant of the function. */
struct tile {
  size_t depth;
  const element *a, *b;
  size_t a_row;
  struct sum_target to;
};

inline_always void multiply_tile(const struct tile *t, size_t rows, size_t a_row, size_t a_step) {
  vf sum[ROWS][VECTORS];
  UNROLL
  for (size_t r = 0; r < rows; r++) {
    UNROLL
    for (int v = 0; v < VECTORS; v++) sum[r][v] = (vf){0};
    __builtin_prefetch(rounds(&t->to) ? (void *)(t->to.rounded.result + r * t->to.row)
                                      : (void *)(t->to.result + r * t->to.row),
                       1);
  }
  multiply_steps(sum, rows, t->depth, t->a, a_row, a_step, t->b, PANEL);
  if (rounds(&t->to))
    store_rounded(&t->to, sum, rows, PANEL);
  else
    store_sums(&t->to, sum, rows, PANEL);
}

typedef void tile_function(const struct tile *);

/* One function for each number of rows, since the last rows of a factor are fewer; for rows and for
 * strips. */
#define TILE(rows)                                                                   \
  __attribute__((noinline)) static void tile_of_rows_##rows(const struct tile *t) {  \
    multiply_tile(t, rows, t->a_row, 1);                                             \
  }                                                                                  \
  __attribute__((noinline)) static void tile_of_strip_##rows(const struct tile *t) { \
    multiply_tile(t, rows, 1, ROWS);                                                 \
  }
#if PEN_VECTOR_BYTES == 64
#define TILES(row)                                                                               \
  row(1) row(2) row(3) row(4) row(5) row(6) row(7) row(8) row(9) row(10) row(11) row(12) row(13) \
      row(14) row(15) row(16) row(17) row(18) row(19) row(20) row(21) row(22) row(23) row(24)
#else
#define TILES(row) row(1) row(2) row(3) row(4) row(5) row(6)
#endif
TILES(TILE)
#define OF_ROWS(rows) [rows] = tile_of_rows_##rows,
#define OF_STRIP(rows) [rows] = tile_of_strip_##rows,
static tile_function *const tile_of_rows[ROWS + 1] = {TILES(OF_ROWS)},
                                                *const tile_of_strip[ROWS + 1] = {TILES(OF_STRIP)};

/* Computes a tile with fewer columns than PANEL in a copy. */
static void multiply_narrow(tile_function *multiply, const struct tile *whole, size_t rows,
                            size_t width) {
  const struct sum_target *to = &whole->to;
  float space[ROWS * PANEL] = {0};
  struct tile t = *whole;
  t.to = (struct sum_target){.result = space, .addend = to->addend ? space : NULL, .row = PANEL};
  for (size_t r = 0; to->addend && r < rows; r++)
    memcpy(space + r * PANEL, to->addend + r * to->row, width * sizeof *space);
  multiply(&t);
  if (rounds(to)) {
    vf sum[ROWS][VECTORS];
    memcpy(sum, space, sizeof space);
    store_rounded(to, sum, rows, width);
    return;
  }
  for (size_t r = 0; r < rows; r++)
    memcpy(to->result + r * to->row, space + r * PANEL, width * sizeof *space);
}

/* ---- copies ---- */

/* The address of a number of a factor, as it is stored. */
static const stored *number_at(const struct pen_matrix *f, size_t row, size_t column) {
  return (const stored *)f->at + row * f->row + column;
}

/* Copies panels of a right factor that is stored by rows of n, from number `first` of k and
 * `column` on, `numbers` by `width`. */
static void copy_panels(element *to, const struct pen_matrix *right, size_t first, size_t column,
                        size_t numbers, size_t width);

/* Copies strips of a left factor that is stored transposed, by rows of m, from number `first` of k
 * and row i on. Missing rows of the last strip are not read. `ask`: how many numbers of each row to
 * prefetch, which includes later blocks. */
static void copy_strips(element *to, const struct pen_matrix *left, size_t first, size_t i,
                        size_t rows, size_t numbers, size_t ask);

/* LANES columns and as many steps of a right factor that is stored transposed, by rows of k, with
 * the columns of a step adjacent. Missing ones are zero. */
inline_always void load_square(vf square[LANES], const stored *from, size_t row, size_t numbers,
                               size_t width) {
  UNROLL
  for (size_t i = 0; i < LANES; i++)
    square[i] = i < width ? (vf)load_elements(from + i * row, numbers) : (vf){0};
  transpose(square);
}

/* Copies a panel of such a factor. */
static void copy_panel_transposed(element *to, const stored *from, size_t row, size_t numbers,
                                  size_t width) {
  for (size_t half = 0; half < PANEL; half += LANES)
    for (size_t k = 0; k < numbers; k += LANES * NUMBERS) {
      vf square[LANES];
      load_square(square, from + half * row + k, row, numbers - k, width > half ? width - half : 0);
      const size_t step = k / NUMBERS, steps = least(LANES, steps_of(numbers - k));
      for (size_t i = 0; i < steps; i++) store((float *)to + (step + i) * PANEL + half, square[i]);
    }
}

static void copy_right(element *to, const struct pen_matrix *right, size_t first, size_t column,
                       size_t numbers, size_t width) {
  if (!right->transposed) copy_panels(to, right, first, column, numbers, width);
  for (size_t j = 0; right->transposed && j < width; j += PANEL, to += steps_of(numbers) * PANEL)
    copy_panel_transposed(to, number_at(right, column + j, first), right->row, numbers, width - j);
}

/* ---- blocks ---- */

/* The left factor of a block, as its tiles read it. */
struct strips {
  const element *at;
  size_t strip, row;
  tile_function *const *tile;
};

static struct strips prepare_left(const struct pen_matrix *left, size_t i, size_t first,
                                  size_t rows, size_t numbers, element *space) {
  const size_t depth = steps_of(numbers), row = left->row / NUMBERS;
  if (left->transposed) {
    const size_t ask = i == 0 && left->row <= 2 * HALF_PAGE * NUMBERS ? left->row : rows;
    copy_strips(space, left, first, i, rows, numbers, ask);
    return (struct strips){space, depth * ROWS, 1, tile_of_strip};
  }
  if (left->row % NUMBERS == 0 && row % HALF_PAGE != 0)
    return (struct strips){(const element *)number_at(left, i, first), row * ROWS, row,
                           tile_of_rows};
  for (size_t r = 0; r < rows; r++) {
    element *to = space + r * (depth + LINE);
    to[depth - 1] = 0;
    memcpy(to, number_at(left, i + r, first), numbers * sizeof(stored));
  }
  return (struct strips){space, (depth + LINE) * ROWS, depth + LINE, tile_of_rows};
}

/* A block of columns and steps, all rows of the result. Each thread has a part of the workspace:
 * panels, then rows or strips of the left factor. */
struct product_block {
  const struct pen_product *product;
  size_t column, columns, first, numbers, depth; /* the first number of k, how many, their steps */
  size_t part_elements, panel_elements;
  element *panels, *space; /* of the first thread */
  struct sum_target to;
};

static struct product_block block_of_thread(const struct product_block *all, size_t thread) {
  struct product_block b = *all;
  b.panels += thread * b.part_elements;
  b.space = b.panels + b.panel_elements;
  return b;
}

/* Rows i .. i + rows, at most HEIGHT, and columns j .. end of the block. */
static void multiply_rows(const struct product_block *b, const struct strips *left, size_t i,
                          size_t rows, size_t j, size_t end) {
  for (; j < end; j += PANEL)
    for (size_t r = 0; r < rows; r += ROWS) {
      const size_t high = least(ROWS, rows - r);
      const struct tile t = {b->depth, left->at + r / ROWS * left->strip, b->panels + j * b->depth,
                             left->row, target_at(&b->to, i + r, b->column + j)};
      if (end - j >= PANEL)
        left->tile[high](&t);
      else
        multiply_narrow(left->tile[high], &t, high, end - j);
    }
}

/* Copies the panels of columns j .. end and multiplies them by rows i .. past. */
static void multiply_block(const struct product_block *b, size_t i, size_t past, size_t j,
                           size_t end) {
  copy_right(b->panels + j * b->depth, &b->product->right, b->first, b->column + j, b->numbers,
             end - j);
  for (; i < past; i += HEIGHT) {
    const size_t rows = least(HEIGHT, past - i);
    const struct strips left =
        prepare_left(&b->product->left, i, b->first, rows, b->numbers, b->space);
    multiply_rows(b, &left, i, rows, j, end);
  }
}

static void multiply_share_of_panels(const void *context, size_t thread, size_t first,
                                     size_t past) {
  const struct product_block b = block_of_thread(context, thread);
  multiply_block(&b, 0, b.product->m, first * PANEL, least(past * PANEL, b.columns));
}

static void multiply_share_of_rows(const void *context, size_t thread, size_t first, size_t past) {
  const struct product_block b = block_of_thread(context, thread);
  multiply_block(&b, first * SHARE_ROWS, least(past * SHARE_ROWS, b.product->m), 0, b.columns);
}

#include "kernels/cpu/vector/few_rows.h"

/* If there are many rows for each thread, threads take rows, and each copies all panels: it then
 * reads its own rows of the left factor alone, which it often has in its cache. (Panels that
 * threads copy together take 4% longer.) If not, or if rows would be copied, they take panels. */
static void divide_block(const struct product_block *b) {
  const struct pen_product *p = b->product;
  if (!p->left.transposed && p->m >= 2 * HEIGHT * pen_threads_count())
    pen_parallel_for((p->m + SHARE_ROWS - 1) / SHARE_ROWS, multiply_share_of_rows, b);
  else
    pen_parallel_for((b->columns + PANEL - 1) / PANEL,
                     is_few(p) ? multiply_share_of_few : multiply_share_of_panels, b);
}

void PEN_NAME(multiply)(const struct pen_product *p) {
  const size_t steps = steps_of(p->k), width = part_of(p->n, PEN_PRODUCT_WIDTH, PANEL),
               depth = part_of(steps, DEPTH, 4), rows = least(p->m, HEIGHT);
  const size_t copied = round_up(rows, ROWS) * depth, padded = rows * (depth + LINE);
  struct product_block b = {.product = p, .panels = (element *)p->workspace};
  b.panel_elements = round_up(round_up(width, PANEL) * depth, LINE);
  b.part_elements = round_up(b.panel_elements + (copied > padded ? copied : padded), LINE);
  b.to = (struct sum_target){
      .result = p->result, .addend = p->addend, .rounded = p->rounded, .row = p->result_row};
  for (b.column = 0; b.column < p->n; b.column += width)
    for (size_t first = 0; first < steps; first += depth) {
      b.columns = least(width, p->n - b.column);
      b.depth = least(depth, steps - first);
      b.first = first * NUMBERS;
      b.numbers = least(b.depth * NUMBERS, p->k - b.first);
      b.to.addend = first > 0 ? p->result : p->addend;
      divide_block(&b);
    }
}

#endif
