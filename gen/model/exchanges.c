/* exchanges.c: the slots of the exchanges between tensor ranks (see exchanges.h).
 *
 * A program may follow any other, so each begins with the same set: it has an even number of
 * exchanges. That keeps the slots in the tables; nothing has to count exchanges over actions. */
#include "gen/model/exchanges.h"

#include "gen/base/arena.h"
#include "gen/model/gradient_rules.h"
#include "gen/model/op_signature.h"
#include "runtime/plan/plan.h"

bool pen_op_exchanges(int kind) {
  return kind == PEN_OP_ALL_GATHER_PARTIAL || kind == PEN_OP_ALL_TO_ALL_PARTIAL ||
         kind == PEN_OP_ALL_GATHER_SEQUENCE;
}

size_t pen_exchange_ops(const struct pen_graph *graph, const struct pen_op *op) {
  if (!pen_op_exchanges(op->kind)) return 0;
  return op->kind == PEN_OP_ALL_GATHER_SEQUENCE ? 1 : pen_graph_tensor_ranks(graph);
}

/* Leaves out what is gathered for an op that is another's now (fused_loss.h). */
static void drop_unread(const struct pen_graph *graph, struct pen_op_list *program) {
  bool *read = pen_new(graph->value_count + 1, sizeof *read);
  size_t kept = 0;
  for (size_t i = 0; i < program->count; i++)
    for (uint32_t k = 0; k < pen_signature_of(program->op[i].kind)->input_count; k++)
      if (program->op[i].operand[k] != PEN_NONE) read[program->op[i].operand[k]] = true;
  for (size_t i = 0; i < program->count; i++)
    if (program->op[i].kind != PEN_OP_ALL_GATHER_SEQUENCE || read[program->op[i].operand[1]])
      program->op[kept++] = program->op[i];
  program->count = kept;
  pen_free(read);
}

static void number_program(struct pen_graph *graph, struct pen_op_list *program) {
  const uint32_t tensor_ranks = pen_graph_tensor_ranks(graph);
  uint32_t begun = 0;
  drop_unread(graph, program);
  for (size_t i = 0; i < program->count; i++) {
    const struct pen_op *op = &program->op[i];
    if (!pen_op_exchanges(op->kind)) continue;
    const uint32_t tensor_rank = pen_op_tensor_rank(op->kind, op->dim);
    begun += tensor_rank == 0;
    struct pen_value *value = &graph->value[op->operand[1]];
    value->is_slot = true;
    value->slot = (begun - 1) % 2 * tensor_ranks + tensor_rank;
  }
  if (begun % 2) pen_op_append(program, PEN_OP_SIGNAL_TENSOR);
}

void pen_number_exchanges(struct pen_graph *graph) {
  for (int p = 0; p < PEN_PROGRAMS; p++) number_program(graph, &graph->program[p]);
}
