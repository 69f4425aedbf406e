/* exchanges.c: the slots of the exchanges between tensor ranks (see exchanges.h).
 *
 * A program may follow any other, so each begins with the same set: it has an even number of
 * exchanges. That keeps the slots in the tables; nothing has to count exchanges over actions. */
#include "gen/model/exchanges.h"

#include "runtime/plan/plan.h"

static void number_program(struct pen_graph *graph, struct pen_op_list *program) {
  const uint32_t members = graph->pieces / graph->own_pieces;
  uint32_t begun = 0;
  for (size_t i = 0; i < program->count; i++) {
    const struct pen_op *op = &program->op[i];
    if (op->kind != PEN_OP_ALL_GATHER_PART) continue;
    const uint32_t member = (uint32_t)op->dim[1];
    begun += member == 0;
    struct pen_value *value = &graph->value[op->operand[1]];
    value->is_slot = true;
    value->slot = (begun - 1) % 2 * members + member;
  }
  if (begun % 2) pen_op_append(program, PEN_OP_SIGNAL_MEMBERS);
}

void pen_number_exchanges(struct pen_graph *graph) {
  for (int p = 0; p < PEN_PROGRAMS; p++) number_program(graph, &graph->program[p]);
}
