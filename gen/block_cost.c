/* block_cost.c: the cost of blocks, and of stages as sums over their blocks.
 *
 * Each block is built as a stage of its own and its programs' operations are counted. A stage then costs the sum over its blocks, but
 * for two things. An input of the step that several blocks of a stage read is made once: it is counted for the stage, when any block
 * reads it. And where nothing trains before a block (in the first stage: the embedding is frozen, or x is a given), its input needs no
 * gradient: such blocks are measured both ways, and the first stage takes what holds there.
 *
 * A stage that recomputes runs again, from its last block back, what a block's own backward needs; as soon as one of them needs its
 * input, all before it runs again whole. */
#include "gen/block_cost.h"

#include <string.h>

#include "gen/cost.h"
#include "gen/families/families.h"
#include "gen/signature.h"

enum { INPUTS_MAX = 8 };

/* What the backward of a block runs again when nobody else needs what it gives. */
struct again {
  double work;              /* without the inputs' */
  bool reads[INPUTS_MAX];   /* those inputs */
  bool needs_input;         /* what the block takes must be there, for this or for the backward itself */
};

/* Sums over blocks 0 ... k-1: differences of two are those of a run. */
struct sums {
  double *work;                    /* of all programs, without the inputs' */
  double *forward;                 /* of F alone */
  uint32_t *readers[INPUTS_MAX];   /* blocks that read that input */
  struct again *again;             /* [block] */
  double *alone;                   /* [block]: what it runs again as a stage of its own without being told to: a loss */
};

struct pen_block_costs {
  uint32_t input_count;
  double input_work[INPUTS_MAX];
  struct sums leading, inner; /* in the first stage, and in any other */
  bool *recomputes;           /* [stage] */
};

static struct sums new_sums(uint32_t blocks) {
  struct sums sums = {.work = pen_new(blocks + 1u, sizeof *sums.work), .forward = pen_new(blocks + 1u, sizeof *sums.forward),
                      .again = pen_new(blocks + 1u, sizeof *sums.again), .alone = pen_new(blocks + 1u, sizeof *sums.alone)};
  for (int i = 0; i < INPUTS_MAX; i++) sums.readers[i] = pen_new(blocks + 1u, sizeof **sums.readers);
  return sums;
}

/* A block as a stage of its own: the first, the last or one between, so that it emits what it does in the model. */
static struct pen_graph *build_alone(const struct pen_topology *t, const struct pen_partition *p, uint32_t block, bool leads,
                                     bool recomputes) {
  struct pen_span span[3] = {{0}};
  uint32_t stage = block == 0 ? 0 : block + 1 == p->block_count ? 2 : 1;
  span[stage] = (struct pen_span){.first_block = block, .past_last_block = block + 1};
  struct pen_partition alone = *p;
  alone.span = span;
  alone.stage_count = 3;
  struct pen_graph *graph = pen_model(t, &alone, stage, t->trains);
  graph->input_is_given = leads;
  graph->recomputes = recomputes;
  pen_derive(graph);
  return graph;
}

static bool trains(const struct pen_graph *graph) {
  for (size_t i = 0; i < graph->weight_count; i++)
    if (!graph->weight[i].frozen) return true;
  return false;
}

static bool reads(const struct pen_op_list *list, size_t count, uint32_t value) {
  for (size_t i = 0; i < count; i++)
    for (uint32_t k = 0; value != PEN_NONE && k < pen_signature_of(list->op[i].kind)->input_count; k++)
      if (list->op[i].operand[k] == value) return true;
  return false;
}

/* Whether the ops that run again make an input of the step: the copy of the op that made it. */
static bool makes_again(const struct pen_graph *graph, const struct pen_datum *datum) {
  const struct pen_op_list *list = &graph->program[PEN_PROGRAM_I];
  for (uint32_t i = 0; i < graph->again_count[PEN_PROGRAM_I]; i++)
    if (list->op[i].kind == datum->kind && memcmp(list->op[i].dim, datum->dim, sizeof datum->dim) == 0) return true;
  return false;
}

/* Adds a block to the sums: the operations of its programs, those of inputs apart. `again` is the block where it recomputes. */
static void add_block(struct pen_block_costs *costs, struct sums *sums, uint32_t block, const struct pen_graph *graph,
                      const struct pen_graph *again, const struct pen_family *family) {
  double work = 0, forward = pen_program_flops(&graph->program[PEN_PROGRAM_F]);
  struct again *run = &sums->again[block];
  for (int program = PEN_PROGRAM_F; program <= PEN_PROGRAM_W; program++) work += pen_program_flops(&graph->program[program]);
  sums->alone[block] = pen_again_flops(graph);
  work -= sums->alone[block];
  run->work = pen_again_flops(again);
  run->needs_input = reads(&again->program[PEN_PROGRAM_I], again->program[PEN_PROGRAM_I].count, again->input) ||
                     reads(&again->program[PEN_PROGRAM_W], again->program[PEN_PROGRAM_W].count, again->input);
  for (uint32_t i = 0; i < costs->input_count; i++) {
    sums->readers[i][block + 1] = sums->readers[i][block];
    for (size_t k = 0; k < graph->datum_count; k++) {
      const struct pen_datum *datum = &graph->datum[k];
      if (datum->declared != family->input[i]) continue;
      sums->readers[i][block + 1]++;
      costs->input_work[i] = datum->flops;
      work -= datum->flops;
      forward -= datum->flops;
      run->reads[i] = makes_again(again, datum);
      if (run->reads[i]) run->work -= datum->flops;
    }
  }
  sums->work[block + 1] = sums->work[block] + work;
  sums->forward[block + 1] = sums->forward[block] + forward;
}

struct pen_block_costs *pen_block_costs(const struct pen_topology *t, const struct pen_partition *p) {
  struct pen_block_costs *costs = pen_new(1, sizeof *costs);
  while (p->family->input[costs->input_count]) costs->input_count++;
  if (costs->input_count > INPUTS_MAX) pen_stop(70, "block_cost: family %s has too many inputs", p->family->name);
  costs->leading = new_sums(p->block_count);
  costs->inner = new_sums(p->block_count);
  costs->recomputes = pen_new(p->stage_count, sizeof *costs->recomputes);
  for (uint32_t stage = 0; t->trains && stage < p->stage_count && stage < t->memory_recompute.count; stage++)
    costs->recomputes[stage] = strcmp(t->memory_recompute.value[stage], "full") == 0;
  bool leads = true;
  for (uint32_t block = 0; block < p->block_count; block++) {
    const struct pen_graph *graph = build_alone(t, p, block, false, false);
    const struct pen_graph *again = build_alone(t, p, block, false, true);
    add_block(costs, &costs->inner, block, graph, again, p->family);
    if (leads && block) {
      const struct pen_graph *leading = build_alone(t, p, block, true, false);
      add_block(costs, &costs->leading, block, leading, build_alone(t, p, block, true, true), p->family);
    } else {
      add_block(costs, &costs->leading, block, graph, again, p->family);
    }
    leads = leads && !trains(graph);
  }
  return costs;
}

/* What a recomputing stage runs again. */
static double again_work(const struct pen_block_costs *costs, const struct sums *sums, uint32_t first, uint32_t past) {
  double work = 0;
  bool reads[INPUTS_MAX] = {false}, needed = false;
  uint32_t block = past;
  while (block > first && !needed) {
    const struct again *again = &sums->again[--block];
    work += again->work;
    for (uint32_t i = 0; i < costs->input_count; i++) reads[i] = reads[i] || again->reads[i];
    needed = again->needs_input;
  }
  work += sums->forward[block] - sums->forward[first];
  for (uint32_t i = 0; i < costs->input_count; i++)
    if (reads[i] || sums->readers[i][block] > sums->readers[i][first]) work += costs->input_work[i];
  return work;
}

double pen_span_cost(const void *context, uint32_t stage, uint32_t first, uint32_t past) {
  const struct pen_block_costs *costs = context;
  const struct sums *sums = first == 0 ? &costs->leading : &costs->inner;
  double work = sums->work[past] - sums->work[first];
  for (uint32_t i = 0; i < costs->input_count; i++)
    if (sums->readers[i][past] > sums->readers[i][first]) work += costs->input_work[i];
  if (costs->recomputes[stage])
    work += again_work(costs, sums, first, past);
  else if (past - first == 1)
    work += sums->alone[first];
  return 1e-9 * work;
}
