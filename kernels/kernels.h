/* kernels.h: what a device backend offers. It knows shapes, never ranks, microbatches or schedules.
 *
 * Every operation of ops.def is one function of the same type for each dtype that it may have; its
 * operands stand in call->operand in the order of its signature there, which also states shapes,
 * dtypes, meaning and source. Tensors are row-major, 64-byte aligned, and do not overlap but where
 * the signature allows an output to lie on an input ("@").
 *
 * Bits: a kernel's result depends on its operands' values and dims alone: not on addresses,
 * threads, or earlier calls. Allocation: after pen_kernels_prepare() of an op, calling it allocates
 * nothing in our code.
 */
#ifndef PEN_KERNELS_H
#define PEN_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One call of one operation. `prepared` is what pen_kernels_prepare() returned for these dims. */
struct pen_call {
  void *operand[PEN_OPERANDS_MAX]; /* null where the signature's "?" operand is absent */
  int64_t dim[PEN_DIMS_MAX];
  double real[PEN_REALS_MAX];
  void *workspace; /* the op's workspace bytes, 64-byte aligned; null when it wants none */
  void *prepared;
  void *stream; /* of the device: the call is put there, behind what came before; null where calls
                   run at once */
};

typedef void pen_kernel(const struct pen_call *call);

/* Chooses the kernels for this CPU. Call once, before all others. Returns one line that says what
 * was chosen ("avx2; matrix products: ..."), static storage; null: no memory for the library's
 * buffers. Allocates. */
const char *pen_kernels_open(void);

/* The function of an operation for its dtype (PEN_F32, or PEN_BF16 where its signature has a ":t"),
 * or null for a data op. Valid after pen_kernels_open(). */
pen_kernel *pen_kernel_of(enum pen_op_kind kind, enum pen_dtype dtype);

/* Readies one op for calls with these dims: the library's primitives and buffers are made here,
 * before the seal. Returns what must stand in call->prepared (may be null). May allocate. */
void *pen_kernels_prepare(enum pen_op_kind kind, enum pen_dtype dtype,
                          const int64_t dim[PEN_DIMS_MAX], const double real[PEN_REALS_MAX]);

/* For who wants each row's loss: puts another function in the place of the CROSS_ENTROPY that
 * HEAD_LOSS calls for each chunk of rows, in rising order: `run`, with `own` in call->prepared.
 * `head` is what a device prepared for HEAD_LOSS; *kernel and *was get what was there. */
void pen_head_loss_replace(void *head, pen_kernel *run, void *own, pen_kernel **kernel, void **was);

/* to[i] = from[i] as bf16, to the nearest, ties to even; what is not a number stays so. How the
 * copies are made that products read of f32 weights. They do not overlap. */
void pen_f32_to_bf16(uint16_t *to, const float *from, size_t count);
/* to[i] = from[i], which is exact. */
void pen_bf16_to_f32(float *to, const uint16_t *from, size_t count);

/* Sum of squares of x[count] in f64: each block of PEN_NORM_BLOCK elements by itself, the blocks'
 * sums in rising order. A tensor cut at block bounds thus sums to the same bits. Not finite input
 * gives a not finite sum. */
double pen_sum_squares(const float *x, size_t count);

/* The greatest |x[i]| of x[count], 0 for none; NaN when any is. It does not depend on how a tensor
 * is cut. */
double pen_max_abs(const float *x, size_t count);

/* y[i] = x[0][i] + x[1][i] + ... + x[arrays-1][i], added in that order, in f32. y may be one of
 * them. */
void pen_sum_arrays(float *y, const float *const *x, size_t arrays, size_t count);

/* One AdamW step on count elements: g *= scale; m = beta1 m + (1-beta1) g; v = beta2 v + (1-beta2)
 * g^2; p *= 1 - lr weight_decay; p -= lr (m/correction1)/(sqrt(v/correction2) + epsilon); then g =
 * 0 for the next step. An element whose g is not finite, or too great to be squared, keeps p, m and
 * v: no gradient can spoil a weight, also where nobody knows the norm in time (clip_norm 0). So
 * does one that would be divided by 0 (v and epsilon 0). All f32, element by element: bits do not
 * depend on how a tensor is cut. */
void pen_adamw_step(float *parameter, float *gradient, float *exp_avg, float *exp_avg_sq,
                    size_t count, const struct pen_adamw *settings);

/* y[i] = deviation * n(key, first + i), n a standard normal: Philox4x32-10 (Salmon et al. 2011) on
 * a 128-bit counter, Box-Muller in f64. The value of an index does not depend on first or count. */
void pen_normal(float *y, size_t count, uint64_t first, const uint32_t key[2], double deviation);

/* The devices (device.h); CUDA's is in libkernels_cuda.a. */
struct pen_device;
extern const struct pen_device pen_cpu;
extern const struct pen_device pen_cuda; /* in libkernels_cuda.a alone */

#ifdef __cplusplus
}
#endif

#endif
