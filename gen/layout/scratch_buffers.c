/* scratch_buffers.c: values that are live within one program. */
#include "gen/layout/scratch_buffers.h"
#include "gen/base/arena.h"
#include "gen/base/sort.h"
#include "gen/layout/buffer_intervals.h"
#include "gen/layout/pack.h"

enum { SCRATCH_STEPS = 50000 }; /* of packing one program's scratch */

static bool is_scratch_root(const struct pen_graph *graph, uint32_t value) {
  return graph->value[value].storage == value && graph->value[value].base == PEN_BASE_SCRATCH;
}

/* The buffers of its stage that an action has while a program runs, beside SAVED_W and scratch; 0
 * ends the list. What is no longer live (an input that F alone reads, while I runs) is still
 * occupied: see pen_interval_of(). */
static const uint8_t available[PEN_PROGRAMS][6] = {
    [PEN_PROGRAM_F] = {PEN_BASE_SAVED_I, PEN_BASE_OUTPUT, PEN_BASE_INPUT},
    [PEN_PROGRAM_I] = {PEN_BASE_SAVED_I, PEN_BASE_KEPT_W, PEN_BASE_INPUT_GRADIENT,
                       PEN_BASE_OUTPUT_GRADIENT, PEN_BASE_INPUT},
    [PEN_PROGRAM_W] = {PEN_BASE_KEPT_W, PEN_BASE_OUTPUT_GRADIENT, PEN_BASE_INPUT},
    [PEN_PROGRAM_B] = {PEN_BASE_SAVED_I, PEN_BASE_INPUT_GRADIENT, PEN_BASE_OUTPUT_GRADIENT,
                       PEN_BASE_INPUT},
};

/* The base of a buffer in which scratch fits; PEN_BASE_SCRATCH: none. */
static int find_base(const struct pen_buffer_filling *f, int program,
                     struct pen_interval *interval) {
  for (uint32_t piece = PEN_PIECES; piece-- > 0;)
    if (pen_interval_tree_fit(&f->tree[pen_piece_base(piece)], interval))
      return pen_piece_base(piece);
  for (const uint8_t *base = available[program]; *base; base++)
    if (pen_interval_tree_fit(&f->tree[*base], interval)) return *base;
  return PEN_BASE_SCRATCH;
}

void pen_place_scratch(struct pen_buffer_filling *f, int program) {
  const struct pen_graph *graph = f->graph;
  struct pen_keyed *list = pen_new(graph->value_count + 1, sizeof *list);
  struct pen_rectangle *rectangle = pen_new(graph->value_count + 1, sizeof *rectangle);
  uint32_t *owner = pen_new(graph->value_count + 1, sizeof *owner);
  size_t count = 0, left = 0;
  for (uint32_t v = 0; v < graph->value_count; v++)
    if (f->range[program][v].used && is_scratch_root(graph, v))
      list[count++] = (struct pen_keyed){~graph->value[v].bytes, v};
  pen_sort(list, count);
  for (size_t i = 0; i < count; i++) {
    uint32_t v = list[i].index;
    struct pen_interval t = pen_interval_of(f, v);
    int base = find_base(f, program, &t);
    if (base != PEN_BASE_SCRATCH) {
      pen_place_value(f, base, v, &t);
      continue;
    }
    owner[left] = v;
    rectangle[left++] = (struct pen_rectangle){
        .bytes = t.bytes, .first = f->range[program][v].first, .last = f->range[program][v].last};
  }
  f->buffers->scratch[program] = pen_pack(rectangle, 0, left, 0, UINT64_MAX, 0, SCRATCH_STEPS);
  for (size_t i = 0; i < left; i++) f->buffers->offset[owner[i]] = rectangle[i].offset;
}

void pen_place_partials(struct pen_buffer_filling *f, int program) {
  const struct pen_graph *graph = f->graph;
  struct pen_rectangle *rectangle = pen_new(graph->value_count + 1, sizeof *rectangle);
  uint32_t *owner = pen_new(graph->value_count + 1, sizeof *owner);
  size_t count = 0;
  for (uint32_t v = 0; v < graph->value_count; v++) {
    const struct pen_op_range *range = &f->range[program][v];
    if (!range->used || graph->value[v].base != PEN_BASE_PARTIAL) continue;
    owner[count] = v;
    rectangle[count++] = (struct pen_rectangle){
        .bytes = pen_aligned(graph->value[v].bytes), .first = range->first, .last = range->last};
  }
  uint64_t bytes = pen_pack(rectangle, 0, count, 0, UINT64_MAX, 0, SCRATCH_STEPS);
  for (size_t i = 0; i < count; i++) f->buffers->offset[owner[i]] = rectangle[i].offset;
  if (bytes > f->tree[PEN_BASE_PARTIAL].bytes) f->tree[PEN_BASE_PARTIAL].bytes = bytes;
  pen_free(rectangle);
  pen_free(owner);
}
