/* requests.h: what a process that uses the library asks of the ranks (runtime/base/mailbox.h). All
 * ranks of the command serve each request, between two steps; a step is the next one of the run. */
#ifndef PEN_REQUESTS_H
#define PEN_REQUESTS_H

#include <stdbool.h>

#include "runtime/rank/rank.h"

/* Serves requests until one is a step, or, `*step` false, the end. False: the run was aborted. A
 * signal that ends the run while the ranks wait aborts it. */
bool pen_requests_serve(struct pen_rank *rank, bool *step);

/* After the step that was asked for: its results, and, when all ranks have ended it, the answer. So
 * no rank has any memory of another in use between two requests, and a host may close alone. False:
 * the run was aborted. */
bool pen_requests_answer_step(struct pen_rank *rank);

#endif
