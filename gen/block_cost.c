/* block_cost.c: the cost of blocks, and of stages as sums over their blocks.
 *
 * Each block is built as a stage of its own and its programs' operations are counted. A stage then costs the sum over its blocks, but
 * for two things. An input of the step that several blocks of a stage read is made once: it is counted for the stage, when any block
 * reads it. And where nothing trains before a block (in the first stage: the embedding is frozen, or x is a given), its input needs no
 * gradient: such blocks are measured both ways, and the first stage takes what holds there. */
#include "gen/block_cost.h"

#include <string.h>

#include "gen/cost.h"
#include "gen/families/families.h"
#include "gen/signature.h"

enum { INPUTS_MAX = 8 };

/* Sums over blocks 0 ... k-1: differences of two are those of a run. */
struct sums {
  double *work;                    /* of all programs, without the inputs' */
  uint32_t *readers[INPUTS_MAX];   /* blocks that read that input */
};

struct pen_block_costs {
  uint32_t input_count;
  double input_work[INPUTS_MAX];
  struct sums leading, inner; /* in the first stage, and in any other */
};

static struct sums new_sums(uint32_t blocks) {
  struct sums sums = {.work = pen_new(blocks + 1u, sizeof *sums.work)};
  for (int i = 0; i < INPUTS_MAX; i++) sums.readers[i] = pen_new(blocks + 1u, sizeof **sums.readers);
  return sums;
}

/* A block as a stage of its own: the first, the last or one between, so that it emits what it does in the model. */
static struct pen_graph *build_alone(const struct pen_topology *t, const struct pen_partition *p, uint32_t block, bool leads) {
  struct pen_span span[3] = {{0}};
  uint32_t stage = block == 0 ? 0 : block + 1 == p->block_count ? 2 : 1;
  span[stage] = (struct pen_span){.first_block = block, .past_last_block = block + 1};
  struct pen_partition alone = *p;
  alone.span = span;
  alone.stage_count = 3;
  struct pen_graph *graph = pen_model(t, &alone, stage, true);
  graph->input_is_given = leads;
  pen_derive(graph);
  return graph;
}

static bool trains(const struct pen_graph *graph) {
  for (size_t i = 0; i < graph->weight_count; i++)
    if (!graph->weight[i].frozen) return true;
  return false;
}

/* Adds a block to the sums: the operations of its programs, those of inputs apart. */
static void add_block(struct pen_block_costs *costs, struct sums *sums, uint32_t block, const struct pen_graph *graph,
                      const struct pen_family *family) {
  double work = 0;
  for (int program = PEN_PROGRAM_F; program <= PEN_PROGRAM_W; program++) work += pen_program_flops(&graph->program[program]);
  for (uint32_t i = 0; i < costs->input_count; i++) {
    sums->readers[i][block + 1] = sums->readers[i][block];
    for (size_t k = 0; k < graph->datum_count; k++) {
      if (graph->datum[k].declared != family->input[i]) continue;
      sums->readers[i][block + 1]++;
      costs->input_work[i] = graph->datum[k].flops;
      work -= graph->datum[k].flops;
    }
  }
  sums->work[block + 1] = sums->work[block] + work;
}

struct pen_block_costs *pen_block_costs(const struct pen_topology *t, const struct pen_partition *p) {
  struct pen_block_costs *costs = pen_new(1, sizeof *costs);
  while (p->family->input[costs->input_count]) costs->input_count++;
  if (costs->input_count > INPUTS_MAX) pen_stop(70, "block_cost: family %s has too many inputs", p->family->name);
  costs->leading = new_sums(p->block_count);
  costs->inner = new_sums(p->block_count);
  bool leads = true;
  for (uint32_t block = 0; block < p->block_count; block++) {
    const struct pen_graph *graph = build_alone(t, p, block, false);
    add_block(costs, &costs->inner, block, graph, p->family);
    add_block(costs, &costs->leading, block, leads && block ? build_alone(t, p, block, true) : graph, p->family);
    leads = leads && !trains(graph);
  }
  return costs;
}

double pen_span_cost(const void *context, uint32_t stage, uint32_t first, uint32_t past) {
  (void)stage;
  const struct pen_block_costs *costs = context;
  const struct sums *sums = first == 0 ? &costs->leading : &costs->inner;
  double work = sums->work[past] - sums->work[first];
  for (uint32_t i = 0; i < costs->input_count; i++)
    if (sums->readers[i][past] > sums->readers[i][first]) work += costs->input_work[i];
  return 1e-9 * work;
}
