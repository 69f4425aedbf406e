/* host_memory.h: whether the ranks of this host fit into its memory. */
#ifndef PEN_HOST_MEMORY_H
#define PEN_HOST_MEMORY_H

#include "runtime/rank/run.h"

/* Call once, before the first start. Fails (71) where the ranks of this host need more bytes than
 * it has, or than the limit of this process's control group, of either version, or of one above it.
 * Warns where they need more than is available now. */
void pen_host_memory_check(const struct pen_run *run);

#endif
