/* improve.c: local search over cuts and recomputation with a fixed order; of few choices, all.
 *
 * Simulated annealing: a change is judged by simulating the order. One whose load (level.c) already
 * exceeds what would be accepted is not simulated. */
#include "gen/joint/internal.h"
#include "gen/schedule/schedule.h"
#include "gen/search/annealer.h"

#define FIRST_TEMPERATURE 0.002 /* of the makespan */
#define FEW_CHOICES 64          /* all of which are judged */
#define EXCESS_WEIGHT 4.0       /* an excess of the whole limit counts as so many makespans */

double pen_joint_energy(const struct pen_joint *j, struct pen_joint_value value) {
  double limit = (double)j->topology->memory_limit_mib * 1048576.0;
  return value.excess > 0 ? value.time.objective * (1.001 + EXCESS_WEIGHT * value.excess / limit)
                          : value.time.objective;
}

void pen_joint_improve(struct pen_joint *j, const struct pen_partition *placed,
                       const struct pen_order *order, const struct pen_joint_effort *effort,
                       struct pen_joint_cut *best, struct pen_joint_value *value) {
  if (pen_joint_choice_count(j) <= FEW_CHOICES) {
    pen_joint_exhaust(j, placed, order, effort->work, best, value);
    return;
  }
  struct pen_joint_cut now = pen_joint_new_cut(j), next = pen_joint_new_cut(j);
  const uint64_t begin = j->work;
  struct pen_annealer annealer = {.energy = pen_joint_energy(j, *value), .seed = effort->seed};
  const bool bounds = !pen_order_has_pair(order) && !j->by_span;
  pen_joint_copy_cut(j, &now, best);
  while (j->work - begin < effort->work) {
    const double left = 1 - (double)(j->work - begin) / (double)effort->work;
    annealer.temperature = FIRST_TEMPERATURE * value->time.objective;
    const double most = pen_annealer_most(&annealer, left);
    struct pen_joint_change change;
    j->work += 4; /* so that draws that allow nothing also use up the work */
    if (!pen_joint_draw(j, &now, &annealer.seed, &change)) continue;
    pen_joint_copy_cut(j, &next, &now);
    pen_joint_apply(&next, &change);
    if (bounds && pen_joint_bound(j, placed, &next) > most) continue;
    struct pen_joint_value other = pen_joint_judge(j, placed, &next, order);
    if (!(pen_joint_energy(j, other) <= most)) continue;
    annealer.energy = pen_joint_energy(j, other);
    pen_joint_copy_cut(j, &now, &next);
    if (!pen_joint_is_better(other, *value)) continue;
    *value = other;
    pen_joint_copy_cut(j, best, &now);
  }
}
