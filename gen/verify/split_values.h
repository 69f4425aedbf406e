/* split_values.h: what the check of splits knows of a value of a stage's forward, for the files
 * that check its ops: splits.c, split_logits.c and split_collectives.c. */
#ifndef PEN_SPLIT_VALUES_H
#define PEN_SPLIT_VALUES_H

#include "gen/verify/stage_terms.h"
#include "runtime/plan/plan.h"

/* The splits [first, past) that a value covers: as a part of the columns, or as a sum; and which
 * tokens: all of them, or none; the tensor rank's shard of each sequence; all, gathered from the
 * tensor ranks; one of each sequence. */
struct pen_split_value {
  enum { PEN_VALUE_WHOLE, PEN_VALUE_OF_SPLIT, PEN_VALUE_PARTIAL } kind;
  uint32_t first, past;
  uint32_t group; /* what is summed: the term of the weight's tensor or of the logits' input */
  enum { PEN_TOKENS_ALL, PEN_TOKENS_SLICE, PEN_TOKENS_GATHERED, PEN_TOKENS_LAST } tokens;
};

struct pen_split_check {
  const struct pen_stage_terms *s;
  uint32_t action, splits;
  struct pen_split_value *part; /* [value] */
  uint32_t forward;             /* the term in progress */
  int64_t sequences;            /* of a microbatch; 0: no op has said so yet */
};

const struct pen_term *pen_split_term(const struct pen_split_check *c); /* the term in progress */

/* Notes that the term in progress breaks the rule. False. */
bool pen_split_problem(const struct pen_split_check *c, const char *text);

/* Of the term in progress: what operand k is; the weight that it is, or null; a dimension by its
 * name, 0 if the op has none of it. */
struct pen_split_value pen_split_input(const struct pen_split_check *c, int k);
const struct pen_weight *pen_split_weight(const struct pen_split_check *c, int k);
int64_t pen_split_dim(const struct pen_split_check *c, const char *name);

/* Says what the outputs of the term in progress are. A sum over all splits is whole. */
void pen_split_set_outputs(struct pen_split_check *c, struct pen_split_value part);

/* The tensor rank's first split. */
uint32_t pen_first_own_split(const struct pen_rank_context *b);

/* The first weight of a tensor, as a number of what is summed. */
uint32_t pen_split_tensor(const struct pen_split_check *c, const struct pen_weight *weight);

/* The op that makes a value, or of which it is the greatest over the tensor ranks, or a part. */
const struct pen_term *pen_split_source(const struct pen_split_check *c, uint32_t value);

/* Do all ops have as many sequences? */
bool pen_split_has_sequences(struct pen_split_check *c, int64_t sequences);

/* Does an op over such tokens have the rows of the sequences? If not, this is noted. */
bool pen_split_has_rows_of(struct pen_split_check *c, int tokens);

/* Sums over tokens are of as many runs of each sequence as there are splits, or of the tensor
 * rank's part of them; without splits, of none. If not, this is noted. */
bool pen_split_has_all_runs(struct pen_split_check *c, int tokens);
bool pen_split_has_no_runs(struct pen_split_check *c);

/* The splits so far, in operand k, and then the next; the first begins at split `begin`. Sets the
 * outputs. */
bool pen_split_check_next(struct pen_split_check *c, int k, struct pen_split_value next,
                          uint32_t begin);

/* The check of an op: notes what is wrong and returns false, or sets the outputs. */
typedef bool pen_split_check_op(struct pen_split_check *c);

#endif
