/* piece_values.h: what the check of pieces knows of a value of a stage's forward, for the files
 * that check its ops: pieces.c, piece_logits.c and piece_members.c. */
#ifndef PEN_PIECE_VALUES_H
#define PEN_PIECE_VALUES_H

#include "gen/verify/stage_terms.h"
#include "runtime/plan/plan.h"

/* The pieces [first, past) that a value covers: as a part of the columns, or as a sum; and which
 * tokens: all of them, or none; the member's run of each sequence; all, gathered from the members;
 * one of each sequence. */
struct pen_piece_value {
  enum { PEN_VALUE_WHOLE, PEN_VALUE_OF_PIECE, PEN_VALUE_PARTIAL } kind;
  uint32_t first, past;
  uint32_t group; /* what is summed: the term of the weight's tensor or of the logits' input */
  enum { PEN_TOKENS_ALL, PEN_TOKENS_OWN_RUN, PEN_TOKENS_GATHERED, PEN_TOKENS_LAST } tokens;
};

struct pen_piece_check {
  const struct pen_stage_terms *s;
  uint32_t action, pieces;
  struct pen_piece_value *part; /* [value] */
  uint32_t forward;             /* the term in progress */
  int64_t sequences;            /* of a microbatch; 0: no op has said so yet */
};

const struct pen_term *pen_piece_term(const struct pen_piece_check *c); /* the term in progress */

/* Notes that the term in progress breaks the rule. False. */
bool pen_piece_problem(const struct pen_piece_check *c, const char *text);

/* Of the term in progress: what operand k is; the weight that it is, or null; a dimension by its
 * name, 0 if the op has none of it. */
struct pen_piece_value pen_piece_input(const struct pen_piece_check *c, int k);
const struct pen_weight *pen_piece_weight(const struct pen_piece_check *c, int k);
int64_t pen_piece_dim(const struct pen_piece_check *c, const char *name);

/* Says what the outputs of the term in progress are. A sum over all pieces is whole. */
void pen_piece_set_outputs(struct pen_piece_check *c, struct pen_piece_value part);

/* The member's first piece. */
uint32_t pen_first_own_piece(const struct pen_rank_context *b);

/* The first weight of a tensor, as a number of what is summed. */
uint32_t pen_piece_tensor(const struct pen_piece_check *c, const struct pen_weight *weight);

/* The op that makes a value, or of which it is the greatest over the members, or a part. */
const struct pen_term *pen_piece_source(const struct pen_piece_check *c, uint32_t value);

/* Do all ops have as many sequences? */
bool pen_piece_has_sequences(struct pen_piece_check *c, int64_t sequences);

/* Does an op over such tokens have the rows of the sequences? If not, this is noted. */
bool pen_piece_has_rows_of(struct pen_piece_check *c, int tokens);

/* Sums over tokens are of as many runs of each sequence as there are pieces, or of the member's
 * part of them; without pieces, of none. If not, this is noted. */
bool pen_piece_has_all_runs(struct pen_piece_check *c, int tokens);
bool pen_piece_has_no_runs(struct pen_piece_check *c);

/* The pieces so far, in operand k, and then the next; the first begins at piece `begin`. Sets the
 * outputs. */
bool pen_piece_check_next(struct pen_piece_check *c, int k, struct pen_piece_value next,
                          uint32_t begin);

/* The check of an op: notes what is wrong and returns false, or sets the outputs. */
typedef bool pen_piece_check_op(struct pen_piece_check *c);

#endif
