/* input_staging.h: the inputs of a step on a device. The host writes them to pinned memory, as the
 * data ops make them on the CPU; they are copied to the device in one piece; there, each data op
 * copies its action's microbatch. */
#ifndef PEN_INPUT_STAGING_H
#define PEN_INPUT_STAGING_H

#include "runtime/device/device.h"

/* Where the host writes the inputs of a step. */
unsigned char *pen_staging_host(const struct pen_stream_state *state, uint64_t run_step);

/* Writes them: AdamW's settings, then each data op's outputs for every microbatch. */
void pen_staging_fill(struct pen_vm *vm);

/* See struct pen_executor. Allocates. */
void pen_staging_bind(struct pen_vm *vm, const struct pen_op *op, struct pen_bound_op *bound);
struct pen_bound_input *pen_staging_input(struct pen_vm *vm, const struct pen_op *op);

#endif
