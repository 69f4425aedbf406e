/* lower.c: sends, waits, receives, slots and credits: a send directly follows its computation, a
 * wait directly precedes its reader, a receive is posted before its message leaves; there are as
 * many slots as messages that wait or are read at once, and the extra ones; no credit is
 * unnecessary. */
#include "gen/verify/verify.h"
#include "tests/support/plan_fixture.h"
#include "gen/partition/training.h"

/* ---- sends and waits ---- */

static bool is_compute(const struct pen_action *row) { return row->kind <= PEN_W; }

/* Does a compute action write what a SEND sends, or read what a WAIT waits for? All three have one
 * stage and microbatch. */
static bool is_of(const struct pen_action *row, const struct pen_action *message_row) {
  bool forward = message_row->kind == PEN_SEND_F || message_row->kind == PEN_WAIT_F;
  bool kind = forward ? row->kind == PEN_F : row->kind == PEN_B || row->kind == PEN_I;
  return kind && row->stage == message_row->stage && row->microbatch == message_row->microbatch;
}

/* Between the computation of a message, or its pair, and its SEND are only sends and receives;
 * between a WAIT and the reader of its message, or its pair, only other WAITs. Returns the number
 * of SENDs and WAITs. */
static unsigned check_neighbours(const struct pen_lowered *l, const char *schedule) {
  char text[32];
  unsigned seen = 0;
  for (uint32_t r = 0; r < l->rank_count; r++)
    for (uint32_t i = 0; i < l->count[r]; i++) {
      const struct pen_action *first = l->action[r], *row = &first[i], *other = row;
      if (pen_kind_sends(row->kind)) {
        while (other > first && (pen_kind_sends(other->kind) || pen_kind_receives(other->kind)))
          other--;
        bool second = other > first && other[-1].overlaps;
        if (!is_compute(other) || !(is_of(other, row) || (second && is_of(other - 1, row))))
          fail_msg("%s: rank %u row %u: %s does not follow its maker", schedule, r, i,
                   pen_action_format(text, row->kind, row->stage, row->microbatch));
        seen++;
      } else if (pen_kind_waits(row->kind)) {
        while (other + 1 < first + l->count[r] && pen_kind_waits(other->kind)) other++;
        if (!is_compute(other) ||
            !(is_of(other, row) || (other->overlaps && is_of(other + 1, row))))
          fail_msg("%s: rank %u row %u: no reader follows %s", schedule, r, i,
                   pen_action_format(text, row->kind, row->stage, row->microbatch));
        seen++;
      }
    }
  return seen;
}

/* ---- receives ---- */

static uint32_t row_of(const struct pen_lowered *l, uint32_t rank, int kind, uint32_t stage,
                       uint32_t microbatch) {
  for (uint32_t i = 0; i < l->count[rank]; i++) {
    const struct pen_action *a = &l->action[rank][i];
    if (a->kind == kind && a->stage == stage && a->microbatch == microbatch) return i;
  }
  return PEN_NONE;
}

/* The simulated times of a compute action. */
static void times_of(const struct pen_order *order, const struct pen_timing *timing, uint32_t rank,
                     const struct pen_action *a, double *start, double *end) {
  for (uint32_t i = 0; i < order->count[rank]; i++) {
    const struct pen_compute *c = &order->action[rank][i];
    if (c->kind != a->kind || c->stage != a->stage || c->microbatch != a->microbatch) continue;
    *start = timing->start[rank][i];
    *end = timing->end[rank][i];
  }
}

/* When a message leaves, its receive is posted: the computation before the receive has ended.
 * Returns how many receives precede a computation during which their message leaves. */
static unsigned check_receives(const char *schedule, unsigned ranks, unsigned stages,
                               unsigned microbatches, double send) {
  struct pen_partition *partition;
  struct pen_order *order = make_order(schedule, 0, false, ranks, stages, microbatches, &partition);
  struct pen_stage_cost *cost = pen_new(partition->stage_count, sizeof *cost);
  for (uint32_t s = 0; s < partition->stage_count; s++)
    cost[s] = (struct pen_stage_cost){1, 1.5, 0.5, send, 0, 0, {0}, {0}};
  struct pen_timing *timing = pen_simulate(order, partition, &pen_training_none, cost, -1);
  struct pen_lowered *l = pen_lower(
      order, partition, &(struct pen_training){.waits_for_norm = true}, timing, PEN_TRAIN);
  assert_int_equal(check_neighbours(l, schedule), 2 * l->message_count);
  unsigned early = 0;
  for (uint32_t r = 0; r < ranks; r++) {
    double start, posted = 0;
    for (uint32_t i = 0; i < l->count[r]; i++) {
      const struct pen_action *a = &l->action[r][i];
      if (a->kind <= PEN_W) times_of(order, timing, r, a, &start, &posted);
      if (a->kind != PEN_RECV_F && a->kind != PEN_RECV_B) continue;
      const struct pen_message *message = &l->message[a->message];
      uint32_t sender = partition->rank_of[message->stage];
      const struct pen_action *sent =
          &l->action[sender][row_of(l, sender, message->kind, message->stage, message->microbatch)];
      while (sent->stage != message->stage || sent->microbatch != message->microbatch ||
             sent->kind > PEN_I)
        sent--;
      double left = 0;
      times_of(order, timing, sender, sent, &start, &left);
      if (posted > left + 1e-9)
        fail_msg("%s %ux%ux%u, send %g: rank %u row %u is at %g, its message leaves at %g",
                 schedule, ranks, stages, microbatches, send, r, i, posted, left);
      early += l->action[r][i + 1].kind <= PEN_W || l->action[r][i + 1].kind == PEN_WAIT_F ||
               l->action[r][i + 1].kind == PEN_WAIT_B;
    }
  }
  return early;
}

static void test_receives(void **state) {
  (void)state;
  static const struct {
    const char *name;
    unsigned stages;
  } schedules[] = {{"1f1b", 1},       {"gpipe", 1},         {"zb_h2", 1},       {"1f1b", 2},
                   {"looped_bfs", 2}, {"zero_bubble_v", 2}, {"dual_pipe_v", 2}, {"v_min", 2}};
  static const double sends[] = {0, 0.1, 0.5, 1, 2.25, 7};
  for (size_t s = 0; s < sizeof schedules / sizeof *schedules; s++)
    for (size_t k = 0; k < sizeof sends / sizeof *sends; k++) {
      assert_true(check_receives(schedules[s].name, 4, schedules[s].stages, 8, sends[k]) > 0);
      check_receives(schedules[s].name, 2, schedules[s].stages, 4, sends[k]);
      if (schedules[s].stages == 1) check_receives(schedules[s].name, 2, 1, 5, sends[k]);
      pen_free_all();
    }
}

/* ---- slots ---- */

enum { SPARE = 2 }; /* slots beyond the least, of each size of message: gen/layout/activations.c */

/* The last action that reads a received message in place: the last action of its reader with an op
 * on the input of the stage, or on the gradient of its output. */
static uint32_t last_reader(const struct pen_rank_program *tables, uint32_t receive_row) {
  const struct pen_action *receive = &tables->actions[receive_row];
  int base = receive->kind == PEN_RECV_F ? PEN_BASE_INPUT : PEN_BASE_OUTPUT_GRADIENT;
  uint32_t last = receive_row;
  for (uint32_t i = receive_row + 1; i < tables->action_count; i++) {
    const struct pen_action *a = &tables->actions[i];
    if (!is_compute(a) || a->stage != receive->stage || a->microbatch != receive->microbatch)
      continue;
    const struct pen_program *program = &tables->programs[a->program];
    for (uint32_t op = program->first_op; op < program->first_op + program->op_count; op++)
      for (int k = 0; k < PEN_OPERANDS_MAX; k++) {
        uint32_t tensor = tables->ops[op].operand[k];
        if (tensor != PEN_NONE && tables->tensors[tensor].base == base) last = i;
      }
  }
  if (last == receive_row) fail_msg("no action reads what action %u receives", receive_row);
  return last;
}

/* The maximum number of messages of a rank that are received and not yet read. */
static uint32_t greatest_overlap(const struct pen_rank_program *tables) {
  int *change = pen_new(tables->action_count + 1u, sizeof *change), live = 0, most = 0;
  for (uint32_t i = 0; i < tables->action_count; i++) {
    if (!pen_kind_receives(tables->actions[i].kind)) continue;
    change[i]++;
    change[last_reader(tables, i) + 1]--;
  }
  for (uint32_t i = 0; i < tables->action_count; i++) {
    live += change[i];
    if (live > most) most = live;
  }
  return (uint32_t)most;
}

/* How many different targets the messages to a rank have. */
static uint32_t count_homes(const struct pen_profile *profile, uint32_t rank) {
  uint64_t *target = pen_new(profile->message_count + 1u, sizeof *target);
  uint32_t count = 0;
  for (uint32_t m = 0; m < profile->message_count; m++) {
    const struct pen_message *message = &profile->messages[m];
    if (profile->channels[message->channel].to_rank != rank) continue;
    uint32_t i = 0;
    while (i < count && target[i] != message->target_offset) i++;
    if (i == count) target[count++] = message->target_offset;
  }
  return count;
}

/* Every rank has at least as many slots as messages overlap, and at most so many more; slot[rank]
 * gets their count. */
static void check_slots(const char *text, uint32_t *slot) {
  const struct pen_plan *plan = make_plan(text);
  for (uint32_t r = 0; r < plan->rank_count; r++) {
    uint32_t least = greatest_overlap(&plan->profiles[0].ranks[r]);
    slot[r] = plan->memory[r].receive_slots;
    if (slot[r] < least || slot[r] > least + SPARE)
      fail_msg("%srank %u: %u receive slots, but at most %u messages at a time", text, r, slot[r],
               least);
    assert_int_equal(slot[r], count_homes(&plan->profiles[0], r));
  }
  pen_free_all();
}

static void test_slots(void **state) {
  (void)state;
  static const struct {
    const char *schedule;
    unsigned ranks, stages, microbatches;
  } cases[] = {{"gpipe", 3, 1, 7},       {"1f1b", 4, 1, 12},      {"1f1b", 4, 2, 8},
               {"zb_h2", 4, 1, 12},      {"looped_bfs", 3, 2, 6}, {"zero_bubble_v", 4, 2, 8},
               {"dual_pipe_v", 4, 2, 8}, {"v_half", 4, 2, 8},     {"v_min", 4, 2, 8}};
  uint32_t slot[4];
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    check_slots(topology_text("mlp", cases[i].schedule, cases[i].ranks, cases[i].stages,
                              cases[i].microbatches, ""),
                slot);
  check_slots(topology_text("llama", "1f1b", 3, 1, 6, ""), slot);
}

/* What 1f1b holds does not grow with the microbatches. */
static void test_slots_of_long_steps(void **state) {
  (void)state;
  uint32_t slot[4], longer[4];
  for (unsigned stages = 1; stages <= 2; stages++) {
    check_slots(topology_text("mlp", "1f1b", 4, stages, 64, ""), slot);
    for (unsigned microbatches = 128; microbatches <= 512; microbatches *= 2) {
      check_slots(topology_text("mlp", "1f1b", 4, stages, microbatches, ""), longer);
      assert_memory_equal(slot, longer, sizeof slot);
    }
  }
}

/* ---- credits ---- */

/* Removes one credit; the others keep their order in the channel. */
static void without_credit(struct pen_plan *plan, const struct pen_message *message,
                           const struct pen_message *old, uint32_t taken) {
  struct pen_profile *profile = (struct pen_profile *)(uintptr_t)plan->profiles;
  struct pen_message *to = (struct pen_message *)(uintptr_t)message;
  struct pen_channel *channel = (struct pen_channel *)(uintptr_t)profile->channels;
  memcpy(to, old, profile->message_count * sizeof *to);
  for (uint32_t c = 0; c < profile->channel_count; c++) channel[c].credit_count = 0;
  for (uint32_t m = 0; m < profile->message_count; m++)
    channel[old[m].channel].credit_count += old[m].credit != PEN_NONE;
  if (taken == PEN_NONE) return;
  channel[old[taken].channel].credit_count--;
  for (uint32_t m = 0; m < profile->message_count; m++)
    if (to[m].channel == old[taken].channel && to[m].credit != PEN_NONE &&
        to[m].credit > old[taken].credit)
      to[m].credit--;
  to[taken].credit = PEN_NONE;
}

/* The verifier accepts the plan, and no plan with one credit less. Returns the number of credits.
 */
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
      {"1f1b", "", 4, 1, 8},
      {"1f1b", "/* no clip */", 4, 2, 8},
      {"gpipe", "", 3, 1, 7},
      {"looped_bfs", "", 3, 2, 6},
      {"zero_bubble_v", "", 4, 2, 8},
      {"1f1b", "zero_bubble = true;", 4, 1, 9},
      {"gpipe", "/* no clip */", 2, 1, 4},
      {"zero_bubble_v", "/* no clip */", 3, 2, 8},
  };
  unsigned credits = 0;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    credits += check_credits(topology_text("mlp", cases[i].schedule, cases[i].ranks,
                                           cases[i].stages, cases[i].microbatches, cases[i].more));
  assert_true(credits > 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_receives), cmocka_unit_test(test_slots),
                                     cmocka_unit_test(test_slots_of_long_steps),
                                     cmocka_unit_test(test_credits)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
