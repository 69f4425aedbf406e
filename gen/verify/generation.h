/* generation.h: the forward of a step of generation, beside that of an evaluation. */
#ifndef PEN_VERIFY_GENERATION_H
#define PEN_VERIFY_GENERATION_H

#include "gen/verify/stage_terms.h"

/* What the forward of a stage makes in one profile: its output, the loss, and what the step keeps,
 * as values; 0: none. */
struct pen_forward {
  const struct pen_profile *profile;
  uint32_t output, loss, kept;
};

/* The rule "generated": a row of what a stage makes in a profile of generation is the row that
 * evaluation makes of the same tokens (generation.c). `action`: one that runs the forward. Returns
 * false after it noted a problem. */
bool pen_check_generation(const struct pen_stage_terms *s, const struct pen_forward *evaluation,
                          const struct pen_forward *made, uint32_t action);

/* The same rule of the profile of score, of a model whose evaluation has other losses: each stage
 * makes what it makes there, and the last the cross-entropy of a value that is made there, too.
 * `known_terms`: those of the profiles before. */
bool pen_check_scores(const struct pen_stage_terms *s, const struct pen_forward *evaluation,
                      const struct pen_forward *made, uint32_t known_terms, uint32_t action);

#endif
