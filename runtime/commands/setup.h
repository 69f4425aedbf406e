/* setup.h: what train, eval, score and generate have in common before the ranks start. */
#ifndef PEN_SETUP_H
#define PEN_SETUP_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/rank/run.h"

/* A run of profiles of that kind, as the plan and the options describe it, with its files checked.
 * `deployed` is the plan by which commands are started: `plan`, or one with more replicas. Fails
 * (64). */
struct pen_run pen_run_of(const struct pen_plan *plan, const struct pen_plan *deployed,
                          const struct pen_options *options, enum pen_profile_kind kind,
                          const char *command, uint64_t zero_ns);

/* The profile of the longest sequence. */
const struct pen_profile *pen_longest_profile(const struct pen_buckets *buckets);

/* Opens --data. */
void pen_run_open_data(struct pen_run *run);

/* Checks weights that are no run's latest checkpoint (pen_weights_check()), with --ignore. */
void pen_run_check_weights(struct pen_run *run, const char *path);

/* When all is open: says on the host of rank 0, unless `quiet`, if only the shapes of the weights
 * were compared. */
void pen_run_report_weights(const struct pen_run *run, bool quiet);

/* Creates the file of --trace; without the option, sets its descriptor to -1. */
void pen_run_open_trace(struct pen_run *run);

/* The steps that read each full step of a token file once; 1 if the model makes its own inputs.
 * Fails (65) on a file that is shorter than a step. */
uint64_t pen_steps_of_file(const struct pen_plan *plan, const struct pen_buckets *buckets,
                           const struct pen_data *data);

/* On the host of rank 0, of so many steps that read a file from its start: says how many windows
 * are not read since they fill no step; or, where the user has chosen the number of steps and
 * unless --quiet, that windows are read again. */
void pen_say_not_read(const struct pen_run *run, const struct pen_buckets *buckets,
                      const struct pen_data *data, uint64_t steps, bool chosen);

#endif
