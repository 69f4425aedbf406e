/* log_tail.h: the end of a log that is continued. When ranks are started again after a loss, steps
 * that are made again are not logged again. */
#ifndef PEN_LOG_TAIL_H
#define PEN_LOG_TAIL_H

#include <stdint.h>

struct pen_log_tail {
  uint64_t step, evaluation_step, sample_step; /* the last that the log has; 0: none */
  uint64_t skipped; /* steps that were skipped up to the step to continue from */
};

/* A host that failed may have left a last line without its end, behind which no line may be
 * written: removes it, and says so; if only its line end is missing, adds that. Does nothing unless
 * the log is a regular file. Ends the command if it cannot (71), or if that is no line of a log
 * (73).
 */
void pen_log_tail_mend(const char *path);

/* Mends the end of --log, and reads its last lines back to that of `from_step`. All is 0 where the
 * log is no regular file. */
struct pen_log_tail pen_log_tail_read(const char *path, uint64_t from_step);

#endif
