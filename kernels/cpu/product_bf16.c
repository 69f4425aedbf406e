/* product_bf16.c: LINEAR, AFFINE and their _DX and _DW with bf16 factors.
 *
 * A CPU with AVX512_BF16 multiplies bf16 factors directly (vector/product_pairs.c). With AMX, or on
 * request, oneDNN does (onednn.h). Otherwise factors are converted to f32 and multiplied there: a
 * product of two bf16 numbers is exact in f32. This runs by blocks of at most PEN_PRODUCT_BLOCK a
 * side, in the call's workspace:
 *
 *     left    [m, k]   as stored: rows of k or, transposed, rows of m
 *     right   [k, n]   likewise
 *     result  [m, n]   f32; starts with the addend, rounded to bf16 after the last block of k
 *
 * The result block also serves products by pairs with a long k. A weight gradient is f32: the
 * product is added in place. With blocks of 512, one conversion serves a thousand operations. The
 * order of the sums depends on the shape alone.
 */
#include <string.h>

#include "kernels/cpu/cpu.h"

/* A block of a factor, converted to f32. */
struct panel {
  float *at;
  const uint16_t *holds; /* the start of the block in the factor; null: empty */
};

/* result[m,n] = left right + addend + bias, rounded; or, if `sum` is set, sum += left right. */
struct bf16_product {
  struct pen_matrix left, right;
  struct pen_rounding rounded;
  float *sum;
  size_t m, n, k;
  float *workspace; /* of the call */
  struct panel left_panel, right_panel;
  float *result_panel, *block_workspace; /* the second is for the product of a block */
};

/* A block of the result: rows i .. i + m, columns j .. j + n. */
struct result_block {
  size_t i, j, m, n;
};

static pen_multiply *pairs;

void pen_products_bf16_open(pen_multiply *multiply_pairs) { pairs = multiply_pairs; }

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

/* The next aligned address. */
static float *aligned(float *at) { return (float *)pen_aligned((uintptr_t)at); }

static struct bf16_product product_of(const struct pen_call *call, struct pen_matrix left,
                                      struct pen_matrix right, size_t m, size_t n, size_t k) {
  const size_t side = PEN_PRODUCT_BLOCK;
  struct bf16_product p = {
      .left = left, .right = right, .m = m, .n = n, .k = k, .workspace = call->workspace};
  p.left_panel.at = p.workspace;
  p.right_panel.at = p.left_panel.at + least(m, side) * least(k, side);
  p.result_panel = p.right_panel.at + least(k, side) * least(n, side);
  p.block_workspace = aligned(p.result_panel + least(m, side) * least(n, side));
  return p;
}

/* Converts rows first .. first + rows and columns column .. column + columns of a factor, unless
 * the panel holds them. Returns the row length of the panel. */
static size_t convert_block(struct panel *panel, const struct pen_matrix *f, size_t first,
                            size_t column, size_t rows, size_t columns) {
  const uint16_t *from =
      (const uint16_t *)f->at + (f->transposed ? column * f->row + first : first * f->row + column);
  const size_t high = f->transposed ? columns : rows, wide = f->transposed ? rows : columns;
  if (panel->holds != from) pen_bf16_rows_to_f32(panel->at, wide, from, f->row, high, wide);
  panel->holds = from;
  return wide;
}

/* Loads addend and bias of a block into the result panel. Returns false if there are none. */
static int load_addends(const struct bf16_product *p, const struct result_block *b) {
  const struct pen_rounding *to = &p->rounded;
  if (to->addend)
    pen_bf16_rows_to_f32(p->result_panel, b->n, to->addend + b->i * p->n + b->j, p->n, b->m, b->n);
  for (size_t i = 0; to->bias && i < b->m; i++)
    for (size_t j = 0; j < b->n; j++)
      p->result_panel[i * b->n + j] =
          (to->addend ? p->result_panel[i * b->n + j] : 0.0f) + to->bias[b->j + j];
  return to->addend || to->bias;
}

/* The f32 sums of a block: added to c if `adds`, else stored there. */
static void sum_pairs(struct bf16_product *p, const struct result_block *b, float *c, size_t c_row,
                      int adds) {
  const struct pen_matrix *l = &p->left, *r = &p->right;
  const struct pen_product block = {
      .left = {(const uint16_t *)l->at + (l->transposed ? b->i : b->i * l->row), l->row,
               l->transposed},
      .right = {(const uint16_t *)r->at + (r->transposed ? b->j * r->row : b->j), r->row,
                r->transposed},
      .addend = adds ? c : NULL,
      .result = c,
      .result_row = c_row,
      .m = b->m,
      .n = b->n,
      .k = p->k,
      .workspace = p->block_workspace};
  pairs(&block);
}

static void sum_converted(struct bf16_product *p, const struct result_block *b, float *c,
                          size_t c_row, int adds) {
  for (size_t k = 0; k < p->k; k += PEN_PRODUCT_BLOCK, adds = 1) {
    const size_t depth = least(p->k - k, PEN_PRODUCT_BLOCK);
    const size_t left_row = convert_block(&p->left_panel, &p->left, b->i, k, b->m, depth);
    const size_t right_row = convert_block(&p->right_panel, &p->right, k, b->j, depth, b->n);
    const struct pen_product block = {.left = {p->left_panel.at, left_row, p->left.transposed},
                                      .right = {p->right_panel.at, right_row, p->right.transposed},
                                      .addend = adds ? c : NULL,
                                      .result = c,
                                      .result_row = c_row,
                                      .m = b->m,
                                      .n = b->n,
                                      .k = depth,
                                      .workspace = p->block_workspace};
    pen_multiply_f32(&block);
  }
}

static void multiply_block(struct bf16_product *p, const struct result_block *b) {
  float *c = p->sum ? p->sum + b->i * p->n + b->j : p->result_panel;
  const size_t c_row = p->sum ? p->n : b->n;
  const int adds = p->sum || load_addends(p, b);
  (pairs ? sum_pairs : sum_converted)(p, b, c, c_row, adds);
  if (p->rounded.result)
    pen_f32_rows_to_bf16(p->rounded.result + b->i * p->n + b->j, p->n, p->result_panel, b->n, b->m,
                         b->n);
}

/* The addend may be the result: a block of it is read before that block is written. */
static void multiply_bf16(struct bf16_product *p) {
  if (pairs && (p->sum || p->k <= PEN_PAIR_DEPTH)) {
    pairs(&(struct pen_product){.left = p->left,
                                .right = p->right,
                                .addend = p->sum,
                                .result = p->sum,
                                .rounded = p->rounded,
                                .result_row = p->n,
                                .m = p->m,
                                .n = p->n,
                                .k = p->k,
                                .workspace = p->workspace});
    return;
  }
  for (size_t j = 0; j < p->n; j += PEN_PRODUCT_BLOCK)
    for (size_t i = 0; i < p->m; i += PEN_PRODUCT_BLOCK)
      multiply_block(p, &(struct result_block){i, j, least(p->m - i, PEN_PRODUCT_BLOCK),
                                               least(p->n - j, PEN_PRODUCT_BLOCK)});
}

static void multiply(const struct pen_call *call, enum pen_product_kind kind) {
  const struct pen_product_geometry *g = &pen_product_geometries[kind];
  struct bf16_product p =
      product_of(call, pen_product_left(call, g), pen_product_right(call, g),
                 (size_t)call->dim[g->m], (size_t)call->dim[g->n], (size_t)call->dim[g->k]);
  if (g->adds)
    p.sum = call->operand[g->result];
  else
    p.rounded = (struct pen_rounding){call->operand[g->addend],
                                      g->bias == PEN_NO_BIAS ? NULL : call->operand[g->bias],
                                      call->operand[g->result]};
  multiply_bf16(&p);
}

void pen_linear_bf16(const struct pen_call *call) { multiply(call, PEN_LINEAR); }
void pen_linear_dx_bf16(const struct pen_call *call) { multiply(call, PEN_LINEAR_DX); }
void pen_linear_dw_bf16(const struct pen_call *call) { multiply(call, PEN_LINEAR_DW); }
void pen_affine_bf16(const struct pen_call *call) { multiply(call, PEN_AFFINE); }
void pen_affine_dx_bf16(const struct pen_call *call) { multiply(call, PEN_AFFINE_DX); }
void pen_affine_dw_bf16(const struct pen_call *call) { multiply(call, PEN_AFFINE_DW); }

/* ---- products whose results are partial sums, in f32 ---- */

/* result[m,n] = the product + a, which may be the result, or null. */
static void multiply_unrounded(struct bf16_product *p, float *result, const float *a) {
  const size_t bytes = p->m * p->n * sizeof *result;
  p->sum = result;
  if (!a)
    memset(result, 0, bytes);
  else if (a != result)
    memcpy(result, a, bytes);
  multiply_bf16(p);
}

/* y[rows,out] = x[rows,in] w[out,in]^T + a */
void pen_linear_partial(const struct pen_call *call) {
  const struct pen_product_dims s = pen_product_dims(call);
  struct bf16_product p =
      product_of(call, (struct pen_matrix){call->operand[0], s.in, 0},
                 (struct pen_matrix){call->operand[1], s.in, 1}, s.rows, s.out, s.in);
  multiply_unrounded(&p, call->operand[3], call->operand[2]);
}

/* y[rows,out] = x[rows,in] w[in,out] */
void pen_affine_rows_bf16(const struct pen_call *call) {
  const struct pen_product_dims s = pen_product_dims(call);
  struct bf16_product p =
      product_of(call, (struct pen_matrix){call->operand[0], s.in, 0},
                 (struct pen_matrix){call->operand[1], s.out, 0}, s.rows, s.out, s.in);
  multiply_unrounded(&p, call->operand[2], NULL);
}

/* dx[rows,in] = dy[rows,out] w + a, w transposed or not */
static void dx_partial(const struct pen_call *call, struct pen_matrix w) {
  const struct pen_product_dims s = pen_product_dims(call);
  struct bf16_product p =
      product_of(call, (struct pen_matrix){call->operand[0], s.out, 0}, w, s.rows, s.in, s.out);
  multiply_unrounded(&p, call->operand[3], call->operand[2]);
}

void pen_linear_dx_partial(const struct pen_call *call) {
  dx_partial(call, (struct pen_matrix){call->operand[1], pen_product_dims(call).in, 0});
}
void pen_affine_dx_partial(const struct pen_call *call) {
  dx_partial(call, (struct pen_matrix){call->operand[1], pen_product_dims(call).out, 1});
}
