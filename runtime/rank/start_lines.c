/* start_lines.c: what a run says when its ranks have started (see start_lines.h). */
#include "runtime/rank/start_lines.h"

#include <inttypes.h>

#include "runtime/base/check.h"
#include "runtime/base/learning_rate.h"

void pen_start_lines_print(const struct pen_run *run) {
  const struct pen_options *options = run->options;
  const struct pen_optimizer *optimizer = &run->plan->optimizer;
  const uint64_t past_step = run->first_step + run->steps;
  if (run->profile->kind != PEN_TRAIN || run->restart.count > 0 || run->measured != NULL) {
    return;
  }
  if (options->checkpoint == NULL) {
    pen_warn("nothing is saved: no --checkpoint");
  } else if (!options->given.save_every && run->steps > 1) {
    pen_warn("not saved before the end: no --save-every");
  }
  if (run->checkpoint_path != NULL && past_step > optimizer->steps) {
    pen_warn("steps after optimizer.steps, %" PRIu64 ", have the learning rate %.4g",
             optimizer->steps, pen_learning_rate(optimizer, past_step));
  }
}
