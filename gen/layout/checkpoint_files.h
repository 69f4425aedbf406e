/* checkpoint_files.h: the checkpoint's files. */
#ifndef PEN_CHECKPOINT_FILES_H
#define PEN_CHECKPOINT_FILES_H

#include "runtime/plan/plan.h"

/* Sets the plan's headers, file sizes and model digest, and the weights' offsets in the files. */
void pen_files(struct pen_plan *plan, struct pen_weight *weights);

#endif
