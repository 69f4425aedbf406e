/* library_generation.h: texts that a process which uses the library lets the ranks continue. */
#ifndef PEN_LIBRARY_GENERATION_H
#define PEN_LIBRARY_GENERATION_H

#include "runtime/rank/run.h"

/* Whether the binary has a plan for texts: its model predicts tokens from tokens alone. */
bool pen_library_reads_texts(const struct pen_plan *plan);

/* In the parent: says in the mailbox how many texts there may be, and where; none if the model
 * reads none. They begin at the offset `begin`. Returns their end. */
uint64_t pen_library_generation_describe(const struct pen_run *run, uint64_t begin);

/* In the parent, when the mailbox is whole: opens the plans by which texts are continued. */
void pen_library_generation_open(struct pen_run *run);

#endif
