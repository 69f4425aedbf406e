/* block_cost.c: the cost of blocks, and of stages as sums over their blocks.
 *
 * Each block is built as a stage of its own, and the operations of its programs are counted. A
 * stage costs the sum over its blocks, with two exceptions. An input of the step that several
 * blocks of a stage read is made once: it counts once for the stage. And where no weight before a
 * block is trained (the embedding is frozen, or x is an input of the step), the block's input needs
 * no gradient: such blocks are measured both ways, and the first stage uses that cost.
 *
 * Where the schedule does not split the backward, what I and W both compute counts once. Orders
 * that are searched or read from a file count as split.
 *
 * A stage that recomputes runs again, from its last block back, what the backward of a block needs;
 * as soon as one block needs its input, all blocks before it run again in full. */
#include "gen/model/recompute.h"
#include "gen/model/fused_loss.h"
#include "gen/model/model.h"
#include "gen/partition/block_cost.h"

#include <string.h>

#include "gen/families/families.h"
#include "gen/model/op_signature.h"
#include "gen/base/arena.h"
#include "gen/base/error.h"
#include "gen/topology/topology.h"
#include "runtime/plan/plan.h"

enum { INPUTS_MAX = 8, KINDS_MAX = 8 /* blocks back that are looked at */ };

/* One block as a stage of its own; inputs of the step count apart. */
struct figures {
  double work;    /* of all programs */
  double forward; /* of F alone */
  double alone;   /* what a stage of this block alone runs again without being told to: a loss */
  bool reads[INPUTS_MAX]; /* inputs of the step */
  /* where the stage recomputes, and nobody else needs what the block gives: */
  double again;                 /* what its backward runs again */
  bool reads_again[INPUTS_MAX]; /* inputs that it reads again */
  bool needs_input; /* what the block takes must be there, for that or for the backward itself */
};

/* Of all blocks, and sums over blocks 0 ... k-1: differences of two are those of a run. */
struct sums {
  struct figures *block;
  double *work, *forward;
  uint32_t *readers[INPUTS_MAX]; /* blocks that read that input */
};

struct pen_block_costs {
  const struct pen_topology *topology;
  const struct pen_family *family;
  const struct pen_model_block *block; /* [block_count] */
  uint32_t block_count;
  bool splits_backward;
  uint32_t input_count;
  double input_work[INPUTS_MAX];
  struct sums leading, inner; /* in the first stage, and in any other */
  bool *recomputes;           /* [stage] */
};

/* ---- one block ---- */

/* The forward ops of a block as a stage of its own: the first of three, the last, or the middle
 * one, so that it emits what it does in the model. */
static struct pen_graph *emit_alone(const struct pen_block_costs *c, uint32_t block) {
  struct pen_stages *alone = pen_new(1, sizeof *alone);
  uint32_t stage = block == 0 ? 0 : block + 1 == c->block_count ? 2 : 1;
  *alone = (struct pen_stages){.family = c->family,
                               .block = c->block,
                               .block_count = c->block_count,
                               .stage_count = 3,
                               .span = pen_new(3, sizeof *alone->span)};
  alone->span[stage] = (struct pen_span){.first_block = block, .past_last_block = block + 1};
  return pen_stage_graph(c->topology, alone, stage, c->topology->trains);
}

static struct pen_graph *derive_alone(const struct pen_block_costs *c, uint32_t block, bool leads,
                                      bool recomputes) {
  struct pen_graph *graph = emit_alone(c, block);
  graph->input_is_given = leads;
  graph->recomputes = recomputes;
  pen_stage_programs(graph);
  return graph;
}

static bool reads(const struct pen_op_list *list, uint32_t value) {
  for (size_t i = 0; i < list->count; i++)
    for (uint32_t k = 0; value != PEN_NONE && k < pen_signature_of(list->op[i].kind)->input_count;
         k++)
      if (list->op[i].operand[k] == value) return true;
  return false;
}

/* Whether the ops that run again make an input of the step: the copy of the op that made it. */
static bool makes_again(const struct pen_graph *graph, const struct pen_datum *datum) {
  const struct pen_op_list *list = &graph->program[PEN_PROGRAM_I];
  for (uint32_t i = 0; i < graph->recompute_op_count[PEN_PROGRAM_I]; i++)
    if (list->op[i].kind == datum->kind &&
        memcmp(list->op[i].dim, datum->dim, sizeof datum->dim) == 0)
      return true;
  return false;
}

static uint32_t input_index(const struct pen_block_costs *costs,
                            const struct pen_declared *declared) {
  uint32_t i = 0;
  while (costs->family->input[i] != declared) i++;
  return i;
}

static struct figures measure(struct pen_block_costs *costs, uint32_t block, bool leads) {
  const struct pen_graph *graph = derive_alone(costs, block, leads, false),
                         *again = derive_alone(costs, block, leads, true);
  struct figures f = {.forward = pen_program_flops(&graph->program[PEN_PROGRAM_F]),
                      .alone = pen_recomputed_flops(graph),
                      .again = pen_recomputed_flops(again)};
  for (int program = PEN_PROGRAM_F; program <= PEN_PROGRAM_W; program++)
    f.work += pen_program_flops(&graph->program[program]);
  if (!costs->splits_backward) f.work -= pen_shared_flops(graph);
  f.work -= f.alone;
  f.needs_input = reads(&again->program[PEN_PROGRAM_I], again->input) ||
                  reads(&again->program[PEN_PROGRAM_W], again->input);
  for (size_t k = 0; k < graph->datum_count; k++) {
    const struct pen_datum *datum = &graph->datum[k];
    uint32_t i = input_index(costs, datum->declared);
    costs->input_work[i] = datum->flops;
    f.work -= datum->flops;
    f.forward -= datum->flops;
    f.reads[i] = true;
    f.reads_again[i] = makes_again(again, datum);
    if (f.reads_again[i]) f.again -= datum->flops;
  }
  return f;
}

/* ---- all blocks ---- */

/* Whether two blocks of one kind are the same but for their weights' names: then so are their
 * figures. */
static bool same_ops(const struct pen_graph *a, const struct pen_graph *b) {
  if (a->forward.count != b->forward.count || a->weight_count != b->weight_count) return false;
  for (size_t i = 0; i < a->weight_count; i++)
    if (a->weight[i].frozen != b->weight[i].frozen) return false;
  for (size_t i = 0; i < a->forward.count; i++) {
    const struct pen_op *x = &a->forward.op[i], *y = &b->forward.op[i];
    if (x->kind != y->kind || memcmp(x->operand, y->operand, sizeof x->operand) ||
        memcmp(x->dim, y->dim, sizeof x->dim))
      return false;
  }
  return true;
}

static bool trains(const struct pen_graph *graph) {
  for (size_t i = 0; i < graph->weight_count; i++)
    if (!graph->weight[i].frozen) return true;
  return false;
}

/* The figures of a block, or of one shortly before that is the same. */
static struct figures figures_of(struct pen_block_costs *costs, uint32_t block,
                                 struct pen_graph *const *emitted) {
  for (uint32_t other = block; other-- > 0 && block - other <= KINDS_MAX;)
    if (costs->block[other].kind == costs->block[block].kind &&
        same_ops(emitted[other], emitted[block]))
      return costs->inner.block[other];
  return measure(costs, block, false);
}

static void add(struct sums *sums, uint32_t block, const struct figures *figures) {
  sums->block[block] = *figures;
  sums->work[block + 1] = sums->work[block] + figures->work;
  sums->forward[block + 1] = sums->forward[block] + figures->forward;
  for (uint32_t i = 0; i < INPUTS_MAX; i++)
    sums->readers[i][block + 1] = sums->readers[i][block] + figures->reads[i];
}

static struct sums new_sums(uint32_t blocks) {
  struct sums sums = {.block = pen_new(blocks + 1u, sizeof *sums.block),
                      .work = pen_new(blocks + 1u, sizeof *sums.work),
                      .forward = pen_new(blocks + 1u, sizeof *sums.forward)};
  for (int i = 0; i < INPUTS_MAX; i++)
    sums.readers[i] = pen_new(blocks + 1u, sizeof **sums.readers);
  return sums;
}

struct pen_block_costs *pen_block_costs(const struct pen_topology *t,
                                        const struct pen_family *family, bool splits_backward) {
  uint32_t stages = (uint32_t)(t->pipeline_ranks * t->pipeline_stages_per_rank), blocks;
  struct pen_block_costs *costs = pen_new(1, sizeof *costs);
  costs->topology = t;
  costs->family = family;
  costs->splits_backward = splits_backward;
  costs->block = pen_family_blocks(family, (uint32_t)t->model_layers, &blocks);
  costs->block_count = blocks;
  while (family->input[costs->input_count]) costs->input_count++;
  if (costs->input_count > INPUTS_MAX)
    pen_stop(PEN_EXIT_INTERNAL, "penstock-gen: internal error: family %s has too many inputs",
             family->name);
  costs->leading = new_sums(blocks);
  costs->inner = new_sums(blocks);
  costs->recomputes = pen_new(stages, sizeof *costs->recomputes);
  for (uint32_t stage = 0; t->trains && stage < stages && stage < t->memory_recompute.count;
       stage++)
    costs->recomputes[stage] = strcmp(t->memory_recompute.value[stage], "full") == 0;
  struct pen_graph **emitted = pen_new(blocks + 1u, sizeof *emitted);
  bool leads = true; /* nothing trains before the block */
  for (uint32_t block = 0; block < blocks; block++) {
    emitted[block] = emit_alone(costs, block);
    struct figures inner = figures_of(costs, block, emitted);
    struct figures leading = leads && block ? measure(costs, block, true) : inner;
    add(&costs->inner, block, &inner);
    add(&costs->leading, block, &leading);
    leads = leads && !trains(emitted[block]);
  }
  return costs;
}

/* ---- runs of blocks ---- */

/* What a recomputing stage runs again. */
static double again_work(const struct pen_block_costs *costs, const struct sums *sums,
                         uint32_t first, uint32_t past) {
  double work = 0;
  bool read[INPUTS_MAX] = {false}, needed = false;
  uint32_t block = past;
  while (block > first && !needed) {
    const struct figures *figures = &sums->block[--block];
    work += figures->again;
    for (uint32_t i = 0; i < costs->input_count; i++) read[i] = read[i] || figures->reads_again[i];
    needed = figures->needs_input;
  }
  work += sums->forward[block] - sums->forward[first];
  for (uint32_t i = 0; i < costs->input_count; i++)
    if (read[i] || sums->readers[i][block] > sums->readers[i][first]) work += costs->input_work[i];
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
    work += sums->block[first].alone;
  return 1e-9 * work;
}
