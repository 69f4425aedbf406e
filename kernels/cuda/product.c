/* product.c: matrix products by cuBLASLt: LINEAR, also fused, AFFINE, those of splits of
 * weights, and their gradients, in f32 without TF32, or in bf16 with f32 sums.
 *
 * cuBLASLt is column-major: a row-major matrix [r,c] is its column-major transpose, c x r, with
 * leading dimension c. So LINEAR     y  = x w^T + a       is  y^T  = (w^T)^T x^T + a^T     m = out,
 * n = rows, k = in LINEAR_DX  dx = dy w + a        is  dx^T = w^T dy^T + a^T        m = in,  n =
 * rows, k = out LINEAR_DW  dw += dy^T x         is  dw^T += x^T (dy^T)^T         m = in,  n = out,
 * k = rows AFFINE     y  = x w + a + bias  is  y^T  = w^T x^T + a^T + bias  m = out, n = rows, k =
 * in AFFINE_DX  dx = dy w^T + a      is  dx^T = (w^T)^T dy^T + a^T    m = in,  n = rows, k = out
 *     AFFINE_DW  dw += x^T dy         is  dw^T += dy^T (x^T)^T         m = out, n = in,   k = rows
 * The addend is C with beta 1; it may be D. The epilogue adds the bias, in the type of D: in bf16
 * it is rounded first, after the workspace. If the library has no such epilogue for a shape, a
 * kernel adds the bias after the product. Each shape is prepared once, before the seal:
 * descriptors, and the first algorithm of the library's heuristic for tensors aligned to 64 bytes
 * and a workspace of one size. The heuristic sees neither addresses nor values: a shape has the
 * same algorithm and the same bits on one kind of device and version of the library. Partial sums
 * of a split k are added in f32 only, in order.
 *
 * Workspace: PEN_CUDA_PRODUCT_WORKSPACE_BYTES for all shapes, one for each stream, from which the
 * library receives a part aligned to 256 bytes; then the rounded bias. 2 m n k operations.
 */
#include <cublasLt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/product.h"

/* An entry of the table above. */
struct rule {
  enum pen_op_kind kind;
  int m, n, k; /* dims: rows, in, out */
  cublasOperation_t transpose_a, transpose_b;
  int a, b, bias, c, d; /* operands; bias or c -1: none */
  int is_f32;           /* c and d are f32 in either dtype */
};

enum { ROWS, IN, OUT, NONE = -1 };

/* The alignment of the library's workspace is larger than that of tensors; its size is smaller by
 * as much: 32 MiB, as NVIDIA recommends for Hopper (cuBLAS, cublasSetWorkspace). */
enum {
  LIBRARY_ALIGNMENT = 256,
  LIBRARY_BYTES = PEN_CUDA_PRODUCT_WORKSPACE_BYTES - LIBRARY_ALIGNMENT
};

static void *library_workspace(void *workspace) {
  return (void *)(((uintptr_t)workspace + LIBRARY_ALIGNMENT - 1) / LIBRARY_ALIGNMENT *
                  LIBRARY_ALIGNMENT);
}

static const struct rule rules[] = {
#define PEN_CUDA_PRODUCT(kind, m, n, k, transpose_a, transpose_b, a, b, bias, c, d, is_f32, \
                         workspace)                                                         \
  {PEN_OP_##kind, m, n, k,     CUBLAS_OP_##transpose_a, CUBLAS_OP_##transpose_b, a, b,      \
   bias,          c, d, is_f32},
#include "kernels/cuda/ops.def"
};

static const struct rule *rule_of(enum pen_op_kind kind) {
  for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
    if (rules[i].kind == kind) return &rules[i];
  return NULL;
}

struct product {
  const struct rule *rule;
  enum pen_dtype dtype;
  int64_t dim[3];
  cublasLtMatmulDesc_t description;
  cublasLtMatrixLayout_t a, b, c; /* D has the layout of C */
  cublasLtMatmulAlgo_t algorithm;
  int has_epilogue; /* the epilogue adds the bias */
  struct product *next;
};

static cublasLtHandle_t library;
static struct product *products; /* all prepared products */

static int check_failed(const char *what, cublasStatus_t status) {
  if (status != CUBLAS_STATUS_SUCCESS) pen_cuda_note_text(what, cublasLtGetStatusString(status));
  return status != CUBLAS_STATUS_SUCCESS;
}

const char *pen_cuda_product_open(void) {
  static char name[40];
  if (library == NULL && check_failed("opening cuBLASLt", cublasLtCreate(&library))) return NULL;
  const size_t version = cublasLtGetVersion();
  snprintf(name, sizeof name, "cuBLASLt %zu.%zu.%zu", version / 10000, version / 100 % 100,
           version % 100);
  return name;
}

static int create_layout(cublasLtMatrixLayout_t *layout, cudaDataType_t type,
                         cublasOperation_t transpose, int64_t rows, int64_t columns) {
  if (transpose == CUBLAS_OP_T) { /* as stored */
    const int64_t kept = rows;
    rows = columns, columns = kept;
  }
  return check_failed("creating a layout", cublasLtMatrixLayoutCreate(layout, type, (uint64_t)rows,
                                                                      (uint64_t)columns, rows));
}

static int set_attribute(const struct product *p, cublasLtMatmulDescAttributes_t what,
                         const void *value, size_t bytes) {
  return check_failed("describing a product",
                      cublasLtMatmulDescSetAttribute(p->description, what, value, bytes));
}

/* The heuristic reads the alignment of the bias from its address. */
static int set_bias(const struct product *p, const void *bias) {
  return set_attribute(p, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias);
}

static int set_epilogue(struct product *p, cublasLtEpilogue_t epilogue) {
  p->has_epilogue = epilogue != CUBLASLT_EPILOGUE_DEFAULT;
  return set_attribute(p, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue) ||
         (p->has_epilogue && set_bias(p, (const void *)(uintptr_t)PEN_ALIGNMENT_BYTES));
}

static int describe_product(struct product *p) {
  const struct rule *r = p->rule;
  const int64_t m = p->dim[r->m], n = p->dim[r->n], k = p->dim[r->k];
  const cudaDataType_t type = p->dtype == PEN_F32 ? CUDA_R_32F : CUDA_R_16BF;
  const cudaDataType_t result = r->is_f32 || p->dtype == PEN_BF16_PARTIAL ? CUDA_R_32F : type;
  return check_failed("describing a product",
                      cublasLtMatmulDescCreate(&p->description, CUBLAS_COMPUTE_32F, CUDA_R_32F)) ||
         set_attribute(p, CUBLASLT_MATMUL_DESC_TRANSA, &r->transpose_a, sizeof r->transpose_a) ||
         set_attribute(p, CUBLASLT_MATMUL_DESC_TRANSB, &r->transpose_b, sizeof r->transpose_b) ||
         (r->bias != NONE && set_epilogue(p, CUBLASLT_EPILOGUE_BIAS)) ||
         create_layout(&p->a, type, r->transpose_a, m, k) ||
         create_layout(&p->b, type, r->transpose_b, k, n) ||
         create_layout(&p->c, result, CUBLAS_OP_N, m, n);
}

/* What the heuristic may assume: the alignment of tensors instead of 256 bytes, the workspace, sums
 * in f32 only. */
static int set_preference(cublasLtMatmulPreference_t preference) {
  static const cublasLtMatmulPreferenceAttributes_t alignments[] = {
      CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
      CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
      CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
      CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
  };
  const uint32_t alignment = PEN_ALIGNMENT_BYTES;
  const uint64_t workspace = LIBRARY_BYTES;
  const uint32_t reductions =
      CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  for (size_t i = 0; i < sizeof alignments / sizeof *alignments; i++)
    if (check_failed("choosing a product",
                     cublasLtMatmulPreferenceSetAttribute(preference, alignments[i], &alignment,
                                                          sizeof alignment)))
      return 1;
  return check_failed("choosing a product",
                      cublasLtMatmulPreferenceSetAttribute(preference,
                                                           CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                           &workspace, sizeof workspace)) ||
         check_failed("choosing a product",
                      cublasLtMatmulPreferenceSetAttribute(
                          preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions,
                          sizeof reductions));
}

int pen_cuda_product_algorithms(const void *prepared, cublasLtMatmulHeuristicResult_t *results,
                                int most) {
  const struct product *p = prepared;
  cublasLtMatmulPreference_t preference;
  if (check_failed("choosing a product", cublasLtMatmulPreferenceCreate(&preference))) return 0;
  int found = 0, valid = 0;
  const cublasStatus_t status =
      set_preference(preference)
          ? CUBLAS_STATUS_NOT_SUPPORTED
          : cublasLtMatmulAlgoGetHeuristic(library, p->description, p->a, p->b, p->c, p->c,
                                           preference, most, results, &found);
  cublasLtMatmulPreferenceDestroy(preference);
  /* the status differs where there is none */
  if (status == CUBLAS_STATUS_NOT_SUPPORTED || check_failed("choosing a product", status)) return 0;
  for (int i = 0; i < found; i++)
    if (results[i].state == CUBLAS_STATUS_SUCCESS) results[valid++] = results[i];
  return valid;
}

static int choose_algorithm(struct product *p) {
  cublasLtMatmulHeuristicResult_t best;
  if (!pen_cuda_product_algorithms(p, &best, 1) &&
      !(p->has_epilogue && !set_epilogue(p, CUBLASLT_EPILOGUE_DEFAULT) &&
        pen_cuda_product_algorithms(p, &best, 1))) {
    pen_cuda_note_text("choosing a product", "cuBLASLt has no algorithm for this shape");
    return 1;
  }
  p->algorithm = best.algo;
  return 0;
}

void pen_cuda_product_use(void *prepared, const cublasLtMatmulAlgo_t *algorithm) {
  ((struct product *)prepared)->algorithm = *algorithm;
}

void *pen_cuda_product_prepare(enum pen_op_kind kind, enum pen_dtype dtype,
                               const int64_t dim[PEN_DIMS_MAX]) {
  for (struct product *p = products; p != NULL; p = p->next)
    if (p->rule->kind == kind && p->dtype == dtype && memcmp(p->dim, dim, sizeof p->dim) == 0)
      return p;
  struct product *p = calloc(1, sizeof *p);
  if (p == NULL) {
    pen_cuda_note_text("preparing a product", "no memory");
    return NULL;
  }
  *p = (struct product){.rule = rule_of(kind), .dtype = dtype, .dim = {dim[0], dim[1], dim[2]}};
  if (describe_product(p) || choose_algorithm(p))
    return NULL; /* an error was noted, and ends the run */
  p->next = products;
  return products = p;
}

/* The bias in the type that the epilogue reads. */
static const void *bias_of(const struct pen_call *call, const struct product *p) {
  const float *bias = call->operand[p->rule->bias];
  if (p->dtype == PEN_F32) return bias;
  uint16_t *rounded = (uint16_t *)((char *)call->workspace + PEN_CUDA_PRODUCT_WORKSPACE_BYTES);
  pen_cuda_f32_to_bf16(rounded, bias, (size_t)p->dim[OUT], call->stream);
  return rounded;
}

/* y += bias on each row, without an epilogue */
static void add_bias(const struct pen_call *call, const struct product *p) {
  void *y = call->operand[p->rule->d];
  const struct pen_call bias = {.operand = {y, call->operand[p->rule->bias], y},
                                .dim = {p->dim[ROWS], p->dim[OUT]},
                                .stream = call->stream};
  (p->dtype == PEN_BF16 ? pen_cuda_bias_bf16 : pen_cuda_bias)(&bias);
}

void pen_cuda_product(const struct pen_call *call) {
  const struct product *p = call->prepared;
  const struct rule *r = p->rule;
  const void *c = r->c == NONE ? NULL : call->operand[r->c];
  void *d = call->operand[r->d];
  const float alpha = 1.0f, beta = c == NULL ? 0.0f : 1.0f;
  if (p->has_epilogue && set_bias(p, bias_of(call, p))) return;
  check_failed("a product",
               cublasLtMatmul(library, p->description, &alpha, call->operand[r->a], p->a,
                              call->operand[r->b], p->b, &beta, c == NULL ? d : c, p->c, d, p->c,
                              &p->algorithm, library_workspace(call->workspace), LIBRARY_BYTES,
                              call->stream));
  if (r->bias != NONE && !p->has_epilogue) add_bias(call, p);
}
