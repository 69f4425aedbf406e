/* first_step.c: shows that a run is alive before its first step has ended (see first_step.h). */
#include "runtime/supervise/first_step.h"

#include <inttypes.h>

#include "runtime/base/check.h"

static const uint64_t pause_ns = 10 * 1000000000ull;

/* A rank that has not begun its steps; PEN_NONE: all have. */
static uint32_t rank_that_starts(const struct pen_run *run) {
  for (uint32_t r = 0; r < run->shared.process_count; r++) {
    if (atomic_load(&run->shared.ranks[r].phase) < PEN_PHASE_STEPS) {
      return r;
    }
  }
  return PEN_NONE;
}

/* Of the actions of all ranks in the step, those that are done. */
static unsigned percent_done(const struct pen_run *run) {
  const struct pen_plan *plan = run->plan;
  uint64_t done = 0, all = 0;
  for (uint32_t r = 0; r < run->shared.process_count; r++) {
    const struct pen_rank_state *state = &run->shared.ranks[r];
    const struct pen_profile *profile = &plan->profiles[atomic_load(&state->profile)];
    const uint64_t count = profile->ranks[pen_table_rank(plan, r)].action_count,
                   finished = atomic_load(&state->finished);
    done += finished < count ? finished : count;
    all += count;
  }
  return (unsigned)(done * 100 / all);
}

void pen_first_step_show(struct pen_first_step *shown, const struct pen_run *run) {
  const uint64_t now_ns = pen_now_ns();
  if (run->options->quiet || run->options->watch || run->local.first != 0 ||
      atomic_load(&run->shared.control->logged.count) > 0) {
    return;
  }
  if (shown->start_ns == 0) {
    shown->start_ns = shown->shown_ns = now_ns;
  }
  if (now_ns - shown->shown_ns < pause_ns) {
    return;
  }
  const uint32_t starting = rank_that_starts(run);
  const unsigned seconds = (unsigned)((now_ns - shown->start_ns) / 1000000000);
  shown->shown_ns = now_ns;
  if (starting == PEN_NONE) {
    pen_say(run->plan->name, "step %" PRIu64 ": %u s, %u %% of its actions", run->first_step + 1,
            seconds, percent_done(run));
  } else {
    pen_say(run->plan->name, "starting: %u s; rank %u %s", seconds, starting,
            atomic_load(&run->shared.ranks[starting].phase) == PEN_PHASE_START ? "opens its files"
                                                                               : "connects");
  }
}
