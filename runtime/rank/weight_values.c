/* weight_values.c: reads and sets values of weights (see weight_values.h). */
#include "runtime/rank/weight_values.h"

#include <string.h>

#include "runtime/base/seal.h"
#include "runtime/device/stream_state.h"
#include "runtime/plan/shard.h"
#include "runtime/storage/checkpoint_save.h"
#include "runtime/storage/loading.h"
#include "runtime/storage/tensor_splits.h"

/* Bytes of the rank's arena. */
static const unsigned char *look(struct pen_rank *rank, uint64_t offset, size_t bytes) {
  return rank->stream_state == NULL ? rank->endpoint.arena + offset
                                    : pen_stream_read(rank->stream_state, offset, bytes);
}

static void read_run(struct pen_rank *rank, uint64_t offset, uint64_t count, float *to) {
  const uint64_t most = PEN_LOOK_BYTES / sizeof *to;
  for (uint64_t done = 0; done < count; done += most) {
    const uint64_t n = count - done < most ? count - done : most;
    memcpy(to + done, look(rank, offset + done * sizeof *to, n * sizeof *to), n * sizeof *to);
  }
}

/* Of one split, what a checkpoint would have from this process. */
static bool read_split(struct pen_rank *rank, uint32_t index, float *values) {
  const struct pen_plan *plan = rank->run->plan;
  const struct pen_weight *weight = &plan->weights[index];
  const uint32_t global = rank->endpoint.global;
  const struct pen_shard kept = pen_checkpoint_tensor_kept(
      plan, index, PEN_CHECKPOINT_VALUE, pen_group_member(plan, global, PEN_DATA));
  const bool sharded = pen_checkpoint_tensor_is_sharded(plan, index, PEN_CHECKPOINT_VALUE);
  if (!pen_owns_weight(plan, weight, global) || (!sharded && !pen_is_writer(plan, index, global))) {
    return false;
  }
  for (uint64_t first = kept.first; first < kept.first + kept.count;) {
    const struct pen_tensor_run run = pen_first_run(weight, first, kept.first + kept.count - first);
    read_run(rank, weight->value_offset + (first - kept.first) * sizeof(float), run.count,
             values + run.tensor_element);
    first += run.count;
  }
  return kept.count > 0;
}

bool pen_weight_values_read(struct pen_rank *rank, uint32_t weight, float *values) {
  const uint32_t splits = rank->run->plan->weights[weight].split_count;
  bool any = false;
  for (uint32_t s = 0; s < splits; s++) {
    any = read_split(rank, weight + s, values) || any;
  }
  return any;
}

static void write_split(const struct pen_loading *to, uint32_t index, const float *values) {
  const struct pen_weight *weight = &to->plan->weights[index];
  for (uint64_t first = 0; first < weight->count;) {
    const uint64_t left = weight->count - first;
    const struct pen_tensor_run run =
        pen_first_run(weight, first, left < PEN_LOADING_ELEMENTS ? left : PEN_LOADING_ELEMENTS);
    if (pen_loading_keeps(to, index, PEN_CHECKPOINT_VALUE, first, run.count)) {
      to->device->copy_in(to->chunk, values + run.tensor_element, run.count * sizeof *values,
                          to->stream);
      pen_loading_store(to, index, PEN_CHECKPOINT_VALUE, first, run.count, to->chunk);
    }
    first += run.count;
  }
}

void pen_weight_values_write(struct pen_rank *rank, uint32_t weight, const float *values) {
  const struct pen_vm *vm = &rank->vms[0];
  pen_unseal();
  const struct pen_loading to = pen_loading_open(rank->run->plan, rank->endpoint.global, vm->device,
                                                 vm->streams.compute, vm->arena);
  for (uint32_t s = 0; s < to.plan->weights[weight].split_count; s++) {
    write_split(&to, weight + s, values);
  }
  pen_loading_close(&to);
  pen_seal();
}
