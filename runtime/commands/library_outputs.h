/* library_outputs.h: the outputs that a step gives a process which uses the library. */
#ifndef PEN_LIBRARY_OUTPUTS_H
#define PEN_LIBRARY_OUTPUTS_H

#include "runtime/exec/exec.h"
#include "runtime/rank/run.h"

/* In the parent: places them in the mailbox, from the offset `begin` on, with room for so many
 * samples; none where other commands have some of them. Returns their end. */
uint64_t pen_library_outputs_place(const struct pen_run *run, uint64_t samples, uint64_t begin);

/* In the parent, when the mailbox is whole: describes them. */
void pen_library_outputs_open(const struct pen_run *run, uint64_t samples);

/* In a rank, after its end of a step. */
void pen_library_outputs_take(const struct pen_run *run, const struct pen_vm *vm);

#endif
