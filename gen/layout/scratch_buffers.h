/* scratch_buffers.h: values that are live within one program. */
#ifndef PEN_SCRATCH_BUFFERS_H
#define PEN_SCRATCH_BUFFERS_H

#include "gen/layout/internal.h"

/* Places the scratch of one program; sets buffers->scratch[program]. */
void pen_place_scratch(struct pen_buffer_filling *f, int program);

/* Places the gradients of one microbatch of a program in the buffer of base PARTIAL, which all
 * programs use in turn. */
void pen_place_partials(struct pen_buffer_filling *f, int program);

#endif
