/* program_collectives.h: the ops that the runtime runs itself (PEN_RUNTIME_OP, ops.def): zeros, and
 * the collectives of replicas within programs. */
#ifndef PEN_EXEC_PROGRAM_COLLECTIVES_H
#define PEN_EXEC_PROGRAM_COLLECTIVES_H

#include <stdbool.h>

#include "runtime/exec/exec.h"

/* Whether the runtime runs ops of that kind. */
bool pen_is_runtime_op(uint16_t kind);

/* Binds op `index` of the rank's table, whose operands are bound. Allocates. */
void pen_bind_runtime_op(struct pen_vm *vm, uint32_t index, struct pen_bound_op *bound);

/* The bytes that the ops of a program send to peers in one run. */
uint64_t pen_program_sent_bytes(const struct pen_vm *vm, const struct pen_program *program);

#endif
