/* builder.c: builds forward ops and values with their shapes from the calls of a family.
 *
 * A call appends one op to the stage's forward list and makes a value for each output. The op's
 * signature in kernels/ops.def (op_signature.c) says how many operands it has, which are optional,
 * the elements of each as a product of the op's dims, and its dtype. So the settings determine all
 * shapes; nothing is run or traced.
 *
 *   weights  are f32 and have a gradient, unless they are frozen or the graph is forward-only.
 *            An op that computes in bf16 reads a bf16 copy, made once for all its readers
 *   inputs   of the step (tokens, targets, starts of documents) are declared by the family
 *            (tensor_shapes.c) and computed once per stage, for their first reader
 *   names    begin with the layer, as in Hugging Face; tables and messages show them
 */
#include "gen/model/builder.h"

#include <math.h>
#include <string.h>

#include "gen/base/arena.h"
#include "gen/base/error.h"
#include "gen/model/graph.h"
#include "gen/model/op_signature.h"
#include "gen/model/stage_io.h"
#include "gen/model/tensor_shapes.h"
#include "gen/topology/topology.h"
#include "gen/topology/weight_decay.h"
#include "runtime/plan/plan.h"

/* The name of a value inside the current layer. */
static const char *local_name(struct pen_graph *graph, const char *name) {
  return pen_text("%s%s", graph->prefix, name);
}

/* The value that an op reads of a weight: its bf16 copy, added at the first use, if the signature
 * has the op's dtype. */
static uint32_t operand_as_read(struct pen_graph *graph, uint32_t value,
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
  graph->weight[index].bf16_offset = 0; /* it has a copy; layout sets the offset */
  return copy;
}

/* Appends an op and adds a value for each output that is not optional, with its size by the
 * signature and named after `name` (further outputs: "name.output"). `input` holds the operands
 * before the outputs. Returns the op. */
static struct pen_op *append_with_outputs(struct pen_graph *graph, struct pen_op_list *list,
                                          int kind, const char *name, const uint32_t *input,
                                          const int64_t *dim, size_t dim_count, uint8_t role) {
  const struct pen_signature *signature = pen_signature_of(kind);
  struct pen_op *op = pen_op_append(list, kind);
  memcpy(op->dim, dim, dim_count * sizeof *dim);
  op->dtype = pen_signature_dtype(signature, graph->dtype);
  for (uint32_t i = 0; i < signature->input_count; i++)
    op->operand[i] = operand_as_read(graph, input[i], &signature->operand[i]);
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

/* Appends an op to the forward list; returns its first output, as most ops do. */
static uint32_t append_forward(struct pen_graph *graph, int kind, const char *name,
                               const uint32_t *input, const int64_t *dim, size_t dim_count) {
  struct pen_op *op = append_with_outputs(graph, &graph->forward, kind, local_name(graph, name),
                                          input, dim, dim_count, PEN_ROLE_ACTIVATION);
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

/* Adds a weight's value and, if it is trained, its gradient. */
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
  pen_stage_io_check_reader(graph, declared);
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
  if (graph->forward.count == ops) return value; /* computed at start */
  const struct pen_op *op = &graph->forward.op[ops];
  datum->kind = op->kind;
  datum->flops = pen_signature_flops(pen_signature_of(op->kind), op->dim);
  memcpy(datum->dim, op->dim, sizeof datum->dim);
  return value;
}

uint32_t pen_op_tokens(struct pen_graph *graph) {
  return append_forward(graph, PEN_OP_TOKENS, "tokens", NULL, (int64_t[]){graph->rows}, 1);
}

uint32_t pen_op_targets(struct pen_graph *graph) {
  return append_forward(graph, PEN_OP_TARGETS, "targets", NULL, (int64_t[]){graph->rows}, 1);
}

static int64_t sequence_count(const struct pen_graph *graph) {
  return graph->rows / graph->topology->sequence;
}

uint32_t pen_op_starts(struct pen_graph *graph) {
  if (graph->topology->cached_prompts > 0)
    return append_forward(graph, PEN_OP_POSITIONS, "starts", NULL,
                          (int64_t[]){graph->rows, sequence_count(graph)}, 2);
  return append_forward(graph, PEN_OP_STARTS, "starts", NULL, (int64_t[]){graph->rows}, 1);
}

uint32_t pen_op_normal(struct pen_graph *graph, const char *name, int64_t width, int stream) {
  return append_forward(graph, PEN_OP_NORMAL, name, NULL,
                        (int64_t[]){graph->rows, width, stream, graph->topology->sequence}, 4);
}

uint32_t pen_op_embedding(struct pen_graph *graph, const char *name, uint32_t tokens,
                          uint32_t table) {
  const struct pen_weight *weight = &graph->weight[graph->value[table].weight];
  return append_forward(graph, PEN_OP_EMBEDDING, name, (uint32_t[]){tokens, table},
                        (int64_t[]){graph->rows, (int64_t)weight->dim[1], (int64_t)weight->dim[0]},
                        3);
}

uint32_t pen_op_linear(struct pen_graph *graph, const char *name, uint32_t x, uint32_t weight,
                       uint32_t addend) {
  const struct pen_weight *shape = &graph->weight[graph->value[weight].weight];
  return append_forward(graph, PEN_OP_LINEAR, name, (uint32_t[]){x, weight, addend},
                        (int64_t[]){graph->rows, (int64_t)shape->dim[1], (int64_t)shape->dim[0]},
                        3);
}

uint32_t pen_op_rmsnorm(struct pen_graph *graph, const char *name, uint32_t x, uint32_t gain,
                        double offset) {
  int64_t width = (int64_t)graph->value[gain].elements,
          rows = (int64_t)graph->value[x].elements / width;
  uint32_t y = append_forward(graph, PEN_OP_RMSNORM, name, (uint32_t[]){x, gain},
                              (int64_t[]){rows, width}, 2);
  double *real = graph->forward.op[graph->forward.count - 1].real;
  real[0] = graph->topology->model_norm_epsilon;
  real[1] = offset;
  return y;
}

uint32_t pen_op_affine(struct pen_graph *graph, const char *name, uint32_t x, uint32_t weight,
                       uint32_t bias, uint32_t addend) {
  const struct pen_weight *shape = &graph->weight[graph->value[weight].weight];
  return append_forward(graph, PEN_OP_AFFINE, name, (uint32_t[]){x, weight, bias, addend},
                        (int64_t[]){graph->rows, (int64_t)shape->dim[0], (int64_t)shape->dim[1]},
                        3);
}

uint32_t pen_op_bias(struct pen_graph *graph, const char *name, uint32_t x, uint32_t bias) {
  return append_forward(graph, PEN_OP_BIAS, name, (uint32_t[]){x, bias},
                        (int64_t[]){graph->rows, width_of(graph, x)}, 2);
}

uint32_t pen_op_layernorm(struct pen_graph *graph, const char *name, uint32_t x, uint32_t gain,
                          uint32_t bias) {
  uint32_t y = append_forward(graph, PEN_OP_LAYERNORM, name, (uint32_t[]){x, gain, bias},
                              (int64_t[]){graph->rows, width_of(graph, x)}, 2);
  graph->forward.op[graph->forward.count - 1].real[0] = graph->topology->model_norm_epsilon;
  return y;
}

uint32_t pen_op_position(struct pen_graph *graph, const char *name, uint32_t x, uint32_t table,
                         uint32_t starts) {
  const struct pen_weight *shape = &graph->weight[graph->value[table].weight];
  return append_forward(graph, PEN_OP_POSITION, name, (uint32_t[]){x, table, starts},
                        (int64_t[]){graph->rows, width_of(graph, x), graph->topology->sequence,
                                    (int64_t)shape->dim[0]},
                        4);
}

void pen_op_split(struct pen_graph *graph, const char *name, uint32_t x, uint32_t part[3]) {
  append_forward(graph, PEN_OP_SPLIT, name, (uint32_t[]){x},
                 (int64_t[]){graph->rows, width_of(graph, x) / 3}, 2);
  memcpy(part, &graph->forward.op[graph->forward.count - 1].operand[1], 3 * sizeof *part);
}

uint32_t pen_op_rope_table(struct pen_graph *graph, const char *name, int64_t head_dim,
                           double theta, bool scaled) {
  const struct pen_topology *t = graph->topology;
  struct pen_op *op =
      append_with_outputs(graph, &graph->start, PEN_OP_ROPE_TABLE, name, NULL,
                          (int64_t[]){t->model_sequence, head_dim / 2}, 2, PEN_ROLE_CONSTANT);
  op->real[0] = theta;
  if (scaled && t->model_rope_scaling) op->real[1] = t->model_rope_factor;
  if (scaled && t->model_rope_original_sequence) {
    double between = t->model_rope_high_freq_factor - t->model_rope_low_freq_factor;
    op->real[2] = (double)t->model_rope_original_sequence / (2 * M_PI * between);
    op->real[3] = t->model_rope_low_freq_factor / between;
  }
  return op->operand[0];
}

uint32_t pen_op_rope(struct pen_graph *graph, const char *name, uint32_t x, uint32_t table,
                     uint32_t starts, int64_t heads, int64_t head_dim) {
  int64_t positions = (int64_t)graph->value[table].elements / head_dim;
  return append_forward(
      graph, PEN_OP_ROPE, name, (uint32_t[]){x, table, starts},
      (int64_t[]){sequence_count(graph), graph->topology->sequence, heads, head_dim, positions}, 5);
}

/* The second output of the data op whose first output is `first`. */
static uint32_t second_output(const struct pen_graph *graph, int kind, uint32_t first) {
  size_t i = 0;
  while (graph->forward.op[i].kind != kind || graph->forward.op[i].operand[0] != first) i++;
  return graph->forward.op[i].operand[1];
}

/* size: heads, kv_heads, head_dim, window. The slots of the cache are those of the step with the
 * most prompts. */
static uint32_t append_cached(struct pen_graph *graph, const char *name, const uint32_t input[4],
                              const int64_t size[4]) {
  const struct pen_topology *t = graph->topology;
  uint32_t slot = second_output(graph, PEN_OP_POSITIONS, input[3]);
  uint32_t o = append_forward(graph, PEN_OP_ATTENTION_CACHED, name,
                              (uint32_t[]){input[0], input[1], input[2], input[3], slot},
                              (int64_t[]){sequence_count(graph), t->sequence, size[0], size[1],
                                          size[2], size[3], t->generate_prompts, t->model_sequence},
                              8);
  const struct pen_op *op = &graph->forward.op[graph->forward.count - 1];
  graph->value[op->operand[6]].role = graph->value[op->operand[7]].role = PEN_ROLE_CACHE;
  return o;
}

uint32_t pen_op_attention(struct pen_graph *graph, const char *name, uint32_t q, uint32_t k,
                          uint32_t v, uint32_t starts, int64_t heads, int64_t kv_heads,
                          int64_t head_dim, int64_t window) {
  const bool cached = graph->topology->cached_prompts > 0;
  int64_t sequence = graph->topology->sequence,
          seen = cached ? graph->topology->model_sequence : sequence;
  if (window <= 0 || window > seen) window = seen;
  if (cached)
    return append_cached(graph, name, (uint32_t[]){q, k, v, starts},
                         (int64_t[]){heads, kv_heads, head_dim, window});
  return append_forward(
      graph, PEN_OP_ATTENTION, name, (uint32_t[]){q, k, v, starts},
      (int64_t[]){sequence_count(graph), sequence, heads, kv_heads, head_dim, window}, 6);
}

/* Appends an op over all elements of its first input. */
static uint32_t append_elementwise(struct pen_graph *graph, int kind, const char *name,
                                   const uint32_t *input) {
  return append_forward(graph, kind, name, input,
                        (int64_t[]){(int64_t)graph->value[input[0]].elements}, 1);
}

uint32_t pen_op_swiglu(struct pen_graph *graph, const char *name, uint32_t gate, uint32_t up) {
  return append_elementwise(graph, PEN_OP_SWIGLU, name, (uint32_t[]){gate, up});
}

uint32_t pen_op_geglu(struct pen_graph *graph, const char *name, uint32_t gate, uint32_t up) {
  return append_elementwise(graph, PEN_OP_GEGLU, name, (uint32_t[]){gate, up});
}

uint32_t pen_op_gelu(struct pen_graph *graph, const char *name, uint32_t x) {
  return append_elementwise(graph, PEN_OP_GELU, name, (uint32_t[]){x});
}

uint32_t pen_op_gelu_tanh(struct pen_graph *graph, const char *name, uint32_t x) {
  return append_elementwise(graph, PEN_OP_GELU_TANH, name, (uint32_t[]){x});
}

uint32_t pen_op_scale(struct pen_graph *graph, const char *name, uint32_t x, double factor) {
  uint32_t y = append_elementwise(graph, PEN_OP_SCALE, name, (uint32_t[]){x});
  graph->forward.op[graph->forward.count - 1].real[0] = factor;
  return y;
}

uint32_t pen_op_add(struct pen_graph *graph, const char *name, uint32_t x, uint32_t z) {
  return append_elementwise(graph, PEN_OP_ADD, name, (uint32_t[]){x, z});
}

/* Ends the model with a loss op that also computes the gradient, its last operand. Dims: rows, and
 * others. */
static struct pen_op *append_loss(struct pen_graph *graph, int kind, const uint32_t *input,
                                  const int64_t *dim, size_t dim_count) {
  struct pen_op *op = append_with_outputs(graph, &graph->forward, kind, "loss", input, dim,
                                          dim_count, PEN_ROLE_LOSS);
  if (!graph->training) return op;
  uint32_t x = input[0], last = pen_signature_of(kind)->operand_count - 1;
  uint32_t gradient =
      pen_graph_value(graph, pen_text("%s'", graph->value[x].name), graph->value[x].dtype,
                      PEN_ROLE_ACTIVATION, graph->value[x].elements);
  op->operand[last] = gradient;
  graph->value[x].gradient = gradient;
  return op;
}

/* The weight of one target in the step's loss. */
static uint32_t share_of(const struct pen_graph *graph, uint32_t targets) {
  return second_output(graph, PEN_OP_TARGETS, targets);
}

void pen_op_cross_entropy(struct pen_graph *graph, uint32_t logits, uint32_t targets) {
  append_loss(graph, PEN_OP_CROSS_ENTROPY, (uint32_t[]){logits, targets, share_of(graph, targets)},
              (int64_t[]){graph->rows, width_of(graph, logits)}, 2);
}

void pen_op_head_loss(struct pen_graph *graph, uint32_t x, uint32_t weight, uint32_t targets,
                      int64_t chunk) {
  const struct pen_weight *shape = &graph->weight[graph->value[weight].weight];
  append_loss(graph, PEN_OP_HEAD_LOSS, (uint32_t[]){x, weight, targets, share_of(graph, targets)},
              (int64_t[]){graph->rows, (int64_t)shape->dim[1], (int64_t)shape->dim[0], chunk}, 4);
}

void pen_op_sum_loss(struct pen_graph *graph, uint32_t x) {
  append_loss(graph, PEN_OP_SUM_LOSS, (uint32_t[]){x}, (int64_t[]){graph->rows, width_of(graph, x)},
              2)
      ->real[0] = 1.0;
}
