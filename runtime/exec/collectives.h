/* collectives.h: runs the collectives of the plan (plan.def, puts.h): those of data ranks, by which
 * they come to one gradient, and to one weight where each updates a shard (ZeRO: Rajbhandari et al.
 * 2020), and those of tensor ranks. Of an action or of ops of a program, they are the same. */
#ifndef PEN_EXEC_COLLECTIVES_H
#define PEN_EXEC_COLLECTIVES_H

#include <stdbool.h>

#include "runtime/exec/exec.h"

/* Whether the runtime runs ops of that kind (PEN_RUNTIME_OP, ops.def). */
bool pen_is_runtime_op(uint16_t kind);

/* Binds op `index` of the rank's table. The rank's events are there. Allocates. */
void pen_bind_runtime_op(struct pen_vm *vm, uint32_t index, struct pen_bound_op *bound);

/* Events and scratch memory of the rank's collectives. Allocates. */
void pen_collectives_open(struct pen_vm *vm);

/* Runs an action that is a collective, and nothing else (PEN_COLLECTIVE of actions.def). */
pen_handler pen_run_collective;

/* Before and after what an action does that others wait for: waits for the other data ranks as far
 * as the action needs them (false: aborted); signals that it has ended. Nothing with one. */
bool pen_collective_begin(struct pen_vm *vm, const struct pen_action *action);
void pen_collective_end(struct pen_vm *vm, const struct pen_action *action);

/* Runs an exchange of UPDATE, by its row of the collectives; false: aborted. */
bool pen_run_exchange(struct pen_vm *vm, uint32_t index);

/* The bytes that the rank sends in a step: messages, and what its collectives move. */
uint64_t pen_sent_bytes(const struct pen_vm *vm);

#endif
