/* piece_head.h: forms of the head of split weights (pieces.h) other than that of its whole logits.
 * `weight` is (vocab, width); with model.tie_embeddings it is the embedding's. They end the model:
 * call them after all other weights. */
#ifndef PEN_PIECE_HEAD_H
#define PEN_PIECE_HEAD_H

#include "gen/model/graph.h"

/* The mean cross-entropy by `chunk` rows of logits at a time, a fused loss (fused_loss.h). */
void pen_op_head_chunks(struct pen_graph *graph, uint32_t x, const char *weight, double deviation,
                        const struct pen_declared *targets, int64_t chunk);

/* For the command generate, which reads the logits of whole rows: those of all pieces are joined
 * before the loss, which it does not use. */
void pen_op_head_joined(struct pen_graph *graph, uint32_t x, const char *weight, double deviation,
                        const struct pen_declared *targets);

#endif
