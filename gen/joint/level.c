/* level.c: cuts that give the ranks equal work.
 *
 * The load of a rank is the time of all its actions plus that of the forwards before its first
 * stage: no order ends earlier than the greatest load. Simulated annealing over changes of the cut
 * minimises the sum of the 16th powers of the loads, a smooth form of the maximum, plus a small
 * part of the differences between stages: equal stages pack better and wait less for each other.
 * For speed, a stage here costs what its blocks cost as stages of their own; pen_joint_bound() is
 * exact. */
#include <math.h>
#include <string.h>

#include "gen/base/arena.h"
#include "gen/joint/internal.h"
#include "gen/search/annealer.h"

/* What one trial of the annealing counts as for each stage, in actions timed. */
enum { TRIAL_WORK = 4 };
#define FIRST_TEMPERATURE 0.01 /* of the mean load */
#define UNEVEN_WEIGHT 0.02

struct level {
  struct pen_joint *joint;
  bool sums; /* of blocks, not of stages */
  const struct pen_partition *placed;
  double *forward, *all; /* [stage] at the speed of its rank */
  double *load;          /* [rank] */
  bool *seen;            /* [rank] */
};

/* Sums over the blocks before each block, of those recomputed in each way. */
struct pen_joint_sums {
  double *forward[PEN_RECOMPUTE_KINDS], *all[PEN_RECOMPUTE_KINDS]; /* [block_count + 1] */
};

static void add_blocks(struct pen_joint *j, uint8_t kind) {
  const uint32_t blocks = j->base->stages.block_count;
  double *forward = pen_new(blocks + 1u, sizeof *forward), *all = pen_new(blocks + 1u, sizeof *all);
  for (uint32_t b = 0; b < blocks; b++) {
    const struct pen_stage_cost *cost = &pen_joint_stage_of(j->stages, 0, b, b + 1, kind)->cost;
    forward[b + 1] = forward[b] + cost->forward;
    all[b + 1] = all[b] + cost->forward + pen_backward_cost(cost);
  }
  j->sums->forward[kind] = forward;
  j->sums->all[kind] = all;
}

static void cost_stage(struct level *l, const struct pen_joint_cut *cut, uint32_t s) {
  struct pen_joint *j = l->joint;
  const uint32_t first = j->place[cut->at[s]], past = j->place[cut->at[s + 1]];
  const uint8_t kind = cut->recompute[s];
  const double *speed = j->base->speed, factor = speed ? 1 / speed[l->placed->rank_of[s]] : 1;
  if (l->sums) {
    if (!j->sums) j->sums = pen_new(1, sizeof *j->sums);
    if (!j->sums->all[kind]) add_blocks(j, kind);
    l->forward[s] = (j->sums->forward[kind][past] - j->sums->forward[kind][first]) * factor;
    l->all[s] = (j->sums->all[kind][past] - j->sums->all[kind][first]) * factor;
  } else {
    const struct pen_stage_cost *cost = &pen_joint_stage_of(j->stages, s, first, past, kind)->cost;
    l->forward[s] = cost->forward * factor;
    l->all[s] = (cost->forward + pen_backward_cost(cost)) * factor;
  }
}

/* Sets the loads; returns the greatest. */
static double add_loads(struct level *l) {
  const struct pen_joint *j = l->joint;
  double before = 0, most = 0;
  memset(l->seen, 0, j->rank_count * sizeof *l->seen);
  for (uint32_t s = 0; s < j->stage_count; s++) {
    uint32_t rank = l->placed->rank_of[s];
    if (!l->seen[rank]) l->load[rank] = before;
    l->seen[rank] = true;
    l->load[rank] += l->all[s] * j->base->microbatch_count;
    before += l->forward[s];
  }
  for (uint32_t rank = 0; rank < j->rank_count; rank++) most = fmax(most, l->load[rank]);
  return most;
}

/* How much the stages differ: the root of the mean square of what they take more or less than the
 * mean, all microbatches together. */
static double unevenness(const struct level *l) {
  const struct pen_joint *j = l->joint;
  double sum = 0, squares = 0;
  for (uint32_t s = 0; s < j->stage_count; s++) {
    sum += l->all[s];
    squares += l->all[s] * l->all[s];
  }
  const double mean = sum / j->stage_count;
  return j->base->microbatch_count * sqrt(fmax(0, squares / j->stage_count - mean * mean));
}

static double smooth_maximum(const struct level *l, double unit) {
  double sum = 0;
  for (uint32_t rank = 0; rank < l->joint->rank_count; rank++) {
    double x = l->load[rank] / unit;
    x *= x, x *= x, x *= x;
    sum += x * x;
  }
  return unit * pow(sum / l->joint->rank_count, 1.0 / 16) + UNEVEN_WEIGHT * unevenness(l);
}

static struct level new_level(struct pen_joint *j, const struct pen_partition *placed,
                              const struct pen_joint_cut *cut, bool sums) {
  struct level l = {.joint = j,
                    .sums = sums,
                    .placed = placed,
                    .forward = pen_new(j->stage_count, sizeof *l.forward),
                    .all = pen_new(j->stage_count, sizeof *l.all),
                    .load = pen_new(j->rank_count, sizeof *l.load),
                    .seen = pen_new(j->rank_count, sizeof *l.seen)};
  for (uint32_t s = 0; s < j->stage_count; s++) cost_stage(&l, cut, s);
  return l;
}

static void free_level(struct level *l) {
  pen_free(l->forward);
  pen_free(l->all);
  pen_free(l->load);
  pen_free(l->seen);
}

double pen_joint_bound(struct pen_joint *j, const struct pen_partition *placed,
                       const struct pen_joint_cut *cut) {
  struct level l = new_level(j, placed, cut, false);
  double bound = add_loads(&l);
  free_level(&l);
  j->work += (uint64_t)j->stage_count * TRIAL_WORK;
  return bound;
}

/* Costs again the stages that a change affects. */
static void cost_changed(struct level *l, const struct pen_joint_cut *cut,
                         const struct pen_joint_change *change) {
  for (uint32_t s = change->first - (change->shift != 0); s <= change->last; s++)
    cost_stage(l, cut, s);
}

static struct pen_joint_change inverse(const struct pen_joint_cut *cut,
                                       const struct pen_joint_change *change) {
  struct pen_joint_change back = *change;
  back.shift = -change->shift;
  back.recompute = cut->recompute[change->first];
  return back;
}

static double mean_load(const struct level *l) {
  double sum = 0;
  for (uint32_t rank = 0; rank < l->joint->rank_count; rank++) sum += l->load[rank];
  return sum / l->joint->rank_count;
}

void pen_joint_level(struct pen_joint *j, const struct pen_partition *placed,
                     struct pen_joint_cut *cut, uint64_t work, uint64_t seed) {
  struct level l = new_level(j, placed, cut, true);
  struct pen_joint_cut now = pen_joint_new_cut(j);
  const uint64_t each = (uint64_t)j->stage_count * TRIAL_WORK, trials = work / each;
  double least = add_loads(&l) + UNEVEN_WEIGHT * unevenness(&l), unit = mean_load(&l);
  struct pen_annealer annealer = {smooth_maximum(&l, unit), FIRST_TEMPERATURE * unit, seed};
  pen_joint_copy_cut(j, &now, cut);
  for (uint64_t trial = 0; trial < trials; trial++) {
    struct pen_joint_change change;
    if (!pen_joint_draw(j, &now, &annealer.seed, &change) || change.shift == 0) continue;
    const struct pen_joint_change back = inverse(&now, &change);
    const double threshold = pen_annealer_most(&annealer, 1 - (double)trial / (double)trials);
    pen_joint_apply(&now, &change);
    cost_changed(&l, &now, &change);
    double most = add_loads(&l) + UNEVEN_WEIGHT * unevenness(&l), other = smooth_maximum(&l, unit);
    if (other > threshold) {
      pen_joint_apply(&now, &back);
      cost_changed(&l, &now, &change);
      continue;
    }
    annealer.energy = other;
    if (most >= least) continue;
    least = most;
    pen_joint_copy_cut(j, cut, &now);
  }
  free_level(&l);
  j->work += trials * each;
}
