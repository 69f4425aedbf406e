/* verify_groups.c: random plans with collectives that sum the gradient of a weight over the wrong
 * groups of processes. Each is rejected. */
#include "gen/verify/verify.h"
#include "tests/support/collective_plans.h"

/* The groups over which the plan sums the gradient of a weight. */
static uint32_t *groups_of(struct broken_plan *p) {
  struct pen_weight *weights = WRITABLE(struct pen_weight, p->plan->weights);
  return &weights[draw(p->seed, p->plan->weight_count)].sum_groups;
}

static uint32_t other_group(struct broken_plan *p) {
  const uint32_t group = (uint32_t)draw(p->seed, PEN_GROUPS - 1);
  return 1u << (group < PEN_DATA ? group : group + 1);
}

static bool another(struct broken_plan *p) {
  *groups_of(p) = other_group(p);
  return true;
}

static bool a_further(struct broken_plan *p) {
  *groups_of(p) |= other_group(p);
  return true;
}

static bool none(struct broken_plan *p) {
  *groups_of(p) ^= PEN_IN(DATA);
  return true;
}

static const struct defect defects[] = {
    {"sums over another group", another, {"grouped: "}},
    {"sums over a further group", a_further, {"grouped: "}},
    {"sums over no group, or of a frozen weight", none, {"grouped: "}},
};

int main(void) { return main_of_defects(defects, sizeof defects / sizeof *defects, 1732050807); }
