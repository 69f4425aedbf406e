/* stage_programs.c: builds the graph of a stage: the forward ops of its blocks, in order, then its
 * programs and the storage of its values.
 *
 * A block takes the value that the block before it gives; the first block of a stage takes the
 * stage's input, of the declared shape. */
#include "gen/base/arena.h"
#include "gen/model/backward.h"
#include "gen/model/blocks.h"
#include "gen/model/exchanges.h"
#include "gen/model/fuse.h"
#include "gen/model/liveness.h"
#include "gen/model/model.h"
#include "gen/model/outputs.h"
#include "gen/model/stages.h"
#include "gen/model/tensor_shapes.h"
#include "gen/model/unit_collectives.h"
#include "gen/model/units.h"
#include "gen/topology/topology.h"
#include "runtime/plan/plan.h"

/* The value between two blocks and its gradient are rounded to the dtype of messages, whether or
 * not a stage ends there, so that the bits do not depend on the partition (docs/contracts.md
 * section 9). Messages have the model's dtype, and every op rounds its outputs to it, so there is
 * nothing to do; pen_shape_check_value() refuses another declared dtype. */
static uint32_t round_to_wire(struct pen_graph *graph, const struct pen_declared *declared,
                              uint32_t value) {
  pen_shape_check_value(graph, declared, value, "gives");
  return value;
}

/* Emits the ops of a block; returns the value that it gives. */
static uint32_t emit_block(struct pen_graph *graph, uint32_t x) {
  const struct pen_model_block *block = &graph->stages->block[graph->block];
  graph->prefix = block->layer == PEN_NONE ? "" : pen_text("layers.%u.", block->layer);
  const size_t first_op = graph->forward.count;
  uint32_t value = block->kind->emit(graph, block->layer, x);
  pen_fuse_products(graph, first_op);
  graph->prefix = "";
  return block->kind->gives ? round_to_wire(graph, block->kind->gives, value) : PEN_NONE;
}

static struct pen_graph *stage_graph(const struct pen_topology *topology,
                                     const struct pen_stages *stages, uint32_t stage,
                                     uint32_t tensor_rank, bool training) {
  struct pen_graph *graph = pen_new(1, sizeof *graph);
  const struct pen_span *span = &stages->span[stage];
  *graph = (struct pen_graph){
      .topology = topology,
      .stages = stages,
      .stage = stage,
      .stage_count = stages->stage_count,
      .training = training,
      .dtype = (uint8_t)topology->model_dtype,
      .rows = topology->batch_microbatch * topology->sequence,
      .prefix = "",
      .splits = (uint32_t)topology->tensor_parallel_splits,
      .own_splits = (uint32_t)(topology->tensor_parallel_splits / topology->tensor_parallel_ranks),
      .tensor_rank = tensor_rank,
      .token_ranks = pen_topology_token_ranks(topology),
      .split = PEN_NONE,
      .block = span->first_block,
      .tied = PEN_NONE,
      .input = PEN_NONE,
      .output = PEN_NONE,
      .output_gradient = PEN_NONE,
      .input_gradient = PEN_NONE};
  pen_outputs_start(graph);
  if (training) graph->recompute = (uint8_t)pen_recompute_of(topology, stage);
  const struct pen_declared *takes = stages->block[span->first_block].kind->takes;
  if (takes) {
    struct pen_shape shape = pen_shape_of(topology, stages->family, takes);
    graph->input =
        pen_graph_value(graph, "input", shape.dtype, PEN_ROLE_ACTIVATION, shape.elements);
  }
  uint32_t value = graph->input;
  for (; graph->block < span->past_last_block; graph->block++) {
    value = emit_block(graph, value);
    if (value != PEN_NONE) graph->value[value].is_given = true;
  }
  graph->output = value;
  return graph;
}

struct pen_graph *pen_stage_graph(const struct pen_topology *topology,
                                  const struct pen_stages *stages, uint32_t stage, bool training) {
  return stage_graph(topology, stages, stage, 0, training);
}

struct pen_graph *pen_tensor_rank_graph(const struct pen_graph *first, uint32_t tensor_rank) {
  struct pen_graph *graph =
      stage_graph(first->topology, first->stages, first->stage, tensor_rank, first->training);
  pen_stage_programs(graph);
  return graph;
}

void pen_stage_programs(struct pen_graph *graph) {
  pen_backward(graph);
  pen_unit_collectives(graph);
  pen_number_exchanges(graph);
  pen_assign_storage(graph);
}

struct pen_graph **pen_graphs_of(const struct pen_topology *topology,
                                 const struct pen_stages *stages, bool training) {
  struct pen_graph **graph = pen_new(stages->stage_count, sizeof *graph);
  for (uint32_t s = 0; s < stages->stage_count; s++) {
    graph[s] = pen_stage_graph(topology, stages, s, training);
    pen_stage_programs(graph[s]);
  }
  return graph;
}
