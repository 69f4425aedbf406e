/* collective_plans.h: random plans with collectives of all kinds, changes to their ops, and a
 * runner that expects the verifier to reject every change. */
#ifndef PEN_COLLECTIVE_PLANS_H
#define PEN_COLLECTIVE_PLANS_H

#include "tests/support/broken.h"

/* A kind of changes. Each instance is a random plan with a random change. */
struct defect_kind {
  const char *name;
  const struct defect *defect;
  size_t count; /* at most DEFECTS_MAX */
};
enum { DEFECTS_MAX = 16 };

/* The main() of a test program: applies 250 changes of each kind, or PEN_BREAK_INSTANCES, prints
 * how often each occurred, and fails unless all are rejected with their message, every plan was
 * accepted before it was changed, and every defect occurred. */
int main_of_kinds(const struct defect_kind *kinds, size_t count, uint64_t seed);

/* The same, each defect being a kind of its own. */
int main_of_defects(const struct defect *defects, size_t count, uint64_t seed);

/* The plans of the program have split weights, in 2 or 4 splits. Before main_of_...(). */
void split_weights_of_plans(void);
/* And they have 2 or 4 tensor ranks, of which the last has fewer tokens. The second: they share the
 * tokens between the matrices, too; else some do. */
void share_splits_of_plans(void);
void share_tokens_of_plans(void);

/* The plans of the program have experts, in one to four slices. Before main_of_...(). */
void give_plans_experts(void);

/* Turns a part to another rank. */
void turn_to_rank(struct broken_plan *p, uint32_t rank);

/* The program that has an op. */
struct pen_program *program_of(const struct broken_plan *p, uint32_t op);

/* Whether the op is the last of its kind, or of `other`, in its program. */
bool is_last_of(const struct broken_plan *p, uint32_t op, int other);

/* A random op of a kind that the rank runs, or PEN_NONE. */
uint32_t op_of_kind(struct broken_plan *p, int kind);

/* The next op of the kind in the program from `op` on, or the last before it; or PEN_NONE. */
uint32_t next_of_kind(const struct broken_plan *p, uint32_t op, int kind);
uint32_t last_before(const struct broken_plan *p, uint32_t op, int kind);

/* The op of a program that writes a tensor, adds to it, or reads it, from op `from` on. */
uint32_t writer_of(const struct broken_plan *p, uint32_t from, uint32_t tensor);
uint32_t adder_of(const struct broken_plan *p, uint32_t from, uint32_t tensor);
uint32_t reader_of(const struct broken_plan *p, uint32_t from, uint32_t tensor);

/* The operand of an op that accumulates, or -1. */
int accumulated_operand(const struct pen_op *op);

/* The row of an op that is a collective. */
struct pen_collective *op_row(const struct broken_plan *p, const struct pen_op *op);

/* Changes the ops of a program. */
void drop_op(struct broken_plan *p, uint32_t op);
void double_op(struct broken_plan *p, uint32_t op);
void move_op(struct broken_plan *p, uint32_t from, uint32_t to);

/* Removes a SIGNAL_PEERS and counts all collectives anew, in programs and actions, so that no
 * number gives it away. */
void drop_signal_and_renumber(struct broken_plan *p, uint32_t op);

/* A tensor of the rank other than `tensor` with its base, dtype and size whose name ends like its
 * own, or PEN_NONE. */
uint32_t tensor_like(struct broken_plan *p, uint32_t tensor);

/* Changes the actions of a rank. */
void drop_action(struct broken_plan *p, uint32_t row);
void double_action(struct broken_plan *p, uint32_t row);
void move_action(struct broken_plan *p, uint32_t from, uint32_t to);
uint32_t first_row(const struct broken_plan *p, int kind);
uint32_t last_compute_row(const struct broken_plan *p);

#endif
