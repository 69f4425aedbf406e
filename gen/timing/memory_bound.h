/* memory_bound.h: how long the memory limit makes a rank wait or last: terms of lower_bound.c. */
#ifndef PEN_MEMORY_BOUND_H
#define PEN_MEMORY_BOUND_H

#include <stdbool.h>
#include <stdint.h>

#include "gen/timing/bound_terms.h"

/* The least time that a rank is idle; `limited`: with its memory limit; `weights`: its W may fill
 * the time. 0 with pairs, which may begin before the idle time and end after it. */
double pen_memory_least_wait(const struct pen_bound_terms *b, uint32_t rank, bool limited,
                             bool weights);

/* The least time from the first F of a rank to the end of its last F; not for orders with pairs. */
double pen_memory_last_forward(const struct pen_bound_terms *b, uint32_t rank);

/* [rank]: the least time from its first start to its last end, by the memory that it holds. */
double *pen_memory_hold_times(const struct pen_bound_terms *b);

#endif
