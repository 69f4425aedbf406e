/* layout.h: gen/layout gives every byte of every arena its offset.
 *
 * In: for each profile the lowered actions and the graphs of the stages (struct pen_profile_input).
 * Out: the plan (runtime/plan/plan.h), complete except for its digest. The parts:
 *
 *   stage_buffers.c  offsets of a stage's values within its buffers, and its live bytes
 *   receive_slots.c  receive slots of the messages, and credits
 *   activations.c    the buffers of a rank as rectangles (bytes x actions), packed by pack.c
 *   strategy.c       which of the ways to pack a rank is tried, and how long
 *   persistent.c     weights, gradients, moments, constants; device_state.c for devices
 *   draft.c          all passes from partition to layout, around the choice of an order
 *   tables.c         the plan's tables; checkpoint_files.c the headers of the checkpoint files
 */
#ifndef PEN_LAYOUT_H
#define PEN_LAYOUT_H

#include "gen/lower/profiles.h"
#include "gen/partition/partition.h"
#include "gen/topology/topology.h"
#include "runtime/plan/plan.h"

/* Returns the plan, without its digest; profile[0] is that of training, if there is one. Takes over
 * profile[].lowered: the plan keeps the actions, messages and channels, and leaves it empty. */
struct pen_plan *pen_layout(const struct pen_topology *topology,
                            const struct pen_partition *partition,
                            const struct pen_profile_input *profile, size_t profile_count);

/* The bytes by which the largest arena exceeds memory.limit_mib; 0: none does. */
uint64_t pen_layout_excess(const struct pen_topology *topology, const struct pen_plan *plan);

/* Stops (78), naming the rank, if an arena is larger than memory.limit_mib. */
void pen_layout_check_limit(const struct pen_topology *topology, const struct pen_plan *plan);

#endif
