/* unit_collectives.c: adds collectives to the programs of a stage, unit by unit (units.h), as ops
 * like any other, so that their buffers are placed, timed and verified like all others.
 *
 * Weights (data_parallel.unit = "layer"), as FSDP2 does with each layer (Zhao et al. 2023,
 * arXiv 2304.11277): before the ops of a unit ALL_GATHER makes each of its sharded weights whole,
 * in a value that is live up to its last reader. A program that comes back to a unit gathers it
 * again.
 *
 * Gradients (data_parallel.reduce = "microbatch"): the gradients of a unit are computed into zeros,
 * not into the accumulators, and added to these when the last of the unit is complete:
 *
 *     ZERO ...             before the unit's first gradient
 *     SIGNAL_PEERS         own gradients are complete
 *     WAIT_PEERS           those of the peers are
 *     REDUCE_SCATTER ...   this replica's shard of all replicas' gradients is added to the
 *                          accumulator
 *     SIGNAL_PEERS         own reads are complete
 *     WAIT_PEERS           those of the peers are: the memory is free
 *
 * With one replica ACCUMULATE adds the same, in the same order (docs/contracts.md section 9). A
 * gradient that embedding and head share has an accumulator at both ends. */
#include "gen/model/unit_collectives.h"

#include <string.h>

#include "gen/base/arena.h"
#include "gen/base/error.h"
#include "gen/model/blocks.h"
#include "gen/model/op_signature.h"
#include "gen/model/units.h"
#include "gen/topology/data_parallel.h"
#include "runtime/plan/shard.h"

/* A program while ops are added. */
struct unit_pass {
  struct pen_graph *graph;
  const char *suffix; /* of the names of added values */
  uint32_t *unit_of;  /* [value]: of weights and gradients */
  bool ahead;         /* collectives run beside the kernels of another unit */
  struct pen_op_list out;
};

bool pen_weight_is_tied(const struct pen_graph *graph, uint32_t weight) {
  const char *embedding =
      graph->topology->model_tie_embeddings ? graph->stages->family->embedding : NULL;
  return embedding && !strcmp(graph->weight[weight].tensor, embedding);
}

uint32_t pen_program_collectives(const struct pen_op_list *program) {
  uint32_t count = 0;
  for (size_t i = 0; i < program->count; i++) count += program->op[i].kind == PEN_OP_SIGNAL_PEERS;
  return count;
}

/* [value]: the unit of its block, from 0. */
static uint32_t *number_units(const struct pen_graph *graph) {
  const struct pen_span *span = &graph->stages->span[graph->stage];
  uint32_t *of_block = pen_new(span->past_last_block + 1u, sizeof *of_block);
  for (uint32_t b = span->first_block + 1; b < span->past_last_block; b++)
    of_block[b] =
        of_block[b - 1] + !pen_same_unit(&graph->stages->block[b - 1], &graph->stages->block[b]);
  uint32_t *of_value = pen_new(graph->value_count + 1, sizeof *of_value);
  for (size_t v = 0; v < graph->value_count; v++) of_value[v] = of_block[graph->value[v].block];
  pen_free(of_block);
  return of_value;
}

static uint64_t kept_count(const struct pen_graph *graph, uint32_t weight) {
  return pen_largest_in(pen_division_of(&graph->weight[weight],
                                        (uint32_t)graph->topology->data_parallel_shard_ranks));
}

static struct pen_op *append(struct unit_pass *pass, int kind) {
  return pen_op_append(&pass->out, kind);
}

static uint32_t add_value(struct unit_pass *pass, uint32_t like, uint64_t elements) {
  struct pen_graph *graph = pass->graph;
  const struct pen_value from = graph->value[like];
  return pen_graph_value(graph, pen_text("%s(%s)", from.name, pass->suffix), from.dtype,
                         PEN_ROLE_ACTIVATION, elements);
}

/* What follows waits for the collectives of some values. */
static void append_events(struct unit_pass *pass, const uint32_t *value, size_t count) {
  for (size_t i = 0; i < count; i++) {
    struct pen_op *op = append(pass, PEN_OP_WAIT_EVENT);
    op->dtype = pass->graph->value[value[i]].dtype;
    op->operand[0] = value[i];
    op->dim[0] = (int64_t)pass->graph->value[value[i]].elements;
  }
}

/* ---- weights ---- */

static bool is_gathered(const struct pen_graph *graph, uint32_t value) {
  return value != PEN_NONE && graph->value[value].role == PEN_ROLE_WEIGHT &&
         !pen_weight_is_tied(graph, graph->value[value].weight);
}

/* The unit of the gathered weights that an op reads; PEN_NONE: it reads none. */
static uint32_t unit_read(const struct unit_pass *pass, const struct pen_op *op) {
  for (int k = 0; k < PEN_OPERANDS_MAX; k++)
    if (is_gathered(pass->graph, op->operand[k])) return pass->unit_of[op->operand[k]];
  return PEN_NONE;
}

/* Weights of one unit that ops read, before another unit's. */
struct weight_run {
  size_t first;                   /* op that reads the first of them */
  uint32_t unit, *weight, *whole; /* [count]; whole: the gathered value */
  size_t count;
};

/* The value that ops of a run read instead of a weight; PEN_NONE: the run has none. */
static uint32_t whole_of(const struct weight_run *run, uint32_t weight) {
  for (size_t i = 0; i < run->count; i++)
    if (run->weight[i] == weight) return run->whole[i];
  return PEN_NONE;
}

static void add_weight(struct unit_pass *pass, struct weight_run *run, uint32_t weight) {
  if (whole_of(run, weight) != PEN_NONE) return;
  uint32_t whole =
      add_value(pass, weight, pass->graph->weight[pass->graph->value[weight].weight].count);
  PEN_RESERVE(run->weight, run->count + 1);
  PEN_RESERVE(run->whole, run->count + 1);
  run->weight[run->count] = weight;
  run->whole[run->count++] = whole;
}

static struct weight_run *find_runs(struct unit_pass *pass, const struct pen_op_list *program,
                                    size_t *count) {
  struct weight_run *run = pen_new(program->count + 1, sizeof *run);
  *count = 0;
  for (size_t i = 0; i < program->count; i++) {
    uint32_t unit = unit_read(pass, &program->op[i]);
    if (unit == PEN_NONE) continue;
    if (*count == 0 || run[*count - 1].unit != unit)
      run[(*count)++] = (struct weight_run){.first = i, .unit = unit};
    for (int k = 0; k < PEN_OPERANDS_MAX; k++)
      if (is_gathered(pass->graph, program->op[i].operand[k]))
        add_weight(pass, &run[*count - 1], program->op[i].operand[k]);
  }
  return run;
}

static void append_gathers(struct unit_pass *pass, const struct weight_run *run) {
  const struct pen_graph *graph = pass->graph;
  for (size_t i = 0; i < run->count; i++) {
    const struct pen_value *weight = &graph->value[run->weight[i]];
    struct pen_op *op = append(pass, PEN_OP_ALL_GATHER);
    op->dtype = weight->dtype;
    op->operand[0] = run->weight[i];
    op->operand[1] = run->whole[i];
    op->dim[0] = (int64_t)graph->weight[weight->weight].count;
    op->dim[1] = (int64_t)kept_count(graph, weight->weight);
  }
  append(pass, PEN_OP_SIGNAL_PEERS);
}

/* Appends the ops before the first that reads a run's weights. */
static void begin_run(struct unit_pass *pass, const struct weight_run *run, size_t index,
                      size_t count) {
  if (index == 0 || !pass->ahead) append_gathers(pass, &run[index]);
  append_events(pass, run[index].whole, run[index].count);
  if (pass->ahead && index + 1 < count) append_gathers(pass, &run[index + 1]);
}

static void gather_weights(struct unit_pass *pass, struct pen_op_list *program) {
  size_t count, next = 0;
  struct weight_run *run = find_runs(pass, program, &count);
  for (size_t i = 0; i < program->count; i++) {
    struct pen_op op = program->op[i];
    if (next < count && run[next].first == i) begin_run(pass, run, next++, count);
    for (int k = 0; k < PEN_OPERANDS_MAX; k++)
      if (is_gathered(pass->graph, op.operand[k]))
        op.operand[k] = whole_of(&run[next - 1], op.operand[k]);
    *append(pass, op.kind) = op;
  }
  for (size_t r = 0; r < count; r++) {
    pen_free(run[r].weight);
    pen_free(run[r].whole);
  }
  pen_free(run);
}

/* ---- gradients ---- */

/* The gradients of a unit in a program: from its first op to its last. */
struct unit_gradients {
  bool used;
  size_t first, last;
  uint32_t *gradient, *partial; /* [count] */
  size_t count;
};

static bool is_gradient(const struct pen_graph *graph, uint32_t value) {
  return value != PEN_NONE && graph->value[value].role == PEN_ROLE_GRADIENT;
}

/* Adds an op to the range of a unit, and its gradient to the unit's; `partial` [value]: what the
 * program's ops use instead. */
static void add_gradient(struct unit_pass *pass, struct unit_gradients *unit, size_t op,
                         uint32_t gradient, uint32_t *partial) {
  if (!unit->used) unit->first = op;
  unit->used = true;
  unit->last = op;
  if (partial[gradient] != PEN_NONE) return;
  uint32_t made = add_value(pass, gradient, pass->graph->value[gradient].elements);
  if (pass->graph->topology->data_parallel_replicas > 1)
    pass->graph->value[made].place[PEN_DATA] = PEN_PARTIAL;
  partial[gradient] = made;
  PEN_RESERVE(unit->gradient, unit->count + 1);
  PEN_RESERVE(unit->partial, unit->count + 1);
  unit->gradient[unit->count] = gradient;
  unit->partial[unit->count++] = made;
}

static void append_zeros(struct unit_pass *pass, const struct unit_gradients *unit) {
  for (size_t i = 0; i < unit->count; i++) {
    struct pen_op *op = append(pass, PEN_OP_ZERO);
    op->operand[0] = unit->partial[i];
    op->dim[0] = (int64_t)pass->graph->value[unit->partial[i]].elements;
  }
}

static void append_additions(struct unit_pass *pass, const struct unit_gradients *unit, int kind) {
  for (size_t i = 0; i < unit->count; i++) {
    const struct pen_value *gradient = &pass->graph->value[unit->gradient[i]];
    struct pen_op *op = append(pass, kind);
    op->operand[0] = unit->partial[i];
    op->operand[1] = unit->gradient[i];
    op->dim[0] = (int64_t)pass->graph->value[unit->partial[i]].elements;
    if (kind == PEN_OP_REDUCE_SCATTER)
      op->dim[1] = (int64_t)(pen_shards_gradients(pass->graph->topology)
                                 ? kept_count(pass->graph, gradient->weight)
                                 : gradient->elements);
  }
}

/* Appends what follows the last op of a unit's gradients; `before`: the unit before it, or NULL. */
static void append_reduction(struct unit_pass *pass, const struct unit_gradients *unit,
                             const struct unit_gradients *before) {
  if (pass->graph->topology->data_parallel_replicas == 1) {
    append_additions(pass, unit, PEN_OP_ACCUMULATE);
    return;
  }
  if (pass->ahead && before) append_events(pass, before->partial, before->count);
  append(pass, PEN_OP_SIGNAL_PEERS);
  append(pass, PEN_OP_WAIT_PEERS);
  append_additions(pass, unit, PEN_OP_REDUCE_SCATTER);
  append(pass, PEN_OP_SIGNAL_PEERS);
  append(pass, PEN_OP_WAIT_PEERS);
  if (!pass->ahead) append_events(pass, unit->partial, unit->count);
}

static void free_units(struct unit_gradients *unit, uint32_t units) {
  for (uint32_t u = 0; u < units; u++) {
    pen_free(unit[u].gradient);
    pen_free(unit[u].partial);
  }
  pen_free(unit);
}

static void reduce_gradients(struct unit_pass *pass, struct pen_op_list *program) {
  const struct pen_span *span = &pass->graph->stages->span[pass->graph->stage];
  const uint32_t units = span->past_last_block - span->first_block;
  const size_t value_count = pass->graph->value_count;
  struct unit_gradients *unit = pen_new(units + 1, sizeof *unit);
  const struct unit_gradients *before = NULL;
  uint32_t *partial = pen_new(value_count + 1, sizeof *partial);
  for (size_t v = 0; v < value_count; v++) partial[v] = PEN_NONE;
  for (size_t i = 0; i < program->count; i++)
    for (int k = 0; k < PEN_OPERANDS_MAX; k++) {
      uint32_t *operand = &program->op[i].operand[k];
      if (!is_gradient(pass->graph, *operand)) continue;
      add_gradient(pass, &unit[pass->unit_of[*operand]], i, *operand, partial);
      *operand = partial[*operand];
    }
  for (size_t i = 0; i < program->count; i++) {
    for (uint32_t u = 0; u < units; u++)
      if (unit[u].used && unit[u].first == i) append_zeros(pass, &unit[u]);
    *append(pass, 0) = program->op[i];
    for (uint32_t u = 0; u < units; u++) {
      if (!unit[u].used || unit[u].last != i) continue;
      append_reduction(pass, &unit[u], before);
      before = &unit[u];
    }
  }
  if (pass->ahead && before && pass->graph->topology->data_parallel_replicas > 1)
    append_events(pass, before->partial, before->count);
  free_units(unit, units);
  pen_free(partial);
}

/* ---- the pass ---- */

typedef void add_collectives(struct unit_pass *pass, struct pen_op_list *program);

static void rewrite_programs(struct pen_graph *graph, add_collectives *add, const char *what) {
  static const char *const names[PEN_PROGRAMS] = {"F", "I", "W", "B"};
  struct unit_pass pass = {.graph = graph,
                           .unit_of = number_units(graph),
                           .ahead = !pen_device_row(graph->topology->cluster_device)->on_host};
  for (int p = 0; p < PEN_PROGRAMS; p++) {
    pass.suffix = pen_text("%s %s", what, names[p]);
    pass.out = (struct pen_op_list){0};
    add(&pass, &graph->program[p]);
    graph->program[p] = pass.out;
  }
  pen_free(pass.unit_of);
}

/* Reduces the tensors of a role to the elements that a rank keeps. */
static void keep_shards(struct pen_graph *graph, uint8_t role) {
  for (size_t v = 0; v < graph->value_count; v++) {
    struct pen_value *value = &graph->value[v];
    bool sharded = value->role == role &&
                   (role == PEN_ROLE_GRADIENT || !pen_weight_is_tied(graph, value->weight));
    if (!sharded) continue;
    value->elements = kept_count(graph, value->weight);
    value->bytes = value->elements * pen_dtype_bytes(value->dtype);
  }
}

void pen_unit_collectives(struct pen_graph *graph) {
  if (graph->training && pen_reduces_microbatches(graph->topology)) {
    rewrite_programs(graph, reduce_gradients, "part");
    if (pen_shards_gradients(graph->topology)) keep_shards(graph, PEN_ROLE_GRADIENT);
  }
  if (pen_gathers_units(graph->topology)) {
    rewrite_programs(graph, gather_weights, "whole");
    keep_shards(graph, PEN_ROLE_WEIGHT);
  }
}
