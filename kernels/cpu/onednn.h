/* onednn.h: bf16 products by oneDNN, with the CPU's instructions for bf16 (AVX512_BF16, AMX). It is
 * used for AMX, and if PEN_PRODUCTS=library; with AVX512_BF16 alone vector/product_pairs.c is
 * faster.
 *
 * oneDNN is loaded at run time, not linked: a binary runs without it. configure looks for its
 * header (version 2; --without-onednn disables it). The library chooses its code by the CPU and the
 * shape.
 */
#ifndef PEN_ONEDNN_H
#define PEN_ONEDNN_H

#include "kernels/kernels.h"

/* Does this CPU have instructions for bf16 products? */
int pen_onednn_suits_cpu(void);

/* Loads the library, once. Returns its name and version, static storage; null: it is not installed,
 * or configure did not find its header. */
const char *pen_onednn_open(void);

/* Prepares LINEAR, AFFINE, their _DX or _DW for these dims and a dtype (also f32, for tests). If
 * `falls_back` is set, the library does not support them, or the weight is split, calls run
 * `fallback`; if that is null, returns null. Allocates, and grows the shared scratchpad; ends the
 * program without memory. */
void *pen_onednn_prepare(enum pen_op_kind kind, enum pen_dtype dtype,
                         const int64_t dim[PEN_DIMS_MAX], pen_kernel *fallback, int falls_back);

/* Runs any of these six; pen_onednn_prepare() returned call->prepared. The addend may be the
 * result. The library itself makes small allocations in each call. */
pen_kernel pen_onednn_product;

#endif
