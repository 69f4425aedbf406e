/* broken.h: finished plans to change, and a runner that expects the verifier to reject each change.
 */
#ifndef PEN_BROKEN_H
#define PEN_BROKEN_H

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "gen/model/op_signature.h"
#include "gen/base/arena.h"
#include "gen/verify/verify.h"
#include "runtime/plan/plan.h"
#include "tests/support/plan_fixture.h"

/* Small plans of all kinds; topology_text() takes these columns. */
struct plan_shape {
  const char *family, *schedule;
  uint32_t ranks, stages, microbatches;
  const char *more;
};
enum { PLAN_SHAPES = 25 };
extern const struct plan_shape plan_shapes[PLAN_SHAPES];

/* The finished plan of plan_shapes[which]. */
struct pen_plan *shape_plan(size_t which);

/* Gives write access to the tables of a plan, which are const for its readers. */
#define WRITABLE(type, pointer) ((type *)(uintptr_t)(pointer))

/* The part of a plan that receives a defect. */
struct broken_plan {
  struct pen_plan *plan;
  struct pen_profile *profile;
  uint32_t rank;
  struct pen_rank_program *tables;
  struct pen_action *action;
  uint64_t *seed;
};

/* A random action of the kinds [first, last], or PEN_NONE. */
uint32_t some_row(struct broken_plan *p, int first, int last);

uint32_t find_row(const struct broken_plan *p, int kind, uint32_t stage, uint32_t microbatch);

struct pen_message *some_message(struct broken_plan *p);

struct pen_op *ops_of(const struct broken_plan *p);

/* An op of a random program that actions run. */
struct pen_op *some_op(struct broken_plan *p);

/* Gives an action its own frame with one base changed. */
void set_base(struct broken_plan *p, uint32_t row, int base, uint64_t offset);

uint64_t base_of(const struct broken_plan *p, uint32_t row, int base);

/* Changes one base of all actions of a stage and microbatch. */
void set_all_bases(struct broken_plan *p, uint32_t stage, uint32_t microbatch, int base,
                   uint64_t offset);

bool uses_base(const struct broken_plan *p, uint32_t row, int base);

enum { REASONS_MAX = 24 };

struct defect {
  const char *name;
  bool (*apply)(struct broken_plan *part); /* false: the plan has no place for it */
  const char *reasons[REASONS_MAX];        /* texts, one of which must be in the message */
};

/* Generating a plan takes far longer than changing it: it is generated once and changed in
 * children, which write the result to shared memory. */
void *shared_memory(size_t bytes);

/* True in a child, which ends by _exit(0). */
bool in_child(void);

/* The child's status as from wait(): 0 if all went well. */
int await_child(void);

/* Applies each defect to each plan, four times or PEN_BREAK_ROUNDS times; all must be rejected with
 * their message. */
void reject_all(const struct defect *defects, size_t count, uint64_t seed);

#endif
