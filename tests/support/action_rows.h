/* action_rows.h: the actions of all ranks without a plan, as in a file of --actions: of schedules,
 * of text, and changed. */
#ifndef PEN_ACTION_ROWS_H
#define PEN_ACTION_ROWS_H

#include "gen/partition/partition.h"
#include "gen/verify/verify.h"
#include "runtime/plan/plan.h"
#include "tests/support/plans.h"

/* The actions of all ranks, as in a file of --actions. */
struct action_lists {
  struct pen_partition *partition;
  struct pen_action **action;
  uint32_t *count;
};

/* Schedules that train. */
struct row_schedule {
  const char *schedule;
  int warmup;
  bool split;
  uint32_t stages;
};
enum { ROW_SCHEDULES = 8 };
extern const struct row_schedule row_schedules[ROW_SCHEDULES];

/* A schedule's order with its messages, without waits and the step's end. */
struct action_lists make_rows(const char *schedule, int warmup, bool split, uint32_t ranks,
                              uint32_t stages, uint32_t microbatches);

/* Those of a random schedule, of 2 to 4 ranks. */
struct action_lists some_rows(uint64_t *seed);

/* Rows from the text of an actions file, through the reader. */
struct action_lists read_rows(const char *text, uint32_t ranks, uint32_t stages,
                              uint32_t microbatches, bool zigzag);

/* pen_verify_actions() of them. */
bool rows_verify(const struct action_lists *rows, struct pen_problem *problem);

void rows_insert(struct action_lists *rows, uint32_t rank, uint32_t at, struct pen_action action);
struct pen_action rows_take_out(struct action_lists *rows, uint32_t rank, uint32_t at);

/* The index of an action of a rank; PEN_NONE: it has none such. */
uint32_t rows_find(const struct action_lists *rows, uint32_t rank, int kind, uint32_t stage,
                   uint32_t microbatch);

uint32_t rows_some_rank(const struct action_lists *rows, uint64_t *seed);

#endif
