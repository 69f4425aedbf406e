/* split_head.h: the forms of the head of split weights (splits.h), by which a model ends: with the
 * mean cross-entropy of x times `weight` (vocab, width) transposed, which with model.tie_embeddings
 * is the embedding's. Call them after all other weights. */
#ifndef PEN_SPLIT_HEAD_H
#define PEN_SPLIT_HEAD_H

#include "gen/model/graph.h"

/* With the logits of each split for all rows. */
void pen_op_head_columns(struct pen_graph *graph, uint32_t x, const char *weight, double deviation,
                         const struct pen_declared *targets);

/* By `chunk` rows of logits at a time, a fused loss (fused_loss.h). */
void pen_op_head_chunks(struct pen_graph *graph, uint32_t x, const char *weight, double deviation,
                        const struct pen_declared *targets, int64_t chunk);

/* For the command generate, which reads the logits of whole rows: those of all splits are joined
 * before the loss, which it does not use. */
void pen_op_head_joined(struct pen_graph *graph, uint32_t x, const char *weight, double deviation,
                        const struct pen_declared *targets);

#endif
