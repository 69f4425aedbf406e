/* anneal.c: local search by simulated annealing.
 *
 * A move changes the place of one action in its rank's list: by one place, by a few, or to any
 * place that its dependencies on the same rank allow; or, for stages where B can be better than I
 * and W, it merges an I and its W into a B or splits a B. The energy of an order is the greatest
 * span (or end) of the ranks plus a hundredth of their mean, so that improvements on ranks that are
 * not the slowest count a little. When ties are broken, it is that of the other objective, with the
 * first as a limit. */
#include <string.h>

#include "gen/search/anneal.h"
#include "runtime/plan/plan.h"

#define MEAN_SHARE 0.01
enum { NEAR_MAXIMUM = 8, SPLITS = 4 /* one of so many moves of a backward merges or splits */ };

/* The value that is minimised. */
static double objective_of(const struct pen_search_anneal *anneal, struct pen_search_value value) {
  return anneal->breaks_ties ? value.other : value.greatest;
}

static double energy_of(const struct pen_search_anneal *anneal, struct pen_search_value value) {
  return objective_of(anneal, value) + MEAN_SHARE * value.mean;
}

/* Draws the new place: at a distance of one, of up to NEAR_MAXIMUM, or any. */
static uint32_t draw_place(uint64_t *seed, uint32_t from, uint32_t lowest, uint32_t highest) {
  uint32_t choice = pen_search_below(seed, 4);
  if (choice == 3) return lowest + pen_search_below(seed, highest - lowest + 1);
  uint32_t far = choice == 0 ? 1 : 1 + pen_search_below(seed, NEAR_MAXIMUM);
  if (pen_search_below(seed, 2)) return highest - from < far ? highest : from + far;
  return from - lowest < far ? lowest : from - far;
}

/* Draws a move that merges the I and W of a backward or splits it: then W goes directly after its
 * I, or to any place. False: not allowed. */
static bool draw_split(const struct pen_search_timeline *timeline, uint64_t *seed, uint32_t weight,
                       struct pen_search_move *move) {
  uint32_t lowest, highest;
  move->cell = weight;
  move->from = timeline->place[weight];
  move->to = PEN_NONE;
  if (move->from != PEN_NONE) return pen_search_may_leave(timeline, weight);
  pen_search_reach(timeline, weight, &lowest, &highest);
  move->to =
      pen_search_below(seed, 2) ? lowest : lowest + pen_search_below(seed, highest - lowest + 1);
  return true;
}

bool pen_search_draw_move(const struct pen_search_timeline *timeline, uint64_t *seed,
                          struct pen_search_move *move) {
  const struct pen_search_problem *search = timeline->search;
  uint32_t cells = search->stage_count * search->microbatch_count, lowest, highest;
  move->rank = pen_search_below(seed, search->rank_count);
  move->from = pen_search_below(seed, timeline->length[move->rank]);
  move->cell = timeline->list[(size_t)move->rank * search->count + move->from];
  bool whole = search->whole[move->cell / search->microbatch_count % search->stage_count];
  if (whole && move->cell >= cells && pen_search_below(seed, SPLITS) == 0)
    return draw_split(timeline, seed, move->cell < 2 * cells ? move->cell + cells : move->cell,
                      move);
  pen_search_reach(timeline, move->cell, &lowest, &highest);
  if (lowest >= highest) return false;
  move->to = draw_place(seed, move->from, lowest, highest);
  return move->to != move->from;
}

/* The least possible mean of an order: the work of its ranks. */
static double least_mean(const struct pen_search_problem *search) {
  double sum = 0;
  for (uint32_t rank = 0; rank < search->rank_count; rank++) sum += search->work[rank];
  return sum / search->rank_count;
}

static void save(const struct pen_search_timeline *timeline, uint32_t *list) {
  memcpy(list, timeline->list,
         (size_t)timeline->search->rank_count * timeline->search->count * sizeof *list);
}

struct pen_search_value pen_search_improve(struct pen_search_timeline *timeline,
                                           const struct pen_search_anneal *anneal,
                                           struct pen_search_value value, uint32_t *best) {
  const struct pen_search_problem *search = timeline->search;
  struct pen_search_value least = value;
  struct pen_annealer annealer = {energy_of(anneal, value), anneal->temperature, anneal->seed};
  uint64_t start = timeline->work, idle = 0;
  double mean = least_mean(search);
  save(timeline, best);
  while (timeline->work - start + idle < anneal->work &&
         objective_of(anneal, least) > anneal->good_enough) {
    double left = 1 - (double)(timeline->work - start + idle) / (double)anneal->work;
    struct pen_search_move move;
    struct pen_search_value now;
    idle += 4; /* so that moves without timing also use up the work */
    if (!pen_search_draw_move(timeline, &annealer.seed, &move)) continue;
    double threshold = pen_annealer_most(&annealer, left);
    timeline->moves++;
    double most = anneal->breaks_ties ? anneal->most : threshold - MEAN_SHARE * mean;
    if (!pen_search_try(timeline, &move, most, &now)) continue;
    if (energy_of(anneal, now) > threshold) {
      pen_search_undo(timeline, &move);
      continue;
    }
    pen_search_keep(timeline);
    annealer.energy = energy_of(anneal, now);
    if (objective_of(anneal, now) < objective_of(anneal, least) ||
        (objective_of(anneal, now) == objective_of(anneal, least) && now.mean < least.mean)) {
      least = now;
      save(timeline, best);
    }
  }
  timeline->work += idle;
  return least;
}
