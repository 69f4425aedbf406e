/* kernels.h: the functions of the operations of ops.def, and those of the CPU backend. They know
 * shapes, never ranks, microbatches or schedules.
 *
 * An operation has one function of type pen_kernel for each dtype that it supports. call->operand
 * has the operands in the order of the operation's signature in ops.def, which states shapes,
 * dtypes, meaning and source. Tensors are row-major, 64-byte aligned, and do not overlap unless the
 * signature allows an output to be an input ("@").
 *
 * Bits: a result depends on the operands' values and dims alone, not on addresses, threads or
 * earlier calls. Allocation: after pen_kernels_prepare() of an op, calling it allocates nothing,
 * except inside of a library.
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
  void *operand[PEN_OPERANDS_MAX]; /* null if an operand with "?" is absent */
  int64_t dim[PEN_DIMS_MAX];
  double real[PEN_REALS_MAX];
  struct pen_steps steps; /* of POINTWISE and POINTWISE_DX */
  void *workspace;        /* the op's workspace bytes, 64-byte aligned; null if it needs none */
  void *prepared;
  void *stream; /* of the device: the call is enqueued on it; null if calls run at once */
};

typedef void pen_kernel(const struct pen_call *call);

/* Chooses the kernels for this CPU. Call once, before all others. Returns one line that says what
 * was chosen ("avx2; matrix products: ..."), static storage; null: no memory for the library's
 * buffers. Allocates. */
const char *pen_kernels_open(void);

/* The instruction sets that this CPU supports, best first, as PEN_ISA names them; null past the
 * last one. Static storage. */
const char *pen_instruction_set_name(size_t index);

/* Starts the threads that share the work of each kernel called by this thread, itself included;
 * they end with the process. Call at most once, after the process is bound to its cores, before
 * pen_kernels_open() and all else whose size depends on it. Returns whether all have started: not
 * without OpenMP, or above its limit. Allocates. */
int pen_threads_open(size_t threads);

/* How many there are: 1 before pen_threads_open(). */
size_t pen_threads_count(void);

/* Calls `run` once in each of them. */
void pen_threads_call(void (*run)(void));

/* The function of an operation for a dtype (PEN_F32, or PEN_BF16 if its signature has a ":t"); null
 * for a data op. Valid after pen_kernels_open(). */
pen_kernel *pen_kernel_of(enum pen_op_kind kind, enum pen_dtype dtype);

/* Prepares an op for calls with these dims, before the seal: creates library primitives and
 * buffers. Returns call->prepared (may be null). May allocate. */
void *pen_kernels_prepare(enum pen_op_kind kind, enum pen_dtype dtype,
                          const int64_t dim[PEN_DIMS_MAX], const double real[PEN_REALS_MAX]);

/* The kind of op that HEAD_LOSS or HEAD_LOSS_COLUMNS calls for the loss of each chunk of rows, in
 * rising order; PEN_OP_COUNT: the op is none of these. */
enum pen_op_kind pen_head_loss_calls(enum pen_op_kind kind);

/* Replaces that op by `run` with `own` in call->prepared, to read the loss of each row. `head` is
 * what a device prepared for HEAD_LOSS or HEAD_LOSS_COLUMNS; *kernel and *was receive the previous
 * function and its call->prepared. */
void pen_head_loss_replace(void *head, pen_kernel *run, void *own, pen_kernel **kernel, void **was);

/* to[i] = from[i] as bf16, rounded to nearest, ties to even; a NaN stays a NaN. They do not
 * overlap. */
void pen_f32_to_bf16(uint16_t *to, const float *from, size_t count);
/* to[i] = from[i], exact. */
void pen_bf16_to_f32(float *to, const uint16_t *from, size_t count);

/* Sum of squares of x[count] in f64: one sum for each block of PEN_NORM_BLOCK elements, added in
 * rising order. A tensor that is split between blocks has the same bits. Not finite if an input is
 * not. */
double pen_sum_squares(const float *x, size_t count);

/* The maximum of |x[i]|; 0 if count is 0; NaN if any x[i] is. It does not depend on how a tensor is
 * split. */
double pen_max_abs(const float *x, size_t count);

/* y[i] = x[0][i] + x[1][i] + ... + x[arrays-1][i], added in that order, in f32. y may be one of the
 * inputs. */
void pen_sum_arrays(float *y, const float *const *x, size_t arrays, size_t count);

/* One AdamW step on `count` elements, in f32: g *= gradient_scale; m = beta1 m + (1-beta1) g; v =
 * beta2 v + (1-beta2) g^2; p *= 1 - learning_rate weight_decay; p -= learning_rate
 * (m/(1 - beta1^n))/(sqrt(v/(1 - beta2^n)) + epsilon), with n = settings->updates; then g = 0. An
 * element keeps p, m and v if g or g^2 is not finite, so that no gradient spoils a weight even if
 * clip_norm is 0, or if the divisor is 0 (v and epsilon 0). Bits do not depend on how a tensor is
 * split. */
void pen_adamw_step(float *parameter, float *gradient, float *exp_avg, float *exp_avg_sq,
                    size_t count, const struct pen_adamw *settings);

/* One step of SGD on `count` elements, in f32: g *= gradient_scale; b = momentum b + g; u = b, or
 * with nesterov g + momentum b; p *= 1 - learning_rate weight_decay; p -= learning_rate u; then g =
 * 0. `buffer`, that has b, is null if momentum is 0. An element keeps p and b if u is not finite.
 * Bits do not depend on how a tensor is split. */
void pen_sgd_step(float *parameter, float *gradient, float *buffer, size_t count,
                  const struct pen_sgd *settings);

/* A piece of a matrix: of each of its parts these rows and columns, part beside part, without gaps.
 */
struct pen_muon_piece {
  float *parameter, *gradient, *buffer;
  size_t first_row, rows, first_column, columns;
};

/* One step of Muon (Jordan et al. 2024) on a matrix, in f32, in three calls; the settings are those
 * of the matrix. Bits do not depend on how it is cut into pieces.
 *
 * Of each piece g becomes u, as pen_sgd_step() has it, and b; where u is not finite it counts as 0,
 * and b stays. */
void pen_muon_momentum(const struct pen_muon_piece *piece, const struct pen_muon *settings);
/* Of all pieces together g becomes U: of each part, transposed if it has more rows than columns,
 * NEWTON_SCHULZ(u). Workspace: the elements of a part, aligned, and that of NEWTON_SCHULZ. */
void pen_muon_orthogonalize(const struct pen_muon_piece *piece, size_t piece_count,
                            const struct pen_muon *settings, void *workspace);
/* Of each piece p *= 1 - learning_rate weight_decay; p -= learning_rate .2 sqrt(max(rows, columns
 * of the part)) g (Liu et al. 2025); then g = 0. */
void pen_muon_apply(const struct pen_muon_piece *piece, const struct pen_muon *settings);

/* y[i] = deviation * n(key, first + i), n standard normal: Philox4x32-10 (Salmon et al. 2011) on a
 * 128-bit counter, Box-Muller in f64. A value depends on the index first + i alone. */
void pen_normal(float *y, size_t count, uint64_t first, const uint32_t key[2], double deviation);

/* The value of a formula of kernels/cpu/ops.def or kernels/cuda/ops.def for a call, whose
 * workspace has so many bytes; 0 if it is null. */
size_t pen_workspace_bytes(const char *formula, enum pen_op_kind kind, enum pen_dtype dtype,
                           const int64_t dim[PEN_DIMS_MAX]);

/* The devices (device.h). */
struct pen_device;
extern const struct pen_device pen_cpu;
extern const struct pen_device pen_cuda; /* in libkernels_cuda.a */

#ifdef __cplusplus
}
#endif

#endif
