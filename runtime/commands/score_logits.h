/* score_logits.h: score --logits: the logits that predict each token of the file.
 *
 * Every token has an entry, in the order of the scores: for a packed file that of the documents in
 * the input. With --logits-top K above 0 an entry is a line of JSON, [[id, logit], ...], with the K
 * largest logits in falling order, the lower id first of equal ones; with K = 0 it is a row of the
 * F32 tensor `logits` (tokens, vocab) of a safetensors file, whose U8 tensor `predicted` (tokens)
 * is 0 for a token that nothing predicts, else 1. With K above 0 such a token has null. A logit
 * that is not finite is "nan", "inf" or "-inf" in a line; NaN counts as the largest, as in
 * torch.topk().
 *
 * The rank of the last stage that computes an entry writes it as a record of fixed size in its
 * place in a file that all replicas share, so nothing accumulates in memory; they must be on one
 * host. Of tensor ranks, which are, each writes the part of its tokens. The rank that writes the
 * scores makes FILE of it after the last step, by rename. */
#ifndef PEN_SCORE_LOGITS_H
#define PEN_SCORE_LOGITS_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/exec/exec.h"
#include "runtime/rank/run.h"

/* In the parent, on the host of the rank that writes the scores: creates the file of the records.
 * Does nothing without --logits. Fails: 64 if the ranks that write it are on several hosts, 73, 74.
 */
void pen_score_logits_open(const struct pen_run *run);

/* In a rank of the last stage, before the seal. `first_entry`: of a packed file, in which entry
 * each document begins, by its index in the file; else null. `rows`: how many rows there may be of
 * which some logits were added, but not all. */
void pen_score_logits_prepare(const struct pen_vm *vm, const uint64_t *first_entry, size_t rows);

/* Whether there is --logits; then for each row of a step, counted over all replicas, the rank that
 * computes it calls pen_score_logits_add() with the row, of the model's dtype: with all logits, or
 * with each split of them that the rank has, [count] from token `first` on, rising. Fails (74). */
bool pen_score_logits_wanted(void);
void pen_score_logits_add(const struct pen_vm *vm, uint64_t row_index, const void *row,
                          size_t first, size_t count);

/* In the rank that writes the scores, after the last step: makes FILE, unless a signal stopped the
 * run before the whole file of tokens was read; then it says so. Fails (73, 74). */
void pen_score_logits_finish(const struct pen_vm *vm);

/* In the parent, after the ranks: removes what is left of an unfinished file. */
void pen_score_logits_close(void);

#endif
