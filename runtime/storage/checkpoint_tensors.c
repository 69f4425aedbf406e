/* parts.c: the three tensors that a checkpoint holds of a weight. */
#include "runtime/storage/checkpoint_tensors.h"

#include <stdio.h>

#include "runtime/base/check.h"

static const char *const suffixes[PEN_PARTS] = {
  [PEN_PART_VALUE] = "",
  [PEN_PART_EXP_AVG] = ".exp_avg",
  [PEN_PART_EXP_AVG_SQ] = ".exp_avg_sq",
};

bool pen_part_exists(const struct pen_weight *weight, enum pen_part part) {
  return part == PEN_PART_VALUE || !weight->frozen;
}

const char *pen_part_name(char name[PEN_STORED_NAME_BYTES], const struct pen_weight *weight, enum pen_part part) {
  int length = snprintf(name, PEN_STORED_NAME_BYTES, "%s%s", weight->name, suffixes[part]);
  if (length < 0 || length >= PEN_STORED_NAME_BYTES) {
    pen_fail(PEN_EXIT_BUG, "tensor %.80s...: its name is too long", weight->name);
  }
  return name;
}

bool pen_part_cut(const struct pen_plan *plan, uint32_t weight_index, enum pen_part part) {
  return part == PEN_PART_VALUE ? plan->weights[weight_index].value_cut : pen_moments_cut(plan);
}

struct pen_shard pen_part_kept(const struct pen_plan *plan, uint32_t weight_index, enum pen_part part, uint32_t replica) {
  return pen_kept_of(plan, weight_index, replica, pen_part_cut(plan, weight_index, part));
}

bool pen_has_turn(const struct pen_plan *plan, uint32_t weight_index, uint32_t replica) {
  return plan->replica_count <= 1 || weight_index % plan->replica_count == replica;
}

uint64_t pen_part_arena_offset(const struct pen_weight *weight, enum pen_part part) {
  const uint64_t offsets[PEN_PARTS] = {weight->value_offset, weight->exp_avg_offset, weight->exp_avg_sq_offset};
  return offsets[part];
}

uint64_t pen_part_file_offset(const struct pen_weight *weight, enum pen_part part) {
  const uint64_t offsets[PEN_PARTS] = {weight->value_file, weight->exp_avg_file, weight->exp_avg_sq_file};
  return offsets[part];
}

/* A file without tensors is all header. */
static uint64_t data_offset(const struct pen_plan *plan, enum pen_part first, enum pen_part last, uint64_t file_bytes) {
  uint64_t offset = file_bytes;
  for (uint32_t i = 0; i < plan->weight_count; i++) {
    for (enum pen_part part = first; part <= last; part++) {
      uint64_t candidate = pen_part_file_offset(&plan->weights[i], part);
      if (pen_part_exists(&plan->weights[i], part) && candidate < offset) {
        offset = candidate;
      }
    }
  }
  return offset;
}

uint64_t pen_model_data_offset(const struct pen_plan *plan) {
  return data_offset(plan, PEN_PART_VALUE, PEN_PART_VALUE, plan->model_file_bytes);
}

uint64_t pen_optimizer_data_offset(const struct pen_plan *plan) {
  return data_offset(plan, PEN_PART_EXP_AVG, PEN_PART_EXP_AVG_SQ, plan->optimizer_file_bytes);
}
