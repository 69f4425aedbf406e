/* embedding.c: POSITION, BIAS, and the gradients of tables and biases: EMBEDDING_DW, POSITION_DW,
 * BIAS_DW. EMBEDDING is in embedding_split.c.
 *
 * A gradient adds its rows in rising order, which fixes its bits. Threads take columns, all rows of
 * them. */
#include "kernels/cpu/threads.h"
#include "kernels/cpu/vector/isa.h"
#include "kernels/cpu/vector/vector.h"

enum { COLUMNS = 16 }; /* of a tile: a cache line of the gradient */

static void divide_columns(const struct pen_call *call, pen_tiles *run) {
  pen_parallel_for(((size_t)call->dim[1] + COLUMNS - 1) / COLUMNS, run, call);
}

/* The column after those of tiles .. past - 1. */
static size_t end_column(const struct pen_call *call, size_t past) {
  const size_t width = (size_t)call->dim[1];
  return past * COLUMNS < width ? past * COLUMNS : width;
}

/* dtable[tokens[r] - first] += dy[r]. The runtime checks tokens when it reads them; a token that
 * the table does not have, and the one before `padding`, add nothing. */
static void embedding_dw_columns(const void *context, size_t thread, size_t first, size_t past) {
  const struct pen_call *call = context;
  const stored *dy = call->operand[0];
  const int32_t *tokens = call->operand[1];
  float *dtable = call->operand[2];
  const size_t rows = (size_t)call->dim[0], width = (size_t)call->dim[1],
               end = end_column(call, past);
  (void)thread;
  for (size_t r = 0; r < rows; r++) {
    const int64_t row = tokens[r] - call->dim[3];
    if (row < 0 || row >= call->dim[2] || tokens[r] + 1 == call->dim[4]) continue;
    float *to = dtable + (size_t)row * width;
    for (size_t i = first * COLUMNS; i < end; i += LANES) {
      const size_t n = width - i;
      store_n(to + i, load_n(to + i, n) + load_n(dy + r * width + i, n), n);
    }
  }
}

void PEN_NAME(embedding_dw)(const struct pen_call *call) {
  divide_columns(call, embedding_dw_columns);
}

/* The position of a row's token in its document. */
static size_t position_of(const int32_t *starts, size_t row, size_t sequence) {
  return row % sequence - (starts ? (size_t)starts[row] : 0);
}

/* y = x + table[offset + position]; the rows of a sequence, or of a run of it, are adjacent */
static void position_rows(const void *context, size_t thread, size_t first, size_t past) {
  const struct pen_call *call = context;
  const stored *x = call->operand[0];
  const float *table = (const float *)call->operand[1] + call->dim[8] * call->dim[1];
  const int32_t *starts = call->operand[2];
  stored *y = call->operand[3];
  const size_t width = (size_t)call->dim[1], sequence = (size_t)call->dim[2],
               run = (size_t)call->dim[6];
  (void)thread;
  for (size_t r = first; r < past; r++) {
    const size_t token = r / run * sequence + (size_t)call->dim[7] + r % run;
    const float *row = table + position_of(starts, token, sequence) * width;
    for (size_t i = 0; i < width; i += LANES) {
      const size_t n = width - i, at = r * width + i;
      store_n(y + at, load_n(x + at, n) + load_n(row + i, n), n);
    }
  }
}

void PEN_NAME(position)(const struct pen_call *call) {
  pen_parallel_rows((size_t)call->dim[5], (size_t)call->dim[1], position_rows, call);
}

static void position_dw_columns(const void *context, size_t thread, size_t first, size_t past) {
  const struct pen_call *call = context;
  const stored *dy = call->operand[0];
  const int32_t *starts = call->operand[1];
  float *dtable = (float *)call->operand[2] + call->dim[5] * call->dim[1];
  const size_t rows = (size_t)call->dim[0], width = (size_t)call->dim[1],
               sequence = (size_t)call->dim[2], end = end_column(call, past);
  (void)thread;
  for (size_t r = 0; r < rows; r++)
    for (size_t i = first * COLUMNS; i < end; i += LANES) {
      const size_t n = width - i;
      float *to = dtable + position_of(starts, r, sequence) * width + i;
      store_n(to, load_n(to, n) + load_n(dy + r * width + i, n), n);
    }
}

void PEN_NAME(position_dw)(const struct pen_call *call) {
  if (call->dim[4] > 0)
    pen_position_runs_dw(call, sizeof(stored));
  else
    divide_columns(call, position_dw_columns);
}

/* y = x + bias, on every row */
void PEN_NAME(bias)(const struct pen_call *call) {
  const stored *x = call->operand[0];
  const float *bias = call->operand[1];
  stored *y = call->operand[2];
  const size_t rows = (size_t)call->dim[0], width = (size_t)call->dim[1];
  for (size_t r = 0; r < rows; r++)
    for (size_t i = 0; i < width; i += LANES) {
      const size_t n = width - i, at = r * width + i;
      store_n(y + at, load_n(x + at, n) + load_n(bias + i, n), n);
    }
}

/* dbias += the sum of dy over the rows, a vector of columns at a time */
static void bias_dw_columns(const void *context, size_t thread, size_t first, size_t past) {
  const struct pen_call *call = context;
  const stored *dy = call->operand[0];
  float *dbias = call->operand[1];
  const size_t rows = (size_t)call->dim[0], width = (size_t)call->dim[1],
               end = end_column(call, past);
  (void)thread;
  for (size_t i = first * COLUMNS; i < end; i += LANES) {
    const size_t n = width - i;
    vf sum = {0};
    for (size_t r = 0; r < rows; r++) sum += load_n(dy + r * width + i, n);
    store_n(dbias + i, load_n(dbias + i, n) + sum, n);
  }
}

void PEN_NAME(bias_dw)(const struct pen_call *call) {
  if (call->dim[3] > 0)
    pen_bias_runs_dw(call, PEN_NAME(bias_dw), sizeof(stored));
  else
    divide_columns(call, bias_dw_columns);
}
