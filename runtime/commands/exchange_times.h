/* exchange_times.h: what exchanges between the tensor ranks of a rank take on this machine. */
#ifndef PEN_EXCHANGE_TIMES_H
#define PEN_EXCHANGE_TIMES_H

#include <stdint.h>

#include "runtime/commands/timed_ranks.h"

enum { PEN_EXCHANGE_SIZES = 6 };
#define PEN_EXCHANGE_BYTES_MIN ((uint64_t)4096) /* each size is four times the one before */

/* For each size of the part of a tensor rank the milliseconds of an exchange of so many tensor
 * ranks, which begin it at the same time: until each has put its part into a slot at all others,
 * and has read theirs. Forks a process for each, on cores of their own if there are as many. Fails
 * like a run.
 */
void pen_exchange_times(uint32_t tensor_ranks, const struct pen_busy_cores *cores,
                        double ms[PEN_EXCHANGE_SIZES]);

#endif
