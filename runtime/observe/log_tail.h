/* log_tail.h: what a log holds when ranks are started again after a loss: steps that are made again
 * are not logged again. */
#ifndef PEN_LOG_TAIL_H
#define PEN_LOG_TAIL_H

#include <stdint.h>

struct pen_log_tail {
  uint64_t step, evaluation_step; /* the last that the log has; 0: none */
  uint64_t skipped;               /* steps that were skipped up to the step to continue from */
};

/* Reads the last lines of --log back to that of `from_step`, and removes an incomplete last line.
 * All is 0 where the log is no regular file. */
struct pen_log_tail pen_log_tail_read(const char *path, uint64_t from_step);

#endif
