/* linear.c: LINEAR, LINEAR_DX, LINEAR_DW by cuBLASLt, f32 without TF32, or bf16 with f32 sums.
 *
 * cuBLASLt counts by columns, we by rows: a row-major matrix [r,c] is its column-major transpose, c x r with c apart. So
 *     y  = x w^T + a   is   y^T = (w^T)^T x^T + a^T    m = out, n = rows, k = in
 *     dx = dy w + a    is   dx^T = w^T dy^T + a^T      m = in,  n = rows, k = out
 *     dw += dy^T x     is   dw^T += x^T (dy^T)^T       m = in,  n = out,  k = rows
 * The addend is C with beta 1; it may be D itself. Each shape is prepared once, before the seal: descriptors, and the first algorithm
 * that the library's heuristic names for the shape, for tensors on 64 bytes and a workspace of one size. It sees neither
 * addresses nor values, so a shape always has the same algorithm, and the same bits, on one kind of device and library. Partial sums of a
 * cut k may only be added in f32, in their order.
 *
 * Workspace: PEN_CUDA_PRODUCT_WORKSPACE_BYTES for every shape, and one a stream. 2 m n k operations.
 */
#include <cublasLt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/cuda.h"

struct product {
  enum pen_op_kind kind;
  int bf16;
  int64_t dim[3];
  cublasLtMatmulDesc_t description;
  cublasLtMatrixLayout_t a, b, c; /* D is laid out as C */
  cublasLtMatmulAlgo_t algorithm;
  struct product *next;
};

/* m, n, k, and for A and B whether each is transposed; leading dimensions follow. */
struct geometry {
  int64_t m, n, k;
  cublasOperation_t transpose_a, transpose_b;
};

static cublasLtHandle_t library;
static struct product *products; /* all that are prepared */

static int failed(const char *what, cublasStatus_t status) {
  if (status != CUBLAS_STATUS_SUCCESS)
    pen_cuda_note_text(what, cublasLtGetStatusString(status));
  return status != CUBLAS_STATUS_SUCCESS;
}

const char *pen_cuda_linear_open(void) {
  static char name[40];
  if (library == NULL && failed("opening cuBLASLt", cublasLtCreate(&library)))
    return NULL;
  const size_t version = cublasLtGetVersion();
  snprintf(name, sizeof name, "cuBLASLt %zu.%zu.%zu", version / 10000, version / 100 % 100, version % 100);
  return name;
}

static struct geometry geometry_of(enum pen_op_kind kind, const int64_t *dim) {
  const int64_t rows = dim[0], in = dim[1], out = dim[2];
  if (kind == PEN_OP_LINEAR)
    return (struct geometry){ out, rows, in, CUBLAS_OP_T, CUBLAS_OP_N };
  if (kind == PEN_OP_LINEAR_DX)
    return (struct geometry){ in, rows, out, CUBLAS_OP_N, CUBLAS_OP_N };
  return (struct geometry){ in, out, rows, CUBLAS_OP_N, CUBLAS_OP_T };
}

static int lay_out(cublasLtMatrixLayout_t *layout, cudaDataType_t type, cublasOperation_t transpose, int64_t rows, int64_t columns) {
  if (transpose == CUBLAS_OP_T) { /* as it stands in memory */
    const int64_t kept = rows;
    rows = columns, columns = kept;
  }
  return failed("laying out a matrix", cublasLtMatrixLayoutCreate(layout, type, (uint64_t)rows, (uint64_t)columns, rows));
}

static int describe(struct product *p, const struct geometry *g) {
  const cudaDataType_t type = p->bf16 ? CUDA_R_16BF : CUDA_R_32F;
  const cudaDataType_t result = p->bf16 && p->kind != PEN_OP_LINEAR_DW ? CUDA_R_16BF : CUDA_R_32F;
  return failed("describing a product", cublasLtMatmulDescCreate(&p->description, CUBLAS_COMPUTE_32F, CUDA_R_32F)) ||
         failed("describing a product", cublasLtMatmulDescSetAttribute(p->description, CUBLASLT_MATMUL_DESC_TRANSA, &g->transpose_a,
                                                                       sizeof g->transpose_a)) ||
         failed("describing a product", cublasLtMatmulDescSetAttribute(p->description, CUBLASLT_MATMUL_DESC_TRANSB, &g->transpose_b,
                                                                       sizeof g->transpose_b)) ||
         lay_out(&p->a, type, g->transpose_a, g->m, g->k) || lay_out(&p->b, type, g->transpose_b, g->k, g->n) ||
         lay_out(&p->c, result, CUBLAS_OP_N, g->m, g->n);
}

/* What the heuristic may assume: our tensors' alignment instead of its own 256, our workspace, sums in f32 alone. */
static int prefer(cublasLtMatmulPreference_t preference) {
  static const cublasLtMatmulPreferenceAttributes_t alignments[] = {
    CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
    CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
    CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
    CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
  };
  const uint32_t alignment = PEN_ALIGNMENT_BYTES;
  const uint64_t workspace = PEN_CUDA_PRODUCT_WORKSPACE_BYTES;
  const uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  for (size_t i = 0; i < sizeof alignments / sizeof *alignments; i++)
    if (failed("choosing a product", cublasLtMatmulPreferenceSetAttribute(preference, alignments[i], &alignment, sizeof alignment)))
      return 1;
  return failed("choosing a product", cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                                           &workspace, sizeof workspace)) ||
         failed("choosing a product", cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                                                           &reductions, sizeof reductions));
}

static int choose(struct product *p) {
  cublasLtMatmulPreference_t preference;
  cublasLtMatmulHeuristicResult_t best;
  int found = 0;
  if (failed("choosing a product", cublasLtMatmulPreferenceCreate(&preference)))
    return 1;
  const int bad = prefer(preference) || failed("choosing a product", cublasLtMatmulAlgoGetHeuristic(library, p->description, p->a, p->b,
                                                                                                    p->c, p->c, preference, 1, &best, &found));
  cublasLtMatmulPreferenceDestroy(preference);
  if (!bad && found == 0)
    pen_cuda_note_text("choosing a product", "cuBLASLt has no algorithm for this shape");
  if (bad || found == 0)
    return 1;
  p->algorithm = best.algo;
  return 0;
}

static void *prepare(enum pen_op_kind kind, const int64_t dim[PEN_DIMS_MAX], int bf16) {
  for (struct product *p = products; p != NULL; p = p->next)
    if (p->kind == kind && p->bf16 == bf16 && memcmp(p->dim, dim, sizeof p->dim) == 0)
      return p;
  struct product *p = calloc(1, sizeof *p);
  if (p == NULL) {
    pen_cuda_note_text("preparing a product", "no memory");
    return NULL;
  }
  *p = (struct product){ .kind = kind, .bf16 = bf16, .dim = { dim[0], dim[1], dim[2] } };
  const struct geometry g = geometry_of(kind, dim);
  if (describe(p, &g) || choose(p))
    return NULL; /* noted, and the end of the run */
  p->next = products;
  return products = p;
}

void *pen_cuda_linear_prepare(enum pen_op_kind kind, const int64_t dim[PEN_DIMS_MAX]) { return prepare(kind, dim, 0); }

void *pen_cuda_linear_prepare_bf16(enum pen_op_kind kind, const int64_t dim[PEN_DIMS_MAX]) { return prepare(kind, dim, 1); }

static void multiply(const struct pen_call *call, const void *a, const void *b, const void *c, void *d) {
  const struct product *p = call->prepared;
  const float alpha = 1.0f, beta = c == NULL ? 0.0f : 1.0f;
  failed("a product", cublasLtMatmul(library, p->description, &alpha, a, p->a, b, p->b, &beta, c == NULL ? d : c, p->c, d, p->c,
                                     &p->algorithm, call->workspace, PEN_CUDA_PRODUCT_WORKSPACE_BYTES, call->stream));
}

void pen_cuda_linear(const struct pen_call *call) {
  multiply(call, call->operand[1], call->operand[0], call->operand[2], call->operand[3]);
}

void pen_cuda_linear_dx(const struct pen_call *call) {
  multiply(call, call->operand[1], call->operand[0], call->operand[2], call->operand[3]);
}

void pen_cuda_linear_dw(const struct pen_call *call) {
  multiply(call, call->operand[1], call->operand[0], call->operand[2], call->operand[2]);
}
