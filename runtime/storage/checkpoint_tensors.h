/* parts.h: what a checkpoint holds of a weight, under which name, and where. Pure functions of the plan; no allocation. */
#ifndef PEN_PARTS_H
#define PEN_PARTS_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/plan/plan.h"

/* The order is that of the digests: [PEN_PARTS * weight_index + part]. The value lies in model.safetensors, the moments in
 * optimizer.safetensors. */
enum pen_part { PEN_PART_VALUE, PEN_PART_EXP_AVG, PEN_PART_EXP_AVG_SQ, PEN_PARTS };

enum { PEN_STORED_NAME_BYTES = 512 };

/* What a frozen weight lacks: its moments. */
bool pen_part_exists(const struct pen_weight *weight, enum pen_part part);

/* NAME, NAME.exp_avg or NAME.exp_avg_sq. Fails (PEN_EXIT_BUG) on a name longer than that. */
const char *pen_part_name(char name[PEN_STORED_NAME_BYTES], const struct pen_weight *weight, enum pen_part part);

/* Whether a replica keeps its own shard of the part alone, and which elements it keeps: from the part's offset on. */
bool pen_part_cut(const struct pen_plan *plan, uint32_t weight_index, enum pen_part part);
struct pen_shard pen_part_kept(const struct pen_plan *plan, uint32_t weight_index, enum pen_part part, uint32_t replica);

/* Whether it is the replica that writes what all replicas have of a weight, or reads back what all have written: by turns. Its rank of them leaves
 * the digests. */
bool pen_has_turn(const struct pen_plan *plan, uint32_t weight_index, uint32_t replica);

/* Byte offsets: in the owner's arena, and from the start of the file that holds the part. */
uint64_t pen_part_arena_offset(const struct pen_weight *weight, enum pen_part part);
uint64_t pen_part_file_offset(const struct pen_weight *weight, enum pen_part part);

/* Where the header ends and the tensors begin in model.safetensors and in optimizer.safetensors. */
uint64_t pen_model_data_offset(const struct pen_plan *plan);
uint64_t pen_optimizer_data_offset(const struct pen_plan *plan);

#endif
