/* language.h: what all families of language models share: tokens in, cross-entropy out. */
#ifndef PEN_FAMILIES_LANGUAGE_H
#define PEN_FAMILIES_LANGUAGE_H

#include "gen/families/families.h"

extern const struct pen_declared pen_language_tokens, pen_language_targets; /* (batch, sequence) i32 */

/* The block lm_head: logits by lm_head.weight (vocab, hidden), which starts normal with deviation 0.02, and the loss. */
uint32_t pen_language_head(struct pen_graph *graph, uint32_t layer, uint32_t x);

#endif
