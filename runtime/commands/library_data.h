/* library_data.h: what train tells a process that uses the library, and gets of it. */
#ifndef PEN_LIBRARY_DATA_H
#define PEN_LIBRARY_DATA_H

#include "runtime/rank/run.h"

/* Describes inputs and weights in the mailbox of the run, and opens the caller's samples as the
 * data of training and of an evaluation, which is one step. Fails (64, 71). */
void pen_library_data_open(struct pen_run *run);

#endif
