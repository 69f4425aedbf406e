/* splits.h: weights that are divided into splits (tensor_parallel.splits), and their ops.
 *
 * With one split each function makes the ops of builder.h, on whole weights. With several, families
 * emit the ops between two split weights once for each split:
 *
 *     for (uint32_t k = 0; pen_graph_next_split(graph, k); k++) {
 *       uint32_t weight = pen_graph_columns(graph, "...", out, in, deviation);
 *       y[k] = pen_op_linear(graph, "y", x, weight, PEN_NONE);
 *     }
 *     return pen_op_linear_rows(graph, "z", y, "...", NULL, out, in, deviation, addend);
 */
#ifndef PEN_SPLITS_H
#define PEN_SPLITS_H

#include "gen/model/graph.h"

enum { PEN_SPLITS_MAX = 256 };

/* What follows are the ops of split k of the tensor rank; false: there is none, and what follows is
 * of no split. */
bool pen_graph_next_split(struct pen_graph *graph, uint32_t k);

/* The current split of a weight (out, in) whose rows are columns of the result. The first call adds
 * all splits. Initial values are normal. */
uint32_t pen_graph_columns(struct pen_graph *graph, const char *name, int64_t out, int64_t in,
                           double deviation);

/* The current split of the bias (out) of such a weight, likewise; its initial values are 0. */
uint32_t pen_graph_columns_bias(struct pen_graph *graph, const char *name, int64_t out);

/* The product of x, of which x[k] is split k of the columns, with a weight (out, in), plus addend
 * unless PEN_NONE, plus the bias (out) of that name unless null, whose initial values are 0:
 * (rows, out). */
uint32_t pen_op_linear_rows(struct pen_graph *graph, const char *name, const uint32_t *x,
                            const char *weight, const char *bias, int64_t out, int64_t in,
                            double deviation, uint32_t addend);

/* The same of `name`.weight (in, out) and `name`.bias (out), with initial values 0. `groups`: of
 * columns, each of which is split. */
uint32_t pen_op_affine_columns(struct pen_graph *graph, const char *value, uint32_t x,
                               const char *name, int64_t in, int64_t out, int64_t groups,
                               double deviation);
uint32_t pen_op_affine_rows(struct pen_graph *graph, const char *value, const uint32_t *x,
                            const char *name, int64_t in, int64_t out, double deviation,
                            uint32_t addend);

/* The rows of the tokens in the weight (vocab, width), whose splits are parts of the vocabulary. */
uint32_t pen_op_embedding_rows(struct pen_graph *graph, const char *name,
                               const struct pen_declared *tokens, const char *weight,
                               double deviation);

/* The current split of the head's weight (vocab, width), with model.tie_embeddings the embedding's.
 */
uint32_t pen_graph_head_split(struct pen_graph *graph, const char *weight, double deviation);

/* The rows of a split of the vocabulary: the first of them in the whole matrix, and how many. */
int64_t pen_split_first_row(const struct pen_graph *graph, uint32_t weight);
int64_t pen_split_row_count(const struct pen_graph *graph, uint32_t weight);

/* A sum of values, one for each split, that are added pairwise as they come. */
struct pen_pairwise {
  int kind;              /* of the op that adds two */
  bool by_tokens;        /* the values have all tokens; the sum has those that the rank holds */
  uint32_t count;        /* of values, of all tensor ranks; a power of two */
  uint32_t added, depth; /* values so far; sums that wait for the next */
  uint32_t sum[16];      /* [depth]; after the last value two: the caller adds them */
};

/* Adds the next value, with ops that are appended to the list. After the last value of the tensor
 * rank come the exchange of its sum, and the additions of all ranks' sums. */
void pen_pairwise_add(struct pen_graph *graph, struct pen_op_list *list, struct pen_pairwise *sum,
                      uint32_t value, const char *name);

/* The sum of all values, after the last: adds the last two. */
uint32_t pen_pairwise_total(struct pen_graph *graph, struct pen_op_list *list,
                            const struct pen_pairwise *sum, const char *name, uint8_t role);

/* The same as a value of the op's dtype (rows, width), plus addend and bias unless PEN_NONE. */
uint32_t pen_pairwise_round(struct pen_graph *graph, struct pen_op_list *list, const char *name,
                            const struct pen_pairwise *sum, uint32_t addend, uint32_t bias,
                            int64_t width);

/* The maximum (rows) of those of all tensor ranks, of which `own` is this one's. */
uint32_t pen_max_over_tensor_ranks(struct pen_graph *graph, uint32_t own);

/* The sum of a value that each tensor rank has of the tokens that it holds, for all. */
uint32_t pen_sum_over_tensor_ranks(struct pen_graph *graph, struct pen_op_list *list,
                                   uint32_t value, const char *name);

/* Whether the tensor rank of the graph has a weight (an index). */
bool pen_graph_has_weight(const struct pen_graph *graph, size_t weight);

#endif
