/* verify_trace.c: runs one program's ops over one frame and checks them against each other: every
 * read finds its tensor whole, operands overlap only where the signature lets them, every address
 * is in the part of the arena where it belongs. What is left is the program seen from outside: what
 * it reads, what its bytes hold afterwards, what it adds to.
 *
 * A program runs in as many frames as there are microbatches. All that is checked here depends on
 * where its operands lie relative to each other. Take the blocks of operands that count from one
 * base: if every two of them are apart in both of two frames, or are at the same distance in both,
 * then operands overlap in the one as in the other. So a program is traced in the first such frame,
 * and what was found moves with the blocks to the others. */
#include <string.h>

#include "gen/model/op_signature.h"
#include "gen/verify/internal.h"
#include "gen/base/arena.h"
#include "runtime/plan/plan.h"

enum { MOULDS_MAX = 16 }; /* traces of one program that are kept to be moved */

void pen_tracer_start(struct pen_tracer *tracer, const struct pen_rank_context *bench) {
  tracer->bench = bench;
  tracer->extent_count = tracer->weight_count = 0;
  tracer->run = 0;
  tracer->moulds = pen_new((size_t)bench->tables->program_count + 1, sizeof *tracer->moulds);
  tracer->written = pen_new((size_t)bench->tables->tensor_count + 1, sizeof(uint32_t));
  tracer->read = pen_new((size_t)bench->tables->tensor_count + 1, sizeof(uint32_t));
}

/* ---- the map of written bytes ---- */

/* The first extent of the map that ends behind `offset`. */
static size_t map_find(const struct pen_tracer *t, uint64_t offset) {
  size_t low = 0, high = t->map_count;
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (t->map[middle].past <= offset)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

/* Makes an extent hold its tensor; what lay there is cut. */
static void map_write(struct pen_tracer *t, struct pen_extent made) {
  uint64_t first = made.first, past = made.past;
  size_t from = map_find(t, first), to = from;
  struct pen_extent piece[3];
  size_t pieces = 0;
  while (to < t->map_count && t->map[to].first < past) to++;
  if (from < to && t->map[from].first < first) {
    piece[pieces] = t->map[from];
    piece[pieces++].past = first;
  }
  piece[pieces++] = made;
  if (from < to && t->map[to - 1].past > past) {
    piece[pieces] = t->map[to - 1];
    piece[pieces++].first = past;
  }
  t->map = pen_grow(t->map, &t->map_capacity, t->map_count + 3, sizeof *t->map);
  memmove(t->map + from + pieces, t->map + to, (t->map_count - to) * sizeof *t->map);
  memcpy(t->map + from, piece, pieces * sizeof *piece);
  t->map_count += pieces - (to - from);
}

/* ---- one op ---- */

/* One operand with its place. */
struct seat {
  uint64_t first, past;
  uint32_t tensor;
  bool local; /* within the messages' window or the activation part */
};

/* The op at hand. */
struct step {
  struct pen_tracer *tracer;
  const struct pen_frame *frame;
  const struct pen_op *op;
  const struct pen_signature *signature;
  uint32_t row, op_index;
  bool starts; /* an op that makes constants */
};

static const char *name_of(const struct step *s, uint32_t tensor) {
  return tensor == PEN_NONE ? "a workspace" : s->tracer->bench->tables->tensors[tensor].name;
}

static uint8_t base_of(const struct step *s, uint32_t tensor) {
  return s->tracer->bench->tables->tensors[tensor].base;
}

#define WRONG(s, format, ...)                                                                \
  pen_problem_note((s)->tracer->bench->checked->problem, (s)->tracer->bench->rank, (s)->row, \
                   "op %u (%s) " format, (s)->op_index, (s)->signature->kind, __VA_ARGS__)

/* Finds an operand's bytes and checks that they are where such a tensor may be. */
static bool place(const struct step *s, uint32_t tensor, struct seat *seat) {
  const struct pen_rank_context *b = s->tracer->bench;
  const struct pen_tensor *t = &b->tables->tensors[tensor];
  *seat = (struct seat){.first = s->frame->base[t->base] + t->offset, .tensor = tensor};
  seat->past = seat->first + t->bytes;
  if (t->base == PEN_BASE_PERSISTENT || t->base == PEN_BASE_LOSS) return true;
  seat->local = true;
  bool in_window = b->received[tensor] || seat->first < b->memory->receive_bytes;
  uint64_t first = in_window ? 0 : b->memory->persistent_end;
  uint64_t past = in_window ? b->memory->receive_bytes : b->memory->arena_bytes;
  if (s->starts) return WRONG(s, "uses %s, which is no constant", t->name);
  if (seat->past < seat->first || seat->first < first || seat->past > past)
    return WRONG(s, "has %s at %llu, outside the %s", t->name, (unsigned long long)seat->first,
                 in_window ? "window" : "activation part");
  return true;
}

/* Reads an input: its bytes are all of this program's making, or none is. */
static bool read_input(const struct step *s, const struct seat *seat) {
  struct pen_tracer *t = s->tracer;
  const struct pen_rank_context *b = t->bench;
  if (b->use[seat->tensor] == PEN_USE_GRADIENT)
    return WRONG(s, "reads %s, which is still being added to", name_of(s, seat->tensor));
  if (b->tables->tensors[seat->tensor].base == PEN_BASE_LOSS)
    return WRONG(s, "reads the loss %s", name_of(s, seat->tensor));
  if (!seat->local) return true;
  bool own = t->written[seat->tensor] == t->run;
  uint64_t at = seat->first;
  for (size_t index = map_find(t, seat->first);
       index < t->map_count && t->map[index].first < seat->past; index++) {
    const struct pen_extent *extent = &t->map[index];
    if (!own || extent->tensor != seat->tensor || extent->first > at)
      return WRONG(s, "reads %s, but %s lies on it", name_of(s, seat->tensor),
                   name_of(s, extent->tensor));
    at = extent->past;
  }
  if (own)
    return at >= seat->past ||
           WRONG(s, "reads %s, which is only partly written", name_of(s, seat->tensor));
  if (b->tables->tensors[seat->tensor].base == PEN_BASE_SCRATCH)
    return WRONG(s, "reads %s, which nothing in this program has written",
                 name_of(s, seat->tensor));
  if (t->read[seat->tensor] == t->run) return true;
  t->read[seat->tensor] = t->run;
  t->extent = pen_grow(t->extent, &t->extent_capacity, t->extent_count + 1, sizeof *t->extent);
  t->extent[t->extent_count++] =
      (struct pen_extent){seat->first, seat->past, seat->tensor, base_of(s, seat->tensor)};
  return true;
}

/* Two operands of one op, the first an output or the workspace, must not overlap, but for "@". */
static bool apart(const struct step *s, const struct seat *seat, int first, int second) {
  const struct seat *a = &seat[first], *b = &seat[second];
  if (!a->local || !b->local || a->first >= b->past || b->first >= a->past) return true;
  bool allowed = first < s->signature->operand_count &&
                 s->signature->operand[first].alias == second && a->first == b->first;
  return allowed ||
         WRONG(s, "has %s and %s in the same bytes", name_of(s, a->tensor), name_of(s, b->tensor));
}

static bool write_output(const struct step *s, const struct seat *seat,
                         const struct pen_operand *operand, struct pen_trace *trace) {
  struct pen_tracer *t = s->tracer;
  const struct pen_rank_context *b = t->bench;
  int use = b->use[seat->tensor];
  if (operand->accumulates) {
    if (use != PEN_USE_GRADIENT)
      return WRONG(s, "adds to %s, which is no gradient of a trainable weight",
                   name_of(s, seat->tensor));
    t->weight = pen_grow(t->weight, &t->weight_capacity, t->weight_count + 1, sizeof *t->weight);
    t->weight[t->weight_count++] = b->weight[seat->tensor];
    return true;
  }
  if (use != PEN_USE_LOCAL && !(s->starts && use == PEN_USE_CONSTANT))
    return WRONG(s, "writes %s, which only UPDATE may", name_of(s, seat->tensor));
  if (use == PEN_USE_CONSTANT) return true;
  if (t->written[seat->tensor] == t->run)
    return WRONG(s, "writes %s a second time", name_of(s, seat->tensor));
  t->written[seat->tensor] = t->run;
  if (b->tables->tensors[seat->tensor].base == PEN_BASE_LOSS) {
    trace->loss_offset = seat->first;
    return true;
  }
  if (b->received[seat->tensor])
    return WRONG(s, "writes %s, which comes by message", name_of(s, seat->tensor));
  map_write(t,
            (struct pen_extent){seat->first, seat->past, seat->tensor, base_of(s, seat->tensor)});
  return true;
}

static bool run_op(const struct step *s, struct pen_trace *trace) {
  struct seat seat[PEN_OPERANDS_MAX + 1] = {{0}};
  int count = s->signature->operand_count, inputs = s->signature->input_count;
  for (int k = 0; k < count; k++)
    if (s->op->operand[k] != PEN_NONE && !place(s, s->op->operand[k], &seat[k])) return false;
  if (s->op->workspace != PEN_NONE && !place(s, s->op->workspace, &seat[count])) return false;
  if (s->op->workspace != PEN_NONE &&
      (!seat[count].local || s->tracer->bench->received[s->op->workspace]))
    return WRONG(s, "has %s for its workspace, which is not of the activation part",
                 name_of(s, s->op->workspace));
  for (int k = 0; k < inputs; k++)
    if (s->op->operand[k] != PEN_NONE && !read_input(s, &seat[k])) return false;
  for (int k = inputs; k <= count; k++)
    for (int other = 0; other < k; other++)
      if (!apart(s, seat, k, other)) return false;
  for (int k = inputs; k < count; k++)
    if (s->op->operand[k] != PEN_NONE &&
        !write_output(s, &seat[k], &s->signature->operand[k], trace))
      return false;
  if (s->op->workspace != PEN_NONE)
    map_write(s->tracer, (struct pen_extent){seat[count].first, seat[count].past, PEN_NONE,
                                             base_of(s, s->op->workspace)});
  return true;
}

/* ---- whole programs ---- */

static bool run_ops(struct step *s, uint32_t first, uint32_t count, struct pen_trace *trace) {
  struct pen_tracer *t = s->tracer;
  *trace = (struct pen_trace){.read_first = (uint32_t)t->extent_count,
                              .weight_first = (uint32_t)t->weight_count,
                              .loss_offset = UINT64_MAX};
  t->run++;
  t->map_count = 0;
  for (uint32_t index = 0; index < count; index++) {
    s->op_index = first + index;
    s->op = &t->bench->tables->ops[first + index];
    s->signature = pen_signature_of(s->op->kind);
    if (!run_op(s, trace)) return false;
  }
  trace->read_count = (uint32_t)t->extent_count - trace->read_first;
  trace->weight_count = (uint32_t)t->weight_count - trace->weight_first;
  return true;
}

static bool trace_anew(struct pen_tracer *tracer, uint32_t row, struct pen_trace *trace) {
  const struct pen_rank_program *tables = tracer->bench->tables;
  const struct pen_action *action = &tables->actions[row];
  const struct pen_program *program = &tables->programs[action->program];
  struct step step = {.tracer = tracer, .frame = &tables->frames[action->frame], .row = row};
  if (!run_ops(&step, program->first_op, program->op_count, trace)) return false;
  trace->left_first = (uint32_t)tracer->extent_count;
  tracer->extent = pen_grow(tracer->extent, &tracer->extent_capacity,
                            tracer->extent_count + tracer->map_count, sizeof *tracer->extent);
  for (size_t index = 0; index < tracer->map_count; index++) {
    struct pen_extent extent = tracer->map[index];
    if (extent.tensor != PEN_NONE && tables->tensors[extent.tensor].base == PEN_BASE_SCRATCH)
      extent.tensor = PEN_NONE;
    struct pen_extent *last =
        tracer->extent_count > trace->left_first ? &tracer->extent[tracer->extent_count - 1] : 0;
    bool joins = last && extent.tensor == PEN_NONE && last->tensor == PEN_NONE &&
                 last->past == extent.first && last->base == extent.base;
    if (joins)
      last->past = extent.past;
    else
      tracer->extent[tracer->extent_count++] = extent;
  }
  trace->left_count = (uint32_t)tracer->extent_count - trace->left_first;
  return true;
}

/* ---- the same program in other frames ---- */

enum { BLOCKS_MAX = 2 * PEN_BASES };

/* Notes which bytes, counted from each base, the program's operands take. False when one has an end
 * that no number can say. */
static bool find_blocks(const struct pen_rank_context *b, const struct pen_program *program,
                        struct pen_cached_traces *moulds) {
  struct pen_operand_block block[BLOCKS_MAX];
  for (int n = 0; n < BLOCKS_MAX; n++)
    block[n] = (struct pen_operand_block){UINT64_MAX, 0, (uint8_t)(n / 2), n % 2};
  for (uint32_t index = program->first_op; index < program->first_op + program->op_count; index++) {
    const struct pen_op *op = &b->tables->ops[index];
    for (int k = 0; k <= PEN_OPERANDS_MAX; k++) {
      uint32_t tensor = k < PEN_OPERANDS_MAX ? op->operand[k] : op->workspace;
      if (tensor == PEN_NONE) continue;
      const struct pen_tensor *t = &b->tables->tensors[tensor];
      struct pen_operand_block *own = &block[2 * t->base + b->received[tensor]];
      uint64_t past;
      if (__builtin_add_overflow(t->offset, t->bytes, &past)) return false;
      if (t->offset < own->first) own->first = t->offset;
      if (past > own->past) own->past = past;
    }
  }
  size_t count = 0;
  for (int n = 0; n < BLOCKS_MAX; n++)
    if (block[n].first < block[n].past && block[n].base != PEN_BASE_PERSISTENT &&
        block[n].base != PEN_BASE_LOSS)
      block[count++] = block[n];
  moulds->block = pen_new(count + 1, sizeof block[0]);
  moulds->block_count = count;
  memcpy(moulds->block, block, count * sizeof block[0]);
  return true;
}

/* A program's blocks in one frame. */
struct placed {
  struct {
    uint64_t first, past;
  } at[BLOCKS_MAX];
  size_t count;
};

/* Places the blocks in a frame. False unless all are where such tensors may be. */
static bool place_blocks(const struct pen_rank_context *b, const struct pen_frame *frame,
                         const struct pen_cached_traces *moulds, struct placed *placed) {
  placed->count = moulds->block_count;
  for (size_t n = 0; n < moulds->block_count; n++) {
    const struct pen_operand_block *own = &moulds->block[n];
    uint64_t first, past;
    if (__builtin_add_overflow(frame->base[own->base], own->first, &first) ||
        __builtin_add_overflow(frame->base[own->base], own->past, &past))
      return false;
    bool in_window = own->received || first < b->memory->receive_bytes;
    if (first < (in_window ? 0 : b->memory->persistent_end)) return false;
    if (past > (in_window ? b->memory->receive_bytes : b->memory->arena_bytes)) return false;
    placed->at[n].first = first;
    placed->at[n].past = past;
  }
  return true;
}

static bool are_apart(const struct placed *placed, size_t a, size_t b) {
  return placed->at[a].first >= placed->at[b].past || placed->at[b].first >= placed->at[a].past;
}

/* Do the blocks overlap in the one placing as in the other? Both are of the same blocks. */
static bool overlap_alike(const struct placed *x, const struct placed *y) {
  for (size_t a = 1; a < x->count; a++)
    for (size_t b = 0; b < a; b++) {
      bool same =
          x->at[a].first - x->at[b].first == y->at[a].first - y->at[b].first; /* modulo 2^64 */
      if (!same && !(are_apart(x, a, b) && are_apart(y, a, b))) return false;
    }
  return true;
}

/* Repeats some extents where their bases are in another frame. Returns the first. */
static uint32_t move_extents(struct pen_tracer *t, const struct pen_frame *from,
                             const struct pen_frame *to, uint32_t first, uint32_t count) {
  uint32_t moved = (uint32_t)t->extent_count;
  t->extent = pen_grow(t->extent, &t->extent_capacity, t->extent_count + count, sizeof *t->extent);
  for (uint32_t index = first; index < first + count; index++) {
    struct pen_extent extent = t->extent[index];
    uint64_t distance = to->base[extent.base] - from->base[extent.base]; /* modulo 2^64 */
    extent.first += distance;
    extent.past += distance;
    t->extent[t->extent_count++] = extent;
  }
  return moved;
}

struct pen_cached_trace {
  const struct pen_frame *frame;
  struct placed placed; /* the blocks, in that frame */
  struct pen_trace trace;
  struct pen_cached_trace *next; /* of the same program */
};

/* The program's trace in a frame where its blocks overlap as they do here, or null. */
static const struct pen_cached_trace *find_mould(const struct pen_cached_traces *moulds,
                                                 const struct placed *here) {
  for (const struct pen_cached_trace *mould = moulds->first; mould; mould = mould->next)
    if (overlap_alike(here, &mould->placed)) return mould;
  return NULL;
}

static void keep_mould(struct pen_cached_traces *moulds, const struct pen_frame *frame,
                       const struct placed *placed, const struct pen_trace *trace) {
  if (moulds->count == MOULDS_MAX) return;
  struct pen_cached_trace *mould = pen_new(1, sizeof *mould);
  *mould = (struct pen_cached_trace){frame, *placed, *trace, moulds->first};
  moulds->first = mould;
  moulds->count++;
}

bool pen_trace_action(struct pen_tracer *tracer, uint32_t row, struct pen_trace *trace) {
  const struct pen_rank_program *tables = tracer->bench->tables;
  const struct pen_action *action = &tables->actions[row];
  const struct pen_frame *frame = &tables->frames[action->frame];
  struct pen_cached_traces *moulds = &tracer->moulds[action->program];
  struct placed here;
  if (!moulds->known) {
    moulds->known = true;
    if (!find_blocks(tracer->bench, &tables->programs[action->program], moulds))
      moulds->count = MOULDS_MAX;
  }
  if (moulds->count == MOULDS_MAX && !moulds->first) return trace_anew(tracer, row, trace);
  bool fits = place_blocks(tracer->bench, frame, moulds, &here);
  const struct pen_cached_trace *mould = fits ? find_mould(moulds, &here) : NULL;
  if (!mould) {
    if (!trace_anew(tracer, row, trace)) return false;
    if (fits) keep_mould(moulds, frame, &here, trace);
    return true;
  }
  *trace = mould->trace;
  trace->read_first =
      move_extents(tracer, mould->frame, frame, trace->read_first, trace->read_count);
  trace->left_first =
      move_extents(tracer, mould->frame, frame, trace->left_first, trace->left_count);
  if (trace->loss_offset != UINT64_MAX)
    trace->loss_offset += frame->base[PEN_BASE_LOSS] - mould->frame->base[PEN_BASE_LOSS];
  return true;
}

bool pen_trace_start(struct pen_tracer *tracer) {
  const struct pen_rank_program *tables = tracer->bench->tables;
  static const struct pen_frame no_frame;
  struct step step = {.tracer = tracer, .frame = &no_frame, .row = PEN_NONE, .starts = true};
  struct pen_trace trace;
  return run_ops(&step, tables->start_first_op, tables->start_op_count, &trace);
}
