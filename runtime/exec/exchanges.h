/* exchanges.h: the ops that exchange values between the tensor ranks of a rank (kernels/ops.def,
 * "exchanges of tensor ranks"). */
#ifndef PEN_EXEC_EXCHANGES_H
#define PEN_EXEC_EXCHANGES_H

#include <stdbool.h>

#include "runtime/exec/exec.h"

/* Whether ops of that kind exchange values. */
bool pen_is_exchange(uint16_t kind);

/* Binds op `index` of the rank's table, whose operands are bound. Allocates. */
void pen_bind_exchange(struct pen_vm *vm, uint32_t index, struct pen_bound_op *bound);

/* The bytes that the exchanges of a program send to the other members in one run. */
uint64_t pen_exchanges_sent_bytes(const struct pen_vm *vm, const struct pen_program *program);

/* Sets the dims of a bound op that are another for this member. */
void pen_set_member_dims(const struct pen_vm *vm, uint32_t index, int64_t dim[PEN_DIMS_MAX]);

#endif
