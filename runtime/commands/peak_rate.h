/* peak_rate.h: what a rank computes at most on this machine. */
#ifndef PEN_PEAK_RATE_H
#define PEN_PEAK_RATE_H

#include "runtime/commands/timed_ranks.h"

/* The rate of large matrix products in the plan's dtype, by a rank with the plan's threads while
 * all cores are busy, in 10^12 floating-point operations a second. Forks a process for each rank,
 * and takes the fastest. Fails like a run. */
double pen_peak_tflops(const struct pen_plan *plan, const struct pen_busy_cores *cores);

#endif
