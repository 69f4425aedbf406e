/* graph.c: adds values and ops to a stage's graph, and counts the floating-point operations of a
 * program. */
#include "gen/model/graph.h"

#include "gen/base/arena.h"
#include "gen/base/error.h"
#include "gen/model/op_signature.h"
#include "gen/topology/topology.h"
#include "runtime/plan/plan.h"

uint32_t pen_graph_value(struct pen_graph *graph, const char *name, uint8_t dtype, uint8_t role,
                         uint64_t elements) {
  PEN_RESERVE(graph->value, graph->value_count + 1);
  struct pen_value *value = &graph->value[graph->value_count];
  *value = (struct pen_value){.name = name,
                              .prefix = graph->prefix,
                              .block = graph->block,
                              .dtype = dtype,
                              .role = role,
                              .elements = elements,
                              .weight = PEN_NONE,
                              .gradient = PEN_NONE,
                              .copy = PEN_NONE,
                              .split = PEN_NONE};
  if (__builtin_mul_overflow(elements, pen_dtype_bytes(dtype), &value->bytes))
    pen_stop(PEN_EXIT_TOPOLOGY, "%s: tensor %s is too large: " PEN_MODEL_SETTINGS,
             graph->topology->path, name);
  value->storage = (uint32_t)graph->value_count;
  return (uint32_t)graph->value_count++;
}

struct pen_op *pen_op_append(struct pen_op_list *list, int kind) {
  PEN_RESERVE(list->op, list->count + 1);
  struct pen_op *op = &list->op[list->count++];
  *op = (struct pen_op){.kind = (uint16_t)kind, .workspace = PEN_NONE};
  for (size_t i = 0; i < PEN_OPERANDS_MAX; i++) op->operand[i] = PEN_NONE;
  return op;
}

double pen_program_flops(const struct pen_op_list *program) {
  double flops = 0;
  for (size_t i = 0; i < program->count; i++)
    flops += pen_signature_flops(pen_signature_of(program->op[i].kind), program->op[i].dim);
  return flops;
}

bool pen_op_reads(const struct pen_op *op, uint32_t value) {
  for (uint32_t k = 0; value != PEN_NONE && k < pen_signature_of(op->kind)->input_count; k++)
    if (op->operand[k] == value) return true;
  return false;
}
