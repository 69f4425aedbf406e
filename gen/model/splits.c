/* splits.c: builds split weights and the ops that differ with them (see splits.h).
 *
 * Whatever the number of tensor ranks, the ops run split by split with the shape of a split, and
 * partial sums are added pairwise: (0+1)+(2+3). So bits depend on the number of splits alone. */
#include "gen/model/splits.h"

#include "gen/base/arena.h"
#include "gen/base/error.h"
#include "gen/model/append.h"
#include "gen/model/builder.h"
#include "gen/model/op_signature.h"
#include "gen/model/place.h"
#include "gen/model/sequence.h"
#include "gen/topology/topology.h"
#include "runtime/plan/plan.h"

bool pen_graph_next_split(struct pen_graph *graph, uint32_t k) {
  graph->split = graph->splits > 1 && k < graph->own_splits ? k : PEN_NONE;
  return k < graph->own_splits;
}

static uint32_t first_own_split(const struct pen_graph *graph) {
  return graph->tensor_rank * graph->own_splits;
}

bool pen_graph_has_weight(const struct pen_graph *graph, size_t weight) {
  const struct pen_weight *of = &graph->weight[weight];
  return of->split_count == 1 || of->split / graph->own_splits == graph->tensor_rank;
}

/* ---- weights ---- */

/* The number of the current split among all: with one, 0. */
static uint32_t split_index(const struct pen_graph *graph) {
  return graph->split == PEN_NONE ? 0 : first_own_split(graph) + graph->split;
}

static const char *split_name(const char *name, uint32_t split) {
  return pen_text("%s[%u]", name, split);
}

/* How a tensor is split. */
struct split {
  const char *name;
  int64_t dim[2]; /* the second is 0: it has one */
  int axis;       /* the dimension that is split */
  int64_t groups; /* of columns, each of which is split: q, k and v in one matrix */
  int initial;
  double deviation;
  bool tied; /* it is the embedding's, for the head, with gradients of its own */
};

static uint64_t columns_of(const struct split *of) {
  return (uint64_t)(of->dim[1] ? of->dim[1] : 1);
}

/* Adds split k; PEN_NONE: another tensor rank has it. Rows of a matrix are consecutive; columns,
 * and elements of a vector, are a run of each group. */
static uint32_t add_split(struct pen_graph *graph, const struct split *of, uint32_t k) {
  const bool rows = of->axis == 0 && of->dim[1] != 0;
  const uint64_t whole = (uint64_t)(of->dim[of->axis] / of->groups),
                 most = (whole + graph->splits - 1) / graph->splits, first = k * most,
                 count = whole - first < most ? whole - first : most,
                 unit = rows ? columns_of(of) : 1;
  struct pen_weight weight = {.name = split_name(of->name, k),
                              .tensor = of->name,
                              .split = k,
                              .split_count = graph->splits,
                              .dim_count = of->dim[1] ? 2 : 1,
                              .dim = {(uint64_t)of->dim[0], (uint64_t)of->dim[1]},
                              .tensor_dim = {(uint64_t)of->dim[0], (uint64_t)of->dim[1]},
                              .run_first = first * unit,
                              .run_count = count * unit,
                              .run_stride = whole * unit,
                              .initial = (uint8_t)of->initial,
                              .deviation = of->deviation};
  weight.dim[of->axis] = count * (uint64_t)of->groups;
  if (k / graph->own_splits != graph->tensor_rank) {
    pen_add_weight_row(graph, &weight);
    return PEN_NONE;
  }
  return pen_add_weight(graph, &weight,
                        pen_text("%s%s.grad", weight.name, of->tied ? ".head" : ""));
}

static void set_parts(struct pen_weight *weight, const struct split *of) {
  if (weight->optimizer == PEN_OPTIMIZER_MUON) weight->matrix_parts = (uint32_t)of->groups;
}

/* The current split of a tensor, whose splits are added at the first call. */
static uint32_t split_of(struct pen_graph *graph, const struct split *of) {
  if (graph->splits == 1) {
    const uint32_t whole =
        pen_graph_weight(graph, of->name, of->dim[0], of->dim[1], of->initial, of->deviation);
    set_parts(&graph->weight[graph->value[whole].weight], of);
    return whole;
  }
  uint32_t value = pen_weight_of_block(graph, split_name(of->name, split_index(graph)));
  if (value != PEN_NONE) return value;
  if (of->tied) graph->tied = (uint32_t)graph->weight_count;
  for (uint32_t k = 0; k < graph->splits; k++) {
    uint32_t added = add_split(graph, of, k);
    set_parts(&graph->weight[graph->weight_count - 1], of);
    if (k == split_index(graph)) value = added;
  }
  return value;
}

static struct split split_matrix(const char *name, int64_t rows, int64_t columns, int axis,
                                 double deviation) {
  return (struct split){name, {rows, columns}, axis, 1, PEN_INITIAL_NORMAL, deviation, false};
}

uint32_t pen_graph_columns(struct pen_graph *graph, const char *name, int64_t out, int64_t in,
                           double deviation) {
  const struct split of = split_matrix(name, out, in, 0, deviation);
  return split_of(graph, &of);
}

uint32_t pen_graph_columns_bias(struct pen_graph *graph, const char *name, int64_t out) {
  const struct split of = {name, {out, 0}, 0, 1, PEN_INITIAL_ZEROS, 0, false};
  return split_of(graph, &of);
}

uint32_t pen_op_affine_columns(struct pen_graph *graph, const char *value, uint32_t x,
                               const char *name, int64_t in, int64_t out, int64_t groups,
                               double deviation) {
  struct split matrix = split_matrix(pen_text("%s.weight", name), in, out, 1, deviation);
  const struct split vector = {pen_text("%s.bias", name), {out, 0}, 0,    groups,
                               PEN_INITIAL_ZEROS,         0,        false};
  matrix.groups = groups;
  const uint32_t weight = split_of(graph, &matrix), bias = split_of(graph, &vector);
  return pen_op_affine(graph, value, x, weight, bias, PEN_NONE);
}

/* ---- sums ---- */

/* Of the dtype of the sums. */
static uint32_t add_two(struct pen_graph *graph, struct pen_op_list *list, int kind,
                        const char *name, const uint32_t *two, uint8_t role) {
  const struct pen_value of = graph->value[two[0]];
  struct pen_op *op = pen_op_append(list, kind);
  op->dim[0] = (int64_t)of.elements;
  op->operand[0] = two[0];
  op->operand[1] = two[1];
  op->operand[2] = pen_graph_value(graph, name, of.dtype, role, of.elements);
  return op->operand[2];
}

/* Adds the next of `count` values: all but the last addition. */
static void add_next(struct pen_graph *graph, struct pen_op_list *list, struct pen_pairwise *sum,
                     uint32_t value, uint32_t count, const char *name) {
  sum->sum[sum->depth++] = value;
  sum->added++;
  for (uint32_t n = sum->added; n % 2 == 0; n /= 2) {
    if (sum->added == count && sum->depth == 2) return;
    sum->depth--;
    uint32_t *two = &sum->sum[sum->depth - 1];
    *two = add_two(graph, list, sum->kind, pen_text("%s.sum%u", name, sum->added), two,
                   PEN_ROLE_ACTIVATION);
    graph->value[*two].place[PEN_TENSOR] = PEN_PARTIAL;
  }
}

/* The same value of tensor rank m. */
static uint32_t part_of_rank(struct pen_graph *graph, struct pen_op_list *list, uint32_t value,
                             uint32_t m, const char *name) {
  const struct pen_value of = graph->value[value];
  struct pen_op *op = pen_op_append(list, PEN_OP_ALL_GATHER_PARTIAL);
  op->dtype = of.dtype;
  op->dim[0] = (int64_t)of.elements;
  op->dim[1] = m;
  op->operand[0] = value;
  op->operand[1] = pen_graph_value(graph, pen_text("%s.part%u", name, m), of.dtype,
                                   PEN_ROLE_ACTIVATION, of.elements);
  pen_place_as(graph, op->operand[1], value);
  return op->operand[1];
}

/* The parts of all tensor ranks. */
static void exchange_parts(struct pen_graph *graph, struct pen_op_list *list, uint32_t value,
                           bool by_tokens, const char *name, uint32_t *part) {
  for (uint32_t m = 0; m < pen_graph_tensor_ranks(graph); m++)
    part[m] = by_tokens && graph->token_ranks > 1 ? pen_local_part(graph, list, value, m, name)
                                                  : part_of_rank(graph, list, value, m, name);
}

/* Begins the sum of all tensor ranks' values again, with these; all but the last addition. */
static void add_tensor_ranks(struct pen_graph *graph, struct pen_op_list *list,
                             struct pen_pairwise *sum, uint32_t value, const char *name) {
  uint32_t part[PEN_SPLITS_MAX];
  exchange_parts(graph, list, value, sum->by_tokens, name, part);
  *sum = (struct pen_pairwise){.kind = sum->kind, .count = sum->count};
  for (uint32_t m = 0; m < pen_graph_tensor_ranks(graph); m++)
    add_next(graph, list, sum, part[m], pen_graph_tensor_ranks(graph), pen_text("%s.parts", name));
}

void pen_pairwise_add(struct pen_graph *graph, struct pen_op_list *list, struct pen_pairwise *sum,
                      uint32_t value, const char *name) {
  const uint32_t tensor_ranks = pen_graph_tensor_ranks(graph), all = 2 * sum->count;
  add_next(graph, list, sum, value, tensor_ranks == 1 ? sum->count : all, name);
  if (tensor_ranks > 1 && sum->added == graph->own_splits)
    add_tensor_ranks(graph, list, sum, sum->sum[0], name);
}

uint32_t pen_sum_over_tensor_ranks(struct pen_graph *graph, struct pen_op_list *list,
                                   uint32_t value, const char *name) {
  struct pen_pairwise sum = {.kind = PEN_OP_ADD, .count = graph->splits};
  add_tensor_ranks(graph, list, &sum, value, name);
  return pen_pairwise_total(graph, list, &sum, name, PEN_ROLE_ACTIVATION);
}

uint32_t pen_pairwise_total(struct pen_graph *graph, struct pen_op_list *list,
                            const struct pen_pairwise *sum, const char *name, uint8_t role) {
  return add_two(graph, list, sum->kind, name, sum->sum, role);
}

uint32_t pen_pairwise_round(struct pen_graph *graph, struct pen_op_list *list, const char *name,
                            const struct pen_pairwise *sum, uint32_t addend, uint32_t bias,
                            int64_t width) {
  return pen_append_with_outputs(graph, list, PEN_OP_SUM_PARTIALS, name,
                                 (uint32_t[]){sum->sum[0], sum->sum[1], addend, bias},
                                 (int64_t[]){pen_local_rows(graph), width, graph->rows,
                                             graph->topology->sequence, graph->splits},
                                 5, PEN_ROLE_ACTIVATION)
      ->operand[4];
}

/* Adds the products of the splits of x with those of a weight that is split by rows, of op `kind`,
 * but for the last addition. */
static struct pen_pairwise multiply_rows(struct pen_graph *graph, int kind, const char *name,
                                         const uint32_t *x, const struct split *of, int64_t in,
                                         int64_t out) {
  struct pen_pairwise sum = {.kind = PEN_OP_ADD, .by_tokens = true, .count = graph->splits};
  for (uint32_t k = 0; pen_graph_next_split(graph, k); k++) {
    uint32_t part =
        pen_append_forward(graph, kind, name, (uint32_t[]){x[k], split_of(graph, of), PEN_NONE},
                           (int64_t[]){graph->rows, in / graph->splits, out, graph->splits},
                           (size_t)pen_signature_of(kind)->dim_count);
    pen_pairwise_add(graph, &graph->forward, &sum, part, pen_local_name(graph, name));
  }
  return sum;
}

uint32_t pen_op_linear_rows(struct pen_graph *graph, const char *name, const uint32_t *x,
                            const char *weight, const char *bias, int64_t out, int64_t in,
                            double deviation, uint32_t addend) {
  const struct split of = split_matrix(weight, out, in, 1, deviation);
  if (graph->splits == 1) {
    const uint32_t y = pen_op_linear(graph, name, x[0], split_of(graph, &of), addend);
    return bias == NULL ? y
                        : pen_op_bias(graph, pen_text("%s_bias", name), y,
                                      pen_graph_weight(graph, bias, out, 0, PEN_INITIAL_ZEROS, 0));
  }
  const struct pen_pairwise sum = multiply_rows(graph, PEN_OP_LINEAR, name, x, &of, in, out);
  const uint32_t added =
      bias == NULL ? PEN_NONE : pen_graph_weight(graph, bias, out, 0, PEN_INITIAL_ZEROS, 0);
  return pen_pairwise_round(graph, &graph->forward, pen_local_name(graph, name), &sum, addend,
                            added, out);
}

uint32_t pen_op_affine_rows(struct pen_graph *graph, const char *value, const uint32_t *x,
                            const char *name, int64_t in, int64_t out, double deviation,
                            uint32_t addend) {
  const struct split of = split_matrix(pen_text("%s.weight", name), in, out, 0, deviation);
  const char *bias_name = pen_text("%s.bias", name);
  if (graph->splits == 1) {
    const uint32_t weight = split_of(graph, &of),
                   bias = pen_graph_weight(graph, bias_name, out, 0, PEN_INITIAL_ZEROS, 0);
    return pen_op_affine(graph, value, x[0], weight, bias, addend);
  }
  const struct pen_pairwise sum = multiply_rows(graph, PEN_OP_AFFINE_ROWS, value, x, &of, in, out);
  const uint32_t bias = pen_graph_weight(graph, bias_name, out, 0, PEN_INITIAL_ZEROS, 0);
  return pen_pairwise_round(graph, &graph->forward, pen_local_name(graph, value), &sum, addend,
                            bias, out);
}

/* ---- vocabulary ---- */

int64_t pen_split_first_row(const struct pen_graph *graph, uint32_t weight) {
  const struct pen_weight *shape = &graph->weight[graph->value[weight].weight];
  return (int64_t)(shape->run_first / shape->tensor_dim[1]);
}

int64_t pen_split_row_count(const struct pen_graph *graph, uint32_t weight) {
  return (int64_t)graph->weight[graph->value[weight].weight].dim[0];
}

/* The rows of x from the tensor rank that has each: of the table that is split `of`. */
static uint32_t select_rows(struct pen_graph *graph, const char *name, uint32_t tokens, uint32_t x,
                            const struct split *of) {
  const uint32_t tensor_ranks = pen_graph_tensor_ranks(graph);
  const int64_t most = (of->dim[0] + graph->splits - 1) / graph->splits * graph->own_splits;
  uint32_t part[PEN_SPLITS_MAX], y = PEN_NONE;
  if (tensor_ranks == 1) return x;
  const uint32_t held = pen_local_numbers(graph, pen_text("%s.tokens", name), tokens);
  exchange_parts(graph, &graph->forward, x, true, pen_local_name(graph, name), part);
  for (uint32_t m = 0; m < tensor_ranks; m++) {
    const int64_t left = of->dim[0] - m * most;
    y = pen_append_forward(
        graph, PEN_OP_EMBEDDING_SELECT, name, (uint32_t[]){held, part[m], y},
        (int64_t[]){pen_local_rows(graph), of->dim[1], left < most ? left : most, m * most}, 4);
  }
  return y;
}

uint32_t pen_op_embedding_rows(struct pen_graph *graph, const char *name,
                               const struct pen_declared *tokens, const char *weight,
                               double deviation) {
  const struct pen_topology *t = graph->topology;
  const struct split of = split_matrix(weight, t->model_vocab, t->model_hidden, 0, deviation);
  uint32_t y = PEN_NONE;
  for (uint32_t k = 0; pen_graph_next_split(graph, k); k++) {
    const uint32_t table = split_of(graph, &of);
    y = pen_op_embedding(graph, name, pen_graph_data(graph, tokens), table, y);
  }
  return select_rows(graph, name, pen_graph_data(graph, tokens), y, &of);
}

uint32_t pen_graph_head_split(struct pen_graph *graph, const char *weight, double deviation) {
  const struct pen_topology *t = graph->topology;
  struct split of = split_matrix(weight, t->model_vocab, t->model_hidden, 0, deviation);
  of.tied = t->model_tie_embeddings;
  return split_of(graph, &of);
}

uint32_t pen_max_over_tensor_ranks(struct pen_graph *graph, uint32_t own) {
  const uint32_t tensor_ranks = pen_graph_tensor_ranks(graph);
  uint32_t part[PEN_SPLITS_MAX];
  if (tensor_ranks == 1) return own;
  for (uint32_t m = 0; m < tensor_ranks; m++)
    part[m] = part_of_rank(graph, &graph->forward, own, m, pen_local_name(graph, "maximum"));
  uint32_t most = part[0];
  for (uint32_t m = 1; m < tensor_ranks; m++)
    most = pen_append_forward(graph, PEN_OP_MAXIMUM, "maximum.all", (uint32_t[]){most, part[m]},
                              &graph->rows, 1);
  return most;
}
