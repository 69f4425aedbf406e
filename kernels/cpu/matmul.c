/* matmul.c: LINEAR, AFFINE and their _DX and _DW: matrix products, done by OpenBLAS for every shape.
 *
 * Measured on an AMD EPYC (Zen 3, AVX2, 2 cores), one thread, 1024 rows, GFLOP/s of f32, both cores at work, medians of nine
 * runs side by side (OpenBLAS 0.3.21, BLIS 0.9.0, oneDNN 2.6.3: dnnl_sgemm; its matmul primitive is within 7% of that). A loop
 * of nothing but multiply-adds reached 97 on a noisier day.
 *
 *     in, out      LINEAR (NT)               LINEAR_DX (NN)            LINEAR_DW (TN, added)
 *                  OpenBLAS  BLIS  oneDNN    OpenBLAS  BLIS  oneDNN    OpenBLAS  BLIS  oneDNN
 *     256, 256         87.2  92.7    93.8        88.8  91.1    83.5        90.9  63.5    70.3
 *     256, 128         86.6  81.9    93.8        83.5  87.3    85.6        89.1  62.7    71.3
 *     256, 704         88.7  93.0    94.7        90.8  89.7    85.6        90.5  88.6    79.9
 *     704, 256         88.7  90.0    88.7        90.1  92.1    93.9        83.8  68.0    78.8
 *     256, 4096        85.4  88.6    92.4        86.8  86.9    81.4        85.3  80.9    35.9
 *     512, 1408        89.0  87.3    88.8        86.9  87.6    87.4        86.4  86.1    86.1
 *
 * OpenBLAS is level over all three layouts, where the others lose a third and more on the weight gradient. oneDNN for LINEAR
 * alone would win 5% of a third of the time, and cost mallocs (four a dnnl_sgemm, OpenBLAS none) and a C++ library with OpenMP:
 * not worth it. Weights packed beforehand in oneDNN's own format reach 93 in LINEAR and 88 to 95 (but 85 for 256, 4096) in
 * LINEAR_DX. OpenBLAS picks its kernels by the CPU at load time (AVX-512 ones where there are) and packs into a buffer of its
 * own that it maps once.
 *
 * One thread always: with two, 7% of the elements of such products come out with other bits, and kernels.h promises that bits do
 * not depend on threads. Link the sequential build (Debian: libopenblas-serial-dev): the other one starts a thread for each core
 * when it is loaded, whatever it is told later.
 */
#include <cblas.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "kernels/cpu/cpu.h"

/* OpenBLAS's own; weak, so that another BLAS links too. */
extern void openblas_set_num_threads(int threads) __attribute__((weak));
extern char *openblas_get_corename(void) __attribute__((weak));

/* OpenBLAS asks for its packing buffer again and again when it gets none: ask first whether there is so much. */
enum { BUFFER_BYTES_MIN = 64 << 20 };

static int has_room(void) {
  void *probe = mmap(NULL, BUFFER_BYTES_MIN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return probe != MAP_FAILED && munmap(probe, BUFFER_BYTES_MIN) == 0;
}

const char *pen_matmul_open(void) {
  static char name[80] = "CBLAS";
  if (!has_room())
    return NULL;
  if (openblas_set_num_threads)
    openblas_set_num_threads(1);
  if (openblas_get_corename)
    snprintf(name, sizeof name, "OpenBLAS for %s", openblas_get_corename());
  /* The first product makes OpenBLAS map its packing buffer, once and for all shapes: do it before the seal. */
  float a[64] = {0}, b[64] = {0}, c[64];
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, 8, 8, 8, 1.0f, a, 8, b, 8, 0.0f, c, 8);
  return name;
}

/* The addend goes where the product comes; returns the factor of what is already there. */
static float place(float *y, const float *addend, size_t count) {
  if (!addend)
    return 0.0f;
  if (addend != y)
    memcpy(y, addend, count * sizeof *y);
  return 1.0f;
}

/* y[rows,out] = x[rows,in] w[out,in]^T + a */
void pen_linear(const struct pen_call *call) {
  const int rows = (int)call->dim[0], in = (int)call->dim[1], out = (int)call->dim[2];
  const float *x = call->operand[0], *w = call->operand[1];
  float *y = call->operand[3];
  const float beta = place(y, call->operand[2], (size_t)rows * (size_t)out);
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, rows, out, in, 1.0f, x, in, w, in, beta, y, out);
}

/* dx[rows,in] = dy[rows,out] w[out,in] + a */
void pen_linear_dx(const struct pen_call *call) {
  const int rows = (int)call->dim[0], in = (int)call->dim[1], out = (int)call->dim[2];
  const float *dy = call->operand[0], *w = call->operand[1];
  float *dx = call->operand[3];
  const float beta = place(dx, call->operand[2], (size_t)rows * (size_t)in);
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, rows, in, out, 1.0f, dy, out, w, in, beta, dx, in);
}

/* dw[out,in] += dy[rows,out]^T x[rows,in] */
void pen_linear_dw(const struct pen_call *call) {
  const int rows = (int)call->dim[0], in = (int)call->dim[1], out = (int)call->dim[2];
  const float *dy = call->operand[0], *x = call->operand[1];
  float *dw = call->operand[2];
  cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, out, in, rows, 1.0f, dy, out, x, in, 1.0f, dw, in);
}

/* The same three with a weight that stands the other way round, w[in,out], and a bias: y = x w + (a + bias) */
void pen_affine(const struct pen_call *call) {
  const int rows = (int)call->dim[0], in = (int)call->dim[1], out = (int)call->dim[2];
  const float *x = call->operand[0], *w = call->operand[1], *bias = call->operand[2], *a = call->operand[3];
  float *y = call->operand[4];
  for (size_t r = 0; r < (size_t)rows; r++)
    for (size_t i = 0, at = r * (size_t)out; i < (size_t)out; i++, at++)
      y[at] = a ? a[at] + bias[i] : bias[i];
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, rows, out, in, 1.0f, x, in, w, out, 1.0f, y, out);
}

/* dx[rows,in] = dy[rows,out] w[in,out]^T + a */
void pen_affine_dx(const struct pen_call *call) {
  const int rows = (int)call->dim[0], in = (int)call->dim[1], out = (int)call->dim[2];
  const float *dy = call->operand[0], *w = call->operand[1];
  float *dx = call->operand[3];
  const float beta = place(dx, call->operand[2], (size_t)rows * (size_t)in);
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, rows, in, out, 1.0f, dy, out, w, out, beta, dx, in);
}

/* dw[in,out] += x[rows,in]^T dy[rows,out] */
void pen_affine_dw(const struct pen_call *call) {
  const int rows = (int)call->dim[0], in = (int)call->dim[1], out = (int)call->dim[2];
  const float *dy = call->operand[0], *x = call->operand[1];
  float *dw = call->operand[2];
  cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, in, out, rows, 1.0f, x, in, dy, out, 1.0f, dw, out);
}
