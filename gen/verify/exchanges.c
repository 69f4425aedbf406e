/* exchanges.c: do the tensor ranks of a rank exchange what they should, whatever the others do at
 * the same time?
 *
 * All members run the same ops, with signals after their puts: a member that begins exchange n has
 * waited for the signals that the others gave in exchange n-1, so each of them is past its last op
 * of exchange n-2. (ops.def says what the ops do.) From that, with the rule that its messages name:
 *
 *   exchanged   a slot is not in use when another member writes to it. Exchanges take the two sets
 *               of slots alternately, from the first set on in each program, which has an even
 * number of them; what an exchange has put is read before the next begins, in the same program; no
 * other op writes there; a slot is the member's own, and large enough
 *
 * No deadlock: a member waits only for what the others do at the same place of the same list, or
 * before it. So whatever order runs the lists of one member to their ends, with messages and
 * collectives (deadlock.c, replicas.c), runs those of all members side by side.
 *
 * That what is exchanged is summed once, and in order, is part of "whole" (pieces.c). */
#include "gen/verify/exchanges.h"

#include "gen/base/arena.h"
#include "gen/model/gradient_rules.h"
#include "gen/model/op_signature.h"

bool pen_puts_values(int kind) {
  return kind == PEN_OP_ALL_GATHER_PART || kind == PEN_OP_ALL_TO_ALL_PART ||
         kind == PEN_OP_ALL_GATHER_RUNS;
}

void pen_exchanges_open(struct pen_exchanges *e, const struct pen_plan *plan, uint32_t rank,
                        const struct pen_rank_program *tables) {
  *e = (struct pen_exchanges){.tables = tables,
                              .members = pen_group_size(plan, PEN_TENSOR),
                              .slot_bytes = plan->memory[rank].exchange_bytes /
                                            (2 * (uint64_t)pen_group_size(plan, PEN_TENSOR)),
                              .of = pen_new((size_t)tables->tensor_count + 1, sizeof *e->of)};
}

void pen_exchanges_close(struct pen_exchanges *e) { pen_free(e->of); }

void pen_exchanges_start(struct pen_exchanges *e) {
  for (uint32_t tensor = 0; e->begun > 0 && tensor < e->tables->tensor_count; tensor++)
    e->of[tensor] = 0;
  e->begun = 0;
  e->parts = e->members;
}

/* The next exchange begins. */
static const char *begin(struct pen_exchanges *e, uint32_t parts) {
  if (e->parts != e->members) return "which begins before the last exchange is complete";
  e->begun++;
  e->parts = parts;
  return NULL;
}

/* Is it the same exchange as the part before it? */
static bool continues(const struct pen_exchanges *e, uint32_t index) {
  const struct pen_op *op = &e->tables->ops[index], *last = &e->tables->ops[e->op];
  return index == e->op + 1 && op->kind == last->kind && op->operand[0] == last->operand[0];
}

/* The part of one member, or of all at once. */
static const char *take_part(struct pen_exchanges *e, uint32_t index) {
  const struct pen_op *op = &e->tables->ops[index];
  const struct pen_tensor *to = &e->tables->tensors[op->operand[1]];
  const uint32_t slots = op->kind == PEN_OP_ALL_GATHER_RUNS ? e->members : 1;
  const uint64_t slot = (uint64_t)((e->begun - 1) % 2) * e->members + e->parts;
  if (pen_op_member(op->kind, op->dim) != e->parts)
    return pen_text("which is out of order: expected tensor rank %u", e->parts);
  if (e->parts > 0 && !continues(e, index))
    return "which belongs to another exchange than the part before it";
  if (to->base != PEN_BASE_EXCHANGE || to->offset != slot * e->slot_bytes)
    return "whose output is not in the next slot of the tensor rank";
  if (to->bytes > slots * e->slot_bytes) return "whose slot is too small";
  e->of[op->operand[1]] = e->begun;
  e->op = index;
  e->parts += slots;
  return NULL;
}

const char *pen_exchange_op(struct pen_exchanges *e, uint32_t index) {
  const struct pen_op *op = &e->tables->ops[index];
  if (e->members == 1) return "which sends to other tensor ranks, but there is one";
  if (op->kind == PEN_OP_SIGNAL_MEMBERS) return begin(e, e->members);
  const char *wrong = pen_op_member(op->kind, op->dim) == 0 ? begin(e, 0)
                      : e->begun == 0 ? "which continues an exchange, but none has begun"
                                      : NULL;
  return wrong ? wrong : take_part(e, index);
}

const char *pen_exchange_read(const struct pen_exchanges *e, uint32_t tensor) {
  if (e->tables->tensors[tensor].base != PEN_BASE_EXCHANGE) return NULL;
  if (e->of[tensor] == 0) return "which no exchange of the program has filled";
  return e->of[tensor] == e->begun ? NULL : "which other tensor ranks may already overwrite";
}

const char *pen_exchange_written(const struct pen_exchanges *e, uint32_t tensor) {
  return e->tables->tensors[tensor].base == PEN_BASE_EXCHANGE ? "which only exchanges may write"
                                                              : NULL;
}

const char *pen_exchanges_end(const struct pen_exchanges *e) {
  if (e->parts != e->members) return "its last exchange is not complete";
  return e->begun % 2 ? "it has an odd number of exchanges: the next program begins with the same "
                        "slots"
                      : NULL;
}
