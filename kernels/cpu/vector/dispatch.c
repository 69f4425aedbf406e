/* dispatch.c: lists the functions of one instruction set and dtype. */
#include "kernels/cpu/vector/isa.h"

#define PEN_CPU_VECTOR(kind, name, threads, workspace) [PEN_OP_##kind] = PEN_NAME(name),
#ifndef PEN_STORED_BF16
#define PEN_CPU_VECTOR_F32 PEN_CPU_VECTOR
#endif
const struct pen_vector_kernels PEN_NAME(kernels) = {
    .op =
        {
#include "kernels/cpu/ops.def"
        },
#ifdef PEN_PAIRS
    .multiply = PEN_NAME(multiply),
#endif
#ifndef PEN_STORED_BF16
    .widen_rows = PEN_NAME(widen_rows),
    .narrow_rows = PEN_NAME(narrow_rows),
    .sum_squares = PEN_NAME(sum_squares),
    .max_abs = PEN_NAME(max_abs),
    .adamw_step = PEN_NAME(adamw_step),
    .sgd_step = PEN_NAME(sgd_step),
    .momentum_step = PEN_NAME(momentum_step),
    .combine = PEN_NAME(combine),
    .sum_arrays = PEN_NAME(sum_arrays),
    .normal = PEN_NAME(normal),
    .multiply = PEN_NAME(multiply),
#endif
};
