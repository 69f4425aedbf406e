/* workspace.h: the bytes of call->workspace, by the formulas of the devices' ops.def. */
#ifndef PEN_WORKSPACE_H
#define PEN_WORKSPACE_H

#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The value of a formula (kernels/cpu/ops.def) for a call; 0 if it is null. */
size_t pen_workspace_bytes(const char *formula, enum pen_op_kind kind, enum pen_dtype dtype,
                           const int64_t dim[PEN_DIMS_MAX]);

#ifdef __cplusplus
}
#endif

#endif
