/* outputs.c: takes the outputs of a step from the arenas (see outputs.h). */
#include "runtime/commands/outputs.h"

#include "kernels/kernels.h"
#include "runtime/device/stream_state.h"

uint64_t pen_output_sample_bytes(const struct pen_plan *plan, const struct pen_output *output) {
  return output->bytes / plan->microbatch;
}

uint32_t pen_output_process_count(const struct pen_run *run) {
  const uint32_t last = pen_last_stage_process(run->plan, run->profile);
  uint32_t count = 0;
  for (uint32_t d = 0; d < pen_group_size(run->plan, PEN_DATA); d++) {
    count += pen_rank_set_has(&run->local, pen_group_process(run->plan, last, PEN_DATA, d));
  }
  return count;
}

/* Gives what the arena has of an output from `first` on. */
static void give(const struct pen_vm *vm, uint32_t output, uint64_t first, uint64_t to,
                 pen_output_take *take) {
  const uint64_t count = vm->plan->outputs[output].bytes;
  for (uint64_t at = 0, bytes = count; at < count; at += bytes) {
    if (vm->stream_state != NULL) {
      bytes = count - at < PEN_STAGING_BYTES ? count - at : PEN_STAGING_BYTES;
    }
    const void *from = vm->stream_state != NULL
                           ? pen_stream_read(vm->stream_state, first + at, bytes)
                           : vm->arena + first + at;
    take(vm, output, to + at, from, bytes);
  }
}

void pen_outputs_give(const struct pen_vm *vm, pen_output_take *take) {
  const struct pen_plan *plan = vm->plan;
  const uint32_t microbatches = vm->profile->microbatch_count;
  if (pen_last_stage_rank(plan, vm->profile) != vm->rank) {
    return;
  }
  for (uint32_t n = 0; n < plan->output_count; n++) {
    const struct pen_output *output = &plan->outputs[n];
    for (uint32_t m = 0; m < microbatches; m++) {
      give(vm, n, output->offset + m * plan->output_stride,
           ((uint64_t)vm->replica * microbatches + m) * output->bytes, take);
    }
  }
}
