/* attempts.h: passes on a candidate that may refuse it. Each releases what it allocates. */
#ifndef PEN_ATTEMPTS_H
#define PEN_ATTEMPTS_H

#include "gen/base/error.h"
#include "gen/planner/bounds.h"
#include "gen/planner/planner.h"

/* What the passes are given and what they find, which is allocated before. */
struct pen_attempt_input {
  const struct pen_planner *planner;
  const struct pen_choice *choice;
  struct pen_refusal *refusal; /* filled in when an attempt fails */
};

/* Whether the settings are valid. */
bool pen_attempt_settings(const struct pen_attempt_input *input);

/* The stages of a pipeline; `cut` has room for them. */
bool pen_attempt_cut(const struct pen_attempt_input *input, struct pen_cut *cut);

/* How the data ranks share; terms->shards and groups have room for the ranks. */
bool pen_attempt_sharing(const struct pen_attempt_input *input, struct pen_sharing_terms *terms);

/* Of a candidate's simulated step. */
struct pen_step_times {
  double makespan, step, bubble, idle; /* as in struct pen_plan_candidate */
  struct pen_time_parts parts;
};
bool pen_attempt_times(const struct pen_attempt_input *input, struct pen_step_times *times);

/* The same by the plan, with the bytes of its largest arena. */
struct pen_planned {
  double makespan, step, bubble, idle;
  uint64_t arena_bytes;
};
/* `search_seconds`: of the schedule search, which replaces the schedule; NULL: none. */
bool pen_attempt_plan(const struct pen_attempt_input *input, const uint64_t *search_seconds,
                      struct pen_planned *planned);

#endif
