/* kept_buffers.c: the values of a stage that F or I keeps for a later program. */
#include "gen/layout/kept_buffers.h"
#include "gen/base/arena.h"
#include "gen/base/sort.h"
#include "gen/layout/buffer_intervals.h"
#include "gen/model/op_signature.h"

static bool key_precedes(const struct pen_keyed *a, const struct pen_keyed *b) {
  return a->key != b->key ? a->key < b->key : a->index < b->index;
}

/* The storages of a base in the order of their first use in a program. */
static struct pen_keyed *by_first_use(const struct pen_buffer_filling *f, int base, int program,
                                      size_t *count) {
  struct pen_keyed *list = pen_new(f->graph->value_count + 1, sizeof *list);
  *count = 0;
  for (uint32_t v = 0; v < f->graph->value_count; v++)
    if (f->graph->value[v].storage == v && f->graph->value[v].base == base && pen_is_used(f, v))
      list[(*count)++] =
          (struct pen_keyed){f->range[program][v].used ? f->range[program][v].first : 0, v};
  pen_sort(list, *count);
  return list;
}

/* The storages that are kept for I, in descending order of their last use there. */
static struct pen_keyed *by_last_use(const struct pen_buffer_filling *f, size_t *count) {
  struct pen_keyed *list = by_first_use(f, PEN_BASE_SAVED_I, PEN_PROGRAM_F, count);
  for (size_t i = 0; i < *count; i++)
    list[i].key = UINT32_MAX - f->range[PEN_PROGRAM_I][list[i].index].last;
  pen_sort(list, *count);
  return list;
}

/* Which values for I stay in SAVED_W, so that what I makes for W can use their bytes. With all of
 * them in a row, the first to end highest, what I makes is placed as high as it fits; those at or
 * above the lowest of these stay, but a value that would keep more than a quarter of its size
 * unused does not lower it. */
static bool *find_stays(const struct pen_buffer_filling *f) {
  bool *stays = pen_new(f->graph->value_count + 1, sizeof *stays);
  size_t made_count, for_i_count;
  const struct pen_keyed *made = by_first_use(f, PEN_BASE_KEPT_W, PEN_PROGRAM_I, &made_count),
                         *ending = by_last_use(f, &for_i_count);
  struct pen_interval_tree region = {0};
  uint64_t *end = pen_new(for_i_count + 1, sizeof *end);
  for (size_t i = 0; i < for_i_count; i++) {
    struct pen_interval t = pen_interval_of(f, ending[i].index);
    t.offset = region.bytes;
    pen_interval_tree_add(&region, &t);
    end[i] = region.bytes;
  }
  uint64_t low = region.bytes; /* of what I makes */
  for (size_t i = 0; i < made_count; i++) {
    struct pen_interval t = pen_interval_of(f, made[i].index);
    if (!pen_interval_tree_fit(&region, &t) || t.offset + t.bytes + t.bytes / 4 < low) continue;
    pen_interval_tree_add(&region, &t);
    if (t.offset < low) low = t.offset;
  }
  for (size_t i = 0; i < for_i_count; i++) stays[ending[i].index] = end[i] > low;
  pen_interval_tree_free(&region);
  return stays;
}

/* A value for I whose bytes the gradient of the stage's input uses; it is in the gradient's buffer.
 * The smallest that is dead by then and at most a quarter larger; PEN_NONE: none. */
static uint32_t find_before_gradient(const struct pen_buffer_filling *f, const bool *stays) {
  uint32_t gradient = f->graph->input_gradient, best = PEN_NONE;
  if (gradient == PEN_NONE) return PEN_NONE;
  uint64_t bytes = pen_aligned(f->graph->value[gradient].bytes), least = bytes + bytes / 4 + 1;
  size_t count;
  const struct pen_keyed *ending = by_first_use(f, PEN_BASE_SAVED_I, PEN_PROGRAM_F, &count);
  for (size_t k = count; k-- > 0;) {
    uint32_t v = ending[k].index;
    uint64_t has = pen_aligned(f->graph->value[v].bytes);
    bool dead = !stays[v] && has >= bytes && has < least;
    for (int p = PEN_PROGRAM_I; dead && p < PEN_PROGRAMS; p++) {
      const struct pen_op_range *made_in = &f->range[p][gradient], *used_in = &f->range[p][v];
      if (p != PEN_PROGRAM_W && made_in->used)
        dead = used_in->used && used_in->last < made_in->first;
    }
    if (!dead) continue;
    best = v;
    least = has;
  }
  return best;
}

/* The storages that another block of the model reads: [value]. */
static bool *find_passed_on(const struct pen_graph *graph) {
  bool *passed = pen_new(graph->value_count + 1, sizeof *passed);
  for (size_t i = 0; i < graph->program[PEN_PROGRAM_F].count; i++) {
    const struct pen_op *op = &graph->program[PEN_PROGRAM_F].op[i];
    uint32_t inputs = pen_signature_of(op->kind)->input_count, made = op->operand[inputs];
    for (uint32_t k = 0; made != PEN_NONE && k < inputs; k++)
      if (op->operand[k] != PEN_NONE &&
          graph->value[op->operand[k]].block != graph->value[made].block)
        passed[graph->value[op->operand[k]].storage] = true;
  }
  return passed;
}

/* What is in SAVED_W, in the order in which F makes it. */
static struct pen_saved *list_saved(const struct pen_buffer_filling *f, const bool *stays,
                                    size_t *count) {
  uint32_t *layer = pen_new(f->graph->value_count + 1, sizeof *layer);
  pen_number_layers(f->graph, layer);
  const bool *passed = find_passed_on(f->graph);
  size_t counts[2];
  const struct pen_keyed *kept[2] = {by_first_use(f, PEN_BASE_SAVED_W, PEN_PROGRAM_F, &counts[0]),
                                     by_first_use(f, PEN_BASE_SAVED_I, PEN_PROGRAM_F, &counts[1])};
  struct pen_saved *saved = pen_new(counts[0] + counts[1] + 1, sizeof *saved);
  *count = 0;
  for (size_t a = 0, b = 0; a < counts[0] || b < counts[1];) { /* merges the lists */
    bool first = b == counts[1] || (a < counts[0] && key_precedes(&kept[0][a], &kept[1][b]));
    uint32_t v = first ? kept[0][a++].index : kept[1][b++].index;
    uint32_t block = f->graph->value[v].block - pen_first_block(f->graph);
    if (first || stays[v])
      saved[(*count)++] =
          (struct pen_saved){v, layer[v], block, passed[v], pen_aligned(f->graph->value[v].bytes)};
  }
  return saved;
}

/* Places a value after the others of its buffer; that of the gradient has none. */
static void place_after(struct pen_buffer_filling *f, int base, uint32_t value) {
  struct pen_interval t = pen_interval_of(f, value);
  t.offset = base == PEN_BASE_INPUT_GRADIENT ? 0 : f->tree[base].bytes;
  pen_place_value(f, base, value, &t);
}

void pen_place_kept(struct pen_buffer_filling *f, const struct pen_buffer_split *split) {
  const bool *stays = find_stays(f);
  uint32_t before_gradient = find_before_gradient(f, stays);
  f->buffers->gradient_from_f = before_gradient != PEN_NONE;
  size_t count;
  const struct pen_saved *saved = list_saved(f, stays, &count);
  const uint8_t *piece = pen_split_saved(saved, count, split);
  uint8_t *piece_of = pen_new(f->graph->value_count + 1, sizeof *piece_of);
  for (size_t i = 0; i < count; i++) {
    piece_of[saved[i].value] = piece[i];
    if (!stays[saved[i].value]) place_after(f, pen_piece_base(piece[i]), saved[i].value);
  }
  const struct pen_keyed *ending = by_last_use(f, &count);
  for (size_t i = 0; i < count; i++)
    if (stays[ending[i].index])
      place_after(f, pen_piece_base(piece_of[ending[i].index]), ending[i].index);
  const struct pen_keyed *for_i = by_first_use(f, PEN_BASE_SAVED_I, PEN_PROGRAM_F, &count);
  for (size_t i = 0; i < count; i++)
    if (!stays[for_i[i].index])
      place_after(f, for_i[i].index == before_gradient ? PEN_BASE_INPUT_GRADIENT : PEN_BASE_SAVED_I,
                  for_i[i].index);
  const struct pen_keyed *made = by_first_use(f, PEN_BASE_KEPT_W, PEN_PROGRAM_I, &count);
  for (size_t i = 0; i < count; i++) {
    struct pen_interval t = pen_interval_of(f, made[i].index);
    uint32_t within = PEN_PIECES;
    while (within && !pen_interval_tree_fit(&f->tree[pen_piece_base(within - 1)], &t)) within--;
    if (!within) t.offset = f->tree[PEN_BASE_KEPT_W].bytes;
    pen_place_value(f, within ? pen_piece_base(within - 1) : PEN_BASE_KEPT_W, made[i].index, &t);
  }
}

struct pen_saved *pen_saved_values_of(const struct pen_partition *partition,
                                      const struct pen_graph *graph, size_t *count) {
  struct pen_buffer_filling filling = pen_start_filling(partition, graph, NULL);
  return list_saved(&filling, find_stays(&filling), count);
}
