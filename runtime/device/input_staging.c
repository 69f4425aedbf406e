/* queue_feed.c: what a step on a device is fed by its host, and the data ops that take from it
 * there (see queue.h). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"
#include "runtime/base/check.h"
#include "runtime/device/stream_executor.h"
#include "runtime/exec/optimizer_step.h"

unsigned char *pen_staging_host(const struct pen_stream_state *queue, uint64_t step) {
  return queue->pinned + step % PEN_STEPS_AHEAD * queue->memory->staged_input_bytes;
}

static bool same_op(const struct pen_staged_input *feed, uint32_t rank, uint16_t kind,
                    uint8_t dtype, const int64_t *dim) {
  return feed->rank == rank && feed->kind == kind && feed->dtype == dtype &&
         memcmp(feed->dim, dim, sizeof feed->dim) == 0;
}

/* How many feeds from `first` on are outputs of its op. */
static uint32_t count_outputs(const struct pen_plan *plan, const struct pen_staged_input *first) {
  const struct pen_staged_input *past = plan->staged_inputs + plan->staged_input_count;
  uint32_t count = 1;
  while (first + count < past &&
         same_op(&first[count], first->rank, first->kind, first->dtype, first->dim)) {
    count++;
  }
  return count;
}

void pen_staging_fill(struct pen_vm *vm) {
  const struct pen_stream_state *queue = vm->queue;
  unsigned char *image = pen_staging_host(queue, vm->step);
  struct pen_adamw settings = pen_adamw_of_step(&vm->plan->optimizer, vm->optimizer_step, 0.0);
  if (vm->data.step_targets == 0) {
    settings.gradient_scale =
        NAN; /* nothing is to be learnt; the norm, which is 0, would not say so */
  }
  memcpy(image, &settings, sizeof settings);
  for (uint32_t i = 0, outputs; i < vm->plan->staged_input_count; i += outputs) {
    const struct pen_staged_input *feed = &vm->plan->staged_inputs[i];
    const struct pen_bound_input *ready = &vm->queued.feeds[i];
    struct pen_call call = {.prepared = ready->prepared};
    outputs = count_outputs(vm->plan, feed);
    memcpy(call.dim, feed->dim, sizeof call.dim);
    for (uint32_t m = 0; m < vm->profile->microbatch_count && ready->run != NULL; m++) {
      vm->data.row_microbatch = (uint64_t)vm->replica * vm->profile->microbatch_count + m;
      for (uint32_t k = 0; k < outputs; k++) {
        call.operand[feed[k].operand] = image +
                                        (feed[k].offset - queue->memory->staged_input_offset) +
                                        m * feed[k].microbatch_bytes;
      }
      ready->run(&call);
    }
  }
}

/* A data op of a queue: where its microbatches stand, and whose row asks. */
struct feed_source {
  struct pen_vm *vm;
  const struct pen_staged_input *feed;
  uint32_t outputs;
};

static void copy_from_feed(const struct pen_call *call) {
  const struct feed_source *source = call->prepared;
  const struct pen_stream_state *queue = source->vm->queue;
  for (uint32_t k = 0; k < source->outputs; k++) {
    const struct pen_staged_input *feed = &source->feed[k];
    const unsigned char *from =
        queue->arena + feed->offset + source->vm->data.row_microbatch * feed->microbatch_bytes;
    queue->device->copy(call->operand[feed->operand], from, feed->bytes, call->stream);
  }
}

pen_kernel *pen_stream_data_op(void) { return copy_from_feed; }

static uint32_t feed_index(const struct pen_vm *vm, const struct pen_op *op) {
  uint32_t i = 0;
  while (i < vm->plan->staged_input_count &&
         !same_op(&vm->plan->staged_inputs[i], vm->rank, op->kind, op->dtype, op->dim)) {
    i++;
  }
  pen_assert(i < vm->plan->staged_input_count);
  return i;
}

struct pen_bound_input *pen_staging_kernel(struct pen_vm *vm, const struct pen_op *op) {
  return &vm->queued.feeds[feed_index(vm, op)];
}

void *pen_staging_of(struct pen_vm *vm, const struct pen_op *op) {
  const uint32_t index = feed_index(vm, op);
  struct feed_source *source = malloc(sizeof *source);
  pen_check(source != NULL, "no memory for a feed");
  vm->queued.feeds[index] =
      (struct pen_bound_input){.run = pen_data_op(op->kind, op->dtype), .prepared = &vm->data};
  *source =
      (struct feed_source){.vm = vm,
                           .feed = &vm->plan->staged_inputs[index],
                           .outputs = count_outputs(vm->plan, &vm->plan->staged_inputs[index])};
  return source;
}
