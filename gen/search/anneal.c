/* anneal.c: local search by annealing.
 *
 * A move takes one action of one rank and puts it elsewhere in the rank's list: one place on, a
 * few, or anywhere within its reach; or, where a whole backward may pay, it joins an I and its W
 * into a B, or parts them. A position's energy is its greatest span (or end) and a hundredth of the
 * ranks' mean, so that work on ranks which do not decide yet counts a little; where ties are
 * broken, of the other objective, and the first is a limit. A move that raises the energy is kept
 * with the probability exp(-rise/temperature); drawn before the move is timed, that is a threshold,
 * at which the timing gives up. The temperature falls with the square of the work that is left, so
 * most of it is spent where few rises pass. Source: Kirkpatrick, Gelatt, Vecchi 1983, Optimization
 * by simulated annealing; thresholds drawn first are our own. */
#include <math.h>
#include <string.h>

#include "gen/search/anneal.h"
#include "runtime/plan/plan.h"

#define MEAN_SHARE 0.01
enum { NEAR_MAXIMUM = 8, SPLITS = 4 /* one backward drawn in that many joins or parts */ };

static double uniform(uint64_t *seed) { return (double)(pen_search_draw(seed) >> 11) * 0x1p-53; }

static uint32_t below(uint64_t *seed, uint32_t count) {
  return (uint32_t)((pen_search_draw(seed) >> 32) * count >> 32);
}

/* What is minimised. */
static double goal(const struct pen_search_anneal *anneal, struct pen_search_value value) {
  return anneal->breaks_ties ? value.other : value.greatest;
}

static double energy(const struct pen_search_anneal *anneal, struct pen_search_value value) {
  return goal(anneal, value) + MEAN_SHARE * value.mean;
}

/* Where to: one place, up to NEAR_MAXIMUM places, or anywhere, one move in four, two, one. */
static uint32_t draw_place(uint64_t *seed, uint32_t from, uint32_t lowest, uint32_t highest) {
  uint32_t way = below(seed, 4);
  if (way == 3) return lowest + below(seed, highest - lowest + 1);
  uint32_t far = way == 0 ? 1 : 1 + below(seed, NEAR_MAXIMUM);
  if (below(seed, 2)) return highest - from < far ? highest : from + far;
  return from - lowest < far ? lowest : from - far;
}

/* Joins the I and W of a backward, or parts them: the W goes right after its I, or anywhere. False:
 * it may not be. */
static bool draw_split(const struct pen_search_timeline *timeline, uint64_t *seed, uint32_t weight,
                       struct pen_search_move *move) {
  uint32_t lowest, highest;
  move->cell = weight;
  move->from = timeline->place[weight];
  move->to = PEN_NONE;
  if (move->from != PEN_NONE) return pen_search_may_leave(timeline, weight);
  pen_search_reach(timeline, weight, &lowest, &highest);
  move->to = below(seed, 2) ? lowest : lowest + below(seed, highest - lowest + 1);
  return true;
}

/* False: what was drawn leads nowhere. */
static bool draw_move(const struct pen_search_timeline *timeline, uint64_t *seed,
                      struct pen_search_move *move) {
  const struct pen_search_problem *search = timeline->search;
  uint32_t cells = search->stage_count * search->microbatch_count, lowest, highest;
  move->rank = below(seed, search->rank_count);
  move->from = below(seed, timeline->length[move->rank]);
  move->cell = timeline->list[(size_t)move->rank * search->count + move->from];
  bool whole = search->whole[move->cell / search->microbatch_count % search->stage_count];
  if (whole && move->cell >= cells && below(seed, SPLITS) == 0)
    return draw_split(timeline, seed, move->cell < 2 * cells ? move->cell + cells : move->cell,
                      move);
  pen_search_reach(timeline, move->cell, &lowest, &highest);
  if (lowest >= highest) return false;
  move->to = draw_place(seed, move->from, lowest, highest);
  return move->to != move->from;
}

/* Least mean that any position can have: its ranks' work. */
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
  struct pen_search_value now = value, least = value;
  uint64_t seed = anneal->seed, start = timeline->work, idle = 0;
  double mean = least_mean(search);
  save(timeline, best);
  while (timeline->work - start + idle < anneal->work &&
         goal(anneal, least) > anneal->good_enough) {
    double left = 1 - (double)(timeline->work - start + idle) / (double)anneal->work;
    double temperature = anneal->temperature * left * left;
    struct pen_search_move move;
    idle += 4; /* moves that time nothing are not for nothing */
    if (!draw_move(timeline, &seed, &move)) continue;
    double threshold = energy(anneal, now) - temperature * log(uniform(&seed) + 1e-300);
    struct pen_search_value next;
    double most = anneal->breaks_ties ? anneal->most : threshold - MEAN_SHARE * mean;
    if (!pen_search_try(timeline, &move, most, &next)) continue;
    if (energy(anneal, next) > threshold) {
      pen_search_take_back(timeline, &move);
      continue;
    }
    pen_search_keep(timeline);
    now = next;
    if (goal(anneal, now) < goal(anneal, least) ||
        (goal(anneal, now) == goal(anneal, least) && now.mean < least.mean)) {
      least = now;
      save(timeline, best);
    }
  }
  timeline->work += idle;
  return least;
}
