/* noisy_timeline.c: the ends of a timeline's actions under many draws of their costs at once.
 *
 * After a move the timeline has timed again all actions that can depend on it, and so does this, in
 * the same order: what comes before them in the lists keeps its ends, in every draw, because it
 * depends on no action that has moved. */
#include "gen/search/noisy_timeline.h"

#include <math.h>

#include "gen/base/arena.h"

enum { LANES = PEN_RETIMING_LANES };
#define DEVIATIONS 2.326 /* the 99th percentile of a normal distribution */

struct pen_search_noisy *pen_search_noisy(const struct pen_search_timeline *timeline,
                                          const float (*factor)[LANES]) {
  const struct pen_search_problem *search = timeline->search;
  const uint32_t ranks = search->rank_count;
  struct pen_search_noisy *noisy = pen_new(1, sizeof *noisy);
  noisy->timeline = timeline;
  noisy->factor = factor;
  noisy->trial.node = pen_new(search->cell_count, sizeof *noisy->trial.node);
  noisy->trial.rank_count = ranks;
  noisy->trial.last = pen_new(ranks, sizeof *noisy->trial.last);
  noisy->trial.after = search->after;
  noisy->slot = pen_new(1 + ranks + 2 * (size_t)search->cell_count, sizeof *noisy->slot);
  for (uint32_t rank = 0; rank < ranks; rank++)
    for (int lane = 0; lane < LANES; lane++)
      noisy->slot[1 + rank][lane] = (float)search->before[rank];
  noisy->accepted = pen_new(search->cell_count, sizeof *noisy->accepted);
  return noisy;
}

void pen_search_noisy_free(struct pen_search_noisy *noisy) {
  pen_free(noisy->trial.node);
  pen_free(noisy->trial.last);
  pen_free(noisy->slot);
  pen_free(noisy->accepted);
  pen_free(noisy);
}

static inline uint32_t rank_of(const struct pen_search_problem *search, uint32_t cell) {
  return search->partition->rank_of[cell / search->microbatch_count % search->stage_count];
}

/* The slot of a cell's end in the trial. */
static inline uint32_t slot_of(const struct pen_search_noisy *noisy, uint32_t rank, uint32_t cell) {
  const bool timed = noisy->timeline->place[cell] >= noisy->timeline->from[rank];
  return 1 + noisy->trial.rank_count + 2 * cell + (noisy->accepted[cell] ^ timed);
}

/* The slot of the end of a rank's action before a place in its list. */
static uint32_t slot_before(const struct pen_search_noisy *noisy, uint32_t rank, uint32_t place) {
  const struct pen_search_timeline *timeline = noisy->timeline;
  const uint32_t *list = timeline->list + (size_t)rank * timeline->search->count;
  return place > 0 ? slot_of(noisy, rank, list[place - 1]) : 1 + rank;
}

static struct pen_retiming_node node_of(const struct pen_search_noisy *noisy, uint32_t cell) {
  const struct pen_search_timeline *timeline = noisy->timeline;
  const struct pen_search_problem *search = timeline->search;
  const struct pen_search_cell *timed = &timeline->cell[cell];
  const uint32_t rank = rank_of(search, cell);
  struct pen_retiming_node node = {.end = slot_of(noisy, rank, cell),
                                   .free_at = slot_before(noisy, rank, timeline->place[cell]),
                                   .factor = {cell},
                                   .cost = {search->type[timed->type].cost}};
  if (timed->need == search->cell_count) return node;
  node.input[0] = slot_of(noisy, rank_of(search, timed->need), timed->need);
  node.delay[0] = search->type[timeline->cell[timed->need].type].send;
  return node;
}

double pen_search_noisy_try(struct pen_search_noisy *noisy) {
  const struct pen_search_timeline *timeline = noisy->timeline;
  struct pen_retiming *trial = &noisy->trial;
  float makespan[LANES];
  double sum = 0, squares = 0;
  for (uint32_t turn = 0; turn < timeline->turns; turn++)
    trial->node[turn] = node_of(noisy, timeline->turn[turn]);
  noisy->timed += trial->node_count = timeline->turns;
  for (uint32_t rank = 0; rank < trial->rank_count; rank++)
    trial->last[rank] = slot_before(noisy, rank, timeline->length[rank]);
  pen_retime_lanes(trial, noisy->slot, noisy->factor, makespan);
  for (int i = 0; i < LANES; i++) sum += makespan[i];
  double mean = sum / LANES;
  for (int i = 0; i < LANES; i++) squares += (makespan[i] - mean) * (makespan[i] - mean);
  return mean + DEVIATIONS * sqrt(squares / (LANES - 1));
}

void pen_search_noisy_keep(struct pen_search_noisy *noisy) {
  for (uint32_t turn = 0; turn < noisy->timeline->turns; turn++)
    noisy->accepted[noisy->timeline->turn[turn]] ^= 1;
}
