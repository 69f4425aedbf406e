/* passes.h: what each pass costs: processor time, and the most memory held by its end (--times). */
#ifndef PEN_PASSES_H
#define PEN_PASSES_H

#include <stdint.h>

/* From now on passes are timed; without it the next does nothing. */
void pen_passes_time(void);

/* Ends the pass that runs, if any, and begins another; NULL begins none. A name may come again: its
 * times add up. Names are kept, not copied. */
void pen_pass(const char *name);

/* Writes what was counted so far as JSON: {"passes": [{"name", "seconds", "peak_kib"}, ...],
 * "rows", "seconds", "peak_kib"}. Seconds are this process's processor time, so that other work on
 * the machine hardly counts; the total is from the process's start. `rows`: how large the plan is,
 * of one training step. Fails (73, 74). */
void pen_passes_write(const char *path, uint64_t rows);

#endif
