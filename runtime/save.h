/* save.h: one checkpoint, saved by all ranks together, between two steps. */
#ifndef PEN_SAVE_H
#define PEN_SAVE_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/transport.h"

/* Every rank calls it after the same step. `steps` optimizer steps are in the weights; `cursor` is that of the next. False: the
 * run was aborted meanwhile; what is half-written the parent removes. */
bool pen_save(struct pen_transport *end, const char *directory, uint64_t steps, uint64_t cursor);

#endif
