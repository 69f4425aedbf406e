/* pieces.c: the ops of split weights: compositions of the ops of whole ones, and sums of partial
 * sums. Their shapes are those of a piece, so bits depend on the number of pieces alone. */
#include <math.h>
#include <string.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vector/isa.h"

/* ---- products: those of LINEAR, without an addend ---- */

static void multiply_piece(const struct pen_call *call, pen_kernel *linear) {
  struct pen_call whole = *call;
  whole.operand[2] = NULL; /* no addend */
  whole.operand[3] = call->operand[2];
  linear(&whole);
}

void pen_linear_piece(const struct pen_call *call) { multiply_piece(call, pen_linear); }
void pen_linear_piece_bf16(const struct pen_call *call) { multiply_piece(call, pen_linear_bf16); }

/* The same of AFFINE: y = x w + bias. */
static void affine_piece(const struct pen_call *call, pen_kernel *affine) {
  struct pen_call whole = *call;
  whole.operand[3] = NULL; /* no addend */
  whole.operand[4] = call->operand[3];
  affine(&whole);
}

void pen_affine_piece(const struct pen_call *call) { affine_piece(call, pen_affine); }
void pen_affine_piece_bf16(const struct pen_call *call) { affine_piece(call, pen_affine_bf16); }

/* y[rows,out] = x[rows,in] w[in,out] */
void pen_affine_rows(const struct pen_call *call) {
  const struct pen_product_dims s = pen_product_dims(call);
  pen_multiply_f32(&(struct pen_product){.left = {call->operand[0], s.in, 0},
                                         .right = {call->operand[1], s.out, 0},
                                         .result = call->operand[2],
                                         .result_row = s.out,
                                         .m = s.rows,
                                         .n = s.out,
                                         .k = s.in,
                                         .workspace = call->workspace});
}

/* ---- sums of partial sums ---- */

void pen_sum_add(const struct pen_call *call) {
  const double *a = call->operand[0], *b = call->operand[1];
  double *y = call->operand[2];
  for (int64_t i = 0; i < call->dim[0]; i++) y[i] = a[i] + b[i];
}

void pen_maximum(const struct pen_call *call) {
  const float *a = call->operand[0], *b = call->operand[1];
  float *y = call->operand[2];
  for (int64_t i = 0; i < call->dim[0]; i++) y[i] = b[i] > a[i] || isnan(b[i]) ? b[i] : a[i];
}

/* y = (a + b) + addend + bias, of `width` elements; addend may be y, bias null. */
static void add_row(float *y, const float *a, const float *b, const float *addend,
                    const float *bias, size_t width) {
  for (size_t i = 0; i < width; i++) y[i] = addend ? (a[i] + b[i]) + addend[i] : a[i] + b[i];
  for (size_t i = 0; bias && i < width; i++) y[i] += bias[i];
}

static size_t row_count(const struct pen_call *call) {
  return (size_t)call->dim[0] * (size_t)call->dim[1];
}

void pen_sum_partials(const struct pen_call *call) {
  const float *a = call->operand[0], *b = call->operand[1], *addend = call->operand[2];
  float *y = call->operand[4];
  const size_t width = (size_t)call->dim[2];
  for (size_t r = 0; r < row_count(call); r++) {
    const size_t at = r * width;
    add_row(y + at, a + at, b + at, addend ? addend + at : NULL, call->operand[3], width);
  }
}

/* Parts of a row of bf16 are converted, added and rounded. */
void pen_sum_partials_bf16(const struct pen_call *call) {
  enum { PART = 256 };
  float sum[PART];
  const float *a = call->operand[0], *b = call->operand[1], *bias = call->operand[3];
  const uint16_t *addend = call->operand[2];
  uint16_t *y = call->operand[4];
  const size_t width = (size_t)call->dim[2];
  for (size_t r = 0; r < row_count(call); r++)
    for (size_t i = 0; i < width; i += PART) {
      const size_t n = width - i < PART ? width - i : PART, at = r * width + i;
      if (addend) pen_bf16_to_f32(sum, addend + at, n);
      add_row(sum, a + at, b + at, addend ? sum : NULL, bias ? bias + i : NULL, n);
      pen_f32_to_bf16(y + at, sum, n);
    }
}

/* Of a run of each sequence: its rows are adjacent. */
static void sum_own(const struct pen_call *call, pen_kernel *sum) {
  struct pen_call own = *call;
  own.dim[1] = call->dim[4];
  sum(&own);
}

void pen_sum_partials_own(const struct pen_call *call) { sum_own(call, pen_sum_partials); }
void pen_sum_partials_own_bf16(const struct pen_call *call) {
  sum_own(call, pen_sum_partials_bf16);
}

/* ---- norms ---- */

static void norm_runs(const struct pen_call *call, pen_kernel *norm) {
  struct pen_call whole = *call;
  whole.dim[0] = call->dim[0] * call->dim[1];
  whole.dim[1] = call->dim[2];
  norm(&whole);
}

/* runs[0] = the sum of `count` arrays of `width` elements, added pairwise; count is a power of two.
 */
static void add_pairwise(float *runs, size_t count, size_t width) {
  for (size_t step = 1; step < count; step *= 2)
    for (size_t r = 0; r < count; r += 2 * step)
      for (size_t i = 0; i < width; i++) runs[r * width + i] += runs[(r + step) * width + i];
}

/* What differs between the gradients of norms: which operands have a row of elements, or one
 * number, for each token, and the first of the sums over tokens. */
struct norm_gradient {
  enum pen_op_kind kind;
  int by_element[4], by_row[2], sums, sum_count;
};

static const struct norm_gradient rms = {PEN_OP_RMSNORM_DX, {0, 1, 4, 5}, {3, 3}, 6, 1},
                                  layer = {PEN_OP_LAYERNORM_DX, {0, 1, 5, 6}, {3, 4}, 7, 2};

/* The operands from token `first` on. */
static struct pen_call call_from(const struct pen_call *call, const struct norm_gradient *norm,
                                 size_t first, size_t element_bytes) {
  struct pen_call own = *call;
  for (int k = 0; k < 4; k++)
    if (call->operand[norm->by_element[k]])
      own.operand[norm->by_element[k]] =
          (char *)call->operand[norm->by_element[k]] + first * (size_t)call->dim[2] * element_bytes;
  for (int k = 0; k < 2; k++)
    own.operand[norm->by_row[k]] = (float *)call->operand[norm->by_row[k]] + first;
  return own;
}

/* Calls the norm for the rows of each run of each sequence. Workspace: the sums of one call, then
 * those of each run, the first sum of all runs before the second. */
static void norm_runs_dx(const struct pen_call *call, const struct norm_gradient *norm,
                         const struct pen_vector_kernels *kernels, size_t element_bytes) {
  const size_t sequence = (size_t)call->dim[1], width = (size_t)call->dim[2],
               runs = (size_t)call->dim[3], rows = sequence / runs;
  float *part = call->workspace, *sums = part + (size_t)norm->sum_count * width;
  for (size_t b = 0; b < (size_t)call->dim[0]; b++)
    for (size_t r = 0; r < runs; r++) {
      struct pen_call own = call_from(call, norm, b * sequence + r * rows, element_bytes);
      own.dim[0] = (int64_t)rows;
      own.dim[1] = (int64_t)width;
      for (int k = 0; k < norm->sum_count; k++)
        own.operand[norm->sums + k] = part + (size_t)k * width;
      kernels->op[norm->kind](&own);
      for (int k = 0; k < norm->sum_count; k++) {
        float *sum = sums + ((size_t)k * runs + r) * width;
        for (size_t i = 0; i < width; i++)
          sum[i] = b == 0 ? part[(size_t)k * width + i] : sum[i] + part[(size_t)k * width + i];
      }
    }
  for (int k = 0; k < norm->sum_count; k++) {
    float *sum = sums + (size_t)k * runs * width;
    add_pairwise(sum, runs, width);
    memcpy(call->operand[norm->sums + k], sum, width * sizeof *sum);
  }
}

/* dbias += a sum of runs of dy */
static void bias_runs_dw(const struct pen_call *call, pen_kernel *bias_dw, size_t element_bytes) {
  const size_t sequence = (size_t)call->dim[1], width = (size_t)call->dim[2],
               runs = (size_t)call->dim[3], rows = sequence / runs;
  float *sums = call->workspace, *dbias = call->operand[1];
  memset(sums, 0, runs * width * sizeof *sums);
  for (size_t b = 0; b < (size_t)call->dim[0]; b++)
    for (size_t r = 0; r < runs; r++)
      bias_dw(&(struct pen_call){
          .operand = {(char *)call->operand[0] + (b * sequence + r * rows) * width * element_bytes,
                      sums + r * width},
          .dim = {(int64_t)rows, (int64_t)width}});
  add_pairwise(sums, runs, width);
  for (size_t i = 0; i < width; i++) dbias[i] += sums[i];
}

void pen_bias_runs_dw(const struct pen_call *call) {
  bias_runs_dw(call, pen_instruction_set.f32->op[PEN_OP_BIAS_DW], sizeof(float));
}
void pen_bias_runs_dw_bf16(const struct pen_call *call) {
  bias_runs_dw(call, pen_instruction_set.bf16->op[PEN_OP_BIAS_DW], sizeof(uint16_t));
}

void pen_rmsnorm_runs(const struct pen_call *call) {
  norm_runs(call, pen_instruction_set.f32->op[PEN_OP_RMSNORM]);
}
void pen_rmsnorm_runs_bf16(const struct pen_call *call) {
  norm_runs(call, pen_instruction_set.bf16->op[PEN_OP_RMSNORM]);
}
void pen_rmsnorm_runs_dx(const struct pen_call *call) {
  norm_runs_dx(call, &rms, pen_instruction_set.f32, sizeof(float));
}
void pen_rmsnorm_runs_dx_bf16(const struct pen_call *call) {
  norm_runs_dx(call, &rms, pen_instruction_set.bf16, sizeof(uint16_t));
}

void pen_layernorm_runs(const struct pen_call *call) {
  norm_runs(call, pen_instruction_set.f32->op[PEN_OP_LAYERNORM]);
}
void pen_layernorm_runs_bf16(const struct pen_call *call) {
  norm_runs(call, pen_instruction_set.bf16->op[PEN_OP_LAYERNORM]);
}
void pen_layernorm_runs_dx(const struct pen_call *call) {
  norm_runs_dx(call, &layer, pen_instruction_set.f32, sizeof(float));
}
void pen_layernorm_runs_dx_bf16(const struct pen_call *call) {
  norm_runs_dx(call, &layer, pen_instruction_set.bf16, sizeof(uint16_t));
}

/* ---- embedding ---- */

/* A row that is not the op's own: that of a, which may be y, or 0. */
static void take_row(unsigned char *y, const unsigned char *a, size_t row, size_t bytes) {
  if (a == NULL)
    memset(y + row * bytes, 0, bytes);
  else if (a != y)
    memcpy(y + row * bytes, a + row * bytes, bytes);
}

/* The runtime checks tokens when it reads them. */
static void embed_rows(const struct pen_call *call, size_t element_bytes) {
  const int32_t *tokens = call->operand[0];
  const float *table = call->operand[1];
  const unsigned char *a = call->operand[2];
  unsigned char *y = call->operand[3];
  const size_t width = (size_t)call->dim[1], bytes = width * element_bytes;
  for (size_t r = 0; r < (size_t)call->dim[0]; r++) {
    const int64_t row = tokens[r] - call->dim[3];
    unsigned char *to = y + r * bytes;
    if (row >= 0 && row < call->dim[2] && element_bytes == sizeof(float))
      memcpy(to, table + (size_t)row * width, bytes);
    else if (row >= 0 && row < call->dim[2])
      pen_f32_to_bf16((uint16_t *)to, table + (size_t)row * width, width);
    else
      take_row(y, a, r, bytes);
  }
}

void pen_embedding_rows(const struct pen_call *call) { embed_rows(call, sizeof(float)); }
void pen_embedding_rows_bf16(const struct pen_call *call) { embed_rows(call, sizeof(uint16_t)); }

/* Rows that a tensor rank has embedded, among those of the others; a may be y. */
static void select_rows(const struct pen_call *call, size_t element_bytes) {
  const int32_t *tokens = call->operand[0];
  const unsigned char *x = call->operand[1], *a = call->operand[2];
  unsigned char *y = call->operand[3];
  const size_t bytes = (size_t)call->dim[1] * element_bytes;
  for (size_t r = 0; r < (size_t)call->dim[0]; r++) {
    const int64_t row = tokens[r] - call->dim[3];
    const bool own = row >= 0 && row < call->dim[2];
    take_row(y, own ? x : a, r, bytes);
  }
}

void pen_embedding_select(const struct pen_call *call) { select_rows(call, sizeof(float)); }
void pen_embedding_select_bf16(const struct pen_call *call) { select_rows(call, sizeof(uint16_t)); }

/* The tokens as rows of the piece are in the workspace; EMBEDDING_DW skips those out of range. */
static void embed_rows_dw(const struct pen_call *call, pen_kernel *whole) {
  const int32_t *tokens = call->operand[1];
  int32_t *rows = call->workspace;
  struct pen_call own = *call;
  for (int64_t r = 0; r < call->dim[0]; r++) rows[r] = tokens[r] - (int32_t)call->dim[3];
  own.operand[1] = rows;
  whole(&own);
}

void pen_embedding_rows_dw(const struct pen_call *call) {
  embed_rows_dw(call, pen_instruction_set.f32->op[PEN_OP_EMBEDDING_DW]);
}
void pen_embedding_rows_dw_bf16(const struct pen_call *call) {
  embed_rows_dw(call, pen_instruction_set.bf16->op[PEN_OP_EMBEDDING_DW]);
}

/* ---- tokens that a tensor rank holds ---- */

/* y[b,t] = x[b,first+t] */
void pen_own_run(const struct pen_call *call) {
  const int32_t *x = call->operand[0];
  int32_t *y = call->operand[1];
  const size_t sequence = (size_t)call->dim[1], run = (size_t)call->dim[2];
  for (size_t b = 0; b < (size_t)call->dim[0]; b++)
    memcpy(y + b * run, x + b * sequence + call->dim[3], run * sizeof *y);
}

/* ---- positions ---- */

/* The rows of a run of each sequence: for POSITION, sequences of one token that begin at its
 * position, negated. */
static void position_own(const struct pen_call *call, pen_kernel *position, size_t element_bytes) {
  const int32_t *starts = call->operand[2];
  const int64_t sequence = call->dim[2], run = call->dim[6], first = call->dim[7];
  const size_t bytes = (size_t)call->dim[1] * element_bytes;
  for (int64_t r = 0; r < call->dim[5]; r++) {
    const int64_t token = r / run * sequence + first + r % run;
    int32_t start = (starts ? starts[token] : 0) - (int32_t)(token % sequence);
    position(&(struct pen_call){
        .operand = {(char *)call->operand[0] + (size_t)r * bytes, call->operand[1], &start,
                    (char *)call->operand[3] + (size_t)r * bytes},
        .dim = {1, call->dim[1], 1}});
  }
}

void pen_position_own(const struct pen_call *call) {
  position_own(call, pen_instruction_set.f32->op[PEN_OP_POSITION], sizeof(float));
}
void pen_position_own_bf16(const struct pen_call *call) {
  position_own(call, pen_instruction_set.bf16->op[PEN_OP_POSITION], sizeof(uint16_t));
}

/* dtable[p] += a sum of runs of the rows at position p of their documents. A run of zeros is added
 * as one. Workspace: the runs, then a row in f32. */
static void position_runs_dw(const struct pen_call *call, bool is_bf16) {
  const int32_t *starts = call->operand[1];
  const int64_t rows = call->dim[0], sequence = call->dim[2], run = sequence / call->dim[4];
  const size_t width = (size_t)call->dim[1], runs = (size_t)call->dim[4];
  float *sums = call->workspace, *row = sums + runs * width, *dtable = call->operand[2];
  for (int64_t p = 0; p < call->dim[3]; p++, dtable += width) {
    memset(sums, 0, runs * width * sizeof *sums);
    for (int64_t r = 0; r < rows; r++) {
      if (r % sequence - (starts ? starts[r] : 0) != p) continue;
      const size_t at = (size_t)r * width;
      const float *dy = is_bf16 ? row : (const float *)call->operand[0] + at;
      float *sum = sums + (size_t)(r % sequence / run) * width;
      if (is_bf16) pen_bf16_to_f32(row, (const uint16_t *)call->operand[0] + at, width);
      for (size_t i = 0; i < width; i++) sum[i] += dy[i];
    }
    add_pairwise(sums, runs, width);
    for (size_t i = 0; i < width; i++) dtable[i] += sums[i];
  }
}

void pen_position_runs_dw(const struct pen_call *call) { position_runs_dw(call, false); }
void pen_position_runs_dw_bf16(const struct pen_call *call) { position_runs_dw(call, true); }

/* ---- logits ---- */

/* Rows of y are `tokens` elements; without a, what is not of the piece is 0. */
static void join_logits(const struct pen_call *call, size_t element_bytes) {
  const char *logits = call->operand[0], *a = call->operand[1];
  char *y = call->operand[2];
  const size_t piece = (size_t)call->dim[1] * element_bytes,
               first = (size_t)call->dim[2] * element_bytes,
               row = (size_t)call->dim[3] * element_bytes;
  for (size_t r = 0; r < (size_t)call->dim[0]; r++) {
    if (a == NULL)
      memset(y + r * row, 0, row);
    else if (a != y)
      memcpy(y + r * row, a + r * row, row);
    memcpy(y + r * row + first, logits + r * piece, piece);
  }
}

void pen_logits_join(const struct pen_call *call) { join_logits(call, sizeof(float)); }
void pen_logits_join_bf16(const struct pen_call *call) { join_logits(call, sizeof(uint16_t)); }
