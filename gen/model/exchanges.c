/* exchanges.c: the slots of the exchanges between tensor ranks (see exchanges.h).
 *
 * A program may follow any other, so each begins with the same set: it has an even number of
 * exchanges. That keeps the slots in the tables; nothing has to count exchanges over actions. */
#include "gen/model/exchanges.h"

#include "runtime/plan/plan.h"

struct pen_exchange pen_exchange_at(const struct pen_graph *graph,
                                    const struct pen_op_list *program, size_t op) {
  const struct pen_op *first = &program->op[op];
  const size_t members = pen_graph_tensor_ranks(graph);
  if (first->kind != PEN_OP_ALL_GATHER_PART) return (struct pen_exchange){.op_count = 0};
  return (struct pen_exchange){
      members, (uint64_t)first->dim[0] * pen_dtype_bytes(first->dtype) * (members - 1)};
}

static void number_program(struct pen_graph *graph, struct pen_op_list *program) {
  const uint32_t members = pen_graph_tensor_ranks(graph);
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
