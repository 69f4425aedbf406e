/* units.c: divides the forward ops of a stage into segments, by memory.recompute.
 *
 *   none       one segment, which the backward does not recompute
 *   full       one segment
 *   layer      a segment for each unit
 *   attention  in each unit the ops up to its attention and what reads its result, recomputed, and
 *              the rest, which is not
 *
 * A fused loss ends the last segment if that is recomputed; else it is a segment of its own. */
#include "gen/model/units.h"

#include "gen/base/arena.h"
#include "gen/base/error.h"
#include "gen/model/blocks.h"
#include "gen/model/fused_loss.h"
#include "gen/model/op_signature.h"
#include "runtime/plan/plan.h"

enum pen_recompute_kind pen_recompute_of(const struct pen_topology *topology, uint32_t stage) {
  if (!topology->trains || stage >= topology->memory_recompute.count) return PEN_RECOMPUTE_NONE;
  const int kind = topology->memory_recompute.value[stage];
  if (kind >= PEN_RECOMPUTE_KINDS)
    pen_stop(PEN_EXIT_INTERNAL, "model: what stage %u recomputes is not resolved", stage);
  return (enum pen_recompute_kind)kind;
}

bool pen_same_unit(const struct pen_model_block *block, const struct pen_model_block *next) {
  return block->layer == next->layer;
}

/* The block that emitted a forward op: that of its first output. */
static const struct pen_model_block *block_of(const struct pen_graph *graph, size_t op) {
  const struct pen_op *forward = &graph->forward.op[op];
  uint32_t output = forward->operand[pen_signature_of(forward->kind)->input_count];
  return &graph->stages->block[graph->value[output].block];
}

static size_t past_unit(const struct pen_graph *graph, size_t first, size_t past_last) {
  size_t past = first + 1;
  while (past < past_last && pen_same_unit(block_of(graph, past - 1), block_of(graph, past)))
    past++;
  return past;
}

/* Past the last op among [first, past) that reads the result of an attention; `first` if none does.
 * That op ends the segment: what it gives is kept, so it does not run again. */
static size_t past_attention(const struct pen_graph *graph, size_t first, size_t past) {
  uint32_t result = PEN_NONE;
  size_t end = first;
  for (size_t i = first; i < past; i++) {
    const struct pen_op *op = &graph->forward.op[i];
    if (pen_op_reads(op, result)) end = i + 1;
    if (op->kind == PEN_OP_ATTENTION || op->kind == PEN_OP_ATTENTION_QKV ||
        op->kind == PEN_OP_ATTENTION_FULL)
      result = op->operand[pen_signature_of(op->kind)->input_count];
  }
  return end;
}

static void add_segment(struct pen_segments *segments, size_t first, size_t past, bool recomputed) {
  if (first < past)
    segments->segment[segments->count++] =
        (struct pen_segment){.first = first, .past = past, .recomputed = recomputed};
}

static void add_unit(const struct pen_graph *graph, struct pen_segments *segments, size_t first,
                     size_t past) {
  size_t middle =
      graph->recompute == PEN_RECOMPUTE_LAYER ? past : past_attention(graph, first, past);
  add_segment(segments, first, middle, true);
  add_segment(segments, middle, past, false);
}

/* Whether the stage is only a loss, whose F would compute the gradient of the stage's input. Then
 * the backward runs the loss again, so that the gradient is live only from the action that sends
 * it. */
static bool is_loss_alone(const struct pen_graph *graph) {
  return graph->input != PEN_NONE && graph->value[graph->input].gradient != PEN_NONE;
}

static void add_fused_loss(struct pen_segments *segments, size_t first, size_t past) {
  if (!segments->count || !segments->segment[segments->count - 1].recomputed)
    add_segment(segments, first, past, false);
  segments->segment[segments->count - 1].past = past;
  segments->segment[segments->count - 1].fused_op_count = past - first;
}

struct pen_segments pen_segments_of(const struct pen_graph *graph) {
  size_t count = graph->forward.count;
  struct pen_segments segments = {.segment = pen_new(2 * count + 1, sizeof *segments.segment)};
  bool fused_loss = pen_loss_is_fused(graph), alone = !fused_loss && is_loss_alone(graph);
  size_t past_last = count - graph->fused_op_count; /* of the ops that F runs */
  if (alone || graph->recompute == PEN_RECOMPUTE_NONE || graph->recompute == PEN_RECOMPUTE_FULL)
    add_segment(&segments, 0, past_last, alone || graph->recompute == PEN_RECOMPUTE_FULL);
  else
    for (size_t first = 0, past; first < past_last; first = past) {
      past = past_unit(graph, first, past_last);
      add_unit(graph, &segments, first, past);
    }
  if (fused_loss) add_fused_loss(&segments, past_last, count);
  return segments;
}
