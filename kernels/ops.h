/* ops.h: the operations of ops.def as the generator, the kernels and the runtime know them: kinds,
 * limits and dtypes. It declares no kernel. */
#ifndef PEN_OPS_H
#define PEN_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum {
  PEN_OPERANDS_MAX = 14,
  PEN_DIMS_MAX = 9,
  PEN_REALS_MAX = 6,
  PEN_ALIGNMENT_BYTES = 64, /* of every tensor's address */
  PEN_NORM_BLOCK = 4096,    /* elements summed in f64 before the partial sums are added */
  PEN_IGNORED_TARGET = -100,
  PEN_PRODUCT_BLOCK = 512, /* this and the next four: see cpu/ops.def, matrix products */
  PEN_PRODUCT_DEPTH = 768,
  PEN_PRODUCT_WIDTH = 768,
  PEN_PRODUCT_HEIGHT = 96,
  PEN_PRODUCT_PANEL = 16,
  PEN_CACHED_CHUNK = 16,       /* ATTENTION_CACHED: several tokens begin at a multiple of it */
  PEN_HEAD_CHUNK = 32,         /* rows of a chunk of HEAD_LOSS are a multiple: chunks are aligned */
  PEN_SHARED_NAME_BYTES = 64,  /* of a device allocation's name between processes */
  PEN_DEVICE_ARRAYS_MAX = 256, /* of sum_arrays() on a device: the addresses are launch arguments */
};

/* Rounds up to PEN_ALIGNMENT_BYTES. */
static inline uint64_t pen_aligned(uint64_t bytes) {
  return (bytes + PEN_ALIGNMENT_BYTES - 1) / PEN_ALIGNMENT_BYTES * PEN_ALIGNMENT_BYTES;
}

/* bf16 is the upper half of an f32: 8 bits of exponent, 8 of significand (the first is implicit).
 */
enum pen_dtype {
  PEN_F32,
  PEN_BF16,
  PEN_I32,
  PEN_F64,
  PEN_BF16_PARTIAL, /* of ops alone: of dtype bf16, with results that are partial sums, in f32 */
  PEN_DTYPES
};

/* Bytes of one element; 0 for no dtype. */
static inline uint32_t pen_dtype_bytes(int dtype) {
  static const uint8_t bytes[PEN_DTYPES] = {4, 2, 4, 8, 2};
  return dtype >= 0 && dtype < PEN_DTYPES ? bytes[dtype] : 0;
}

/* The dtype's name in signatures ("f32"); "?" for no dtype. */
static inline const char *pen_dtype_text(int dtype) {
  static const char *const text[PEN_DTYPES] = {"f32", "bf16", "i32", "f64",
                                               "bf16 with sums in f32"};
  return dtype >= 0 && dtype < PEN_DTYPES ? text[dtype] : "?";
}

enum pen_op_kind {
#define PEN_OP(kind, dims, reals, signature, flops, meaning) PEN_OP_##kind,
#define PEN_DATA_OP(kind, dims, reals, signature, flops, meaning) PEN_OP_##kind,
#define PEN_RUNTIME_OP(kind, dims, reals, signature, flops, meaning) PEN_OP_##kind,
#include "kernels/ops.def"
  PEN_OP_COUNT
};

/* The kinds of steps of a program of POINTWISE. */
enum pen_step_kind {
#define PEN_STEP(kind, inputs, gradient_a, gradient_b, gradient_c, value, meaning) PEN_STEP_##kind,
#include "kernels/steps.def"
  PEN_STEP_KINDS
};

enum {
  PEN_STEPS_MAX = 200,         /* of a program: 32 of a description, whose gradient has more */
  PEN_STEP_OPERANDS = 9,       /* that a program reads: the op's, in its order */
  PEN_STEP_GRADIENT = 8,       /* of these dy; before it those that have a gradient */
  PEN_STEP_REGISTERS_MAX = 32, /* results of steps that later steps need */
};

/* A program: step i computes register to[i] from the inputs a[i], b[i] and c[i]: an operand by its
 * number, or PEN_STEP_OPERANDS and the number of a register; an unused input is that before it.
 * CONST has number[i], and a register that no other step writes. The last step, no CONST, makes the
 * result. */
struct pen_steps {
  uint32_t count, register_count;
  const uint8_t *kind, *to, *a, *b, *c;
  const double *number;
};

/* What AdamW needs besides the tensors, the same for all elements of a call (Loshchilov and Hutter
 * 2019). Corrections of bias are 1 - beta^updates (adamw_correction.h). */
struct pen_adamw {
  double learning_rate, beta1, beta2, epsilon, weight_decay;
  double gradient_scale; /* the gradient is multiplied by this first: min(1, clip_norm/(norm +
                            1e-6)) */
  uint64_t updates; /* of the tensor, this one included; in device.h of the tensor with the most */
};

/* The same for SGD with momentum. */
struct pen_sgd {
  double learning_rate, momentum, weight_decay, gradient_scale;
  bool nesterov;
};

/* The same for Muon, and the matrix: its columns are `parts` matrices of equally many, side by
 * side, each of which is updated by itself, with `steps` of NEWTON_SCHULZ. */
struct pen_muon {
  double learning_rate, momentum, weight_decay, gradient_scale;
  bool nesterov;
  size_t rows, columns, parts, steps;
};

#endif
