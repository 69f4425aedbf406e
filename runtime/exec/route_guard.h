/* route_guard.h: looks at the routes that an op of a mixture of experts is given. */
#ifndef PEN_ROUTE_GUARD_H
#define PEN_ROUTE_GUARD_H

#include "runtime/exec/exec.h"

/* Whether each row has routes to as many experts as it chooses, which rise and are below their
 * number. */
bool pen_routes_are_valid(const int32_t *expert, size_t rows, size_t choices, size_t experts);

/* Puts a guard before the kernel of an op that reads routes, before the first step: where they are
 * not valid, it ends the run (PEN_EXIT_INTERNAL) before the kernel uses one as an index. Allocates,
 * for as long as the run. On an asynchronous device a kernel before EXPERTS and EXPERTS_DX of slice
 * 0 notes the first routes that are not valid, for pen_fail_of_routes(); kernels that read them
 * stay within their memory, and make NaN of what is no number of an expert. */
void pen_guard_routes(struct pen_vm *vm, const struct pen_op *op, struct pen_bound_op *bound);

/* After a step of an asynchronous device, before it is published: ends the run likewise, if one was
 * noted. */
void pen_fail_of_routes(const struct pen_vm *vm);

#endif
