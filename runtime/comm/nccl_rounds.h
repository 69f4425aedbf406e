/* nccl_rounds.h: in which rounds the directed pairs of ranks that exchange messages make their
 * communicators: in one round no rank is in two pairs, so that all pairs of a round are made at
 * once. */
#ifndef PEN_NCCL_ROUNDS_H
#define PEN_NCCL_ROUNDS_H

#include <stdint.h>

#include "runtime/plan/plan.h"

/* The round of every channel of a profile, from 0, equal on all ranks: round[channel_count]. Each
 * channel in turn takes the first round in which neither of its ranks has one: greedy edge
 * colouring, at most 2d - 1 rounds where no rank has more than d channels. Returns the number of
 * rounds. Frees what it allocates. */
uint32_t pen_nccl_rounds(const struct pen_profile *profile, uint32_t rank_count, uint32_t *round);

#endif
