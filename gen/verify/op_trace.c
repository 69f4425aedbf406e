/* op_trace.c: runs the ops of a program over a frame and checks them against each other: every read
 * finds its complete tensor, operands overlap only where the op's signature allows it, every
 * address is in its part of the arena. What remains is the program seen from outside: what it
 * reads, what its bytes hold afterwards, and what it accumulates into.
 *
 * A program runs in as many frames as there are microbatches. All checks here depend only on the
 * relative addresses of its operands. Take the blocks of operands that count from one base: if
 * every two blocks are disjoint in both of two frames, or are at the same distance in both, then
 * operands overlap in one frame as in the other. So a program is traced in the first such frame,
 * and its trace is cached and relocated to the others. */
#include "gen/verify/op_trace.h"

#include <string.h>

#include "gen/model/op_signature.h"
#include "gen/verify/problem.h"
#include "gen/base/arena.h"
#include "runtime/plan/plan.h"

enum { CACHED_TRACES_MAX = 16 }; /* of one program */

void pen_tracer_start(struct pen_tracer *tracer, const struct pen_rank_context *context) {
  tracer->context = context;
  tracer->extent_count = tracer->weight_count = 0;
  tracer->run = 0;
  tracer->cached = pen_new((size_t)context->tables->program_count + 1, sizeof *tracer->cached);
  tracer->written = pen_new((size_t)context->tables->tensor_count + 1, sizeof(uint32_t));
  tracer->read = pen_new((size_t)context->tables->tensor_count + 1, sizeof(uint32_t));
}

void pen_tracer_free(struct pen_tracer *tracer) {
  pen_free(tracer->cached);
  pen_free(tracer->written);
  pen_free(tracer->read);
}

/* ---- the map of written bytes ---- */

/* The first extent of the map that ends after `offset`. */
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

/* Writes an extent over what the map holds at its bytes. */
static void map_write(struct pen_tracer *t, struct pen_extent written) {
  uint64_t first = written.first, past = written.past;
  size_t from = map_find(t, first), to = from;
  struct pen_extent piece[3];
  size_t pieces = 0;
  while (to < t->map_count && t->map[to].first < past) to++;
  if (from < to && t->map[from].first < first) {
    piece[pieces] = t->map[from];
    piece[pieces++].past = first;
  }
  piece[pieces++] = written;
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

/* One operand with its bytes. */
struct placed_operand {
  uint64_t first, past;
  uint32_t tensor;
  bool local; /* in the receive region or the activation part */
};

/* The op in progress. */
struct op_context {
  struct pen_tracer *tracer;
  const struct pen_frame *frame;
  const struct pen_op *op;
  const struct pen_signature *signature;
  uint32_t action, op_index;
  bool starts; /* an op that makes constants, before the first step */
};

static const char *operand_name(const struct op_context *s, uint32_t tensor) {
  return tensor == PEN_NONE ? "a workspace" : s->tracer->context->tables->tensors[tensor].name;
}

static uint8_t base_of(const struct op_context *s, uint32_t tensor) {
  return s->tracer->context->tables->tensors[tensor].base;
}

#define PROBLEM(s, format, ...)                                                            \
  pen_problem_note((s)->tracer->context->checked->problem, (s)->tracer->context->rank,     \
                   (s)->action, "op %u (%s) " format, (s)->op_index, (s)->signature->kind, \
                   __VA_ARGS__)

/* Finds the bytes of an operand and checks that they are in the right part of the arena. */
static bool locate_operand(const struct op_context *s, uint32_t tensor,
                           struct placed_operand *operand) {
  const struct pen_rank_context *b = s->tracer->context;
  const struct pen_tensor *t = &b->tables->tensors[tensor];
  *operand =
      (struct placed_operand){.first = s->frame->base[t->base] + t->offset, .tensor = tensor};
  operand->past = operand->first + t->bytes;
  if (t->base == PEN_BASE_PERSISTENT || t->base == PEN_BASE_LOSS) return true;
  operand->local = true;
  bool in_receive_region = b->received[tensor] || operand->first < b->memory->receive_bytes;
  uint64_t first = in_receive_region ? 0 : b->memory->persistent_end;
  uint64_t past = in_receive_region ? b->memory->receive_bytes : b->memory->arena_bytes;
  if (s->starts) return PROBLEM(s, "uses %s, which is not a constant", t->name);
  if (operand->past < operand->first || operand->first < first || operand->past > past)
    return PROBLEM(s, "has %s at %llu, outside the %s", t->name, (unsigned long long)operand->first,
                   in_receive_region ? "receive region" : "activation part");
  return true;
}

/* Reads an input: this program wrote all of its bytes, or none. */
static bool read_input(const struct op_context *s, const struct placed_operand *operand) {
  struct pen_tracer *t = s->tracer;
  const struct pen_rank_context *b = t->context;
  if (b->use[operand->tensor] == PEN_USE_GRADIENT)
    return PROBLEM(s, "reads %s, which is still being accumulated",
                   operand_name(s, operand->tensor));
  if (b->tables->tensors[operand->tensor].base == PEN_BASE_LOSS)
    return PROBLEM(s, "reads the loss %s", operand_name(s, operand->tensor));
  if (!operand->local) return true;
  bool own = t->written[operand->tensor] == t->run;
  uint64_t at = operand->first;
  for (size_t index = map_find(t, operand->first);
       index < t->map_count && t->map[index].first < operand->past; index++) {
    const struct pen_extent *extent = &t->map[index];
    if (!own || extent->tensor != operand->tensor || extent->first > at)
      return PROBLEM(s, "reads %s, but %s overlaps it", operand_name(s, operand->tensor),
                     operand_name(s, extent->tensor));
    at = extent->past;
  }
  if (own)
    return at >= operand->past ||
           PROBLEM(s, "reads %s, which is only partly written", operand_name(s, operand->tensor));
  if (b->tables->tensors[operand->tensor].base == PEN_BASE_SCRATCH)
    return PROBLEM(s, "reads %s, which nothing in this program has written",
                   operand_name(s, operand->tensor));
  if (t->read[operand->tensor] == t->run) return true;
  t->read[operand->tensor] = t->run;
  t->extent = pen_grow(t->extent, &t->extent_capacity, t->extent_count + 1, sizeof *t->extent);
  t->extent[t->extent_count++] = (struct pen_extent){operand->first, operand->past, operand->tensor,
                                                     base_of(s, operand->tensor)};
  return true;
}

/* Two operands of one op, the first an output or the workspace, do not overlap, except by "@"
 * (ops.def). */
static bool check_operands_disjoint(const struct op_context *s,
                                    const struct placed_operand *operand, int first, int second) {
  const struct placed_operand *a = &operand[first], *b = &operand[second];
  if (!a->local || !b->local || a->first >= b->past || b->first >= a->past) return true;
  bool allowed = first < s->signature->operand_count &&
                 s->signature->operand[first].alias == second && a->first == b->first;
  return allowed || PROBLEM(s, "has %s and %s in the same bytes", operand_name(s, a->tensor),
                            operand_name(s, b->tensor));
}

static bool trace_output(const struct op_context *s, const struct placed_operand *operand,
                         const struct pen_operand *declared, struct pen_program_trace *trace) {
  struct pen_tracer *t = s->tracer;
  const struct pen_rank_context *b = t->context;
  int use = b->use[operand->tensor];
  if (declared->accumulates) {
    if (use != PEN_USE_GRADIENT)
      return PROBLEM(s, "adds to %s, which is not the gradient of a trainable weight",
                     operand_name(s, operand->tensor));
    t->weight = pen_grow(t->weight, &t->weight_capacity, t->weight_count + 1, sizeof *t->weight);
    t->weight[t->weight_count++] = b->weight[operand->tensor];
    return true;
  }
  if (use != PEN_USE_LOCAL && !(s->starts && use == PEN_USE_CONSTANT))
    return PROBLEM(s, "writes %s, which only UPDATE may", operand_name(s, operand->tensor));
  if (use == PEN_USE_CONSTANT) return true;
  if (t->written[operand->tensor] == t->run)
    return PROBLEM(s, "writes %s a second time", operand_name(s, operand->tensor));
  t->written[operand->tensor] = t->run;
  if (b->tables->tensors[operand->tensor].base == PEN_BASE_LOSS) {
    trace->loss_offset = operand->first;
    return true;
  }
  if (b->received[operand->tensor])
    return PROBLEM(s, "writes %s, which comes by message", operand_name(s, operand->tensor));
  map_write(t, (struct pen_extent){operand->first, operand->past, operand->tensor,
                                   base_of(s, operand->tensor)});
  return true;
}

static bool trace_op(const struct op_context *s, struct pen_program_trace *trace) {
  struct placed_operand operand[PEN_OPERANDS_MAX + 1] = {{0}};
  int count = s->signature->operand_count, inputs = s->signature->input_count;
  for (int k = 0; k < count; k++)
    if (s->op->operand[k] != PEN_NONE && !locate_operand(s, s->op->operand[k], &operand[k]))
      return false;
  if (s->op->workspace != PEN_NONE && !locate_operand(s, s->op->workspace, &operand[count]))
    return false;
  if (s->op->workspace != PEN_NONE &&
      (!operand[count].local || s->tracer->context->received[s->op->workspace]))
    return PROBLEM(s, "has %s for its workspace, which is not in the activation part",
                   operand_name(s, s->op->workspace));
  for (int k = 0; k < inputs; k++)
    if (s->op->operand[k] != PEN_NONE && !read_input(s, &operand[k])) return false;
  for (int k = inputs; k <= count; k++)
    for (int other = 0; other < k; other++)
      if (!check_operands_disjoint(s, operand, k, other)) return false;
  for (int k = inputs; k < count; k++)
    if (s->op->operand[k] != PEN_NONE &&
        !trace_output(s, &operand[k], &s->signature->operand[k], trace))
      return false;
  if (s->op->workspace != PEN_NONE)
    map_write(s->tracer, (struct pen_extent){operand[count].first, operand[count].past, PEN_NONE,
                                             base_of(s, s->op->workspace)});
  return true;
}

/* ---- whole programs ---- */

static bool trace_ops(struct op_context *s, uint32_t first, uint32_t count,
                      struct pen_program_trace *trace) {
  struct pen_tracer *t = s->tracer;
  *trace = (struct pen_program_trace){.read_first = (uint32_t)t->extent_count,
                                      .weight_first = (uint32_t)t->weight_count,
                                      .loss_offset = UINT64_MAX};
  t->run++;
  t->map_count = 0;
  for (uint32_t index = 0; index < count; index++) {
    s->op_index = first + index;
    s->op = &t->context->tables->ops[first + index];
    s->signature = pen_signature_of(s->op->kind);
    if (!trace_op(s, trace)) return false;
  }
  trace->read_count = (uint32_t)t->extent_count - trace->read_first;
  trace->weight_count = (uint32_t)t->weight_count - trace->weight_first;
  return true;
}

static bool trace_program(struct pen_tracer *tracer, uint32_t index,
                          struct pen_program_trace *trace) {
  const struct pen_rank_program *tables = tracer->context->tables;
  const struct pen_action *action = &tables->actions[index];
  const struct pen_program *program = &tables->programs[action->program];
  struct op_context step = {
      .tracer = tracer, .frame = &tables->frames[action->frame], .action = index};
  if (!trace_ops(&step, program->first_op, program->op_count, trace)) return false;
  trace->left_first = (uint32_t)tracer->extent_count;
  tracer->extent = pen_grow(tracer->extent, &tracer->extent_capacity,
                            tracer->extent_count + tracer->map_count, sizeof *tracer->extent);
  for (size_t index = 0; index < tracer->map_count; index++) {
    struct pen_extent extent = tracer->map[index];
    if (extent.tensor != PEN_NONE && tables->tensors[extent.tensor].base == PEN_BASE_SCRATCH)
      extent.tensor = PEN_NONE;
    struct pen_extent *last =
        tracer->extent_count > trace->left_first ? &tracer->extent[tracer->extent_count - 1] : 0;
    bool merges = last && extent.tensor == PEN_NONE && last->tensor == PEN_NONE &&
                  last->past == extent.first && last->base == extent.base;
    if (merges)
      last->past = extent.past;
    else
      tracer->extent[tracer->extent_count++] = extent;
  }
  trace->left_count = (uint32_t)tracer->extent_count - trace->left_first;
  return true;
}

/* ---- the same program in other frames ---- */

enum { BLOCKS_MAX = 2 * PEN_BASES };

/* Finds the bytes, counted from each base, that the program's operands span. Returns false when an
 * end overflows. */
static bool find_blocks(const struct pen_rank_context *b, const struct pen_program *program,
                        struct pen_cached_traces *cached) {
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
  cached->block = pen_new(count + 1, sizeof block[0]);
  cached->block_count = count;
  memcpy(cached->block, block, count * sizeof block[0]);
  return true;
}

/* The blocks of a program in one frame. */
struct placed_blocks {
  struct {
    uint64_t first, past;
  } at[BLOCKS_MAX];
  size_t count;
};

/* Finds the blocks in a frame. Returns false unless all are in the right part of the arena. */
static bool place_blocks(const struct pen_rank_context *b, const struct pen_frame *frame,
                         const struct pen_cached_traces *cached, struct placed_blocks *placed) {
  placed->count = cached->block_count;
  for (size_t n = 0; n < cached->block_count; n++) {
    const struct pen_operand_block *own = &cached->block[n];
    uint64_t first, past;
    if (__builtin_add_overflow(frame->base[own->base], own->first, &first) ||
        __builtin_add_overflow(frame->base[own->base], own->past, &past))
      return false;
    bool in_receive_region = own->received || first < b->memory->receive_bytes;
    if (first < (in_receive_region ? 0 : b->memory->persistent_end)) return false;
    if (past > (in_receive_region ? b->memory->receive_bytes : b->memory->arena_bytes))
      return false;
    placed->at[n].first = first;
    placed->at[n].past = past;
  }
  return true;
}

static bool are_disjoint(const struct placed_blocks *placed, size_t a, size_t b) {
  return placed->at[a].first >= placed->at[b].past || placed->at[b].first >= placed->at[a].past;
}

/* Do the blocks of a program overlap in one frame as in another? */
static bool overlap_alike(const struct placed_blocks *x, const struct placed_blocks *y) {
  for (size_t a = 1; a < x->count; a++)
    for (size_t b = 0; b < a; b++) {
      bool same =
          x->at[a].first - x->at[b].first == y->at[a].first - y->at[b].first; /* modulo 2^64 */
      if (!same && !(are_disjoint(x, a, b) && are_disjoint(y, a, b))) return false;
    }
  return true;
}

/* Appends copies of some extents, relocated to another frame. Returns the index of the first. */
static uint32_t relocate_extents(struct pen_tracer *t, const struct pen_frame *from,
                                 const struct pen_frame *to, uint32_t first, uint32_t count) {
  uint32_t first_copy = (uint32_t)t->extent_count;
  t->extent = pen_grow(t->extent, &t->extent_capacity, t->extent_count + count, sizeof *t->extent);
  for (uint32_t index = first; index < first + count; index++) {
    struct pen_extent extent = t->extent[index];
    uint64_t distance = to->base[extent.base] - from->base[extent.base]; /* modulo 2^64 */
    extent.first += distance;
    extent.past += distance;
    t->extent[t->extent_count++] = extent;
  }
  return first_copy;
}

struct pen_cached_trace {
  const struct pen_frame *frame;
  struct placed_blocks placed; /* in that frame */
  struct pen_program_trace trace;
  struct pen_cached_trace *next; /* of the same program */
};

/* The trace of the program in a frame where its blocks overlap in the same way, or null. */
static const struct pen_cached_trace *find_cached_trace(const struct pen_cached_traces *cached,
                                                        const struct placed_blocks *placed) {
  for (const struct pen_cached_trace *found = cached->first; found; found = found->next)
    if (overlap_alike(placed, &found->placed)) return found;
  return NULL;
}

static void cache_trace(struct pen_cached_traces *cached, const struct pen_frame *frame,
                        const struct placed_blocks *placed, const struct pen_program_trace *trace) {
  if (cached->count == CACHED_TRACES_MAX) return;
  struct pen_cached_trace *entry = pen_new(1, sizeof *entry);
  *entry = (struct pen_cached_trace){frame, *placed, *trace, cached->first};
  cached->first = entry;
  cached->count++;
}

bool pen_trace_action(struct pen_tracer *tracer, uint32_t index, struct pen_program_trace *trace) {
  const struct pen_rank_program *tables = tracer->context->tables;
  const struct pen_action *action = &tables->actions[index];
  const struct pen_frame *frame = &tables->frames[action->frame];
  struct pen_cached_traces *cached = &tracer->cached[action->program];
  struct placed_blocks placed;
  if (!cached->known) {
    cached->known = true;
    if (!find_blocks(tracer->context, &tables->programs[action->program], cached))
      cached->count = CACHED_TRACES_MAX;
  }
  if (cached->count == CACHED_TRACES_MAX && !cached->first)
    return trace_program(tracer, index, trace);
  bool fits = place_blocks(tracer->context, frame, cached, &placed);
  const struct pen_cached_trace *found = fits ? find_cached_trace(cached, &placed) : NULL;
  if (!found) {
    if (!trace_program(tracer, index, trace)) return false;
    if (fits) cache_trace(cached, frame, &placed, trace);
    return true;
  }
  *trace = found->trace;
  trace->read_first =
      relocate_extents(tracer, found->frame, frame, trace->read_first, trace->read_count);
  trace->left_first =
      relocate_extents(tracer, found->frame, frame, trace->left_first, trace->left_count);
  if (trace->loss_offset != UINT64_MAX)
    trace->loss_offset += frame->base[PEN_BASE_LOSS] - found->frame->base[PEN_BASE_LOSS];
  return true;
}

bool pen_trace_start(struct pen_tracer *tracer) {
  const struct pen_rank_program *tables = tracer->context->tables;
  static const struct pen_frame no_frame;
  struct op_context step = {
      .tracer = tracer, .frame = &no_frame, .action = PEN_NONE, .starts = true};
  struct pen_program_trace trace;
  return trace_ops(&step, tables->start_first_op, tables->start_op_count, &trace);
}
