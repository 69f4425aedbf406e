/* agreement.h: with ranks on several hosts, what uses the library on one host asks for the same as
 * on the others: the same call, with the same samples, of which a checksum is compared. */
#ifndef PEN_AGREEMENT_H
#define PEN_AGREEMENT_H

#include <stdbool.h>

#include "runtime/rank/rank.h"

/* Every rank, when its command has a request: waits until all have one. *agreed is false where they
 * differ: then the mailbox of each host has the status and says which host asks for something else.
 * To close is agreed, and waits for nobody; it ends the run for the others (75). False: the run was
 * aborted. */
bool pen_callers_agree(struct pen_rank *rank, bool *agreed);

#endif
