/* pipeline.c: the chooser: of what the topology leaves open, the choice with the best plan.
 *
 * lay_out() calls the passes with one choice. A choice is gen/joint/'s, which lays out by itself
 * what it tries, or by levels: what the stages with memory.recompute = "auto" recompute.
 *
 * A level is what a stage recomputes; a higher one takes more time. All stages begin at the lowest
 * level. While a rank's arena is above the limit, its stage with the lowest level takes the next
 * one. A rank's arena depends on its own stages alone (but for receive slots), and the makespan
 * rises with the costs of the actions, so with one stage a rank the first levels that fit have the
 * least makespan. With several stages some levels may then be higher than they need be: each stage
 * in turn is given a lower level where its rank still fits. Each trial lays out the whole plan:
 * bytes are exact. */
#include "gen/pipeline/pipeline.h"

#include <string.h>

#include "gen/base/arena.h"
#include "gen/base/error.h"
#include "gen/base/pass_times.h"
#include "gen/families/families.h"
#include "gen/joint/joint.h"
#include "gen/layout/draft.h"
#include "gen/layout/layout.h"
#include "gen/lower/lower.h"
#include "gen/partition/partition.h"
#include "gen/pipeline/given_actions.h"
#include "gen/search/search_pass.h"
#include "gen/timing/cost.h"
#include "gen/topology/message.h"
#include "gen/topology/schedule_table.h"

static const enum pen_recompute_kind levels[] = {PEN_RECOMPUTE_NONE, PEN_RECOMPUTE_ATTENTION,
                                                 PEN_RECOMPUTE_LAYER, PEN_RECOMPUTE_FULL};
enum { LEVELS = sizeof levels / sizeof *levels, GIVEN = -1 };

struct chooser {
  const struct pen_topology *topology;
  const struct pen_generator_options *options;
  const struct pen_measured *measured;
  size_t stages;            /* with memory.recompute */
  int *level;               /* [stages]; GIVEN: not "auto" */
  struct pen_result result; /* of the levels: the last plan that was laid out */
  bool *over;               /* [rank]: its arena is above the limit */
};

/* How much the search may do: by the options, if they are given; else by the topology. */
static struct pen_search_effort effort_of(const struct chooser *c) {
  const struct pen_generator_options *options = c->options;
  const struct pen_topology *t = c->topology;
  const bool seconds = t->has_pipeline_search_seconds && !options->search_seconds_given,
             seed = t->has_pipeline_search_seed && !options->search_seed_given;
  return (struct pen_search_effort){
      seconds ? (uint64_t)t->pipeline_search_seconds : options->search_seconds,
      seed ? (uint64_t)t->pipeline_search_seed : options->search_seed};
}

/* The order of --actions, of the choice, of the search, which may continue from that of the choice,
 * or of the topology's schedule. */
static struct pen_search_result choose_order(const struct chooser *c, const struct pen_draft *draft,
                                             const struct pen_joint_choice *choice) {
  const struct pen_topology *t = draft->bucket->topology;
  const struct pen_partition *partition = draft->bucket->partition;
  struct pen_search_result chosen = {.order = {.topology = t, .partition = partition}};
  if (c->options->actions) {
    const struct pen_action_lists given =
        pen_given_actions_read(c->options, t, partition, t->trains ? PEN_TRAIN : PEN_EVAL);
    chosen.order.given = given.action;
    chosen.order.given_count = given.count;
    chosen.order.order = pen_order_of_actions(given.action, given.count, partition->rank_count);
  } else if (choice->search && !choice->goes_on) {
    chosen.search = choice->search;
    chosen.order.order = choice->search->order;
  } else if (pen_schedule_of(t->pipeline_schedule)->given == PEN_GIVEN_BY_SEARCH) {
    chosen = pen_search_pass(&(struct pen_search_input){draft, effort_of(c), choice->search});
    if (!pen_is_attempting()) pen_search_print(chosen.search, draft->cost.unit);
  } else {
    chosen.order.order = pen_draft_compose(draft);
  }
  return chosen;
}

/* The plan with a choice. */
static struct pen_result lay_out(const struct chooser *c, const struct pen_joint_choice *choice) {
  const struct pen_cost_source source = {pen_joint_topology(c->topology, choice), c->measured};
  const struct pen_draft draft = pen_draft(&source, choice->first_block, c->options->actions);
  const struct pen_search_result chosen = choose_order(c, &draft, choice);
  const struct pen_placed_order *order = &chosen.order;
  const struct pen_laid_out laid_out = pen_draft_lay_out(&draft, order);
  pen_draft_check_overlap(&draft, order->order);
  return (struct pen_result){
      .topology = order->topology,
      .partition = order->partition,
      .training = draft.bucket->training,
      .shapes = draft.shapes,
      .cost = laid_out.cost,
      .placed_cost = pen_costs_on_ranks(order->partition, laid_out.cost.stage),
      .order = order->order,
      .timing = laid_out.timing,
      .own = draft.bucket->own,
      .search = chosen.search,
      .plan = laid_out.plan};
}

/* ---- by levels ---- */

static void lay_out_levels(struct chooser *c) {
  uint8_t *recompute = pen_new(c->stages + 1, sizeof *recompute);
  for (size_t s = 0; s < c->stages; s++)
    recompute[s] = (uint8_t)(c->level[s] == GIVEN ? c->topology->memory_recompute.value[s]
                                                  : (int)levels[c->level[s]]);
  c->result = lay_out(c, &(struct pen_joint_choice){.recompute = recompute,
                                                    .placement = c->topology->pipeline_placement});
}

/* Lays out the plan of the levels. Returns whether any rank is over the limit. */
static bool is_over(struct chooser *c) {
  const uint64_t limit = (uint64_t)c->topology->memory_limit_mib << 20;
  bool any = false;
  lay_out_levels(c);
  for (uint32_t r = 0; r < c->result.plan->rank_count; r++) {
    c->over[r] = c->result.plan->memory[r].arena_bytes > limit;
    any = any || c->over[r];
  }
  return any;
}

/* Raises the lowest level of each rank that is over the limit. Returns whether there was one. */
static bool raise_levels(struct chooser *c) {
  const struct pen_partition *partition = c->result.partition;
  bool raised = false;
  for (uint32_t r = 0; r < partition->rank_count; r++) {
    size_t lowest = c->stages;
    for (size_t s = 0; s < c->stages; s++)
      if (partition->rank_of[s] == r && c->level[s] != GIVEN && c->level[s] + 1 < LEVELS &&
          (lowest == c->stages || c->level[s] < c->level[lowest]))
        lowest = s;
    if (!c->over[r] || lowest == c->stages) continue;
    c->level[lowest]++;
    raised = true;
  }
  return raised;
}

/* Lowers the level of one stage of each rank, the `place`-th, where the rank still fits. */
static void lower_levels(struct chooser *c, uint32_t place) {
  const struct pen_partition *partition = c->result.partition;
  const uint32_t *stages = pen_partition_stages(partition);
  const struct pen_result fitting = c->result;
  int *before = pen_new(c->stages + 1, sizeof *before);
  bool lowered = false;
  memcpy(before, c->level, c->stages * sizeof *before);
  for (uint32_t r = 0; r < partition->rank_count; r++) {
    int *level = &c->level[stages[r * partition->stages_per_rank + place]];
    if (*level <= 0) continue;
    --*level;
    lowered = true;
  }
  if (lowered && is_over(c)) {
    for (size_t s = 0; s < c->stages; s++)
      if (c->over[partition->rank_of[s]]) c->level[s] = before[s];
    if (is_over(c)) {
      memcpy(c->level, before, c->stages * sizeof *before);
      c->result = fitting;
    }
  }
  pen_free(before);
}

/* The plan with a level in place of each "auto". Without a limit nothing is recomputed. If no
 * levels are within the limit, those that recompute most. */
static struct pen_result choose_levels(struct chooser *c) {
  const struct pen_topology *t = c->topology;
  bool any = false;
  c->level = pen_new(c->stages + 1, sizeof *c->level);
  for (size_t s = 0; s < c->stages; s++) {
    const bool is_auto = t->memory_recompute.value[s] == PEN_RECOMPUTE_AUTO;
    c->level[s] = is_auto ? 0 : GIVEN;
    any |= is_auto;
  }
  if (!any || !t->memory_limit_mib || !t->trains) {
    lay_out_levels(c);
    return c->result;
  }
  c->over = pen_new((size_t)t->pipeline_ranks, sizeof *c->over);
  while (is_over(c))
    if (!raise_levels(c)) return c->result;
  const uint32_t places = c->result.partition->stages_per_rank;
  for (int round = 1; round < LEVELS && places > 1; round++)
    for (uint32_t place = 0; place < places; place++) lower_levels(c, place);
  return c->result;
}

/* ---- all together ---- */

/* The plan with the best choice of gen/joint/. Fails (78) with --actions. */
static struct pen_result choose_jointly(const struct chooser *c) {
  if (c->options->actions)
    pen_topology_fail(c->topology, "partition.balance",
                      "\"count\" or \"time\", with --actions: its order is for one cut");
  pen_pass("joint");
  const struct pen_joint_choice choice =
      pen_joint(&(struct pen_joint_input){c->topology, c->measured, effort_of(c)});
  const struct pen_result result = lay_out(c, &choice);
  if (choice.search && !choice.goes_on && !pen_is_attempting())
    pen_search_print(choice.search, result.cost.unit);
  return result;
}

/* Whether a plan is within the limit and takes less time than another, which may exceed it. */
static bool is_better_plan(const struct pen_result *one, const struct pen_result *other) {
  const bool fits = pen_layout_excess(one->topology, one->plan) == 0,
             other_fits = pen_layout_excess(other->topology, other->plan) == 0;
  if (fits != other_fits) return fits;
  return one->timing->makespan < other->timing->makespan;
}

static struct pen_result choose(const struct pen_topology *topology,
                                const struct pen_generator_options *options,
                                const struct pen_measured *measured) {
  struct chooser c = {.topology = topology,
                      .options = options,
                      .measured = measured,
                      .stages = topology->memory_recompute.count};
  const bool cuts = pen_partition_is_joint(topology);
  if (!pen_joint_applies(topology) || (!cuts && options->actions)) return choose_levels(&c);
  const struct pen_result joint = choose_jointly(&c);
  if (cuts || joint.search) return joint;
  const struct pen_result by_levels = choose_levels(&c);
  return is_better_plan(&by_levels, &joint) ? by_levels : joint;
}

static const struct pen_topology *topology_by(const struct pen_topology *t,
                                              enum pen_balance balance, enum pen_cut_unit unit) {
  struct pen_topology *copy = pen_new(1, sizeof *copy);
  *copy = *t;
  copy->partition_balance = balance;
  copy->partition_unit = unit;
  return copy;
}

/* With the default cut, by time, above the limit, the plan of the cut by count if that is within
 * it. */
struct pen_result pen_pipeline_choose(const struct pen_topology *topology,
                                      const struct pen_generator_options *options,
                                      const struct pen_measured *measured) {
  const struct pen_result result = choose(topology, options, measured);
  if (!topology->cuts_by_default || !pen_layout_excess(topology, result.plan)) return result;
  const struct pen_topology *by_count = topology_by(topology, PEN_BALANCE_COUNT, PEN_CUT_LAYER);
  if (!pen_partition_divides_evenly(by_count, pen_family_of(topology))) return result;
  const struct pen_result other = choose(by_count, options, measured);
  if (pen_layout_excess(topology, other.plan)) return result;
  pen_topology_hint(
      topology, "memory.limit_mib",
      "less than the default partition, of equal times, needs; this plan has stages of "
      "equal numbers of layers, partition.balance = \"count\"");
  return other;
}
