/* language.c: what all language model families share: tokens as input, and cross-entropy or, for
 * tests, the sum of the logits as loss. */
#include "gen/families/language.h"
#include "gen/model/builder.h"
#include "gen/model/outputs.h"
#include "gen/model/split_head.h"
#include "gen/topology/topology.h"
#include "runtime/plan/plan.h"

#include <string.h>

#define DEVIATION 0.02

const struct pen_declared pen_language_tokens = {"tokens",     "batch sequence", 0,   PEN_I32,
                                                 PEN_TO_FIRST, pen_op_tokens,    NULL};
const struct pen_declared pen_language_targets = {"targets",   "batch predicting", 0,   PEN_I32,
                                                  PEN_TO_LAST, pen_op_targets,     NULL};

/* Packed sequences have documents; sequences over a cache do not begin at position 0. */
static bool has_starts(const struct pen_topology *topology) {
  return topology->batch_packed || topology->cached_prompts > 0;
}
const struct pen_declared pen_language_starts = {"starts",     "batch sequence", 0,         PEN_I32,
                                                 PEN_TO_EVERY, pen_op_starts,    has_starts};

uint32_t pen_language_starts_of(struct pen_graph *graph) {
  return has_starts(graph->topology) ? pen_graph_data(graph, &pen_language_starts) : PEN_NONE;
}

int64_t pen_language_chunk(const struct pen_graph *graph) {
  const int64_t rows = graph->topology->model_loss_rows;
  return rows < graph->rows ? rows : 0;
}

/* The head of a weight that is divided into splits. Of several tensor ranks the command generate
 * gets the columns of each split. */
static void split_head(struct pen_graph *graph, uint32_t x, const char *weight) {
  if (graph->topology->generates && graph->topology->tensor_parallel_ranks == 1)
    pen_op_head_joined(graph, x, weight, DEVIATION, &pen_language_targets);
  else if (pen_language_chunk(graph) > 0)
    pen_op_head_chunks(graph, x, weight, DEVIATION, &pen_language_targets,
                       pen_language_chunk(graph));
  else
    pen_op_head_columns(graph, x, weight, DEVIATION, &pen_language_targets);
}

uint32_t pen_language_head(struct pen_graph *graph, uint32_t layer, uint32_t x) {
  (void)layer;
  const struct pen_topology *t = graph->topology;
  const char *name = t->model_tie_embeddings ? graph->stages->family->embedding : "lm_head.weight";
  if (t->generates) x = pen_op_last_tokens(graph, x, pen_graph_data(graph, &pen_language_targets));
  if (graph->splits > 1) {
    split_head(graph, x, name);
    return PEN_NONE;
  }
  uint32_t weight = t->model_tie_embeddings
                        ? pen_graph_tied_weight(graph, name, t->model_vocab, t->model_hidden)
                        : pen_graph_weight(graph, name, t->model_vocab, t->model_hidden,
                                           PEN_INITIAL_NORMAL, DEVIATION);
  if (pen_language_chunk(graph) > 0) {
    pen_op_head_loss(graph, x, weight, pen_graph_data(graph, &pen_language_targets),
                     pen_language_chunk(graph));
    return PEN_NONE;
  }
  uint32_t logits = pen_op_linear(graph, "logits", x, weight, PEN_NONE);
  pen_output_made(graph, "logits", logits, false);
  pen_op_cross_entropy(graph, logits, pen_graph_data(graph, &pen_language_targets));
  return PEN_NONE;
}
