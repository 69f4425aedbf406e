/* joint.c: the pass.
 *
 * It starts from the cuts by count and by time, which it never does worse than, and from cuts that
 * give the ranks equal work (level.c). Of a small model all cuts are judged (exhaust.c); otherwise
 * rounds of local search (improve.c) follow, one for each unit of effort. What a round does depends
 * on the rounds before it alone, and its result is kept if it is better, so a larger effort is
 * never worse. Under memory.limit_mib a choice is kept only if its layout is within the limit; each
 * layout also corrects the estimate that the next round uses. */
#include "gen/joint/joint.h"

#include <math.h>
#include <string.h>

#include "gen/base/arena.h"
#include "gen/base/pass_times.h"
#include "gen/families/families.h"
#include "gen/joint/internal.h"
#include "gen/model/units.h"
#include "gen/partition/block_cost.h"
#include "gen/schedule/schedule.h"
#include "gen/topology/message.h"
#include "gen/topology/schedule_table.h"

/* Work in actions timed: of one round, of the exhaustive search, of levelling one start, and what
 * laying out one action counts as. */
enum { ROUND_WORK = 80000000, EXHAUST_WORK = 80000000, LEVEL_WORK = 10000000, LAYOUT_WORK = 500 };

static bool is_open(const struct pen_topology *t, uint32_t stage) {
  return t->memory_recompute.count && !strcmp(t->memory_recompute.value[stage], "auto");
}

bool pen_joint_applies(const struct pen_topology *t) { return pen_partition_is_joint(t); }

/* ---- the task ---- */

/* The partition of another partition.balance. */
static const struct pen_partition *balanced(const struct pen_topology *t, const char *balance) {
  struct pen_topology copy = *t;
  const struct pen_family *family = pen_family_find(t->model_family);
  const struct pen_schedule *schedule = pen_schedule_of(t->pipeline_schedule);
  copy.partition_balance = balance;
  if (!strcmp(balance, "time"))
    return pen_partition(&copy, family,
                         pen_block_costs(&copy, family, pen_schedule_splits(schedule, &copy)));
  return pen_partition_divides_evenly(&copy, family) ? pen_partition(&copy, family, NULL) : NULL;
}

/* Fails (78): something leaves nothing to choose. */
static void check_settings(const struct pen_topology *t) {
  const struct pen_schedule *schedule = pen_schedule_of(t->pipeline_schedule);
  const char *setting = t->partition_before.value   ? "partition.before"
                        : t->partition_layers.value ? "partition.layers"
                                                    : NULL;
  if (setting)
    pen_topology_fail(t, "partition.balance",
                      "\"count\", together with %s, which leaves nothing to balance", setting);
  if (schedule->given == PEN_GIVEN_BY_FILE)
    pen_topology_fail(t, "partition.balance",
                      "\"count\" or \"time\", with the schedule %s: its order is for one cut",
                      schedule->name);
}

static struct pen_joint *new_task(const struct pen_topology *topology) {
  struct pen_joint *j = pen_new(1, sizeof *j);
  struct pen_topology *t = pen_new(1, sizeof *t);
  *t = *topology; /* "auto" is of no graph */
  j->topology = t;
  j->base = balanced(t, "time");
  j->stage_count = j->base->stage_count;
  j->rank_count = j->base->rank_count;
  j->cuts = pen_partition_is_joint(t);
  j->place = pen_partition_places(t, j->base, &j->place_count);
  j->stages = pen_joint_stages(t, j->base);
  j->slack = pen_new(j->rank_count, sizeof *j->slack);
  j->open = pen_new(j->stage_count, sizeof *j->open);
  j->limited = t->trains && t->memory_limit_mib;
  for (uint32_t s = 0; s < j->stage_count; s++) {
    j->open[s] = j->limited && is_open(t, s);
    j->has_open |= j->open[s];
  }
  j->judge = pen_joint_new_judge(j);
  return j;
}

/* ---- the best choice ---- */

struct best_choice {
  const struct pen_joint_input *input;
  struct pen_joint *joint;
  const struct pen_partition *placed;
  const struct pen_order *order;
  struct pen_joint_cut cut;
  struct pen_joint_value value; /* with the excess of its layout */
};

static struct pen_joint_choice choice_of(const struct pen_joint *j,
                                         const struct pen_joint_cut *cut) {
  uint32_t *first = pen_new(j->stage_count, sizeof *first);
  uint8_t *recompute = pen_new(j->stage_count, 1);
  for (uint32_t s = 0; s < j->stage_count; s++) first[s] = j->place[cut->at[s]];
  memcpy(recompute, cut->recompute, j->stage_count);
  return (struct pen_joint_choice){first, recompute, NULL};
}

/* The bytes by which a choice exceeds the limit, by its layout. */
static double measure_excess(const struct best_choice *b, const struct pen_joint_cut *cut) {
  struct pen_joint *j = b->joint;
  if (!j->topology->memory_limit_mib) return 0;
  uint64_t *bytes = pen_new(j->rank_count, sizeof *bytes);
  const struct pen_joint_choice choice = choice_of(j, cut);
  b->input->lay_out(b->input->context, &choice, bytes);
  pen_pass("joint");
  double excess = pen_joint_calibrate(j, b->placed, cut, b->order, bytes);
  for (uint32_t rank = 0; rank < j->rank_count; rank++)
    j->work += (uint64_t)LAYOUT_WORK * b->order->count[rank];
  pen_free(bytes);
  return fmax(0, excess);
}

/* Keeps a choice that is better by its simulation and fits by its layout. */
static void offer(struct best_choice *b, const struct pen_joint_cut *cut,
                  struct pen_joint_value value) {
  if (!pen_joint_is_better(value, b->value)) return;
  value.excess = measure_excess(b, cut);
  if (!pen_joint_is_better(value, b->value)) return;
  b->value = value;
  pen_joint_copy_cut(b->joint, &b->cut, cut);
}

/* ---- starts ---- */

/* The cut of a partition that divides the model where partition.unit allows. */
static struct pen_joint_cut cut_of(const struct pen_joint *j, const struct pen_partition *p) {
  struct pen_joint_cut cut = pen_joint_new_cut(j);
  for (uint32_t s = 0, at = 0; s < j->stage_count; s++) {
    while (j->place[at] < p->stages.span[s].first_block) at++;
    cut.at[s] = at;
    cut.recompute[s] =
        is_open(j->topology, s) ? PEN_RECOMPUTE_NONE : pen_recompute_of(j->topology, s);
  }
  cut.at[j->stage_count] = j->place_count;
  return cut;
}

static void offer_judged(struct best_choice *b, const struct pen_joint_cut *cut) {
  offer(b, cut, pen_joint_judge(b->joint, b->placed, cut, b->order));
}

/* Offers the cuts by count and by time, and levelled cuts that begin at each. */
static void offer_starts(struct best_choice *b, uint64_t seed) {
  static const char *const balances[] = {"count", "time"};
  struct pen_joint *j = b->joint;
  struct pen_joint_cut start[2];
  int count = 0;
  for (int i = 0; i < 2; i++) {
    const struct pen_partition *p = balanced(j->topology, balances[i]);
    if (!p) continue;
    start[count] = cut_of(j, p);
    /* A start is laid out even if the estimate says that it does not fit. */
    struct pen_joint_value value = pen_joint_judge(j, b->placed, &start[count], b->order);
    value.excess = 0;
    offer(b, &start[count++], value);
  }
  for (int i = 0; i < count; i++) {
    pen_joint_level(j, b->placed, &start[i], LEVEL_WORK, seed + (uint64_t)i + 1);
    offer_judged(b, &start[i]);
  }
}

struct pen_joint_choice pen_joint(const struct pen_joint_input *input) {
  const struct pen_topology *t = input->topology;
  check_settings(t);
  struct pen_joint *j = new_task(t);
  struct best_choice b = {.input = input,
                          .joint = j,
                          .placed = j->base,
                          .order = pen_compose(t, j->base),
                          .cut = pen_joint_new_cut(j),
                          .value = {INFINITY, INFINITY}};
  offer_starts(&b, input->effort.seed);
  struct pen_joint_cut cut = pen_joint_new_cut(j);
  struct pen_joint_value value = b.value;
  pen_joint_copy_cut(j, &cut, &b.cut);
  bool complete = pen_joint_exhaust(j, b.placed, b.order, EXHAUST_WORK, &cut, &value);
  offer(&b, &cut, value);
  for (uint64_t round = 0; round < 1 + input->effort.seconds && !complete; round++) {
    const struct pen_joint_effort effort = {
        ROUND_WORK, ((input->effort.seed + 1) * 0x9E3779B97F4A7C15u + round) | 1};
    value = b.value;
    pen_joint_copy_cut(j, &cut, &b.cut);
    pen_joint_improve(j, b.placed, b.order, &effort, &cut, &value);
    offer(&b, &cut, value);
  }
  return choice_of(j, &b.cut);
}
