/* step_log.h: what rank 0 reports of the steps: --log's JSON lines, the progress line, and eval's
 * sums. All from preallocated memory by write(2): it runs between steps, after the seal.
 *
 * A step is told when all ranks have published it. Where no WAIT_NORM parts the steps that may be
 * later than rank 0's own end of it; up to PEN_STEP_STATS_DEPTH steps wait. */
#ifndef PEN_STEP_LOG_H
#define PEN_STEP_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/comm/shared_control.h"
#include "runtime/plan/plan.h"
#include "runtime/comm/endpoint.h"

struct pen_log {
  const struct pen_plan *plan;
  bool trains;
  int descriptor; /* of --log, or -1 */
  const char *path;
  bool terminal; /* standard error is one: a progress line that is rewritten */
  bool quiet;
  struct pen_progress *watched; /* null: nobody watches */
  uint64_t first_step;          /* optimizer steps before this run */
  uint64_t steps;               /* that this run is to make */
  uint64_t before;              /* steps of the run that were another log's */
  /* Since the run began: */
  uint64_t told; /* steps told */
  uint64_t end_ns[PEN_STEP_STATS_DEPTH],
      targets[PEN_STEP_STATS_DEPTH]; /* of the steps not yet told */
  uint64_t told_end_ns;              /* end of the last step told; before: when the first began */
  uint64_t shown_ns;                 /* when progress was last shown */
  double smooth_ms;                  /* moving average of step times, for the time left */
  double loss_sum;                   /* of all steps told, before division */
  uint64_t target_count;             /* of the same */
  uint64_t skipped; /* steps told without targets, or with a norm that is not finite */
  uint64_t lost;    /* lines that could not be written */
};

/* The parent: opens --log (path null: none); `append` keeps what is there. Fails: 73. Returns its
 * descriptor, or -1. */
int pen_log_create(const char *path, bool append);

/* Rank 0, as the first step begins. */
void pen_log_start(struct pen_log *log);

/* Rank 0, after its own end of a step of so many targets: tells what can be told; with `all`,
 * blocks until everything up to `step` is told. False: the run was aborted. */
bool pen_log_step(struct pen_log *log, struct pen_endpoint *endpoint, uint64_t step,
                  uint64_t targets, bool all);

/* Rank 0: tells what an evaluation after that step has added up (null: it was interrupted); its
 * time is not that of the next step. */
void pen_log_evaluation(struct pen_log *log, uint64_t step, const struct pen_log *evaluation);

/* "2:05" or "1:02:05". */
const char *pen_clock_text(char *text, size_t bytes, double seconds);

/* Ends the progress line. */
void pen_log_finish(struct pen_log *log);

/* Rank 0, with nothing left to do: fails (74) when lines are missing in the log. */
void pen_log_must_be_whole(const struct pen_log *log);

/* Writes a number so that it reads back exactly; what is not finite as `null`. Returns the bytes
 * written. */
int pen_json_number(char *text, size_t bytes, double value);

#endif
