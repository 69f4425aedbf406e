/* matmul.c: LINEAR, AFFINE and their _DX and _DW in f32: six matrix products, by vector/product.c
 * if the CPU has AVX2 or AVX-512, else by OpenBLAS, which is loaded at run time, not linked: a
 * binary runs without it.
 *
 * Measured on an AMD EPYC (Zen 3, AVX2, 2 cores), one thread, 1024 rows, GFLOP/s; the peak of
 * multiply-adds is 97. OpenBLAS 0.3.21, BLIS 0.9.0, oneDNN 2.6.3 (dnnl_sgemm): medians of nine
 * runs, both cores busy. "own": rate of vector/product.c over OpenBLAS's, median of 31 pairs by
 * turns.
 *
 *     in, out      LINEAR (NT)            LINEAR_DX (NN)         LINEAR_DW (TN, added)
 *               OpenB BLIS oneDNN own   OpenB BLIS oneDNN own   OpenB BLIS oneDNN own
 *     256, 256   87.2 92.7 93.8  1.14    88.8 91.1 83.5  1.15    90.9 63.5 70.3  1.03
 *     256, 128   86.6 81.9 93.8  1.14    83.5 87.3 85.6  1.13    89.1 62.7 71.3  1.03
 *     256, 704   88.7 93.0 94.7  1.09    90.8 89.7 85.6  1.10    90.5 88.6 79.9  1.09
 *     704, 256   88.7 90.0 88.7  1.12    90.1 92.1 93.9  1.11    83.8 68.0 78.8  1.02
 *     256, 4096  85.4 88.6 92.4  1.08    86.8 86.9 81.4  1.08    85.3 80.9 35.9  1.11
 *     512, 1408  89.0 87.3 88.8    -     86.9 87.6 87.4    -     86.4 86.1 86.1    -
 *
 * Weighted by their share of a step: 1.095; on an AMD EPYC (Zen 4, AVX-512) 1.10, by shape 1.01 to
 * 1.18. Not measured without AVX2. OpenBLAS is equally fast in all three layouts, where the other
 * libraries lose a third or more on the weight gradient. It copies both factors and clears the
 * result, which a product that knows its shapes mostly avoids.
 *
 * One thread: with two, 7% of the elements differ in OpenBLAS, and kernels.h states that bits do
 * not depend on threads.
 */
#include "config.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "kernels/cpu/cpu.h"

/* The CBLAS interface: enumerators of cblas.h; what is used of the library. */
enum { ROW_MAJOR = 101, NO_TRANSPOSE = 111, TRANSPOSE = 112 };
typedef void sgemm_function(int order, int left_transpose, int right_transpose, int m, int n, int k,
                            float factor, const float *left, int left_row, const float *right,
                            int right_row, float addend_factor, float *result, int result_row);
static sgemm_function *cblas_sgemm;

/* OpenBLAS retries without end if it gets no packing buffer: check first that there is memory. */
enum { BUFFER_BYTES_MIN = 64 << 20 };

static int has_memory(void) {
  void *probe = mmap(NULL, BUFFER_BYTES_MIN, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return probe != MAP_FAILED && munmap(probe, BUFFER_BYTES_MIN) == 0;
}

/* The addend is copied to the result, to which the library adds. */
static void multiply_by_library(const struct pen_product *p) {
  if (p->addend && p->addend != p->result)
    for (size_t i = 0; i < p->m; i++)
      memcpy(p->result + i * p->result_row, p->addend + i * p->result_row,
             p->n * sizeof *p->result);
  cblas_sgemm(ROW_MAJOR, p->left.transposed ? TRANSPOSE : NO_TRANSPOSE,
              p->right.transposed ? TRANSPOSE : NO_TRANSPOSE, (int)p->m, (int)p->n, (int)p->k, 1.0f,
              p->left.at, (int)p->left.row, p->right.at, (int)p->right.row, p->addend ? 1.0f : 0.0f,
              p->result, (int)p->result_row);
}

pen_multiply *pen_multiply_f32;

/* Loads OpenBLAS, once: the file that configure found, else the loader's. Returns its name, static
 * storage; null: it is not installed. */
static const char *load_library(void) {
  static char name[80];
  if (*name) return name;
  setenv("OPENBLAS_NUM_THREADS", "1",
         1); /* or it starts a thread for each core when it is loaded */
  void *handle = dlopen(PEN_OPENBLAS, RTLD_NOW | RTLD_LOCAL);
  if (!handle) handle = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
  if (!handle || !(cblas_sgemm = (sgemm_function *)dlsym(handle, "cblas_sgemm"))) return NULL;
  void (*set_threads)(int) = (void (*)(int))dlsym(handle, "openblas_set_num_threads");
  char *(*core_name)(void) = (char *(*)(void))dlsym(handle, "openblas_get_corename");
  if (set_threads) set_threads(1);
  snprintf(name, sizeof name, "OpenBLAS%s%s", core_name ? " for " : "",
           core_name ? core_name() : "");
  return name;
}

const char *pen_matmul_open(pen_multiply *own, int by_library) {
  const char *name = by_library ? load_library() : NULL;
  pen_multiply_f32 = name ? multiply_by_library : own;
  if (!name) return by_library ? "own, since OpenBLAS is not installed" : "own";
  if (!has_memory()) return NULL;
  /* The first product makes OpenBLAS map its packing buffer, once for all shapes: do it before the
   * seal. */
  float a[64] = {0}, b[64] = {0}, c[64];
  cblas_sgemm(ROW_MAJOR, NO_TRANSPOSE, TRANSPOSE, 8, 8, 8, 1.0f, a, 8, b, 8, 0.0f, c, 8);
  return name;
}

const struct pen_product_geometry pen_product_geometries[PEN_PRODUCTS] = {
    /* y[rows,out] = x[rows,in] w[out,in]^T + a;  dx = dy w + a;  dw += dy^T x */
    {PEN_OP_LINEAR, PEN_ROWS, PEN_OUT, PEN_IN, 0, PEN_IN, 0, 1, PEN_IN, 1, PEN_NO_BIAS, 2, 3, 0},
    {PEN_OP_LINEAR_DX, PEN_ROWS, PEN_IN, PEN_OUT, 0, PEN_OUT, 0, 1, PEN_IN, 0, PEN_NO_BIAS, 2, 3,
     0},
    {PEN_OP_LINEAR_DW, PEN_OUT, PEN_IN, PEN_ROWS, 0, PEN_OUT, 1, 1, PEN_IN, 0, PEN_NO_BIAS, 2, 2,
     1},
    /* y[rows,out] = x[rows,in] w[in,out] + (a + bias);  dx = dy w^T + a;  dw += x^T dy */
    {PEN_OP_AFFINE, PEN_ROWS, PEN_OUT, PEN_IN, 0, PEN_IN, 0, 1, PEN_OUT, 0, 2, 3, 4, 0},
    {PEN_OP_AFFINE_DX, PEN_ROWS, PEN_IN, PEN_OUT, 0, PEN_OUT, 0, 1, PEN_OUT, 1, PEN_NO_BIAS, 2, 3,
     0},
    {PEN_OP_AFFINE_DW, PEN_IN, PEN_OUT, PEN_ROWS, 1, PEN_IN, 1, 0, PEN_OUT, 0, PEN_NO_BIAS, 2, 2,
     1},
};

static void multiply_f32(const struct pen_call *call, enum pen_product_kind kind) {
  const struct pen_product_geometry *g = &pen_product_geometries[kind];
  struct pen_product p = {.left = pen_product_left(call, g),
                          .right = pen_product_right(call, g),
                          .addend = call->operand[g->addend],
                          .result = call->operand[g->result],
                          .result_row = (size_t)call->dim[g->n],
                          .m = (size_t)call->dim[g->m],
                          .n = (size_t)call->dim[g->n],
                          .k = (size_t)call->dim[g->k],
                          .workspace = call->workspace};
  if (g->bias != PEN_NO_BIAS) {
    const float *bias = call->operand[g->bias], *a = p.addend;
    for (size_t r = 0, at = 0; r < p.m; r++)
      for (size_t i = 0; i < p.n; i++, at++) p.result[at] = a ? a[at] + bias[i] : bias[i];
    p.addend = p.result;
  }
  pen_multiply_f32(&p);
}

void pen_linear(const struct pen_call *call) { multiply_f32(call, PEN_LINEAR); }
void pen_linear_dx(const struct pen_call *call) { multiply_f32(call, PEN_LINEAR_DX); }
void pen_linear_dw(const struct pen_call *call) { multiply_f32(call, PEN_LINEAR_DW); }
void pen_affine(const struct pen_call *call) { multiply_f32(call, PEN_AFFINE); }
void pen_affine_dx(const struct pen_call *call) { multiply_f32(call, PEN_AFFINE_DX); }
void pen_affine_dw(const struct pen_call *call) { multiply_f32(call, PEN_AFFINE_DW); }
