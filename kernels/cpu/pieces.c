/* pieces.c: the ops of split weights: compositions of the ops of whole ones, and sums of partial
 * sums. Their shapes are those of a piece, so bits depend on the number of pieces alone. */
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

/* ---- sums of partial sums ---- */

void pen_partial_add(const struct pen_call *call) { pen_instruction_set.f32->op[PEN_OP_ADD](call); }

void pen_sum_add(const struct pen_call *call) {
  const double *a = call->operand[0], *b = call->operand[1];
  double *y = call->operand[2];
  for (int64_t i = 0; i < call->dim[0]; i++) y[i] = a[i] + b[i];
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

/* ---- norms ---- */

static void rmsnorm_runs(const struct pen_call *call, pen_kernel *norm) {
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

/* Calls `norm` for the rows of each run of each sequence. Workspace: the gradient of the gain of
 * one call, then of each run. */
static void rmsnorm_runs_dx(const struct pen_call *call, pen_kernel *norm, size_t element_bytes) {
  const size_t batch = (size_t)call->dim[0], sequence = (size_t)call->dim[1],
               width = (size_t)call->dim[2], runs = (size_t)call->dim[3], rows = sequence / runs;
  static const int by_element[] = {0, 1, 4, 5}; /* dy, x, a, dx; of rstd a row has one */
  float *part = call->workspace, *gain = part + width;
  for (size_t b = 0; b < batch; b++)
    for (size_t r = 0; r < runs; r++) {
      const size_t first = b * sequence + r * rows;
      struct pen_call own = *call;
      for (size_t k = 0; k < sizeof by_element / sizeof *by_element; k++)
        if (call->operand[by_element[k]])
          own.operand[by_element[k]] =
              (char *)call->operand[by_element[k]] + first * width * element_bytes;
      own.operand[3] = (float *)call->operand[3] + first;
      own.operand[6] = b == 0 ? gain + r * width : part;
      own.dim[0] = (int64_t)rows;
      own.dim[1] = (int64_t)width;
      norm(&own);
      for (size_t i = 0; b > 0 && i < width; i++) gain[r * width + i] += part[i];
    }
  add_pairwise(gain, runs, width);
  memcpy(call->operand[6], gain, width * sizeof *gain);
}

void pen_rmsnorm_runs(const struct pen_call *call) {
  rmsnorm_runs(call, pen_instruction_set.f32->op[PEN_OP_RMSNORM]);
}
void pen_rmsnorm_runs_bf16(const struct pen_call *call) {
  rmsnorm_runs(call, pen_instruction_set.bf16->op[PEN_OP_RMSNORM]);
}
void pen_rmsnorm_runs_dx(const struct pen_call *call) {
  rmsnorm_runs_dx(call, pen_instruction_set.f32->op[PEN_OP_RMSNORM_DX], sizeof(float));
}
void pen_rmsnorm_runs_dx_bf16(const struct pen_call *call) {
  rmsnorm_runs_dx(call, pen_instruction_set.bf16->op[PEN_OP_RMSNORM_DX], sizeof(uint16_t));
}

void pen_rmsnorm_heads(const struct pen_call *call) {
  pen_instruction_set.f32->op[PEN_OP_RMSNORM](call);
}
void pen_rmsnorm_heads_bf16(const struct pen_call *call) {
  pen_instruction_set.bf16->op[PEN_OP_RMSNORM](call);
}

/* ---- embedding ---- */

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
    else if (a == NULL)
      memset(to, 0, bytes);
    else if (a != y)
      memcpy(to, a + r * bytes, bytes);
  }
}

void pen_embedding_rows(const struct pen_call *call) { embed_rows(call, sizeof(float)); }
void pen_embedding_rows_bf16(const struct pen_call *call) { embed_rows(call, sizeof(uint16_t)); }

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
