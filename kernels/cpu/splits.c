/* splits.c: the ops of split weights: compositions of the ops of whole ones, and sums of partial
 * sums. Their shapes are those of a split, so bits depend on the number of splits alone. */
#include <math.h>
#include <string.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vector/isa.h"

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

/* The loss of a step is a sum of losses, each times its share. */
void pen_add_loss(const struct pen_call *call) {
  const double *loss = call->operand[0], *share = call->operand[1], *a = call->operand[2];
  double *y = call->operand[3];
  *y = a ? *share * *loss + *a : *share * *loss;
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

void pen_sum_partials(const struct pen_call *call) {
  const float *a = call->operand[0], *b = call->operand[1], *addend = call->operand[2];
  float *y = call->operand[4];
  const size_t width = (size_t)call->dim[1];
  for (size_t r = 0; r < (size_t)call->dim[0]; r++) {
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
  const size_t width = (size_t)call->dim[1];
  for (size_t r = 0; r < (size_t)call->dim[0]; r++)
    for (size_t i = 0; i < width; i += PART) {
      const size_t n = width - i < PART ? width - i : PART, at = r * width + i;
      if (addend) pen_bf16_to_f32(sum, addend + at, n);
      add_row(sum, a + at, b + at, addend ? sum : NULL, bias ? bias + i : NULL, n);
      pen_f32_to_bf16(y + at, sum, n);
    }
}

/* ---- sums of runs ---- */

/* runs[0] = the sum of `count` arrays of `width` elements, added pairwise; count is a power of two.
 */
static void add_pairwise(float *runs, size_t count, size_t width) {
  for (size_t step = 1; step < count; step *= 2)
    for (size_t r = 0; r < count; r += 2 * step)
      for (size_t i = 0; i < width; i++) runs[r * width + i] += runs[(r + step) * width + i];
}

/* Which operands of the gradient of a norm with one sum, or two, have a row of elements, or one
 * number, for each token, and the first of the sums over tokens. */
static const struct norm_gradient {
  int by_element[4], by_row[2], sums;
} norm_gradients[] = {{{0, 1, 4, 5}, {3, 3}, 6}, {{0, 1, 5, 6}, {3, 4}, 7}};

/* The operands from token `first` on. */
static struct pen_call call_from(const struct pen_call *call, const struct norm_gradient *norm,
                                 size_t first, size_t element_bytes) {
  struct pen_call own = *call;
  own.dim[3] = 0;
  for (int k = 0; k < 4; k++)
    if (call->operand[norm->by_element[k]])
      own.operand[norm->by_element[k]] =
          (char *)call->operand[norm->by_element[k]] + first * (size_t)call->dim[1] * element_bytes;
  for (int k = 0; k < 2; k++)
    own.operand[norm->by_row[k]] = (float *)call->operand[norm->by_row[k]] + first;
  return own;
}

void pen_norm_runs_dx(const struct pen_call *call, pen_kernel *norm_dx, size_t sum_count,
                      size_t element_bytes) {
  const struct norm_gradient *norm = &norm_gradients[sum_count - 1];
  const size_t rows = (size_t)call->dim[0], width = (size_t)call->dim[1],
               sequence = (size_t)call->dim[2], runs = (size_t)call->dim[3], run = sequence / runs;
  float *part = call->workspace, *sums = part + sum_count * width;
  for (size_t first = 0; first < rows; first += run) {
    struct pen_call own = call_from(call, norm, first, element_bytes);
    own.dim[0] = (int64_t)run;
    for (size_t k = 0; k < sum_count; k++) own.operand[(size_t)norm->sums + k] = part + k * width;
    norm_dx(&own);
    for (size_t k = 0; k < sum_count; k++) {
      const float *from = part + k * width;
      float *sum = sums + (k * runs + first / run % runs) * width;
      for (size_t i = 0; i < width; i++) sum[i] = first < sequence ? from[i] : sum[i] + from[i];
    }
  }
  for (size_t k = 0; k < sum_count; k++) {
    add_pairwise(sums + k * runs * width, runs, width);
    if (call->operand[(size_t)norm->sums + k])
      memcpy(call->operand[(size_t)norm->sums + k], sums + k * runs * width, width * sizeof *sums);
  }
}

void pen_bias_runs_dw(const struct pen_call *call, pen_kernel *bias_dw, size_t element_bytes) {
  const size_t rows = (size_t)call->dim[0], width = (size_t)call->dim[1],
               sequence = (size_t)call->dim[2], runs = (size_t)call->dim[3], run = sequence / runs;
  float *sums = call->workspace, *dbias = call->operand[1];
  memset(sums, 0, runs * width * sizeof *sums);
  for (size_t first = 0; first < rows; first += run)
    bias_dw(&(struct pen_call){.operand = {(char *)call->operand[0] + first * width * element_bytes,
                                           sums + first / run % runs * width},
                               .dim = {(int64_t)run, (int64_t)width}});
  add_pairwise(sums, runs, width);
  for (size_t i = 0; i < width; i++) dbias[i] += sums[i];
}

/* ---- tokens that a tensor rank holds ---- */

/* y[b,t] = x[b,first+t] */
void pen_slice_sequence(const struct pen_call *call) {
  const int32_t *x = call->operand[0];
  int32_t *y = call->operand[1];
  const size_t sequence = (size_t)call->dim[1], run = (size_t)call->dim[2];
  for (size_t b = 0; b < (size_t)call->dim[0]; b++)
    memcpy(y + b * run, x + b * sequence + call->dim[3], run * sizeof *y);
}

/* ---- positions: a run of zeros is added as one ---- */

void pen_position_runs_dw(const struct pen_call *call, size_t element_bytes) {
  const bool is_bf16 = element_bytes == sizeof(uint16_t);
  const int32_t *starts = call->operand[1];
  const int64_t rows = call->dim[0], sequence = call->dim[2], run = sequence / call->dim[4];
  const size_t width = (size_t)call->dim[1], runs = (size_t)call->dim[4];
  float *sums = call->workspace, *row = sums + runs * width, *dtable = call->operand[2];
  for (int64_t p = 0; p < call->dim[3]; p++, dtable += width) {
    memset(sums, 0, runs * width * sizeof *sums);
    for (int64_t r = 0; r < rows; r++) {
      if (call->dim[5] + r % sequence - (starts ? starts[r] : 0) != p) continue;
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

/* ---- logits ---- */

/* Rows of y are `tokens` elements; without a, what is not of the split is 0. */
static void join_logits(const struct pen_call *call, size_t element_bytes) {
  const char *logits = call->operand[0], *a = call->operand[1];
  char *y = call->operand[2];
  const size_t split = (size_t)call->dim[1] * element_bytes,
               first = (size_t)call->dim[2] * element_bytes,
               row = (size_t)call->dim[3] * element_bytes;
  for (size_t r = 0; r < (size_t)call->dim[0]; r++) {
    if (a == NULL)
      memset(y + r * row, 0, row);
    else if (a != y)
      memcpy(y + r * row, a + r * row, row);
    memcpy(y + r * row + first, logits + r * split, split);
  }
}

void pen_logits_join(const struct pen_call *call) { join_logits(call, sizeof(float)); }
void pen_logits_join_bf16(const struct pen_call *call) { join_logits(call, sizeof(uint16_t)); }
