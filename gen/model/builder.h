/* builder.h: the functions with which a family builds the forward ops of a stage (gen/families/).
 *
 * pen_op_X appends the op X and returns the value of its first output. `name` is the output's name
 * within its layer. Shapes are in brackets; `rows` is the tokens of a microbatch.
 */
#ifndef PEN_BUILDER_H
#define PEN_BUILDER_H

#include <stdbool.h>
#include <stdint.h>

#include "gen/model/graph.h"

struct pen_declared; /* gen/model/blocks.h */

/* The value of an input that the family and the current block declare; its op is emitted at the
 * first call in the stage. */
uint32_t pen_graph_data(struct pen_graph *graph, const struct pen_declared *declared);
/* A weight of one or two dimensions (columns 0: one). By default only those of two have weight
 * decay. */
uint32_t pen_graph_weight(struct pen_graph *graph, const char *name, int64_t rows, int64_t columns,
                          int initial, double deviation);
/* The embedding's weight (rows, columns) for the head, with a separate gradient (struct pen_tie).
 * Call it after all other weights. */
uint32_t pen_graph_tied_weight(struct pen_graph *graph, const char *name, int64_t rows,
                               int64_t columns);

/* Members `emit` of inputs: (rows) i32; targets in a step of generation (batch). */
uint32_t pen_op_tokens(struct pen_graph *graph, const struct pen_declared *declared);
uint32_t pen_op_targets(struct pen_graph *graph, const struct pen_declared *declared);
/* What an op of that kind, TOKENS, TARGETS or INPUT, makes of input number `input` of the plan,
 * from 1, which has `rows` rows (tokens, or samples) of `width` elements: of INPUT (rows, width),
 * else as many i32. */
uint32_t pen_op_input(struct pen_graph *graph, int kind, const char *name, int64_t input,
                      int64_t rows, int64_t width);
uint32_t pen_op_normal(struct pen_graph *graph, const char *name, int64_t width,
                       int stream); /* (rows, width) */
/* The rows of the tokens in the table, or a split of it; the others are the addend's (rows, width),
 * or 0 if it is PEN_NONE. */
uint32_t pen_op_embedding(struct pen_graph *graph, const char *name, uint32_t tokens,
                          uint32_t table, uint32_t addend);
/* x (rows, in) times the weight (out, in) transposed, plus addend (rows, out) unless PEN_NONE. */
uint32_t pen_op_linear(struct pen_graph *graph, const char *name, uint32_t x, uint32_t weight,
                       uint32_t addend);
/* A row of x has as many elements as the gain, to which `offset` is added. */
uint32_t pen_op_rmsnorm(struct pen_graph *graph, const char *name, uint32_t x, uint32_t gain,
                        double offset);
/* A constant (positions, head_dim); scaled: by model.rope_scaling. */
uint32_t pen_op_rope_table(struct pen_graph *graph, const char *name, int64_t head_dim,
                           double theta, bool scaled);
/* `starts` (rows) i32: where each token's document starts in its sequence; PEN_NONE: every sequence
 * is one document. */
uint32_t pen_op_starts(struct pen_graph *graph, const struct pen_declared *declared);
uint32_t pen_op_rope(struct pen_graph *graph, const char *name, uint32_t x, uint32_t table,
                     uint32_t starts, int64_t heads, int64_t head_dim);
/* window: how many tokens a token sees at most, itself included; 0 or less: all. */
uint32_t pen_op_attention(struct pen_graph *graph, const char *name, uint32_t q, uint32_t k,
                          uint32_t v, uint32_t starts, int64_t heads, int64_t kv_heads,
                          int64_t head_dim, int64_t window);
/* x (rows, in) times the weight (in, out), plus bias (out), plus addend (rows, out) unless
 * PEN_NONE. */
uint32_t pen_op_affine(struct pen_graph *graph, const char *name, uint32_t x, uint32_t weight,
                       uint32_t bias, uint32_t addend);
uint32_t pen_op_bias(struct pen_graph *graph, const char *name, uint32_t x,
                     uint32_t bias); /* x (rows, out) plus bias (out) */
uint32_t pen_op_layernorm(struct pen_graph *graph, const char *name, uint32_t x, uint32_t gain,
                          uint32_t bias);
/* x plus, for each token, the row of its position in the table (positions, width). */
uint32_t pen_op_position(struct pen_graph *graph, const char *name, uint32_t x, uint32_t table,
                         uint32_t starts);
void pen_op_split(struct pen_graph *graph, const char *name, uint32_t x,
                  uint32_t part[3]); /* x (rows, 3, width) */
/* An op of that kind over all elements of x, and of z unless it has one input: PEN_NONE. */
uint32_t pen_op_elementwise(struct pen_graph *graph, int kind, const char *name, uint32_t x,
                            uint32_t z);
uint32_t pen_op_scale(struct pen_graph *graph, const char *name, uint32_t x, double factor);
uint32_t pen_op_add(struct pen_graph *graph, const char *name, uint32_t x, uint32_t z);
/* In a step of generation, before the head: of each sequence the row of x of the token whose logits
 * give the next one, on each tensor rank. The rows of the ops that follow are these. */
uint32_t pen_op_last_tokens(struct pen_graph *graph, uint32_t x, uint32_t targets);
/* The losses, which end the model: mean cross-entropy over the step's targets, or the sum of x. */
void pen_op_cross_entropy(struct pen_graph *graph, uint32_t logits, uint32_t targets);
/* x (rows, in) times the weight (out, in), and its cross-entropy, computing `chunk` rows of logits
 * at a time. */
void pen_op_head_loss(struct pen_graph *graph, uint32_t x, uint32_t weight, uint32_t targets,
                      int64_t chunk);
void pen_op_sum_loss(struct pen_graph *graph, uint32_t x);

/* The share of a loss: a row of the plan's table `shares`. */
uint32_t pen_op_share(struct pen_graph *graph, uint32_t row);
/* One of several losses of the model, an op of that kind, times its share: adds it to the sum of
 * those before (PEN_NONE: it is the first), and returns the sum, which with the last one is the
 * loss of the microbatch. The gradient of input[0] is the op's last output; if a loss has that
 * gradient already, the op reads a copy. */
uint32_t pen_op_add_loss(struct pen_graph *graph, int kind, uint32_t *input, const int64_t *dim,
                         size_t dim_count, uint32_t share, uint32_t sum, bool is_last);

#endif
