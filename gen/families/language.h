/* language.h: what all families of language models share: tokens in, cross-entropy out. */
#ifndef PEN_LANGUAGE_H
#define PEN_LANGUAGE_H

#include "gen/families/families.h"

extern const struct pen_declared pen_language_tokens;  /* (batch, sequence) i32 */
extern const struct pen_declared pen_language_targets; /* (batch, sequence) i32 */
/* (batch, sequence) i32: where each token's document starts in its sequence; where batch.packed
 * says that there are documents. */
extern const struct pen_declared pen_language_starts;

/* Its value, or PEN_NONE where every sequence is one document. */
uint32_t pen_language_starts_of(struct pen_graph *graph);

/* The block lm_head: logits by lm_head.weight (vocab, hidden), which starts normal with deviation
 * 0.02, or with model.tie_embeddings by the family's embedding; and the loss. */
uint32_t pen_language_head(struct pen_graph *graph, uint32_t layer, uint32_t x);

#endif
