/* broken.h: finished plans to break, and the runner that expects the verifier to reject each. */
#ifndef PEN_TESTS_BROKEN_H
#define PEN_TESTS_BROKEN_H

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "gen/model/op_signature.h"
#include "gen/base/arena.h"
#include "gen/verify/verify.h"
#include "runtime/plan/plan.h"
#include "tests/support/plan_fixture.h"

/* Small plans of every kind to break: topology_text() takes these columns. */
struct plan_shape {
  const char *family, *schedule;
  uint32_t ranks, stages, microbatches;
  const char *more;
};
enum { PLAN_SHAPES = 23 };
extern const struct plan_shape plan_shapes[PLAN_SHAPES];

/* The finished plan of plan_shapes[which]. */
struct pen_plan *shape_plan(size_t which);

/* A plan's tables are const to its readers; a test that breaks them is none. */
#define WRITABLE(type, pointer) ((type *)(uintptr_t)(pointer))

/* The part of a plan that a defect is put into. */
struct broken_plan {
  struct pen_plan *plan;
  struct pen_profile *profile;
  uint32_t rank;
  struct pen_rank_program *tables;
  struct pen_action *action;
  uint64_t *seed;
};

/* A random row of one of the kinds [first, last], or PEN_NONE. */
uint32_t some_row(struct broken_plan *p, int first, int last);

uint32_t find_row(const struct broken_plan *p, int kind, uint32_t stage, uint32_t microbatch);

struct pen_message *some_message(struct broken_plan *p);

struct pen_op *ops_of(const struct broken_plan *p);

/* An op of a random program that rows run. */
struct pen_op *some_op(struct broken_plan *p);

/* Gives a row a frame of its own with one base moved. */
void set_base(struct broken_plan *p, uint32_t row, int base, uint64_t offset);

uint64_t base_of(const struct broken_plan *p, uint32_t row, int base);

/* Moves one base of all rows of a stage and microbatch. */
void set_all_bases(struct broken_plan *p, uint32_t stage, uint32_t microbatch, int base,
                   uint64_t offset);

bool uses_base(const struct broken_plan *p, uint32_t row, int base);

struct defect {
  const char *name;
  bool (*apply)(struct broken_plan *part); /* false: there was no place for it */
  const char *reasons[10];                 /* words of which one must stand in the message */
};

/* A plan takes far longer to make than to break. So it is made once and broken in children, which
 * leave what came of it in memory that they share with the parent. */
void *shared_memory(size_t bytes);

/* True in a child, which ends by _exit(0). */
bool in_child(void);

/* The child's status as wait() gives it: 0 when all went well. */
int await_child(void);

/* Puts each defect into each shape, four times or PEN_BREAK_ROUNDS times; all must be rejected,
 * with their own words. */
void reject_all(const struct defect *defects, size_t count, uint64_t seed);

#endif
