/* buffer_intervals.c: when the values of a stage hold their bytes. */
#include "gen/layout/buffer_intervals.h"
#include <string.h>
#include "gen/base/arena.h"
#include "gen/model/op_signature.h"

/* Extends the range of a value's storage to an op. */
static void extend_op_range(const struct pen_graph *graph, struct pen_op_range *range,
                            uint32_t value, uint32_t op) {
  if (value == PEN_NONE) return;
  struct pen_op_range *r = &range[graph->value[value].storage];
  if (!r->used) *r = (struct pen_op_range){true, op, op};
  r->last = op;
}

static struct pen_op_range *ranges_in(const struct pen_graph *graph, int program) {
  struct pen_op_range *range = pen_new(graph->value_count + 1, sizeof *range);
  const struct pen_op_list *list = &graph->program[program];
  for (uint32_t i = 0; i < list->count; i++) {
    for (size_t k = 0; k < PEN_OPERANDS_MAX; k++)
      extend_op_range(graph, range, list->op[i].operand[k], i);
    extend_op_range(graph, range, list->op[i].workspace, i);
  }
  return range;
}

static const struct pen_live_range always = {0, UINT32_MAX}, never = {1, 0};

uint32_t pen_number_layers(const struct pen_graph *graph, uint32_t *part) {
  const char *prefix = NULL;
  uint32_t count = 0;
  for (size_t i = 0; i < graph->program[PEN_PROGRAM_F].count; i++) {
    const struct pen_op *op = &graph->program[PEN_PROGRAM_F].op[i];
    for (size_t k = pen_signature_of(op->kind)->input_count; k < PEN_OPERANDS_MAX; k++) {
      if (op->operand[k] == PEN_NONE) continue;
      const struct pen_value *value = &graph->value[op->operand[k]];
      if (!prefix || strcmp(prefix, value->prefix)) count++;
      prefix = value->prefix;
      if (part) part[op->operand[k]] = count - 1;
    }
  }
  return count;
}

bool pen_is_used(const struct pen_buffer_filling *f, uint32_t value) {
  for (size_t p = 0; p < PEN_PROGRAMS; p++)
    if (f->range[p][value].used) return true;
  return false;
}

static struct pen_live_range from_first(const struct pen_op_range *r) {
  return r->used ? (struct pen_live_range){r->first, UINT32_MAX} : always;
}
static struct pen_live_range to_last(const struct pen_op_range *r) {
  return r->used ? (struct pen_live_range){0, r->last} : always;
}

bool pen_comes_by_message(const struct pen_partition *partition, const struct pen_graph *graph,
                          bool backward) {
  uint32_t from = backward ? graph->stage + 1 : graph->stage - 1;
  return from < graph->stage_count && partition->rank_of[graph->stage] != partition->rank_of[from];
}

struct pen_interval pen_interval_of(const struct pen_buffer_filling *f, uint32_t value) {
  struct pen_interval t = {.bytes = pen_aligned(f->graph->value[value].bytes)};
  const struct pen_op_range *r[PEN_PROGRAMS];
  for (int p = 0; p < PEN_PROGRAMS; p++) {
    r[p] = &f->range[p][value];
    t.live[p] = always;
  }
  switch (f->graph->value[value].base) {
    case PEN_BASE_SAVED_I:
    case PEN_BASE_SAVED_W:
      t.live[PEN_PROGRAM_F] = from_first(r[PEN_PROGRAM_F]);
      t.live[PEN_PROGRAM_B] = to_last(r[PEN_PROGRAM_B]);
      if (f->graph->value[value].base == PEN_BASE_SAVED_W)
        t.live[PEN_PROGRAM_W] = to_last(r[PEN_PROGRAM_W]);
      else
        t.live[PEN_PROGRAM_I] = to_last(r[PEN_PROGRAM_I]), t.live[PEN_PROGRAM_W] = never;
      break;
    case PEN_BASE_KEPT_W:
      t.live[PEN_PROGRAM_F] = t.live[PEN_PROGRAM_B] = never;
      t.live[PEN_PROGRAM_I] = from_first(r[PEN_PROGRAM_I]);
      t.live[PEN_PROGRAM_W] = to_last(r[PEN_PROGRAM_W]);
      break;
    case PEN_BASE_OUTPUT_GRADIENT:
      t.live[PEN_PROGRAM_B] = to_last(r[PEN_PROGRAM_B]);
      if (pen_comes_by_message(f->partition, f->graph, true))
        t.live[PEN_PROGRAM_W] = to_last(r[PEN_PROGRAM_W]);
      if (!r[PEN_PROGRAM_W]->used) t.live[PEN_PROGRAM_I] = to_last(r[PEN_PROGRAM_I]);
      break;
    case PEN_BASE_INPUT:
      if (!pen_comes_by_message(f->partition, f->graph, false)) break;
      t.live[PEN_PROGRAM_B] = to_last(r[PEN_PROGRAM_B]);
      t.live[PEN_PROGRAM_W] = to_last(r[PEN_PROGRAM_W]);
      if (!r[PEN_PROGRAM_W]->used) t.live[PEN_PROGRAM_I] = to_last(r[PEN_PROGRAM_I]);
      if (!r[PEN_PROGRAM_W]->used && !r[PEN_PROGRAM_I]->used)
        t.live[PEN_PROGRAM_F] = to_last(r[PEN_PROGRAM_F]);
      break;
    case PEN_BASE_OUTPUT: t.live[PEN_PROGRAM_F] = from_first(r[PEN_PROGRAM_F]); break;
    case PEN_BASE_INPUT_GRADIENT:
      t.live[PEN_PROGRAM_I] = from_first(r[PEN_PROGRAM_I]);
      t.live[PEN_PROGRAM_B] = from_first(r[PEN_PROGRAM_B]);
      break;
    case PEN_BASE_SCRATCH:
      for (int p = 0; p < PEN_PROGRAMS; p++)
        t.live[p] = r[p]->used ? (struct pen_live_range){r[p]->first, r[p]->last} : never;
      break;
    default: break;
  }
  return t;
}

void pen_place_value(struct pen_buffer_filling *f, int base, uint32_t value,
                     const struct pen_interval *interval) {
  pen_interval_tree_add(&f->tree[base], interval);
  f->buffers->base[value] = (uint8_t)base;
  f->buffers->offset[value] = interval->offset;
}

struct pen_buffer_filling pen_start_filling(const struct pen_partition *partition,
                                            const struct pen_graph *graph,
                                            struct pen_stage_buffers *buffers) {
  struct pen_buffer_filling filling = {.partition = partition, .graph = graph, .buffers = buffers};
  for (int p = 0; p < PEN_PROGRAMS; p++) filling.range[p] = ranges_in(graph, p);
  return filling;
}

uint32_t pen_first_block(const struct pen_graph *graph) {
  return graph->stages->span[graph->stage].first_block;
}
