/* score.h: the command score: what the model gives each token of a file, in the order of the file.
 *
 * Output is JSON lines, one a document:
 * {"document":0,"first_token":0,"log_probabilities":[null,-3.1,...],"tokens":N,"scored":M,
 * "log_probability":S}. A document ends with its end-of-text token; without one (--end-of-text) the
 * file is one document. A packed file says itself where documents end, and they come in the order
 * in which penstock-tokens read them; a document that was cut is whole again, each piece scored in
 * its own window. There is an entry for each token: ln p(token | those before it in its window),
 * null where nothing foretells it: the first of the file, or of a packed document, and targets that
 * are ignored. `scored` counts those that are not null, and S is their sum. */
#ifndef PEN_SCORE_H
#define PEN_SCORE_H

#include "runtime/base/options.h"
#include "runtime/rank/run.h"

/* The parent: opens --output; fails (73). */
void pen_score_open(const struct pen_run *run);

#endif
