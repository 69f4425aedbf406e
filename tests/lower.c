/* lower.c: receives and credits: a receive stands when its message leaves, and no credit is needless. */
#include "tests/whole.h"

/* ---- receives ---- */

static uint32_t row_of(const struct pen_lowered *l, uint32_t rank, int kind, uint32_t stage, uint32_t microbatch) {
  for (uint32_t i = 0; i < l->count[rank]; i++) {
    const struct pen_action *a = &l->action[rank][i];
    if (a->kind == kind && a->stage == stage && a->microbatch == microbatch) return i;
  }
  return PEN_NONE;
}

/* What the simulated run says of a compute action. */
static void times_of(const struct pen_order *order, const struct pen_timing *timing, uint32_t rank, const struct pen_action *a,
                     double *start, double *end) {
  for (uint32_t i = 0; i < order->count[rank]; i++) {
    const struct pen_compute *c = &order->action[rank][i];
    if (c->kind != a->kind || c->stage != a->stage || c->microbatch != a->microbatch) continue;
    *start = timing->start[rank][i];
    *end = timing->end[rank][i];
  }
}

/* When a message leaves, its receive stands: the computation before the receive has ended. Returns how many receives stand before a computation during which they leave. */
static unsigned check_receives(const char *schedule, unsigned ranks, unsigned stages, unsigned microbatches, double send) {
  struct pen_partition *partition;
  struct pen_order *order = make_order(schedule, 0, false, ranks, stages, microbatches, &partition);
  struct pen_stage_cost *cost = pen_new(partition->stage_count, sizeof *cost);
  for (uint32_t s = 0; s < partition->stage_count; s++) cost[s] = (struct pen_stage_cost){1, 1.5, 0.5, send};
  struct pen_timing *timing = pen_simulate(order, partition, cost, -1);
  struct pen_lowered *l = pen_lower(order, partition, timing, PEN_TRAIN, true);
  unsigned early = 0;
  for (uint32_t r = 0; r < ranks; r++) {
    double start, posted = 0;
    for (uint32_t i = 0; i < l->count[r]; i++) {
      const struct pen_action *a = &l->action[r][i];
      if (a->kind <= PEN_W) times_of(order, timing, r, a, &start, &posted);
      if (a->kind != PEN_RECV_F && a->kind != PEN_RECV_B) continue;
      const struct pen_message *message = &l->message[a->message];
      uint32_t sender = partition->rank_of[message->stage];
      const struct pen_action *sent = &l->action[sender][row_of(l, sender, message->kind, message->stage, message->microbatch)];
      while (sent->stage != message->stage || sent->microbatch != message->microbatch || sent->kind > PEN_I) sent--;
      double left = 0;
      times_of(order, timing, sender, sent, &start, &left);
      if (posted > left + 1e-9)
        fail_msg("%s %ux%ux%u, send %g: rank %u row %u stands at %g, its message leaves at %g", schedule, ranks, stages, microbatches,
                 send, r, i, posted, left);
      early += l->action[r][i + 1].kind <= PEN_W || l->action[r][i + 1].kind == PEN_WAIT_F || l->action[r][i + 1].kind == PEN_WAIT_B;
    }
  }
  return early;
}

static void test_receives(void **state) {
  (void)state;
  static const char *const schedules[] = {"1f1b", "gpipe", "looped_bfs", "zero_bubble_v"};
  static const double sends[] = {0, 0.1, 0.5, 1, 2.25, 7};
  for (size_t s = 0; s < sizeof schedules / sizeof *schedules; s++)
    for (size_t k = 0; k < sizeof sends / sizeof *sends; k++) {
      assert_true(check_receives(schedules[s], 4, s < 2 ? 1 : 2, 8, sends[k]) > 0);
      check_receives(schedules[s], 2, s < 2 ? 1 : 2, 5, sends[k]);
    }
}

/* ---- credits ---- */

/* Takes one credit away; every other keeps its place among the channel's. */
static void without_credit(struct pen_plan *plan, const struct pen_message *message, const struct pen_message *old, uint32_t taken) {
  struct pen_profile *profile = (struct pen_profile *)(uintptr_t)plan->profiles;
  struct pen_message *to = (struct pen_message *)(uintptr_t)message;
  struct pen_channel *channel = (struct pen_channel *)(uintptr_t)profile->channels;
  memcpy(to, old, profile->message_count * sizeof *to);
  for (uint32_t c = 0; c < profile->channel_count; c++) channel[c].credit_count = 0;
  for (uint32_t m = 0; m < profile->message_count; m++) channel[old[m].channel].credit_count += old[m].credit != PEN_NONE;
  if (taken == PEN_NONE) return;
  channel[old[taken].channel].credit_count--;
  for (uint32_t m = 0; m < profile->message_count; m++)
    if (to[m].channel == old[taken].channel && to[m].credit != PEN_NONE && to[m].credit > old[taken].credit) to[m].credit--;
  to[taken].credit = PEN_NONE;
}

/* The verifier accepts the plan, and none of the plans with one credit less. Returns how many credits there are. */
static unsigned check_credits(const char *text) {
  struct pen_plan *plan = make_plan(text);
  struct pen_problem problem;
  if (!pen_verify(plan, &problem)) fail_msg("%s%s", text, problem.reason);
  const struct pen_profile *profile = &plan->profiles[0];
  struct pen_message *old = pen_new(profile->message_count + 1u, sizeof *old);
  memcpy(old, profile->messages, profile->message_count * sizeof *old);
  unsigned count = 0;
  for (uint32_t m = 0; m < profile->message_count; m++) {
    if (old[m].credit == PEN_NONE) continue;
    count++;
    without_credit(plan, profile->messages, old, m);
    if (pen_verify(plan, &problem)) fail_msg("%scredit of message %u is needless", text, m);
    without_credit(plan, profile->messages, old, PEN_NONE);
  }
  return count;
}

static void test_credits(void **state) {
  (void)state;
  static const struct {
    const char *schedule, *more;
    unsigned ranks, stages, microbatches;
  } cases[] = {
      {"1f1b", "", 4, 1, 8},          {"1f1b", "/* no clip */", 4, 2, 8},         {"gpipe", "", 3, 1, 7},
      {"looped_bfs", "", 3, 2, 6},    {"zero_bubble_v", "", 4, 2, 8},             {"1f1b", "zero_bubble = true;", 4, 1, 9},
      {"gpipe", "/* no clip */", 2, 1, 4}, {"zero_bubble_v", "/* no clip */", 3, 2, 8},
  };
  unsigned credits = 0;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    credits += check_credits(topology_text("mlp", cases[i].schedule, cases[i].ranks, cases[i].stages, cases[i].microbatches, cases[i].more));
  assert_true(credits > 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_receives), cmocka_unit_test(test_credits)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
