/* noisy_timeline.h: the ends of a timeline's actions under many draws of their costs at once. */
#ifndef PEN_NOISY_TIMELINE_H
#define PEN_NOISY_TIMELINE_H

#include <stdint.h>

#include "gen/search/timeline.h"
#include "gen/timing/retiming.h"

struct pen_search_noisy {
  const struct pen_search_timeline *timeline;
  const float (*factor)[PEN_RETIMING_LANES]; /* [cell] of its cost, in each draw */
  struct pen_retiming trial;                 /* what the last trial has timed */
  float (*slot)[PEN_RETIMING_LANES]; /* 0; [rank] before its first action; [cell][2] its end:
                                        accepted, and of the trial */
  uint8_t *accepted;                 /* [cell] which of the two is accepted */
  uint64_t timed;                    /* cells timed so far */
};

struct pen_search_noisy *pen_search_noisy(const struct pen_search_timeline *timeline,
                                          const float (*factor)[PEN_RETIMING_LANES]);

void pen_search_noisy_free(struct pen_search_noisy *noisy);

/* Times the actions that the last pen_search_set() or pen_search_try() of the timeline has timed.
 * Returns the estimate of the 99th percentile of the makespan: the mean of the draws plus 2.326
 * standard deviations. */
double pen_search_noisy_try(struct pen_search_noisy *noisy);

/* Accepts the times of the last trial. Call it after pen_search_set() too. */
void pen_search_noisy_keep(struct pen_search_noisy *noisy);

#endif
