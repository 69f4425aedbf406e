/* muon.c: NEWTON_SCHULZ, and the step of Muon (kernels.h), by the products of matmul.c. Matrices
 * are computed one after the other; threads share the work of each. */
#include <math.h>
#include <string.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/threads.h"
#include "kernels/cpu/vector/isa.h"

/* ---- y = a x + b y ---- */

struct combined_arrays {
  float *y;
  const float *x;
  float a, b;
};

static void combine_range(const void *context, size_t thread, size_t first, size_t past) {
  const struct combined_arrays *c = context;
  (void)thread;
  pen_instruction_set.f32->combine(c->y + first, c->x + first, past - first, c->a, c->b);
}

static void combine(float *y, const float *x, size_t count, double a, double b) {
  const struct combined_arrays c = {y, x, (float)a, (float)b};
  pen_parallel_rows(count, 1, combine_range, &c);
}

/* ---- NEWTON_SCHULZ ---- */

/* Of a block of a symmetric product: with fewer each is slower, with more less is left out. The
 * best of 48, 64, 96 and 192 on an Intel Xeon, AVX-512, one thread: 0.94 of the time of whole
 * products for 128 x 128, 0.86 for 256 x 704 and 512 x 1408, 0.78 for 1024 x 1024. */
enum { SYMMETRIC_ROWS = 48 };

/* Rows [first, past) of result[m,columns] = left[m,k] right, whose rows are `row` elements apart.
 */
static void multiply_rows(float *result, size_t row, const float *left, size_t first, size_t past,
                          size_t k, const struct pen_matrix *right, size_t columns,
                          float *workspace) {
  const struct pen_product product = {.left = {left + first * k, k, 0},
                                      .right = *right,
                                      .result = result + first * row,
                                      .result_row = row,
                                      .m = past - first,
                                      .n = columns,
                                      .k = k,
                                      .workspace = workspace};
  pen_multiply_f32(&product);
}

/* The same for all of a result[m,m] that is symmetric, also to the bit, since the terms of two sums
 * are the same in one order: blocks of rows up to the diagonal, mirrored. */
static void multiply_symmetric(float *result, const float *left, size_t m, size_t k,
                               const struct pen_matrix *right, float *workspace) {
  for (size_t first = 0, past = 0; first < m; first = past) {
    past = first + SYMMETRIC_ROWS < m ? first + SYMMETRIC_ROWS : m;
    multiply_rows(result, m, left, first, past, k, right, past, workspace);
    for (size_t c = 0; c < first; c++)
      for (size_t r = first; r < past; r++) result[c * m + r] = result[r * m + c];
  }
}

/* The square matrices of a step, and the workspace of its products. */
struct ns_squares {
  float *a, *b, *workspace;
};

/* to = (3.4445 I - 4.7750 A + 2.0315 A A) from, A = from from^T; from is [m, n]. */
static void iterate(float *to, const float *from, size_t m, size_t n, const struct ns_squares *s) {
  const struct pen_matrix rows = {from, n, 0}, transposed = {from, n, 1}, a = {s->a, m, 0};
  multiply_symmetric(s->a, from, m, n, &transposed, s->workspace);
  multiply_symmetric(s->b, s->a, m, m, &a, s->workspace);
  combine(s->b, s->a, m * m, -4.7750, 2.0315);
  for (size_t i = 0; i < m; i++) s->b[i * m + i] += 3.4445f;
  multiply_rows(to, n, s->b, 0, m, m, &rows, n, s->workspace);
}

/* Two buffers in turn, so that the last is y: that of the workspace, and y. */
void pen_newton_schulz(const struct pen_call *call) {
  const size_t m = (size_t)call->dim[0], n = (size_t)call->dim[1], steps = (size_t)call->dim[2],
               square = pen_aligned(m * m * sizeof(float)) / sizeof(float);
  float *y = call->operand[1], *from = call->workspace, *to = y,
        *a = from + pen_aligned(m * n * sizeof(float)) / sizeof(float);
  const struct ns_squares squares = {a, a + square, a + 2 * square};
  const double norm = sqrt(pen_sum_squares(call->operand[0], m * n));
  if (steps % 2 == 0) to = from, from = y;
  memmove(from, call->operand[0], m * n * sizeof(float));
  combine(from, from, m * n, 1 / (norm + 1e-7), 0);
  for (size_t i = 0; i < steps; i++) {
    iterate(to, from, m, n, &squares);
    float *const next = from;
    from = to, to = next;
  }
}

/* ---- the step of a matrix ---- */

struct momentum_arrays {
  float *gradient, *buffer;
  const struct pen_muon *settings;
};

static void momentum_range(const void *context, size_t thread, size_t first, size_t past) {
  const struct momentum_arrays *a = context;
  (void)thread;
  pen_instruction_set.f32->momentum_step(a->gradient + first, a->buffer + first, past - first,
                                         a->settings);
}

static size_t elements_of(const struct pen_muon_piece *piece, const struct pen_muon *s) {
  return piece->rows * s->parts * piece->columns;
}

void pen_muon_momentum(const struct pen_muon_piece *piece, const struct pen_muon *s) {
  const struct momentum_arrays arrays = {piece->gradient, piece->buffer, s};
  pen_parallel_rows(elements_of(piece, s), 1, momentum_range, &arrays);
}

/* A part of a matrix in the workspace: `x` has it without gaps, or its transpose. */
struct packed_part {
  float *x;
  size_t number, rows, columns;
  bool transposed;
};

/* What the part has of a piece goes to x, or comes back from there. */
static void move_piece(const struct packed_part *part, const struct pen_muon_piece *piece,
                       const struct pen_muon *s, bool back) {
  float *row = piece->gradient + part->number * piece->columns;
  for (size_t r = piece->first_row; r < piece->first_row + piece->rows; r++) {
    for (size_t i = 0; i < piece->columns; i++) {
      const size_t c = piece->first_column + i;
      float *there = part->x + (part->transposed ? c * part->rows + r : r * part->columns + c);
      if (back)
        row[i] = *there;
      else
        *there = row[i];
    }
    row += s->parts * piece->columns;
  }
}

void pen_muon_orthogonalize(const struct pen_muon_piece *piece, size_t piece_count,
                            const struct pen_muon *s, void *workspace) {
  struct packed_part part = {.x = workspace, .rows = s->rows, .columns = s->columns / s->parts};
  const size_t bytes = pen_aligned(part.rows * part.columns * sizeof(float));
  part.transposed = part.rows > part.columns;
  const int64_t least = (int64_t)(part.transposed ? part.columns : part.rows),
                most = (int64_t)(part.transposed ? part.rows : part.columns);
  const struct pen_call call = {.operand = {part.x, part.x},
                                .dim = {least, most, (int64_t)s->steps},
                                .workspace = (char *)workspace + bytes};
  for (; part.number < s->parts; part.number++) {
    for (size_t p = 0; p < piece_count; p++) move_piece(&part, &piece[p], s, false);
    pen_newton_schulz(&call);
    for (size_t p = 0; p < piece_count; p++) move_piece(&part, &piece[p], s, true);
  }
}

void pen_muon_apply(const struct pen_muon_piece *piece, const struct pen_muon *s) {
  const size_t count = elements_of(piece, s), columns = s->columns / s->parts;
  const double most = (double)(s->rows > columns ? s->rows : columns),
               rate = -s->learning_rate * .2 * sqrt(most),
               keep = 1 - s->learning_rate * s->weight_decay;
  pen_instruction_set.f32->combine(piece->parameter, piece->gradient, count, (float)rate,
                                   (float)keep);
  memset(piece->gradient, 0, count * sizeof *piece->gradient);
}
