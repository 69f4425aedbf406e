/* dispatch.c: lists the functions of one instruction set and dtype. */
#include "kernels/cpu/vector/isa.h"

#define PEN_ENTRY(kind, name) [PEN_OP_##kind] = PEN_NAME(name),
const struct pen_vector_kernels PEN_NAME(kernels) = {
#ifdef PEN_STORED_BF16
    .op = {PEN_VECTOR_OPS(PEN_ENTRY)},
#ifdef PEN_PAIRS
    .multiply = PEN_NAME(multiply),
#endif
#else
    .op = {PEN_VECTOR_OPS(PEN_ENTRY)[PEN_OP_ACCUMULATE] = PEN_NAME(accumulate)},
    .widen_rows = PEN_NAME(widen_rows),
    .narrow_rows = PEN_NAME(narrow_rows),
    .sum_squares = PEN_NAME(sum_squares),
    .max_abs = PEN_NAME(max_abs),
    .adamw_step = PEN_NAME(adamw_step),
    .sum_arrays = PEN_NAME(sum_arrays),
    .normal = PEN_NAME(normal),
    .multiply = PEN_NAME(multiply),
#endif
};
