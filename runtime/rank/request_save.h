/* request_save.h: saves a checkpoint because the process that uses the library asks for it. */
#ifndef PEN_REQUEST_SAVE_H
#define PEN_REQUEST_SAVE_H

#include <stdbool.h>

#include "runtime/rank/rank.h"

/* Every rank: saves to the mailbox's path, whose folder rank 0 keeps locked until it saves to
 * another or ends. What prevents it, another run's lock, too, is the mailbox's status, and a
 * warning. False: the run was aborted. */
bool pen_request_save(struct pen_rank *rank);

#endif
