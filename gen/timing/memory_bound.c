/* memory_bound.c: how long the memory limit makes a rank wait or last; the proofs are in
 * lower_bound.c. */
#include "gen/timing/memory_bound.h"
#include "gen/base/arena.h"
#include "runtime/plan/plan.h"

#include <math.h>

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

double pen_memory_least_wait(const struct pen_bound_terms *b, uint32_t rank, bool limited,
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

double pen_memory_last_forward(const struct pen_bound_terms *b, uint32_t rank) {
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

double *pen_memory_hold_times(const struct pen_bound_terms *b) {
  double *time = pen_new(b->order->rank_count, sizeof *time);
  for (uint32_t stage = 0; stage < b->partition->stage_count; stage++) {
    uint32_t rank = b->partition->rank_of[stage];
    if (b->least[stage].has_backward)
      time[rank] += hold_times(b, stage) / fmax(b->budget->limit[rank], 1e-300);
  }
  return time;
}
