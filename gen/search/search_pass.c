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
#include "gen/lower/profiles.h"

enum { ATTEMPTS_MAX = 6 };

static const struct pen_search *search_once(const struct pen_search_input *input,
                                            const double *slack) {
  pen_pass("search");
  return pen_search(input->topology, input->partition, input->training, input->own, input->cost,
                    &input->effort, input->known, slack);
}

/* The passes from the order of `search` to its plan. */
static const struct pen_plan *lay_out_order(const struct pen_search_input *input,
                                            const struct pen_search_result *result) {
  const struct pen_order *order = result->search->order;
  const struct pen_cost_model cost = pen_cost_model_placed(input->cost, result->partition);
  pen_pass("simulate");
  const struct pen_timing *timing =
      pen_cost_model_time(&cost, order, result->partition, input->training, PEN_TRAIN, false);
  pen_pass("lower");
  struct pen_lowered *lowered =
      pen_lower(order, result->partition, input->training, timing, PEN_TRAIN);
  const struct pen_bucket bucket = {result->topology, result->partition, input->training,
                                    input->own,       input->eval,       lowered};
  const struct pen_profile_inputs profiles = pen_profiles_of(&bucket, 1);
  pen_pass("layout");
  return pen_layout(result->topology, result->partition, profiles.profile, profiles.count);
}

static struct pen_search_result place_order(const struct pen_search_input *input,
                                            const struct pen_search *search) {
  struct pen_topology *topology = pen_new(1, sizeof *topology);
  *topology = *input->topology;
  topology->pipeline_placement = search->placement;
  return (struct pen_search_result){
      search, topology,
      pen_partition_placed(input->partition, search->placement == PEN_PLACEMENT_V)};
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
  const struct pen_topology *topology = input->topology;
  bool in_bytes = topology->memory_limit_mib && !topology->has_pipeline_live_limit, found = false;
  double *slack = pen_new(input->partition->rank_count, sizeof *slack);
  const struct pen_search *first = NULL, *search = NULL;
  const struct pen_plan *plan = NULL;
  struct pen_search_result result = {.search = NULL};
  if (!pen_search_can_time(input->partition, input->cost->stage)) pen_cost_model_fail(input->cost);
  for (int attempt = 1; attempt <= ATTEMPTS_MAX && !found; attempt++) {
    search = search_once(input, slack);
    if (!first) first = search;
    if (!search->order) break;
    result = place_order(input, search);
    if (in_bytes) plan = lay_out_order(input, &result);
    found = !in_bytes || !exceeds_limit(plan, topology->memory_limit_mib, slack, attempt);
  }
  for (size_t i = 0; in_bytes && i < search->named_count; i++) {
    if (found && !pen_search_is_better(search, &search->named[i])) break;
    struct pen_search_result named =
        place_order(input, pen_search_with_named(search, &search->named[i]));
    const struct pen_plan *named_plan = lay_out_order(input, &named);
    if (!exceeds_limit(named_plan, topology->memory_limit_mib, slack, 0)) return named;
  }
  if (!found && input->known) return place_order(input, input->known);
  if (!found) fail_search(topology, first, plan);
  return result;
}
