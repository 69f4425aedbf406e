/* append.c: appends ops, with values for their outputs, and weights to a graph.
 *
 * The op's signature in kernels/ops.def (op_signature.c) says how many operands it has, which are
 * optional, the elements of each as a product of the op's dims, and its dtype. */
#include "gen/model/append.h"

#include <string.h>

#include "gen/base/arena.h"
#include "gen/base/error.h"
#include "gen/model/muon.h"
#include "gen/model/op_signature.h"
#include "gen/model/place.h"
#include "gen/topology/topology.h"
#include "gen/topology/weight_optimizer.h"
#include "runtime/plan/plan.h"

const char *pen_local_name(struct pen_graph *graph, const char *name) {
  if (graph->split == PEN_NONE) return pen_text("%s%s", graph->prefix, name);
  return pen_text("%s%s[%u]", graph->prefix, name, graph->split);
}

/* The value that an op reads of a weight: its bf16 copy, added at the first use, if the signature
 * has the op's dtype. */
static uint32_t operand_as_read(struct pen_graph *graph, uint32_t value,
                                const struct pen_operand *operand) {
  if (value == PEN_NONE || !operand->of_op || graph->value[value].role != PEN_ROLE_WEIGHT ||
      graph->value[value].dtype == graph->dtype)
    return value;
  if (graph->value[value].copy != PEN_NONE) return graph->value[value].copy;
  uint32_t index = graph->value[value].weight;
  const char *name = pen_text("%s.%s", graph->weight[index].name, pen_dtype_text(graph->dtype));
  uint32_t copy =
      pen_graph_value(graph, name, graph->dtype, PEN_ROLE_WEIGHT, graph->weight[index].count);
  graph->value[value].copy = copy;
  graph->value[copy].weight = index;
  pen_place_as(graph, copy, value);
  graph->value[copy].gradient = graph->value[value].gradient;
  graph->weight[index].bf16_offset = 0; /* it has a copy; layout sets the offset */
  return copy;
}

struct pen_op *pen_append_with_outputs(struct pen_graph *graph, struct pen_op_list *list, int kind,
                                       const char *name, const uint32_t *input, const int64_t *dim,
                                       size_t dim_count, uint8_t role) {
  const struct pen_signature *signature = pen_signature_of(kind);
  struct pen_op *op = pen_op_append(list, kind);
  if (dim_count > 0) memcpy(op->dim, dim, dim_count * sizeof *dim);
  op->dtype = pen_signature_dtype(signature, graph->dtype);
  for (uint32_t i = 0; i < signature->input_count; i++)
    op->operand[i] = operand_as_read(graph, input[i], &signature->operand[i]);
  if (op->dtype == PEN_BF16 && signature->operand[signature->input_count].partial &&
      pen_op_gives_partial(graph, op, signature->input_count))
    op->dtype = PEN_BF16_PARTIAL;
  for (uint32_t i = signature->input_count; i < signature->operand_count; i++) {
    const struct pen_operand *operand = &signature->operand[i];
    if (operand->optional) continue;
    bool main_output = i == signature->input_count;
    const char *text = main_output ? name : pen_text("%s.%s", name, operand->name);
    op->operand[i] = pen_graph_value(graph, text, pen_operand_dtype(operand, op->dtype), role,
                                     pen_operand_elements(operand, op->dim));
    pen_place_output(graph, op, i);
  }
  return op;
}

uint32_t pen_append_forward(struct pen_graph *graph, int kind, const char *name,
                            const uint32_t *input, const int64_t *dim, size_t dim_count) {
  struct pen_op *op =
      pen_append_with_outputs(graph, &graph->forward, kind, pen_local_name(graph, name), input, dim,
                              dim_count, PEN_ROLE_ACTIVATION);
  return op->operand[pen_signature_of(kind)->input_count];
}

bool pen_weight_is_frozen(const struct pen_topology *topology, const char *name) {
  for (size_t i = 0; i < topology->model_frozen.count; i++) {
    const char *ending = topology->model_frozen.value[i];
    if (*ending && pen_ends_in(name, ending, strlen(ending))) return true;
  }
  return false;
}

uint32_t pen_add_weight_row(struct pen_graph *graph, const struct pen_weight *shape) {
  PEN_RESERVE(graph->weight, graph->weight_count + 1);
  uint32_t index = (uint32_t)graph->weight_count++;
  struct pen_weight *weight = &graph->weight[index];
  *weight = *shape;
  weight->stage = graph->stage;
  weight->bf16_offset = UINT64_MAX;
  weight->frozen = shape->frozen || (pen_is_of_model(weight) &&
                                     pen_weight_is_frozen(graph->topology, weight->tensor));
  pen_weight_optimizer_set(graph->topology, weight, *graph->prefix);
  weight->sum_groups = weight->frozen ? 0 : PEN_IN(DATA);
  if (__builtin_mul_overflow(weight->dim[0], weight->dim[1] ? weight->dim[1] : 1, &weight->count))
    pen_stop(PEN_EXIT_TOPOLOGY, "%s: weight %s is too large: " PEN_MODEL_SETTINGS,
             graph->topology->path, weight->name);
  pen_muon_set_owner(graph);
  return index;
}

uint32_t pen_add_weight(struct pen_graph *graph, const struct pen_weight *shape,
                        const char *gradient_name) {
  const uint32_t index = pen_add_weight_row(graph, shape);
  const struct pen_weight *weight = &graph->weight[index];
  uint32_t value = pen_graph_value(graph, weight->name, PEN_F32, PEN_ROLE_WEIGHT, weight->count);
  graph->value[value].weight = index;
  if (weight->split_count > 1) {
    graph->value[value].place[PEN_TENSOR] = PEN_SPLIT;
    graph->value[value].split = weight->split % graph->own_splits;
  }
  if (graph->training && !weight->frozen) {
    uint32_t gradient =
        pen_graph_value(graph, gradient_name, PEN_F32, PEN_ROLE_GRADIENT, weight->count);
    graph->value[gradient].weight = index;
    graph->value[value].gradient = gradient;
  }
  return value;
}

uint32_t pen_weight_of_block(const struct pen_graph *graph, const char *name) {
  for (uint32_t v = graph->value_count; v-- > 0 && graph->value[v].block == graph->block;)
    if (graph->value[v].role == PEN_ROLE_WEIGHT && strcmp(graph->value[v].name, name) == 0)
      return v;
  return PEN_NONE;
}

void pen_append_loss_gradient(struct pen_graph *graph, struct pen_op *op, uint32_t x) {
  if (!graph->training) return;
  uint32_t last = pen_signature_of(op->kind)->operand_count - 1;
  uint32_t gradient =
      pen_graph_value(graph, pen_text("%s'", graph->value[x].name), graph->value[x].dtype,
                      PEN_ROLE_ACTIVATION, graph->value[x].elements);
  op->operand[last] = gradient;
  graph->value[x].gradient = gradient;
}

uint32_t pen_output_beside(const struct pen_graph *graph, uint32_t first, int n) {
  const struct pen_op *op = graph->forward.op;
  while (!pen_signature_of(op->kind)->is_data || op->operand[0] != first) op++;
  return op->operand[n];
}

uint32_t pen_share_of(const struct pen_graph *graph, uint32_t targets) {
  return pen_output_beside(graph, targets, 1);
}
