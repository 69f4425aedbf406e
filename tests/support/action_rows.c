/* action_rows.c: actions without a plan (see action_rows.h). */
#include "tests/support/action_rows.h"

#include <unistd.h>

#include "gen/base/arena.h"
#include "gen/lower/lower.h"
#include "gen/partition/training.h"
#include "gen/schedule/action_text.h"
#include "gen/schedule/order.h"
#include "gen/timing/timing.h"

const struct row_schedule row_schedules[ROW_SCHEDULES] = {
    {"gpipe", 0, false, 1},      {"1f1b", 1, false, 1},          {"1f1b", 2, false, 1},
    {"1f1b", 0, true, 1},        {"1f1b", 0, false, 2},          {"1f1b", 0, true, 2},
    {"looped_bfs", 0, false, 3}, {"zero_bubble_v", 0, false, 2},
};

struct action_lists make_rows(const char *schedule, int warmup, bool split, uint32_t ranks,
                              uint32_t stages, uint32_t microbatches) {
  struct action_lists rows;
  struct pen_order *order =
      make_order(schedule, warmup, split, ranks, stages, microbatches, &rows.partition);
  struct pen_stage_cost *cost = pen_new(rows.partition->stage_count, sizeof *cost);
  for (uint32_t stage = 0; stage < rows.partition->stage_count; stage++)
    cost[stage] = (struct pen_stage_cost){1, 1, 1, 0, 0, 0, {0}, {0}};
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

bool rows_verify(const struct action_lists *rows, struct pen_problem *problem) {
  const struct pen_partition *p = rows->partition;
  return pen_verify_actions(
      &(struct pen_action_lists){rows->action, rows->count, p->rank_of, p->rank_count,
                                 p->stage_count, p->microbatch_count, PEN_TRAIN},
      problem);
}

void rows_insert(struct action_lists *rows, uint32_t rank, uint32_t at, struct pen_action action) {
  memmove(rows->action[rank] + at + 1, rows->action[rank] + at,
          (rows->count[rank]++ - at) * sizeof action);
  rows->action[rank][at] = action;
}

struct pen_action rows_take_out(struct action_lists *rows, uint32_t rank, uint32_t at) {
  struct pen_action action = rows->action[rank][at];
  memmove(rows->action[rank] + at, rows->action[rank] + at + 1,
          (--rows->count[rank] - at) * sizeof action);
  return action;
}

uint32_t rows_find(const struct action_lists *rows, uint32_t rank, int kind, uint32_t stage,
                   uint32_t microbatch) {
  for (uint32_t index = 0; index < rows->count[rank]; index++) {
    const struct pen_action *action = &rows->action[rank][index];
    if (action->kind == kind && action->stage == stage && action->microbatch == microbatch)
      return index;
  }
  return PEN_NONE;
}

struct action_lists read_rows(const char *text, uint32_t ranks, uint32_t stages,
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

struct action_lists some_rows(uint64_t *seed) {
  size_t which = draw(seed, ROW_SCHEDULES);
  uint32_t ranks = 2 + (uint32_t)draw(seed, 3),
           microbatches = ranks * (1 + (uint32_t)draw(seed, 2));
  return make_rows(row_schedules[which].schedule, row_schedules[which].warmup,
                   row_schedules[which].split, ranks, row_schedules[which].stages, microbatches);
}

uint32_t rows_some_rank(const struct action_lists *rows, uint64_t *seed) {
  return (uint32_t)draw(seed, rows->partition->rank_count);
}
