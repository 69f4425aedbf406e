/* early_exit.h: a command that fails before its ranks start, for instance since a file is missing
 * on its host, tells the commands on the other hosts, which exit with its status instead of waiting
 * for it. */
#ifndef PEN_EARLY_EXIT_H
#define PEN_EARLY_EXIT_H

#include "runtime/rank/run.h"

/* From here on exit() does that, with a status other than 0 and 64 (usage), if the plan has several
 * hosts and this one is no spare. Reads plan, options, local and secret, which are copied. */
void pen_early_exit_open(const struct pen_run *run);

/* Call when the commands connect. */
void pen_early_exit_close(void);

#endif
