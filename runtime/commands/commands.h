/* commands.h: the commands of a binary that run steps.
 *
 * In: the plan and the options. Out: the exit status. Each command checks all that a
 * user can get wrong, in one process, before the ranks exist; fills a struct pen_run; and starts
 * the ranks (supervise/supervise.h).
 *
 *     train.c      train, with evaluation and checkpoints
 *     forward.c    eval, score, generate: steps without an optimizer
 *     setup.c      what both have in common
 *     files.c      checks of the files that the options name
 *     score.c, generate.c, sample.c    what these commands do in each rank
 *     info.c       info: prints what the binary was built for
 *     measure_costs.c, block_times.c, message_times.c, exchange_times.c    measure
 *     timed_ranks.c, two_ranks.c    processes, small plans and quantiles of these and tools/bench
 */
#ifndef PEN_COMMANDS_H
#define PEN_COMMANDS_H

#include <stdint.h>

#include "runtime/base/options.h"
#include "runtime/plan/plan.h"

/* Each returns the exit status, or fails with it. `zero_ns`: zero of the trace's clock. */
int pen_run_train(const struct pen_plan *plan, const struct pen_options *options, uint64_t zero_ns);
int pen_run_eval(const struct pen_plan *plan, const struct pen_options *options, uint64_t zero_ns);
int pen_run_score(const struct pen_plan *plan, const struct pen_options *options, uint64_t zero_ns);
int pen_run_generate(const struct pen_plan *plan, const struct pen_options *options,
                     uint64_t zero_ns);

#endif
