/* place.c: derives where values lie (see place.h). */
#include "gen/model/place.h"

#include <string.h>

#include "gen/model/op_signature.h"

static bool is_split(const struct pen_graph *graph, uint32_t value) {
  return value != PEN_NONE && graph->value[value].place[PEN_TENSOR] == PEN_SPLIT;
}

/* The first input that is split, of weights if one is; -1: none is. */
static int split_input(const struct pen_graph *graph, const struct pen_op *op) {
  const int count = pen_signature_of(op->kind)->input_count;
  int found = -1;
  for (int k = count; k-- > 0;)
    if (is_split(graph, op->operand[k]) &&
        (found < 0 || graph->value[op->operand[k]].role == PEN_ROLE_WEIGHT ||
         graph->value[op->operand[found]].role != PEN_ROLE_WEIGHT))
      found = k;
  return found;
}

uint32_t pen_split_of_op(const struct pen_graph *graph, const struct pen_op *op) {
  const int split = split_input(graph, op);
  return split < 0 ? PEN_NONE : graph->value[op->operand[split]].split;
}

bool pen_op_shares(const struct pen_graph *graph, const struct pen_op *op, uint32_t k) {
  const uint32_t value = op->operand[k];
  return value != PEN_NONE && graph->value[value].place[PEN_TENSOR] == PEN_WHOLE &&
         pen_split_of_op(graph, op) != PEN_NONE;
}

bool pen_op_gives_partial(const struct pen_graph *graph, const struct pen_op *op, uint32_t k) {
  const struct pen_signature *signature = pen_signature_of(op->kind);
  const int split = split_input(graph, op);
  if (split < 0) return false;
  const struct pen_operand *from = &signature->operand[split], *to = &signature->operand[k];
  const struct pen_value *value = &graph->value[op->operand[split]];
  int axis = from->extent_count - 1; /* of values by columns */
  if (value->role == PEN_ROLE_WEIGHT) {
    const struct pen_weight *weight = &graph->weight[value->weight];
    axis = weight->dim[0] != weight->tensor_dim[0] ? 0 : 1;
  }
  for (int n = 0; n < to->extent_count; n++)
    if (to->extent[n].dim == from->extent[axis].dim) return false;
  return true;
}

void pen_place_output(struct pen_graph *graph, const struct pen_op *op, uint32_t k) {
  const uint32_t split = pen_split_of_op(graph, op);
  struct pen_value *value = &graph->value[op->operand[k]];
  if (split == PEN_NONE) return;
  value->place[PEN_TENSOR] = pen_op_gives_partial(graph, op, k) ? PEN_PARTIAL : PEN_SPLIT;
  value->split = split;
}

void pen_place_as(struct pen_graph *graph, uint32_t value, uint32_t other) {
  memcpy(graph->value[value].place, graph->value[other].place, sizeof graph->value[other].place);
  graph->value[value].split = graph->value[other].split;
}
