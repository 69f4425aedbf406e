/* row_ops.h: ops whose rows, or elements, do not depend on each other: their calls are divided over
 * the threads into calls of fewer rows. */
#ifndef PEN_ROW_OPS_H
#define PEN_ROW_OPS_H

#include "kernels/kernels.h"

/* The function that divides calls of an op between calls of `kernel`; `kernel` itself if the op is
 * none of these, if it is null, or with one thread. */
pen_kernel *pen_row_op(enum pen_op_kind kind, enum pen_dtype dtype, pen_kernel *kernel);

#endif
