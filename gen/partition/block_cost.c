/* block_cost.c: the cost of each block, and of stages as sums over their blocks.
 *
 * Each block is built as a stage of its own, and the operations of its programs are counted. A
 * stage costs the sum over its blocks, with two exceptions. An input of the step that several
 * blocks of a stage read is made once, so it counts once for the stage. And if no weight before a
 * block is trained (the embedding is frozen, or x is an input of the step), the block's input needs
 * no gradient: such blocks are measured in both ways, and the first stage uses the lower cost.
 *
 * If the schedule does not split the backward, what I and W both compute counts once. Orders from
 * a search or from a file count as split.
 *
 * A stage with recomputation runs again, from the last block of each segment (units.h) backwards,
 * what the backward of a block needs; once a block needs its input, all blocks of the segment
 * before it run again in full.
 *
 * What replicas sum and gather in programs does not count: a cut is the same whatever they share,
 * as the bounds of a plan's search suppose (gen/planner/cuts.c). */
#include "gen/partition/block_cost.h"

#include <string.h>

#include "gen/base/arena.h"
#include "gen/base/error.h"
#include "gen/families/families.h"
#include "gen/model/backward.h"
#include "gen/model/fused_loss.h"
#include "gen/model/model.h"
#include "gen/model/op_signature.h"
#include "gen/model/recompute.h"
#include "gen/model/units.h"
#include "gen/topology/topology.h"
#include "runtime/plan/plan.h"

enum { INPUTS_MAX = PEN_BLOCK_READS_MAX, KINDS_MAX = 8 /* how many earlier blocks are compared */ };

/* One block as a stage of its own, without the inputs of the step. */
struct block_flops {
  double work;            /* of all programs */
  double forward;         /* of F */
  double alone;           /* what a stage of only this block always runs again: a fused loss */
  bool reads[INPUTS_MAX]; /* which inputs of the step */
  double attention;       /* what its backward runs again with memory.recompute = "attention" */
  /* If it is recomputed and no later block of the segment needs this block's output: */
  double recomputed;                 /* what its backward runs again */
  bool reads_recomputed[INPUTS_MAX]; /* which inputs of the step that reads */
  bool needs_input;                  /* recomputation or backward needs the block's input */
};

/* Of all blocks, and sums over blocks 0 ... k-1; the sum of a run is a difference of two. */
struct block_sums {
  struct block_flops *block;
  double *work, *forward;
  uint32_t *readers[INPUTS_MAX]; /* how many blocks read that input */
};

struct pen_block_costs {
  const struct pen_topology *topology;
  const struct pen_family *family;
  const struct pen_model_block *block; /* [block_count] */
  uint32_t block_count;
  bool splits_backward;
  uint32_t input_count;
  double input_work[INPUTS_MAX];
  struct block_sums leading, inner;   /* in the first stage, and in the others */
  enum pen_recompute_kind *recompute; /* [stage] */
};

/* ---- one block ---- */

/* The forward ops of a block as a stage of its own: the first, the middle or the last of three
 * stages, so that it emits the same ops as in the model. */
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

static struct pen_graph *differentiate_alone(const struct pen_block_costs *c, uint32_t block,
                                             bool leads, enum pen_recompute_kind recompute) {
  struct pen_graph *graph = emit_alone(c, block);
  graph->input_is_given = leads;
  graph->recompute = (uint8_t)recompute;
  pen_backward(graph);
  return graph;
}

static bool reads_value(const struct pen_op_list *list, uint32_t value) {
  for (size_t i = 0; i < list->count; i++)
    if (pen_op_reads(&list->op[i], value)) return true;
  return false;
}

/* Whether the recomputed ops make an input of the step: they contain a copy of its op. */
static bool recomputes_input(const struct pen_graph *graph, const struct pen_datum *datum) {
  const struct pen_op_list *list = &graph->program[PEN_PROGRAM_I];
  for (size_t i = 0; i < list->count; i++)
    if (pen_op_is_recomputed(graph, &list->op[i]) && list->op[i].kind == datum->kind &&
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

static struct block_flops measure(struct pen_block_costs *costs, uint32_t block, bool leads) {
  const struct pen_graph *graph = differentiate_alone(costs, block, leads, PEN_RECOMPUTE_NONE),
                         *recomputing =
                             differentiate_alone(costs, block, leads, PEN_RECOMPUTE_FULL),
                         *attention =
                             differentiate_alone(costs, block, leads, PEN_RECOMPUTE_ATTENTION);
  struct block_flops f = {.forward = pen_program_flops(&graph->program[PEN_PROGRAM_F]),
                          .alone = pen_recomputed_flops(graph),
                          .attention = pen_recomputed_flops(attention),
                          .recomputed = pen_recomputed_flops(recomputing)};
  f.attention -= f.alone;
  for (int program = PEN_PROGRAM_F; program <= PEN_PROGRAM_W; program++)
    f.work += pen_program_flops(&graph->program[program]);
  if (!costs->splits_backward) f.work -= pen_shared_flops(graph);
  f.work -= f.alone;
  f.needs_input = reads_value(&recomputing->program[PEN_PROGRAM_I], recomputing->input) ||
                  reads_value(&recomputing->program[PEN_PROGRAM_W], recomputing->input);
  for (size_t k = 0; k < graph->datum_count; k++) {
    const struct pen_datum *datum = &graph->datum[k];
    uint32_t i = input_index(costs, datum->declared);
    costs->input_work[i] = datum->flops;
    f.work -= datum->flops;
    f.forward -= datum->flops;
    f.reads[i] = true;
    f.reads_recomputed[i] = recomputes_input(recomputing, datum);
    if (f.reads_recomputed[i]) f.recomputed -= datum->flops;
  }
  return f;
}

/* ---- all blocks ---- */

/* Whether two blocks of one kind differ in the names of their weights only. Then their costs are
 * equal. */
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

static bool has_trained_weight(const struct pen_graph *graph) {
  for (size_t i = 0; i < graph->weight_count; i++)
    if (!graph->weight[i].frozen) return true;
  return false;
}

/* The costs of a block, copied from an equal earlier block if there is one. */
static struct block_flops flops_of_block(struct pen_block_costs *costs, uint32_t block,
                                         struct pen_graph *const *emitted) {
  for (uint32_t other = block; other-- > 0 && block - other <= KINDS_MAX;)
    if (costs->block[other].kind == costs->block[block].kind &&
        same_ops(emitted[other], emitted[block]))
      return costs->inner.block[other];
  return measure(costs, block, false);
}

static void add_block(struct block_sums *sums, uint32_t block, const struct block_flops *flops) {
  sums->block[block] = *flops;
  sums->work[block + 1] = sums->work[block] + flops->work;
  sums->forward[block + 1] = sums->forward[block] + flops->forward;
  for (uint32_t i = 0; i < INPUTS_MAX; i++)
    sums->readers[i][block + 1] = sums->readers[i][block] + flops->reads[i];
}

static struct block_sums new_sums(uint32_t blocks) {
  struct block_sums sums = {.block = pen_new(blocks + 1u, sizeof *sums.block),
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
  costs->block = pen_family_blocks(family, t, (uint32_t)t->model_layers, &blocks);
  costs->block_count = blocks;
  while (family->input[costs->input_count]) costs->input_count++;
  if (costs->input_count > INPUTS_MAX)
    pen_stop(PEN_EXIT_INTERNAL, "penstock-gen: internal error: family %s has too many inputs",
             family->name);
  costs->leading = new_sums(blocks);
  costs->inner = new_sums(blocks);
  costs->recompute = pen_new(stages, sizeof *costs->recompute);
  for (uint32_t stage = 0; stage < stages; stage++)
    costs->recompute[stage] = pen_recompute_of(t, stage);
  struct pen_graph **emitted = pen_new(blocks + 1u, sizeof *emitted);
  bool leads = true; /* no weight before the block is trained */
  for (uint32_t block = 0; block < blocks; block++) {
    emitted[block] = emit_alone(costs, block);
    struct block_flops inner = flops_of_block(costs, block, emitted);
    struct block_flops leading = leads && block ? measure(costs, block, true) : inner;
    add_block(&costs->inner, block, &inner);
    add_block(&costs->leading, block, &leading);
    leads = leads && !has_trained_weight(emitted[block]);
  }
  return costs;
}

/* ---- runs of blocks ---- */

/* What the backward of a segment runs again. */
static double recomputed_work(const struct pen_block_costs *costs, const struct block_sums *sums,
                              uint32_t first, uint32_t past) {
  double work = 0;
  bool read[INPUTS_MAX] = {false}, needed = false;
  uint32_t block = past;
  while (block > first && !needed) {
    const struct block_flops *flops = &sums->block[--block];
    work += flops->recomputed;
    for (uint32_t i = 0; i < costs->input_count; i++)
      read[i] = read[i] || flops->reads_recomputed[i];
    needed = flops->needs_input;
  }
  work += sums->forward[block] - sums->forward[first];
  for (uint32_t i = 0; i < costs->input_count; i++)
    if (read[i] || sums->readers[i][block] > sums->readers[i][first]) work += costs->input_work[i];
  return work;
}

/* The same for a segment a unit. */
static double recomputed_by_unit(const struct pen_block_costs *costs, const struct block_sums *sums,
                                 uint32_t first, uint32_t past) {
  double work = 0;
  for (uint32_t begin = first, end; begin < past; begin = end) {
    end = begin + 1;
    while (end < past && pen_same_unit(&costs->block[end - 1], &costs->block[end])) end++;
    work += recomputed_work(costs, sums, begin, end);
  }
  return work;
}

static double recomputed_alone(const struct pen_block_costs *costs, const struct block_sums *sums,
                               uint32_t first, uint32_t past) {
  (void)costs;
  return past - first == 1 ? sums->block[first].alone : 0;
}

static double recomputed_attention(const struct pen_block_costs *costs,
                                   const struct block_sums *sums, uint32_t first, uint32_t past) {
  double work = recomputed_alone(costs, sums, first, past);
  for (uint32_t block = first; block < past; block++) work += sums->block[block].attention;
  return work;
}

double pen_span_cost(const void *context, uint32_t stage, uint32_t first, uint32_t past) {
  static double (*const recomputed[])(const struct pen_block_costs *, const struct block_sums *,
                                      uint32_t, uint32_t) = {
      [PEN_RECOMPUTE_NONE] = recomputed_alone,
      [PEN_RECOMPUTE_FULL] = recomputed_work,
      [PEN_RECOMPUTE_LAYER] = recomputed_by_unit,
      [PEN_RECOMPUTE_ATTENTION] = recomputed_attention};
  const struct pen_block_costs *costs = context;
  const struct block_sums *sums = first == 0 ? &costs->leading : &costs->inner;
  double work = sums->work[past] - sums->work[first];
  for (uint32_t i = 0; i < costs->input_count; i++)
    if (sums->readers[i][past] > sums->readers[i][first]) work += costs->input_work[i];
  return 1e-9 * (work + recomputed[costs->recompute[stage]](costs, sums, first, past));
}
