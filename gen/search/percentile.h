/* percentile.h: pipeline.objective = "p99": searches for the order with the least 99th percentile
 * of the makespan under noise of the costs. */
#ifndef PEN_PERCENTILE_H
#define PEN_PERCENTILE_H

#include <stdbool.h>
#include <stdint.h>

#include "gen/search/progress.h"
#include "gen/search/seeds.h"
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

/* Factors of the costs; the same for every order and every effort. */
struct pen_search_draws;
struct pen_search_draws *pen_search_draws(const struct pen_partition *partition, uint64_t seed);
void pen_search_draws_free(struct pen_search_draws *draws);

/* The search on one placement, and its best order. */
struct pen_search_percentile {
  const struct pen_search_draws *draws;
  struct pen_search_timeline *timeline;
  struct pen_search_noisy *noisy;
  struct pen_search_progress *progress;
  struct pen_order *order; /* null: none yet */
  const struct pen_timing *timing;
  const char *from;
  double value;   /* its 99th percentile; infinite: none yet */
  uint32_t *best; /* the best lists */
  double best_value;
};

/* `starts` are taken, if they are better, and the 99th percentile of their named orders is set. */
struct pen_search_percentile *pen_search_percentile(const struct pen_search_draws *draws,
                                                    struct pen_search_timeline *timeline,
                                                    struct pen_search_seeds *starts,
                                                    struct pen_search_progress *progress);

/* Frees the large arrays; the best order remains. */
void pen_search_percentile_free(struct pen_search_percentile *percentile);

/* Runs the rounds of one second: from the best order so far, and from `list`, which has a small
 * makespan. */
void pen_search_percentile_improve(struct pen_search_percentile *percentile, const uint32_t *list,
                                   const char *from, uint64_t second, uint64_t work, uint64_t seed);

#endif
