/* described_f32.h: f32 in a bf16 model: the ops between the last products and the losses, as under
 * PyTorch's autocast. */
#ifndef PEN_DESCRIBED_F32_H
#define PEN_DESCRIBED_F32_H

#include "gen/families/described_kind.h"

/* Sets `in_f32` of the ops of the last unit, and which inputs they read in f32: of those whose
 * values only such ops read, and so of SUM_LOSS, if their row allows it (PEN_DESCRIBED_F32 of
 * gen/model/described.def); not of what makes the logits of texts, which score and generate read.
 */
void pen_kind_find_f32(struct pen_kind *kind);

/* Whether the model is of bf16, but the value of f32. */
bool pen_kind_value_is_f32(const struct pen_kind *kind, uint32_t value);

#endif
