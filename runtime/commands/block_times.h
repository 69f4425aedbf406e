/* block_times.h: what the actions of a plan of `measured` (plan.def) take on this machine, with as
 * many processes busy as there are cores. */
#ifndef PEN_BLOCK_TIMES_H
#define PEN_BLOCK_TIMES_H

#include <stdint.h>

#include "runtime/base/options.h"
#include "runtime/commands/timed_ranks.h"
#include "runtime/plan/plan.h"

/* How many processes run a plan at the same time: one a core; with tensor ranks as many times all
 * of them as there are cores for, once at least; one a replica. */
uint32_t pen_block_processes(const struct pen_plan *plan, const struct pen_busy_cores *cores);

/* Durations in nanoseconds of each action of one step, of each process and step in turn. */
struct pen_block_times {
  const struct pen_plan *plan; /* with one rank in each replica, and a train profile alone */
  uint32_t layers;             /* of the deployment's model */
  uint64_t *sample_ns;         /* [action][capacity] */
  uint32_t capacity, count;    /* samples of each action */
};

/* Of no run yet. */
void pen_block_times_open(struct pen_block_times *times, const struct pen_plan *plan,
                          uint32_t layers);

/* Runs steps of the plan for about `seconds`, in pen_block_processes() at the same time. Tensor
 * ranks compute as if nothing were exchanged. Adds the samples of all, or of the first replica,
 * without those of the first step. Fails with the status of a process that fails. */
void pen_block_times_run(struct pen_block_times *times, struct pen_busy_cores *cores,
                         const struct pen_options *options, double seconds);

/* The median of the actions of a kind of a stage, or of the end of the step; in milliseconds; 0:
 * the plan has none. */
double pen_block_times_ms(struct pen_block_times *times, int kind, uint32_t stage);
/* Of a collective, whose tensor ranks may wait for each other: the lower quartile. */
double pen_block_times_collective_ms(struct pen_block_times *times, int kind, uint32_t stage);

#endif
