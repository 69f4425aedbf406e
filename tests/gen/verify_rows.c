/* verify_rows.c: the verifier on actions without a plan: what the schedules make is accepted, and
 * one defect at a time is rejected with its message. (Deadlocks: verify_deadlocks.c.) */
#include "gen/base/arena.h"
#include "tests/support/action_rows.h"

/* ---- what the schedules make is accepted ---- */

static void schedules_are_accepted(void **state) {
  (void)state;
  for (size_t which = 0; which < ROW_SCHEDULES; which++)
    for (uint32_t ranks = 1; ranks <= 6; ranks++)
      for (uint32_t rounds = 1; rounds <= 3; rounds++) {
        struct pen_problem problem = {.rank = PEN_NONE};
        struct action_lists rows = make_rows(
            row_schedules[which].schedule, row_schedules[which].warmup, row_schedules[which].split,
            ranks, row_schedules[which].stages, rounds * ranks);
        if (!rows_verify(&rows, &problem))
          fail_msg("%s %u ranks %u microbatches: rank %u action %u: %s",
                   row_schedules[which].schedule, ranks, rounds * ranks, problem.rank,
                   problem.action, problem.reason);
        pen_free_all();
      }
}

/* ---- one defect at a time, each with its message ---- */

static uint32_t some_of(const struct action_lists *rows, uint32_t rank, int first_kind,
                        int last_kind, uint64_t *seed) {
  for (unsigned tries = 0; tries < 10000; tries++) {
    uint32_t index = (uint32_t)draw(seed, rows->count[rank]);
    if (rows->action[rank][index].kind >= first_kind && rows->action[rank][index].kind <= last_kind)
      return index;
  }
  return PEN_NONE;
}

static bool drop(struct action_lists *rows, uint64_t *seed) {
  uint32_t rank = rows_some_rank(rows, seed);
  rows_take_out(rows, rank, (uint32_t)draw(seed, rows->count[rank]));
  return true;
}

static bool doubled(struct action_lists *rows, uint64_t *seed) {
  uint32_t rank = rows_some_rank(rows, seed);
  struct pen_action action = rows->action[rank][draw(seed, rows->count[rank])];
  rows_insert(rows, rank, (uint32_t)draw(seed, rows->count[rank] + 1), action);
  return true;
}

static bool backward_before_forward(struct action_lists *rows, uint64_t *seed) {
  uint32_t rank = rows_some_rank(rows, seed), index = some_of(rows, rank, PEN_B, PEN_I, seed);
  struct pen_action action = rows_take_out(rows, rank, index);
  rows_insert(rows, rank, rows_find(rows, rank, PEN_F, action.stage, action.microbatch), action);
  return true;
}

static bool weights_before_input(struct action_lists *rows, uint64_t *seed) {
  uint32_t rank = rows_some_rank(rows, seed), index = some_of(rows, rank, PEN_W, PEN_W, seed);
  if (index == PEN_NONE) return false;
  struct pen_action action = rows_take_out(rows, rank, index);
  rows_insert(rows, rank, rows_find(rows, rank, PEN_I, action.stage, action.microbatch), action);
  return true;
}

static bool wrong_rank(struct action_lists *rows, uint64_t *seed) {
  uint32_t rank = rows_some_rank(rows, seed);
  struct pen_action action = rows_take_out(rows, rank, (uint32_t)draw(seed, rows->count[rank]));
  rank = (rank + 1) % rows->partition->rank_count;
  rows_insert(rows, rank, (uint32_t)draw(seed, rows->count[rank] + 1), action);
  return true;
}

/* Two sends of one kind and stage change places, with what they need moved before both. */
static bool crossed_sends(struct action_lists *rows, uint64_t *seed) {
  uint32_t rank = rows_some_rank(rows, seed),
           first = some_of(rows, rank, PEN_SEND_F, PEN_SEND_F, seed), second = PEN_NONE;
  if (first == PEN_NONE) return false;
  for (uint32_t index = first + 1; index < rows->count[rank] && second == PEN_NONE; index++)
    if (rows->action[rank][index].kind == PEN_SEND_F &&
        rows->action[rank][index].stage == rows->action[rank][first].stage)
      second = index;
  if (second == PEN_NONE) return false;
  struct pen_action action = rows_take_out(rows, rank, first);
  rows_insert(rows, rank, second, action);
  return true;
}

static bool send_before_result(struct action_lists *rows, uint64_t *seed) {
  uint32_t rank = rows_some_rank(rows, seed),
           index = some_of(rows, rank, PEN_SEND_F, PEN_SEND_F, seed);
  if (index == PEN_NONE) return false;
  struct pen_action action = rows_take_out(rows, rank, index);
  rows_insert(rows, rank, rows_find(rows, rank, PEN_F, action.stage, action.microbatch), action);
  return true;
}

static bool receive_after_use(struct action_lists *rows, uint64_t *seed) {
  uint32_t rank = rows_some_rank(rows, seed),
           index = some_of(rows, rank, PEN_RECV_F, PEN_RECV_F, seed);
  if (index == PEN_NONE) return false;
  struct pen_action action = rows_take_out(rows, rank, index);
  rows_insert(rows, rank, rows_find(rows, rank, PEN_F, action.stage, action.microbatch) + 1,
              action);
  return true;
}

static bool needless_message(struct action_lists *rows, uint64_t *seed) {
  uint32_t last = rows->partition->stage_count - 1, rank = rows->partition->rank_of[last];
  rows_insert(
      rows, rank, rows->count[rank],
      (struct pen_action){.kind = PEN_SEND_F,
                          .stage = (uint16_t)last,
                          .microbatch = (uint32_t)draw(seed, rows->partition->microbatch_count)});
  return true;
}

static bool whole_and_split(struct action_lists *rows, uint64_t *seed) {
  uint32_t rank = rows_some_rank(rows, seed), index = some_of(rows, rank, PEN_B, PEN_B, seed);
  if (index == PEN_NONE) return false;
  struct pen_action action = rows->action[rank][index];
  action.kind = PEN_W;
  rows_insert(rows, rank, index + 1, action);
  return true;
}

static bool no_microbatch(struct action_lists *rows, uint64_t *seed) {
  uint32_t rank = rows_some_rank(rows, seed);
  rows->action[rank][draw(seed, rows->count[rank])].microbatch = rows->partition->microbatch_count;
  return true;
}

static bool no_stage(struct action_lists *rows, uint64_t *seed) {
  uint32_t rank = rows_some_rank(rows, seed);
  rows->action[rank][draw(seed, rows->count[rank])].stage = (uint16_t)rows->partition->stage_count;
  return true;
}

static bool no_kind(struct action_lists *rows, uint64_t *seed) {
  uint32_t rank = rows_some_rank(rows, seed);
  rows->action[rank][draw(seed, rows->count[rank])].kind = PEN_ACTION_KINDS;
  return true;
}

static bool early_end(struct action_lists *rows, uint64_t *seed) {
  uint32_t rank = rows_some_rank(rows, seed);
  rows_insert(rows, rank, (uint32_t)draw(seed, rows->count[rank]),
              (struct pen_action){.kind = PEN_UPDATE});
  return true;
}

static bool late_wait(struct action_lists *rows, uint64_t *seed) {
  uint32_t rank = rows_some_rank(rows, seed),
           index = some_of(rows, rank, PEN_RECV_F, PEN_RECV_F, seed);
  if (index == PEN_NONE) return false;
  struct pen_action action = rows->action[rank][index];
  action.kind = PEN_WAIT_F;
  rows_insert(
      rows, rank,
      draw(seed, 2) ? index : rows_find(rows, rank, PEN_F, action.stage, action.microbatch) + 1,
      action);
  return true;
}

static const struct {
  const char *name;
  bool (*apply)(struct action_lists *rows, uint64_t *seed);
  const char *reason;
} defects[] = {
    {"dropped", drop, "is missing"},
    {"doubled", doubled, "is listed twice"},
    {"backward before forward", backward_before_forward, "comes before"},
    {"W before I", weights_before_input, "comes before"},
    {"wrong rank", wrong_rank, "is on rank"},
    {"crossed sends", crossed_sends, "but is received as number"},
    {"send before its result", send_before_result, "whose result it sends"},
    {"receive after its use", receive_after_use, "whose message it needs"},
    {"needless message", needless_message, "there is no such message"},
    {"whole and split backward", whole_and_split, "the whole backward"},
    {"no such microbatch", no_microbatch, "there is no microbatch"},
    {"no such stage", no_stage, "there is no stage"},
    {"no such kind", no_kind, "there is no kind"},
    {"early end", early_end, "comes after the step's end"},
    {"misplaced wait", late_wait, "wait"},
};

static void defects_have_their_messages(void **state) {
  (void)state;
  uint64_t seed = 424242;
  for (size_t which = 0; which < sizeof defects / sizeof defects[0]; which++) {
    unsigned applied = 0;
    for (unsigned round = 0; round < 60; round++) {
      uint64_t here = seed;
      struct pen_problem problem = {.rank = PEN_NONE, .action = PEN_NONE};
      struct action_lists rows = some_rows(&seed);
      if (defects[which].apply(&rows, &seed)) {
        applied++;
        bool accepted = rows_verify(&rows, &problem);
        bool waits = strcmp(defects[which].reason, "wait") == 0 &&
                     (strstr(problem.reason, "for whose message it waits") ||
                      strstr(problem.reason, "which it needs"));
        if (accepted || (!waits && !strstr(problem.reason, defects[which].reason)))
          fail_msg("%s, seed %lu: %s", defects[which].name, (unsigned long)here,
                   accepted ? "accepted" : problem.reason);
        if (problem.rank >= rows.partition->rank_count ||
            problem.action >= rows.count[problem.rank])
          fail_msg("%s, seed %lu: names no row: %s", defects[which].name, (unsigned long)here,
                   problem.reason);
      }
      pen_free_all();
    }
    if (applied < 5) fail_msg("%s was applied %u times only", defects[which].name, applied);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(schedules_are_accepted),
      cmocka_unit_test(defects_have_their_messages),
  };
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  pen_free_all();
  return failed != 0;
}
