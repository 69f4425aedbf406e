/* search_pass.c: schedule = "search": searches, lowers and lays out; above the limit, searches
 * again.
 *
 * The search uses an estimate of bytes; the layout has the exact numbers. If the arena of a rank
 * exceeds memory.limit_mib, the next search has a lower limit, by the excess times the number of
 * the attempt. A named schedule that is better than the order found is taken if its layout keeps
 * within the limit. */
#include "gen/search/search_pass.h"

#include "gen/base/arena.h"
#include "gen/base/error.h"
#include "gen/base/pass_times.h"
#include "gen/layout/layout.h"

enum { ATTEMPTS_MAX = 6 };

static const struct pen_search *search_once(const struct pen_search_input *input,
                                            const double *slack) {
  pen_pass("search");
  const struct pen_bucket *b = input->draft->bucket;
  return pen_search(b->topology, b->partition, b->training, b->own, &input->draft->cost,
                    &input->effort, input->known, slack);
}

static struct pen_search_result place_order(const struct pen_search_input *input,
                                            const struct pen_search *search) {
  const struct pen_bucket *b = input->draft->bucket;
  struct pen_topology *topology = pen_new(1, sizeof *topology);
  *topology = *b->topology;
  topology->pipeline_placement = search->placement;
  return (struct pen_search_result){
      search,
      {.order = search->order,
       .topology = topology,
       .partition = pen_partition_placed(b->partition, search->placement == PEN_PLACEMENT_V)}};
}

/* Whether an arena exceeds the limit. Adds the excess of each rank, times `factor`, to slack. */
static bool exceeds_limit(const struct pen_plan *plan, int64_t limit_mib, double *slack,
                          double factor) {
  bool any = false;
  double limit = (double)limit_mib * 1048576.0;
  for (uint32_t rank = 0; rank < plan->rank_count; rank++) {
    double excess = (double)plan->memory[rank].arena_bytes - limit;
    if (excess <= 0) continue;
    slack[rank] += excess * factor;
    any = true;
  }
  return any;
}

static _Noreturn void fail_search(const struct pen_topology *topology,
                                  const struct pen_search *first, const struct pen_plan *last) {
  pen_search_refuse(first, topology);
  if (last) pen_layout_check_limit(topology, last);
  pen_stop(PEN_EXIT_INTERNAL, "penstock-gen: internal error: the search finds no order of %s",
           topology->path);
}

struct pen_search_result pen_search_pass(const struct pen_search_input *input) {
  const struct pen_topology *topology = input->draft->bucket->topology;
  const struct pen_partition *partition = input->draft->bucket->partition;
  const struct pen_cost_model *cost = &input->draft->cost;
  bool in_bytes = topology->memory_limit_mib && !topology->has_pipeline_live_limit, found = false;
  double *slack = pen_new(partition->rank_count, sizeof *slack);
  const struct pen_search *first = NULL, *search = NULL;
  const struct pen_plan *plan = NULL;
  struct pen_search_result result = {.search = NULL};
  if (!pen_search_can_time(partition, cost->stage)) pen_cost_model_fail(cost);
  for (int attempt = 1; attempt <= ATTEMPTS_MAX && !found; attempt++) {
    search = search_once(input, slack);
    if (!first) first = search;
    if (!search->order) break;
    result = place_order(input, search);
    if (in_bytes) plan = pen_draft_lay_out(input->draft, &result.order).plan;
    found = !in_bytes || !exceeds_limit(plan, topology->memory_limit_mib, slack, attempt);
  }
  for (size_t i = 0; in_bytes && i < search->named_count; i++) {
    if (found && !pen_search_is_better(search, &search->named[i])) break;
    struct pen_search_result named =
        place_order(input, pen_search_with_named(search, &search->named[i]));
    const struct pen_plan *named_plan = pen_draft_lay_out(input->draft, &named.order).plan;
    if (!exceeds_limit(named_plan, topology->memory_limit_mib, slack, 0)) return named;
  }
  if (!found && input->known) return place_order(input, input->known);
  if (!found) fail_search(topology, first, plan);
  return result;
}
