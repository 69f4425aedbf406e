/* described_operands.c: what the ops of a block of a description read (see described_operands.h).
 */
#include "gen/families/described_operands.h"

#include <string.h>

#include "gen/base/arena.h"
#include "gen/base/error.h"
#include "gen/families/described_inputs.h"
#include "gen/families/language.h"
#include "gen/model/append.h"
#include "gen/model/builder.h"
#include "gen/model/experts.h"
#include "gen/model/op_signature.h"
#include "runtime/plan/plan.h"

struct pen_step_sizes pen_step_sizes_of(const struct pen_graph *graph, bool of_samples) {
  const struct pen_topology *t = graph->topology;
  const int64_t sequences = graph->rows / t->sequence;
  if (of_samples) return (struct pen_step_sizes){sequences, 1, sequences, 1, t->batch_loss_group};
  return (struct pen_step_sizes){sequences, t->sequence, graph->rows, t->model_sequence,
                                 t->batch_loss_group * t->sequence};
}

/* A stack of experts, or the bias of their router, begins as the description says. */
static uint32_t experts_weight(struct pen_block_ops *e, const struct pen_described_weight *weight,
                               const char *name, bool is_stack) {
  const uint32_t value = is_stack ? pen_graph_stack(e->graph, name, (int64_t)weight->dim[1],
                                                    (int64_t)weight->dim[2], weight->deviation)
                                  : pen_graph_router_bias(e->graph, name);
  struct pen_weight *made = &e->graph->weight[e->graph->value[value].weight];
  made->initial = weight->initial;
  made->deviation = weight->deviation;
  return value;
}

uint32_t pen_weight_value(struct pen_block_ops *e, const struct pen_kind_op *op, int k) {
  const struct pen_description *d = e->block->kind->description;
  const int extents = pen_signature_of(op->row->kind)->operand[k].extent_count;
  const char *name = pen_text("%s%s", e->prefix, op->operand[k].weight);
  const struct pen_described_weight *weight = pen_described_weight_find(d, name);
  const bool is_other_name = weight->tied && strcmp(weight->tied, name) == 0,
             is_of_experts = op->row->appended == PEN_APPENDED_EXPERTS && extents != 2;
  const char *tensor = is_other_name ? weight->name : name;
  const uint32_t known = pen_weight_of_block(e->graph, tensor);
  if (known != PEN_NONE) return known;
  uint64_t dim[PEN_OPERAND_EXTENTS];
  pen_described_weight_view(weight, extents, dim);
  const int64_t rows = (int64_t)dim[0], columns = (int64_t)dim[1];
  const uint32_t value = is_of_experts   ? experts_weight(e, weight, tensor, extents == 3)
                         : is_other_name ? pen_graph_tied_weight(e->graph, tensor, rows, columns)
                                         : pen_graph_weight(e->graph, tensor, rows, columns,
                                                            weight->initial, weight->deviation);
  struct pen_weight *made = &e->graph->weight[e->graph->value[value].weight];
  if (weight->dim_count != (uint32_t)extents) {
    made->file_dim_count = weight->dim_count;
    memcpy(made->file_dim, weight->dim, sizeof made->file_dim);
  }
  return value;
}

/* A table is computed once at start, for all ops with the same one. */
static uint32_t constant_value(struct pen_block_ops *e, uint32_t index) {
  struct pen_graph *graph = e->graph;
  const struct pen_kind_op *op = &e->block->kind->op[e->block->kind->value[index].maker];
  const struct pen_step_sizes sizes = pen_step_sizes_of(graph, false);
  int64_t dim[PEN_DIMS_MAX];
  double real[PEN_REALS_MAX];
  if (pen_row_dims(op->row, op->from, NULL, &sizes, dim, real))
    pen_stop(PEN_EXIT_INTERNAL, "model: a table of %s has no dims", e->block->kind->from->name);
  for (size_t i = 0; i < graph->start.count; i++) {
    const struct pen_op *known = &graph->start.op[i];
    if (known->kind == op->row->kind && memcmp(known->dim, dim, sizeof dim) == 0 &&
        memcmp(known->real, real, sizeof real) == 0)
      return known->operand[0];
  }
  const char *name = pen_text("rope_table(%.17g", real[0]);
  for (int n = 1; n < PEN_REALS_MAX; n++) name = pen_text("%s,%.17g", name, real[n]);
  struct pen_op *made = pen_append_with_outputs(graph, &graph->start, op->row->kind,
                                                pen_text("%s,%lld)", name, (long long)dim[1]), NULL,
                                                dim, PEN_DIMS_MAX, PEN_ROLE_CONSTANT);
  memcpy(made->real, real, sizeof made->real);
  return made->operand[0];
}

/* Where each token's document starts: of an op that does not say it, only over a cache. */
static uint32_t starts_value(struct pen_block_ops *e, const struct pen_kind_op *op, bool given) {
  const struct pen_topology *t = e->graph->topology;
  if (!given && t->batch_packed)
    pen_description_fail(e->block->kind->description, e->block->kind->from, op->from,
                         "operand starts is missing, with batch.packed = true");
  return given || t->cached_prompts > 0 ? pen_language_starts_of(e->graph) : PEN_NONE;
}

static uint32_t data_value(struct pen_block_ops *e, const struct pen_kind_operand *operand) {
  return pen_graph_data(e->graph,
                        pen_described_declared(e->block->kind->description, operand->input,
                                               (enum pen_input_use)operand->use));
}

bool pen_has_one_row(const struct pen_kind_op *op) {
  for (size_t a = 0; a < op->from->attribute_count; a++)
    if (op->row->kind == PEN_OP_POSITION && strcmp(op->from->attribute[a].name, "sequence") == 0)
      return true;
  return false;
}

uint32_t pen_value_as(struct pen_block_ops *e, uint32_t index, uint8_t wanted) {
  struct pen_graph *graph = e->graph;
  const uint32_t value = e->value[index];
  if (graph->value[value].dtype == wanted) return value;
  if (e->other[index] == PEN_NONE)
    e->other[index] = pen_append_forward(
        graph, wanted == PEN_F32 ? PEN_OP_TO_F32 : PEN_OP_TO_BF16,
        pen_text("%s.%s", e->block->kind->value[index].name, pen_dtype_text(wanted)), &value,
        (int64_t[]){(int64_t)graph->value[value].elements}, 1);
  return e->other[index];
}

/* In the dtype of the op: f32 near the losses, else that of the model. */
static uint32_t value_as_read(struct pen_block_ops *e, const struct pen_kind_op *op, int k) {
  const uint32_t index = op->operand[k].value;
  return pen_signature_of(op->row->kind)->operand[k].of_op
             ? pen_value_as(e, index, op->in_f32 ? PEN_F32 : e->graph->dtype)
             : e->value[index];
}

uint32_t pen_input_value(struct pen_block_ops *e, const struct pen_kind_op *op, int k) {
  const struct pen_kind_operand *operand = &op->operand[k];
  const bool given = operand->source != PEN_OPERAND_ABSENT;
  if (strcmp(pen_signature_of(op->row->kind)->operand[k].name, "starts") == 0)
    return pen_has_one_row(op) ? PEN_NONE : starts_value(e, op, given);
  switch (operand->source) {
    case PEN_OPERAND_VALUE: return value_as_read(e, op, k);
    case PEN_OPERAND_CONSTANT: return constant_value(e, operand->value);
    case PEN_OPERAND_WEIGHT: return pen_weight_value(e, op, k);
    case PEN_OPERAND_INPUT: return data_value(e, operand);
    case PEN_OPERAND_SHARE: return pen_share_of(e->graph, data_value(e, operand));
    case PEN_OPERAND_NAMED_SHARE: return pen_op_share(e->graph, operand->input);
    default: return PEN_NONE;
  }
}
