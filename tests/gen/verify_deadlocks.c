/* verify_deadlocks.c: an order that the verifier accepts runs to its end in all three models of
 * communication, and one that deadlocks is rejected: against a naive second implementation. */
#include "gen/base/arena.h"
#include "gen/verify/internal.h"
#include "tests/support/action_rows.h"

/* ---- deadlocks: against a naive runner that tries everything again and again, in random order
 * ---- */

enum model { PUTS, PAIR_LANES, RANK_LANES };

struct naive {
  const struct action_lists *rows;
  enum model model;
  uint32_t *next;
  bool **ended; /* [rank][row]: puts: sent or received; rendezvous: met */
};

/* The other end of a communication action, or for a compute action what sends its message; false:
 * none. */
static bool naive_mate(const struct naive *n, const struct pen_action *action, uint32_t *rank,
                       uint32_t *row) {
  const struct pen_partition *p = n->rows->partition;
  static const int mate[PEN_MICROBATCH_KINDS] = {
      [PEN_F] = PEN_SEND_F,      [PEN_B] = PEN_SEND_B,      [PEN_I] = PEN_SEND_B,
      [PEN_SEND_F] = PEN_RECV_F, [PEN_RECV_F] = PEN_SEND_F, [PEN_SEND_B] = PEN_RECV_B,
      [PEN_RECV_B] = PEN_SEND_B};
  static const int step[PEN_MICROBATCH_KINDS] = {
      [PEN_F] = -1,      [PEN_B] = 1,       [PEN_I] = 1,     [PEN_SEND_F] = 1,
      [PEN_RECV_F] = -1, [PEN_SEND_B] = -1, [PEN_RECV_B] = 1};
  int64_t stage = (int64_t)action->stage + step[action->kind];
  if (action->kind == PEN_W || stage < 0 || stage >= p->stage_count ||
      p->rank_of[stage] == p->rank_of[action->stage])
    return false;
  *rank = p->rank_of[stage];
  *row = rows_find(n->rows, *rank, mate[action->kind], (uint32_t)stage, action->microbatch);
  return true;
}

/* Is an action the first incomplete one of its lane? */
static bool heads_lane(const struct naive *n, uint32_t rank, uint32_t row) {
  uint32_t peer, other, unused;
  const struct pen_action *action = &n->rows->action[rank][row];
  naive_mate(n, action, &peer, &unused);
  for (uint32_t index = 0; index < row; index++) {
    const struct pen_action *before = &n->rows->action[rank][index];
    if (before->kind < PEN_SEND_F || n->ended[rank][index]) continue;
    naive_mate(n, before, &other, &unused);
    bool sends = before->kind == PEN_SEND_F || before->kind == PEN_SEND_B,
         send = action->kind == PEN_SEND_F || action->kind == PEN_SEND_B;
    if (n->model == RANK_LANES || (other == peer && sends == send)) return false;
  }
  return true;
}

static bool naive_step(struct naive *n, uint32_t rank) {
  uint32_t peer, row, at = n->next[rank];
  const struct pen_action *action = &n->rows->action[rank][at];
  bool talks = at < n->rows->count[rank] && naive_mate(n, action, &peer, &row), moved = false;
  bool receives =
      at < n->rows->count[rank] && (action->kind == PEN_RECV_F || action->kind == PEN_RECV_B);
  if (n->model == PUTS) {
    if (at == n->rows->count[rank]) return false;
    if (talks && !receives && !n->ended[peer][row]) return false; /* the credit, or the message */
    n->ended[rank][at] = true;
    n->next[rank]++;
    return true;
  }
  for (uint32_t index = 0; index < at; index++) { /* started communication */
    if (n->rows->action[rank][index].kind < PEN_SEND_F || n->ended[rank][index] ||
        !heads_lane(n, rank, index))
      continue;
    naive_mate(n, &n->rows->action[rank][index], &peer, &row);
    if (row >= n->next[peer] || !heads_lane(n, peer, row)) continue;
    n->ended[rank][index] = n->ended[peer][row] = moved = true;
  }
  if (at == n->rows->count[rank]) return moved;
  if (action->kind < PEN_SEND_F && naive_mate(n, action, &peer, &row) && !n->ended[peer][row])
    return moved;
  n->next[rank]++;
  return true;
}

/* Runs a model with random turns until nothing can run. Returns whether it reaches the end. */
static bool naive_run(const struct action_lists *rows, enum model model, uint64_t *seed) {
  uint32_t ranks = rows->partition->rank_count, still = 0;
  struct naive n = {.rows = rows,
                    .model = model,
                    .next = pen_new(ranks, sizeof(uint32_t)),
                    .ended = pen_new(ranks, sizeof(bool *))};
  for (uint32_t rank = 0; rank < ranks; rank++)
    n.ended[rank] = pen_new(rows->count[rank] + 1u, sizeof(bool));
  while (still < 2) {
    for (uint32_t turn = 0; turn < ranks; turn++) naive_step(&n, (uint32_t)draw(seed, ranks));
    bool moved = false;
    for (uint32_t rank = 0; rank < ranks; rank++) moved |= naive_step(&n, rank);
    still = moved ? 0 : still + 1;
  }
  for (uint32_t rank = 0; rank < ranks; rank++) {
    if (n.next[rank] < rows->count[rank]) return false;
    for (uint32_t index = 0; index < rows->count[rank]; index++)
      if (rows->action[rank][index].kind >= PEN_SEND_F && !n.ended[rank][index]) return false;
  }
  return true;
}

/* Moves some actions and compares the verifier with the naive model. */
static void verdicts_agree_with_a_naive_model(void **state) {
  (void)state;
  uint64_t seed = 1234567;
  unsigned accepted = 0, stuck[3] = {0};
  for (unsigned round = 0; round < 3000; round++) {
    uint64_t here = seed;
    struct pen_problem problem = {.rank = PEN_NONE};
    struct action_lists rows = some_rows(&seed);
    for (uint64_t moves = 1 + draw(&seed, 6); moves > 0; moves--) {
      uint32_t rank = rows_some_rank(&rows, &seed), from = (uint32_t)draw(&seed, rows.count[rank]);
      uint32_t to = from + (uint32_t)draw(&seed, 5);
      struct pen_action action = rows_take_out(&rows, rank, from);
      rows_insert(&rows, rank, to > rows.count[rank] ? rows.count[rank] : to, action);
    }
    bool fine = rows_verify(&rows, &problem), deadlock = strstr(problem.reason, "deadlock") != NULL;
    if (fine || deadlock) {
      bool ends[3];
      for (int model = PUTS; model <= RANK_LANES; model++)
        ends[model] = naive_run(&rows, (enum model)model, &seed);
      bool all = ends[PUTS] && ends[PAIR_LANES] && ends[RANK_LANES];
      static const char *const words[] = {"one-sided puts", "one lane a pair", "one lane a rank"};
      int first = !ends[PUTS] ? PUTS : !ends[PAIR_LANES] ? PAIR_LANES : RANK_LANES;
      if (all != fine || (!fine && !strstr(problem.reason, words[first])))
        fail_msg("seed %lu: naive: %d %d %d; verify: %s", (unsigned long)here, ends[0], ends[1],
                 ends[2], fine ? "fine" : problem.reason);
      if (fine)
        accepted++;
      else
        stuck[first]++;
    }
    pen_free_all();
  }
  print_message("# accepted %u, deadlocks with puts %u, one lane a rank %u\n", accepted,
                stuck[PUTS], stuck[RANK_LANES]);
  assert_true(accepted > 100 && stuck[PUTS] > 20 && stuck[RANK_LANES] > 20);
}

/* ---- the models one by one ---- */

static void expect_reason(const struct action_lists *rows, const char *reason, uint32_t rank,
                          uint32_t action) {
  struct pen_problem problem = {.rank = PEN_NONE};
  if (rows_verify(rows, &problem)) fail_msg("accepted, wanted \"%s\"", reason);
  if (!strstr(problem.reason, reason) || problem.rank != rank || problem.action != action)
    fail_msg("rank %u action %u: %s; wanted \"%s\" at rank %u action %u", problem.rank,
             problem.action, problem.reason, reason, rank, action);
}

static void deadlocks_name_the_waiting_actions(void **state) {
  (void)state;
  struct action_lists rows = read_rows(
      "0: 0F0 0SEND_F0 0RECV_B0 0B0 0F1 0SEND_F1 0RECV_B1 0B1\n"
      "1: 1RECV_F0 1F0 1RECV_F1 1F1 1B0 1SEND_B0 1B1 1SEND_B1\n",
      2, 1, 2, false);
  expect_reason(&rows,
                "deadlock with one-sided puts: it waits for 1SEND_B0 of rank 1, which waits at 1F1",
                0, 3);
  rows = read_rows(
      "# one lane a rank: both receive first\n"
      "1: 1RECV_F0 1F0 1RECV_F1 1B0 1SEND_B0 1F1 1B1 1SEND_B1\n\n"
      "0: 0F0 0SEND_F0 0F1 0RECV_B0 0SEND_F1 0B0 0RECV_B1 0B1\n",
      2, 1, 2, false);
  expect_reason(
      &rows,
      "deadlock with rendezvous, one lane a rank: it waits for the end of 1SEND_B0 of rank 1", 0,
      5);
}

/* One lane for a pair of ranks can deadlock where puts do not, only if an action waits for a send
 * that still reads what it overwrites: 3B0 waits for 0SEND_F1, which rank 1 receives after 1B0,
 * which needs 3B0. */
static void send_hazards_can_deadlock(void **state) {
  (void)state;
  struct action_lists rows = read_rows(
      "0: 0F0 0SEND_F0 0F1 3RECV_F0 3F0 3SEND_F0 0SEND_F1 3RECV_B0 3B0 3SEND_B0 0RECV_B0 0B0 "
      "3RECV_F1 3F1 3SEND_F1 3RECV_B1 3B1"
      " 3SEND_B1 0RECV_B1 0B1\n"
      "1: 1RECV_F0 1F0 1SEND_F0 4RECV_F0 4F0 4SEND_F0 4RECV_B0 4B0 4SEND_B0 1RECV_B0 1B0 1SEND_B0 "
      "1RECV_F1 1F1 1SEND_F1 4RECV_F1"
      " 4F1 4SEND_F1 4RECV_B1 4B1 4SEND_B1 1RECV_B1 1B1 1SEND_B1\n"
      "2: 2RECV_F0 2F0 2SEND_F0 5RECV_F0 5F0 5B0 5SEND_B0 2RECV_B0 2B0 2SEND_B0 2RECV_F1 2F1 "
      "2SEND_F1 5RECV_F1 5F1 5B1 5SEND_B1"
      " 2RECV_B1 2B1 2SEND_B1\n",
      3, 2, 2, false);
  const struct pen_partition *p = rows.partition;
  struct pen_problem problem = {.rank = PEN_NONE};
  bool *none = pen_new((size_t)p->stage_count * p->microbatch_count, sizeof(bool));
  struct pen_send_hazard hazard = {8, 6}, *hazards[3] = {&hazard, NULL, NULL};
  size_t hazard_count[3] = {1, 0, 0};
  struct pen_check_context checked = {.problem = &problem,
                                      .action = (const struct pen_action *const *)rows.action,
                                      .count = rows.count,
                                      .rank_of = p->rank_of,
                                      .rank_count = 3,
                                      .stage_count = 6,
                                      .microbatch_count = 2,
                                      .profile_kind = PEN_TRAIN,
                                      .credited = {none, none}};
  if (!pen_check_actions(&checked) || !pen_check_puts(&checked)) fail_msg("%s", problem.reason);
  assert_false(pen_check_rendezvous(&checked));
  if (!strstr(problem.reason, "one lane a rank")) fail_msg("without hazards: %s", problem.reason);
  checked.hazard = hazards;
  checked.hazard_count = hazard_count;
  assert_false(pen_check_rendezvous(&checked));
  if (!strstr(problem.reason,
              "one lane a pair of ranks: it waits for the end of 0SEND_F1 of rank 0") ||
      problem.rank != 0 || problem.action != 8)
    fail_msg("with a hazard: rank %u action %u: %s", problem.rank, problem.action, problem.reason);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(verdicts_agree_with_a_naive_model),
      cmocka_unit_test(deadlocks_name_the_waiting_actions),
      cmocka_unit_test(send_hazards_can_deadlock),
  };
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  pen_free_all();
  return failed != 0;
}
