/* arena.h: the one address range that a rank's plan addresses (see plan.h). Its first
 * pen_shared_bytes() are the rank's part of the shared memory, where other ranks write, and from
 * where peers read; the rest is its own. All of it is zero and present before the first step. */
#ifndef PEN_ARENA_H
#define PEN_ARENA_H

#include <stdint.h>

#include "runtime/comm/shared_control.h"
#include "runtime/plan/plan.h"

/* Maps and touches the arena of a rank of a replica. Ends with a message when the machine has not
 * the memory. */
unsigned char *pen_arena_open(const struct pen_plan *plan, uint32_t replica, uint32_t rank,
                              const struct pen_shared *shared);

/* Reserves an arena's addresses in this process's memory, all zero, whose pages come when touched:
 * to read files into before they go to a device. Give back with pen_arena_staging_free(). */
unsigned char *pen_arena_staging(const struct pen_plan *plan, uint32_t rank);
void pen_arena_staging_free(const struct pen_plan *plan, uint32_t rank, unsigned char *shadow);

/* Maps the windows that this rank writes to, and what it reads of its peers, so that no row meets a
 * page fault. After a barrier: by then every rank has touched its own window first, and its pages
 * are where it runs. */
void pen_arena_reach_peers(const struct pen_plan *plan, const struct pen_profile *profile,
                           uint32_t replica, uint32_t rank, const struct pen_shared *shared);

#endif
