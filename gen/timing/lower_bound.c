/* lower_bound.c: times that no order of given actions on a given placement can beat.
 *
 * In words: a stage's way down is the shortest time from the start of its F of a microbatch to the
 * start of the last stage's I of it (forwards and messages of the stages after it, its own
 * included); its way back the shortest from the end of its I to the end of stage 0's, with a W if
 * all microbatches have one. Every bound is true of each rank, so the greatest is.
 *
 *   work     A rank runs one action at a time.
 *   ends     head + work: a rank's first action is the F of one of its stages, and the way from the
 * start of the step to the nearest of them is its head. head + critical + tail: of F and I alone
 * (of B all), since after a rank's last I or B the gradient still goes back from it to stage 0, the
 * tail. The same of each stage's own F and I: its head and tail are longer than the rank's. No
 * microbatch's first I can be back on a rank before it went all the way down and up again from the
 * rank's lowest stage to its highest: until then a rank runs F alone, and if all its F together are
 * shorter, it waits. chain    One microbatch runs its forwards and backwards one after another.
 *   memory   The same wait, with only as many F before the first I as the limit lets in: K = 1 +
 * floor((limit - peak) / hold) of them for the least hold and peak of a rank's stages, and no more
 * than limit / hold of each, by the costliest first. The same at the other end: from a rank's last
 * F (of its highest stage) to the I of that microbatch a rank runs only I and W of others, and
 *            those had to be held beside that F: so much of the limit is left, and so much time at
 * most does what is held fill (begun, I and W; with I done, W). If more than K microbatches go
 * through a rank, its last F comes after its first I, and it waits both times. And a rank holds
 * each microbatch of a stage from the start of its F to the end of its I, which takes at least that
 *            stage's round trip, then the lesser share through its W: the sum of holds x times over
 * all of them is at most limit x (last end - first start) of the rank.
 *
 * Makespans also have what follows a rank's last action (step_end.c), whichever rank the bound is
 * about.
 *
 * Span: the first action of a rank whose lowest stage is a is F of a, so all forwards of a start
 * within the rank's span, and so does all that depends on them; all backwards of a end within it.
 * So bounds by `ends` of any rank q whose stages are all at or above a hold for the span of a's
 * rank, with head and tail counted from a instead of stage 0.
 *
 * Sources: head and tail are the one-machine bound of job shops (Carlier 1982, The one-machine
 * sequencing problem); the wait under a limit is the argument of Qi et al. 2023, arXiv 2401.10241,
 * section 4 turned around. */
#include "gen/timing/lower_bound.h"
#include "gen/base/arena.h"
#include "gen/partition/partition.h"
#include "gen/partition/training.h"
#include "gen/schedule/order.h"
#include "gen/schedule/schedule.h"
#include "gen/timing/timing.h"
#include "runtime/plan/plan.h"

#include <math.h>

/* Of a stage: how long its actions take at least, wherever they stand, and how many there are. */
struct stage_least {
  double forward, backward; /* backward: I or B */
  double weight;            /* 0 unless every microbatch of the stage has a W */
  double forward_sum, backward_sum;
  uint32_t weights;
  bool has_backward;
};

/* Of a rank: sums over its actions, a pair counted once. */
struct rank_sum {
  double work, critical;    /* critical: without W */
  uint32_t lowest, highest; /* of its stages */
  bool any, weights;
};

struct bound {
  const struct pen_order *order;
  const struct pen_partition *partition;
  const struct pen_stage_cost *cost;
  double overlap_cost;
  const struct pen_budget *budget;
  struct stage_least *least; /* [stage] */
  struct rank_sum *sum;      /* [rank] */
  double *after;             /* [rank] pen_tied_weight_tail() */
  double *before;            /* [stage] from the step's start to the first forward of the stage */
  double *down;   /* [stage] from the start of its forward to the end of the last stage's */
  double *back;   /* [stage] from the end of a backward to the end of stage 0's */
  uint32_t *next; /* [stage] the next stage of its rank; PEN_NONE */
};

static double own_cost(const struct bound *b, const struct pen_compute *action) {
  const struct pen_stage_cost *cost = &b->cost[action->stage];
  if (action->kind == PEN_F) return cost->forward;
  if (action->kind == PEN_I) return cost->backward_input;
  return action->kind == PEN_W ? cost->backward_weight : pen_backward_cost(cost);
}

static double link_cost(const struct bound *b, uint32_t from, uint32_t to) {
  return b->partition->rank_of[from] == b->partition->rank_of[to] ? 0 : b->cost[from].send;
}

/* ---- sums over the actions ---- */

/* Inside a pair an action takes no more than the pair, and the pair's time is counted with the
 * first. */
static void add_action(struct bound *b, uint32_t rank, uint32_t index) {
  const struct pen_compute *action = &b->order->action[rank][index];
  bool first = action->overlaps && index + 1 < b->order->count[rank],
       second = index > 0 && action[-1].overlaps;
  bool overlaps = (first || second) && b->overlap_cost >= 0;
  double cost = own_cost(b, action), least = overlaps ? fmin(cost, b->overlap_cost) : cost;
  double counted = !overlaps ? cost : first ? b->overlap_cost : 0;
  struct stage_least *stage = &b->least[action->stage];
  struct rank_sum *sum = &b->sum[rank];
  sum->work += counted;
  if (action->kind == PEN_W) {
    stage->weight = fmin(stage->weight, least);
    stage->weights++;
    sum->weights = true;
  } else {
    sum->critical += counted;
  }
  if (action->kind == PEN_F) {
    stage->forward = fmin(stage->forward, least);
    stage->forward_sum += overlaps ? 0 : cost;
  }
  if (action->kind == PEN_I || action->kind == PEN_B) {
    stage->backward = fmin(stage->backward, least);
    stage->backward_sum += overlaps ? 0 : cost;
    stage->has_backward = true;
  }
  sum->lowest = !sum->any || action->stage < sum->lowest ? action->stage : sum->lowest;
  sum->highest = !sum->any || action->stage > sum->highest ? action->stage : sum->highest;
  sum->any = true;
}

static void find_least(struct bound *b) {
  uint32_t stages = b->partition->stage_count;
  for (uint32_t stage = 0; stage < stages; stage++)
    b->least[stage] =
        (struct stage_least){.forward = INFINITY, .backward = INFINITY, .weight = INFINITY};
  for (uint32_t rank = 0; rank < b->order->rank_count; rank++)
    for (uint32_t index = 0; index < b->order->count[rank]; index++) add_action(b, rank, index);
  uint32_t *latest = pen_new(b->order->rank_count, sizeof *latest);
  for (uint32_t stage = stages; stage-- > 0;) {
    uint32_t rank = b->partition->rank_of[stage];
    b->next[stage] = latest[rank] ? latest[rank] - 1 : PEN_NONE;
    latest[rank] = stage + 1;
    if (b->least[stage].weights < b->partition->microbatch_count) b->least[stage].weight = 0;
    if (!b->least[stage].has_backward) b->least[stage].backward = 0;
  }
}

static void find_ways(struct bound *b) {
  uint32_t last = b->partition->stage_count - 1;
  for (uint32_t stage = 1; stage <= last; stage++) {
    b->before[stage] =
        b->before[stage - 1] + b->least[stage - 1].forward + link_cost(b, stage - 1, stage);
    b->back[stage] =
        link_cost(b, stage, stage - 1) + b->least[stage - 1].backward + b->back[stage - 1];
  }
  b->down[last] = b->least[last].forward;
  for (uint32_t stage = last; stage-- > 0;)
    b->down[stage] = b->least[stage].forward + link_cost(b, stage, stage + 1) + b->down[stage + 1];
}

/* ---- the bounds ---- */

/* From the start of a stage's F to the time when a stage's I of that microbatch can start. */
static double round_trip(const struct bound *b, uint32_t from, uint32_t to) {
  uint32_t last = b->partition->stage_count - 1;
  return b->down[from] + (to == last ? 0
                                     : b->least[last].backward + b->back[last] - b->back[to] -
                                           b->least[to].backward);
}

/* How many F of a rank the limit lets in before its first backward. */
static double most_count(const struct bound *b, uint32_t rank) {
  double hold = INFINITY, peak = INFINITY;
  for (uint32_t stage = b->sum[rank].lowest; stage != PEN_NONE; stage = b->next[stage]) {
    hold = fmin(hold, b->budget->hold[stage][PEN_PROGRAM_F].remains);
    peak = fmin(peak, b->budget->hold[stage][PEN_PROGRAM_F].peak);
  }
  return hold > 0 ? fmax(0, 1 + floor((b->budget->limit[rank] * (1 + 1e-9) - peak) / hold))
                  : INFINITY;
}

/* The most time that F of a rank can take before its first backward: all of them, or as many as the
 * limit lets in. */
static double most_forwards(const struct bound *b, uint32_t rank, bool limited) {
  double all = 0, costliest = 0, rate = 0;
  for (uint32_t stage = b->sum[rank].lowest; stage != PEN_NONE; stage = b->next[stage]) {
    all += b->cost[stage].forward * b->partition->microbatch_count;
    costliest = fmax(costliest, b->cost[stage].forward);
    if (!limited) continue;
    const struct pen_hold *forward = &b->budget->hold[stage][PEN_PROGRAM_F];
    rate = forward->remains > 0 ? fmax(rate, b->cost[stage].forward / forward->remains) : INFINITY;
  }
  double count = limited ? most_count(b, rank) : INFINITY;
  if (count == INFINITY) return all;
  return fmin(all, fmin(count * costliest, b->budget->limit[rank] * (1 + 1e-9) * rate));
}

/* How long a rank must wait before its first backward. */
static double first_wait(const struct bound *b, uint32_t rank, bool limited) {
  const struct rank_sum *sum = &b->sum[rank];
  return fmax(0, round_trip(b, sum->lowest, sum->highest) - most_forwards(b, rank, limited));
}

/* The most time that a backward fills for what it holds until then, over a rank's stages, per unit;
 * `weights` false: of a split one its I alone. */
static double most_filled(const struct bound *b, uint32_t rank, bool weights) {
  double rate = 0;
  for (uint32_t stage = b->sum[rank].lowest; stage != PEN_NONE; stage = b->next[stage]) {
    const struct pen_hold *hold = b->budget->hold[stage];
    double begun = hold[PEN_PROGRAM_F].remains, split = begun + hold[PEN_PROGRAM_I].remains;
    bool counts = weights || b->least[stage].weights < b->partition->microbatch_count;
    double weight = counts ? b->cost[stage].backward_weight : 0,
           whole = b->cost[stage].backward_input + weight;
    if (whole > 0) rate = begun > 0 ? fmax(rate, whole / begun) : INFINITY;
    if (weight > 0) rate = split > 0 ? fmax(rate, weight / split) : INFINITY;
  }
  return rate;
}

/* How long a rank must wait between its last forward and the backward of the same microbatch and
 * stage. */
static double last_wait(const struct bound *b, uint32_t rank, bool weights) {
  uint32_t stage = b->sum[rank].highest;
  double room =
      fmax(0, b->budget->limit[rank] * (1 + 1e-9) - b->budget->hold[stage][PEN_PROGRAM_F].peak);
  double rate = most_filled(b, rank, weights),
         trip = round_trip(b, stage, stage) - b->least[stage].forward;
  return room * rate < trip ? trip - room * rate : 0;
}

/* How long a rank must wait in all; `weights`: its W may fill the time. A pair may stand astride
 * those times: then there is no telling. */
static double least_wait(const struct bound *b, uint32_t rank, bool limited, bool weights) {
  const struct rank_sum *sum = &b->sum[rank];
  if (!b->least[sum->highest].has_backward || b->overlap_cost >= 0) return 0;
  double first = first_wait(b, rank, limited), last = limited ? last_wait(b, rank, weights) : 0;
  bool apart = limited && most_count(b, rank) < (double)b->partition->stages_per_rank *
                                                    b->partition->microbatch_count;
  return apart ? first + last : fmax(first, last);
}

/* Holds x times of one stage, for all its microbatches. */
static double occupied(const struct bound *b, uint32_t stage) {
  const struct pen_hold *hold = b->budget->hold[stage];
  const struct stage_least *least = &b->least[stage];
  double first = hold[PEN_PROGRAM_F].remains, then = first + hold[PEN_PROGRAM_I].remains;
  double trip = round_trip(b, stage, stage) + fmin(b->cost[stage].backward_input, least->backward);
  bool split = least->weights == b->partition->microbatch_count;
  double weight = b->overlap_cost >= 0
                      ? 0
                      : b->cost[stage].backward_weight - (split ? 0 : b->cost[stage].shared);
  return (fmax(0, first) * trip + fmax(0, fmin(first, then)) * weight) *
         b->partition->microbatch_count;
}

/* [rank]: the least time from its first start to its last end by what it holds. */
static double *find_occupied(const struct bound *b) {
  double *time = pen_new(b->order->rank_count, sizeof *time);
  for (uint32_t stage = 0; stage < b->partition->stage_count; stage++) {
    uint32_t rank = b->partition->rank_of[stage];
    if (b->least[stage].has_backward)
      time[rank] += occupied(b, stage) / fmax(b->budget->limit[rank], 1e-300);
  }
  return time;
}

/* After a rank's, or a stage's, last backward (or forward, where none follows). */
static double tail(const struct bound *b, uint32_t lowest, uint32_t highest) {
  return b->least[lowest].has_backward ? b->back[lowest]
                                       : b->down[highest] - b->least[highest].forward;
}

/* F and I of one stage alone, from the start of the step to the end of stage 0's backwards. */
static double stage_bound(const struct bound *b, uint32_t stage) {
  return b->before[stage] + b->least[stage].forward_sum + b->least[stage].backward_sum +
         tail(b, stage, stage);
}

/* By the ends of one rank, counted from the start of the step to the end of stage 0's backwards. */
static double rank_bound(const struct bound *b, uint32_t rank, double wait) {
  const struct rank_sum *sum = &b->sum[rank];
  return b->before[sum->lowest] + wait + sum->critical + tail(b, sum->lowest, sum->highest);
}

/* Bounds that end with stage 0's last backward also leave time for its W; those from stage a on,
 * for the W of a. */
static void find_ends(const struct bound *b, bool limited, double *makespan, double *span) {
  double *from =
      pen_new(b->partition->stage_count + 1u,
              sizeof *from); /* [stage] greatest of the bounds of what lies at or above it */
  for (uint32_t rank = 0; rank < b->order->rank_count; rank++)
    if (b->sum[rank].any)
      from[b->sum[rank].lowest] = rank_bound(b, rank, least_wait(b, rank, limited, false));
  for (uint32_t stage = b->partition->stage_count; stage-- > 0;) {
    if (!limited) from[stage] = fmax(from[stage], stage_bound(b, stage));
    from[stage] = fmax(from[stage], from[stage + 1]);
  }
  *makespan = *span = 0;
  for (uint32_t rank = 0; rank < b->order->rank_count; rank++) {
    const struct rank_sum *sum = &b->sum[rank];
    if (!sum->any) continue;
    double wait = least_wait(b, rank, limited, true), weight = b->least[sum->lowest].weight;
    *makespan = fmax(*makespan, b->before[sum->lowest] + wait + sum->work + b->after[rank]);
    *span = fmax(*span, wait + sum->work);
    if (b->least[sum->lowest].has_backward)
      *span =
          fmax(*span, from[sum->lowest] - b->before[sum->lowest] - b->back[sum->lowest] + weight);
  }
  *makespan = fmax(*makespan, from[0] + b->least[0].weight + b->after[b->partition->rank_of[0]]);
}

/* The longest way of one microbatch through all stages and back; at the end of every stage's
 * backward a W may follow. */
static double chain_bound(const struct bound *b) {
  uint32_t last = b->partition->stage_count - 1;
  double longest = b->down[0];
  for (uint32_t stage = 0; stage <= last; stage++)
    if (b->least[stage].has_backward)
      longest =
          fmax(longest, b->down[0] + b->least[last].backward + b->back[last] - b->back[stage] +
                            b->least[stage].weight + b->after[b->partition->rank_of[stage]]);
  return longest;
}

/* The same from a rank's lowest stage and back to it. */
static double chain_of_rank(const struct bound *b, uint32_t rank) {
  uint32_t lowest = b->sum[rank].lowest;
  const struct stage_least *least = &b->least[lowest];
  return round_trip(b, lowest, lowest) + least->backward + least->weight;
}

static void conclude(struct pen_bound *bound) {
  bound->greatest = fmax(fmax(bound->work, bound->ends), fmax(bound->chain, bound->memory));
}

struct pen_bounds pen_bounds_of(const struct pen_order *order,
                                const struct pen_partition *partition,
                                const struct pen_training *training,
                                const struct pen_stage_cost *cost, double overlap_cost,
                                const struct pen_budget *budget) {
  uint32_t stages = partition->stage_count;
  struct bound b = {order,
                    partition,
                    cost,
                    pen_order_has_pair(order) ? overlap_cost : -1,
                    budget,
                    .least = pen_new(stages, sizeof *b.least),
                    .sum = pen_new(order->rank_count, sizeof *b.sum),
                    .after = pen_tied_weight_tail(partition, training, cost),
                    .before = pen_new(stages, sizeof(double)),
                    .down = pen_new(stages, sizeof(double)),
                    .back = pen_new(stages, sizeof(double)),
                    .next = pen_new(stages, sizeof(uint32_t))};
  struct pen_bounds bounds = {.makespan = {.work = 0}, .span = {.work = 0}};
  find_least(&b);
  find_ways(&b);
  for (uint32_t rank = 0; rank < order->rank_count; rank++) {
    if (!b.sum[rank].any) continue;
    bounds.makespan.work = fmax(bounds.makespan.work, b.sum[rank].work + b.after[rank]);
    bounds.span.work = fmax(bounds.span.work, b.sum[rank].work);
    if (b.least[b.sum[rank].lowest].has_backward)
      bounds.span.chain = fmax(bounds.span.chain, chain_of_rank(&b, rank));
  }
  bounds.makespan.chain = chain_bound(&b);
  find_ends(&b, false, &bounds.makespan.ends, &bounds.span.ends);
  if (budget && budget->limited && !budget->estimated) {
    find_ends(&b, true, &bounds.makespan.memory, &bounds.span.memory);
    const double *time = find_occupied(&b);
    for (uint32_t rank = 0; rank < order->rank_count; rank++) {
      if (!b.sum[rank].any) continue;
      bounds.span.memory = fmax(bounds.span.memory, time[rank]);
      bounds.makespan.memory =
          fmax(bounds.makespan.memory, b.before[b.sum[rank].lowest] + time[rank] + b.after[rank]);
    }
  }
  conclude(&bounds.makespan);
  conclude(&bounds.span);
  return bounds;
}
