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
#include "gen/model/append.h"
#include "gen/model/builder.h"

#include <math.h>

#include "gen/base/arena.h"
#include "gen/model/graph.h"
#include "gen/model/op_signature.h"
#include "gen/model/sequence.h"
#include "gen/model/stage_io.h"
#include "gen/model/tensor_shapes.h"
#include "gen/topology/shapes.h"
#include "gen/topology/topology.h"
#include "runtime/plan/plan.h"

static int64_t width_of(const struct pen_graph *graph, uint32_t value) {
  return (int64_t)graph->value[value].elements / graph->rows;
}

uint32_t pen_graph_weight(struct pen_graph *graph, const char *name, int64_t rows, int64_t columns,
                          int initial, double deviation) {
  const uint32_t known = graph->split == PEN_NONE ? PEN_NONE : pen_weight_of_block(graph, name);
  if (known != PEN_NONE) return known; /* an op of an earlier split reads it */
  uint64_t elements = (uint64_t)rows * (uint64_t)(columns ? columns : 1);
  struct pen_weight weight = {.name = name,
                              .tensor = name,
                              .split_count = 1,
                              .dim_count = columns ? 2 : 1,
                              .dim = {(uint64_t)rows, (uint64_t)columns},
                              .tensor_dim = {(uint64_t)rows, (uint64_t)columns},
                              .run_count = elements,
                              .run_stride = elements,
                              .initial = (uint8_t)initial,
                              .deviation = deviation};
  return pen_add_weight(graph, &weight, pen_text("%s.grad", name));
}

uint32_t pen_graph_tied_weight(struct pen_graph *graph, const char *name, int64_t rows,
                               int64_t columns) {
  struct pen_weight weight = {.name = name,
                              .tensor = name,
                              .split_count = 1,
                              .dim_count = 2,
                              .dim = {(uint64_t)rows, (uint64_t)columns}};
  graph->tied = (uint32_t)graph->weight_count;
  return pen_add_weight(graph, &weight, pen_text("%s.head.grad", name));
}

/* The dim of a product; 0: the weight is whole. */
static int64_t splits_of(const struct pen_weight *weight) {
  return weight->split_count > 1 ? weight->split_count : 0;
}

/* ---- the ops that families call ---- */

uint32_t pen_graph_data(struct pen_graph *graph, const struct pen_declared *declared) {
  for (size_t i = 0; i < graph->datum_count; i++)
    if (graph->datum[i].declared == declared) return graph->datum[i].value;
  pen_stage_io_check_reader(graph, declared);
  const char *prefix = graph->prefix;
  const uint32_t split = graph->split;
  size_t ops = graph->forward.count;
  graph->prefix = "";
  graph->split = PEN_NONE;
  uint32_t value = declared->emit(graph, declared);
  graph->prefix = prefix;
  graph->split = split;
  pen_shape_check_value(graph, declared, value, "makes");
  PEN_RESERVE(graph->datum, graph->datum_count + 1);
  struct pen_datum *datum = &graph->datum[graph->datum_count++];
  *datum = (struct pen_datum){.declared = declared, .value = value, .kind = PEN_OP_COUNT};
  if (graph->forward.count == ops) return value; /* computed at start */
  const struct pen_op *op = &graph->forward.op[ops];
  datum->kind = op->kind;
  datum->flops = pen_signature_flops(pen_signature_of(op->kind), op->dim);
  memcpy(datum->dim, op->dim, sizeof datum->dim);
  return value;
}

uint32_t pen_op_tokens(struct pen_graph *graph, const struct pen_declared *declared) {
  (void)declared;
  return pen_append_forward(graph, PEN_OP_TOKENS, "tokens", NULL, (int64_t[]){graph->rows}, 1);
}

static int64_t sequence_count(const struct pen_graph *graph) {
  return graph->rows / graph->topology->sequence;
}

uint32_t pen_op_targets(struct pen_graph *graph, const struct pen_declared *declared) {
  (void)declared;
  if (graph->topology->generates)
    return pen_append_forward(graph, PEN_OP_LAST_TOKENS, "targets", NULL,
                              (int64_t[]){sequence_count(graph), graph->topology->sequence}, 2);
  return pen_append_forward(graph, PEN_OP_TARGETS, "targets", NULL, (int64_t[]){graph->rows}, 1);
}

uint32_t pen_op_input(struct pen_graph *graph, int kind, const char *name, int64_t input,
                      int64_t rows, int64_t width) {
  const bool has_width = pen_signature_dim(pen_signature_of(kind), "width") >= 0;
  return pen_append_forward(graph, kind, name, NULL,
                            (int64_t[]){rows * (has_width ? 1 : width), input, width},
                            pen_signature_of(kind)->dim_count);
}

uint32_t pen_op_last_tokens(struct pen_graph *graph, uint32_t x, uint32_t targets) {
  const int64_t sequences = sequence_count(graph);
  const uint32_t all = pen_all_tokens(graph, &graph->forward, x),
                 last = pen_append_forward(
                     graph, PEN_OP_INDEX_SELECT, "last",
                     (uint32_t[]){all, pen_output_beside(graph, targets, 2)},
                     (int64_t[]){sequences, width_of(graph, all), graph->rows}, 3);
  graph->rows = sequences;
  graph->token_ranks = 1;
  return last;
}

uint32_t pen_op_starts(struct pen_graph *graph, const struct pen_declared *declared) {
  (void)declared;
  if (graph->topology->cached_prompts > 0)
    return pen_append_forward(graph, PEN_OP_POSITIONS, "starts", NULL,
                              (int64_t[]){graph->rows, sequence_count(graph)}, 2);
  return pen_append_forward(graph, PEN_OP_STARTS, "starts", NULL, (int64_t[]){graph->rows}, 1);
}

uint32_t pen_op_normal(struct pen_graph *graph, const char *name, int64_t width, int stream) {
  return pen_append_forward(graph, PEN_OP_NORMAL, name, NULL,
                            (int64_t[]){graph->rows, width, stream, graph->topology->sequence}, 4);
}

uint32_t pen_op_embedding(struct pen_graph *graph, const char *name, uint32_t tokens,
                          uint32_t table, uint32_t addend) {
  const struct pen_weight *weight = &graph->weight[graph->value[table].weight];
  const uint64_t width = weight->tensor_dim[1];
  return pen_append_forward(
      graph, PEN_OP_EMBEDDING, name, (uint32_t[]){tokens, table, addend},
      (int64_t[]){graph->rows, (int64_t)width, (int64_t)weight->dim[0],
                  weight->split_count > 1 ? (int64_t)(weight->run_first / width) : 0,
                  (int64_t)weight->tensor_dim[0]},
      5);
}

uint32_t pen_op_linear(struct pen_graph *graph, const char *name, uint32_t x, uint32_t weight,
                       uint32_t addend) {
  const struct pen_weight *shape = &graph->weight[graph->value[weight].weight];
  const int64_t splits = splits_of(shape),
                dim[] = {graph->rows, (int64_t)shape->dim[1], (int64_t)shape->dim[0], splits};
  const uint32_t all = splits ? pen_all_tokens(graph, &graph->forward, x) : x;
  return pen_append_forward(graph, PEN_OP_LINEAR, name, (uint32_t[]){all, weight, addend}, dim, 4);
}

/* The dims of a norm: of all tokens its gains' gradients are sums of runs, of the heads of a split
 * sums of the splits. */
static void norm_dims(const struct pen_graph *graph, int64_t rows, int64_t width, int64_t dim[4]) {
  const bool by_runs = graph->splits > 1 && graph->split == PEN_NONE;
  memcpy(dim,
         (int64_t[]){rows, width, by_runs ? pen_local_sequence(graph) : 0,
                     by_runs ? pen_local_runs(graph) : 0},
         4 * sizeof *dim);
}

uint32_t pen_op_rmsnorm(struct pen_graph *graph, const char *name, uint32_t x, uint32_t gain,
                        double offset) {
  int64_t width = (int64_t)graph->value[gain].elements,
          rows = (int64_t)graph->value[x].elements / width, dim[4];
  norm_dims(graph, rows, width, dim);
  uint32_t y = pen_append_forward(graph, PEN_OP_RMSNORM, name, (uint32_t[]){x, gain}, dim, 4);
  double *real = graph->forward.op[graph->forward.count - 1].real;
  real[0] = graph->topology->model_norm_epsilon;
  real[1] = offset;
  return y;
}

uint32_t pen_op_affine(struct pen_graph *graph, const char *name, uint32_t x, uint32_t weight,
                       uint32_t bias, uint32_t addend) {
  const struct pen_weight *shape = &graph->weight[graph->value[weight].weight];
  const int64_t splits = splits_of(shape),
                dim[] = {graph->rows, (int64_t)shape->dim[0], (int64_t)shape->dim[1], splits};
  const uint32_t all = splits ? pen_all_tokens(graph, &graph->forward, x) : x;
  return pen_append_forward(graph, PEN_OP_AFFINE, name, (uint32_t[]){all, weight, bias, addend},
                            dim, 4);
}

uint32_t pen_op_bias(struct pen_graph *graph, const char *name, uint32_t x, uint32_t bias) {
  return pen_append_forward(graph, PEN_OP_BIAS, name, (uint32_t[]){x, bias},
                            (int64_t[]){graph->rows, width_of(graph, x)}, 2);
}

uint32_t pen_op_layernorm(struct pen_graph *graph, const char *name, uint32_t x, uint32_t gain,
                          uint32_t bias) {
  int64_t dim[4];
  norm_dims(graph, pen_local_rows(graph), (int64_t)graph->value[gain].elements, dim);
  uint32_t y =
      pen_append_forward(graph, PEN_OP_LAYERNORM, name, (uint32_t[]){x, gain, bias}, dim, 4);
  graph->forward.op[graph->forward.count - 1].real[0] = graph->topology->model_norm_epsilon;
  return y;
}

uint32_t pen_op_position(struct pen_graph *graph, const char *name, uint32_t x, uint32_t table,
                         uint32_t starts) {
  const struct pen_weight *shape = &graph->weight[graph->value[table].weight];
  const int64_t held = pen_local_sequence(graph);
  return pen_append_forward(
      graph, PEN_OP_POSITION, name, (uint32_t[]){x, table, starts},
      (int64_t[]){graph->rows, (int64_t)shape->dim[1], graph->topology->sequence,
                  (int64_t)shape->dim[0], graph->splits > 1 ? graph->splits : 0,
                  pen_local_rows(graph), held,
                  graph->token_ranks > 1 ? graph->tensor_rank * held : 0},
      8);
}

void pen_op_split(struct pen_graph *graph, const char *name, uint32_t x, uint32_t part[3]) {
  pen_append_forward(graph, PEN_OP_SPLIT, name, (uint32_t[]){x},
                     (int64_t[]){graph->rows, width_of(graph, x) / 3}, 2);
  memcpy(part, &graph->forward.op[graph->forward.count - 1].operand[1], 3 * sizeof *part);
}

/* The pair of a head whose wavelength fits `turns` times in the sequence of pretraining. */
static double pair_of_turns(const struct pen_topology *t, int64_t head_dim, double theta,
                            double turns) {
  const double sequence = (double)t->model_rope_original_sequence;
  return (double)head_dim * log(sequence / (2 * M_PI) / turns) / (2 * log(theta));
}

/* How much attention to far tokens is sharpened: the logarithm of the factor, by its weight. */
static double yarn_sharpness(double factor, double weight) {
  return 0.1 * weight * log(factor) + 1;
}

static double yarn_scale(const struct pen_topology *t) {
  const double factor = t->model_rope_factor, weight = t->model_rope_mscale,
               divisor = t->model_rope_mscale_all_dim;
  if (t->model_rope_attention_factor > 0) return t->model_rope_attention_factor;
  if (weight > 0 && divisor > 0)
    return yarn_sharpness(factor, weight) / yarn_sharpness(factor, divisor);
  return yarn_sharpness(factor, 1);
}

/* Offset, step and scale of ROPE_TABLE (Peng et al. 2023). Pairs up to `first` keep their
 * wavelengths, those from `last` on have all of the factor; both as transformers bounds them. */
static void set_yarn(double real[], const struct pen_topology *t, int64_t head_dim, double theta) {
  double first = pair_of_turns(t, head_dim, theta, t->model_rope_beta_fast);
  double last = pair_of_turns(t, head_dim, theta, t->model_rope_beta_slow);
  if (t->model_rope_truncate) {
    first = floor(first);
    last = ceil(last);
  }
  first = fmax(first, 0);
  last = fmin(last, (double)head_dim - 1);
  if (!(first < last || first > last)) last += 0.001;
  real[3] = -last / (last - first);
  real[4] = 1 / (last - first);
  real[5] = yarn_scale(t);
}

uint32_t pen_op_rope_table(struct pen_graph *graph, const char *name, int64_t head_dim,
                           double theta, bool scaled) {
  const struct pen_topology *t = graph->topology;
  struct pen_op *op =
      pen_append_with_outputs(graph, &graph->start, PEN_OP_ROPE_TABLE, name, NULL,
                              (int64_t[]){t->model_sequence, head_dim / 2}, 2, PEN_ROLE_CONSTANT);
  op->real[0] = theta;
  if (scaled && t->model_rope_factor > 0) op->real[1] = t->model_rope_factor;
  if (scaled && t->model_rope_scaling == PEN_ROPE_SCALING_LLAMA3) {
    double between = t->model_rope_high_freq_factor - t->model_rope_low_freq_factor;
    op->real[2] = (double)t->model_rope_original_sequence / (2 * M_PI * between);
    op->real[3] = t->model_rope_low_freq_factor / between;
  }
  if (scaled && t->model_rope_scaling == PEN_ROPE_SCALING_YARN) {
    set_yarn(op->real, t, head_dim, theta);
  }
  return op->operand[0];
}

uint32_t pen_op_rope(struct pen_graph *graph, const char *name, uint32_t x, uint32_t table,
                     uint32_t starts, int64_t heads, int64_t head_dim) {
  int64_t positions = (int64_t)graph->value[table].elements / head_dim;
  return pen_append_forward(
      graph, PEN_OP_ROPE, name, (uint32_t[]){x, table, starts},
      (int64_t[]){sequence_count(graph), graph->topology->sequence, heads, head_dim, positions}, 5);
}

/* size: heads, kv_heads, head_dim, window. The slots of the cache are those of all texts in flight.
 */
static uint32_t append_cached(struct pen_graph *graph, const char *name, const uint32_t input[4],
                              const int64_t size[4]) {
  const struct pen_topology *t = graph->topology;
  uint32_t slot = pen_output_beside(graph, input[3], 1);
  uint32_t o =
      pen_append_forward(graph, PEN_OP_ATTENTION_CACHED, name,
                         (uint32_t[]){input[0], input[1], input[2], input[3], slot},
                         (int64_t[]){sequence_count(graph), t->sequence, size[0], size[1], size[2],
                                     size[3], pen_topology_cache_slots(t), t->model_sequence},
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
  return pen_append_forward(
      graph, PEN_OP_ATTENTION, name, (uint32_t[]){q, k, v, starts},
      (int64_t[]){sequence_count(graph), sequence, heads, kv_heads, head_dim, window}, 6);
}

uint32_t pen_op_elementwise(struct pen_graph *graph, int kind, const char *name, uint32_t x,
                            uint32_t z) {
  return pen_append_forward(graph, kind, name, (uint32_t[]){x, z},
                            (int64_t[]){(int64_t)graph->value[x].elements}, 1);
}

uint32_t pen_op_scale(struct pen_graph *graph, const char *name, uint32_t x, double factor) {
  uint32_t y = pen_op_elementwise(graph, PEN_OP_SCALE, name, x, PEN_NONE);
  graph->forward.op[graph->forward.count - 1].real[0] = factor;
  return y;
}

uint32_t pen_op_add(struct pen_graph *graph, const char *name, uint32_t x, uint32_t z) {
  return pen_op_elementwise(graph, PEN_OP_ADD, name, x, z);
}

/* Ends the model with a loss op that also computes the gradient, its last operand. Dims: rows, and
 * others. */
static struct pen_op *append_loss(struct pen_graph *graph, int kind, const uint32_t *input,
                                  const int64_t *dim, size_t dim_count) {
  struct pen_op *op = pen_append_with_outputs(graph, &graph->forward, kind, "loss", input, dim,
                                              dim_count, PEN_ROLE_LOSS);
  pen_append_loss_gradient(graph, op, input[0]);
  return op;
}

void pen_op_cross_entropy(struct pen_graph *graph, uint32_t logits, uint32_t targets) {
  append_loss(graph, PEN_OP_CROSS_ENTROPY,
              (uint32_t[]){logits, targets, pen_share_of(graph, targets)},
              (int64_t[]){graph->rows, width_of(graph, logits)}, 2);
}

void pen_op_head_loss(struct pen_graph *graph, uint32_t x, uint32_t weight, uint32_t targets,
                      int64_t chunk) {
  const struct pen_weight *shape = &graph->weight[graph->value[weight].weight];
  append_loss(graph, PEN_OP_HEAD_LOSS,
              (uint32_t[]){x, weight, targets, pen_share_of(graph, targets)},
              (int64_t[]){graph->rows, (int64_t)shape->dim[1], (int64_t)shape->dim[0], chunk}, 4);
  graph->fused_op_count = 1;
}

void pen_op_sum_loss(struct pen_graph *graph, uint32_t x) {
  append_loss(graph, PEN_OP_SUM_LOSS, (uint32_t[]){x, PEN_NONE},
              (int64_t[]){graph->rows, width_of(graph, x)}, 2)
      ->real[0] = 1.0;
}

uint32_t pen_op_share(struct pen_graph *graph, uint32_t row) {
  return pen_append_forward(graph, PEN_OP_SHARE, "share", NULL, (int64_t[]){row}, 1);
}

uint32_t pen_op_add_loss(struct pen_graph *graph, int kind, uint32_t *input, const int64_t *dim,
                         size_t dim_count, uint32_t share, uint32_t sum, bool is_last) {
  if (graph->value[input[0]].gradient != PEN_NONE) /* of another loss */
    input[0] = pen_op_scale(graph, graph->value[input[0]].name, input[0], 1.0);
  struct pen_op *op =
      pen_append_with_outputs(graph, &graph->forward, kind, pen_local_name(graph, "loss"), input,
                              dim, dim_count, PEN_ROLE_ACTIVATION);
  const int scale = pen_signature_real(pen_signature_of(kind), "scale");
  const uint32_t loss = op->operand[pen_signature_of(kind)->input_count];
  if (scale >= 0) op->real[scale] = 1.0;
  pen_append_loss_gradient(graph, op, input[0]);
  return pen_append_with_outputs(graph, &graph->forward, PEN_OP_ADD_LOSS, "loss",
                                 (uint32_t[]){loss, share, sum}, NULL, 0,
                                 is_last ? PEN_ROLE_LOSS : PEN_ROLE_ACTIVATION)
      ->operand[3];
}
