/* head_loss.h: HEAD_LOSS, HEAD_LOSS_DW and HEAD_LOSS_B, the same ops of a split of the vocabulary,
 * and TOKEN_LOGP with its gradients, for any device, by its LINEAR, CROSS_ENTROPY or LOGP,
 * LINEAR_DX and LINEAR_DW (head_loss.c).
 */
#ifndef PEN_HEAD_LOSS_H
#define PEN_HEAD_LOSS_H

#include "kernels/device.h"

bool pen_is_head_loss(enum pen_op_kind kind); /* one of these */

/* Returns call->prepared; null: no memory, or the device notes an error. */
void *pen_head_loss_prepare(const struct pen_device *device, enum pen_op_kind kind,
                            enum pen_dtype dtype, const int64_t dim[PEN_DIMS_MAX]);
/* The bytes of call->workspace. */
size_t pen_head_loss_workspace(const struct pen_device *device, enum pen_op_kind kind,
                               enum pen_dtype dtype, const int64_t dim[PEN_DIMS_MAX]);
pen_kernel pen_head_loss; /* any of them */

#endif
