/* checkpoint_tensors.c: the three tensors that a checkpoint holds of a weight. */
#include "runtime/plan/shard.h"
#include "runtime/storage/checkpoint_tensors.h"

#include <stdio.h>
#include <string.h>

#include "runtime/base/check.h"

const char *const pen_checkpoint_files[PEN_CHECKPOINT_FILES] = {
    "model.safetensors", "optimizer.safetensors", "manifest.json", "config.json"};

static const char *const suffixes[PEN_OPTIMIZERS][PEN_CHECKPOINT_TENSORS] = {
#define PEN_OPTIMIZER(name, text, moment, second, meaning) \
  [PEN_OPTIMIZER_##name] = {"", moment, second},
#include "runtime/plan/optimizer.def"
};

const char *pen_checkpoint_suffix(int optimizer, enum pen_checkpoint_tensor part) {
  return suffixes[optimizer][part];
}

bool pen_checkpoint_tensor_exists(const struct pen_weight *weight,
                                  enum pen_checkpoint_tensor part) {
  return part == PEN_CHECKPOINT_VALUE || pen_checkpoint_file_offset(weight, part) != UINT64_MAX;
}

bool pen_checkpoint_tensor_is_stored(const struct pen_weight *weight,
                                     enum pen_checkpoint_tensor part) {
  return pen_checkpoint_file_offset(weight, part) != UINT64_MAX;
}

const char *pen_checkpoint_tensor_name(char name[PEN_STORED_NAME_BYTES],
                                       const struct pen_weight *weight, uint32_t number,
                                       enum pen_checkpoint_tensor part) {
  const char *suffix = suffixes[weight->optimizer][part];
  const size_t ending = *suffix ? strlen(suffix) + 1 : 0;
  const bool fits = pen_tensor_name(name, PEN_STORED_NAME_BYTES - ending, weight, number);
  if (fits && ending > 0) {
    strcat(strcat(name, "."), suffix);
  }
  if (!fits) {
    pen_fail(PEN_EXIT_INTERNAL, "tensor %.80s...: its name is too long", weight->tensor);
  }
  return name;
}

bool pen_checkpoint_tensor_is_sharded(const struct pen_plan *plan, uint32_t weight_index,
                                      enum pen_checkpoint_tensor part) {
  return part == PEN_CHECKPOINT_VALUE ? plan->weights[weight_index].value_sharded
                                      : pen_moments_are_sharded(plan);
}

struct pen_shard pen_checkpoint_tensor_kept(const struct pen_plan *plan, uint32_t weight_index,
                                            enum pen_checkpoint_tensor part, uint32_t data_rank) {
  return pen_kept_of(plan, weight_index, data_rank,
                     pen_checkpoint_tensor_is_sharded(plan, weight_index, part));
}

bool pen_is_writer(const struct pen_plan *plan, uint32_t weight_index, uint32_t global) {
  return pen_owns_weight(plan, &plan->weights[weight_index], global) &&
         weight_index % pen_group_size(plan, PEN_DATA) == pen_group_member(plan, global, PEN_DATA);
}

uint64_t pen_checkpoint_arena_offset(const struct pen_weight *weight,
                                     enum pen_checkpoint_tensor part) {
  const uint64_t offsets[PEN_CHECKPOINT_TENSORS] = {weight->value_offset, weight->exp_avg_offset,
                                                    weight->exp_avg_sq_offset};
  return offsets[part];
}

uint64_t pen_checkpoint_file_offset(const struct pen_weight *weight,
                                    enum pen_checkpoint_tensor part) {
  const uint64_t offsets[PEN_CHECKPOINT_TENSORS] = {weight->value_file, weight->exp_avg_file,
                                                    weight->exp_avg_sq_file};
  return offsets[part];
}

/* A file without tensors is all header. */
static uint64_t data_offset(const struct pen_plan *plan, enum pen_checkpoint_tensor first,
                            enum pen_checkpoint_tensor last, uint64_t file_bytes) {
  uint64_t offset = file_bytes;
  for (uint32_t i = 0; i < plan->weight_count; i++) {
    for (enum pen_checkpoint_tensor part = first; part <= last; part++) {
      uint64_t candidate = pen_checkpoint_file_offset(&plan->weights[i], part);
      if (pen_checkpoint_tensor_is_stored(&plan->weights[i], part) && candidate < offset) {
        offset = candidate;
      }
    }
  }
  return offset;
}

uint64_t pen_model_data_offset(const struct pen_plan *plan) {
  return data_offset(plan, PEN_CHECKPOINT_VALUE, PEN_CHECKPOINT_VALUE, plan->model_file_bytes);
}

uint64_t pen_optimizer_data_offset(const struct pen_plan *plan) {
  return data_offset(plan, PEN_CHECKPOINT_EXP_AVG, PEN_CHECKPOINT_EXP_AVG_SQ,
                     plan->optimizer_file_bytes);
}
