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

/* A part of a matrix: rows that are `row` elements apart. */
struct part {
  size_t rows, columns, row;
  bool transposed; /* for NEWTON_SCHULZ */
};

/* Copies a part from where it lies to a matrix without gaps, which may be its transpose; or, with
 * `back`, from that to [rows, columns]. */
static void transpose(float *to, const float *from, const struct part *part, bool back) {
  const size_t to_row = back ? part->columns : part->rows, from_row = back ? part->rows : part->row;
  for (size_t r = 0; r < part->rows; r++)
    for (size_t c = 0; c < part->columns; c++)
      if (back)
        to[r * to_row + c] = from[c * from_row + r];
      else
        to[c * to_row + r] = from[r * from_row + c];
}

static void pack(float *to, const float *from, const struct part *part) {
  if (part->transposed)
    transpose(to, from, part, false);
  else
    for (size_t r = 0; r < part->rows; r++)
      memcpy(to + r * part->columns, from + r * part->row, part->columns * sizeof *to);
}

/* p of a part becomes keep p + rate x, x without gaps. */
static void apply(float *parameter, const float *x, const struct part *part, double keep,
                  double rate) {
  for (size_t r = 0; r < part->rows; r++)
    pen_instruction_set.f32->combine(parameter + r * part->row, x + r * part->columns,
                                     part->columns, (float)rate, (float)keep);
}

/* The workspace is in turn that of NEWTON_SCHULZ, and of a copy of the gradient with other places.
 */
void pen_muon_step(float *parameter, float *gradient, float *buffer, const struct pen_muon *s,
                   void *workspace) {
  const size_t count = s->rows * s->columns, elements = count / s->parts;
  struct part part = {s->rows, s->columns / s->parts, s->columns, false};
  part.transposed = part.rows > part.columns;
  const size_t longest = part.transposed ? part.rows : part.columns, shortest = elements / longest;
  const double keep = 1 - s->learning_rate * s->weight_decay,
               rate = -s->learning_rate * .2 * sqrt((double)longest);
  const struct momentum_arrays arrays = {gradient, buffer, s};
  pen_parallel_rows(count, 1, momentum_range, &arrays);
  if (s->parts > 1 || part.transposed) {
    for (size_t i = 0; i < s->parts; i++)
      pack((float *)workspace + i * elements, gradient + i * part.columns, &part);
    memcpy(gradient, workspace, count * sizeof *gradient);
  }
  for (size_t i = 0; i < s->parts; i++) {
    float *u = gradient + i * elements;
    pen_newton_schulz(
        &(struct pen_call){.operand = {u, u},
                           .dim = {(int64_t)shortest, (int64_t)longest, (int64_t)s->steps},
                           .workspace = workspace});
    if (part.transposed) transpose(workspace, u, &part, true);
    apply(parameter + i * part.columns, part.transposed ? workspace : u, &part, keep, rate);
  }
  memset(gradient, 0, count * sizeof *gradient);
}
