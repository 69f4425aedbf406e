/* few_rows.h: products of few rows with a right factor that is stored transposed: of a token, or
 * one of each text, with the weights. They take about as long as reading that factor. product.h
 * includes this.
 *
 * Nothing is copied: squares of the right factor are transposed in registers and multiplied there,
 * a panel after another. With each square go PANEL cache lines of the next panel, which are
 * prefetched in the order of their addresses, if its rows are adjacent: one line of each row after
 * another, as squares are read, is what hardware prefetches badly.
 */
#ifndef PEN_FEW_ROWS_H
#define PEN_FEW_ROWS_H

enum { FEW = LANES == 16 ? 8 : 2 }; /* rows whose sums fit the registers beside a square */

/* Elements that are halved, or rows of k that end with half an element, are not read as they lie.
 */
static int is_few(const struct pen_product *p) {
  return p->m <= FEW && p->right.transposed && !p->left.transposed && p->k % NUMBERS == 0 &&
         p->left.row % NUMBERS == 0;
}

/* What is prefetched with the first square of a panel, and with the lines and squares after it. */
struct next_panel {
  const char *at;
  size_t line_bytes, square_bytes;
};

static struct next_panel panel_after(const struct product_block *b, size_t j) {
  const struct pen_matrix *right = &b->product->right;
  const size_t row_bytes = right->row * sizeof(stored), line_bytes = LINE * sizeof(element);
  const char *at = (const char *)number_at(right, b->column + j + PANEL, b->first);
  return right->row == b->numbers
             ? (struct next_panel){at, line_bytes, PANEL * LANES * sizeof(element)}
             : (struct next_panel){at, row_bytes, LANES * sizeof(element)};
}

/* sum += the left elements, a_row apart from row to row, times the first `steps` rows of a square.
 */
inline_always void multiply_square(vf sum[ROWS][VECTORS], size_t v, size_t rows, const element *a,
                                   size_t a_row, const vf square[LANES], size_t steps) {
  UNROLL
  for (size_t k = 0; k < LANES; k++)
    if (k < steps) UNROLL
  for (size_t r = 0; r < rows; r++)
    multiply_row(&sum[r][v], a + r * a_row + k, (const elements *)&square[k], 1);
}

/* Columns j .. j + PANEL of a block, the first `width` of them. */
inline_always void multiply_few(const struct product_block *b, size_t rows, size_t j,
                                size_t width) {
  const struct pen_product *p = b->product;
  const struct sum_target to = target_at(&b->to, 0, b->column + j);
  const size_t row = p->right.row, a_row = p->left.row / NUMBERS;
  const element *a = (const element *)number_at(&p->left, 0, b->first);
  const stored *from = number_at(&p->right, b->column + j, b->first);
  struct next_panel next = panel_after(b, j);
  vf sum[ROWS][VECTORS];
  UNROLL
  for (size_t r = 0; r < rows; r++) UNROLL
  for (size_t v = 0; v < VECTORS; v++) sum[r][v] = (vf){0};
  for (size_t step = 0; step < b->depth; step += LANES, next.at += next.square_bytes) {
    const size_t steps = least(LANES, b->depth - step);
    UNROLL
    for (size_t i = 0; i < PANEL; i++) __builtin_prefetch(next.at + i * next.line_bytes);
    UNROLL
    for (size_t v = 0; v < VECTORS; v++) {
      const stored *at = from + v * LANES * row + step * NUMBERS;
      vf square[LANES];
      if (steps == LANES && width >= PANEL) {
        load_square(square, at, row, LANES * NUMBERS, LANES);
        multiply_square(sum, v, rows, a + step, a_row, square, LANES);
      } else {
        load_square(square, at, row, steps * NUMBERS, width > v * LANES ? width - v * LANES : 0);
        multiply_square(sum, v, rows, a + step, a_row, square, steps);
      }
    }
  }
  if (rounds(&to))
    store_rounded(&to, sum, rows, width);
  else
    store_sums(&to, sum, rows, width);
}

typedef void few_function(const struct product_block *, size_t j, size_t width);

#define FEW_ROWS(rows)                                                                      \
  __attribute__((noinline)) static void few_##rows(const struct product_block *b, size_t j, \
                                                   size_t width) {                          \
    multiply_few(b, rows, j, width);                                                        \
  }
#define OF_FEW(rows) [rows] = few_##rows,
#if PEN_VECTOR_BYTES == 64
#define FEWS(row) row(1) row(2) row(3) row(4) row(5) row(6) row(7) row(8)
#else
#define FEWS(row) row(1) row(2)
#endif
FEWS(FEW_ROWS)
static few_function *const few_of_rows[FEW + 1] = {FEWS(OF_FEW)};

static void multiply_share_of_few(const void *context, size_t thread, size_t first, size_t past) {
  const struct product_block *b = context;
  (void)thread;
  for (size_t j = first * PANEL; j < least(past * PANEL, b->columns); j += PANEL)
    few_of_rows[b->product->m](b, j, least(PANEL, b->columns - j));
}

#endif
