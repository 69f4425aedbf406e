/* described_inputs.h: what the ops of a description make of the inputs of the step. */
#ifndef PEN_DESCRIBED_INPUTS_H
#define PEN_DESCRIBED_INPUTS_H

#include "gen/families/described_kind.h"

/* What ops that use the input so read. Made at the first call for it. */
const struct pen_declared *pen_described_declared(const struct pen_description *description,
                                                  uint32_t input, enum pen_input_use use);

/* The targets that texts have, in the profiles of a model with other losses that read texts. */
extern const struct pen_declared pen_described_text_targets;

/* Notes that ids of the input are below a number. */
void pen_described_limit(const struct pen_description *description, uint32_t input, uint64_t limit);

/* All that ops read so far, and the starts; ends with null. */
const struct pen_declared *const *pen_described_declared_list(
    const struct pen_description *description);

#endif
