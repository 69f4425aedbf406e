/* block.c: within one stage: where each value lies in its base's block, and how many bytes are live
 * at each op.
 *
 * A block is given to one stage and microbatch for whole rows, but its values fill it one by one
 * while F runs and leave it one by one while I, W or B runs. What is free of it meanwhile serves
 * others:
 *
 *   kept values  stand one behind the other in the order in which F makes them, so that what is not
 * yet made, and what is dead already, is one range at the block's end: layers die in reverse.
 *   KEPT_W       (made by I for W) takes the place of what I alone needed. Such values are kept to
 * W then, in name (SAVED_W): their bytes are. They lie behind what W needs, the first dead highest,
 * so that what dies one by one makes one range. gradient     of the stage's input: likewise takes
 * the place of a value for I, which then lies in its block. pieces       SAVED_W may be cut into
 * pieces that are placed one by one (cut.c). scratch      goes, the largest first, as high as it
 * fits between the ops that use it, into the blocks that the row holds anyway; what fits nowhere is
 * packed into the row's scratch block.
 *
 * This is offset packing (pack.c) of a program's ops, with the blocks as ranges that are there
 * already. */
#include <string.h>

#include "gen/families/families.h"
#include "gen/layout/layout.h"
#include "gen/model/op_signature.h"
#include "gen/layout/interval_tree.h"
#include "gen/base/arena.h"
#include "gen/base/sort.h"
#include "gen/partition/partition.h"
#include "gen/partition/training.h"
#include "runtime/plan/plan.h"

enum { SCRATCH_STEPS = 50000 }; /* of packing one program's scratch */

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

/* ---- blocks and who is in them ---- */

static const struct pen_live_range always = {0, UINT32_MAX}, never = {1, 0};

/* A stage at work. */
struct filling {
  const struct pen_partition *partition;
  const struct pen_graph *graph;
  struct range *range[PEN_PROGRAMS];
  struct pen_stage_buffers *blocks;
  struct pen_interval_tree block[PEN_BASES]; /* of one base each, while it fills */
};

/* The part that every value belongs to, from 0: values made one after another under one prefix.
 * Returns how many parts there are. */
static uint32_t number_parts(const struct pen_graph *graph, uint32_t *part) {
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

uint32_t pen_parts_of(const struct pen_graph *graph) { return number_parts(graph, NULL); }

static bool used_anywhere(const struct filling *f, uint32_t value) {
  for (size_t p = 0; p < PEN_PROGRAMS; p++)
    if (f->range[p][value].used) return true;
  return false;
}

static struct pen_live_range from_first(const struct range *r) {
  return r->used ? (struct pen_live_range){r->first, UINT32_MAX} : always;
}
static struct pen_live_range to_last(const struct range *r) {
  return r->used ? (struct pen_live_range){0, r->last} : always;
}

/* Does what a stage has from the one before (or, backward, from the one behind it) lie in a slot of
 * its own? Else the neighbour, on the same rank, may still need it. */
static bool comes_by_message(const struct pen_partition *partition, const struct pen_graph *graph,
                             bool backward) {
  uint32_t from = backward ? graph->stage + 1 : graph->stage - 1;
  return from < graph->stage_count && partition->rank_of[graph->stage] != partition->rank_of[from];
}

/* When a value holds its bytes, by its base as derive settled it. */
static struct pen_interval tenant_of(const struct filling *f, uint32_t value) {
  struct pen_interval t = {.bytes = pen_aligned(f->graph->value[value].bytes)};
  const struct range *r[PEN_PROGRAMS];
  for (int p = 0; p < PEN_PROGRAMS; p++) {
    r[p] = &f->range[p][value];
    t.stay[p] = always;
  }
  switch (f->graph->value[value].base) {
    case PEN_BASE_SAVED_I:
    case PEN_BASE_SAVED_W:
      t.stay[PEN_PROGRAM_F] = from_first(r[PEN_PROGRAM_F]);
      t.stay[PEN_PROGRAM_B] = to_last(r[PEN_PROGRAM_B]);
      if (f->graph->value[value].base == PEN_BASE_SAVED_W)
        t.stay[PEN_PROGRAM_W] = to_last(r[PEN_PROGRAM_W]);
      else
        t.stay[PEN_PROGRAM_I] = to_last(r[PEN_PROGRAM_I]), t.stay[PEN_PROGRAM_W] = never;
      break;
    case PEN_BASE_KEPT_W:
      t.stay[PEN_PROGRAM_F] = t.stay[PEN_PROGRAM_B] = never;
      t.stay[PEN_PROGRAM_I] = from_first(r[PEN_PROGRAM_I]);
      t.stay[PEN_PROGRAM_W] = to_last(r[PEN_PROGRAM_W]);
      break;
    case PEN_BASE_OUTPUT_GRADIENT:
      t.stay[PEN_PROGRAM_B] = to_last(r[PEN_PROGRAM_B]);
      if (comes_by_message(f->partition, f->graph, true))
        t.stay[PEN_PROGRAM_W] = to_last(r[PEN_PROGRAM_W]);
      if (!r[PEN_PROGRAM_W]->used) t.stay[PEN_PROGRAM_I] = to_last(r[PEN_PROGRAM_I]);
      break;
    case PEN_BASE_INPUT:
      if (!comes_by_message(f->partition, f->graph, false)) break;
      t.stay[PEN_PROGRAM_B] = to_last(r[PEN_PROGRAM_B]);
      t.stay[PEN_PROGRAM_W] = to_last(r[PEN_PROGRAM_W]);
      if (!r[PEN_PROGRAM_W]->used) t.stay[PEN_PROGRAM_I] = to_last(r[PEN_PROGRAM_I]);
      if (!r[PEN_PROGRAM_W]->used && !r[PEN_PROGRAM_I]->used)
        t.stay[PEN_PROGRAM_F] = to_last(r[PEN_PROGRAM_F]);
      break;
    case PEN_BASE_OUTPUT: t.stay[PEN_PROGRAM_F] = from_first(r[PEN_PROGRAM_F]); break;
    case PEN_BASE_INPUT_GRADIENT:
      t.stay[PEN_PROGRAM_I] = from_first(r[PEN_PROGRAM_I]);
      t.stay[PEN_PROGRAM_B] = from_first(r[PEN_PROGRAM_B]);
      break;
    case PEN_BASE_SCRATCH:
      for (int p = 0; p < PEN_PROGRAMS; p++)
        t.stay[p] = r[p]->used ? (struct pen_live_range){r[p]->first, r[p]->last} : never;
      break;
    default: break;
  }
  return t;
}

static void move_in(struct filling *f, int base, uint32_t value,
                    const struct pen_interval *tenant) {
  pen_interval_tree_add(&f->block[base], tenant);
  f->blocks->base[value] = (uint8_t)base;
  f->blocks->offset[value] = tenant->offset;
}

/* ---- kept values ---- */

static bool comes_before(const struct pen_keyed *a, const struct pen_keyed *b) {
  return a->key != b->key ? a->key < b->key : a->index < b->index;
}

/* The storages of a base in the order of their first use in a program. */
static struct pen_keyed *by_birth(const struct filling *f, int base, int program, size_t *count) {
  struct pen_keyed *list = pen_new(f->graph->value_count + 1, sizeof *list);
  *count = 0;
  for (uint32_t v = 0; v < f->graph->value_count; v++)
    if (f->graph->value[v].storage == v && f->graph->value[v].base == base && used_anywhere(f, v))
      list[(*count)++] =
          (struct pen_keyed){f->range[program][v].used ? f->range[program][v].first : 0, v};
  pen_sort(list, *count);
  return list;
}

/* The storages that are kept for I, those that it needs longest first. */
static struct pen_keyed *by_death(const struct filling *f, size_t *count) {
  struct pen_keyed *list = by_birth(f, PEN_BASE_SAVED_I, PEN_PROGRAM_F, count);
  for (size_t i = 0; i < *count; i++)
    list[i].key = UINT32_MAX - f->range[PEN_PROGRAM_I][list[i].index].last;
  pen_sort(list, *count);
  return list;
}

/* Which values for I stay until W, so that what I makes for W may take their bytes: those that do
 * so when all lie one behind the other, the first dead highest, and what I makes is put as high as
 * it fits, unless that would keep more than a quarter of it for nothing. */
static bool *find_stays(const struct filling *f) {
  bool *stays = pen_new(f->graph->value_count + 1, sizeof *stays);
  size_t made_count, dying_count;
  const struct pen_keyed *made = by_birth(f, PEN_BASE_KEPT_W, PEN_PROGRAM_I, &made_count),
                         *dying = by_death(f, &dying_count);
  struct pen_interval_tree region = {0};
  uint64_t *end = pen_new(dying_count + 1, sizeof *end);
  for (size_t i = 0; i < dying_count; i++) {
    struct pen_interval t = tenant_of(f, dying[i].index);
    t.offset = region.bytes;
    pen_interval_tree_add(&region, &t);
    end[i] = region.bytes;
  }
  uint64_t low = region.bytes; /* of what I makes */
  for (size_t i = 0; i < made_count; i++) {
    struct pen_interval t = tenant_of(f, made[i].index);
    if (!pen_interval_tree_fit(&region, &t) || t.offset + t.bytes + t.bytes / 4 < low) continue;
    pen_interval_tree_add(&region, &t);
    if (t.offset < low) low = t.offset;
  }
  for (size_t i = 0; i < dying_count; i++) stays[dying[i].index] = end[i] > low;
  pen_interval_tree_free(&region);
  return stays;
}

/* A value for I whose bytes the gradient of the stage's input takes: it lies in the gradient's
 * block, which is there from F on. The least that is dead by then, large enough and not much
 * larger; PEN_NONE: none. */
static uint32_t find_before_gradient(const struct filling *f, const bool *stays) {
  uint32_t gradient = f->graph->input_gradient, best = PEN_NONE;
  if (gradient == PEN_NONE) return PEN_NONE;
  uint64_t bytes = pen_aligned(f->graph->value[gradient].bytes), least = bytes + bytes / 4 + 1;
  size_t count;
  const struct pen_keyed *dying = by_birth(f, PEN_BASE_SAVED_I, PEN_PROGRAM_F, &count);
  for (size_t k = count; k-- > 0;) {
    uint32_t v = dying[k].index;
    uint64_t has = pen_aligned(f->graph->value[v].bytes);
    bool dead = !stays[v] && has >= bytes && has < least;
    for (int p = PEN_PROGRAM_I; dead && p < PEN_PROGRAMS; p++) {
      const struct range *made_in = &f->range[p][gradient], *used_in = &f->range[p][v];
      if (p != PEN_PROGRAM_W && made_in->used)
        dead = used_in->used && used_in->last < made_in->first;
    }
    if (!dead) continue;
    best = v;
    least = has;
  }
  return best;
}

/* What meets a neighbour: one value a block. */
static void place_boundaries(struct filling *f) {
  static const uint8_t boundary[] = {PEN_BASE_INPUT, PEN_BASE_OUTPUT, PEN_BASE_OUTPUT_GRADIENT,
                                     PEN_BASE_INPUT_GRADIENT};
  for (uint32_t v = 0; v < f->graph->value_count; v++)
    for (size_t i = 0; i < sizeof boundary; i++)
      if (f->graph->value[v].storage == v && f->graph->value[v].base == boundary[i] &&
          used_anywhere(f, v)) {
        struct pen_interval t = tenant_of(f, v);
        move_in(f, boundary[i], v, &t);
      }
}

/* Which storages a later block of the stage reads: [value]. */
static bool *handed_on(const struct pen_graph *graph) {
  bool *handed = pen_new(graph->value_count + 1, sizeof *handed);
  for (size_t i = 0; i < graph->program[PEN_PROGRAM_F].count; i++) {
    const struct pen_op *op = &graph->program[PEN_PROGRAM_F].op[i];
    uint32_t inputs = pen_signature_of(op->kind)->input_count, made = op->operand[inputs];
    for (uint32_t k = 0; made != PEN_NONE && k < inputs; k++)
      if (op->operand[k] != PEN_NONE &&
          graph->value[op->operand[k]].block != graph->value[made].block)
        handed[graph->value[op->operand[k]].storage] = true;
  }
  return handed;
}

static uint32_t first_block(const struct pen_graph *graph) {
  return graph->stages->span[graph->stage].first_block;
}

/* What is kept until W, in name or in fact, in the order in which F makes it. */
static struct pen_saved *list_saved(const struct filling *f, const bool *stays, size_t *count) {
  uint32_t *part = pen_new(f->graph->value_count + 1, sizeof *part);
  number_parts(f->graph, part);
  const bool *handed = handed_on(f->graph);
  size_t counts[2];
  const struct pen_keyed *kept[2] = {by_birth(f, PEN_BASE_SAVED_W, PEN_PROGRAM_F, &counts[0]),
                                     by_birth(f, PEN_BASE_SAVED_I, PEN_PROGRAM_F, &counts[1])};
  struct pen_saved *saved = pen_new(counts[0] + counts[1] + 1, sizeof *saved);
  *count = 0;
  for (size_t a = 0, b = 0; a < counts[0] || b < counts[1];) { /* both lists in one order */
    bool first = b == counts[1] || (a < counts[0] && comes_before(&kept[0][a], &kept[1][b]));
    uint32_t v = first ? kept[0][a++].index : kept[1][b++].index;
    uint32_t block = f->graph->value[v].block - first_block(f->graph);
    if (first || stays[v])
      saved[(*count)++] =
          (struct pen_saved){v, part[v], block, handed[v], pen_aligned(f->graph->value[v].bytes)};
  }
  return saved;
}

/* Puts a value behind what its block has already; the gradient's has nothing. */
static void append(struct filling *f, int base, uint32_t value) {
  struct pen_interval t = tenant_of(f, value);
  t.offset = base == PEN_BASE_INPUT_GRADIENT ? 0 : f->block[base].bytes;
  move_in(f, base, value, &t);
}

static void place_kept(struct filling *f, const struct pen_cutting *cutting) {
  const bool *stays = find_stays(f);
  uint32_t before_gradient = find_before_gradient(f, stays);
  f->blocks->gradient_from_f = before_gradient != PEN_NONE;
  size_t count;
  const struct pen_saved *saved = list_saved(f, stays, &count);
  const uint8_t *piece = pen_cut(saved, count, cutting);
  uint8_t *piece_of = pen_new(f->graph->value_count + 1, sizeof *piece_of);
  for (size_t i = 0; i < count; i++) {
    piece_of[saved[i].value] = piece[i];
    if (!stays[saved[i].value]) append(f, pen_piece_base(piece[i]), saved[i].value);
  }
  const struct pen_keyed *dying = by_death(f, &count);
  for (size_t i = 0; i < count; i++)
    if (stays[dying[i].index]) append(f, pen_piece_base(piece_of[dying[i].index]), dying[i].index);
  const struct pen_keyed *for_i = by_birth(f, PEN_BASE_SAVED_I, PEN_PROGRAM_F, &count);
  for (size_t i = 0; i < count; i++)
    if (!stays[for_i[i].index])
      append(f, for_i[i].index == before_gradient ? PEN_BASE_INPUT_GRADIENT : PEN_BASE_SAVED_I,
             for_i[i].index);
  const struct pen_keyed *made = by_birth(f, PEN_BASE_KEPT_W, PEN_PROGRAM_I, &count);
  for (size_t i = 0; i < count; i++) {
    struct pen_interval t = tenant_of(f, made[i].index);
    uint32_t within = PEN_PIECES;
    while (within && !pen_interval_tree_fit(&f->block[pen_piece_base(within - 1)], &t)) within--;
    if (!within) t.offset = f->block[PEN_BASE_KEPT_W].bytes;
    move_in(f, within ? pen_piece_base(within - 1) : PEN_BASE_KEPT_W, made[i].index, &t);
  }
}

/* ---- scratch ---- */

/* The blocks of its own stage that a row holds in full while a program runs, beside SAVED_W's and
 * scratch; 0: no more. What is not there any more (an input that F alone reads, while I runs) stays
 * taken: tenant_of. */
static const uint8_t at_hand[PEN_PROGRAMS][6] = {
    [PEN_PROGRAM_F] = {PEN_BASE_SAVED_I, PEN_BASE_OUTPUT, PEN_BASE_INPUT},
    [PEN_PROGRAM_I] = {PEN_BASE_SAVED_I, PEN_BASE_KEPT_W, PEN_BASE_INPUT_GRADIENT,
                       PEN_BASE_OUTPUT_GRADIENT, PEN_BASE_INPUT},
    [PEN_PROGRAM_W] = {PEN_BASE_KEPT_W, PEN_BASE_OUTPUT_GRADIENT, PEN_BASE_INPUT},
    [PEN_PROGRAM_B] = {PEN_BASE_SAVED_I, PEN_BASE_INPUT_GRADIENT, PEN_BASE_OUTPUT_GRADIENT,
                       PEN_BASE_INPUT},
};

/* Finds room for scratch in a block that the row holds anyway; PEN_BASE_SCRATCH: there is none. */
static int lodge(const struct filling *f, int program, struct pen_interval *tenant) {
  for (uint32_t piece = PEN_PIECES; piece-- > 0;)
    if (pen_interval_tree_fit(&f->block[pen_piece_base(piece)], tenant))
      return pen_piece_base(piece);
  for (const uint8_t *base = at_hand[program]; *base; base++)
    if (pen_interval_tree_fit(&f->block[*base], tenant)) return *base;
  return PEN_BASE_SCRATCH;
}

/* Places the scratch of one program; the block's size goes to blocks->scratch. */
static void place_scratch(struct filling *f, int program) {
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
    struct pen_interval t = tenant_of(f, v);
    int base = lodge(f, program, &t);
    if (base != PEN_BASE_SCRATCH) {
      move_in(f, base, v, &t);
      continue;
    }
    owner[left] = v;
    rectangle[left++] = (struct pen_rectangle){
        .bytes = t.bytes, .first = f->range[program][v].first, .last = f->range[program][v].last};
  }
  f->blocks->scratch[program] = pen_pack(rectangle, 0, left, 0, UINT64_MAX, 0, SCRATCH_STEPS);
  for (size_t i = 0; i < left; i++) f->blocks->offset[owner[i]] = rectangle[i].offset;
}

/* The last program of F, I, W in which a boundary value is used; PEN_PROGRAM_F when never. */
static int last_program(struct range *const range[PEN_PROGRAMS], uint32_t value) {
  if (value == PEN_NONE) return PEN_PROGRAM_F;
  for (int p = PEN_PROGRAM_W; p > PEN_PROGRAM_F; p--)
    if (range[p][value].used) return p;
  return PEN_PROGRAM_F;
}

/* Whether a storage is alive before, or after, a program of a history. */
static bool used_in(struct range *const range[PEN_PROGRAMS], uint32_t value, const int *program,
                    size_t count) {
  for (size_t i = 0; i < count; i++)
    if (range[program[i]][value].used) return true;
  return false;
}

/* Live bytes of one program run: a storage is born at its first use unless an earlier program used
 * it (or a message brought it), and dies after its last use unless a later program (or a message
 * that takes it away) needs it. */
static void count_live(const struct pen_graph *graph, struct range *const range[PEN_PROGRAMS],
                       int program, const int *earlier, size_t earlier_count, const int *later,
                       size_t later_count, struct pen_stage_buffers *blocks) {
  size_t ops = graph->program[program].count;
  int64_t *change = pen_new(ops + 2, sizeof *change);
  for (uint32_t v = 0; v < graph->value_count; v++) {
    const struct pen_value *value = &graph->value[v];
    if (value->storage != v || !range[program][v].used || value->role != PEN_ROLE_ACTIVATION)
      continue;
    int64_t bytes = (int64_t)pen_aligned(value->bytes);
    bool brought = v == graph->input || v == graph->output_gradient;
    bool taken = v == graph->output || v == graph->input_gradient;
    if (!brought && !used_in(range, v, earlier, earlier_count))
      change[range[program][v].first] += bytes;
    if (!taken && !used_in(range, v, later, later_count))
      change[range[program][v].last + 1] -= bytes;
  }
  int64_t live = 0;
  for (size_t i = 0; i < ops; i++) {
    live += change[i];
    if (live > blocks->peak[program]) blocks->peak[program] = live;
  }
  blocks->remains[program] = live + (ops ? change[ops] : 0);
}

static struct filling start(const struct pen_partition *partition, const struct pen_graph *graph,
                            struct pen_stage_buffers *blocks) {
  struct filling filling = {.partition = partition, .graph = graph, .blocks = blocks};
  for (int p = 0; p < PEN_PROGRAMS; p++) filling.range[p] = ranges_in(graph, p);
  return filling;
}

struct pen_saved *pen_saved_values_of(const struct pen_partition *partition,
                                      const struct pen_graph *graph, size_t *count) {
  struct filling filling = start(partition, graph, NULL);
  return list_saved(&filling, find_stays(&filling), count);
}

static void place_unsharded(struct filling *f) {
  uint64_t *bytes = &f->block[PEN_BASE_UNSHARDED].bytes;
  for (uint32_t v = 0; v < f->graph->value_count; v++) {
    if (!used_anywhere(f, v) || !pen_value_is_unsharded(f->partition, f->graph, v)) continue;
    f->blocks->base[v] = PEN_BASE_UNSHARDED;
    f->blocks->offset[v] = *bytes;
    *bytes += pen_aligned(f->graph->value[v].bytes);
  }
}

struct pen_stage_buffers pen_stage_buffers_of(const struct pen_partition *partition,
                                              const struct pen_graph *graph,
                                              const struct pen_cutting *cutting) {
  struct pen_stage_buffers blocks = {.offset = pen_new(graph->value_count + 1, sizeof(uint64_t)),
                                     .base = pen_new(graph->value_count + 1, sizeof(uint8_t))};
  struct filling filling = start(partition, graph, &blocks);
  for (uint32_t v = 0; v < graph->value_count; v++) blocks.base[v] = graph->value[v].base;
  place_boundaries(&filling);
  place_kept(&filling, cutting);
  for (int p = 0; p < PEN_PROGRAMS; p++)
    if (!cutting->runs || cutting->runs[p]) place_scratch(&filling, p);
  place_unsharded(&filling);
  for (int b = 0; b < PEN_BASES; b++) {
    blocks.bytes[b] = filling.block[b].bytes;
    pen_interval_tree_free(&filling.block[b]);
  }
  for (uint32_t v = 0; v < graph->value_count; v++) {
    blocks.offset[v] = blocks.offset[graph->value[v].storage];
    blocks.base[v] = blocks.base[graph->value[v].storage];
  }
  blocks.input_last = last_program(filling.range, graph->input);
  blocks.output_last = last_program(filling.range, graph->output);
  blocks.output_gradient_last = last_program(filling.range, graph->output_gradient);
  blocks.input_gradient_last = last_program(filling.range, graph->input_gradient);
  static const int f[] = {PEN_PROGRAM_F}, fi[] = {PEN_PROGRAM_F, PEN_PROGRAM_I},
                   iw[] = {PEN_PROGRAM_I, PEN_PROGRAM_W}, w[] = {PEN_PROGRAM_W};
  count_live(graph, filling.range, PEN_PROGRAM_F, NULL, 0, iw, 2, &blocks);
  count_live(graph, filling.range, PEN_PROGRAM_I, f, 1, w, 1, &blocks);
  count_live(graph, filling.range, PEN_PROGRAM_W, fi, 2, NULL, 0, &blocks);
  count_live(graph, filling.range, PEN_PROGRAM_B, f, 1, NULL, 0, &blocks);
  return blocks;
}

static bool lists_alike(const struct pen_op_list *a, const struct pen_op_list *b) {
  if (a->count != b->count) return false;
  for (size_t i = 0; i < a->count; i++)
    if (a->op[i].kind != b->op[i].kind || a->op[i].workspace != b->op[i].workspace ||
        memcmp(a->op[i].operand, b->op[i].operand, sizeof a->op[i].operand))
      return false;
  return true;
}

bool pen_graphs_alike(const struct pen_partition *partition, const struct pen_graph *a,
                      const struct pen_graph *b) {
  if (a->value_count != b->value_count || a->input != b->input || a->output != b->output ||
      a->training != b->training ||
      comes_by_message(partition, a, false) != comes_by_message(partition, b, false) ||
      comes_by_message(partition, a, true) != comes_by_message(partition, b, true) ||
      a->output_gradient != b->output_gradient || a->input_gradient != b->input_gradient)
    return false;
  for (size_t v = 0; v < a->value_count; v++) {
    const struct pen_value *x = &a->value[v], *y = &b->value[v];
    bool parts = v == 0 || !strcmp(x->prefix, x[-1].prefix) == !strcmp(y->prefix, y[-1].prefix);
    parts = parts && x->block - first_block(a) == y->block - first_block(b);
    if (x->bytes != y->bytes || x->base != y->base || x->storage != y->storage ||
        x->role != y->role || !parts)
      return false;
  }
  for (size_t p = 0; p < PEN_PROGRAMS; p++)
    if (!lists_alike(&a->program[p], &b->program[p])) return false;
  return true;
}
