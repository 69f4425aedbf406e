/* refine.c: the best candidates again: cut, recomputation and order are chosen together, with the
 * schedule "search" (gen/joint/). */
#include "gen/planner/refine.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "gen/planner/attempts.h"
#include "gen/planner/equal_time.h"
#include "gen/planner/progress.h"
#include "gen/planner/reason.h"
#include "gen/planner/write_topology.h"

/* One candidate. The search takes the named order that it begins with if it finds no better one; it
 * may also find no order that fits, since it places activations otherwise. */
static void refine_one(const struct pen_planner *planner, struct pen_plan_candidate *candidate) {
  struct pen_planned planned;
  struct pen_refusal refusal;
  const struct pen_attempt_input input = {planner, &candidate->choice, &refusal};
  if (!pen_attempt_plan(&input, &planner->options->seconds, &planned)) return;
  if (planned.arena_bytes > planner->memory_bytes ||
      !(pen_equal_time(planned.step) < pen_equal_time(candidate->step)))
    return;
  candidate->parts.bubble = fmax(0, candidate->parts.bubble + planned.step - candidate->step);
  candidate->makespan = planned.makespan;
  candidate->step = planned.step;
  candidate->bubble = planned.bubble;
  candidate->idle = planned.idle;
  candidate->arena_bytes = planned.arena_bytes;
  candidate->searched = true;
}

static int compare_candidates(const void *a, const void *b) {
  const struct pen_plan_candidate *x = a, *y = b;
  const double one = pen_equal_time(x->step), other = pen_equal_time(y->step);
  if (one != other) return one < other ? -1 : 1;
  if (x->arena_bytes != y->arena_bytes) return x->arena_bytes < y->arena_bytes ? -1 : 1;
  return (x->index > y->index) - (x->index < y->index);
}

void pen_sort_candidates(struct pen_plan_result *result) {
  qsort(result->best, result->count, sizeof *result->best, compare_candidates);
  for (size_t i = 0; i < result->count; i++)
    result->best[i].reason = i ? pen_reason_of(&result->best[0], &result->best[i]) : NULL;
}

/* Whether a candidate differs from an earlier one only in what the refinement chooses. */
static bool is_repeated(const struct pen_planner *planner, const struct pen_plan_result *result,
                        size_t index) {
  const uint64_t *seconds = &planner->options->seconds;
  struct pen_setting_text own[PEN_WRITTEN_SETTINGS_MAX], other[PEN_WRITTEN_SETTINGS_MAX];
  const size_t count = pen_written_settings(planner, &result->best[index].choice, seconds, own);
  for (size_t i = 0; i < index; i++) {
    bool same = pen_written_settings(planner, &result->best[i].choice, seconds, other) == count;
    for (size_t s = 0; s < count && same; s++)
      same = !strcmp(own[s].path, other[s].path) && !strcmp(own[s].text, other[s].text);
    if (same) return true;
  }
  return false;
}

void pen_refine(const struct pen_planner *planner, struct pen_plan_result *result, size_t count) {
  size_t refined = 0;
  for (size_t i = 0; refined < count && i < result->count; i++) {
    if (is_repeated(planner, result, i)) continue;
    pen_plan_progress_show(planner, "refining", (double)refined / (double)count, result->total,
                           result->evaluated);
    refine_one(planner, &result->best[i]);
    refined++;
  }
  pen_plan_progress_end();
  pen_sort_candidates(result);
}
