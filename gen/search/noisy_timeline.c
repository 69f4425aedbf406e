/* noisy_timeline.c: the ends of a timeline's actions under many draws of their costs at once.
 *
 * All draws run the same lists, so the bookkeeping is done once for all of them, and the arithmetic
 * is on arrays with an element for each draw. After a move the timeline has timed again all actions
 * that can depend on it, and so does this: what comes before them in the lists keeps its ends, in
 * every draw, because it depends on no action that has moved. */
#include "gen/search/noisy_timeline.h"

#include <math.h>

#include "gen/base/arena.h"

enum { LANES = PEN_SEARCH_LANES };
#define DEVIATIONS 2.326 /* the 99th percentile of a normal distribution */

struct pen_search_noisy *pen_search_noisy(const struct pen_search_timeline *timeline,
                                          const float (*factor)[LANES]) {
  const struct pen_search_problem *search = timeline->search;
  struct pen_search_noisy *noisy = pen_new(1, sizeof *noisy);
  noisy->timeline = timeline;
  noisy->factor = factor;
  noisy->end = pen_new(search->cell_count, sizeof *noisy->end);
  noisy->accepted = pen_new(search->cell_count, sizeof *noisy->accepted);
  noisy->at = pen_new(search->rank_count, sizeof *noisy->at);
  return noisy;
}

void pen_search_noisy_free(struct pen_search_noisy *noisy) {
  pen_free(noisy->end);
  pen_free(noisy->accepted);
  pen_free(noisy->at);
  pen_free(noisy);
}

static inline uint32_t rank_of(const struct pen_search_problem *search, uint32_t cell) {
  return search->partition->rank_of[cell / search->microbatch_count % search->stage_count];
}

/* The ends of a cell in the trial. */
static inline float *end_of(struct pen_search_noisy *noisy, uint32_t rank, uint32_t cell) {
  bool timed = noisy->timeline->place[cell] >= noisy->timeline->from[rank];
  return noisy->end[cell][noisy->accepted[cell] ^ timed];
}

/* end = max(free_at, arrives + send) + cost x factor, in each draw. */
static void run_cell(float *restrict end, const float *restrict free_at,
                     const float *restrict arrives, float send, float cost,
                     const float *restrict factor) {
  for (int i = 0; i < LANES; i++) {
    float ready = arrives[i] + send;
    end[i] = (ready > free_at[i] ? ready : free_at[i]) + cost * factor[i];
  }
}

/* Runs a rank's list until it must wait. Returns whether it has run any action. */
static bool run_rank(struct pen_search_noisy *noisy, uint32_t rank) {
  static const float zeros[LANES];
  const struct pen_search_timeline *timeline = noisy->timeline;
  const struct pen_search_problem *search = timeline->search;
  const uint32_t *list = timeline->list + (size_t)rank * search->count;
  uint32_t first = noisy->at[rank], i = first;
  float before[LANES];
  for (int lane = 0; lane < LANES; lane++) before[lane] = (float)search->before[rank];
  const float *free_at = i > 0 ? end_of(noisy, rank, list[i - 1]) : before;
  for (; i < timeline->length[rank]; i++) {
    uint32_t cell = list[i], need = timeline->cell[cell].need;
    const float *arrives = zeros;
    float send = 0;
    if (need != search->cell_count) {
      uint32_t sender = rank_of(search, need);
      if (timeline->place[need] >= noisy->at[sender] && sender != rank) break;
      arrives = end_of(noisy, sender, need);
      send = (float)search->type[timeline->cell[need].type].send;
    }
    float *end = end_of(noisy, rank, cell);
    run_cell(end, free_at, arrives, send, (float)search->type[timeline->cell[cell].type].cost,
             noisy->factor[cell]);
    free_at = end;
  }
  noisy->at[rank] = i;
  noisy->timed += i - first;
  return i > first;
}

double pen_search_noisy_try(struct pen_search_noisy *noisy) {
  const struct pen_search_timeline *timeline = noisy->timeline;
  const struct pen_search_problem *search = timeline->search;
  double sum = 0, squares = 0;
  for (uint32_t rank = 0; rank < search->rank_count; rank++) noisy->at[rank] = timeline->from[rank];
  for (bool runs = true; runs;) {
    runs = false;
    for (uint32_t rank = 0; rank < search->rank_count; rank++)
      if (run_rank(noisy, rank)) runs = true;
  }
  float makespan[LANES] = {0};
  for (uint32_t rank = 0; rank < search->rank_count; rank++) {
    uint32_t last = timeline->list[(size_t)rank * search->count + timeline->length[rank] - 1];
    const float *end = end_of(noisy, rank, last);
    float after = (float)search->after[rank];
    for (int i = 0; i < LANES; i++)
      makespan[i] = end[i] + after > makespan[i] ? end[i] + after : makespan[i];
  }
  for (int i = 0; i < LANES; i++) sum += makespan[i];
  double mean = sum / LANES;
  for (int i = 0; i < LANES; i++) squares += (makespan[i] - mean) * (makespan[i] - mean);
  return mean + DEVIATIONS * sqrt(squares / (LANES - 1));
}

void pen_search_noisy_keep(struct pen_search_noisy *noisy) {
  const struct pen_search_timeline *timeline = noisy->timeline;
  for (uint32_t rank = 0; rank < timeline->search->rank_count; rank++) {
    const uint32_t *list = timeline->list + (size_t)rank * timeline->search->count;
    for (uint32_t i = timeline->from[rank]; i < timeline->length[rank]; i++)
      noisy->accepted[list[i]] ^= 1;
  }
}
