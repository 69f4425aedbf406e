/* op_changes.h: changes to operands of ops, and to ties, for tests of the verifier. */
#ifndef PEN_OP_CHANGES_H
#define PEN_OP_CHANGES_H

#include "tests/support/collective_plans.h"

/* Turns a part to a rank of the train profile. */
void turn_to_training(struct broken_plan *p, uint32_t rank);

/* An op of some kinds on some rank; null: there is none. */
struct pen_op *op_of_kinds(struct broken_plan *p, const int *kind, size_t count);
#define OP_OF(p, ...) \
  op_of_kinds(p, (const int[]){__VA_ARGS__}, sizeof((const int[]){__VA_ARGS__}) / sizeof(int))

/* The index of an operand. */
int operand_named(const struct pen_op *op, const char *operand);

/* Another op of the same kind in the same program whose operand is another tensor of the same dtype
 * and size; null: there is none. */
struct pen_op *other_op(struct broken_plan *p, const struct pen_op *op, int k);

/* An op of the kinds and another one of the same program exchange an operand, or the first takes
 * the other's. */
bool takes_anothers(struct broken_plan *p, const int *kind, size_t count, const char *operand,
                    bool exchanges);
#define TAKES(name, operand, exchanges, ...)                                           \
  static bool name(struct broken_plan *p) {                                            \
    static const int kinds[] = {__VA_ARGS__};                                          \
    return takes_anothers(p, kinds, sizeof kinds / sizeof *kinds, operand, exchanges); \
  }

/* Two operands of one op exchange their tensors. */
bool exchange_own_operands(struct broken_plan *p, int kind, const char *one, const char *other);

/* An op of a profile of generation, which the part is turned to; null: no rank has one. */
struct pen_op *op_of_generation(struct broken_plan *p, int kind);

/* An op of generation takes the operand of another split's. */
bool generation_takes(struct broken_plan *p, int kind, const char *operand);

/* The ties of a plan that trains, or null. `apart`: their messages, too. */
struct pen_tie *some_ties(struct broken_plan *p, bool apart);

/* Their message with the gradient, or with the value; null: the plan has none. */
struct pen_message *message_of_ties(struct broken_plan *p);

#endif
