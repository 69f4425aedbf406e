/* emulate_products.c: the calls of cuBLASLt that kernels/cuda/product.c makes, by a BLAS of the
 * CPU, which is column-major too: an error in a transpose, a leading dimension or an addend gives
 * wrong numbers here as on a GPU. */
#include <cblas.h>
#include <cublasLt.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"

struct description {
  cublasOperation_t transpose[2];
  cublasLtEpilogue_t epilogue;
  const void *bias; /* of D's type */
};

struct layout {
  cudaDataType_t type;
  int rows, columns, leading;
};

struct preference {
  uint32_t alignment[4];
  uint64_t workspace_bytes;
  uint32_t bias_alignment; /* the alignment of the bias's address that the heuristic was given */
  uint32_t tile, stages, split_k; /* of an algorithm, which is a preference, too */
};

const char *cublasLtGetStatusString(cublasStatus_t status) {
  return status == CUBLAS_STATUS_SUCCESS ? "success" : "a value that is not valid";
}
size_t cublasLtGetVersion(void) { return 0; }

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle) {
  static char only;
  *handle = (cublasLtHandle_t)&only;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *description,
                                        cublasComputeType_t compute, cudaDataType_t scale) {
  *description = calloc(1, sizeof(struct description));
  struct description *made = (struct description *)*description;
  made->transpose[0] = made->transpose[1] = CUBLAS_OP_N;
  made->epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  return compute == CUBLAS_COMPUTE_32F && scale == CUDA_R_32F ? CUBLAS_STATUS_SUCCESS
                                                              : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t description,
                                              cublasLtMatmulDescAttributes_t what,
                                              const void *value, size_t bytes) {
  struct description *d = (struct description *)description;
  const struct {
    cublasLtMatmulDescAttributes_t what;
    void *place;
    size_t bytes;
  } known[] = {
      {CUBLASLT_MATMUL_DESC_TRANSA, &d->transpose[0], sizeof d->transpose[0]},
      {CUBLASLT_MATMUL_DESC_TRANSB, &d->transpose[1], sizeof d->transpose[1]},
      {CUBLASLT_MATMUL_DESC_EPILOGUE, &d->epilogue, sizeof d->epilogue},
      {CUBLASLT_MATMUL_DESC_BIAS_POINTER, &d->bias, sizeof d->bias},
  };
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (known[i].what == what && known[i].bytes == bytes) {
      memcpy(known[i].place, value, bytes);
      return d->epilogue == CUBLASLT_EPILOGUE_DEFAULT || d->epilogue == CUBLASLT_EPILOGUE_BIAS
                 ? CUBLAS_STATUS_SUCCESS
                 : CUBLAS_STATUS_NOT_SUPPORTED;
    }
  return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout, cudaDataType_t type,
                                          uint64_t rows, uint64_t columns, int64_t leading) {
  struct layout *made = calloc(1, sizeof *made);
  *made = (struct layout){type, (int)rows, (int)columns, (int)leading};
  *layout = (cublasLtMatrixLayout_t)made;
  return (uint64_t)leading >= rows ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *preference) {
  struct preference *made = calloc(1, sizeof *made);
  for (int i = 0; i < 4; i++) made->alignment[i] = 256; /* the library's own */
  *preference = (cublasLtMatmulPreference_t)made;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  free(preference);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t what,
                                                    const void *value, size_t bytes) {
  struct preference *p = (struct preference *)preference;
  if (what == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES && bytes == sizeof p->workspace_bytes)
    memcpy(&p->workspace_bytes, value, bytes);
  else if (what >= CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES &&
           what <= CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES && bytes == 4)
    memcpy(&p->alignment[what - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], value, bytes);
  else if (what != CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK || bytes != 4)
    return CUBLAS_STATUS_INVALID_VALUE;
  return CUBLAS_STATUS_SUCCESS;
}

/* The algorithms record what they were allowed to assume; cublasLtMatmul() below checks it. They
 * differ in their descriptions alone. One of them is not valid. */
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle,
                                              cublasLtMatmulDesc_t description,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t results[],
                                              int *found) {
  (void)handle, (void)a, (void)b, (void)c;
  enum { ALGORITHMS = 3, INVALID = 1 };
  /* Stricter than the library: no epilogue if columns are not aligned to 4 bytes. */
  const struct layout *result = (const struct layout *)d;
  *found = 0;
  if (((const struct description *)description)->epilogue != CUBLASLT_EPILOGUE_DEFAULT &&
      result->type == CUDA_R_16BF && result->leading % 2 != 0)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  struct preference may = *(const struct preference *)preference;
  const uintptr_t bias = (uintptr_t)((const struct description *)description)->bias;
  may.bias_alignment = bias == 0 ? 256 : (uint32_t)(bias & -bias);
  may.tile = CUBLASLT_MATMUL_TILE_128x256, may.stages = CUBLASLT_MATMUL_STAGES_64x4;
  for (; *found < wanted && *found < ALGORITHMS; ++*found) {
    cublasLtMatmulHeuristicResult_t *of = &results[*found];
    may.split_k = 1u << *found;
    memset(of, 0, sizeof *of);
    memcpy(&of->algo, &may, sizeof may);
    of->state = *found == INVALID ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS;
    of->wavesCount = 0.25f * (float)may.split_k;
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t *algorithm,
                                                    cublasLtMatmulAlgoConfigAttributes_t what,
                                                    void *value, size_t bytes, size_t *written) {
  struct preference may;
  memcpy(&may, algorithm, sizeof may);
  const uint32_t values[] = {[CUBLASLT_ALGO_CONFIG_TILE_ID] = may.tile,
                             [CUBLASLT_ALGO_CONFIG_SPLITK_NUM] = may.split_k,
                             [CUBLASLT_ALGO_CONFIG_STAGES_ID] = may.stages};
  *written = bytes;
  if (bytes != sizeof *values || (size_t)what >= sizeof values / sizeof *values)
    return CUBLAS_STATUS_INVALID_VALUE;
  memcpy(value, &values[what], bytes);
  return CUBLAS_STATUS_SUCCESS;
}

static float *widened(const void *from, const struct layout *l) {
  const size_t count = (size_t)l->leading * (size_t)l->columns;
  float *wide = malloc(count * sizeof *wide);
  if (l->type == CUDA_R_32F) return memcpy(wide, from, count * sizeof *wide);
  for (size_t i = 0; i < count; i++) {
    const uint32_t bits = (uint32_t)((const uint16_t *)from)[i] << 16;
    memcpy(&wide[i], &bits, sizeof bits);
  }
  return wide;
}

static void narrow(void *to, const float *from, const struct layout *l) {
  const size_t count = (size_t)l->leading * (size_t)l->columns;
  if (l->type == CUDA_R_32F) {
    memcpy(to, from, count * sizeof *from);
    return;
  }
  for (size_t i = 0; i < count; i++) {
    uint32_t bits;
    memcpy(&bits, &from[i], sizeof bits);
    ((uint16_t *)to)[i] = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
  }
}

static enum CBLAS_TRANSPOSE transpose_of(cublasOperation_t o) {
  return o == CUBLAS_OP_T ? CblasTrans : CblasNoTrans;
}

/* A product as it was requested, until its stream executes it. */
struct emulated_product {
  struct description t;
  struct layout al, bl, cl, dl;
  float alpha, beta;
  const void *a, *b, *c;
  void *d, *workspace;
  size_t workspace_bytes;
  int m, n, k;
};

/* emulate_streams.cc */
void emulated_enqueue(void *stream, void (*body)(void *), const void *context, size_t bytes);
void emulated_use_code(void *stream, const char *name, const void *code, size_t bytes);

/* What the library may choose other code for. */
struct product_code {
  cublasOperation_t transpose[2];
  cublasLtEpilogue_t epilogue;
  struct layout a, b, d;
  float beta;
};

static void use_code_of(const struct emulated_product *p, void *stream) {
  struct product_code code;
  memset(&code, 0, sizeof code); /* bytes between the fields, too */
  memcpy(code.transpose, p->t.transpose, sizeof code.transpose);
  code.epilogue = p->t.epilogue;
  code.a = p->al, code.b = p->bl, code.d = p->dl;
  code.beta = p->beta;
  emulated_use_code(stream, "a product of cuBLASLt", &code, sizeof code);
}

/* One element for each row of D, the same in all columns. */
static void add_bias(float *sum, const struct emulated_product *p) {
  const struct layout vector = {p->dl.type, p->m, 1, p->m};
  float *bias = widened(p->t.bias, &vector);
  for (int column = 0; column < p->n; column++)
    for (int row = 0; row < p->m; row++) sum[column * p->dl.leading + row] += bias[row];
  free(bias);
}

static void multiply(void *context) {
  const struct emulated_product *p = context;
  memset(p->workspace, 0x7f,
         p->workspace_bytes > 4096 ? 4096 : p->workspace_bytes); /* the product may write there */
  float *wide_a = widened(p->a, &p->al), *wide_b = widened(p->b, &p->bl),
        *sum = widened(p->beta == 0 ? p->d : p->c, &p->cl);
  cblas_sgemm(CblasColMajor, transpose_of(p->t.transpose[0]), transpose_of(p->t.transpose[1]), p->m,
              p->n, p->k, p->alpha, wide_a, p->al.leading, wide_b, p->bl.leading, p->beta, sum,
              p->cl.leading);
  if (p->t.epilogue == CUBLASLT_EPILOGUE_BIAS) add_bias(sum, p);
  narrow(p->d, sum, &p->dl);
  free(wide_a), free(wide_b), free(sum);
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t description,
                              const void *alpha, const void *a, cublasLtMatrixLayout_t a_layout,
                              const void *b, cublasLtMatrixLayout_t b_layout, const void *beta,
                              const void *c, cublasLtMatrixLayout_t c_layout, void *d,
                              cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t *algorithm, void *workspace,
                              size_t workspace_bytes, cudaStream_t stream) {
  (void)handle;
  const struct description *t = (const struct description *)description;
  const struct layout *al = (const struct layout *)a_layout, *bl = (const struct layout *)b_layout;
  const struct layout *cl = (const struct layout *)c_layout, *dl = (const struct layout *)d_layout;
  struct preference may;
  memcpy(&may, algorithm, sizeof may);
  const int m = t->transpose[0] == CUBLAS_OP_T ? al->columns : al->rows,
            k = t->transpose[0] == CUBLAS_OP_T ? al->rows : al->columns;
  const int n = t->transpose[1] == CUBLAS_OP_T ? bl->rows : bl->columns,
            kb = t->transpose[1] == CUBLAS_OP_T ? bl->columns : bl->rows;
  const void *address[4] = {a, b, c, d};
  for (int i = 0; i < 4; i++)
    if ((uintptr_t)address[i] % may.alignment[i] != 0) return CUBLAS_STATUS_INVALID_VALUE;
  if (t->epilogue == CUBLASLT_EPILOGUE_BIAS &&
      (t->bias == NULL || (uintptr_t)t->bias % may.bias_alignment != 0))
    return CUBLAS_STATUS_INVALID_VALUE;
  if (k != kb || dl->rows != m || dl->columns != n || cl->rows != m || cl->columns != n ||
      workspace == NULL || (uintptr_t)workspace % 256 != 0 || workspace_bytes < may.workspace_bytes)
    return CUBLAS_STATUS_INVALID_VALUE;
  const struct emulated_product p = {
      *t, *al, *bl, *cl, *dl,       *(const float *)alpha, *(const float *)beta,
      a,  b,   c,   d,   workspace, workspace_bytes,       m,
      n,  k};
  use_code_of(&p, stream);
  emulated_enqueue(stream, multiply, &p, sizeof p);
  return CUBLAS_STATUS_SUCCESS;
}
