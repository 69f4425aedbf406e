/* liveness.c: assigns each value its segment and the storage that it shares with others.
 *
 * The first and the last program that use a value decide its segment: within one program SCRATCH;
 * from F to I SAVED_I; from F to W SAVED_W; from I to W KEPT_W. Values that cross the border of the
 * stage have segments of their own, and so have gradients of one microbatch, which peers read, and
 * values that outlive the step. An
 * output that may alias an input ("@" in ops.def) uses its memory if no later op reads that input,
 * and the op does not read it twice. */
#include "gen/model/liveness.h"
#include "gen/base/arena.h"
#include "gen/model/op_signature.h"
#include "runtime/plan/plan.h"

/* The programs that run on one microbatch, in order: F, I, W or F, B. The schedule decides which,
 * so the storage must be right for both. */
struct history {
  uint32_t program[3];
  size_t count;
};

static const struct history split_history = {{PEN_PROGRAM_F, PEN_PROGRAM_I, PEN_PROGRAM_W}, 3};
static const struct history fused_history = {{PEN_PROGRAM_F, PEN_PROGRAM_B}, 2};

/* The uses of a value within one history: the first and last place (index of history.program) and
 * the last use. */
struct live_range {
  bool seen;
  uint32_t first, last;
  uint64_t last_use; /* place << 32 | op */
};

static uint64_t moment_of(uint32_t place, size_t op) { return (uint64_t)place << 32 | op; }

static void record_use(struct live_range *range, uint32_t value, uint32_t place, size_t op) {
  if (value == PEN_NONE) return;
  struct live_range *l = &range[value];
  if (!l->seen) *l = (struct live_range){true, place, place, 0};
  l->last = place;
  l->last_use = moment_of(place, op);
}

static struct live_range *trace_uses(const struct pen_graph *graph, const struct history *history) {
  struct live_range *range = pen_new(graph->value_count + 1, sizeof *range);
  for (uint32_t place = 0; place < history->count; place++) {
    const struct pen_op_list *list = &graph->program[history->program[place]];
    for (size_t i = 0; i < list->count; i++) {
      for (size_t k = 0; k < PEN_OPERANDS_MAX; k++)
        record_use(range, list->op[i].operand[k], place, i);
      record_use(range, list->op[i].workspace, place, i);
    }
  }
  return range;
}

static bool is_free_to_share(const struct pen_graph *graph, uint32_t value) {
  return value != PEN_NONE && graph->value[value].role == PEN_ROLE_ACTIVATION &&
         graph->value[value].place[PEN_DATA] != PEN_PARTIAL && !graph->value[value].is_slot &&
         !graph->value[value].is_result && value != graph->input && value != graph->output &&
         value != graph->output_gradient && value != graph->input_gradient;
}

static bool reads_twice(const struct pen_op *op, uint32_t input_count, uint32_t value) {
  uint32_t readers = 0;
  for (uint32_t k = 0; k < input_count; k++) readers += op->operand[k] == value;
  return readers > 1;
}

/* Lets outputs of a program use the memory of inputs whose last use is that op. */
static void share_storage(struct pen_graph *graph, const struct history *history,
                          const struct live_range *range, uint32_t place) {
  const struct pen_op_list *list = &graph->program[history->program[place]];
  for (size_t i = 0; i < list->count; i++) {
    const struct pen_op *op = &list->op[i];
    const struct pen_signature *signature = pen_signature_of(op->kind);
    for (uint32_t k = signature->input_count; k < signature->operand_count; k++) {
      if (signature->operand[k].alias < 0) continue;
      uint32_t input = op->operand[signature->operand[k].alias], output = op->operand[k];
      if (!is_free_to_share(graph, input) || !is_free_to_share(graph, output)) continue;
      if (range[input].last_use > moment_of(place, i) ||
          reads_twice(op, signature->input_count, input))
        continue;
      graph->value[output].storage = graph->value[input].storage;
    }
  }
}

/* Extends the live range of a storage to those of the values in it. */
static void merge_live_ranges(const struct pen_graph *graph, struct live_range *range) {
  for (size_t i = 0; i < graph->value_count; i++) {
    struct live_range *root = &range[graph->value[i].storage];
    if (!range[i].seen || root == &range[i]) continue;
    if (range[i].first < root->first) root->first = range[i].first;
    if (range[i].last > root->last) root->last = range[i].last;
  }
}

/* The segment of a storage in the split history; a storage that only B uses is SCRATCH. */
static uint8_t segment_of(const struct live_range *split) {
  if (!split->seen || split->first == split->last) return PEN_BASE_SCRATCH;
  if (split->first == 1) return PEN_BASE_KEPT_W;
  return split->last == 2 ? PEN_BASE_SAVED_W : PEN_BASE_SAVED_I;
}

static void assign_segments(struct pen_graph *graph, const struct live_range *split) {
  for (uint32_t i = 0; i < graph->value_count; i++) {
    struct pen_value *value = &graph->value[i];
    if (value->role == PEN_ROLE_LOSS)
      value->base = PEN_BASE_LOSS;
    else if (value->role == PEN_ROLE_CACHE)
      value->base = PEN_BASE_CACHE;
    else if (value->role != PEN_ROLE_ACTIVATION)
      value->base = PEN_BASE_PERSISTENT;
    else if (value->place[PEN_DATA] == PEN_PARTIAL)
      value->base = PEN_BASE_PARTIAL;
    else if (value->is_slot)
      value->base = PEN_BASE_EXCHANGE;
    else if (value->is_result)
      value->base = PEN_BASE_RESULT;
    else if (i == graph->input)
      value->base = PEN_BASE_INPUT;
    else if (i == graph->output)
      value->base = PEN_BASE_OUTPUT;
    else if (i == graph->output_gradient)
      value->base = PEN_BASE_OUTPUT_GRADIENT;
    else if (i == graph->input_gradient)
      value->base = PEN_BASE_INPUT_GRADIENT;
    else
      value->base = segment_of(&split[value->storage]);
  }
}

/* ---- parts of one tensor ---- */

/* Parts that are values of a program, such as gathered weights, get one memory. What persists is
 * placed in the order of the weights, and so side by side. */
static void join_parts_of(struct pen_graph *graph, const struct pen_op *op) {
  const struct pen_signature *signature = pen_signature_of(op->kind);
  if (signature->last_part == 0) return;
  const uint32_t first = op->operand[signature->first_part];
  const struct pen_value like = graph->value[first];
  if (like.role != PEN_ROLE_ACTIVATION || like.storage != first) return;
  uint64_t elements = 0;
  for (int k = signature->first_part; k <= signature->last_part; k++)
    if (op->operand[k] != PEN_NONE) elements += graph->value[op->operand[k]].elements;
  const uint32_t whole = pen_graph_value(graph, pen_text("%s(parts)", like.name), like.dtype,
                                         PEN_ROLE_ACTIVATION, elements);
  memcpy(graph->value[whole].place, like.place, sizeof like.place);
  graph->value[whole].block = like.block;
  graph->value[whole].prefix = like.prefix;
  uint64_t end = 0;
  for (int k = signature->first_part; k <= signature->last_part; k++) {
    if (op->operand[k] == PEN_NONE) continue;
    struct pen_value *part = &graph->value[op->operand[k]];
    part->storage = whole;
    part->within = end;
    end += part->bytes;
  }
}

static void join_parts(struct pen_graph *graph) {
  for (size_t p = 0; p < PEN_PROGRAMS; p++)
    for (size_t i = 0; i < graph->program[p].count; i++)
      join_parts_of(graph, &graph->program[p].op[i]);
}

void pen_assign_storage(struct pen_graph *graph) {
  join_parts(graph);
  struct live_range *split = trace_uses(graph, &split_history);
  share_storage(graph, &split_history, split, 0);
  if (graph->training) {
    share_storage(graph, &split_history, split, 1);
    share_storage(graph, &split_history, split, 2);
    share_storage(graph, &fused_history, trace_uses(graph, &fused_history), 1);
  }
  merge_live_ranges(graph, split);
  assign_segments(graph, split);
}
