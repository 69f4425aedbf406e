/* model.c: the builder: a family's calls become forward ops and values with their shapes; a stage
 * is its blocks in order.
 *
 * A family (gen/families/) is a list of blocks, and each block a function that calls op_linear(),
 * op_rmsnorm() and so on with the values that the calls before returned. A call appends one op to
 * the stage's forward list and makes a value for each output. The rule by which it does so is the
 * op's signature in kernels/ops.def (signature.c): how many operands, which may be left out, each
 * one's elements as a product of the op's dims, and its dtype. So shapes follow from the settings;
 * nothing is run or traced.
 *
 *   weights   are f32 and are made with their gradient, unless frozen or only forwards run. An op
 * that computes in bf16 reads a copy, which is made when the first op asks for it and shared by
 * those that follow data      (tokens, targets, positions of documents) is declared by the family
 * (shapes.c) and made once a stage, by its first reader borders   a block takes the value that the
 * block before gives; where a stage begins it is the stage's input, of the declared shape. It is
 *             rounded to the dtype on the wire whether or not a stage ends there, so that bits do
 * not depend on the cuts (design.md section 9) names     are prefixed with the layer's, as Hugging
 * Face names tensors: a value is found by them in tables and messages
 *
 * Backward is none of a family's business: derive.c makes it from these ops. */
#include <math.h>
#include <string.h>

#include "gen/model/fused_loss.h"
#include "gen/model/tensor_shapes.h"
#include "gen/model/op_signature.h"
#include "gen/base/arena.h"
#include "gen/base/error.h"
#include "gen/topology/topology.h"
#include "runtime/plan/plan.h"
#include "gen/topology/weight_decay.h"

uint32_t pen_graph_value(struct pen_graph *graph, const char *name, uint8_t dtype, uint8_t role,
                         uint64_t elements) {
  graph->value =
      pen_grow(graph->value, &graph->value_capacity, graph->value_count + 1, sizeof *graph->value);
  struct pen_value *value = &graph->value[graph->value_count];
  *value = (struct pen_value){.name = name,
                              .prefix = graph->prefix,
                              .block = graph->block,
                              .dtype = dtype,
                              .role = role,
                              .elements = elements,
                              .weight = PEN_NONE,
                              .gradient = PEN_NONE};
  if (__builtin_mul_overflow(elements, pen_dtype_bytes(dtype), &value->bytes))
    pen_stop(PEN_EXIT_TOPOLOGY, "%s: tensor %s is too large", graph->topology->path, name);
  value->storage = (uint32_t)graph->value_count;
  return (uint32_t)graph->value_count++;
}

struct pen_op *pen_op_append(struct pen_op_list *list, int kind) {
  list->op = pen_grow(list->op, &list->capacity, list->count + 1, sizeof *list->op);
  struct pen_op *op = &list->op[list->count++];
  *op = (struct pen_op){.kind = (uint16_t)kind, .workspace = PEN_NONE};
  for (size_t i = 0; i < PEN_OPERANDS_MAX; i++) op->operand[i] = PEN_NONE;
  return op;
}

/* The name of a value inside the current layer. */
static const char *local_name(struct pen_graph *graph, const char *name) {
  return pen_text("%s%s", graph->prefix, name);
}

/* What an op reads of a weight: its bf16 copy, made when it is first asked for, where the signature
 * wants the op's dtype. */
static uint32_t as_read(struct pen_graph *graph, uint32_t value,
                        const struct pen_operand *operand) {
  if (value == PEN_NONE || !operand->of_op || graph->value[value].role != PEN_ROLE_WEIGHT ||
      graph->value[value].dtype == graph->dtype)
    return value;
  uint32_t index = graph->value[value].weight;
  for (uint32_t v = 0; v < graph->value_count; v++)
    if (graph->value[v].role == PEN_ROLE_WEIGHT && graph->value[v].weight == index &&
        graph->value[v].dtype == graph->dtype)
      return v;
  const char *name = pen_text("%s.%s", graph->weight[index].name, pen_dtype_text(graph->dtype));
  uint32_t copy =
      pen_graph_value(graph, name, graph->dtype, PEN_ROLE_WEIGHT, graph->weight[index].count);
  graph->value[copy].weight = index;
  graph->value[copy].gradient = graph->value[value].gradient;
  graph->weight[index].bf16_offset = 0; /* it has one; where, layout says */
  return copy;
}

/* Appends an op and makes a value for each of its outputs that is not optional, sized by its
 * signature and named after `name` (further outputs: "name.output"). `input` holds the operands
 * before the outputs. Returns the op. */
static struct pen_op *emit(struct pen_graph *graph, struct pen_op_list *list, int kind,
                           const char *name, const uint32_t *input, const int64_t *dim,
                           size_t dim_count, uint8_t role) {
  const struct pen_signature *signature = pen_signature_of(kind);
  struct pen_op *op = pen_op_append(list, kind);
  memcpy(op->dim, dim, dim_count * sizeof *dim);
  op->dtype = pen_signature_dtype(signature, graph->dtype);
  for (uint32_t i = 0; i < signature->input_count; i++)
    op->operand[i] = as_read(graph, input[i], &signature->operand[i]);
  for (uint32_t i = signature->input_count; i < signature->operand_count; i++) {
    const struct pen_operand *operand = &signature->operand[i];
    if (operand->optional) continue;
    bool main_output = i == signature->input_count;
    const char *text = main_output ? name : pen_text("%s.%s", name, operand->name);
    op->operand[i] = pen_graph_value(graph, text, pen_operand_dtype(operand, op->dtype), role,
                                     pen_operand_elements(operand, op->dim));
  }
  return op;
}

/* What most ops are: appended to the forward list, result in the first output. */
static uint32_t forward(struct pen_graph *graph, int kind, const char *name, const uint32_t *input,
                        const int64_t *dim, size_t dim_count) {
  struct pen_op *op = emit(graph, &graph->forward, kind, local_name(graph, name), input, dim,
                           dim_count, PEN_ROLE_ACTIVATION);
  return op->operand[pen_signature_of(kind)->input_count];
}

static int64_t width_of(const struct pen_graph *graph, uint32_t value) {
  return (int64_t)graph->value[value].elements / graph->rows;
}

bool pen_weight_is_frozen(const struct pen_topology *topology, const char *name) {
  for (size_t i = 0; i < topology->model_frozen.count; i++) {
    const char *ending = topology->model_frozen.value[i];
    if (*ending && pen_ends_in(name, ending, strlen(ending))) return true;
  }
  return false;
}

/* A weight's value and, if it learns, its gradient. */
static uint32_t add_weight(struct pen_graph *graph, const struct pen_weight *shape,
                           const char *gradient_name) {
  graph->weight = pen_grow(graph->weight, &graph->weight_capacity, graph->weight_count + 1,
                           sizeof *graph->weight);
  uint32_t index = (uint32_t)graph->weight_count++;
  struct pen_weight *weight = &graph->weight[index];
  *weight = *shape;
  weight->stage = graph->stage;
  weight->bf16_offset = UINT64_MAX;
  weight->frozen = pen_weight_is_frozen(graph->topology, weight->name);
  if (__builtin_mul_overflow(weight->dim[0], weight->dim[1] ? weight->dim[1] : 1, &weight->count))
    pen_stop(PEN_EXIT_TOPOLOGY, "%s: weight %s is too large", graph->topology->path, weight->name);
  uint32_t value = pen_graph_value(graph, weight->name, PEN_F32, PEN_ROLE_WEIGHT, weight->count);
  graph->value[value].weight = index;
  if (graph->training && !weight->frozen) {
    uint32_t gradient =
        pen_graph_value(graph, gradient_name, PEN_F32, PEN_ROLE_GRADIENT, weight->count);
    graph->value[gradient].weight = index;
    graph->value[value].gradient = gradient;
  }
  return value;
}

uint32_t pen_graph_weight(struct pen_graph *graph, const char *name, int64_t rows, int64_t columns,
                          int initial, double deviation) {
  struct pen_weight weight = {
      .name = name,
      .dim_count = columns ? 2 : 1,
      .dim = {(uint64_t)rows, (uint64_t)columns},
      .initial = (uint8_t)initial,
      .deviation = deviation,
      .weight_decay = pen_weight_decay_of(graph->topology, name, columns != 0)};
  return add_weight(graph, &weight, pen_text("%s.grad", name));
}

uint32_t pen_graph_tied_weight(struct pen_graph *graph, const char *name, int64_t rows,
                               int64_t columns) {
  struct pen_weight weight = {
      .name = name, .dim_count = 2, .dim = {(uint64_t)rows, (uint64_t)columns}};
  graph->tied = (uint32_t)graph->weight_count;
  return add_weight(graph, &weight, pen_text("%s.head.grad", name));
}

/* ---- the ops that families call ---- */

uint32_t pen_graph_data(struct pen_graph *graph, const struct pen_declared *declared) {
  for (size_t i = 0; i < graph->datum_count; i++)
    if (graph->datum[i].declared == declared) return graph->datum[i].value;
  pen_shape_check_reader(graph, declared);
  const char *prefix = graph->prefix;
  size_t ops = graph->forward.count;
  graph->prefix = "";
  uint32_t value = declared->emit(graph);
  graph->prefix = prefix;
  pen_shape_check_value(graph, declared, value, "makes");
  graph->datum =
      pen_grow(graph->datum, &graph->datum_capacity, graph->datum_count + 1, sizeof *graph->datum);
  struct pen_datum *datum = &graph->datum[graph->datum_count++];
  *datum = (struct pen_datum){.declared = declared, .value = value, .kind = PEN_OP_COUNT};
  if (graph->forward.count == ops) return value; /* made at start */
  const struct pen_op *op = &graph->forward.op[ops];
  datum->kind = op->kind;
  datum->flops = pen_signature_flops(pen_signature_of(op->kind), op->dim);
  memcpy(datum->dim, op->dim, sizeof datum->dim);
  return value;
}

uint32_t op_tokens(struct pen_graph *graph) {
  return forward(graph, PEN_OP_TOKENS, "tokens", NULL, (int64_t[]){graph->rows}, 1);
}

uint32_t op_targets(struct pen_graph *graph) {
  return forward(graph, PEN_OP_TARGETS, "targets", NULL, (int64_t[]){graph->rows}, 1);
}

uint32_t op_starts(struct pen_graph *graph) {
  return forward(graph, PEN_OP_STARTS, "starts", NULL, (int64_t[]){graph->rows}, 1);
}

uint32_t op_normal(struct pen_graph *graph, const char *name, int64_t width, int stream) {
  return forward(graph, PEN_OP_NORMAL, name, NULL,
                 (int64_t[]){graph->rows, width, stream, graph->topology->sequence}, 4);
}

uint32_t op_embedding(struct pen_graph *graph, const char *name, uint32_t tokens, uint32_t table) {
  const struct pen_weight *weight = &graph->weight[graph->value[table].weight];
  return forward(graph, PEN_OP_EMBEDDING, name, (uint32_t[]){tokens, table},
                 (int64_t[]){graph->rows, (int64_t)weight->dim[1], (int64_t)weight->dim[0]}, 3);
}

uint32_t op_linear(struct pen_graph *graph, const char *name, uint32_t x, uint32_t weight,
                   uint32_t addend) {
  const struct pen_weight *shape = &graph->weight[graph->value[weight].weight];
  return forward(graph, PEN_OP_LINEAR, name, (uint32_t[]){x, weight, addend},
                 (int64_t[]){graph->rows, (int64_t)shape->dim[1], (int64_t)shape->dim[0]}, 3);
}

uint32_t op_rmsnorm(struct pen_graph *graph, const char *name, uint32_t x, uint32_t gain) {
  int64_t width = (int64_t)graph->value[gain].elements,
          rows = (int64_t)graph->value[x].elements / width;
  uint32_t y =
      forward(graph, PEN_OP_RMSNORM, name, (uint32_t[]){x, gain}, (int64_t[]){rows, width}, 2);
  graph->forward.op[graph->forward.count - 1].real[0] = graph->topology->model_norm_epsilon;
  return y;
}

uint32_t op_affine(struct pen_graph *graph, const char *name, uint32_t x, uint32_t weight,
                   uint32_t bias, uint32_t addend) {
  const struct pen_weight *shape = &graph->weight[graph->value[weight].weight];
  return forward(graph, PEN_OP_AFFINE, name, (uint32_t[]){x, weight, bias, addend},
                 (int64_t[]){graph->rows, (int64_t)shape->dim[0], (int64_t)shape->dim[1]}, 3);
}

uint32_t op_layernorm(struct pen_graph *graph, const char *name, uint32_t x, uint32_t gain,
                      uint32_t bias) {
  uint32_t y = forward(graph, PEN_OP_LAYERNORM, name, (uint32_t[]){x, gain, bias},
                       (int64_t[]){graph->rows, width_of(graph, x)}, 2);
  graph->forward.op[graph->forward.count - 1].real[0] = graph->topology->model_norm_epsilon;
  return y;
}

uint32_t op_position(struct pen_graph *graph, const char *name, uint32_t x, uint32_t table,
                     uint32_t starts) {
  const struct pen_weight *shape = &graph->weight[graph->value[table].weight];
  return forward(graph, PEN_OP_POSITION, name, (uint32_t[]){x, table, starts},
                 (int64_t[]){graph->rows, width_of(graph, x), graph->topology->sequence,
                             (int64_t)shape->dim[0]},
                 4);
}

void op_split(struct pen_graph *graph, const char *name, uint32_t x, uint32_t part[3]) {
  forward(graph, PEN_OP_SPLIT, name, (uint32_t[]){x},
          (int64_t[]){graph->rows, width_of(graph, x) / 3}, 2);
  memcpy(part, &graph->forward.op[graph->forward.count - 1].operand[1], 3 * sizeof *part);
}

uint32_t op_rope_table(struct pen_graph *graph, int64_t head_dim) {
  const struct pen_topology *t = graph->topology;
  struct pen_op *op = emit(graph, &graph->start, PEN_OP_ROPE_TABLE, "rope_table", NULL,
                           (int64_t[]){t->model_sequence, head_dim / 2}, 2, PEN_ROLE_CONSTANT);
  op->real[0] = t->model_rope_theta;
  if (t->model_rope_scaling) op->real[1] = t->model_rope_factor;
  if (t->model_rope_original_sequence) {
    double between = t->model_rope_high_freq_factor - t->model_rope_low_freq_factor;
    op->real[2] = (double)t->model_rope_original_sequence / (2 * M_PI * between);
    op->real[3] = t->model_rope_low_freq_factor / between;
  }
  return op->operand[0];
}

static int64_t sequences(const struct pen_graph *graph) {
  return graph->rows / graph->topology->sequence;
}

uint32_t op_rope(struct pen_graph *graph, const char *name, uint32_t x, uint32_t table,
                 uint32_t starts, int64_t heads, int64_t head_dim) {
  int64_t positions = (int64_t)graph->value[table].elements / head_dim;
  return forward(
      graph, PEN_OP_ROPE, name, (uint32_t[]){x, table, starts},
      (int64_t[]){sequences(graph), graph->topology->sequence, heads, head_dim, positions}, 5);
}

uint32_t op_attention(struct pen_graph *graph, const char *name, uint32_t q, uint32_t k, uint32_t v,
                      uint32_t starts, int64_t heads, int64_t kv_heads, int64_t head_dim) {
  return forward(
      graph, PEN_OP_ATTENTION, name, (uint32_t[]){q, k, v, starts},
      (int64_t[]){sequences(graph), graph->topology->sequence, heads, kv_heads, head_dim}, 5);
}

/* An op over all elements of its first input. */
static uint32_t elementwise(struct pen_graph *graph, int kind, const char *name,
                            const uint32_t *input) {
  return forward(graph, kind, name, input, (int64_t[]){(int64_t)graph->value[input[0]].elements},
                 1);
}

uint32_t op_swiglu(struct pen_graph *graph, const char *name, uint32_t gate, uint32_t up) {
  return elementwise(graph, PEN_OP_SWIGLU, name, (uint32_t[]){gate, up});
}

uint32_t op_gelu(struct pen_graph *graph, const char *name, uint32_t x) {
  return elementwise(graph, PEN_OP_GELU, name, (uint32_t[]){x});
}

uint32_t op_gelu_tanh(struct pen_graph *graph, const char *name, uint32_t x) {
  return elementwise(graph, PEN_OP_GELU_TANH, name, (uint32_t[]){x});
}

uint32_t op_scale(struct pen_graph *graph, const char *name, uint32_t x, double factor) {
  uint32_t y = elementwise(graph, PEN_OP_SCALE, name, (uint32_t[]){x});
  graph->forward.op[graph->forward.count - 1].real[0] = factor;
  return y;
}

uint32_t op_add(struct pen_graph *graph, const char *name, uint32_t x, uint32_t z) {
  return elementwise(graph, PEN_OP_ADD, name, (uint32_t[]){x, z});
}

/* Ends the model with a loss whose gradient leaves with it, as the last operand. Dims: rows, and
 * what follows. */
static struct pen_op *loss(struct pen_graph *graph, int kind, const uint32_t *input,
                           const int64_t *dim, size_t dim_count) {
  struct pen_op *op =
      emit(graph, &graph->forward, kind, "loss", input, dim, dim_count, PEN_ROLE_LOSS);
  if (!graph->training) return op;
  uint32_t x = input[0], last = pen_signature_of(kind)->operand_count - 1;
  uint32_t gradient =
      pen_graph_value(graph, pen_text("%s'", graph->value[x].name), graph->value[x].dtype,
                      PEN_ROLE_ACTIVATION, graph->value[x].elements);
  op->operand[last] = gradient;
  graph->value[x].gradient = gradient;
  return op;
}

/* The share of one target in the step's loss, which leaves TARGETS beside the targets. */
static uint32_t share_of(const struct pen_graph *graph, uint32_t targets) {
  size_t i = 0;
  while (graph->forward.op[i].kind != PEN_OP_TARGETS || graph->forward.op[i].operand[0] != targets)
    i++;
  return graph->forward.op[i].operand[1];
}

void op_cross_entropy(struct pen_graph *graph, uint32_t logits, uint32_t targets) {
  loss(graph, PEN_OP_CROSS_ENTROPY, (uint32_t[]){logits, targets, share_of(graph, targets)},
       (int64_t[]){graph->rows, width_of(graph, logits)}, 2);
}

void op_head_loss(struct pen_graph *graph, uint32_t x, uint32_t weight, uint32_t targets,
                  int64_t chunk) {
  const struct pen_weight *shape = &graph->weight[graph->value[weight].weight];
  loss(graph, PEN_OP_HEAD_LOSS, (uint32_t[]){x, weight, targets, share_of(graph, targets)},
       (int64_t[]){graph->rows, (int64_t)shape->dim[1], (int64_t)shape->dim[0], chunk}, 4);
}

void op_sum_loss(struct pen_graph *graph, uint32_t x) {
  loss(graph, PEN_OP_SUM_LOSS, (uint32_t[]){x}, (int64_t[]){graph->rows, width_of(graph, x)}, 2)
      ->real[0] = 1.0;
}

/* ---- the pass ---- */

/* What passes between two blocks is rounded to the dtype that it has on the wire, whether or not a
 * stage ends there, so that bits do not depend on the cuts (design.md section 9); its gradient
 * likewise. The wire carries the model's dtype, and every op stores what it makes rounded to that:
 * nothing to do, but for what a family declares of another dtype, which pen_shape_check_value
 * refuses. */
static uint32_t round_to_wire(struct pen_graph *graph, const struct pen_declared *declared,
                              uint32_t value) {
  pen_shape_check_value(graph, declared, value, "gives");
  return value;
}

/* The ops of one block; returns what it gives. */
static uint32_t emit_block(struct pen_graph *graph, uint32_t x) {
  const struct pen_model_block *block = &graph->stages->block[graph->block];
  graph->prefix = block->layer == PEN_NONE ? "" : pen_text("layers.%u.", block->layer);
  uint32_t value = block->kind->emit(graph, block->layer, x);
  graph->prefix = "";
  return block->kind->gives ? round_to_wire(graph, block->kind->gives, value) : PEN_NONE;
}

struct pen_graph *pen_model(const struct pen_topology *topology, const struct pen_stages *stages,
                            uint32_t stage, bool training) {
  struct pen_graph *graph = pen_new(1, sizeof *graph);
  const struct pen_span *span = &stages->span[stage];
  *graph = (struct pen_graph){.topology = topology,
                              .stages = stages,
                              .stage = stage,
                              .stage_count = stages->stage_count,
                              .training = training,
                              .dtype = pen_topology_dtype(topology),
                              .rows = topology->batch_microbatch * topology->sequence,
                              .prefix = "",
                              .block = span->first_block,
                              .tied = PEN_NONE,
                              .input = PEN_NONE,
                              .output = PEN_NONE,
                              .output_gradient = PEN_NONE,
                              .input_gradient = PEN_NONE};
  if (training && stage < topology->memory_recompute.count)
    graph->recomputes = strcmp(topology->memory_recompute.value[stage], "full") == 0;
  const struct pen_declared *takes = stages->block[span->first_block].kind->takes;
  if (takes) {
    struct pen_shape shape = pen_shape_of(topology, stages->family, takes);
    graph->input =
        pen_graph_value(graph, "input", shape.dtype, PEN_ROLE_ACTIVATION, shape.elements);
  }
  uint32_t value = graph->input;
  for (; graph->block < span->past_last_block; graph->block++) value = emit_block(graph, value);
  graph->output = value;
  return graph;
}

struct pen_graph **pen_graphs_of(const struct pen_topology *topology,
                                 const struct pen_stages *stages, bool training) {
  struct pen_graph **graph = pen_new(stages->stage_count, sizeof *graph);
  for (uint32_t s = 0; s < stages->stage_count; s++) {
    graph[s] = pen_model(topology, stages, s, training);
    pen_backward(graph[s]);
  }
  return graph;
}

double pen_program_flops(const struct pen_op_list *program) {
  double flops = 0;
  for (size_t i = 0; i < program->count; i++)
    flops += pen_signature_flops(pen_signature_of(program->op[i].kind), program->op[i].dim);
  return flops;
}

double pen_shared_flops(const struct pen_graph *graph) {
  const struct pen_op_list *program = graph->program;
  if (!graph->training || !pen_loss_is_fused(graph)) return 0;
  return pen_program_flops(&program[PEN_PROGRAM_I]) + pen_program_flops(&program[PEN_PROGRAM_W]) -
         pen_program_flops(&program[PEN_PROGRAM_B]);
}

double pen_recomputed_flops(const struct pen_graph *graph) {
  struct pen_op_list again = {.op = graph->program[PEN_PROGRAM_I].op,
                              .count = graph->recompute_op_count[PEN_PROGRAM_I]};
  return pen_program_flops(&again);
}
