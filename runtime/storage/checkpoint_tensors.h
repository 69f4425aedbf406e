/* checkpoint_tensors.h: what a checkpoint holds of a weight, under which name, and where. Pure
 * functions of the plan; no allocation. */
#ifndef PEN_CHECKPOINT_TENSORS_H
#define PEN_CHECKPOINT_TENSORS_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/plan/plan.h"
#include "runtime/plan/shard.h"

/* The order is that of the digests: pen_checkpoint_digest_of(). The value lies
 * in model.safetensors, the moments in optimizer.safetensors. */
enum pen_checkpoint_tensor {
  PEN_CHECKPOINT_VALUE,
  PEN_CHECKPOINT_EXP_AVG,
  PEN_CHECKPOINT_EXP_AVG_SQ,
  PEN_CHECKPOINT_TENSORS
};

enum { PEN_STORED_NAME_BYTES = 512 };

/* What a moment of an optimizer (enum pen_optimizer_kind) has after the name of its tensor, and a
 * dot; "": the value; null: the optimizer has no such moment. */
const char *pen_checkpoint_suffix(int optimizer, enum pen_checkpoint_tensor part);

/* What a frozen weight lacks, and one whose optimizer keeps nothing: moments. */
bool pen_checkpoint_tensor_exists(const struct pen_weight *weight, enum pen_checkpoint_tensor part);
/* The same in files: counts of choices have a moment alone there, which is their value, too. */
bool pen_checkpoint_tensor_is_stored(const struct pen_weight *weight,
                                     enum pen_checkpoint_tensor part);

/* NAME, or NAME and the suffix, which the optimizer has, NAME that of tensor `number` of the weight
 * (plan.h, Stacks; else 0). Fails (PEN_EXIT_INTERNAL) on a name longer than that. */
const char *pen_checkpoint_tensor_name(char name[PEN_STORED_NAME_BYTES],
                                       const struct pen_weight *weight, uint32_t number,
                                       enum pen_checkpoint_tensor part);

/* The place of its digest. */
static inline size_t pen_checkpoint_digest_of(const struct pen_plan *plan, uint32_t weight_index,
                                              uint32_t number, enum pen_checkpoint_tensor part) {
  return PEN_CHECKPOINT_TENSORS * ((size_t)pen_first_entry(plan, weight_index) + number) + part;
}

/* Whether a data rank keeps its own shard of the part alone, and which elements it keeps: from the
 * part's offset on. */
bool pen_checkpoint_tensor_is_sharded(const struct pen_plan *plan, uint32_t weight_index,
                                      enum pen_checkpoint_tensor part);
struct pen_shard pen_checkpoint_tensor_kept(const struct pen_plan *plan, uint32_t weight_index,
                                            enum pen_checkpoint_tensor part, uint32_t data_rank);

/* Whether it is the process that writes what all data ranks have of a weight, or reads back what
 * all have written: its owner, of the data ranks in turn. It leaves the digests. */
bool pen_is_writer(const struct pen_plan *plan, uint32_t weight_index, uint32_t global);

/* Byte offsets: in the owner's arena, and from the start of the file that holds the part. */
uint64_t pen_checkpoint_arena_offset(const struct pen_weight *weight,
                                     enum pen_checkpoint_tensor part);
uint64_t pen_checkpoint_file_offset(const struct pen_weight *weight,
                                    enum pen_checkpoint_tensor part);

/* Where the header ends and the tensors begin in model.safetensors and in optimizer.safetensors. */
uint64_t pen_model_data_offset(const struct pen_plan *plan);
uint64_t pen_optimizer_data_offset(const struct pen_plan *plan);

/* The files of a checkpoint's folder. */
enum {
  PEN_MODEL_FILE,
  PEN_OPTIMIZER_FILE,
  PEN_MANIFEST_FILE,
  PEN_CONFIG_FILE,
  PEN_CHECKPOINT_FILES
};
extern const char *const pen_checkpoint_files[PEN_CHECKPOINT_FILES];

#endif
