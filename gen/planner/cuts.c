/* cuts.c: what is known of the stages of a cut.
 *
 * Many pipelines have the same stages: those with as many stages in all, the same microbatch, cut
 * and recomputation, whatever their ranks, schedule and replicas. Their graphs are built once, when
 * the cut is first asked for, and only numbers are kept. By measured costs a stage that copies a
 * message to another rank takes longer: then ranks and placement count, too. */
#include "gen/planner/cuts.h"

#include <math.h>
#include <string.h>

#include "gen/base/arena.h"
#include "gen/model/pieces.h"
#include "gen/model/unit_collectives.h"
#include "gen/planner/attempts.h"
#include "gen/search/budget_bytes.h"
#include "gen/topology/schedule_table.h"

/* A cut, and the choices that it depends on. */
struct known_cut {
  struct pen_choice key; /* without replicas, stages, schedule */
  uint32_t stage_count;
  bool splits, zigzag; /* zigzag: by measured costs alone */
  struct known_cut *next;
  struct pen_cut cut;
};

enum { LISTS = 256 };

struct pen_cuts {
  const struct pen_planner *planner;
  struct known_cut *list[LISTS]; /* by stage_count */
  uint16_t no_recomputation;     /* index of "none"; PEN_NOT_CHOSEN: it is not allowed */
  struct pen_refusal refusal;
};

struct pen_cuts *pen_cuts_new(const struct pen_planner *planner) {
  struct pen_cuts *cuts = pen_new(1, sizeof *cuts);
  const struct pen_axis_values *recompute = &planner->axes->axis[PEN_AXIS_recompute];
  *cuts = (struct pen_cuts){.planner = planner, .no_recomputation = PEN_NOT_CHOSEN};
  for (size_t i = 0; i < recompute->count; i++)
    if (recompute->value[i].number == PEN_RECOMPUTE_NONE) cuts->no_recomputation = (uint16_t)i;
  return cuts;
}

const struct pen_refusal *pen_cuts_refusal(const struct pen_cuts *cuts) { return &cuts->refusal; }

static struct pen_choice choice_of(const struct pen_cuts *cuts, const struct pen_choice *pipeline,
                                   bool without_recomputation) {
  struct pen_choice choice = *pipeline;
  if (without_recomputation && cuts->no_recomputation != PEN_NOT_CHOSEN)
    choice.index[PEN_AXIS_recompute] = cuts->no_recomputation;
  return choice;
}

static struct known_cut *new_cut(struct pen_cuts *cuts, const struct pen_choice *choice,
                                 uint32_t stages) {
  struct known_cut *known = pen_new(1, sizeof *known);
  struct pen_cut *cut = &known->cut;
  const struct pen_attempt_input input = {cuts->planner, choice, &cuts->refusal};
  cut->stage_count = stages;
  cut->cost = pen_new(stages, sizeof *cut->cost);
  cut->live = pen_new(stages, sizeof *cut->live);
  cut->traffic = pen_new(stages, sizeof *cut->traffic);
  cut->elements = pen_new(stages, sizeof *cut->elements);
  cut->valid = pen_attempt_cut(&input, cut);
  return known;
}

const struct pen_cut *pen_cut_of(struct pen_cuts *cuts, const struct pen_choice *pipeline,
                                 bool without_recomputation) {
  const struct pen_axes *axes = cuts->planner->axes;
  const struct pen_choice choice = choice_of(cuts, pipeline, without_recomputation);
  const uint32_t stages = (uint32_t)(pen_choice_ranks(axes, pipeline) *
                                     pen_axis_number(axes, pipeline, PEN_AXIS_stages));
  const bool measured = cuts->planner->options->costs != NULL,
             splits =
                 pen_schedule_splits(pen_choice_schedule(axes, pipeline), cuts->planner->written),
             zigzag = measured && pen_choice_zigzag(axes, pipeline);
  struct pen_choice key = choice;
  key.index[PEN_AXIS_replicas] = key.index[PEN_AXIS_schedule] = 0;
  if (!measured) key.index[PEN_AXIS_stages] = 0;
  struct known_cut **list = &cuts->list[stages % LISTS];
  for (struct known_cut *known = *list; known; known = known->next)
    if (known->stage_count == stages && known->splits == splits && known->zigzag == zigzag &&
        memcmp(&known->key, &key, sizeof key) == 0)
      return &known->cut;
  struct known_cut *known = new_cut(cuts, &choice, stages);
  known->key = key;
  known->stage_count = stages;
  known->splits = splits;
  known->zigzag = zigzag;
  known->next = *list;
  *list = known;
  return &known->cut;
}

bool pen_cut_is_kept(const struct pen_cuts *cuts, const struct pen_choice *pipeline) {
  return pen_axis_number(cuts->planner->axes, pipeline, PEN_AXIS_balance) != PEN_BALANCE_TIME ||
         pipeline->index[PEN_AXIS_recompute] ==
             choice_of(cuts, pipeline, true).index[PEN_AXIS_recompute];
}

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
    if (!pen_is_tied_head(graph, w))
      elements.count[has_copy][learns] += (double)weight->count;
    else if (learns)
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
