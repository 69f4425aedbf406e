/* input_staging.c: the inputs of a step on a device (see input_staging.h). */
#include "runtime/device/input_staging.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/check.h"
#include "runtime/exec/optimizer_step.h"

unsigned char *pen_staging_host(const struct pen_stream_state *state, uint64_t run_step) {
  return state->pinned + run_step % PEN_STEPS_AHEAD * state->memory->staged_input_bytes;
}

static bool is_of_op(const struct pen_staged_input *input, uint32_t rank, uint16_t kind,
                     uint8_t dtype, const int64_t *dim) {
  return input->rank == rank && input->kind == kind && input->dtype == dtype &&
         memcmp(input->dim, dim, sizeof input->dim) == 0;
}

/* How many inputs from `first` on are outputs of its op. */
static uint32_t count_outputs(const struct pen_plan *plan, const struct pen_staged_input *first) {
  const struct pen_staged_input *past = plan->staged_inputs + plan->staged_input_count;
  uint32_t count = 1;
  while (first + count < past &&
         is_of_op(&first[count], first->rank, first->kind, first->dtype, first->dim)) {
    count++;
  }
  return count;
}

/* One op's outputs, for every microbatch. */
static void fill_op(struct pen_vm *vm, unsigned char *staging, uint32_t first, uint32_t outputs) {
  const struct pen_staged_input *input = &vm->plan->staged_inputs[first];
  const struct pen_bound_input *bound = &vm->stream_profile->inputs[first];
  struct pen_call call = {.prepared = bound->prepared};
  memcpy(call.dim, input->dim, sizeof call.dim);
  for (uint32_t m = 0; m < vm->profile->microbatch_count && bound->run != NULL; m++) {
    vm->data.microbatch_index = m;
    for (uint32_t k = 0; k < outputs; k++) {
      call.operand[input[k].operand] = staging +
                                       (input[k].offset - vm->memory->staged_input_offset) +
                                       m * input[k].microbatch_bytes;
    }
    bound->run(&call);
  }
}

void pen_staging_fill(struct pen_vm *vm) {
  unsigned char *staging = pen_staging_host(vm->stream_state, vm->run_step);
  const struct pen_adamw settings =
      pen_adamw_of_step(&vm->plan->optimizer, vm->optimizer_step, vm->data.step_targets);
  memcpy(staging, &settings, sizeof settings);
  for (uint32_t i = 0, outputs; i < vm->plan->staged_input_count; i += outputs) {
    outputs = count_outputs(vm->plan, &vm->plan->staged_inputs[i]);
    fill_op(vm, staging, i, outputs);
  }
}

/* ---- data ops on the device ---- */

struct staged_op {
  struct pen_vm *vm;
  const struct pen_staged_input *input;
  uint32_t outputs;
};

static void copy_staged(const struct pen_call *call) {
  const struct staged_op *staged = call->prepared;
  const struct pen_vm *vm = staged->vm;
  for (uint32_t k = 0; k < staged->outputs; k++) {
    const struct pen_staged_input *input = &staged->input[k];
    const unsigned char *from =
        vm->arena + input->offset + vm->data.microbatch_index * input->microbatch_bytes;
    vm->device->copy(call->operand[input->operand], from, input->bytes, call->stream);
  }
}

static uint32_t index_of(const struct pen_vm *vm, const struct pen_op *op) {
  uint32_t i = 0;
  while (i < vm->plan->staged_input_count &&
         !is_of_op(&vm->plan->staged_inputs[i], vm->rank, op->kind, op->dtype, op->dim)) {
    i++;
  }
  pen_assert(i < vm->plan->staged_input_count);
  return i;
}

struct pen_bound_input *pen_staging_input(struct pen_vm *vm, const struct pen_op *op) {
  return pen_data_op(op->kind, op->dtype) == NULL ? NULL
                                                  : &vm->stream_profile->inputs[index_of(vm, op)];
}

void pen_staging_bind(struct pen_vm *vm, const struct pen_op *op, struct pen_bound_op *bound) {
  const uint32_t index = index_of(vm, op);
  struct staged_op *staged = malloc(sizeof *staged);
  pen_check(staged != NULL, "no memory for an input");
  vm->stream_profile->inputs[index] =
      (struct pen_bound_input){.run = pen_data_op(op->kind, op->dtype), .prepared = &vm->data};
  *staged = (struct staged_op){.vm = vm,
                               .input = &vm->plan->staged_inputs[index],
                               .outputs = count_outputs(vm->plan, &vm->plan->staged_inputs[index])};
  bound->run = copy_staged;
  bound->call.prepared = staged;
}
