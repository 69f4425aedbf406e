/* message_times.h: what messages between two ranks of this machine take. */
#ifndef PEN_MESSAGE_TIMES_H
#define PEN_MESSAGE_TIMES_H

#include <stdint.h>

#include "runtime/commands/timed_ranks.h"

enum { PEN_MESSAGE_SIZES = 6 };
#define PEN_MESSAGE_BYTES_MIN ((uint64_t)4096) /* each size is four times the one before */

/* For each size the milliseconds from the start of the send until the other rank has read it.
 * Forks two processes, on cores of their own if there are two. Fails like a run. */
void pen_message_times(int transport, const struct pen_busy_cores *cores,
                       double ms[PEN_MESSAGE_SIZES]);

#endif
