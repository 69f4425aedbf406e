/* exhaust.c: the best of all cuts of a small model with a given order, by branch and bound.
 *
 * Stages are cut off from the front. A rank's load so far (level.c) is a lower bound of the
 * makespan of every cut that begins so, and of its step; where that is not below the best, none of
 * them is judged. */

#include "gen/base/arena.h"
#include "gen/joint/internal.h"
#include "gen/schedule/schedule.h"

enum { STAGES_MAX = 64, CHOICES_MAX = 2000000, NODE_WORK = 40 };

struct exhaust {
  struct pen_joint *joint;
  const struct pen_partition *placed;
  const struct pen_order *order;
  bool bounds; /* loads are lower bounds: no pairs that take less than their sum */
  struct pen_joint_cut cut, *best;
  struct pen_joint_value *value;
  double *load; /* [rank]; below 0: no stage yet */
  uint64_t past_work;
};

static void judge_leaf(struct exhaust *e) {
  struct pen_joint *j = e->joint;
  struct pen_joint_value value = pen_joint_judge(j, e->placed, &e->cut, e->order);
  if (!pen_joint_is_better(value, *e->value)) return;
  *e->value = value;
  pen_joint_copy_cut(j, e->best, &e->cut);
}

static bool visit(struct exhaust *e, uint32_t stage, double before);

/* Visits the cuts in which the stage ends at `end` and recomputes what the cut says. */
static bool visit_stage(struct exhaust *e, uint32_t stage, uint32_t end, double before) {
  struct pen_joint *j = e->joint;
  const uint32_t rank = e->placed->rank_of[stage];
  const struct pen_stage_cost *cost =
      &pen_joint_stage_of(j->stages, stage, j->place[e->cut.at[stage]], j->place[end],
                          e->cut.recompute[stage])
           ->cost;
  const double factor = j->base->speed ? 1 / j->base->speed[rank] : 1, load = e->load[rank];
  e->load[rank] = (load < 0 ? before : load) +
                  factor * j->base->microbatch_count * (cost->forward + pen_backward_cost(cost));
  e->cut.at[stage + 1] = end;
  bool complete = true;
  if (!e->bounds || e->value->excess > 0 || e->load[rank] < e->value->time.objective)
    complete = visit(e, stage + 1, before + factor * cost->forward);
  e->load[rank] = load;
  return complete;
}

/* Visits all cuts with the first `stage` stages of e->cut; `before`: the sum of their forwards. */
static bool visit(struct exhaust *e, uint32_t stage, double before) {
  struct pen_joint *j = e->joint;
  const uint32_t left = j->stage_count - stage;
  j->work += NODE_WORK;
  if (j->work > e->past_work) return false;
  if (left == 0) {
    judge_leaf(e);
    return true;
  }
  const uint32_t first = j->cuts ? (left == 1 ? j->place_count : e->cut.at[stage] + 1)
                                 : e->cut.at[stage + 1],
                 last = j->cuts ? j->place_count - (left - 1) : first;
  const uint8_t given = e->cut.recompute[stage];
  bool complete = true;
  for (uint32_t end = first; end <= last && complete; end++)
    for (uint8_t kind = 0; kind < PEN_RECOMPUTE_KINDS && complete; kind++) {
      if (!j->open[stage] && kind != given) continue;
      e->cut.recompute[stage] = kind;
      complete = visit_stage(e, stage, end, before);
    }
  e->cut.recompute[stage] = given;
  return complete;
}

double pen_joint_choice_count(const struct pen_joint *j) {
  double count = 1;
  for (uint32_t s = 0; s < j->stage_count && count <= CHOICES_MAX; s++)
    if (j->open[s]) count *= PEN_RECOMPUTE_KINDS;
  for (uint32_t s = 1; j->cuts && s < j->stage_count && count <= CHOICES_MAX; s++)
    count *= (double)(j->place_count - s) / s; /* a binomial coefficient */
  return count;
}

bool pen_joint_exhaust(struct pen_joint *j, const struct pen_partition *placed,
                       const struct pen_order *order, uint64_t most, struct pen_joint_cut *best,
                       struct pen_joint_value *value) {
  if (j->stage_count > STAGES_MAX || pen_joint_choice_count(j) > CHOICES_MAX) return false;
  struct exhaust e = {.joint = j,
                      .placed = placed,
                      .order = order,
                      .bounds = !pen_order_has_pair(order) && !j->by_span,
                      .cut = pen_joint_new_cut(j),
                      .best = best,
                      .value = value,
                      .load = pen_new(j->rank_count, sizeof *e.load),
                      .past_work = j->work + most};
  pen_joint_copy_cut(j, &e.cut, best);
  for (uint32_t rank = 0; rank < j->rank_count; rank++) e.load[rank] = -1;
  bool complete = visit(&e, 0, 0);
  pen_free(e.load);
  return complete;
}
