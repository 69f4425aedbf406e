/* split_head.c: the head of split weights: with whole logits, by chunks of rows, and with joined
 * logits (see split_head.h). */
#include "gen/model/split_head.h"

#include "gen/model/append.h"
#include "gen/model/builder.h"
#include "gen/model/splits.h"
#include "gen/model/sequence.h"
#include "gen/topology/topology.h"
#include "runtime/plan/plan.h"

/* ---- whole logits ---- */

/* The logits of each split, and the maximum and the sum of exponentials over all. */
struct split_logits {
  uint32_t logits[PEN_SPLITS_MAX], weight[PEN_SPLITS_MAX], maximum, sum;
};

static void append_logits(struct pen_graph *graph, struct split_logits *all, uint32_t x,
                          const char *weight, double deviation) {
  struct pen_pairwise sum = {.kind = PEN_OP_SUM_ADD, .count = graph->splits};
  all->maximum = PEN_NONE;
  for (uint32_t k = 0; pen_graph_next_split(graph, k); k++) {
    all->weight[k] = pen_graph_head_split(graph, weight, deviation);
    all->logits[k] = pen_op_linear(graph, "logits", x, all->weight[k], PEN_NONE);
    all->maximum = pen_append_forward(
        graph, PEN_OP_LOGITS_MAXIMUM, "maximum", (uint32_t[]){all->logits[k], all->maximum},
        (int64_t[]){graph->rows, pen_split_row_count(graph, all->weight[k])}, 2);
  }
  all->maximum = pen_max_over_tensor_ranks(graph, all->maximum);
  for (uint32_t k = 0; pen_graph_next_split(graph, k); k++) {
    uint32_t own = pen_append_forward(
        graph, PEN_OP_LOGITS_SUM, "exponentials", (uint32_t[]){all->logits[k], all->maximum},
        (int64_t[]){graph->rows, pen_split_row_count(graph, all->weight[k])}, 2);
    pen_pairwise_add(graph, &graph->forward, &sum, own, pen_local_name(graph, "exponentials"));
  }
  all->sum = pen_pairwise_total(graph, &graph->forward, &sum, "exponentials", PEN_ROLE_ACTIVATION);
}

void pen_op_head_columns(struct pen_graph *graph, uint32_t x, const char *weight, double deviation,
                         const struct pen_declared *targets) {
  struct split_logits all;
  struct pen_pairwise loss = {.kind = PEN_OP_SUM_ADD, .count = graph->splits};
  append_logits(graph, &all, x, weight, deviation);
  const uint32_t target = pen_graph_data(graph, targets);
  for (uint32_t k = 0; pen_graph_next_split(graph, k); k++) {
    struct pen_op *op = pen_append_with_outputs(
        graph, &graph->forward, PEN_OP_CROSS_ENTROPY_COLUMNS, pen_local_name(graph, "loss"),
        (uint32_t[]){all.logits[k], target, pen_share_of(graph, target), all.maximum, all.sum},
        (int64_t[]){graph->rows, pen_split_row_count(graph, all.weight[k]),
                    pen_split_first_row(graph, all.weight[k]), graph->topology->model_vocab},
        4, PEN_ROLE_ACTIVATION);
    const uint32_t own = op->operand[5];
    pen_append_loss_gradient(graph, op, all.logits[k]);
    pen_pairwise_add(graph, &graph->forward, &loss, own, pen_local_name(graph, "loss"));
  }
  pen_pairwise_total(graph, &graph->forward, &loss, "loss", PEN_ROLE_LOSS);
}

/* ---- by chunks of rows ---- */

/* The head while its ops are emitted. */
struct chunked_head {
  struct pen_graph *graph;
  int64_t chunk;
  uint32_t x, weight[PEN_SPLITS_MAX], maximum, sum, targets;
};

/* The dims of an op of the current split: those of HEAD_MAXIMUM and HEAD_SUM are the first 4. */
#define HEAD_DIMS(head, value)                                                          \
  (int64_t[]) {                                                                         \
    (head)->graph->rows, (head)->graph->topology->model_hidden,                         \
        pen_split_row_count((head)->graph, value), (head)->chunk,                       \
        pen_split_first_row((head)->graph, value), (head)->graph->topology->model_vocab \
  }

/* The head's input for the next op: all tokens. */
static uint32_t input_of(const struct chunked_head *head) {
  return pen_all_tokens(head->graph, &head->graph->forward, head->x);
}

static void append_statistics(struct chunked_head *head, const char *weight, double deviation) {
  struct pen_graph *graph = head->graph;
  struct pen_pairwise sum = {.kind = PEN_OP_SUM_ADD, .count = graph->splits};
  for (uint32_t k = 0; pen_graph_next_split(graph, k); k++) {
    head->weight[k] = pen_graph_head_split(graph, weight, deviation);
    head->maximum = pen_append_forward(graph, PEN_OP_HEAD_MAXIMUM, "maximum",
                                       (uint32_t[]){input_of(head), head->weight[k], head->maximum},
                                       HEAD_DIMS(head, head->weight[k]), 4);
  }
  head->maximum = pen_max_over_tensor_ranks(graph, head->maximum);
  for (uint32_t k = 0; pen_graph_next_split(graph, k); k++) {
    uint32_t own = pen_append_forward(graph, PEN_OP_HEAD_SUM, "exponentials",
                                      (uint32_t[]){input_of(head), head->weight[k], head->maximum},
                                      HEAD_DIMS(head, head->weight[k]), 4);
    pen_pairwise_add(graph, &graph->forward, &sum, own, pen_local_name(graph, "exponentials"));
  }
  head->sum = pen_pairwise_total(graph, &graph->forward, &sum, "exponentials", PEN_ROLE_ACTIVATION);
}

/* The split's part of the gradient of x is a partial sum: in training, the op's last output. */
static uint32_t append_split_loss(struct chunked_head *head, uint32_t k) {
  struct pen_graph *graph = head->graph;
  const uint32_t x = input_of(head);
  struct pen_op *op = pen_append_with_outputs(
      graph, &graph->forward, PEN_OP_HEAD_LOSS_COLUMNS, pen_local_name(graph, "loss"),
      (uint32_t[]){x, head->weight[k], head->targets, pen_share_of(graph, head->targets),
                   head->maximum, head->sum},
      HEAD_DIMS(head, head->weight[k]), 6, PEN_ROLE_ACTIVATION);
  const uint32_t loss = op->operand[6];
  if (graph->training)
    op->operand[7] = pen_graph_value(graph, pen_local_name(graph, "norm'"), PEN_F32,
                                     PEN_ROLE_ACTIVATION, graph->value[x].elements);
  return loss;
}

void pen_op_head_chunks(struct pen_graph *graph, uint32_t x, const char *weight, double deviation,
                        const struct pen_declared *targets, int64_t chunk) {
  struct chunked_head head = {.graph = graph,
                              .chunk = chunk,
                              .x = x,
                              .maximum = PEN_NONE,
                              .targets = pen_graph_data(graph, targets)};
  struct pen_pairwise loss = {.kind = PEN_OP_SUM_ADD, .count = graph->splits};
  const size_t first = graph->forward.count;
  append_statistics(&head, weight, deviation);
  for (uint32_t k = 0; pen_graph_next_split(graph, k); k++)
    pen_pairwise_add(graph, &graph->forward, &loss, append_split_loss(&head, k),
                     pen_local_name(graph, "loss"));
  pen_pairwise_total(graph, &graph->forward, &loss, "loss", PEN_ROLE_LOSS);
  graph->fused_op_count = graph->forward.count - first;
}

/* ---- joined ---- */

void pen_op_head_joined(struct pen_graph *graph, uint32_t x, const char *weight, double deviation,
                        const struct pen_declared *targets) {
  uint32_t joined = PEN_NONE;
  for (uint32_t k = 0; pen_graph_next_split(graph, k); k++) {
    const uint32_t own = pen_graph_head_split(graph, weight, deviation),
                   logits = pen_op_linear(graph, "logits", x, own, PEN_NONE);
    joined = pen_append_forward(
        graph, PEN_OP_LOGITS_JOIN, "joined", (uint32_t[]){logits, joined},
        (int64_t[]){graph->rows, pen_split_row_count(graph, own), pen_split_first_row(graph, own),
                    graph->topology->model_vocab},
        4);
  }
  pen_op_cross_entropy(graph, joined, pen_graph_data(graph, targets));
}
