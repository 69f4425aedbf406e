/* onednn.h: products of bf16 by the CPU's own instructions (AVX512_BF16, AMX), by way of oneDNN,
 * where both are there. It is taken for AMX, and where PEN_PRODUCTS says so; with AVX512_BF16 alone
 * our own are faster (product_pairs.c).
 *
 * oneDNN is not linked: a CPU that has no use for it does not load it, and a binary runs where it
 * is absent. configure looks for its header (version 2; --without-onednn: do not). The library
 * picks its code by the CPU and the shape. */
#ifndef PEN_CPU_ONEDNN_H
#define PEN_CPU_ONEDNN_H

#include "kernels/kernels.h"

/* Whether this CPU multiplies bf16, so that the library can be told to. */
int pen_onednn_suits_cpu(void);

/* Loads the library. Returns its name and version, static storage; null: it is not here, or was not
 * when this was configured. Once. */
const char *pen_onednn_open(void);

/* Readies LINEAR, AFFINE, their _DX or _DW for these dims, of a dtype (of f32 too, for tests).
 * Where the library cannot, calls run `otherwise` instead; null: then returns null. Allocates, and
 * grows the scratchpad that all share; without memory the program ends. */
void *pen_onednn_prepare(enum pen_op_kind kind, enum pen_dtype dtype,
                         const int64_t dim[PEN_DIMS_MAX], pen_kernel *otherwise);

/* Any of these six, with what pen_onednn_prepare() returned in call->prepared; what is added may
 * lie in the result's place. The library itself makes some small allocations a call. */
pen_kernel pen_onednn_product;

#endif
