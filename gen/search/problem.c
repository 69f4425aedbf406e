/* problem.c: the search problem as numbers; converts lists of cells to orders and back. */
#include <string.h>

#include "gen/search/problem.h"
#include "gen/base/arena.h"
#include "gen/partition/partition.h"
#include "gen/partition/training.h"
#include "gen/schedule/order.h"
#include "gen/timing/cost.h"
#include "gen/timing/timing.h"
#include "runtime/plan/plan.h"

static const int kind_of[PEN_SEARCH_KINDS] = {
    [PEN_PROGRAM_F] = PEN_F, [PEN_PROGRAM_I] = PEN_I, [PEN_PROGRAM_W] = PEN_W};

/* Sets the four types of a stage. */
static void fill_stage(const struct pen_partition *partition, const struct pen_stage_cost *cost,
                       const struct pen_budget *budget, uint32_t stage,
                       struct pen_search_type *type) {
  uint32_t stages = partition->stage_count;
  uint32_t below = stage > 0 ? stage - 1 : PEN_NONE,
           above = stage + 1 < stages ? stage + 1 : PEN_NONE;
  const double costs[PEN_PROGRAMS] = {cost[stage].forward, cost[stage].backward_input,
                                      cost[stage].backward_weight, pen_backward_cost(&cost[stage])};
  const uint32_t other[PEN_PROGRAMS] = {above, below, PEN_NONE, below};
  for (uint32_t kind = 0; kind < PEN_PROGRAMS; kind++) {
    uint32_t consumer = other[kind] == PEN_NONE ? PEN_NONE : partition->rank_of[other[kind]];
    double send = consumer == PEN_NONE ? 0 : pen_send_cost(partition, cost, stage, consumer);
    double beyond = kind == PEN_PROGRAM_W ? cost[stage].shared : 0;
    type[kind * stages + stage] =
        (struct pen_search_type){costs[kind], send, beyond, budget->hold[stage][kind], consumer};
  }
}

/* F waits for F of the previous stage, I for I of the next one; everything else waits only for its
 * own rank. */
static uint32_t need_of(uint32_t kind, uint32_t stage, uint32_t microbatch, uint32_t stages,
                        uint32_t microbatches) {
  if (kind == PEN_PROGRAM_F && stage > 0) return (stage - 1) * microbatches + microbatch;
  if (kind == PEN_PROGRAM_I && stage + 1 < stages)
    return (stages + stage + 1) * microbatches + microbatch;
  return PEN_SEARCH_KINDS * stages * microbatches;
}

/* Sets the times before the first action of each rank and after its last. */
static void add_tails(struct pen_search_problem *search) {
  const struct pen_partition *partition = search->partition;
  double *before = pen_new(partition->rank_count, sizeof *before),
         *after = pen_tied_weight_tail(partition, search->training, search->stage_cost);
  for (uint32_t stage = partition->stage_count; search->exchange && stage-- > 0;) {
    uint32_t rank = partition->rank_of[stage];
    after[rank] += before[rank] + search->exchange[stage].after;
    before[rank] = search->exchange[stage].before; /* the lowest stage of the rank comes last */
  }
  search->before = before;
  search->after = after;
}

struct pen_search_problem *pen_search_problem(const struct pen_partition *partition,
                                              const struct pen_training *training,
                                              const struct pen_stage_cost *cost,
                                              const struct pen_collective_cost *collective_cost,
                                              double overlap_cost, const struct pen_budget *budget,
                                              bool by_span) {
  uint32_t stages = partition->stage_count, microbatches = partition->microbatch_count,
           types = PEN_SEARCH_KINDS * stages;
  bool *whole = pen_new(stages, sizeof *whole), any_whole = false;
  double *work = pen_new(partition->rank_count, sizeof *work);
  struct pen_stage_cost *least = pen_new(stages, sizeof *least);
  struct pen_search_type *type = pen_new((size_t)PEN_PROGRAMS * stages, sizeof *type);
  struct pen_search_cell *cell = pen_new((size_t)types * microbatches, sizeof *cell);
  for (uint32_t stage = 0; stage < stages; stage++) {
    fill_stage(partition, cost, budget, stage, type);
    whole[stage] = cost[stage].shared > 0 || pen_budget_prefers_whole(budget, stage);
    work[partition->rank_of[stage]] -= cost[stage].shared * microbatches;
    least[stage] = cost[stage];
    least[stage].backward_weight -= cost[stage].shared;
    least[stage].shared = 0;
    any_whole = any_whole || whole[stage];
    for (uint32_t own = stage, kind = 0; kind < PEN_SEARCH_KINDS; kind++, own += stages) {
      work[partition->rank_of[stage]] += type[own].cost * microbatches;
      for (uint32_t m = 0; m < microbatches; m++)
        cell[(size_t)own * microbatches + m] =
            (struct pen_search_cell){own, need_of(kind, stage, m, stages, microbatches)};
    }
  }
  struct pen_search_problem *search = pen_new(1, sizeof *search);
  *search = (struct pen_search_problem){
      .partition = partition,
      .training = training,
      .stage_cost = cost,
      .least_cost = least,
      .collective_cost = collective_cost,
      .exchange = pen_exchange_least(partition, training, collective_cost, PEN_TRAIN),
      .overlap_cost = overlap_cost,
      .budget = budget,
      .by_span = by_span,
      .rank_count = partition->rank_count,
      .stage_count = stages,
      .stages_per_rank = partition->stages_per_rank,
      .microbatch_count = microbatches,
      .count = PEN_SEARCH_KINDS * partition->stages_per_rank * microbatches,
      .cell_count = types * microbatches,
      .stages = pen_partition_stages(partition),
      .type = type,
      .cell = cell,
      .whole = whole,
      .any_whole = any_whole,
      .work = work};
  add_tails(search);
  return search;
}

struct pen_timing *pen_search_time(const struct pen_search_problem *search,
                                   const struct pen_order *order, double overlap_cost) {
  return pen_simulate_step(order, search->partition, search->training, search->stage_cost,
                           search->collective_cost, overlap_cost, PEN_TRAIN, false);
}

/* ---- lists and orders ---- */

struct pen_order *pen_search_order(const struct pen_search_problem *c, const uint32_t *list) {
  struct pen_order *order = pen_new(1, sizeof *order);
  *order = (struct pen_order){c->rank_count, pen_new(c->rank_count, sizeof *order->count),
                              pen_new(c->rank_count, sizeof *order->action)};
  bool *listed = pen_new(c->cell_count, sizeof *listed);
  for (size_t i = 0; i < (size_t)c->rank_count * c->count; i++)
    if (list[i] != PEN_NONE) listed[list[i]] = true;
  for (uint32_t rank = 0; rank < c->rank_count; rank++) {
    const uint32_t *own = list + (size_t)rank * c->count;
    order->action[rank] = pen_new(c->count, sizeof **order->action);
    for (uint32_t i = 0; i < c->count && own[i] != PEN_NONE; i++) {
      uint32_t type = own[i] / c->microbatch_count, kind = type / c->stage_count;
      bool whole = kind == PEN_PROGRAM_I && !listed[own[i] + c->stage_count * c->microbatch_count];
      order->action[rank][order->count[rank]++] =
          (struct pen_compute){.kind = whole ? PEN_B : (uint8_t)kind_of[kind],
                               .stage = (uint16_t)(type % c->stage_count),
                               .microbatch = own[i] % c->microbatch_count};
    }
  }
  pen_free(listed);
  return order;
}

void pen_search_lists(const struct pen_search_problem *c, const struct pen_order *order,
                      uint32_t *list) {
  uint32_t *next = pen_new((size_t)PEN_SEARCH_KINDS * c->stage_count, sizeof *next);
  for (uint32_t rank = 0; rank < c->rank_count; rank++) {
    uint32_t *at = list + (size_t)rank * c->count, *end = at + c->count;
    for (uint32_t i = 0; i < order->count[rank]; i++) {
      const struct pen_compute *action = &order->action[rank][i];
      /* While an earlier W is outstanding, I and that W take as long as B plus what B shares, and
       * hold as much. */
      bool fused = action->kind == PEN_B,
           whole = fused && c->whole[action->stage] &&
                   next[PEN_PROGRAM_I * c->stage_count + action->stage] ==
                       next[PEN_PROGRAM_W * c->stage_count + action->stage];
      for (uint32_t kind = 0; kind < PEN_SEARCH_KINDS; kind++) {
        uint32_t type = kind * c->stage_count + action->stage;
        if (!(fused && kind != PEN_PROGRAM_F) && action->kind != kind_of[kind]) continue;
        uint32_t cell = type * c->microbatch_count + next[type]++;
        if (!whole || kind != PEN_PROGRAM_W) *at++ = cell;
      }
    }
    while (at < end) *at++ = PEN_NONE;
  }
  pen_free(next);
}

/* ---- whole backwards ---- */

/* When the message of an I is read: the start of I or B of the previous stage. */
static double **find_reads(const struct pen_search_problem *c, const struct pen_order *order,
                           const struct pen_timing *timing) {
  double **read = pen_new(c->stage_count, sizeof *read);
  for (uint32_t stage = 0; stage < c->stage_count; stage++)
    read[stage] = pen_new(c->microbatch_count, sizeof **read);
  for (uint32_t rank = 0; rank < c->rank_count; rank++)
    for (uint32_t i = 0; i < order->count[rank]; i++) {
      const struct pen_compute *action = &order->action[rank][i];
      if ((action->kind == PEN_I || action->kind == PEN_B) && action->stage + 1u < c->stage_count)
        read[action->stage + 1][action->microbatch] = timing->start[rank][i];
    }
  return read;
}

/* Whether I and W at index i and i + 1 can be a B: they have the same stage and microbatch, the
 * message of I is not read before the end of W, and the peak of B is within the limit. */
static bool may_fuse(const struct pen_search_problem *c, const struct pen_order *order,
                     const struct pen_timing *timing, double **read, uint32_t rank, uint32_t i,
                     double held) {
  const struct pen_compute *first = &order->action[rank][i], *second = first + 1;
  if (i + 1 == order->count[rank] || first->kind != PEN_I || second->kind != PEN_W) return false;
  if (first->stage != second->stage || first->microbatch != second->microbatch) return false;
  double come =
      timing->end[rank][i + 1] + c->type[PEN_PROGRAM_I * c->stage_count + first->stage].send;
  if (first->stage > 0 && come > read[first->stage][first->microbatch]) return false;
  return held + c->budget->hold[first->stage][PEN_PROGRAM_B].peak <=
         c->budget->limit[rank] * (1 + 1e-9);
}

const struct pen_timing *pen_search_fuse(const struct pen_search_problem *c,
                                         struct pen_order *order, const struct pen_timing *timing) {
  double **read = find_reads(c, order, timing), shared = c->exchange ? 1 : 0;
  for (uint32_t rank = 0; rank < c->rank_count; rank++) {
    struct pen_compute *action = order->action[rank];
    uint32_t kept = 0;
    double held = 0;
    for (uint32_t i = 0; i < order->count[rank]; i++) {
      struct pen_compute moved = action[i];
      if (moved.kind == PEN_I && may_fuse(c, order, timing, read, rank, i, held)) {
        moved.kind = PEN_B;
        i++;
      }
      held += c->budget->hold[moved.stage][pen_program_of(moved.kind)].remains;
      action[kept++] = moved;
    }
    order->count[rank] = kept;
  }
  for (uint32_t stage = 0; stage < c->stage_count; stage++) shared += c->stage_cost[stage].shared;
  return shared > 0 ? pen_search_time(c, order, -1) : timing;
}
