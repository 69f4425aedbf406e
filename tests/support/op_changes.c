/* op_changes.c: changes to operands of the ops of a train profile. */
#include "tests/support/op_changes.h"

void turn_to_training(struct broken_plan *p, uint32_t rank) {
  p->profile = WRITABLE(struct pen_profile, &p->plan->profiles[0]);
  turn_to_rank(p, rank);
}

/* An op of some kinds on some rank; null: there is none. */
struct pen_op *op_of_kinds(struct broken_plan *p, const int *kind, size_t count) {
  const uint32_t first = (uint32_t)draw(p->seed, p->plan->rank_count);
  for (uint32_t n = 0; n < p->plan->rank_count; n++) {
    turn_to_training(p, (first + n) % p->plan->rank_count);
    const size_t from = draw(p->seed, count);
    for (size_t k = 0; k < count; k++) {
      uint32_t op = op_of_kind(p, kind[(from + k) % count]);
      if (op != PEN_NONE) return ops_of(p) + op;
    }
  }
  return NULL;
}

int operand_named(const struct pen_op *op, const char *operand) {
  return pen_signature_operand(pen_signature_of(op->kind), operand);
}

/* Another op of the same kind in the same program whose operand is another tensor of the same dtype
 * and size; null: there is none. */
struct pen_op *other_op(struct broken_plan *p, const struct pen_op *op, int k) {
  const struct pen_tensor *tensors = p->tables->tensors;
  const struct pen_program *program = program_of(p, (uint32_t)(op - ops_of(p)));
  struct pen_op *found = NULL;
  if (op->operand[k] == PEN_NONE) return NULL;
  const struct pen_tensor *own = &tensors[op->operand[k]];
  for (uint32_t n = 0, seen = 0; n < program->op_count; n++) {
    struct pen_op *other = ops_of(p) + program->first_op + n;
    if (other->kind != op->kind || other->operand[k] == PEN_NONE ||
        other->operand[k] == op->operand[k])
      continue;
    const struct pen_tensor *theirs = &tensors[other->operand[k]];
    if (theirs->dtype != own->dtype || theirs->bytes != own->bytes ||
        strcmp(theirs->name, own->name) == 0)
      continue;
    if (draw(p->seed, ++seen) == 0) found = other;
  }
  return found;
}

static void exchange_operands(uint32_t *a, uint32_t *b) {
  uint32_t kept = *a;
  *a = *b;
  *b = kept;
}

/* An op of the kinds and another one of the same program exchange an operand, or the first takes
 * the other's. */
bool takes_anothers(struct broken_plan *p, const int *kind, size_t count, const char *operand,
                    bool exchanges) {
  for (unsigned tries = 0; tries < 20; tries++) {
    struct pen_op *op = op_of_kinds(p, kind, count);
    if (!op) return false;
    int k = operand_named(op, operand);
    struct pen_op *other = other_op(p, op, k);
    if (!other) continue;
    if (exchanges)
      exchange_operands(&op->operand[k], &other->operand[k]);
    else
      op->operand[k] = other->operand[k];
    return true;
  }
  return false;
}

/* Two operands of one op exchange their tensors. */
bool exchange_own_operands(struct broken_plan *p, int kind, const char *one, const char *other) {
  struct pen_op *op = op_of_kinds(p, &kind, 1);
  if (op)
    exchange_operands(&op->operand[operand_named(op, one)], &op->operand[operand_named(op, other)]);
  return op;
}
