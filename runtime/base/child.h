/* child.h: processes that end with the one that started them. */
#ifndef PEN_CHILD_H
#define PEN_CHILD_H

#include <sys/types.h>

/* In a process after fork(): it is killed when its parent exits. `parent`: the parent's process at
 * fork(); if that has exited already, this process exits with PEN_EXIT_LOST. */
void pen_child_end_with(pid_t parent);

#endif
