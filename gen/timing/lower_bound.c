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
 *            And from the start of a rank's last F (of its highest stage) the step lasts at least
 *            until its microbatch has come back to stage a, for every a, and W of a is done.
 *            After that F the rank runs only I and W of what it then holds, at most the limit:
 *            the rest of its work, and the idle time before its first backward, come before the
 *            end of the F. (With 8 ranks in a V, unit costs and a limit of L, 24 units follow
 *            the F, with at most 2 L of work in them. The optima of an exact solver are equal to
 *            the bound with 4 ranks, 8 microbatches and L of 4 to 6, and with 8, 8 and 7 to 10.)
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
#include "gen/timing/bound_terms.h"
#include "gen/partition/partition.h"
#include "gen/partition/training.h"
#include "gen/schedule/order.h"
#include "gen/timing/timing.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

/* How many F of a rank the limit allows before its first backward. */
static double most_count(const struct pen_bound_terms *b, uint32_t rank) {
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
static double most_forwards(const struct pen_bound_terms *b, uint32_t rank, bool limited) {
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
static double first_wait(const struct pen_bound_terms *b, uint32_t rank, bool limited) {
  const struct pen_rank_sum *sum = &b->sum[rank];
  return fmax(0,
              pen_bound_round_trip(b, sum->lowest, sum->highest) - most_forwards(b, rank, limited));
}

/* The most time that backwards fill per unit of memory held, over a rank's stages; `weights` false:
 * of a split backward only I counts. */
static double most_filled(const struct pen_bound_terms *b, uint32_t rank, bool weights) {
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
static double last_wait(const struct pen_bound_terms *b, uint32_t rank, bool weights) {
  uint32_t stage = b->sum[rank].highest;
  double room =
      fmax(0, b->budget->limit[rank] * (1 + 1e-9) - b->budget->hold[stage][PEN_PROGRAM_F].peak);
  double rate = most_filled(b, rank, weights),
         trip = pen_bound_round_trip(b, stage, stage) - b->least[stage].forward;
  return room * rate < trip ? trip - room * rate : 0;
}

/* Whether the limit allows fewer F before the rank's first backward than it has. */
static bool forwards_after_backward(const struct pen_bound_terms *b, uint32_t rank) {
  return most_count(b, rank) <
         (double)b->partition->stages_per_rank * b->partition->microbatch_count;
}

/* The least time that a rank is idle; `limited`: with its memory limit; `weights`: its W may fill
 * the time. 0 with pairs, which may begin before the idle time and end after it. */
static double memory_least_wait(const struct pen_bound_terms *b, uint32_t rank, bool limited,
                                bool weights) {
  const struct pen_rank_sum *sum = &b->sum[rank];
  if (!b->least[sum->highest].has_backward || b->overlap_cost >= 0) return 0;
  double first = first_wait(b, rank, limited), last = limited ? last_wait(b, rank, weights) : 0;
  bool both = limited && forwards_after_backward(b, rank);
  return both ? first + last : fmax(first, last);
}

/* The most time that a rank works after its last F: its backwards of what it then holds, by the
 * rate and by the number. */
static double most_after_last(const struct pen_bound_terms *b, uint32_t rank) {
  const struct pen_hold *last = &b->budget->hold[b->sum[rank].highest][PEN_PROGRAM_F];
  double room = fmax(0, b->budget->limit[rank] * (1 + 1e-9) - last->peak + last->remains);
  double rate = most_filled(b, rank, true), forwards = 0, longest = 0, smallest = INFINITY;
  for (uint32_t stage = b->sum[rank].lowest; stage != PEN_NONE; stage = b->next[stage]) {
    const struct pen_hold *hold = b->budget->hold[stage];
    double begun = hold[PEN_PROGRAM_F].remains, split = begun + hold[PEN_PROGRAM_I].remains;
    double weight = b->cost[stage].backward_weight;
    longest = fmax(longest, b->cost[stage].backward_input + weight);
    smallest = fmin(smallest, weight > 0 ? fmin(begun, split) : begun);
    forwards += b->cost[stage].forward * b->partition->microbatch_count;
  }
  double most = b->sum[rank].work - forwards;
  if (rate < INFINITY) most = fmin(most, room * rate);
  if (smallest > 0) most = fmin(most, floor(room / smallest) * longest);
  return most;
}

/* The least time from the first F of a rank to the end of its last F; not for orders with pairs. */
static double memory_last_forward(const struct pen_bound_terms *b, uint32_t rank) {
  double first = forwards_after_backward(b, rank) ? first_wait(b, rank, true) : 0;
  return first + b->sum[rank].work - most_after_last(b, rank);
}

/* The sum of holds x times of one stage. */
static double hold_times(const struct pen_bound_terms *b, uint32_t stage) {
  const struct pen_hold *hold = b->budget->hold[stage];
  const struct pen_stage_least *least = &b->least[stage];
  double first = hold[PEN_PROGRAM_F].remains, then = first + hold[PEN_PROGRAM_I].remains;
  double trip =
      pen_bound_round_trip(b, stage, stage) + fmin(b->cost[stage].backward_input, least->backward);
  bool split = least->weights == b->partition->microbatch_count;
  double weight = b->overlap_cost >= 0
                      ? 0
                      : b->cost[stage].backward_weight - (split ? 0 : b->cost[stage].shared);
  return (fmax(0, first) * trip + fmax(0, fmin(first, then)) * weight) *
         b->partition->microbatch_count;
}

/* [rank]: the least time from its first start to its last end, by the memory that it holds. */
static double *memory_hold_times(const struct pen_bound_terms *b) {
  double *time = pen_new(b->order->rank_count, sizeof *time);
  for (uint32_t stage = 0; stage < b->partition->stage_count; stage++) {
    uint32_t rank = b->partition->rank_of[stage];
    if (b->least[stage].has_backward)
      time[rank] += hold_times(b, stage) / fmax(b->budget->limit[rank], 1e-300);
  }
  return time;
}

/* The tail of a rank or stage after its last backward (or, without backwards, its last F). */
static double tail_of(const struct pen_bound_terms *b, uint32_t lowest, uint32_t highest) {
  return b->least[lowest].has_backward ? b->back[lowest]
                                       : b->down[highest] - b->least[highest].forward;
}

/* By F and I of one stage: from its first F to the end of stage 0's backwards. */
static double stage_bound(const struct pen_bound_terms *b, uint32_t stage) {
  return b->least[stage].forward_sum + b->least[stage].backward_sum + tail_of(b, stage, stage);
}

/* By F and I of one rank: from its first F to the end of stage 0's backwards. */
static double rank_bound(const struct pen_bound_terms *b, uint32_t rank, double wait) {
  const struct pen_rank_sum *sum = &b->sum[rank];
  return wait + sum->critical + tail_of(b, sum->lowest, sum->highest);
}

/* The greatest time from the start of the step to the end of stage 0's backwards. Sets from[stage]
 * [stage_count + 1]: from the first F of stage 0, by the ranks whose lowest stage is `stage` or
 * later. */
static double find_backward_ends(const struct pen_bound_terms *b, bool limited, double *from) {
  double greatest = 0;
  for (uint32_t rank = 0; rank < b->order->rank_count; rank++) {
    uint32_t lowest = b->sum[rank].lowest;
    if (!b->sum[rank].any) continue;
    double bound = rank_bound(b, rank, memory_least_wait(b, rank, limited, false));
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
static void find_end_bounds(const struct pen_bound_terms *b, bool limited, double *makespan,
                            double *span) {
  double *from = pen_new(b->partition->stage_count + 1u, sizeof *from);
  *makespan = find_backward_ends(b, limited, from) + b->least[0].weight +
              pen_bound_exchange_after(b, 0) + b->after[b->partition->rank_of[0]];
  *span = 0;
  for (uint32_t rank = 0; rank < b->order->rank_count; rank++) {
    const struct pen_rank_sum *sum = &b->sum[rank];
    if (!sum->any) continue;
    double wait = memory_least_wait(b, rank, limited, true), weight = b->least[sum->lowest].weight;
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
static double chain_bound(const struct pen_bound_terms *b) {
  uint32_t last = b->partition->stage_count - 1;
  double longest = b->down[0];
  for (uint32_t stage = 0; stage <= last; stage++)
    if (b->least[stage].has_backward)
      longest =
          fmax(longest, b->down[0] + b->least[last].backward + b->back[last] - b->back[stage] +
                            b->least[stage].weight + pen_bound_exchange_after(b, stage) +
                            b->after[b->partition->rank_of[stage]]);
  return b->start[0] + longest;
}

/* The same from a rank's lowest stage back to it. */
static double chain_of_rank(const struct pen_bound_terms *b, uint32_t rank) {
  uint32_t lowest = b->sum[rank].lowest;
  const struct pen_stage_least *least = &b->least[lowest];
  return pen_bound_round_trip(b, lowest, lowest) + least->backward + least->weight;
}

/* ---- the bounds by memory alone ---- */

/* By the time that a rank holds its microbatches. */
static void add_hold_bounds(const struct pen_bound_terms *b, double *makespan, double *span) {
  const double *time = memory_hold_times(b);
  for (uint32_t rank = 0; rank < b->order->rank_count; rank++) {
    if (!b->sum[rank].any) continue;
    *span = fmax(*span, time[rank]);
    *makespan = fmax(*makespan, b->start[b->sum[rank].lowest] + time[rank] + b->after[rank]);
  }
}

/* By a rank's time until the end of its last F, and that from there to the last backward of every
 * stage, and its W. */
static void add_last_bounds(const struct pen_bound_terms *b, double *makespan, double *span) {
  for (uint32_t rank = 0; rank < b->order->rank_count; rank++) {
    uint32_t lowest = b->sum[rank].lowest, highest = b->sum[rank].highest;
    if (!b->sum[rank].any || !b->least[highest].has_backward || b->overlap_cost >= 0) continue;
    double until = memory_last_forward(b, rank) - b->least[highest].forward;
    for (uint32_t stage = 0; stage < b->partition->stage_count; stage++) {
      const struct pen_stage_least *least = &b->least[stage];
      uint32_t other = b->partition->rank_of[stage], from = b->sum[other].lowest;
      if (!least->has_backward) continue;
      double since =
          until + pen_bound_round_trip(b, highest, stage) + least->backward + least->weight;
      *makespan = fmax(*makespan, b->start[lowest] + since + pen_bound_exchange_after(b, stage) +
                                      b->after[other]);
      if (from <= lowest) *span = fmax(*span, b->before[lowest] - b->before[from] + since);
    }
  }
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
  struct pen_bound_terms b =
      pen_bound_terms_of(order, partition, training, cost, exchange, overlap_cost, budget);
  struct pen_bounds bounds = {.makespan = {.work = 0}, .span = {.work = 0}};
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
    add_hold_bounds(&b, &bounds.makespan.memory, &bounds.span.memory);
    add_last_bounds(&b, &bounds.makespan.memory, &bounds.span.memory);
  }
  set_greatest(&bounds.makespan);
  set_greatest(&bounds.span);
  return bounds;
}
