/* score.h: the command score: the log-probability of each token of a file, in the order of the
 * file.
 *
 * The output is JSON lines, one a document:
 * {"document":0,"first_token":0,"log_probabilities":[null,-3.1,...],"tokens":N,"scored":M,
 * "log_probability":S}. A document ends with its end-of-text token; without one (--end-of-text) the
 * file is one document. A packed file marks the ends of documents, and they are written in the
 * order in which penstock-tokens read them; a document that was split is whole again, each split
 * scored in its own window. Each token has an entry: ln p(token | the tokens before it in its
 * window), or null where nothing predicts it: the first of the file or of a packed document, and
 * ignored targets. `scored` counts the entries that are not null, and S is their sum. A number that
 * is not finite is "nan", "inf" or "-inf"; the result then has no loss. */
#ifndef PEN_SCORE_H
#define PEN_SCORE_H

#include "runtime/exec/op_hook.h"
#include "runtime/rank/run.h"

/* In the parent: sets run->results, and opens --output where `reader`, the rank that writes it, is.
 * Fails (73). */
void pen_score_open(struct pen_run *run, uint32_t reader);

/* What the command does in each rank. */
extern const struct pen_command_hooks pen_score_hooks;

#endif
