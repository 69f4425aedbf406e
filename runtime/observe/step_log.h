/* step_log.h: what rank 0 reports of the steps: --log's JSON lines, the progress line, and eval's
 * sums. It runs between steps, after pen_seal(), and so allocates nothing.
 *
 * A step is reported when all ranks have published it. Without WAIT_NORM between the steps, that
 * may be later than the end of the step on rank 0; up to PEN_STEP_STATS_DEPTH steps are pending. */
#ifndef PEN_STEP_LOG_H
#define PEN_STEP_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/comm/shared_control.h"
#include "runtime/data/token_file.h"
#include "runtime/observe/microbatch_losses.h"
#include "runtime/plan/plan.h"
#include "runtime/comm/endpoint.h"

struct pen_log {
  const struct pen_plan *plan;
  bool trains;
  int descriptor; /* of --log, or -1 */
  const char *path;
  double peak_ms;    /* of a step, if all ranks computed as fast as they can; 0: not known */
  char *line;        /* the line that is written; null without --log */
  size_t line_bytes; /* its room */
  char *plan_text;   /* the plan, for the first line; null when that is written */
  bool terminal;     /* standard error is a terminal: the progress line is rewritten */
  bool quiet;
  struct pen_progress *watched; /* null: not of training */
  uint64_t first_step;          /* optimizer steps before this run */
  uint64_t steps;               /* that this run is to make */
  struct pen_microbatch_losses microbatches;
  const struct pen_data *data; /* whose second epoch is announced; null: it was, or none is */
  uint64_t max_skipped;        /* consecutive steps that may diverge; 0: any number */
  uint64_t before;             /* steps of the run that another log reports */
  uint64_t logged_step;        /* steps, from 1, that were reported before a restart; */
  uint64_t logged_evaluation;  /* the same of the last evaluation */
  /* Since the run began: */
  uint64_t reported; /* steps reported */
  uint64_t end_ns[PEN_STEP_STATS_DEPTH], tokens[PEN_STEP_STATS_DEPTH],
      samples[PEN_STEP_STATS_DEPTH], losses[PEN_STEP_STATS_DEPTH], epochs[PEN_STEP_STATS_DEPTH],
      last_epochs[PEN_STEP_STATS_DEPTH]; /* of the steps not yet reported */
  uint64_t reported_end_ns; /* end of the last step reported; before: when the first began */
  uint64_t shown_ns;        /* when progress was last shown */
  double smooth_ms;         /* moving average of step times, for the time left */
  double loss_sum;          /* of all steps reported, before division */
  uint64_t token_count;     /* of the same: targets that count, */
  uint64_t target_count;    /* and what the losses are over */
  uint64_t skipped;         /* steps reported without targets, or with a norm that is not finite */
  uint64_t diverged;        /* consecutive steps that diverged, up to the last one with targets; */
  uint64_t diverged_since;  /* the first of these */
  uint64_t sound_step;      /* the last one that was not skipped for its norm, or first_step */
  bool loss_is_infinite;    /* infinite or no number: of the last step with targets */
  uint64_t not_finite;      /* steps reported whose loss is infinite or no number */
  uint64_t lost;            /* lines that could not be written */
};

/* In the parent: opens and locks --log (path null: none). What a regular file holds is another
 * run's, unless the log is continued: then an incomplete last line is removed. Fails (73): another
 * command writes there, or a former run has written. Returns the descriptor, or -1. */
enum pen_log_mode { PEN_LOG_NEW, PEN_LOG_CONTINUED, PEN_LOG_OVERWRITTEN };
int pen_log_create(const char *path, enum pen_log_mode mode);

/* After a restart, perhaps on another host: the same to append, with a warning for a failure. */
int pen_log_create_again(const char *path);

/* On rank 0, before pen_seal(), with a descriptor: allocates the line; with `microbatches` lines
 * have the loss of each microbatch, too. Fails (71). */
void pen_log_open(struct pen_log *log, bool microbatches);

/* On rank 0, when the first step begins. */
void pen_log_start(struct pen_log *log);

/* On rank 0, after a step, whose targets and epochs `data` has: reports the steps that all ranks
 * have published; with `all`, blocks until all steps up to `step` are reported. False: the run was
 * aborted. Fails (79) after max_skipped consecutive steps that diverged. */
bool pen_log_step(struct pen_log *log, struct pen_endpoint *endpoint, uint64_t step,
                  const struct pen_data *data, bool all);

/* On rank 0: reports the sums of an evaluation after that step (null: it was interrupted), and
 * excludes its time from that of the next step. */
void pen_log_evaluation(struct pen_log *log, uint64_t step, const struct pen_log *evaluation);

/* "2:05" or "1:02:05". */
const char *pen_clock_text(char *text, size_t bytes, double seconds);

/* A loss (form 'f') or a norm ('g') of so many targets for people; of none "null", as in the log.
 */
enum { PEN_MEAN_SHOWN_BYTES = 320 };
const char *pen_mean_shown(char text[PEN_MEAN_SHOWN_BYTES], char form, uint64_t targets,
                           double value);

/* Ends the progress line. */
void pen_log_finish(struct pen_log *log);

/* On rank 0, after the last step and before it is saved: fails (79) if its loss is not finite; with
 * `whole`, which a run is that no signal ends, also if all steps after `saved_step`, the last one
 * whose weights are saved or were given, were skipped for their norm. */
void pen_log_must_be_finite(struct pen_log *log, bool whole, uint64_t saved_step);

/* On rank 0, at the end: fails (74) if lines are missing in the log. */
void pen_log_must_be_whole(const struct pen_log *log);

#endif
