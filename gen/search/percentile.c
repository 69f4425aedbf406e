/* percentile.c: pipeline.objective = "p99".
 *
 * The value of an order is the 99th percentile of its makespan over CHECKS draws of the costs: each
 * action has noise of 10% of its own (gen/timing/robustness.h). The draws are the same for every
 * order, so that differences are not of the draws, and none is among those of --robustness.
 *
 * Annealing by that value would be slow, and would fit the order to the draws. So a move is judged
 * by fewer draws of other numbers, and by their mean and deviation, which one draw changes little;
 * a move that makes the makespan without noise much longer is rejected at once. At the end of a
 * round the best order is taken if its value is less. So the value never rises with the work. */
#include "gen/search/percentile.h"

#include <math.h>
#include <string.h>

#include "gen/base/arena.h"
#include "gen/search/anneal.h"
#include "gen/timing/robustness.h"
#include "runtime/plan/plan.h"

#define NOISE 0.1
#define FIRST_DRAW ((uint64_t)1 << 32) /* the report's draws are below it */
enum {
  CHECKS = 256,
  LANE_WORK = 4,  /* a cell in all lanes takes as long as so many in the timeline */
  CHECK_WORK = 96 /* and all checks of an action */
};

struct pen_search_draws {
  uint32_t count;                      /* actions */
  float (*factor)[PEN_RETIMING_LANES]; /* [count] */
  float *check;                        /* [CHECKS][count] */
};

struct pen_search_draws *pen_search_draws(const struct pen_partition *partition, uint64_t seed) {
  struct pen_search_draws *draws = pen_new(1, sizeof *draws);
  const struct pen_noise noise = {seed, PEN_NOISE_ACTION};
  draws->count = PEN_SEARCH_KINDS * partition->stage_count * partition->microbatch_count;
  draws->factor = pen_new(draws->count, sizeof *draws->factor);
  draws->check = pen_new((size_t)CHECKS * draws->count, sizeof *draws->check);
  double *z = pen_new(draws->count + 1u, sizeof *z);
  for (uint32_t draw = 0; draw < CHECKS + PEN_RETIMING_LANES; draw++) {
    pen_noise_draw(&noise, partition, FIRST_DRAW + draw, z);
    for (uint32_t i = 0; i < draws->count; i++) {
      float factor = (float)pen_noise_factor(NOISE, z[i]);
      if (draw < CHECKS)
        draws->check[(size_t)draw * draws->count + i] = factor;
      else
        draws->factor[i][draw - CHECKS] = factor;
    }
  }
  pen_free(z);
  return draws;
}

void pen_search_draws_free(struct pen_search_draws *draws) {
  pen_free(draws->factor);
  pen_free(draws->check);
  pen_free(draws);
}

/* The 99th percentile of an order. `timing`: its own, complete. */
static double percentile_of(struct pen_search_percentile *percentile, const struct pen_order *order,
                            const struct pen_timing *timing, double overlap_cost) {
  const struct pen_search_problem *search = percentile->timeline->search;
  const struct pen_search_draws *draws = percentile->draws;
  struct pen_retiming *retiming =
      pen_retiming(order, timing, search->partition, search->training, search->stage_cost,
                   search->collective_cost, overlap_cost);
  double makespan[CHECKS], *factor = pen_new(retiming->factor_count, sizeof *factor);
  factor[draws->count] = 1;
  for (size_t check = 0; check < CHECKS; check++) {
    for (uint32_t i = 0; i < draws->count; i++) factor[i] = draws->check[check * draws->count + i];
    makespan[check] = pen_retime(retiming, factor);
  }
  percentile->timeline->work += (uint64_t)retiming->node_count * CHECK_WORK;
  pen_free(factor);
  pen_retiming_free(retiming);
  pen_sort_values(makespan, CHECKS);
  return makespan[pen_quantile_index(0.99, CHECKS)];
}

/* Takes an order if it is better. */
static void take_order(struct pen_search_percentile *percentile, struct pen_order *order,
                       const struct pen_timing *timing, const char *from, double value) {
  pen_search_progress_value(percentile->progress, value);
  if (value >= percentile->value) return;
  percentile->order = order;
  percentile->timing = timing;
  percentile->from = from;
  percentile->value = value;
}

/* The same, of an order as lists. */
static void take_lists(struct pen_search_percentile *percentile, const uint32_t *list,
                       const char *from) {
  const struct pen_search_problem *search = percentile->timeline->search;
  size_t bytes = (size_t)search->rank_count * search->count * sizeof *list;
  struct pen_order *order = pen_search_order(search, list);
  const struct pen_timing *timing = pen_search_time(search, order, -1);
  double value = percentile_of(percentile, order, timing, -1);
  take_order(percentile, order, timing, from, value);
  if (value >= percentile->best_value) return;
  if (!percentile->best) percentile->best = pen_new(bytes, 1);
  memcpy(percentile->best, list, bytes);
  percentile->best_value = value;
}

struct pen_search_percentile *pen_search_percentile(const struct pen_search_draws *draws,
                                                    struct pen_search_timeline *timeline,
                                                    struct pen_search_seeds *starts,
                                                    struct pen_search_progress *progress) {
  struct pen_search_percentile *percentile = pen_new(1, sizeof *percentile);
  percentile->draws = draws;
  percentile->timeline = timeline;
  percentile->noisy = pen_search_noisy(timeline, (const float(*)[PEN_RETIMING_LANES])draws->factor);
  percentile->progress = progress;
  percentile->value = percentile->best_value = INFINITY;
  for (size_t i = 0; i < starts->named_count; i++) {
    struct pen_search_named *named = &starts->named[i];
    named->p99 =
        percentile_of(percentile, named->order, named->timing, timeline->search->overlap_cost);
    if (named->fits) take_order(percentile, named->order, named->timing, named->name, named->p99);
  }
  for (uint32_t i = 0; i < starts->count; i++)
    take_lists(percentile, starts->start[i].list, starts->start[i].name);
  if (percentile->order)
    pen_search_progress_start(progress, percentile->from, percentile->timing, percentile->value);
  return percentile;
}

void pen_search_percentile_free(struct pen_search_percentile *percentile) {
  pen_search_noisy_free(percentile->noisy);
  percentile->noisy = NULL;
  percentile->draws = NULL;
}

/* ---- annealing ---- */

/* A start and a temperature, as a fraction of the mean cost of an action. */
static const struct percentile_round {
  bool fresh; /* from the list with a small makespan */
  double share, temperature;
} rounds[] = {{false, 0.5, 0.01}, {true, 0.5, 0.02}};
enum { ROUNDS = sizeof rounds / sizeof *rounds };

/* How much longer the makespan may become without noise, as a share of what noise adds. */
#define FILTER 0.25

/* Tries one move; *makespan: of the accepted order. Returns whether it was accepted. */
static bool try_move(struct pen_search_percentile *percentile, struct pen_annealer *annealer,
                     double left, double *makespan) {
  struct pen_search_timeline *timeline = percentile->timeline;
  struct pen_search_move move;
  struct pen_search_value value;
  if (!pen_search_draw_move(timeline, &annealer->seed, &move)) return false;
  double threshold = pen_annealer_most(annealer, left);
  double most = *makespan + FILTER * fmax(0, annealer->energy - *makespan);
  timeline->moves++;
  if (!pen_search_try(timeline, &move, most, &value)) return false;
  double energy = pen_search_noisy_try(percentile->noisy);
  if (energy > threshold) {
    pen_search_undo(timeline, &move);
    return false;
  }
  pen_search_keep(timeline);
  pen_search_noisy_keep(percentile->noisy);
  annealer->energy = energy;
  *makespan = value.greatest;
  return true;
}

static void anneal(struct pen_search_percentile *percentile, const uint32_t *list, const char *from,
                   double start_temperature, uint64_t work, uint64_t seed) {
  struct pen_search_timeline *timeline = percentile->timeline;
  const struct pen_search_problem *search = timeline->search;
  struct pen_search_value value;
  size_t bytes = (size_t)search->rank_count * search->count * sizeof *list;
  if (!pen_search_set(timeline, list, &value)) return;
  uint32_t *best = pen_new(bytes, 1);
  uint64_t start = timeline->work, timed = percentile->noisy->timed, used = 0, idle = 0;
  struct pen_annealer annealer = {pen_search_noisy_try(percentile->noisy), start_temperature, seed};
  double makespan = value.greatest, least = annealer.energy;
  pen_search_noisy_keep(percentile->noisy);
  memcpy(best, timeline->list, bytes);
  while (used < work) {
    if (try_move(percentile, &annealer, 1 - (double)used / (double)work, &makespan) &&
        annealer.energy < least) {
      least = annealer.energy;
      memcpy(best, timeline->list, bytes);
    }
    idle += 4; /* so that moves without timing also use up the work */
    used = timeline->work - start + idle + (percentile->noisy->timed - timed) * LANE_WORK;
  }
  timeline->work = start + used;
  take_lists(percentile, best, from);
  pen_free(best);
}

void pen_search_percentile_improve(struct pen_search_percentile *percentile, const uint32_t *list,
                                   const char *from, uint64_t second, uint64_t work,
                                   uint64_t seed) {
  const struct pen_search_problem *search = percentile->timeline->search;
  double sum = 0;
  for (uint32_t rank = 0; rank < search->rank_count; rank++) sum += search->work[rank];
  double mean = sum / search->rank_count / search->count;
  take_lists(percentile, list, from);
  for (uint64_t i = 0; i < ROUNDS; i++) {
    bool fresh = rounds[i].fresh || !percentile->best;
    uint64_t own = (seed + 1) * 0xD1B54A32D192ED03u + (second * ROUNDS + i) * 0x9E3779B97F4A7C15u;
    anneal(percentile, fresh ? list : percentile->best, fresh ? from : percentile->from,
           rounds[i].temperature * mean, (uint64_t)((double)work * rounds[i].share), own ? own : 1);
  }
}

/* The ends of a timeline's actions under many draws of their costs at once.
 *
 * After a move the timeline has timed again all actions that can depend on it, and so does this, in
 * the same order: what comes before them in the lists keeps its ends, in every draw, because it
 * depends on no action that has moved. */

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
