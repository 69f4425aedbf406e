/* rank_open.h: all that a rank allocates, opens and computes before its first step. */
#ifndef PEN_RANK_OPEN_H
#define PEN_RANK_OPEN_H

#include "runtime/rank/rank.h"

/* Opens kernels, device, memory, transports and programs, and loads weights. */
void pen_rank_open(struct pen_rank *rank, uint32_t global);

/* Waits for all ranks, compares plans and options with theirs, and connects the transports. False:
 * the run was aborted. */
bool pen_rank_connect(struct pen_rank *rank);

#endif
