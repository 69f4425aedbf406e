/* muon.c: NEWTON_SCHULZ, and pen_muon_step() (kernels.h), by the products of matmul.c. Matrices are
 * computed one after the other; threads share the work of each. */
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

/* ---- pen_muon_step() ---- */

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

/* An update of a matrix: each of its parts, and what its parameters and X are multiplied by. */
struct update {
  size_t parts, rows, columns, elements, steps;
  bool transposed; /* for NEWTON_SCHULZ */
  double keep, rate;
};

static struct update update_of(const struct pen_muon *s) {
  struct update of = {.parts = s->parts,
                      .rows = s->rows,
                      .columns = s->columns / s->parts,
                      .steps = s->steps,
                      .keep = 1 - s->learning_rate * s->weight_decay};
  of.elements = of.rows * of.columns;
  of.transposed = of.rows > of.columns;
  of.rate = -s->learning_rate * .2 * sqrt((double)(of.transposed ? of.rows : of.columns));
  return of;
}

/* Rows of a piece are this far apart. */
static size_t row_of(const struct update *of, const struct pen_muon_piece *piece) {
  return of->parts * piece->columns;
}

/* Where a row of a part of a piece is in the part without gaps. */
static size_t place_of(const struct update *of, const struct pen_muon_piece *piece, size_t row) {
  return (piece->first_row + row) * of->columns + piece->first_column;
}

/* What a piece has of a part comes to its place in x, the part without gaps or its transpose. */
static void pack(float *x, const struct update *of, const struct pen_muon_piece *piece,
                 size_t part) {
  const float *from = piece->gradient + part * piece->columns;
  for (size_t r = 0; r < piece->rows; r++, from += row_of(of, piece))
    if (!of->transposed)
      memcpy(x + place_of(of, piece, r), from, piece->columns * sizeof *x);
    else
      for (size_t c = 0; c < piece->columns; c++)
        x[(piece->first_column + c) * of->rows + piece->first_row + r] = from[c];
}

/* X of x, [rows, columns] in either case: x itself, or in the workspace. */
static const float *orthogonalize(float *x, const struct update *of, void *workspace) {
  const size_t most = of->transposed ? of->rows : of->columns, least = of->elements / most;
  float *back = workspace;
  pen_newton_schulz(&(struct pen_call){.operand = {x, x},
                                       .dim = {(int64_t)least, (int64_t)most, (int64_t)of->steps},
                                       .workspace = workspace});
  if (!of->transposed) return x;
  for (size_t r = 0; r < of->rows; r++)
    for (size_t c = 0; c < of->columns; c++) back[r * of->columns + c] = x[c * of->rows + r];
  return back;
}

/* p of `count` elements becomes keep p + rate X. */
static void apply(const struct update *of, float *parameter, const float *x, size_t count) {
  pen_instruction_set.f32->combine(parameter, x, count, (float)of->rate, (float)of->keep);
}

static void clear(const struct update *of, const struct pen_muon_piece *piece) {
  memset(piece->gradient, 0, piece->rows * row_of(of, piece) * sizeof *piece->gradient);
}

/* The gradient has all parts, each without gaps, one after the other. The workspace is in turn that
 * of NEWTON_SCHULZ, and of a copy of the gradient with other places. */
void pen_muon_step(float *parameter, float *gradient, float *buffer, const struct pen_muon *s,
                   void *workspace) {
  const struct update of = update_of(s);
  const struct pen_muon_piece whole = {parameter, gradient, buffer, 0, of.rows, 0, of.columns};
  pen_muon_momentum(&whole, s);
  if (of.parts > 1 || of.transposed) {
    for (size_t i = 0; i < of.parts; i++)
      pack((float *)workspace + i * of.elements, &of, &whole, i);
    memcpy(gradient, workspace, of.parts * of.elements * sizeof *gradient);
  }
  for (size_t i = 0; i < of.parts; i++) {
    const float *x = orthogonalize(gradient + i * of.elements, &of, workspace);
    for (size_t r = 0; r < of.rows; r++)
      apply(&of, parameter + r * s->columns + i * of.columns, x + r * of.columns, of.columns);
  }
  clear(&of, &whole);
}

/* ---- pieces ---- */

void pen_muon_momentum(const struct pen_muon_piece *piece, const struct pen_muon *s) {
  const struct update of = update_of(s);
  const struct momentum_arrays arrays = {piece->gradient, piece->buffer, s};
  pen_parallel_rows(piece->rows * row_of(&of, piece), 1, momentum_range, &arrays);
}

void pen_muon_orthogonalize(const struct pen_muon_piece *piece, size_t piece_count,
                            const struct pen_muon *s, void *workspace) {
  const struct update of = update_of(s);
  float *x = workspace, *rest = x + pen_aligned(of.elements * sizeof *x) / sizeof *x;
  for (size_t i = 0; i < of.parts; i++) {
    for (size_t p = 0; p < piece_count; p++) pack(x, &of, &piece[p], i);
    const float *whole = orthogonalize(x, &of, rest);
    for (const struct pen_muon_piece *at = piece; at < piece + piece_count; at++)
      for (size_t r = 0; r < at->rows; r++)
        memcpy(at->gradient + r * row_of(&of, at) + i * at->columns, whole + place_of(&of, at, r),
               at->columns * sizeof *x);
  }
}

void pen_muon_apply(const struct pen_muon_piece *piece, const struct pen_muon *s) {
  const struct update of = update_of(s);
  apply(&of, piece->parameter, piece->gradient, piece->rows * row_of(&of, piece));
  clear(&of, piece);
}
