/* critical.c: the critical path is a chain of dependencies of the order, fills the step without
 * gaps, and names what it costs. */
#include <math.h>
#include <stdio.h>

#include "gen/timing/critical_path.h"
#include "gen/base/arena.h"
#include "gen/partition/partition.h"
#include "gen/partition/training.h"
#include "gen/schedule/order.h"
#include "gen/timing/timing.h"
#include "runtime/plan/plan.h"
#include "tests/support/plans.h"

struct plan {
  struct pen_partition *partition;
  struct pen_training training;
  struct pen_order *order;
  struct pen_stage_cost *cost;
  double overlap;
  struct pen_timing *timing;
  struct pen_path *path;
};

static void simulate(struct plan *plan) {
  plan->timing =
      pen_simulate(plan->order, plan->partition, &plan->training, plan->cost, plan->overlap);
  assert_true(plan->timing->complete);
  plan->path =
      pen_critical_path(plan->order, plan->partition, &plan->training, plan->cost, plan->timing);
}

static struct plan random_plan(uint64_t *seed, char **which) {
  static const char *const names[] = {"gpipe", "1f1b", "zero_bubble_v", "looped_bfs"};
  struct plan plan = {.overlap = -1};
  uint64_t here = *seed;
  const char *name = names[draw(seed, 4)];
  uint32_t ranks = 1 + (uint32_t)draw(seed, 6), stages = strcmp(name, "gpipe") == 0 ? 1 : 2;
  uint32_t microbatches = ranks * (1 + (uint32_t)draw(seed, 3));
  plan.order = make_order(name, 0, draw(seed, 2), ranks, stages, microbatches, &plan.partition);
  plan.cost = pen_new(plan.partition->stage_count, sizeof *plan.cost);
  double unit = draw(seed, 2) ? 0.3 : 1; /* sums of 0.3 round */
  for (uint32_t stage = 0; stage < plan.partition->stage_count; stage++)
    plan.cost[stage] = (struct pen_stage_cost){unit * (double)draw(seed, 4),
                                               unit * (double)draw(seed, 4),
                                               unit * (double)draw(seed, 4),
                                               unit * (double)draw(seed, 3),
                                               0,
                                               0,
                                               {0},
                                               {0}};
  plan.training.adds_tied_gradient = draw(seed, 2);
  plan.training.waits_for_norm = draw(seed, 2);
  *which =
      pen_text("seed %lu, %s %u x %u x %u", (unsigned long)here, name, ranks, stages, microbatches);
  simulate(&plan);
  return plan;
}

/* What the second of two actions needs of the first, if they follow each other on a path. */
static bool depends(const struct plan *plan, const struct pen_path_step *before,
                    const struct pen_path_step *step) {
  if (before->rank == step->rank)
    return before->index + before->pair + 1 == step->index && step->sent == 0;
  for (uint32_t a = before->index; a <= before->index + before->pair; a++)
    for (uint32_t b = step->index; b <= step->index + step->pair; b++) {
      const struct pen_compute *first = &plan->order->action[before->rank][a],
                               *second = &plan->order->action[step->rank][b];
      bool forward =
          first->kind == PEN_F && second->kind == PEN_F && first->stage + 1u == second->stage;
      bool backward = (first->kind == PEN_B || first->kind == PEN_I) &&
                      (second->kind == PEN_B || second->kind == PEN_I) &&
                      first->stage == second->stage + 1u;
      if ((forward || backward) && first->microbatch == second->microbatch)
        return step->sent == plan->cost[first->stage].send;
    }
  return false;
}

static void the_path_is_a_chain_without_gaps(void **state) {
  (void)state;
  uint64_t seed = 1959;
  for (unsigned round = 0; round < 300; round++) {
    char *which;
    struct plan plan = random_plan(&seed, &which);
    const struct pen_path *path = plan.path;
    if (path->count == 0 || path->step[0].start != 0)
      fail_msg("%s: the path does not begin with the step", which);
    if (path->step[path->count - 1].end + path->after != plan.timing->makespan)
      fail_msg("%s: the path does not end with the step", which);
    for (size_t i = 1; i < path->count; i++) {
      const struct pen_path_step *before = &path->step[i - 1], *step = &path->step[i];
      if (step->start != before->end + step->sent) fail_msg("%s: a gap before step %zu", which, i);
      if (!depends(&plan, before, step))
        fail_msg("%s: step %zu does not depend on the one before", which, i);
    }
    if (fabs(path->compute + path->sent + path->after - plan.timing->makespan) > 1e-9)
      fail_msg("%s: the parts do not add up", which);
    size_t covered = 0;
    for (size_t i = 0; i < path->leg_count; i++) covered += path->leg[i].count;
    assert_int_equal(covered, path->count);
    pen_free_all();
  }
}

/* Actions of one kind and stage on the path; the kinds that make up a fused B count for both. */
static unsigned on_path(const struct plan *plan, int kind, uint32_t stage) {
  unsigned found = 0;
  for (size_t i = 0; i < plan->path->count; i++) {
    const struct pen_path_step *step = &plan->path->step[i];
    const struct pen_compute *action = &plan->order->action[step->rank][step->index];
    found += action->stage == stage &&
             (action->kind == kind || (action->kind == PEN_B && kind != PEN_F));
  }
  return found;
}

/* The path names what to make faster: a stage's cost raised by 1 raises the makespan by no less
 * than the actions of it that are on the path, and a cost that is on no path, lowered, changes
 * nothing. */
static void the_path_names_its_costs(void **state) {
  (void)state;
  static const int kinds[] = {PEN_F, PEN_I, PEN_W};
  uint64_t seed = 77;
  for (unsigned round = 0; round < 60; round++) {
    char *which;
    struct plan plan = random_plan(&seed, &which);
    for (uint32_t stage = 0; stage < plan.partition->stage_count; stage++)
      for (int k = 0; k < 3; k++) {
        double *cost = k == 0   ? &plan.cost[stage].forward
                       : k == 1 ? &plan.cost[stage].backward_input
                                : &plan.cost[stage].backward_weight;
        unsigned found = on_path(&plan, kinds[k], stage);
        double kept = *cost;
        *cost = kept + 1;
        double raised =
            pen_simulate(plan.order, plan.partition, &plan.training, plan.cost, -1)->makespan -
            plan.timing->makespan;
        *cost = kept / 2;
        double lowered =
            pen_simulate(plan.order, plan.partition, &plan.training, plan.cost, -1)->makespan -
            plan.timing->makespan;
        *cost = kept;
        if (raised < found - 1e-9)
          fail_msg("%s: stage %u has %u on the path, 1 more costs %g", which, stage, found, raised);
        if (found == 0 && fabs(lowered) > 1e-9)
          fail_msg("%s: stage %u is on no path, half of it saves %g", which, stage, -lowered);
      }
    pen_free_all();
  }
}

/* 1F1B, equal costs, messages that take half as long as an action: rank 0 waits for each round
 * trip, by hand as follows. */
static void the_path_of_1f1b_is_known(void **state) {
  (void)state;
  struct plan plan = {.overlap = -1};
  plan.order = make_order("1f1b", 1, false, 3, 1, 4, &plan.partition);
  plan.cost = pen_new(3, sizeof *plan.cost);
  for (int stage = 0; stage < 3; stage++)
    plan.cost[stage] = (struct pen_stage_cost){1, 1, 1, 0.5, 0, 0, {0}, {0}};
  simulate(&plan);
  char *text = NULL;
  size_t bytes = 0;
  FILE *out = open_memstream(&text, &bytes);
  pen_path_print(out, plan.path, plan.order, 0);
  fclose(out);
  assert_string_equal(
      text,
      "critical path: 12 actions, 18 of computation and 4 of messages\n"
      "  rank 0    0F0                       1 action           0 to 1\n"
      "  rank 1    1F0                       1 action         1.5 to 2.5, after a message of 0.5\n"
      "  rank 2    2F0 ... 2B0               2 actions          3 to 6, after a message of 0.5\n"
      "  rank 1    1B0                       1 action         6.5 to 8.5, after a message of 0.5\n"
      "  rank 0    0B0 ... 0F3               2 actions          9 to 12, after a message of 0.5\n"
      "  rank 1    1F3                       1 action        12.5 to 13.5, after a message of 0.5\n"
      "  rank 2    2F3 ... 2B3               2 actions         14 to 17, after a message of 0.5\n"
      "  rank 1    1B3                       1 action        17.5 to 19.5, after a message of 0.5\n"
      "  rank 0    0B3                       1 action          20 to 22, after a message of 0.5\n");
  free(text);
}

/* A pair is one step, and what either half waited for is found. */
static void a_pair_is_one_step_of_the_path(void **state) {
  (void)state;
  struct plan plan = {.overlap = 7}; /* longer than its parts: the step cannot pass it by */
  plan.order = make_order("1f1b", 1, false, 2, 1, 4, &plan.partition);
  plan.order->action[0][2].overlaps = true;
  plan.cost = pen_new(2, sizeof *plan.cost);
  for (int stage = 0; stage < 2; stage++)
    plan.cost[stage] = (struct pen_stage_cost){1, 1, 1, 1, 0, 0, {0}, {0}};
  simulate(&plan);
  unsigned pairs = 0;
  for (size_t i = 0; i < plan.path->count; i++) {
    if (plan.path->step[i].pair)
      assert_true(fabs(plan.path->step[i].end - plan.path->step[i].start - 7) < 1e-12);
    pairs += plan.path->step[i].pair;
    if (i > 0) assert_true(depends(&plan, &plan.path->step[i - 1], &plan.path->step[i]));
  }
  assert_int_equal(pairs, 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_path_is_a_chain_without_gaps),
      cmocka_unit_test(the_path_names_its_costs),
      cmocka_unit_test(the_path_of_1f1b_is_known),
      cmocka_unit_test(a_pair_is_one_step_of_the_path),
  };
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  pen_free_all();
  return failed != 0;
}
