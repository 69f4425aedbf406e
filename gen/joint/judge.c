/* judge.c: the value of one choice: its objective by simulating an order, and its memory by an
 * estimate. Also the operations on cuts.
 *
 * The estimate is that of the search (gen/search/budget_bytes.c) plus, for each rank, what the last
 * layout differed from it by. */
#include <math.h>
#include <string.h>

#include "gen/base/arena.h"
#include "gen/joint/internal.h"
#include "gen/schedule/schedule.h"
#include "gen/search/anneal.h"
#include "gen/search/budget_bytes.h"
#include "gen/timing/cost.h"
#include "gen/timing/step_time.h"

struct pen_joint_judge {
  uint32_t *first_block;       /* [stage] */
  struct pen_graph *copy;      /* [stage] */
  struct pen_graph **graph;    /* [stage] copy */
  struct pen_stage_cost *cost; /* [stage] pen_cost_of_stage() */
  struct pen_stage_hold *hold; /* [stage] */
};

struct pen_joint_judge *pen_joint_new_judge(struct pen_joint *j) {
  struct pen_joint_judge *judge = pen_new(1, sizeof *judge);
  judge->first_block = pen_new(j->stage_count, sizeof *judge->first_block);
  judge->copy = pen_new(j->stage_count, sizeof *judge->copy);
  judge->graph = pen_new(j->stage_count, sizeof *judge->graph);
  judge->cost = pen_new(j->stage_count, sizeof *judge->cost);
  judge->hold = pen_new(j->stage_count, sizeof *judge->hold);
  return judge;
}

struct pen_joint_built pen_joint_build(struct pen_joint *j, const struct pen_partition *placed,
                                       const struct pen_joint_cut *cut) {
  struct pen_joint_judge *judge = j->judge;
  for (uint32_t s = 0; s < j->stage_count; s++) judge->first_block[s] = j->place[cut->at[s]];
  struct pen_partition *partition = pen_partition_cut(placed, judge->first_block);
  for (uint32_t s = 0; s < j->stage_count; s++) {
    const struct pen_span *span = &partition->stages.span[s];
    const struct pen_joint_stage *stage = pen_joint_stage_of(
        j->stages, s, span->first_block, span->past_last_block, cut->recompute[s]);
    judge->copy[s] = *stage->graph;
    judge->copy[s].stage = s;
    judge->copy[s].stage_count = j->stage_count;
    judge->copy[s].stages = &partition->stages;
    judge->graph[s] = &judge->copy[s];
    judge->cost[s] = stage->cost;
    judge->hold[s] = stage->hold;
  }
  return (struct pen_joint_built){
      partition, judge->graph, pen_cost_model_of(&j->source, partition, judge->graph, judge->cost),
      pen_training_of(j->topology, partition, judge->graph), judge->hold};
}

/* Builds the stages of a cut, which stay, before a mark. */
static void build_stages(struct pen_joint *j, const struct pen_joint_cut *cut) {
  for (uint32_t s = 0; s < j->stage_count; s++)
    pen_joint_stage_of(j->stages, s, j->place[cut->at[s]], j->place[cut->at[s + 1]],
                       cut->recompute[s]);
}

struct pen_budget *pen_joint_budget(struct pen_joint *j, const struct pen_joint_built *built,
                                    const double *slack) {
  return pen_budget_of_holds(j->topology, built->partition, built->training, built->graph,
                             built->hold, slack);
}

struct pen_joint_time pen_joint_time_of(const struct pen_joint *j,
                                        const struct pen_joint_built *built,
                                        const struct pen_order *order,
                                        const struct pen_timing *timing) {
  const double simulated = j->by_span ? timing->span : timing->makespan;
  if (!timing->complete) return (struct pen_joint_time){INFINITY, INFINITY};
  return (struct pen_joint_time){
      j->by_step ? pen_step_time(&built->cost, built->partition, order, timing).step : simulated,
      simulated};
}

static struct pen_joint_time time_order(struct pen_joint *j, const struct pen_joint_built *built,
                                        const struct pen_order *order) {
  const double overlap = built->cost.overlap;
  struct pen_stage_cost *cost = pen_costs_on_ranks(built->partition, built->cost.stage);
  const struct pen_collective_cost *collective =
      pen_group_size(built->partition, PEN_DATA) > 1
          ? pen_cost_model_collectives(&built->cost, built->partition)
          : NULL;
  struct pen_timing *timing =
      collective
          ? pen_simulate_step(order, built->partition, built->training, cost, collective, overlap,
                              j->topology->trains ? PEN_TRAIN : PEN_EVAL, false)
          : pen_simulate_collectives(order, built->partition, built->training, cost, NULL, overlap);
  return pen_joint_time_of(j, built, order, timing);
}

static double excess_of(struct pen_joint *j, const struct pen_joint_built *built,
                        const struct pen_order *order) {
  struct pen_budget *budget = pen_joint_budget(j, built, j->slack);
  double excess = 0;
  for (uint32_t rank = 0; rank < j->rank_count; rank++)
    excess = fmax(excess, pen_budget_peak(budget, order, rank) - budget->limit[rank]);
  return excess;
}

double pen_joint_least_excess(struct pen_joint *j, const struct pen_partition *placed,
                              const struct pen_joint_cut *cut, const struct pen_order *order) {
  if (!j->limited || pen_order_has_pair(order)) return -INFINITY;
  build_stages(j, cut);
  struct pen_arena_mark *mark = pen_arena_mark();
  const struct pen_joint_built built = pen_joint_build(j, placed, cut);
  struct pen_budget *least = pen_budget_none(j->rank_count, j->stage_count);
  const double limit = (double)j->topology->memory_limit_mib * 1048576.0;
  double excess = -INFINITY;
  for (uint32_t s = 0; s < j->stage_count; s++)
    memcpy(least->hold[s], built.hold[s].least, sizeof built.hold[s].least);
  for (uint32_t rank = 0; rank < j->rank_count; rank++)
    excess = fmax(excess, pen_resident_bytes(built.partition, built.graph, rank) +
                              pen_budget_peak(least, order, rank) - limit);
  pen_arena_release(mark);
  return excess;
}

static uint64_t action_count(const struct pen_order *order) {
  uint64_t count = 0;
  for (uint32_t rank = 0; rank < order->rank_count; rank++) count += order->count[rank];
  return count;
}

/* What one judgement counts as: simulating an action, preparing a stage, and with replicas the
 * collectives of an action and a member's part of a weight, in actions timed. */
enum { ACTION_WORK = 6, STAGE_WORK = 400, COLLECTIVES_WORK = 10, PART_WORK = 4 };

static uint64_t judge_work(const struct pen_joint *j, const struct pen_joint_built *built,
                           const struct pen_order *order) {
  const uint64_t replicas = pen_group_size(j->base, PEN_DATA);
  uint64_t work = action_count(order) * ACTION_WORK * (replicas > 1 ? COLLECTIVES_WORK : 1) +
                  (uint64_t)j->stage_count * STAGE_WORK * (j->limited ? 4 : 1);
  for (uint32_t s = 0; s < j->stage_count && replicas > 1; s++)
    work += built->graph[s]->weight_count * replicas * PART_WORK;
  return work;
}

struct pen_joint_value pen_joint_judge(struct pen_joint *j, const struct pen_partition *placed,
                                       const struct pen_joint_cut *cut,
                                       const struct pen_order *order) {
  build_stages(j, cut);
  struct pen_arena_mark *mark = pen_arena_mark();
  const struct pen_joint_built built = pen_joint_build(j, placed, cut);
  struct pen_joint_value value = {.time = time_order(j, &built, order)};
  if (j->limited) value.excess = excess_of(j, &built, order);
  j->work += judge_work(j, &built, order);
  pen_arena_release(mark);
  return value;
}

bool pen_joint_is_better(struct pen_joint_value one, struct pen_joint_value other) {
  if (one.excess != other.excess) return one.excess < other.excess;
  return one.time.objective < other.time.objective * (1 - 1e-13);
}

/* A rank that exceeds the limit gets what its layout needs beyond the estimate, and this part of
 * the limit more. */
#define MARGIN 0.002

double pen_joint_calibrate(struct pen_joint *j, const struct pen_partition *placed,
                           const struct pen_joint_cut *cut, const struct pen_order *order,
                           const uint64_t *arena_bytes) {
  build_stages(j, cut);
  struct pen_arena_mark *mark = pen_arena_mark();
  const struct pen_joint_built built = pen_joint_build(j, placed, cut);
  const double limit = (double)j->topology->memory_limit_mib * 1048576.0;
  double most = -INFINITY, *room = pen_new(j->rank_count, sizeof *room);
  struct pen_budget *budget = j->limited ? pen_joint_budget(j, &built, NULL) : NULL;
  for (uint32_t rank = 0; rank < j->rank_count; rank++) {
    double excess = (double)arena_bytes[rank] - limit;
    most = fmax(most, excess);
    if (!budget) continue;
    double more = excess - (pen_budget_peak(budget, order, rank) - budget->limit[rank]);
    j->slack[rank] = fmax(j->slack[rank], more) + (excess > 0 ? MARGIN * limit : 0);
    room[rank] = more - excess;
  }
  for (uint32_t rank = 0; budget && most <= 0 && rank < j->rank_count; rank++) {
    j->most_slack[rank] = room[rank];
    j->slack[rank] = fmin(j->slack[rank], room[rank]);
  }
  pen_arena_release(mark);
  return most;
}

/* ---- cuts ---- */

struct pen_joint_cut pen_joint_new_cut(const struct pen_joint *j) {
  return (struct pen_joint_cut){pen_new(j->stage_count + 1u, sizeof(uint32_t)),
                                pen_new(j->stage_count, 1)};
}

void pen_joint_copy_cut(const struct pen_joint *j, struct pen_joint_cut *to,
                        const struct pen_joint_cut *from) {
  memcpy(to->at, from->at, (j->stage_count + 1u) * sizeof *to->at);
  memcpy(to->recompute, from->recompute, j->stage_count);
}

static uint32_t draw_below(uint64_t *seed, uint32_t count) {
  return (uint32_t)((pen_search_draw(seed) >> 32) * count >> 32);
}

/* Draws a run of stages: one, or from any to any. */
static bool draw_shift(const struct pen_joint *j, const struct pen_joint_cut *cut, uint64_t *seed,
                       struct pen_joint_change *change) {
  uint32_t first = 1 + draw_below(seed, j->stage_count - 1), last = first;
  if (draw_below(seed, 2)) last = 1 + draw_below(seed, j->stage_count - 1);
  change->first = first < last ? first : last;
  change->last = first < last ? last : first;
  int shift = 1 + (int)draw_below(seed, 2);
  bool later = draw_below(seed, 2);
  change->shift = later ? shift : -shift;
  uint32_t room = later ? cut->at[change->last + 1] - cut->at[change->last]
                        : cut->at[change->first] - cut->at[change->first - 1];
  return (uint32_t)shift < room;
}

static bool draw_recompute(const struct pen_joint *j, const struct pen_joint_cut *cut,
                           uint64_t *seed, struct pen_joint_change *change) {
  uint32_t stage = draw_below(seed, j->stage_count);
  *change =
      (struct pen_joint_change){stage, stage, 0, (uint8_t)draw_below(seed, PEN_RECOMPUTE_KINDS)};
  return j->open[stage] && cut->recompute[stage] != change->recompute;
}

bool pen_joint_draw(const struct pen_joint *j, const struct pen_joint_cut *cut, uint64_t *seed,
                    struct pen_joint_change *change) {
  bool shifts = j->cuts && j->stage_count > 1;
  if (j->has_open && (!shifts || draw_below(seed, 3) == 0))
    return draw_recompute(j, cut, seed, change);
  return shifts && draw_shift(j, cut, seed, change);
}

void pen_joint_apply(struct pen_joint_cut *cut, const struct pen_joint_change *change) {
  if (change->shift == 0) cut->recompute[change->first] = change->recompute;
  for (uint32_t s = change->first; change->shift && s <= change->last; s++)
    cut->at[s] = (uint32_t)((int64_t)cut->at[s] + change->shift);
}
