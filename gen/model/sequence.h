/* sequence.h: values between the matrices whose tokens the tensor ranks share
 * (tensor_parallel.sequence): each has its sequence shard, one of as many equal runs of each
 * sequence's positions as there are tensor ranks (Korthikanti et al. 2022, "sequence parallelism").
 *
 * Products of split weights take all tokens, and make partial sums for all: before them the shards
 * of all tensor ranks are gathered, after them each gets the partial sums of its own shard. Without
 * tensor_parallel.sequence, or with one tensor rank, a rank has all tokens. */
#ifndef PEN_SEQUENCE_H
#define PEN_SEQUENCE_H

#include "gen/model/graph.h"

/* The tokens of each sequence that a rank has, and of a microbatch. */
int64_t pen_local_sequence(const struct pen_graph *graph);
int64_t pen_local_rows(const struct pen_graph *graph);
/* The runs of a sum over these tokens: all runs are the splits. */
int64_t pen_local_runs(const struct pen_graph *graph);

/* All tokens of a value of which the rank has its own: for ops that follow at the end of the
 * list, before another exchange. */
uint32_t pen_all_tokens(struct pen_graph *graph, struct pen_op_list *list, uint32_t value);
/* The value whose tokens an op of pen_all_tokens() gathers into this one; PEN_NONE: none does. */
uint32_t pen_tokens_source(const struct pen_op *op, uint32_t value);

/* What tensor rank m has of a value that has all tokens: the local tokens of it, in an exchange
 * of all tensor ranks' for m = 0, 1, ... */
uint32_t pen_local_part(struct pen_graph *graph, struct pen_op_list *list, uint32_t value,
                        uint32_t m, const char *name);

/* Between these two each tensor rank computes all tokens: a block whose weights are whole. The
 * first gives all tokens of a value of which the rank has its own, the second its own of a value
 * that has all. */
uint32_t pen_begin_all_tokens(struct pen_graph *graph, const char *name, uint32_t x);
uint32_t pen_end_all_tokens(struct pen_graph *graph, const char *name, uint32_t y);

/* The local ones of the numbers (rows) i32 of all tokens. */
uint32_t pen_local_numbers(struct pen_graph *graph, const char *name, uint32_t numbers);

#endif
