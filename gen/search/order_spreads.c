/* order_spreads.c: how the makespans of an order and of the best named schedule spread. */
#include "gen/search/order_spreads.h"

#include <string.h>

#include "gen/base/arena.h"
#include "gen/search/budget_bytes.h"
#include "gen/search/problem.h"
#include "gen/search/seeds.h"
#include "gen/search/timeline.h"
#include "gen/timing/cost.h"

/* The best named schedule on the placement of `partition`. */
static const struct pen_search_named *best_placed(const struct pen_order_timed *chosen,
                                                  const struct pen_partition *partition,
                                                  enum pen_placement placement) {
  const struct pen_cost_model cost = pen_cost_model_placed(chosen->cost, partition);
  const struct pen_budget *budget =
      pen_budget_of(chosen->topology, partition, chosen->training, chosen->graph, NULL);
  const struct pen_search_problem *problem =
      pen_search_problem(partition, chosen->training, pen_costs_on_ranks(partition, cost.stage),
                         pen_cost_model_collectives(&cost, partition), cost.overlap, budget, false);
  const struct pen_search_seeds *seeds =
      pen_search_seeds(chosen->topology, placement, pen_search_timeline(problem), 0);
  const struct pen_search_named *best = NULL;
  for (size_t i = 0; i < seeds->named_count; i++) {
    const struct pen_search_named *named = &seeds->named[i];
    if (named->fits && (!best || named->timing->makespan < best->timing->makespan)) best = named;
  }
  return best;
}

/* The best named schedule, and the partition with its placement. */
static const struct pen_search_named *find_best_named(const struct pen_order_timed *chosen,
                                                      const struct pen_partition **partition) {
  const struct pen_topology *topology = chosen->topology;
  const struct pen_search_named *best = NULL;
  for (int v = 0; topology->trains && v < 2; v++) {
    if (topology->has_pipeline_placement && (int)topology->pipeline_placement != v) continue;
    const struct pen_partition *placed = pen_partition_placed(chosen->partition, v);
    const struct pen_search_named *named = best_placed(chosen, placed, (enum pen_placement)v);
    if (!named || (best && !(named->timing->makespan < best->timing->makespan))) continue;
    best = named;
    *partition = placed;
  }
  return best;
}

/* `name`: "chosen", or a schedule and its settings, as in "1f1b, warmup 2". */
static void add_spreads(const struct pen_order_timed *timed, const char *name, uint64_t seed,
                        struct pen_spread *spread) {
  const struct pen_cost_model cost = pen_cost_model_placed(timed->cost, timed->partition);
  struct pen_retiming *retiming =
      pen_retiming(timed->order, timed->timing, timed->partition, timed->training,
                   pen_costs_on_ranks(timed->partition, cost.stage),
                   pen_cost_model_collectives(&cost, timed->partition), cost.overlap);
  pen_spreads_of(retiming, timed->partition, seed, spread);
  size_t bytes = strcspn(name, ",");
  for (int i = 0; i < PEN_SPREADS; i++) {
    spread[i].order = pen_text("%.*s", (int)bytes, name);
    spread[i].settings = name[bytes] ? name + bytes + strspn(name + bytes, ", ") : NULL;
  }
  pen_retiming_free(retiming);
}

struct pen_spread *pen_order_spreads(const struct pen_order_timed *chosen, uint64_t seed,
                                     size_t *count) {
  struct pen_order_timed other = *chosen;
  const struct pen_search_named *named = find_best_named(chosen, &other.partition);
  struct pen_spread *spread = pen_new(2 * PEN_SPREADS, sizeof *spread);
  add_spreads(chosen, "chosen", seed, spread);
  *count = PEN_SPREADS;
  if (!named) return spread;
  other.order = named->order;
  other.timing = named->timing;
  add_spreads(&other, named->name, seed, spread + PEN_SPREADS);
  *count += PEN_SPREADS;
  return spread;
}
