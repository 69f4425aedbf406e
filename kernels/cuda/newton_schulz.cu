/* newton_schulz.cu: NEWTON_SCHULZ: products by cuBLASLt in f32, without TF32 (product.c), the norm
 * in f64 in the order of gradient_norms.cu. X and the matrix that becomes it are in the workspace
 * by turns. Launch: element by element. Workspace: | X | the next X | A | its polynomial | that of
 * the products, at first the norm and the sums of its blocks |, each aligned to
 * PEN_ALIGNMENT_BYTES.
 */
#include <stdlib.h>

#include "kernels/cuda/device.cuh"

namespace {

/* A = X X^T, A A = A A^T, and what is added to X from the polynomial. */
struct products {
  int64_t rows, columns;
  void *gram, *square, *step;
  struct products *next;
};

struct products *prepared; /* of all shapes */

struct places {
  float *x, *next, *a, *polynomial;
  char *library; /* of PEN_CUDA_PRODUCT_WORKSPACE_BYTES */
};

places places_in(void *workspace, int64_t rows, int64_t columns) {
  const size_t matrix = pen_aligned((uint64_t)(rows * columns) * sizeof(float)),
               square = pen_aligned((uint64_t)(rows * rows) * sizeof(float));
  char *at = (char *)workspace;
  return {(float *)at, (float *)(at + matrix), (float *)(at + 2 * matrix),
          (float *)(at + 2 * matrix + square), at + 2 * matrix + 2 * square};
}

__global__ void __launch_bounds__(THREADS) normalize(float *x, const double *sum, int64_t count) {
  const float factor = (float)(1 / (sqrt(*sum) + 1e-7));
  const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
  if (i < count) x[i] = __fmul_rn(x[i], factor);
}

/* b = 3.4445 I - 4.7750 a + 2.0315 b, over [rows, rows] */
__global__ void __launch_bounds__(THREADS) polynomial(float *b, const float *a, int64_t rows) {
  const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
  if (i >= rows * rows) return;
  const float value = __fmaf_rn(a[i], -4.7750f, __fmul_rn(b[i], 2.0315f));
  b[i] = i % (rows + 1) == 0 ? __fadd_rn(value, 3.4445f) : value;
}

dim3 blocks_of(int64_t count) { return dim3((unsigned)ceiling(count, THREADS)); }

/* result = left right, or left right^T, as `product` was prepared; `place` is the result's. */
void multiply(void *product, const float *left, const float *right, float *result, int place,
              const places &at, void *stream) {
  struct pen_call call = {};
  call.operand[0] = (void *)left;
  call.operand[1] = (void *)right;
  call.operand[place] = result;
  call.prepared = product;
  call.workspace = at.library;
  call.stream = stream;
  pen_cuda_product(&call);
}

void divide_by_norm(float *x, int64_t count, const places &at, void *stream) {
  double *const norm = (double *)at.library;
  const struct pen_norm_tensor tensor = {x, (size_t)count, 0};
  pen_cuda_sum_squares(norm, &tensor, 1, norm + 1, stream);
  PEN_LAUNCH(normalize, blocks_of(count), dim3(THREADS), 0, stream, x, norm, count);
}

} /* namespace */

void *pen_cuda_newton_schulz_prepare(const int64_t dim[PEN_DIMS_MAX]) {
  const int64_t rows = dim[0], columns = dim[1];
  for (struct products *p = prepared; p != NULL; p = p->next)
    if (p->rows == rows && p->columns == columns) return p;
  struct products *p = (struct products *)calloc(1, sizeof *p);
  if (p == NULL) {
    pen_cuda_note_text("preparing NEWTON_SCHULZ", "no memory");
    return NULL;
  }
  const int64_t gram[PEN_DIMS_MAX] = {rows, columns, rows},
                square[PEN_DIMS_MAX] = {rows, rows, rows},
                step[PEN_DIMS_MAX] = {rows, rows, columns};
  *p = {rows,
        columns,
        pen_cuda_product_prepare(PEN_OP_LINEAR, PEN_F32, gram),
        pen_cuda_product_prepare(PEN_OP_LINEAR, PEN_F32, square),
        pen_cuda_product_prepare(PEN_OP_AFFINE_ROWS, PEN_F32, step),
        prepared};
  return prepared = p;
}

float *pen_cuda_newton_schulz_there(const struct pen_call *call) {
  enum { OF_LINEAR = 3, OF_AFFINE_ROWS = 2 };
  const struct products *p = (const struct products *)call->prepared;
  const int64_t rows = call->dim[0], columns = call->dim[1];
  places at = places_in(call->workspace, rows, columns);
  divide_by_norm(at.x, rows * columns, at, call->stream);
  for (int64_t i = 0; i < call->dim[2]; i++) {
    multiply(p->gram, at.x, at.x, at.a, OF_LINEAR, at, call->stream);
    multiply(p->square, at.a, at.a, at.polynomial, OF_LINEAR, at, call->stream);
    PEN_LAUNCH(polynomial, blocks_of(rows * rows), dim3(THREADS), 0, call->stream, at.polynomial,
               at.a, rows);
    multiply(p->step, at.polynomial, at.x, at.next, OF_AFFINE_ROWS, at, call->stream);
    float *const made = at.next;
    at.next = at.x, at.x = made;
  }
  return at.x;
}

void pen_cuda_newton_schulz(const struct pen_call *call) {
  const size_t bytes = (size_t)(call->dim[0] * call->dim[1]) * sizeof(float);
  pen_cuda_copy(call->workspace, call->operand[0], bytes, call->stream);
  pen_cuda_copy(call->operand[1], pen_cuda_newton_schulz_there(call), bytes, call->stream);
}
