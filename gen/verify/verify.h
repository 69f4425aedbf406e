/* verify.h: checks a finished plan, or bare lists of actions, independently of the passes that made
 * them.
 *
 * In: a struct pen_plan, or lists of actions. Out: nothing, or the first problem. The verifier
 * reads runtime/plan/, the signatures and gradient rules of the ops (model/op_signature.h,
 * model/gradient_rules.h) and gen/base/; it shares no code with the passes that it checks.
 *
 * pen_verify() proves, in this order, each step resting on those before it:
 *   actions     every stage and microbatch has one F and one B (or one I and one W), in order, on
 *               the rank of the stage; every message is sent once, after it is produced, and
 *               received once, before it is used; on each directed pair of ranks messages are
 *               received in the order in which they are sent (actions.c)
 *   tables      every index, dtype, shape, address, count and sequence number (tables.c)
 *   replicas    what a rank reads of its peers is complete, and is cleared only after all have read
 *               it (replicas.c)
 *   memory      over two successive steps every read finds, in all its bytes, the value that it
 *               means (memory.c)
 *   sums        every stage adds its microbatches in the plan's order; what NORM and UPDATE read is
 *               the sum over all replicas, and the norm counts every element once (gradient_sums.c)
 *   puts        no deadlock with one-sided puts and credits (deadlock.c)
 *   rendezvous  no deadlock if a send ends only when its receive does, with one lane a directed
 *               pair of ranks and with one lane a rank; an action also waits for sends that
 *               still read what it overwrites (deadlock.c)
 *   pointwise   the gradient of each program of POINTWISE is its derivative (pointwise.c)
 *   profiles    a step of one profile may follow a step of another (profiles.c)
 *   gradients   what each microbatch adds to the gradient of a weight, and what each stage sends
 *               back, is the derivative of its own forward by the rules of ops.def; the loss is
 *               scaled once, by the share of its targets; training and evaluation have one forward
 *               (gradients.c), and generation has its rows (generation.c)
 *
 * One step suffices for deadlock: nothing in a step needs a later step, so if each step alone
 * completes, so does their sequence. Two steps suffice for memory: what a step finds in memory was
 * left by itself or by the step before. */
#ifndef PEN_VERIFY_H
#define PEN_VERIFY_H

#include <stdbool.h>
#include <stdint.h>

#include "gen/verify/problem.h"
#include "runtime/plan/plan.h"

/* Bare actions: the columns kind, overlaps, stage and microbatch. WAIT and step-end actions may be
 * absent. */
struct pen_action_lists {
  struct pen_action *const *action; /* [rank][count] */
  const uint32_t *count;            /* [rank] */
  const uint32_t *rank_of;          /* [stage] */
  uint32_t rank_count, stage_count, microbatch_count;
  int profile_kind;
};

/* Checks order, completeness, matching and deadlock of bare actions, before there is any memory.
 * Returns true when there is no problem. */
bool pen_verify_actions(const struct pen_action_lists *lists, struct pen_problem *problem);

/* Checks every profile of a finished plan. Returns true when there is no problem. */
bool pen_verify(const struct pen_plan *plan, struct pen_problem *problem);

#endif
