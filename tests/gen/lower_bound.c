/* lower_bound.c: no order is better than the lower bounds: small problems with and without a memory
 * limit, all orders of which are searched for one that is. */
#include <math.h>

#include "gen/base/arena.h"
#include "gen/partition/partition.h"
#include "gen/partition/training.h"
#include "gen/schedule/order.h"
#include "gen/timing/lower_bound.h"
#include "gen/timing/memory_budget.h"
#include "runtime/plan/plan.h"
#include "tests/support/plans.h"

enum { RANKS = 3, STAGES = 6, MICROBATCHES = 5, KINDS = 3, TABLE = 1 << 14, STATES_MAX = 40000 };

/* ---- the search of all orders ----
 *
 * Microbatches are in ascending order, and backwards are split: other orders are no better
 * (gen/search/search.c). Actions are chosen by the time of their start, so that each order is
 * chosen once. A partial order that has run the same actions as an earlier one, and is no better in
 * any time, is left out. So is one that cannot be better than the bound. */

/* A partial order. */
struct state {
  uint8_t done[KINDS][STAGES];         /* how many of each stage */
  double now;                          /* the last start */
  double begun[RANKS], free_at[RANKS]; /* of its first action; INFINITY: none */
  double forward[STAGES][MICROBATCHES], backward[STAGES][MICROBATCHES]; /* arrivals */
};

struct stored {
  struct state state;
  struct stored *next;
};

struct hunt {
  const struct pen_partition *partition;
  const struct pen_stage_cost *cost;
  const struct pen_budget *budget;
  bool by_span;
  double limit; /* what an order must be below */
  struct stored *table[TABLE];
  unsigned states;
  bool found;
};

static double cost_of(const struct hunt *h, int kind, uint32_t stage) {
  const struct pen_stage_cost *cost = &h->cost[stage];
  return kind == PEN_PROGRAM_F
             ? cost->forward
             : (kind == PEN_PROGRAM_I ? cost->backward_input : cost->backward_weight);
}

/* What a rank holds. */
static double held_by(const struct hunt *h, const struct state *s, uint32_t rank) {
  double held = 0;
  for (uint32_t stage = 0; stage < h->partition->stage_count; stage++)
    for (int kind = 0; h->partition->rank_of[stage] == rank && kind < KINDS; kind++)
      held += s->done[kind][stage] * h->budget->hold[stage][kind].remains;
  return held;
}

/* When the next action of a kind and stage can start; INFINITY: not yet. */
static double start_of(const struct hunt *h, const struct state *s, int kind, uint32_t stage) {
  uint32_t rank = h->partition->rank_of[stage], next = s->done[kind][stage];
  if (next == h->partition->microbatch_count) return INFINITY;
  if (kind != PEN_PROGRAM_F && next >= s->done[kind - 1][stage]) return INFINITY;
  if (held_by(h, s, rank) + h->budget->hold[stage][kind].peak > h->budget->limit[rank] + 1e-9)
    return INFINITY;
  double arrival = kind == PEN_PROGRAM_W   ? 0
                   : kind == PEN_PROGRAM_F ? s->forward[stage][next]
                                           : s->backward[stage][next];
  return fmax(arrival, s->free_at[rank]);
}

/* The state after that action. */
static struct state state_after(const struct hunt *h, const struct state *s, int kind,
                                uint32_t stage, double start) {
  struct state t = *s;
  uint32_t rank = h->partition->rank_of[stage], microbatch = t.done[kind][stage]++;
  double end = start + cost_of(h, kind, stage);
  t.now = start;
  t.free_at[rank] = end;
  if (t.begun[rank] == INFINITY) t.begun[rank] = start;
  if (kind == PEN_PROGRAM_F && stage + 1 < h->partition->stage_count)
    t.forward[stage + 1][microbatch] =
        end + (h->partition->rank_of[stage + 1] == rank ? 0 : h->cost[stage].send);
  else if (kind == PEN_PROGRAM_F)
    t.backward[stage][microbatch] = end;
  if (kind == PEN_PROGRAM_I && stage > 0)
    t.backward[stage - 1][microbatch] =
        end + (h->partition->rank_of[stage - 1] == rank ? 0 : h->cost[stage].send);
  return t;
}

/* The least objective of the orders that continue a state, by the work that each rank still has. */
static double least_of(const struct hunt *h, const struct state *s) {
  double left[RANKS] = {0}, least = 0;
  for (uint32_t stage = 0; stage < h->partition->stage_count; stage++)
    for (int kind = 0; kind < KINDS; kind++)
      left[h->partition->rank_of[stage]] +=
          (h->partition->microbatch_count - s->done[kind][stage]) * cost_of(h, kind, stage);
  for (uint32_t rank = 0; rank < h->partition->rank_count; rank++) {
    bool begun = s->begun[rank] < INFINITY;
    double since = !h->by_span ? 0 : begun ? s->begun[rank] : s->now;
    /* A rank that runs an action later starts it at `now` or later. */
    double from = left[rank] > 0 ? fmax(s->free_at[rank], s->now) : s->free_at[rank];
    least = fmax(least, from + left[rank] - since);
  }
  return least;
}

/* Whether state a is no better in any time than b, which has run the same actions. */
static bool no_better(const struct hunt *h, const struct state *a, const struct state *b) {
  if (a->now < b->now) return false;
  for (uint32_t rank = 0; rank < h->partition->rank_count; rank++) {
    if (a->free_at[rank] < b->free_at[rank]) return false;
    if (h->by_span && a->begun[rank] > b->begun[rank]) return false;
  }
  for (uint32_t stage = 0; stage < h->partition->stage_count; stage++)
    for (uint32_t m = 0; m < h->partition->microbatch_count; m++) {
      if (m >= a->done[PEN_PROGRAM_F][stage] && a->forward[stage][m] < b->forward[stage][m])
        return false;
      if (m >= a->done[PEN_PROGRAM_I][stage] && a->backward[stage][m] < b->backward[stage][m])
        return false;
    }
  return true;
}

/* Stores a state. False: an earlier one is as good. */
static bool is_new(struct hunt *h, const struct state *s) {
  uint32_t hash = 2166136261u;
  const uint8_t *byte = &s->done[0][0];
  for (size_t i = 0; i < sizeof s->done; i++) hash = (hash ^ byte[i]) * 16777619u;
  struct stored **list = &h->table[hash % TABLE];
  for (const struct stored *other = *list; other; other = other->next)
    if (!memcmp(other->state.done, s->done, sizeof s->done) && no_better(h, s, &other->state))
      return false;
  struct stored *own = pen_new(1, sizeof *own);
  *own = (struct stored){*s, *list};
  *list = own;
  h->states++;
  return true;
}

/* Looks for an order below the limit. */
static void continue_order(struct hunt *h, const struct state *s) {
  bool complete = true;
  if (h->found || h->states >= STATES_MAX || least_of(h, s) >= h->limit || !is_new(h, s)) return;
  for (uint32_t stage = 0; stage < h->partition->stage_count; stage++) {
    complete = complete && s->done[PEN_PROGRAM_W][stage] == h->partition->microbatch_count;
    for (int kind = KINDS - 1; kind >= 0; kind--) {
      double start = start_of(h, s, kind, stage);
      if (start == INFINITY || start < s->now) continue;
      const struct state next = state_after(h, s, kind, stage, start);
      continue_order(h, &next);
    }
  }
  h->found = h->found || complete;
}

/* Whether an order has an objective below the limit: 1 yes, 0 no, -1 too many orders to tell. */
static int is_beaten(const struct pen_partition *partition, const struct pen_stage_cost *cost,
                     const struct pen_budget *budget, bool by_span, double limit) {
  struct hunt *h = pen_new(1, sizeof *h);
  struct state *s = pen_new(1, sizeof *s);
  *h = (struct hunt){partition, cost, budget, by_span, limit, .found = false};
  for (uint32_t rank = 0; rank < partition->rank_count; rank++) s->begun[rank] = INFINITY;
  for (uint32_t stage = 0; stage < partition->stage_count; stage++)
    for (uint32_t m = 0; m < partition->microbatch_count; m++) {
      s->forward[stage][m] = stage == 0 ? 0 : INFINITY;
      s->backward[stage][m] = INFINITY;
    }
  continue_order(h, s);
  return h->found ? 1 : h->states < STATES_MAX ? 0 : -1;
}

/* ---- problems ---- */

/* F, I and W of every stage and microbatch. */
static struct pen_order *all_actions(const struct pen_partition *partition) {
  static const uint8_t kind_of[] = {PEN_F, PEN_I, PEN_W};
  struct pen_order *order = pen_new(1, sizeof *order);
  uint32_t ranks = partition->rank_count,
           most = KINDS * partition->stages_per_rank * partition->microbatch_count;
  *order = (struct pen_order){ranks, pen_new(ranks, sizeof *order->count),
                              pen_new(ranks, sizeof *order->action)};
  for (uint32_t rank = 0; rank < ranks; rank++)
    order->action[rank] = pen_new(most, sizeof **order->action);
  for (uint32_t stage = 0; stage < partition->stage_count; stage++)
    for (uint32_t n = 0; n < KINDS * partition->microbatch_count; n++) {
      uint32_t rank = partition->rank_of[stage];
      order->action[rank][order->count[rank]++] = (struct pen_compute){
          .kind = kind_of[n % KINDS], .stage = (uint16_t)stage, .microbatch = n / KINDS};
    }
  return order;
}

/* A limit that holds one microbatch and up to `more` others; stages hold different amounts, and
 * less after I in some problems. */
static struct pen_budget *random_budget(const struct pen_partition *partition, uint64_t *seed) {
  static const double parts[] = {1, 1, 0.5, 0};
  double weight[STAGES], size[STAGES], least = 0, part = parts[draw(seed, 4)];
  bool differ = draw(seed, 3) == 0;
  uint64_t more = draw(seed, 2 * partition->stages_per_rank * partition->rank_count + 1);
  if (draw(seed, 6) == 0) return pen_budget_none(partition->rank_count, partition->stage_count);
  for (uint32_t stage = 0; stage < partition->stage_count; stage++) weight[stage] = part;
  struct pen_budget *budget =
      pen_budget_live(partition->rank_count, partition->stage_count, 0, 1, weight);
  for (uint32_t stage = 0; stage < partition->stage_count; stage++) {
    size[stage] = differ ? 0.5 * (double)(1 + draw(seed, 3)) : 1;
    for (int kind = 0; kind < PEN_PROGRAMS; kind++) {
      budget->hold[stage][kind].peak *= size[stage];
      budget->hold[stage][kind].remains *= size[stage];
    }
    least += size[stage];
  }
  for (uint32_t rank = 0; rank < partition->rank_count; rank++)
    budget->limit[rank] = fmax(partition->stages_per_rank, least / partition->rank_count) +
                          (differ ? 1.5 : 0) + 0.5 * (double)more;
  return budget;
}

static const struct size {
  uint32_t ranks, stages, microbatches;
} sizes[] = {{2, 1, 4}, {2, 2, 3}, {3, 1, 4}, {2, 2, 4}, {3, 2, 2},
             {1, 2, 4}, {3, 2, 3}, {2, 2, 5}, {3, 2, 4}};
enum { SIZES = sizeof sizes / sizeof *sizes };

/* Counts of problems. */
struct bound_tally {
  unsigned decided, open, met; /* met: an order is as good as the bound */
  unsigned limited, limited_met;
};

static void check_bound(const struct pen_partition *partition, const struct pen_stage_cost *cost,
                        const struct pen_budget *budget, unsigned round,
                        struct bound_tally *tally) {
  const struct pen_bounds bounds =
      pen_bounds_of(all_actions(partition), partition, &pen_training_none, cost, NULL, -1, budget);
  for (int by_span = 0; by_span < 2; by_span++) {
    const struct pen_bound *bound = by_span ? &bounds.span : &bounds.makespan;
    int beaten = is_beaten(partition, cost, budget, by_span, bound->greatest * (1 - 1e-6));
    if (beaten == 1)
      fail_msg("round %u: an order has a smaller %s than the bound %g", round,
               by_span ? "span" : "makespan", bound->greatest);
    tally->decided += beaten == 0;
    tally->open += beaten < 0;
    bool limited = bound->memory > fmax(bound->work, fmax(bound->ends, bound->chain));
    bool met = is_beaten(partition, cost, budget, by_span, bound->greatest * (1 + 1e-6)) == 1;
    tally->met += met;
    tally->limited += limited;
    tally->limited_met += limited && met;
  }
}

static void no_order_is_better_than_the_bounds(void **state) {
  (void)state;
  uint64_t seed = 20261124;
  struct bound_tally tally = {0};
  for (unsigned round = 0; round < 900; round++) {
    const struct size *size = &sizes[round % SIZES];
    struct pen_partition *partition = make_partition(size->ranks, size->stages, size->microbatches,
                                                     draw(&seed, 2) && size->stages > 1);
    struct pen_stage_cost *cost = pen_new(partition->stage_count, sizeof *cost);
    uint64_t most = 1 + draw(&seed, 3), messages = draw(&seed, 2);
    for (uint32_t stage = 0; stage < partition->stage_count; stage++)
      cost[stage] = (struct pen_stage_cost){.forward = 1 + (double)draw(&seed, most),
                                            .backward_input = 1 + (double)draw(&seed, most),
                                            .backward_weight = (double)(1 + draw(&seed, most)),
                                            .send = 0.5 * (double)(messages * draw(&seed, 3))};
    check_bound(partition, cost, random_budget(partition, &seed), round, &tally);
    pen_free_all();
  }
  print_message("# %u bounds proved, %u open, %u met; of %u by memory %u met\n", tally.decided,
                tally.open, tally.met, tally.limited, tally.limited_met);
  assert_true(tally.decided > 1700 && 4 * tally.limited_met > tally.limited);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(no_order_is_better_than_the_bounds)};
  return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
