/* lower_bound.c: lower bounds of the makespan and the span, whatever the order of the actions.
 *
 * Terms: the forward path of a stage is the shortest time from the start of its F of a microbatch
 * to the end of the last stage's F (forwards and messages of it and of all later stages). Its
 * backward path is the shortest time from the end of its I to the end of stage 0's, with a W if
 * every microbatch has one. Each bound holds for every rank, so the greatest does.
 *
 *   work     A rank runs one action at a time.
 *   ends     head + work: a rank's first action is the F of one of its stages; its head is the
 *            shortest time from the start of the step until the lowest of them can start.
 *            head + critical + tail: only F and I (of B all) count, since after a rank's last I
 *            or B the gradient still goes back to stage 0, which is the tail. The same for F and
 *            I of each stage alone, whose head and tail are longer than those of its rank.
 *            Also, no I can start on a rank before its microbatch has passed from the rank's
 *            lowest stage to the last stage and back to the rank's highest. Until then the rank
 *            runs only F, and if all its F together are shorter, it is idle.
 *   chain    The forwards and backwards of one microbatch run one after another.
 *   memory   The same idle time, with only as many F before the first I as the limit allows: K =
 *            1 + floor((limit - peak) / hold), for the least hold and peak of the rank's stages,
 *            and no more than limit / hold of each stage, the costliest first.
 *            The same at the other end: between a rank's last F (of its highest stage) and the I
 *            of that microbatch, the rank runs only I and W of microbatches that it held beside
 *            that F. What is left of the limit bounds how many, and so how much time they fill
 *            (after F: I and W; after I: W). If a rank runs more than K microbatches, its last F
 *            comes after its first I, and both idle times count.
 *            And a rank holds each microbatch of a stage from the start of its F to the end of
 *            its I, at least the round trip of the stage, then the smaller part until the end of
 *            its W: the sum of holds x times is at most limit x (last end - first start) of the
 *            rank.
 *
 * The makespan also includes the tail after a rank's last action (pen_tied_weight_tail()), and the
 * collectives of replicas (pen_exchange_least()): a rank runs those of all its stages beside its
 * work. The UNSHARD of a stage comes before its first action, so it may be hidden in the head and
 * in idle times, and only delays that action. What follows a stage's last backward is in no idle
 * time above: each of these is before a backward of every stage of the rank.
 *
 * Span: the first action of a rank whose lowest stage is a is F of a. So all F of a, and all that
 * depends on them, start within the rank's span, and all backwards of a end within it. So for the
 * span of that rank, the `ends` bounds of every rank whose stages are all a or later hold, with
 * head and tail counted from a instead of stage 0.
 *
 * Sources: head and tail are the one-machine bound of job shops (Carlier 1982, The one-machine
 * sequencing problem); the idle time under a limit is the argument of Qi et al. 2023, arXiv
 * 2401.10241, section 4, in reverse. */
#include "gen/timing/lower_bound.h"
#include "gen/base/arena.h"
#include "gen/timing/collectives.h"
#include "gen/timing/cost.h"
#include "gen/partition/partition.h"
#include "gen/partition/training.h"
#include "gen/schedule/order.h"
#include "gen/schedule/schedule.h"
#include "gen/timing/timing.h"
#include "runtime/plan/plan.h"

#include <math.h>

/* The least costs of a stage's actions, whatever their order, and how many there are. */
struct stage_least {
  double forward, backward; /* backward: I or B */
  double weight;            /* 0 unless every microbatch of the stage has a W */
  double forward_sum, backward_sum;
  uint32_t weights;
  bool has_backward;
};

/* Sums over the actions of a rank; a pair counts once. */
struct rank_sum {
  double work, critical;    /* critical: without W */
  double exchange, reduce;  /* the collectives of its stages; those after the gradients */
  uint32_t lowest, highest; /* of its stages */
  bool any, weights;
};

struct bound_terms {
  const struct pen_order *order;
  const struct pen_partition *partition;
  const struct pen_stage_cost *cost;
  const struct pen_exchange_least *exchange; /* [stage] or NULL */
  double overlap_cost;
  const struct pen_budget *budget;
  struct stage_least *least; /* [stage] */
  struct rank_sum *sum;      /* [rank] */
  double *after;             /* [rank] pen_tied_weight_tail() */
  double *before;            /* [stage] from the first F of stage 0 to its first F */
  double *start;             /* [stage] from the start of the step to its first F */
  double *down;              /* [stage] from the start of its F to the end of the last stage's */
  double *back;              /* [stage] from the end of its backward to the end of stage 0's */
  uint32_t *next;            /* [stage] the next stage of its rank, or PEN_NONE */
};

static double cost_of_action(const struct bound_terms *b, const struct pen_compute *action) {
  const struct pen_stage_cost *cost = &b->cost[action->stage];
  if (action->kind == PEN_F) return cost->forward;
  if (action->kind == PEN_I) return cost->backward_input;
  return action->kind == PEN_W ? cost->backward_weight : pen_backward_cost(cost);
}

static double link_cost(const struct bound_terms *b, uint32_t from, uint32_t to) {
  return pen_send_cost(b->partition, b->cost, from, b->partition->rank_of[to]);
}

static double exchange_before(const struct bound_terms *b, uint32_t stage) {
  return b->exchange ? b->exchange[stage].before : 0;
}

/* What follows the last backward of a stage. */
static double exchange_after(const struct bound_terms *b, uint32_t stage) {
  return b->exchange && b->least[stage].has_backward ? b->exchange[stage].after : 0;
}

/* ---- sums over the actions ---- */

/* An action of a pair takes at most as long as the pair; the cost of the pair counts at its first.
 */
static void add_to_sums(struct bound_terms *b, uint32_t rank, uint32_t index) {
  const struct pen_compute *action = &b->order->action[rank][index];
  bool first = action->overlaps && index + 1 < b->order->count[rank],
       second = index > 0 && action[-1].overlaps;
  bool overlaps = (first || second) && b->overlap_cost >= 0;
  double cost = cost_of_action(b, action), least = overlaps ? fmin(cost, b->overlap_cost) : cost;
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

static void find_least(struct bound_terms *b) {
  uint32_t stages = b->partition->stage_count;
  for (uint32_t stage = 0; stage < stages; stage++)
    b->least[stage] =
        (struct stage_least){.forward = INFINITY, .backward = INFINITY, .weight = INFINITY};
  for (uint32_t rank = 0; rank < b->order->rank_count; rank++)
    for (uint32_t index = 0; index < b->order->count[rank]; index++) add_to_sums(b, rank, index);
  uint32_t *latest = pen_new(b->order->rank_count, sizeof *latest);
  for (uint32_t stage = stages; stage-- > 0;) {
    uint32_t rank = b->partition->rank_of[stage];
    b->next[stage] = latest[rank] ? latest[rank] - 1 : PEN_NONE;
    latest[rank] = stage + 1;
    if (b->least[stage].weights < b->partition->microbatch_count) b->least[stage].weight = 0;
    if (!b->least[stage].has_backward) b->least[stage].backward = 0;
    b->sum[rank].reduce += exchange_after(b, stage);
    b->sum[rank].exchange += exchange_before(b, stage) + exchange_after(b, stage);
  }
}

static void find_paths(struct bound_terms *b) {
  uint32_t last = b->partition->stage_count - 1;
  b->start[0] = exchange_before(b, 0);
  for (uint32_t stage = 1; stage <= last; stage++) {
    double forward = b->least[stage - 1].forward, link = link_cost(b, stage - 1, stage);
    b->before[stage] = b->before[stage - 1] + forward + link;
    b->start[stage] = fmax(exchange_before(b, stage), b->start[stage - 1] + forward + link);
    b->back[stage] =
        link_cost(b, stage, stage - 1) + b->least[stage - 1].backward + b->back[stage - 1];
  }
  b->down[last] = b->least[last].forward;
  for (uint32_t stage = last; stage-- > 0;)
    b->down[stage] = b->least[stage].forward + link_cost(b, stage, stage + 1) + b->down[stage + 1];
}

/* ---- the bounds ---- */

/* From the start of F of stage `from` until I of stage `to` can start for the same microbatch. */
static double round_trip(const struct bound_terms *b, uint32_t from, uint32_t to) {
  uint32_t last = b->partition->stage_count - 1;
  return b->down[from] + (to == last ? 0
                                     : b->least[last].backward + b->back[last] - b->back[to] -
                                           b->least[to].backward);
}

/* How many F of a rank the limit allows before its first backward. */
static double most_count(const struct bound_terms *b, uint32_t rank) {
  double hold = INFINITY, peak = INFINITY;
  for (uint32_t stage = b->sum[rank].lowest; stage != PEN_NONE; stage = b->next[stage]) {
    hold = fmin(hold, b->budget->hold[stage][PEN_PROGRAM_F].remains);
    peak = fmin(peak, b->budget->hold[stage][PEN_PROGRAM_F].peak);
  }
  return hold > 0 ? fmax(0, 1 + floor((b->budget->limit[rank] * (1 + 1e-9) - peak) / hold))
                  : INFINITY;
}

/* The most time that F of a rank can take before its first backward: all of them, or as many as the
 * limit allows. */
static double most_forwards(const struct bound_terms *b, uint32_t rank, bool limited) {
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

/* How long a rank is idle before its first backward. */
static double first_wait(const struct bound_terms *b, uint32_t rank, bool limited) {
  const struct rank_sum *sum = &b->sum[rank];
  return fmax(0, round_trip(b, sum->lowest, sum->highest) - most_forwards(b, rank, limited));
}

/* The most time that backwards fill per unit of memory held, over a rank's stages; `weights` false:
 * of a split backward only I counts. */
static double most_filled(const struct bound_terms *b, uint32_t rank, bool weights) {
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

/* How long a rank is idle between its last F and the backward of the same microbatch and stage. */
static double last_wait(const struct bound_terms *b, uint32_t rank, bool weights) {
  uint32_t stage = b->sum[rank].highest;
  double room =
      fmax(0, b->budget->limit[rank] * (1 + 1e-9) - b->budget->hold[stage][PEN_PROGRAM_F].peak);
  double rate = most_filled(b, rank, weights),
         trip = round_trip(b, stage, stage) - b->least[stage].forward;
  return room * rate < trip ? trip - room * rate : 0;
}

/* How long a rank is idle; `weights`: its W may fill the time. 0 with pairs, which may begin before
 * the idle time and end after it. */
static double least_wait(const struct bound_terms *b, uint32_t rank, bool limited, bool weights) {
  const struct rank_sum *sum = &b->sum[rank];
  if (!b->least[sum->highest].has_backward || b->overlap_cost >= 0) return 0;
  double first = first_wait(b, rank, limited), last = limited ? last_wait(b, rank, weights) : 0;
  bool both = limited && most_count(b, rank) <
                             (double)b->partition->stages_per_rank * b->partition->microbatch_count;
  return both ? first + last : fmax(first, last);
}

/* The sum of holds x times of one stage. */
static double hold_times(const struct bound_terms *b, uint32_t stage) {
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

/* [rank]: the least time from its first start to its last end, by the memory that it holds. */
static double *find_hold_times(const struct bound_terms *b) {
  double *time = pen_new(b->order->rank_count, sizeof *time);
  for (uint32_t stage = 0; stage < b->partition->stage_count; stage++) {
    uint32_t rank = b->partition->rank_of[stage];
    if (b->least[stage].has_backward)
      time[rank] += hold_times(b, stage) / fmax(b->budget->limit[rank], 1e-300);
  }
  return time;
}

/* The tail of a rank or stage after its last backward (or, without backwards, its last F). */
static double tail_of(const struct bound_terms *b, uint32_t lowest, uint32_t highest) {
  return b->least[lowest].has_backward ? b->back[lowest]
                                       : b->down[highest] - b->least[highest].forward;
}

/* By F and I of one stage: from its first F to the end of stage 0's backwards. */
static double stage_bound(const struct bound_terms *b, uint32_t stage) {
  return b->least[stage].forward_sum + b->least[stage].backward_sum + tail_of(b, stage, stage);
}

/* By F and I of one rank: from its first F to the end of stage 0's backwards. */
static double rank_bound(const struct bound_terms *b, uint32_t rank, double wait) {
  const struct rank_sum *sum = &b->sum[rank];
  return wait + sum->critical + tail_of(b, sum->lowest, sum->highest);
}

/* The greatest time from the start of the step to the end of stage 0's backwards. Sets from[stage]
 * [stage_count + 1]: from the first F of stage 0, by the ranks whose lowest stage is `stage` or
 * later. */
static double find_backward_ends(const struct bound_terms *b, bool limited, double *from) {
  double greatest = 0;
  for (uint32_t rank = 0; rank < b->order->rank_count; rank++) {
    uint32_t lowest = b->sum[rank].lowest;
    if (!b->sum[rank].any) continue;
    double bound = rank_bound(b, rank, least_wait(b, rank, limited, false));
    from[lowest] = b->before[lowest] + bound;
    greatest = fmax(greatest, b->start[lowest] + bound);
  }
  for (uint32_t stage = b->partition->stage_count; stage-- > 0;) {
    if (!limited) {
      from[stage] = fmax(from[stage], b->before[stage] + stage_bound(b, stage));
      greatest = fmax(greatest, b->start[stage] + stage_bound(b, stage));
    }
    from[stage] = fmax(from[stage], from[stage + 1]);
  }
  return greatest;
}

/* The bounds `ends` and `memory`. Those until stage 0's last backward also include its W; those
 * from stage a on, the W of a. */
static void find_end_bounds(const struct bound_terms *b, bool limited, double *makespan,
                            double *span) {
  double *from = pen_new(b->partition->stage_count + 1u, sizeof *from);
  *makespan = find_backward_ends(b, limited, from) + b->least[0].weight + exchange_after(b, 0) +
              b->after[b->partition->rank_of[0]];
  *span = 0;
  for (uint32_t rank = 0; rank < b->order->rank_count; rank++) {
    const struct rank_sum *sum = &b->sum[rank];
    if (!sum->any) continue;
    double wait = least_wait(b, rank, limited, true), weight = b->least[sum->lowest].weight;
    *makespan =
        fmax(*makespan, b->start[sum->lowest] + wait + sum->work + sum->reduce + b->after[rank]);
    *span = fmax(*span, wait + sum->work);
    if (b->least[sum->lowest].has_backward)
      *span =
          fmax(*span, from[sum->lowest] - b->before[sum->lowest] - b->back[sum->lowest] + weight);
  }
}

/* The longest chain of one microbatch through all stages and back; a W may follow the backward of
 * each stage. */
static double chain_bound(const struct bound_terms *b) {
  uint32_t last = b->partition->stage_count - 1;
  double longest = b->down[0];
  for (uint32_t stage = 0; stage <= last; stage++)
    if (b->least[stage].has_backward)
      longest =
          fmax(longest, b->down[0] + b->least[last].backward + b->back[last] - b->back[stage] +
                            b->least[stage].weight + exchange_after(b, stage) +
                            b->after[b->partition->rank_of[stage]]);
  return b->start[0] + longest;
}

/* The same from a rank's lowest stage back to it. */
static double chain_of_rank(const struct bound_terms *b, uint32_t rank) {
  uint32_t lowest = b->sum[rank].lowest;
  const struct stage_least *least = &b->least[lowest];
  return round_trip(b, lowest, lowest) + least->backward + least->weight;
}

static void set_greatest(struct pen_bound *bound) {
  bound->greatest = fmax(fmax(bound->work, bound->ends), fmax(bound->chain, bound->memory));
}

struct pen_bounds pen_bounds_of(const struct pen_order *order,
                                const struct pen_partition *partition,
                                const struct pen_training *training,
                                const struct pen_stage_cost *cost,
                                const struct pen_exchange_least *exchange, double overlap_cost,
                                const struct pen_budget *budget) {
  uint32_t stages = partition->stage_count;
  struct bound_terms b = {order,
                          partition,
                          cost,
                          exchange,
                          pen_order_has_pair(order) ? overlap_cost : -1,
                          budget,
                          .least = pen_new(stages, sizeof *b.least),
                          .sum = pen_new(order->rank_count, sizeof *b.sum),
                          .after = pen_tied_weight_tail(partition, training, cost),
                          .before = pen_new(stages, sizeof(double)),
                          .start = pen_new(stages, sizeof(double)),
                          .down = pen_new(stages, sizeof(double)),
                          .back = pen_new(stages, sizeof(double)),
                          .next = pen_new(stages, sizeof(uint32_t))};
  struct pen_bounds bounds = {.makespan = {.work = 0}, .span = {.work = 0}};
  find_least(&b);
  find_paths(&b);
  for (uint32_t rank = 0; rank < order->rank_count; rank++) {
    if (!b.sum[rank].any) continue;
    bounds.makespan.work =
        fmax(bounds.makespan.work, b.sum[rank].work + b.sum[rank].exchange + b.after[rank]);
    bounds.span.work = fmax(bounds.span.work, b.sum[rank].work);
    if (b.least[b.sum[rank].lowest].has_backward)
      bounds.span.chain = fmax(bounds.span.chain, chain_of_rank(&b, rank));
  }
  bounds.makespan.chain = chain_bound(&b);
  find_end_bounds(&b, false, &bounds.makespan.ends, &bounds.span.ends);
  if (budget && budget->limited && !budget->estimated) {
    find_end_bounds(&b, true, &bounds.makespan.memory, &bounds.span.memory);
    const double *time = find_hold_times(&b);
    for (uint32_t rank = 0; rank < order->rank_count; rank++) {
      if (!b.sum[rank].any) continue;
      bounds.span.memory = fmax(bounds.span.memory, time[rank]);
      bounds.makespan.memory =
          fmax(bounds.makespan.memory, b.start[b.sum[rank].lowest] + time[rank] + b.after[rank]);
    }
  }
  set_greatest(&bounds.makespan);
  set_greatest(&bounds.span);
  return bounds;
}
