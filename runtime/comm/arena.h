/* arena.h: the address range that holds all memory of a rank's plan (plan.h). Its first
 * pen_shared_bytes() are in the shared memory, where other ranks write and peers read; the rest is
 * private. All of it is zero and resident before the first step. */
#ifndef PEN_RUNTIME_ARENA_H
#define PEN_RUNTIME_ARENA_H

#include <stdint.h>

#include "runtime/comm/shared_control.h"
#include "runtime/plan/plan.h"

/* Maps and touches the arena of a process. Fails (71) if there is not enough memory. */
unsigned char *pen_arena_open(const struct pen_plan *plan, uint32_t global,
                              const struct pen_shared *shared);

/* Touches the receive regions that this rank writes and the memory of peers that it reads, so that
 * no action causes a page fault. Call it after a barrier, when each rank has touched its own region
 * first, which places the pages on its NUMA node. */
void pen_arena_reach_peers(const struct pen_plan *plan, const struct pen_profile *profile,
                           uint32_t global, const struct pen_shared *shared);

#endif
