/* verify_rows.c: the verifier on actions without a plan: an accepted order runs to its end in all
 * three models of communication, a rejected one has its own message; checked against a naive second
 * implementation, and with all kinds of changes. Also the text of orders. */
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gen/schedule/action_text.h"
#include "gen/verify/internal.h"
#include "gen/base/arena.h"
#include "gen/base/error.h"
#include "gen/partition/partition.h"
#include "gen/partition/training.h"
#include "gen/schedule/order.h"
#include "gen/timing/timing.h"
#include "gen/lower/lower.h"
#include "runtime/plan/plan.h"
#include "tests/support/plans.h"

/* The actions of all ranks, as in a file of --actions. */
struct action_lists {
  struct pen_partition *partition;
  struct pen_action **action;
  uint32_t *count;
};

/* A schedule's order with its messages, without waits and the step's end. */
static struct action_lists make_rows(const char *schedule, int warmup, bool split, uint32_t ranks,
                                     uint32_t stages, uint32_t microbatches) {
  struct action_lists rows;
  struct pen_order *order =
      make_order(schedule, warmup, split, ranks, stages, microbatches, &rows.partition);
  struct pen_stage_cost *cost = pen_new(rows.partition->stage_count, sizeof *cost);
  for (uint32_t stage = 0; stage < rows.partition->stage_count; stage++)
    cost[stage] = (struct pen_stage_cost){1, 1, 1, 0, 0, 0, {0}};
  struct pen_lowered *lowered =
      pen_lower(order, rows.partition, &pen_training_none,
                pen_simulate(order, rows.partition, &pen_training_none, cost, -1), PEN_TRAIN);
  rows.action = pen_new(ranks, sizeof *rows.action);
  rows.count = pen_new(ranks, sizeof *rows.count);
  for (uint32_t rank = 0; rank < ranks; rank++) {
    rows.action[rank] =
        pen_new(lowered->count[rank] + 8, sizeof **rows.action); /* some may be added */
    for (uint32_t index = 0; index < lowered->count[rank]; index++)
      if (lowered->action[rank][index].kind <= PEN_RECV_B)
        rows.action[rank][rows.count[rank]++] = lowered->action[rank][index];
  }
  return rows;
}

static bool verify(const struct action_lists *rows, struct pen_problem *problem) {
  const struct pen_partition *p = rows->partition;
  return pen_verify_actions(
      &(struct pen_action_lists){rows->action, rows->count, p->rank_of, p->rank_count,
                                 p->stage_count, p->microbatch_count, PEN_TRAIN},
      problem);
}

static void insert(struct action_lists *rows, uint32_t rank, uint32_t at,
                   struct pen_action action) {
  memmove(rows->action[rank] + at + 1, rows->action[rank] + at,
          (rows->count[rank]++ - at) * sizeof action);
  rows->action[rank][at] = action;
}

static struct pen_action take_out(struct action_lists *rows, uint32_t rank, uint32_t at) {
  struct pen_action action = rows->action[rank][at];
  memmove(rows->action[rank] + at, rows->action[rank] + at + 1,
          (--rows->count[rank] - at) * sizeof action);
  return action;
}

static uint32_t find(const struct action_lists *rows, uint32_t rank, int kind, uint32_t stage,
                     uint32_t microbatch) {
  for (uint32_t index = 0; index < rows->count[rank]; index++) {
    const struct pen_action *action = &rows->action[rank][index];
    if (action->kind == kind && action->stage == stage && action->microbatch == microbatch)
      return index;
  }
  return PEN_NONE;
}

/* Rows from the text of an actions file, through the reader. */
static struct action_lists read_rows(const char *text, uint32_t ranks, uint32_t stages,
                                     uint32_t microbatches, bool zigzag) {
  struct action_lists rows = {.partition = make_partition(ranks, stages, microbatches, zigzag)};
  char path[] = "/tmp/penstock-actions-XXXXXX";
  int file = mkstemp(path);
  assert_true(file >= 0);
  unlink(path); /* now: the reader may end the process */
  assert_int_equal(write(file, text, strlen(text)), (ssize_t)strlen(text));
  assert_int_equal(lseek(file, 0, SEEK_SET), 0);
  pen_actions_read(pen_text("/dev/fd/%d", file), rows.partition, &rows.action, &rows.count);
  close(file);
  return rows;
}

/* ---- what the schedules make is accepted ---- */

static const struct {
  const char *schedule;
  int warmup;
  bool split;
  uint32_t stages;
} schedules[] = {
    {"gpipe", 0, false, 1},      {"1f1b", 1, false, 1},          {"1f1b", 2, false, 1},
    {"1f1b", 0, true, 1},        {"1f1b", 0, false, 2},          {"1f1b", 0, true, 2},
    {"looped_bfs", 0, false, 3}, {"zero_bubble_v", 0, false, 2},
};
enum { SCHEDULES = sizeof schedules / sizeof schedules[0] };

static struct action_lists some_rows(uint64_t *seed) {
  size_t which = draw(seed, SCHEDULES);
  uint32_t ranks = 2 + (uint32_t)draw(seed, 3),
           microbatches = ranks * (1 + (uint32_t)draw(seed, 2));
  return make_rows(schedules[which].schedule, schedules[which].warmup, schedules[which].split,
                   ranks, schedules[which].stages, microbatches);
}

static void schedules_are_accepted(void **state) {
  (void)state;
  for (size_t which = 0; which < SCHEDULES; which++)
    for (uint32_t ranks = 1; ranks <= 6; ranks++)
      for (uint32_t rounds = 1; rounds <= 3; rounds++) {
        struct pen_problem problem = {.rank = PEN_NONE};
        struct action_lists rows =
            make_rows(schedules[which].schedule, schedules[which].warmup, schedules[which].split,
                      ranks, schedules[which].stages, rounds * ranks);
        if (!verify(&rows, &problem))
          fail_msg("%s %u ranks %u microbatches: rank %u action %u: %s", schedules[which].schedule,
                   ranks, rounds * ranks, problem.rank, problem.action, problem.reason);
        pen_free_all();
      }
}

/* ---- one defect at a time, each with its message ---- */

static uint32_t some_rank(const struct action_lists *rows, uint64_t *seed) {
  return (uint32_t)draw(seed, rows->partition->rank_count);
}

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
  uint32_t rank = some_rank(rows, seed);
  take_out(rows, rank, (uint32_t)draw(seed, rows->count[rank]));
  return true;
}

static bool doubled(struct action_lists *rows, uint64_t *seed) {
  uint32_t rank = some_rank(rows, seed);
  struct pen_action action = rows->action[rank][draw(seed, rows->count[rank])];
  insert(rows, rank, (uint32_t)draw(seed, rows->count[rank] + 1), action);
  return true;
}

static bool backward_before_forward(struct action_lists *rows, uint64_t *seed) {
  uint32_t rank = some_rank(rows, seed), index = some_of(rows, rank, PEN_B, PEN_I, seed);
  struct pen_action action = take_out(rows, rank, index);
  insert(rows, rank, find(rows, rank, PEN_F, action.stage, action.microbatch), action);
  return true;
}

static bool weights_before_input(struct action_lists *rows, uint64_t *seed) {
  uint32_t rank = some_rank(rows, seed), index = some_of(rows, rank, PEN_W, PEN_W, seed);
  if (index == PEN_NONE) return false;
  struct pen_action action = take_out(rows, rank, index);
  insert(rows, rank, find(rows, rank, PEN_I, action.stage, action.microbatch), action);
  return true;
}

static bool wrong_rank(struct action_lists *rows, uint64_t *seed) {
  uint32_t rank = some_rank(rows, seed);
  struct pen_action action = take_out(rows, rank, (uint32_t)draw(seed, rows->count[rank]));
  rank = (rank + 1) % rows->partition->rank_count;
  insert(rows, rank, (uint32_t)draw(seed, rows->count[rank] + 1), action);
  return true;
}

/* Two sends of one kind and stage change places, with what they need moved before both. */
static bool crossed_sends(struct action_lists *rows, uint64_t *seed) {
  uint32_t rank = some_rank(rows, seed), first = some_of(rows, rank, PEN_SEND_F, PEN_SEND_F, seed),
           second = PEN_NONE;
  if (first == PEN_NONE) return false;
  for (uint32_t index = first + 1; index < rows->count[rank] && second == PEN_NONE; index++)
    if (rows->action[rank][index].kind == PEN_SEND_F &&
        rows->action[rank][index].stage == rows->action[rank][first].stage)
      second = index;
  if (second == PEN_NONE) return false;
  struct pen_action action = take_out(rows, rank, first);
  insert(rows, rank, second, action);
  return true;
}

static bool send_before_result(struct action_lists *rows, uint64_t *seed) {
  uint32_t rank = some_rank(rows, seed), index = some_of(rows, rank, PEN_SEND_F, PEN_SEND_F, seed);
  if (index == PEN_NONE) return false;
  struct pen_action action = take_out(rows, rank, index);
  insert(rows, rank, find(rows, rank, PEN_F, action.stage, action.microbatch), action);
  return true;
}

static bool receive_after_use(struct action_lists *rows, uint64_t *seed) {
  uint32_t rank = some_rank(rows, seed), index = some_of(rows, rank, PEN_RECV_F, PEN_RECV_F, seed);
  if (index == PEN_NONE) return false;
  struct pen_action action = take_out(rows, rank, index);
  insert(rows, rank, find(rows, rank, PEN_F, action.stage, action.microbatch) + 1, action);
  return true;
}

static bool needless_message(struct action_lists *rows, uint64_t *seed) {
  uint32_t last = rows->partition->stage_count - 1, rank = rows->partition->rank_of[last];
  insert(
      rows, rank, rows->count[rank],
      (struct pen_action){.kind = PEN_SEND_F,
                          .stage = (uint16_t)last,
                          .microbatch = (uint32_t)draw(seed, rows->partition->microbatch_count)});
  return true;
}

static bool whole_and_split(struct action_lists *rows, uint64_t *seed) {
  uint32_t rank = some_rank(rows, seed), index = some_of(rows, rank, PEN_B, PEN_B, seed);
  if (index == PEN_NONE) return false;
  struct pen_action action = rows->action[rank][index];
  action.kind = PEN_W;
  insert(rows, rank, index + 1, action);
  return true;
}

static bool no_microbatch(struct action_lists *rows, uint64_t *seed) {
  uint32_t rank = some_rank(rows, seed);
  rows->action[rank][draw(seed, rows->count[rank])].microbatch = rows->partition->microbatch_count;
  return true;
}

static bool no_stage(struct action_lists *rows, uint64_t *seed) {
  uint32_t rank = some_rank(rows, seed);
  rows->action[rank][draw(seed, rows->count[rank])].stage = (uint16_t)rows->partition->stage_count;
  return true;
}

static bool no_kind(struct action_lists *rows, uint64_t *seed) {
  uint32_t rank = some_rank(rows, seed);
  rows->action[rank][draw(seed, rows->count[rank])].kind = PEN_ACTION_KINDS;
  return true;
}

static bool early_end(struct action_lists *rows, uint64_t *seed) {
  uint32_t rank = some_rank(rows, seed);
  insert(rows, rank, (uint32_t)draw(seed, rows->count[rank]),
         (struct pen_action){.kind = PEN_UPDATE});
  return true;
}

static bool late_wait(struct action_lists *rows, uint64_t *seed) {
  uint32_t rank = some_rank(rows, seed), index = some_of(rows, rank, PEN_RECV_F, PEN_RECV_F, seed);
  if (index == PEN_NONE) return false;
  struct pen_action action = rows->action[rank][index];
  action.kind = PEN_WAIT_F;
  insert(rows, rank,
         draw(seed, 2) ? index : find(rows, rank, PEN_F, action.stage, action.microbatch) + 1,
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
        bool accepted = verify(&rows, &problem);
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
  *row = find(n->rows, *rank, mate[action->kind], (uint32_t)stage, action->microbatch);
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
      uint32_t rank = some_rank(&rows, &seed), from = (uint32_t)draw(&seed, rows.count[rank]);
      uint32_t to = from + (uint32_t)draw(&seed, 5);
      struct pen_action action = take_out(&rows, rank, from);
      insert(&rows, rank, to > rows.count[rank] ? rows.count[rank] : to, action);
    }
    bool fine = verify(&rows, &problem), deadlock = strstr(problem.reason, "deadlock") != NULL;
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
  if (verify(rows, &problem)) fail_msg("accepted, wanted \"%s\"", reason);
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

/* ---- text ---- */

static void printed_orders_read_back(void **state) {
  (void)state;
  uint64_t seed = 5;
  for (unsigned round = 0; round < 50; round++) {
    struct action_lists rows = some_rows(&seed);
    bool zigzag = rows.partition->stages_per_rank == 2 &&
                  rows.partition->rank_of[rows.partition->rank_count] != 0;
    char *text = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);
    uint32_t ranks = rows.partition->rank_count;
    struct pen_rank_program *list = pen_new(ranks, sizeof *list);
    for (uint32_t rank = 0; rank < ranks; rank++)
      list[rank] =
          (struct pen_rank_program){.actions = rows.action[rank], .action_count = rows.count[rank]};
    pen_actions_print(file, list, ranks);
    fclose(file);
    struct action_lists again =
        read_rows(text, rows.partition->rank_count, rows.partition->stages_per_rank,
                  rows.partition->microbatch_count, zigzag);
    free(text);
    for (uint32_t rank = 0; rank < rows.partition->rank_count; rank++) {
      assert_int_equal(rows.count[rank], again.count[rank]);
      for (uint32_t index = 0; index < rows.count[rank]; index++) {
        assert_int_equal(rows.action[rank][index].kind, again.action[rank][index].kind);
        assert_int_equal(rows.action[rank][index].stage, again.action[rank][index].stage);
        assert_int_equal(rows.action[rank][index].microbatch, again.action[rank][index].microbatch);
      }
    }
    pen_free_all();
  }
}

/* The message and status with which a bad text ends the generator. */
static void expect_stop(const char *text, int wanted_status, const char *words) {
  int ends[2], status;
  char message[512] = "";
  assert_int_equal(pipe(ends), 0);
  fflush(NULL);
  pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    struct action_lists rows;
    if (text)
      rows = read_rows(text, 2, 1, 2, false);
    else
      pen_actions_read("/nonexistent/actions", make_partition(2, 1, 2, false), &rows.action,
                       &rows.count);
    _exit(0);
  }
  close(ends[1]);
  ssize_t length = read(ends[0], message, sizeof message - 1);
  message[length > 0 ? length : 0] = 0;
  close(ends[0]);
  waitpid(child, &status, 0);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != wanted_status || !strstr(message, words))
    fail_msg("status %d, \"%s\", wanted %d, \"%s\"", WEXITSTATUS(status), message, wanted_status,
             words);
}

static void bad_texts_are_refused(void **state) {
  (void)state;
  expect_stop(NULL, PEN_EXIT_NO_INPUT, "/nonexistent/actions: No such file");
  expect_stop("0: 0F0\n1: 1F0 1X0\n", PEN_EXIT_DATA, ": rank 1, action 1 (1X0): no action such as");
  expect_stop("0: 0F0 0F\n1:\n", PEN_EXIT_DATA, ": rank 0, action 1 (0F): no action such as");
  expect_stop("0: 0F0|\n1:\n", PEN_EXIT_DATA, "rank 0, action 1 (): no action such as");
  expect_stop("0: 0F0x\n1:\n", PEN_EXIT_DATA, ": rank 0, action 0 (0F0x): no action such as");
  expect_stop("0: 0WAIT_F0\n1:\n", PEN_EXIT_DATA, "): no action such as");
  expect_stop("0: 0F99999999999999999999\n1:\n", PEN_EXIT_DATA, "): no action such as");
  expect_stop("0: 0F0\n\n# more\nzero: 1F0\n", PEN_EXIT_DATA, ":4: \"zero: 1F0");
  expect_stop("0: 0F0\n", PEN_EXIT_DATA, "rank 1 has no line");
  expect_stop("0: 0F0\n0: 0F1\n1:\n", PEN_EXIT_DATA, ":2: rank 0 has a line already");
  expect_stop("0:\n1:\n2:\n", PEN_EXIT_DATA, ":3: there is no rank 2");
  expect_stop("0: 0F0 1F0\n1:\n", PEN_EXIT_DATA, "rank 0, action 1 (1F0): stage 1 is on rank 1");
  expect_stop("0: 7F0\n1:\n", PEN_EXIT_DATA, "rank 0, action 0 (7F0): there is no stage 7");
  expect_stop("0: 0F2\n1:\n", PEN_EXIT_DATA, "rank 0, action 0 (0F2): there is no microbatch 2");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(schedules_are_accepted),
      cmocka_unit_test(defects_have_their_messages),
      cmocka_unit_test(verdicts_agree_with_a_naive_model),
      cmocka_unit_test(deadlocks_name_the_waiting_actions),
      cmocka_unit_test(send_hazards_can_deadlock),
      cmocka_unit_test(printed_orders_read_back),
      cmocka_unit_test(bad_texts_are_refused),
  };
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  pen_free_all();
  return failed != 0;
}
