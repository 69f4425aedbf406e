/* joint.c: the pass.
 *
 * It starts from the cuts by count and by time, with each kind of recomputation, which it never
 * does worse than, and from cuts that give the ranks equal work (level.c), each with the orders
 * that the search starts from if the order is open. A start whose live bytes exceed the limit is
 * not laid out. With a named schedule all choices of a small model are judged (exhaust.c);
 * otherwise rounds follow, of local search over cuts and recomputation (improve.c) and, if the
 * order is open, of annealing (order.c), until the work of the effort is done. What a round does
 * depends on the rounds before it alone, and its result is kept if it is better, so a larger effort
 * is never worse. Under memory.limit_mib a choice is kept only if its layout is within the limit;
 * each layout also corrects the estimate that the next round uses. */
#include "gen/joint/joint.h"

#include <math.h>
#include <string.h>

#include "gen/base/arena.h"
#include "gen/base/pass_times.h"
#include "gen/families/families.h"
#include "gen/joint/internal.h"
#include "gen/layout/draft.h"
#include "gen/model/units.h"
#include "gen/partition/block_cost.h"
#include "gen/schedule/schedule.h"
#include "gen/timing/cost_model.h"
#include "gen/topology/message.h"
#include "gen/topology/schedule_table.h"

/* Work in actions timed: of one round, how many seconds of rounds there are by "p99", of the
 * exhaustive search, of levelling one start, and what laying out one action counts as; of list
 * schedules for one start. */
enum {
  ROUND_WORK = 80000000,
  PERCENTILE_SECONDS = 2,
  EXHAUST_WORK = 80000000,
  LEVEL_WORK = 10000000,
  LAYOUT_WORK = 2000,
  START_WORK = 5000000,
  START_TRIALS = 5,
  EXHAUST_TRIALS = 8
};

static bool is_open(const struct pen_topology *t, uint32_t stage) {
  return t->memory_recompute.count && t->memory_recompute.value[stage] == PEN_RECOMPUTE_AUTO;
}

bool pen_joint_applies(const struct pen_topology *t) {
  bool any = false;
  for (size_t s = 0; s < t->memory_recompute.count; s++) any |= is_open(t, (uint32_t)s);
  return pen_partition_is_joint(t) ||
         (any && t->trains && t->memory_limit_mib &&
          pen_schedule_of(t->pipeline_schedule)->given != PEN_GIVEN_BY_FILE);
}

const struct pen_topology *pen_joint_topology(const struct pen_topology *topology,
                                              const struct pen_joint_choice *choice) {
  struct pen_topology *chosen = pen_new(1, sizeof *chosen);
  const size_t stages = topology->memory_recompute.count;
  int *value = pen_new(stages + 1, sizeof *value);
  *chosen = *topology;
  for (size_t s = 0; s < stages; s++) value[s] = choice->recompute[s];
  chosen->memory_recompute.value = value;
  chosen->pipeline_placement = choice->placement;
  return chosen;
}

/* ---- the task ---- */

/* A value of partition.balance; by time for a backward that is split or not. */
struct balance {
  enum pen_balance kind;
  bool splits;
};

/* The partition of another partition.balance; NULL: that leaves a stage without a block. */
static const struct pen_partition *balanced(const struct pen_topology *t, struct balance balance) {
  struct pen_topology copy = *t;
  const struct pen_family *family = pen_family_of(t);
  copy.partition_balance = balance.kind;
  if (balance.kind == PEN_BALANCE_TIME)
    return pen_partition(&copy, family, pen_block_costs(&copy, family, balance.splits));
  bool divides = t->partition_layers.value || t->partition_before.value ||
                 !pen_partition_is_joint(t) || pen_partition_divides_evenly(&copy, family);
  return divides ? pen_partition(&copy, family, NULL) : NULL;
}

/* Fails (78): the order is for one cut. pen_partition() checks the other settings. */
static void check_settings(const struct pen_topology *t) {
  if (!pen_partition_is_joint(t)) return;
  const struct pen_schedule *schedule = pen_schedule_of(t->pipeline_schedule);
  if (schedule->given == PEN_GIVEN_BY_FILE)
    pen_topology_fail(t, "partition.balance",
                      "\"count\" or \"time\", with the schedule %s: its order is for one cut",
                      schedule->name);
}

static bool by_percentile(const struct pen_topology *t) {
  return pen_schedule_of(t->pipeline_schedule)->given == PEN_GIVEN_BY_SEARCH &&
         t->pipeline_objective == PEN_OBJECTIVE_P99;
}

/* With a kind in place of "auto", which no graph can have; by the makespan instead of "p99". */
static const struct pen_topology *searched_topology(const struct pen_topology *t, uint8_t kind) {
  struct pen_topology *copy = pen_new(1, sizeof *copy);
  int *value = pen_new(t->memory_recompute.count + 1, sizeof *value);
  *copy = *t;
  for (size_t s = 0; s < t->memory_recompute.count; s++)
    value[s] = is_open(t, (uint32_t)s) ? kind : t->memory_recompute.value[s];
  copy->memory_recompute.value = value;
  if (by_percentile(t)) copy->pipeline_objective = PEN_OBJECTIVE_MAKESPAN;
  return copy;
}

static struct pen_joint *new_task(const struct pen_joint_input *input) {
  struct pen_joint *j = pen_new(1, sizeof *j);
  const struct pen_topology *topology = input->topology,
                            *t = j->topology = searched_topology(topology, PEN_RECOMPUTE_NONE);
  j->source = (struct pen_cost_source){t, input->measured};
  j->cuts = pen_partition_is_joint(t);
  const bool splits = pen_schedule_splits(pen_schedule_of(t->pipeline_schedule), t);
  j->base = balanced(
      t, (struct balance){
             j->cuts || pen_partition_by_time(t) ? PEN_BALANCE_TIME : PEN_BALANCE_COUNT, splits});
  j->stage_count = j->base->stage_count;
  j->rank_count = j->base->rank_count;
  j->place = pen_partition_places(t, j->base, &j->place_count);
  j->stages = pen_joint_stages(&j->source, j->base);
  j->slack = pen_new(j->rank_count, sizeof *j->slack);
  j->most_slack = pen_new(j->rank_count, sizeof *j->most_slack);
  j->open = pen_new(j->stage_count, sizeof *j->open);
  j->limited = t->trains && t->memory_limit_mib && !t->has_pipeline_live_limit;
  for (uint32_t s = 0; s < j->stage_count; s++) {
    j->open[s] = j->limited && is_open(topology, s);
    j->has_open |= j->open[s];
  }
  j->judge = pen_joint_new_judge(j);
  return j;
}

/* ---- the best choice ---- */

struct candidate {
  const struct pen_partition *placed;
  enum pen_placement placement;
  struct pen_joint_cut cut;
  struct pen_joint_order order;
  struct pen_joint_value value; /* of the best: with the excess of its layout */
  double least_excess;          /* of a start: pen_joint_least_excess() */
};

struct best_choice {
  const struct pen_joint_input *input;
  struct pen_joint *joint;
  bool searches; /* the order is open */
  struct candidate best;
};

static struct candidate copy_of(const struct pen_joint *j, const struct candidate *from) {
  struct candidate copy = *from;
  copy.cut = pen_joint_new_cut(j);
  pen_joint_copy_cut(j, &copy.cut, &from->cut);
  return copy;
}

static struct pen_joint_choice choice_of(const struct best_choice *b, const struct candidate *c) {
  struct pen_joint *j = b->joint;
  uint32_t *first = pen_new(j->stage_count, sizeof *first);
  uint8_t *recompute = pen_new(j->stage_count, 1);
  for (uint32_t s = 0; s < j->stage_count; s++) first[s] = j->place[c->cut.at[s]];
  memcpy(recompute, c->cut.recompute, j->stage_count);
  return (struct pen_joint_choice){
      .first_block = first,
      .recompute = recompute,
      .placement = c->placement,
      .search =
          b->searches ? pen_joint_search(j, c->placed, c->placement, &c->cut, &c->order) : NULL};
}

/* Lays out the plan of a choice and fills arena_bytes[rank]. */
static void lay_out(const struct pen_joint_input *input, const struct pen_joint_choice *choice,
                    uint64_t *arena_bytes) {
  struct pen_arena_mark *mark = pen_arena_mark();
  const struct pen_cost_source source = {pen_joint_topology(input->topology, choice),
                                         input->measured};
  const struct pen_draft draft = pen_draft(&source, choice->first_block, false);
  const struct pen_placed_order order = {
      .order = choice->search ? choice->search->order : pen_draft_compose(&draft),
      .topology = source.topology,
      .partition = draft.bucket->partition};
  const struct pen_plan *plan = pen_draft_lay_out(&draft, &order).plan;
  pen_draft_check_overlap(&draft, order.order);
  for (uint32_t rank = 0; rank < plan->rank_count; rank++)
    arena_bytes[rank] = plan->memory[rank].arena_bytes;
  pen_arena_release(mark);
}

/* The bytes by which a choice exceeds the limit, by its layout. */
static double measure_excess(const struct best_choice *b, const struct candidate *c) {
  struct pen_joint *j = b->joint;
  if (!j->topology->memory_limit_mib) return 0;
  uint64_t *bytes = pen_new(j->rank_count, sizeof *bytes);
  const struct pen_joint_choice choice = choice_of(b, c);
  const struct pen_order *order = choice.search ? choice.search->order : c->order.order;
  lay_out(b->input, &choice, bytes);
  pen_pass("joint");
  double excess = pen_joint_calibrate(j, c->placed, &c->cut, order, bytes);
  for (uint32_t rank = 0; rank < j->rank_count; rank++)
    j->work += (uint64_t)LAYOUT_WORK * order->count[rank];
  pen_free(bytes);
  return fmax(0, excess);
}

/* Keeps a choice that is better by its simulation and fits by its layout. Returns whether it is
 * better, but its layout does not fit. */
static bool offer(struct best_choice *b, const struct candidate *c) {
  struct candidate other = *c;
  b->joint->progress.candidates++;
  if (!pen_joint_is_better(other.value, b->best.value)) return false;
  other.value.excess = measure_excess(b, &other);
  if (pen_joint_is_better(other.value, b->best.value)) {
    b->best = copy_of(b->joint, &other);
    if (other.value.excess <= 0)
      pen_search_progress_value(&b->joint->progress, other.value.time.simulated);
  }
  return other.value.excess > 0;
}

/* ---- starts ---- */

/* The cut of a partition that divides the model where partition.unit allows. */
static struct pen_joint_cut cut_of(const struct pen_joint *j, const struct pen_partition *p,
                                   uint8_t open_kind) {
  struct pen_joint_cut cut = pen_joint_new_cut(j);
  for (uint32_t s = 0, at = 0; s < j->stage_count; s++) {
    while (j->place[at] < p->stages.span[s].first_block) at++;
    cut.at[s] = at;
    cut.recompute[s] = j->open[s] ? open_kind : pen_recompute_of(j->topology, s);
  }
  cut.at[j->stage_count] = j->place_count;
  return cut;
}

/* All that the pass may begin with: first what may fit, by ascending time. */
struct starts {
  struct candidate *start;
  size_t count;
};

static bool is_before(const struct candidate *one, const struct candidate *other) {
  const bool fits = one->least_excess <= 0, other_fits = other->least_excess <= 0;
  return fits != other_fits ? fits : one->order.time.objective < other->order.time.objective;
}

static void add_start(struct pen_joint *j, struct starts *starts, const struct candidate *c,
                      const struct pen_joint_order *order) {
  struct candidate start = copy_of(j, c);
  start.order = *order;
  start.least_excess = pen_joint_least_excess(j, c->placed, &c->cut, order->order);
  PEN_RESERVE(starts->start, starts->count + 1);
  size_t at = starts->count++;
  for (; at > 0 && is_before(&start, &starts->start[at - 1]); at--)
    starts->start[at] = starts->start[at - 1];
  starts->start[at] = start;
}

/* Adds a cut with the orders that it may begin with. */
static void add_orders(struct best_choice *b, struct starts *starts, const struct candidate *c,
                       const struct pen_order *composed) {
  struct pen_joint *j = b->joint;
  struct pen_joint_order order = {.order = composed, .is_named = true};
  if (b->searches) {
    struct pen_joint_orders named;
    order = pen_joint_start_order(j, c->placed, c->placement, &c->cut, START_WORK, &named);
    for (size_t i = 0; i < named.count; i++) add_start(j, starts, c, &named.order[i]);
  } else {
    order.time = pen_joint_judge(j, c->placed, &c->cut, composed).time;
  }
  if (order.order && !(b->searches && order.is_named)) add_start(j, starts, c, &order);
}

/* Adds a cut, and one that is levelled from it. */
static void add_cut(struct best_choice *b, struct starts *starts, struct candidate *c,
                    const struct pen_order *composed, uint64_t level_seed) {
  struct pen_joint *j = b->joint;
  add_orders(b, starts, c, composed);
  if (!j->cuts) return;
  pen_joint_level(j, c->placed, &c->cut, LEVEL_WORK, level_seed);
  add_orders(b, starts, c, composed);
}

/* Adds the cuts by count and by time, as named schedules with that recomputation have them: where
 * the order is open, also by time for a backward that is not split. */
static void add_cuts(struct best_choice *b, struct starts *starts, struct candidate *c,
                     uint8_t open_kind, const struct pen_order *composed) {
  struct pen_joint *j = b->joint;
  const struct pen_topology *t = searched_topology(b->input->topology, open_kind);
  const bool splits = pen_schedule_splits(pen_schedule_of(t->pipeline_schedule), t);
  const struct balance balances[] = {
      {PEN_BALANCE_COUNT, false}, {PEN_BALANCE_TIME, splits}, {PEN_BALANCE_TIME, false}};
  struct pen_joint_cut cut[sizeof balances / sizeof *balances];
  const int count = !j->cuts ? 1 : b->searches ? 3 : 2;
  for (int i = 0, known = 0; i < count; i++) {
    const struct pen_partition *p = j->cuts ? balanced(t, balances[i]) : j->base;
    if (!p) continue;
    cut[known] = cut_of(j, p, open_kind);
    bool again = false;
    for (int k = 0; k < known; k++)
      again |= !memcmp(cut[k].at, cut[known].at, (j->stage_count + 1u) * sizeof *cut[k].at);
    if (again) continue;
    c->cut = pen_joint_new_cut(j);
    pen_joint_copy_cut(j, &c->cut, &cut[known++]);
    add_cut(b, starts, c, composed, b->input->effort.seed + (uint64_t)i + 2);
  }
}

static void add_placements(struct best_choice *b, struct starts *starts) {
  static const uint8_t kinds[] = {PEN_RECOMPUTE_NONE, PEN_RECOMPUTE_ATTENTION, PEN_RECOMPUTE_LAYER,
                                  PEN_RECOMPUTE_FULL};
  const struct pen_topology *t = b->joint->topology;
  const struct pen_partition *base = b->joint->base;
  const bool zigzag = t->pipeline_placement == PEN_PLACEMENT_V,
             both = b->searches && !t->has_pipeline_placement && base->stages_per_rank > 1 &&
                    base->rank_count > 1;
  for (int v = 0; v < 2; v++) {
    if (!both && v != zigzag) continue;
    struct candidate c = {.placed = pen_partition_placed(base, v),
                          .placement = (enum pen_placement)v};
    const struct pen_order *composed = b->searches ? NULL : pen_compose(t, c.placed);
    for (size_t k = 0; k < (b->joint->has_open ? sizeof kinds : 1); k++)
      add_cuts(b, starts, &c, kinds[k], composed);
  }
}

/* Offers a start; one of the search again with what its layout needs beyond the estimate. */
static void offer_start(struct best_choice *b, struct candidate *c) {
  struct pen_joint *j = b->joint;
  memset(j->slack, 0, j->rank_count * sizeof *j->slack);
  for (int trial = 0; trial < START_TRIALS; trial++) {
    if (!c->order.order) return;
    /* What cannot fit better than the best is not laid out; what does not fit by the estimate is.
     */
    if (c->order.is_named && c->least_excess > 0 && c->least_excess >= b->best.value.excess) return;
    c->value = (struct pen_joint_value){0, c->order.time};
    if (!offer(b, c) || c->order.is_named) return;
    c->order = pen_joint_start_order(j, c->placed, c->placement, &c->cut, START_WORK, NULL);
  }
}

static void offer_starts(struct best_choice *b) {
  struct starts starts = {0};
  add_placements(b, &starts);
  for (size_t i = 0; i < starts.count; i++) offer_start(b, &starts.start[i]);
  if (!b->best.cut.at)
    pen_topology_fail(b->joint->topology, "pipeline.live_limit",
                      "at least what one microbatch needs on each rank");
  if (!b->searches) return;
  const struct pen_joint_choice choice = choice_of(b, &b->best);
  b->joint->progress.start = choice.search->start;
  b->joint->progress.start_makespan = choice.search->makespan;
}

/* ---- rounds ---- */

/* The work of a round with an open order: local search over cuts, then annealing of the order. */
static const struct {
  double share, temperature; /* temperature 0: over cuts */
} parts[] = {{0.2, 0}, {0.06, 0.005}, {0.1, 0.015}, {0.14, 0.03}, {0.5, 0.065}};

static void run_round(struct best_choice *b, uint64_t round) {
  struct pen_joint *j = b->joint;
  struct candidate c = copy_of(j, &b->best);
  for (uint32_t rank = 0; j->limited && rank < j->rank_count; rank++)
    j->slack[rank] = fmin(j->slack[rank], j->most_slack[rank]);
  struct pen_joint_effort effort = {
      ROUND_WORK, ((b->input->effort.seed + 1) * 0x9E3779B97F4A7C15u + round) | 1};
  for (size_t i = 0; b->searches && i < sizeof parts / sizeof *parts; i++) {
    effort.work = (uint64_t)(parts[i].share * ROUND_WORK);
    effort.seed += 2 * i;
    if (parts[i].temperature > 0) {
      pen_joint_anneal(j, c.placed, &c.cut, &effort, parts[i].temperature, &c.order);
    } else {
      pen_joint_improve(j, c.placed, c.order.order, &effort, &c.cut, &c.value);
      c.order.time = c.value.time;
    }
    c.value.time = c.order.time;
  }
  if (!b->searches) pen_joint_improve(j, c.placed, c.order.order, &effort, &c.cut, &c.value);
  offer(b, &c);
}

/* Judges all choices, again where the layout of the best needs more than the estimate. Returns
 * whether that was possible. */
static bool exhaust_choices(struct best_choice *b) {
  struct pen_joint *j = b->joint;
  for (int trial = 0; trial < EXHAUST_TRIALS; trial++) {
    struct candidate c = copy_of(j, &b->best);
    if (!pen_joint_exhaust(j, c.placed, c.order.order, EXHAUST_WORK, &c.cut, &c.value))
      return false;
    if (!offer(b, &c)) return true;
  }
  return false;
}

/* The search needs finite times. */
static void check_costs(struct pen_joint *j) {
  const struct pen_joint_cut cut = cut_of(j, j->base, PEN_RECOMPUTE_NONE);
  const struct pen_joint_built built = pen_joint_build(j, j->base, &cut);
  if (!pen_search_can_time(built.partition, built.cost.stage)) pen_cost_model_fail(&built.cost);
}

struct pen_joint_choice pen_joint(const struct pen_joint_input *input) {
  const struct pen_topology *t = input->topology;
  check_settings(t);
  struct pen_joint *j = new_task(input);
  struct best_choice b = {
      .input = input,
      .joint = j,
      .searches = pen_schedule_of(t->pipeline_schedule)->given == PEN_GIVEN_BY_SEARCH,
      .best = {.value = {INFINITY, {INFINITY, INFINITY}}}};
  j->by_span = b.searches && t->pipeline_objective == PEN_OBJECTIVE_SPAN;
  j->by_step = t->trains && input->measured && !(j->by_span || by_percentile(t));
  if (b.searches) check_costs(j);
  offer_starts(&b);
  const uint64_t begin = j->work;
  bool complete = !b.searches && exhaust_choices(&b);
  const uint64_t seconds = by_percentile(t) ? PERCENTILE_SECONDS : input->effort.seconds;
  for (uint64_t round = 0; !complete && (round == 0 || j->work - begin < seconds * ROUND_WORK);
       round++)
    run_round(&b, round);
  struct pen_joint_choice choice = choice_of(&b, &b.best);
  choice.goes_on = by_percentile(t);
  return choice;
}
