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

/* Chooses code paths by what this CPU has. Call once, before anything else; `threads` is how many
 * threads a call may use. Returns one line that says what was chosen ("avx2; matrix products:
 * ..."), static storage; null when there is no memory for the library's buffers. Allocates. */
const char *pen_kernels_open(int threads);

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

/* Peak rate helper for benches: one product of LINEAR's kind is 2*rows*in*out flops; see ops.def.
 */

/* ---- devices: the CPU, and what stands behind the same operations ----
 *
 * Operands, workspaces and what is marked "there" lie in the device's memory, the rest in the
 * host's. On the CPU both are one, and every call is done when it returns. On a GPU a call only
 * enqueues: it neither waits nor allocates, so that a whole step can be captured as a graph. What
 * fails there shows in error() at the latest after wait().
 */
struct pen_stream_ops;
struct pen_device {
  const char *name;   /* "cpu", "cuda" */
  int (*count)(void); /* of such devices here; 0: none, and error() says why */
  /* Opens the device of that number; once a process. Returns one line that says what was chosen,
   * static storage; null when there is no such device, and error() then says why. Allocates. */
  const char *(*open)(int number);
  /* By a thread that did not open it, before its first call. Null on the CPU. */
  void (*enter)(void);
  /* What went wrong first since open(), in words, static storage; null when nothing did. */
  const char *(*error)(void);
  pen_kernel *(*kernel_of)(enum pen_op_kind kind, enum pen_dtype dtype); /* as pen_kernel_of() */
  void *(*prepare)(enum pen_op_kind kind, enum pen_dtype dtype, const int64_t dim[PEN_DIMS_MAX],
                   const double real[PEN_REALS_MAX]);
  /* The bytes that call->workspace must have on this device; after open(). */
  size_t (*workspace_bytes)(enum pen_op_kind kind, enum pen_dtype dtype,
                            const int64_t dim[PEN_DIMS_MAX]);
  /* Memory there, aligned to at least 256 bytes; null when there is not so much. Before the seal,
   * one block a rank. */
  void *(*allocate)(size_t bytes);
  void (*release)(void *there);
  void *(*stream_open)(
      void); /* a queue of calls, run in order; before the seal; null: see error() */
  void (*copy_in)(void *there, const void *here, size_t bytes, void *stream);
  void (*copy_out)(void *here, const void *there, size_t bytes, void *stream);
  void (*zero)(void *there, size_t bytes, void *stream);
  void (*wait)(void *stream); /* until all that was put on the stream is done */
  /* As pen_sum_squares() and with its bits; the sum is one f64 there. Workspace: 8 bytes for each
   * block of PEN_NORM_BLOCK. */
  void (*sum_squares)(double *sum, const float *x, size_t count, void *workspace, void *stream);
  /* *sum = the sum of x[count], in rising order; all there. */
  void (*sum_doubles)(double *sum, const double *x, size_t count, void *stream);
  /* As pen_max_abs(), likewise. */
  void (*max_abs)(double *greatest, const float *x, size_t count, void *workspace, void *stream);
  /* As pen_adamw_step(); the settings lie there, but for the weight decay. With the scale NaN
   * parameters and moments stay as they are. `copy`, or null, becomes the parameters as bf16, with
   * pen_f32_to_bf16()'s bits. */
  void (*adamw_step)(float *parameter, float *gradient, float *exp_avg, float *exp_avg_sq,
                     uint16_t *copy, size_t count, const struct pen_adamw *settings,
                     double weight_decay, void *stream);
  void (*narrow)(uint16_t *to, const float *from, size_t count,
                 void *stream); /* as pen_f32_to_bf16(), and with its bits */
  /* As pen_normal(), and with its bits; the key lies here. */
  void (*normal)(float *y, size_t count, uint64_t first, const uint32_t key[2], double deviation,
                 void *stream);
  /* As pen_sum_arrays(), and with its bits; the addresses lie here, arrays <=
   * PEN_DEVICE_ARRAYS_MAX. */
  void (*sum_arrays)(float *y, const float *const *x, size_t arrays, size_t count, void *stream);
  /* What UPDATE needs, there: *settings is `base` with the gradients' scale that follows from their
   * norm: the root of the sum of the entries of `board`, or the greatest of them. Entry i of part p
   * is board[p * stride + i]; they are added by rising i, those of one i from part i mod parts on.
   * A norm that is not finite gives the scale NaN. clip_norm 0: scale 1, the board is not read. */
  void (*settle)(struct pen_adamw *settings, const struct pen_adamw *base, const double *board,
                 size_t count, size_t parts, size_t stride, double clip_norm, int greatest,
                 void *stream);
  /* Order between calls, for devices that only enqueue; null on the CPU. */
  const struct pen_stream_ops *order;
};

/* How a host that runs ahead of its device says what comes before what. Nothing waits but reached()
 * and what says so. A word is a u32 in the device's memory, or in pinned memory. */
struct pen_stream_ops {
  void *(*pinned)(
      size_t bytes); /* host memory that the device reaches; null: see error(). Before the seal */
  void (*copy)(void *to, const void *from, size_t bytes,
               void *stream);                /* both there, or in what reach() gave */
  void *(*event_open)(void);                 /* before the seal; null: see error() */
  void (*record)(void *event, void *stream); /* the event is what is on the stream by now */
  void (*follow)(void *stream,
                 void *event); /* what comes on the stream from here on waits for the event */
  int (*reached)(
      void *event); /* 1 when it is done, or nothing more will be: see error(); does not wait */
  void (*mark)(
      void *word, uint32_t value,
      void *stream); /* writes an own word when all before on the stream is done and seen */
  void (*mark_far)(void *word, void *stream); /* likewise, makes 1 of a word in what reach() gave */
  void (*await)(
      void *word, uint32_t value,
      void *stream); /* what comes after waits until the word has the value; no kernel spins */
  /* Between the two, calls on the stream, and on streams that follow its events, are kept and not
   * run. captured() gives them as one graph to replay; null when they cannot be one, with the
   * reason in *why (static storage), and error() is as it was before. Before the seal, or in the
   * first step: both may allocate. */
  void (*capture)(void *stream);
  void *(*captured)(void *stream, const char **why);
  void (*replay)(void *graph, void *stream);
  void (*drop)(void *graph); /* one that is not to be replayed */
  /* Memory there that another process on this host may write: the name of a block of allocate(),
   * and its address in this process. */
  int (*share)(void *there, unsigned char name[PEN_SHARED_NAME_BYTES]); /* 0: see error() */
  void *(*reach)(const unsigned char name[PEN_SHARED_NAME_BYTES]);      /* null: see error() */
};

extern const struct pen_device pen_cpu;
extern const struct pen_device pen_cuda; /* in libkernels_cuda.a alone */

#ifdef __cplusplus
}
#endif

#endif
