/* experts.c: builds a layer of experts (see experts.h).
 *
 *     logits = ROUTER_LOGITS(x)       of all rows
 *     expert, weight = ROUTE(logits)
 *     for each slice:  sent = DISPATCH(x), slots = EXPERTS(sent), y = SUM_CHOICES(slots, y)
 *
 *     in training: ADD_CHOICES(expert), and, if the router has losses,
 *     ROUTER_LOSS(logits, expert, counts)
 *
 * The first y is the addend. Each slice writes its rows of y, in the same memory. So the backward
 * runs the slices last first, and adds their gradients of weights in this order. */
#include "gen/model/experts.h"

#include "gen/base/arena.h"
#include "gen/model/append.h"
#include "gen/model/blocks.h"
#include "gen/topology/experts.h"
#include "gen/topology/topology.h"
#include "runtime/plan/plan.h"

uint32_t pen_graph_stack(struct pen_graph *graph, const char *name, int64_t rows, int64_t columns,
                         double deviation) {
  const uint64_t experts = (uint64_t)graph->topology->model_experts,
                 elements = experts * (uint64_t)rows * (uint64_t)columns;
  const struct pen_weight weight = {.name = name,
                                    .tensor = name,
                                    .stack = (uint32_t)experts,
                                    .split_count = 1,
                                    .dim_count = 2,
                                    .dim = {experts * (uint64_t)rows, (uint64_t)columns},
                                    .tensor_dim = {(uint64_t)rows, (uint64_t)columns},
                                    .run_count = elements,
                                    .run_stride = elements,
                                    .initial = PEN_INITIAL_NORMAL,
                                    .deviation = deviation};
  return pen_add_weight(graph, &weight, pen_text("%s.grad", name));
}

/* A number for each expert, which an optimizer of its own updates; 0: none does. */
static uint32_t numbers_of_experts(struct pen_graph *graph, const char *name, int optimizer) {
  const uint64_t experts = (uint64_t)graph->topology->model_experts;
  const struct pen_weight weight = {.name = name,
                                    .tensor = name,
                                    .frozen = optimizer == 0,
                                    .optimizer = (uint8_t)optimizer,
                                    .split_count = 1,
                                    .dim_count = 1,
                                    .dim = {experts},
                                    .tensor_dim = {experts},
                                    .run_count = experts,
                                    .run_stride = experts,
                                    .initial = PEN_INITIAL_ZEROS};
  return pen_add_weight(graph, &weight, pen_text("%s.grad", name));
}

uint32_t pen_graph_router_bias(struct pen_graph *graph, const char *name) {
  return numbers_of_experts(graph, name,
                            graph->topology->model_bias_update > 0 ? PEN_OPTIMIZER_BALANCE : 0);
}

uint32_t pen_graph_router_counts(struct pen_graph *graph, const char *router) {
  return pen_balances_steps(graph->topology)
             ? numbers_of_experts(graph, router, PEN_OPTIMIZER_CHOICES)
             : PEN_NONE;
}

/* The routes of a layer, and the dims that its ops share. */
struct routed {
  uint32_t x, expert, weight;
  int64_t rows, width, part, choices, runs, experts;
};

/* How many layers before the block's have experts. */
static uint32_t router_of(const struct pen_graph *graph) {
  uint32_t router = 0;
  for (uint32_t n = 0; n < graph->stages->block[graph->block].layer; n++)
    router += pen_layer_has_experts(graph->topology, n);
  return router;
}

static void append_counts(struct pen_graph *graph, const struct routed *r) {
  const struct pen_op *op = pen_append_with_outputs(
      graph, &graph->forward, PEN_OP_ADD_CHOICES, pen_local_name(graph, "choices"), &r->expert,
      (int64_t[]){r->rows, r->experts, r->choices}, 3, PEN_ROLE_COUNTS);
  graph->value[op->operand[1]].loss_row = router_of(graph);
}

/* Each layer has two rows of the loss table, after the model's. The losses of a step are means over
 * its microbatches, of all replicas. */
static void append_losses(struct pen_graph *graph, uint32_t logits, uint32_t expert,
                          uint32_t counts) {
  const struct pen_topology *t = graph->topology;
  const double share = 1.0 / (double)(t->pipeline_microbatches * t->data_parallel_replicas);
  struct pen_op *op = pen_append_with_outputs(
      graph, &graph->forward, PEN_OP_ROUTER_LOSS, pen_local_name(graph, "aux_loss"),
      (uint32_t[]){logits, expert, counts},
      (int64_t[]){graph->rows, t->model_experts, t->model_experts_per_token,
                  pen_balances_sequences(t) ? graph->rows / t->sequence : 1,
                  t->model_router_score == PEN_ROUTER_SIGMOID},
      5, PEN_ROLE_LOSS);
  op->real[0] = t->model_aux_loss > 0 ? t->model_aux_loss * share : 0;
  op->real[1] = t->model_z_loss > 0 ? t->model_z_loss * share : 0;
  const uint32_t row = 1 + 2 * router_of(graph);
  graph->value[op->operand[3]].loss_row = row;
  graph->value[op->operand[4]].loss_row = row + 1;
  pen_append_loss_gradient(graph, op, logits);
}

static struct routed route(struct pen_graph *graph, uint32_t x,
                           const struct pen_expert_weights *w) {
  const struct pen_topology *t = graph->topology;
  struct routed r = {.x = x,
                     .rows = graph->rows,
                     .width = (int64_t)graph->value[x].elements / graph->rows,
                     .part = pen_slice_rows(t, graph->rows),
                     .choices = t->model_experts_per_token,
                     .runs = graph->rows / t->sequence,
                     .experts = t->model_experts};
  const uint32_t logits =
      pen_append_forward(graph, PEN_OP_ROUTER_LOGITS, "router_logits", (uint32_t[]){x, w->router},
                         (int64_t[]){r.rows, r.width, r.experts}, 3);
  r.expert = pen_append_forward(graph, PEN_OP_ROUTE, "routes", (uint32_t[]){logits, w->bias},
                                (int64_t[]){r.rows, r.experts, r.choices, t->model_router_normalize,
                                            t->model_router_score == PEN_ROUTER_SIGMOID,
                                            t->model_router_groups, t->model_router_top_groups},
                                7);
  struct pen_op *made = &graph->forward.op[graph->forward.count - 1];
  made->real[0] = t->model_router_scale > 0 ? t->model_router_scale : 1;
  r.weight = made->operand[3];
  if (graph->training) append_counts(graph, &r);
  if (graph->training && pen_has_router_losses(t))
    append_losses(graph, logits, r.expert, w->counts);
  return r;
}

uint32_t pen_op_experts(struct pen_graph *graph, const char *name, uint32_t x,
                        const struct pen_expert_weights *w, uint32_t addend) {
  const struct routed r = route(graph, x, w);
  const int64_t slices = r.rows / r.part;
  uint32_t y = addend;
  for (int64_t s = 0; s < slices; s++) {
    const int64_t moved[] = {r.rows, r.width, r.part, r.choices, r.runs, s, r.experts},
                  made[] = {r.rows, r.part,    r.choices, r.runs,
                            s,      r.experts, r.width,   graph->topology->model_moe_ffn};
    const char *of = slices > 1 ? pen_text(".%lld", (long long)s) : "";
    const uint32_t sent = pen_append_forward(graph, PEN_OP_DISPATCH, pen_text("sent%s", of),
                                             (uint32_t[]){r.x, r.expert}, moved, 7);
    const uint32_t slots = pen_append_forward(
        graph, PEN_OP_EXPERTS, pen_text("slots%s", of),
        (uint32_t[]){sent, r.expert, r.weight, w->gate, w->up, w->down}, made, 8);
    y = pen_append_forward(graph, PEN_OP_SUM_CHOICES,
                           s + 1 < slices ? pen_text("%s%s", name, of) : name,
                           (uint32_t[]){slots, r.expert, y}, moved, 7);
  }
  return y;
}
