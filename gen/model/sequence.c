/* sequence.c: the exchanges of values whose tokens the tensor ranks share (see sequence.h).
 *
 * What is gathered is in the slots of the exchange, up to the next one. Ops that read it later, in
 * the backward programs too, gather it again. So no rank keeps all tokens of such a value. */
#include "gen/model/sequence.h"

#include "gen/base/arena.h"
#include "gen/model/append.h"
#include "gen/model/exchanges.h"
#include "gen/model/place.h"
#include "gen/topology/topology.h"

int64_t pen_local_sequence(const struct pen_graph *graph) {
  return graph->topology->sequence / graph->token_ranks;
}

int64_t pen_local_rows(const struct pen_graph *graph) { return graph->rows / graph->token_ranks; }

int64_t pen_local_runs(const struct pen_graph *graph) { return graph->splits / graph->token_ranks; }

static int64_t sequence_count(const struct pen_graph *graph) {
  return graph->rows / graph->topology->sequence;
}

uint32_t pen_tokens_source(const struct pen_op *op, uint32_t value) {
  return op->kind == PEN_OP_ALL_GATHER_SEQUENCE && op->operand[1] == value ? op->operand[0]
                                                                           : PEN_NONE;
}

/* What the last exchange of the list has gathered of a value; PEN_NONE: it is another. */
static uint32_t last_gathered(const struct pen_op_list *list, uint32_t value) {
  for (size_t i = list->count; i-- > 0;)
    if (pen_op_exchanges(list->op[i].kind)) {
      const uint32_t all = list->op[i].operand[1];
      return pen_tokens_source(&list->op[i], all) == value ? all : PEN_NONE;
    }
  return PEN_NONE;
}

uint32_t pen_all_tokens(struct pen_graph *graph, struct pen_op_list *list, uint32_t value) {
  const struct pen_value of = graph->value[value];
  const uint32_t known = graph->token_ranks == 1 ? value : last_gathered(list, value);
  if (known != PEN_NONE) return known;
  struct pen_op *op = pen_op_append(list, PEN_OP_ALL_GATHER_SEQUENCE);
  op->dtype = of.dtype;
  op->dim[0] = sequence_count(graph);
  op->dim[1] = (int64_t)of.elements / sequence_count(graph);
  op->dim[2] = graph->token_ranks;
  op->operand[0] = value;
  op->operand[1] = pen_graph_value(graph, pen_text("%s.all", of.name), of.dtype,
                                   PEN_ROLE_ACTIVATION, of.elements * graph->token_ranks);
  return op->operand[1];
}

uint32_t pen_local_part(struct pen_graph *graph, struct pen_op_list *list, uint32_t value,
                        uint32_t m, const char *name) {
  const struct pen_value of = graph->value[value];
  const uint64_t held = of.elements / graph->token_ranks;
  struct pen_op *op = pen_op_append(list, PEN_OP_ALL_TO_ALL_PARTIAL);
  op->dtype = of.dtype;
  op->dim[0] = sequence_count(graph);
  op->dim[1] = (int64_t)held / sequence_count(graph);
  op->dim[2] = graph->token_ranks;
  op->dim[3] = m;
  op->operand[0] = value;
  op->operand[1] =
      pen_graph_value(graph, pen_text("%s.part%u", name, m), of.dtype, PEN_ROLE_ACTIVATION, held);
  pen_place_as(graph, op->operand[1], value);
  return op->operand[1];
}

uint32_t pen_local_numbers(struct pen_graph *graph, const char *name, uint32_t numbers) {
  if (graph->token_ranks == 1) return numbers;
  const int64_t held = pen_local_sequence(graph);
  return pen_append_forward(graph, PEN_OP_SLICE_SEQUENCE, name, (uint32_t[]){numbers},
                            (int64_t[]){sequence_count(graph), graph->topology->sequence, held,
                                        graph->tensor_rank * held},
                            4);
}

/* An op on all tokens of a value, of which its dims name the shard of the rank. */
static uint32_t append_shard(struct pen_graph *graph, int kind, const char *name, uint32_t x) {
  const int64_t sequence = graph->topology->sequence, held = pen_local_sequence(graph);
  return pen_append_forward(
      graph, kind, name, (uint32_t[]){x},
      (int64_t[]){sequence_count(graph), sequence, held,
                  (int64_t)graph->value[x].elements / graph->rows, graph->tensor_rank * held},
      5);
}

uint32_t pen_begin_all_tokens(struct pen_graph *graph, const char *name, uint32_t x) {
  if (graph->token_ranks == 1) return x;
  const uint32_t all =
      append_shard(graph, PEN_OP_UNSHARD_SEQUENCE, name, pen_all_tokens(graph, &graph->forward, x));
  graph->token_ranks = 1;
  return all;
}

uint32_t pen_end_all_tokens(struct pen_graph *graph, const char *name, uint32_t y) {
  graph->token_ranks = pen_topology_token_ranks(graph->topology);
  return graph->token_ranks == 1 ? y : append_shard(graph, PEN_OP_SHARD_SEQUENCE, name, y);
}
