/* cut.c: the numbers of a cut, from the graphs of its stages. */
#include "gen/planner/cut.h"

#include <math.h>
#include <string.h>

#include "gen/base/arena.h"
#include "gen/model/unit_collectives.h"
#include "gen/model/splits.h"
#include "gen/search/budget_bytes.h"

static struct pen_stage_live live_of(const struct pen_graph *graph) {
  struct pen_hold least[PEN_PROGRAMS];
  struct pen_stage_live live;
  pen_stage_least_of(graph, least);
  for (int p = 0; p < PEN_PROGRAMS; p++) {
    live.peak[p] = (int64_t)least[p].peak;
    live.remains[p] = (int64_t)least[p].remains;
  }
  return live;
}

static struct pen_stage_elements elements_of(const struct pen_graph *graph) {
  struct pen_stage_elements elements = {.tied = 0};
  for (uint32_t w = 0; w < graph->weight_count; w++) {
    const struct pen_weight *weight = &graph->weight[w];
    const bool has_copy = weight->bf16_offset != UINT64_MAX, learns = !weight->frozen;
    if (!pen_graph_has_weight(graph, w)) continue;
    if (!pen_is_tied_head(graph, w)) {
      elements.count[has_copy][learns] += (double)weight->count;
      elements.moments += (double)weight->count * weight->moment_count;
    } else if (learns)
      elements.tied += (double)weight->count;
  }
  return elements;
}

static struct pen_stage_traffic traffic_of(const struct pen_graph *graph) {
  struct pen_stage_traffic traffic = {{0}, {0}};
  bool *seen = pen_new(graph->value_count + 1, sizeof *seen);
  for (int p = 0; p < PEN_PROGRAMS; p++) {
    memset(seen, 0, graph->value_count * sizeof *seen);
    for (size_t i = 0; i < graph->program[p].count; i++)
      for (int k = 0; k < PEN_OPERANDS_MAX; k++) {
        const uint32_t v = graph->program[p].op[i].operand[k];
        if (v == PEN_NONE || seen[v]) continue;
        seen[v] = true;
        const struct pen_value *value = &graph->value[v];
        if (value->role == PEN_ROLE_WEIGHT && !pen_weight_is_tied(graph, value->weight))
          traffic.weights[p] += (double)value->bytes;
        if (value->role == PEN_ROLE_GRADIENT) traffic.gradients[p] += (double)value->bytes;
      }
  }
  return traffic;
}

/* Adds what exchanges of tensor ranks take, whatever the replicas share. Not where costs were
 * measured, but not those of exchanges: then a byte may take another time for other replicas; nor
 * with cluster.speed, which they do not depend on. */
static void add_exchanges(struct pen_stage_cost *cost, const struct pen_trial *trial,
                          const struct pen_byte_cost *byte) {
  const bool depends = trial->is_measured && !trial->cost.topology->measured_exchanges;
  if (depends || trial->partition->speed || trial->topology->tensor_parallel_ranks == 1) return;
  for (uint32_t s = 0; s < trial->partition->stage_count; s++) {
    double more[PEN_PROGRAMS];
    for (int p = 0; p < PEN_PROGRAMS; p++) more[p] = pen_exchanges_cost(trial->graph[s], p, byte);
    cost[s].forward += more[PEN_PROGRAM_F];
    cost[s].backward_input += more[PEN_PROGRAM_I];
    cost[s].backward_weight += more[PEN_PROGRAM_W];
    cost[s].shared += more[PEN_PROGRAM_I] + more[PEN_PROGRAM_W] - more[PEN_PROGRAM_B];
  }
}

/* The collectives of replicas that were measured; NULL: those of the topology count. */
static const struct pen_measured_links *measured_collectives(const struct pen_trial *trial) {
  const struct pen_measured *measured = trial->cost.source.measured;
  const struct pen_measured_links *links = measured ? measured->links : NULL;
  return links && pen_measured_collective_ms(links, PEN_MEASURED_REDUCE, 2, 0) >= 0 &&
                 pen_measured_collective_ms(links, PEN_MEASURED_GATHER, 2, 0) >= 0
             ? links
             : NULL;
}

void pen_cut_fill(struct pen_cut *cut, const struct pen_trial *trial) {
  const struct pen_topology *t = trial->topology;
  struct pen_stage_cost *cost = pen_new(cut->stage_count, sizeof *cost);
  memcpy(cost, trial->cost.alone, cut->stage_count * sizeof *cost);
  cut->byte = pen_byte_cost_of(t, trial->partition, trial->graph, trial->cost.stage);
  add_exchanges(cost, trial, &cut->byte);
  for (uint32_t s = 0; s < cut->stage_count; s++) {
    cut->cost[s] = cost[s];
    cut->cost[s].send = cut->cost[s].send_host = fmin(cost[s].send, cost[s].send_host);
    cut->live[s] = live_of(trial->graph[s]);
    cut->elements[s] = elements_of(trial->graph[s]);
    cut->traffic[s] = traffic_of(trial->graph[s]);
  }
  cut->overlap = trial->cost.overlap;
  cut->update_element = trial->cost.update_element;
  cut->norm_element = trial->cost.norm_element;
  cut->training = *trial->training;
  cut->training.program_collectives = NULL;
  cut->training.weights_in_w = NULL;
  cut->collectives = measured_collectives(trial);
  cut->gives_exchange =
      !cut->collectives && (trial->is_measured || t->costs_reduce.count || t->costs_gather.count);
  cut->is_measured = trial->is_measured;
  cut->is_bf16 = t->model_dtype == PEN_BF16;
  cut->ties = t->model_tie_embeddings;
}
