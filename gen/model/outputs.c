/* outputs.c: values of the last stage that a step keeps (see outputs.h). */
#include "gen/model/outputs.h"

#include <string.h>

#include "gen/base/arena.h"
#include "gen/model/blocks.h"
#include "gen/model/graph.h"
#include "gen/topology/message.h"
#include "runtime/plan/plan.h"

void pen_outputs_start(struct pen_graph *graph) {
  const struct pen_topology *t = graph->topology;
  if (graph->stage + 1 != graph->stage_count || t->generates || t->scores) return;
  graph->output_count = (uint32_t)t->model_outputs.count;
  graph->outputs = pen_new(graph->output_count + 1, sizeof *graph->outputs);
  for (uint32_t n = 0; n < graph->output_count; n++) graph->outputs[n] = PEN_NONE;
}

void pen_output_made(struct pen_graph *graph, const char *name, uint32_t value, bool of_samples) {
  for (uint32_t n = 0; n < graph->topology->model_outputs.count; n++)
    if (strcmp(graph->topology->model_outputs.value[n], name) == 0) {
      graph->value[value].is_named = true;
      if (n >= graph->output_count) continue;
      graph->outputs[n] = value;
      graph->value[value].is_result = true;
      graph->value[value].of_samples = of_samples;
    }
}

void pen_output_alias(const struct pen_graph *graph, const char *name, const char *of) {
  for (uint32_t n = 0; n < graph->output_count; n++)
    if (strcmp(graph->topology->model_outputs.value[n], name) == 0)
      pen_topology_fail(graph->topology, "model.outputs",
                        "\"%s\" in place of \"%s\": they are equal, and computed once", of, name);
}

void pen_outputs_check(const struct pen_graph *last) {
  const struct pen_topology *t = last->topology;
  for (uint32_t n = 0; n < last->output_count; n++)
    if (last->outputs[n] == PEN_NONE)
      pen_topology_fail(t, "model.outputs",
                        "values that the last stage makes, from %s on; it makes no \"%s\"%s",
                        last->stages->block[last->stages->span[last->stage].first_block].name,
                        t->model_outputs.value[n],
                        t->model_loss_rows ? ", or, with model.loss_rows, not as a whole" : "");
}

uint64_t pen_output_bytes(const struct pen_graph *graph) {
  uint64_t bytes = 0;
  for (uint32_t n = 0; n < graph->output_count; n++)
    if (graph->outputs[n] != PEN_NONE) bytes += pen_aligned(graph->value[graph->outputs[n]].bytes);
  return bytes;
}
