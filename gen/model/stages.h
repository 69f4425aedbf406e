/* stages.h: the blocks of a model, and which of them each stage holds. */
#ifndef PEN_STAGES_H
#define PEN_STAGES_H

#include <stdint.h>

struct pen_family;      /* gen/families/families.h */
struct pen_model_block; /* gen/families/families.h */

/* The blocks [first, past) of a stage, and the layers that begin in it. */
struct pen_span {
  uint32_t first_layer, past_last_layer;
  uint32_t first_block, past_last_block;
};

struct pen_stages {
  const struct pen_family *family;
  const struct pen_model_block *block; /* [block_count] all blocks of the model, in order */
  uint32_t block_count;
  uint32_t stage_count;
  struct pen_span *span; /* [stage_count] */
};

#endif
