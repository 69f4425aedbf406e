/* pass_times.h: processor time and peak memory of each pass (--times). */
#ifndef PEN_PASS_TIMES_H
#define PEN_PASS_TIMES_H

#include <stdint.h>

/* Starts the measurement. Without it pen_pass() does nothing. */
void pen_passes_time(void);

/* Ends the current pass, if any, and starts another; NULL starts none. The times of passes with the
 * same name add up. The name is kept, not copied. */
void pen_pass(const char *name);

/* Writes the measurements as JSON: {"passes": [{"name", "seconds", "peak_kib"}, ...], "rows",
 * "seconds", "peak_kib"}. Seconds are processor time of this process; the total counts from the
 * start of the process. `actions` is the size of the plan ("rows"): the actions of one training
 * step. Fails (73, 74). */
void pen_passes_write(const char *path, uint64_t actions);

#endif
