/* language.h: what all language model families share: tokens as input, cross-entropy as loss. */
#ifndef PEN_LANGUAGE_H
#define PEN_LANGUAGE_H

#include "gen/families/families.h"

extern const struct pen_declared pen_language_tokens;  /* (batch, sequence) i32 */
extern const struct pen_declared pen_language_targets; /* (batch, sequence) i32; in a step of
                                                          generation (batch, 1) */
/* (batch, sequence) i32: where each token's document starts in its sequence; only with
 * batch.packed. */
extern const struct pen_declared pen_language_starts;

/* Its value, or PEN_NONE: every sequence is one document. */
uint32_t pen_language_starts_of(struct pen_graph *graph);

/* The rows of a chunk of logits, by model.loss_rows; 0: all at once. */
int64_t pen_language_chunk(const struct pen_graph *graph);

/* The block lm_head: logits and the loss. The weight is lm_head.weight (vocab, hidden), initially
 * normal with standard deviation 0.02, or with model.tie_embeddings the family's embedding. */
uint32_t pen_language_head(struct pen_graph *graph, uint32_t layer, uint32_t x);

#endif
