/* op_changes.c: changes to operands of ops, of a train profile or of generation, and to ties. */
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

/* An op of a profile of generation, which the part is turned to; null: no rank has one. */
struct pen_op *op_of_generation(struct broken_plan *p, int kind) {
  const uint32_t profiles = p->plan->profile_count, ranks = p->plan->rank_count,
                 first = (uint32_t)draw(p->seed, profiles * ranks);
  for (uint32_t n = 0; n < profiles * ranks; n++) {
    const uint32_t at = (first + n) % (profiles * ranks);
    const struct pen_profile *profile = &p->plan->profiles[at / ranks];
    if (profile->kind == PEN_TRAIN || profile->kind == PEN_EVAL) continue;
    p->profile = WRITABLE(struct pen_profile, profile);
    turn_to_rank(p, at % ranks);
    const uint32_t op = op_of_kind(p, kind);
    if (op != PEN_NONE) return ops_of(p) + op;
  }
  return NULL;
}

/* Of which split a tensor is, by its name: "weight[1].bf16". */
static char split_of_tensor(const struct broken_plan *p, uint32_t tensor) {
  const char *bracket = strchr(p->tables->tensors[tensor].name, '[');
  return bracket ? bracket[1] : 0;
}

/* An op of generation takes the operand of another split's. */
bool generation_takes(struct broken_plan *p, int kind, const char *operand) {
  for (unsigned tries = 0; tries < 20; tries++) {
    struct pen_op *op = op_of_generation(p, kind);
    const int k = op ? operand_named(op, operand) : 0;
    const struct pen_op *other = op ? other_op(p, op, k) : NULL;
    if (!other || split_of_tensor(p, other->operand[k]) == split_of_tensor(p, op->operand[k]))
      continue;
    op->operand[k] = other->operand[k];
    return true;
  }
  return false;
}

/* The ties of a plan that trains, or null. `apart`: their messages, too. */
struct pen_tie *some_ties(struct broken_plan *p, bool apart) {
  const struct pen_tie *tie = p->plan->ties;
  if (p->plan->tie_count == 0 || p->plan->weights[tie->weight].frozen ||
      (apart && tie->rank == p->plan->weights[tie->weight].rank))
    return NULL;
  turn_to_training(p, tie->rank);
  return WRITABLE(struct pen_tie, tie);
}

struct pen_message *message_of_ties(struct broken_plan *p) {
  if (!some_ties(p, true)) return NULL;
  const uint8_t kind = draw(p->seed, 2) ? PEN_SEND_G : PEN_SEND_V;
  struct pen_message *message = WRITABLE(struct pen_message, p->profile->messages);
  while (message->kind != kind) message++;
  return message;
}
