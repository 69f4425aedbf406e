/* block.c: within one stage: where each value lies in its base's block, and how many bytes are live at each op.
 *
 * Values kept for backward simply stand one behind the other: they are all live together. Scratch is packed by the ops between
 * which a value is used. */
#include <string.h>

#include "gen/layout.h"

/* Uses of a storage within one program: first and last op. */
struct range {
  bool used;
  uint32_t first, last;
};

static void mark(const struct pen_graph *graph, struct range *range, uint32_t value, uint32_t op) {
  if (value == PEN_NONE) return;
  struct range *r = &range[graph->value[value].storage];
  if (!r->used) *r = (struct range){true, op, op};
  r->last = op;
}

static struct range *ranges_in(const struct pen_graph *graph, int program) {
  struct range *range = pen_new(graph->value_count + 1, sizeof *range);
  const struct pen_op_list *list = &graph->program[program];
  for (uint32_t i = 0; i < list->count; i++) {
    for (size_t k = 0; k < PEN_OPERANDS_MAX; k++) mark(graph, range, list->op[i].operand[k], i);
    mark(graph, range, list->op[i].workspace, i);
  }
  return range;
}

static bool is_scratch_root(const struct pen_graph *graph, uint32_t value) {
  return graph->value[value].storage == value && graph->value[value].base == PEN_BASE_SCRATCH;
}

/* Packs the scratch of one program; returns its bytes. */
static uint64_t place_scratch(const struct pen_graph *graph, const struct range *range, uint64_t *offset) {
  struct pen_rectangle *rectangle = pen_new(graph->value_count + 1, sizeof *rectangle);
  uint32_t *owner = pen_new(graph->value_count + 1, sizeof *owner);
  size_t count = 0;
  for (uint32_t v = 0; v < graph->value_count; v++) {
    if (!range[v].used || !is_scratch_root(graph, v)) continue;
    owner[count] = v;
    rectangle[count++] = (struct pen_rectangle){pen_aligned(graph->value[v].bytes), range[v].first, range[v].last, 0};
  }
  uint64_t bytes = pen_pack(rectangle, count);
  for (size_t i = 0; i < count; i++) offset[owner[i]] = rectangle[i].offset;
  return bytes;
}

static bool used_anywhere(struct range *const range[PEN_PROGRAMS], uint32_t value) {
  for (size_t p = 0; p < PEN_PROGRAMS; p++)
    if (range[p][value].used) return true;
  return false;
}

/* Stands the kept values of each base one behind the other. */
static void place_kept(const struct pen_graph *graph, struct range *const range[PEN_PROGRAMS], struct pen_blocks *blocks) {
  for (uint32_t v = 0; v < graph->value_count; v++) {
    const struct pen_value *value = &graph->value[v];
    if (value->storage != v || !used_anywhere(range, v)) continue;
    if (value->base == PEN_BASE_SCRATCH || value->base == PEN_BASE_PERSISTENT) continue;
    blocks->offset[v] = blocks->bytes[value->base];
    blocks->bytes[value->base] += pen_aligned(value->bytes);
  }
}

/* The last program of F, I, W in which a boundary value is used; PEN_PROGRAM_F when never. */
static int last_program(struct range *const range[PEN_PROGRAMS], uint32_t value) {
  if (value == PEN_NONE) return PEN_PROGRAM_F;
  for (int p = PEN_PROGRAM_W; p > PEN_PROGRAM_F; p--)
    if (range[p][value].used) return p;
  return PEN_PROGRAM_F;
}

/* Whether a storage is alive before, or after, a program of a history. */
static bool used_in(struct range *const range[PEN_PROGRAMS], uint32_t value, const int *program, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (range[program[i]][value].used) return true;
  return false;
}

/* Live bytes of one program run: a storage is born at its first use unless an earlier program used it (or a message brought it),
 * and dies after its last use unless a later program (or a message that takes it away) needs it. */
static void count_live(const struct pen_graph *graph, struct range *const range[PEN_PROGRAMS], int program, const int *earlier,
                       size_t earlier_count, const int *later, size_t later_count, struct pen_blocks *blocks) {
  size_t ops = graph->program[program].count;
  int64_t *change = pen_new(ops + 2, sizeof *change);
  for (uint32_t v = 0; v < graph->value_count; v++) {
    const struct pen_value *value = &graph->value[v];
    if (value->storage != v || !range[program][v].used || value->role != PEN_ROLE_ACTIVATION) continue;
    int64_t bytes = (int64_t)pen_aligned(value->bytes);
    bool brought = v == graph->input || v == graph->output_gradient;
    bool taken = v == graph->output || v == graph->input_gradient;
    if (!brought && !used_in(range, v, earlier, earlier_count)) change[range[program][v].first] += bytes;
    if (!taken && !used_in(range, v, later, later_count)) change[range[program][v].last + 1] -= bytes;
  }
  int64_t live = 0;
  for (size_t i = 0; i < ops; i++) {
    live += change[i];
    if (live > blocks->peak[program]) blocks->peak[program] = live;
  }
  blocks->remains[program] = live + (ops ? change[ops] : 0);
}

struct pen_blocks pen_blocks_of(const struct pen_graph *graph) {
  struct pen_blocks blocks = {.offset = pen_new(graph->value_count + 1, sizeof(uint64_t))};
  struct range *range[PEN_PROGRAMS];
  for (int p = 0; p < PEN_PROGRAMS; p++) {
    range[p] = ranges_in(graph, p);
    blocks.scratch[p] = place_scratch(graph, range[p], blocks.offset);
  }
  place_kept(graph, range, &blocks);
  for (uint32_t v = 0; v < graph->value_count; v++) blocks.offset[v] = blocks.offset[graph->value[v].storage];
  blocks.input_last = last_program(range, graph->input);
  blocks.output_last = last_program(range, graph->output);
  blocks.output_gradient_last = last_program(range, graph->output_gradient);
  blocks.input_gradient_last = last_program(range, graph->input_gradient);
  static const int f[] = {PEN_PROGRAM_F}, fi[] = {PEN_PROGRAM_F, PEN_PROGRAM_I}, iw[] = {PEN_PROGRAM_I, PEN_PROGRAM_W},
                   w[] = {PEN_PROGRAM_W};
  count_live(graph, range, PEN_PROGRAM_F, NULL, 0, iw, 2, &blocks);
  count_live(graph, range, PEN_PROGRAM_I, f, 1, w, 1, &blocks);
  count_live(graph, range, PEN_PROGRAM_W, fi, 2, NULL, 0, &blocks);
  count_live(graph, range, PEN_PROGRAM_B, f, 1, NULL, 0, &blocks);
  return blocks;
}
