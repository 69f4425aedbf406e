/* stage_buffers.c: within one stage the offset of each value in the buffer of its base, and the
 * live bytes at each op.
 *
 * A buffer belongs to one stage and microbatch for whole actions, but its values become live
 * one by one while F runs and end one by one while I, W or B runs. Other values use what is free:
 *
 *   kept values      in the order in which F writes them, so that those not yet written and
 *                    those no longer live are one range at the end of the buffer: layers end in
 *                    reverse
 *   KEPT_W           (written by I for W) uses the bytes of values that only I reads. Those
 *                    values are then in SAVED_W, after those that W reads, the first to end at
 *                    the highest offset
 *   INPUT_GRADIENT   likewise uses the bytes of a value for I, which is then in its buffer
 *   SAVED_W          may be split into pieces (split_buffers.c)
 *   SCRATCH          the largest first, as high as it fits between the ops that use it, in the
 *                    buffers that the action has anyway; the rest is packed into a scratch
 *                    buffer
 *
 * This is offset packing (pack.c) of the ops of a program, with existing buffers as ranges. */
#include "gen/layout/stage_buffers.h"
#include <string.h>
#include "gen/base/arena.h"
#include "gen/base/sort.h"
#include "gen/layout/audit.h"
#include "gen/layout/buffer_intervals.h"
#include "gen/layout/kept_buffers.h"
#include "gen/layout/pack.h"
#include "gen/model/exchanges.h"
#include "gen/partition/puts.h"
#include "gen/partition/training.h"

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

/* Places the scratch of one program; sets buffers->scratch[program]. */
static void place_scratch(struct pen_buffer_filling *f, int program) {
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

/* Places the gradients of one microbatch of a program in the buffer of base PARTIAL, which all
 * programs use in turn. */
static void place_partials(struct pen_buffer_filling *f, int program) {
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

/* Values that neighbours read or write: one in each buffer. */
static void place_boundaries(struct pen_buffer_filling *f) {
  static const uint8_t boundary[] = {PEN_BASE_INPUT, PEN_BASE_OUTPUT, PEN_BASE_OUTPUT_GRADIENT,
                                     PEN_BASE_INPUT_GRADIENT};
  for (uint32_t v = 0; v < f->graph->value_count; v++)
    for (size_t i = 0; i < sizeof boundary; i++)
      if (f->graph->value[v].storage == v && f->graph->value[v].base == boundary[i] &&
          pen_is_used(f, v)) {
        struct pen_interval t = pen_interval_of(f, v);
        t.bytes = pen_aligned(pen_value_bytes_passed(f->graph, v));
        pen_place_value(f, boundary[i], v, &t);
      }
}

/* The last program of F, I, W in which a boundary value is used; PEN_PROGRAM_F when never. */
static int last_program(struct pen_op_range *const range[PEN_PROGRAMS], uint32_t value) {
  if (value == PEN_NONE) return PEN_PROGRAM_F;
  for (int p = PEN_PROGRAM_W; p > PEN_PROGRAM_F; p--)
    if (range[p][value].used) return p;
  return PEN_PROGRAM_F;
}

/* Whether one of the programs uses a storage. */
static bool used_in(struct pen_op_range *const range[PEN_PROGRAMS], uint32_t value,
                    const int *program, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (range[program[i]][value].used) return true;
  return false;
}

/* Counts the live bytes of one program. A storage is live from its first use, unless an earlier
 * program (or a message) wrote it, to its last use, unless a later program (or a message) reads it.
 */
static void count_live(const struct pen_graph *graph,
                       struct pen_op_range *const range[PEN_PROGRAMS], int program,
                       const int *earlier, size_t earlier_count, const int *later,
                       size_t later_count, struct pen_stage_buffers *buffers) {
  size_t ops = graph->program[program].count;
  int64_t *change = pen_new(ops + 2, sizeof *change);
  for (uint32_t v = 0; v < graph->value_count; v++) {
    const struct pen_value *value = &graph->value[v];
    if (value->storage != v || !range[program][v].used || value->role != PEN_ROLE_ACTIVATION ||
        value->base == PEN_BASE_PARTIAL || value->base == PEN_BASE_EXCHANGE ||
        value->base == PEN_BASE_RESULT)
      continue;
    bool received = v == graph->input || v == graph->output_gradient;
    bool sent = v == graph->output || v == graph->input_gradient;
    int64_t bytes =
        (int64_t)pen_aligned(received || sent ? pen_value_bytes_passed(graph, v) : value->bytes);
    if (!received && !used_in(range, v, earlier, earlier_count))
      change[range[program][v].first] += bytes;
    if (!sent && !used_in(range, v, later, later_count))
      change[range[program][v].last + 1] -= bytes;
  }
  int64_t live = 0;
  for (size_t i = 0; i < ops; i++) {
    live += change[i];
    if (live > buffers->peak[program]) buffers->peak[program] = live;
  }
  buffers->remains[program] = live + (ops ? change[ops] : 0);
}

static void count_programs(const struct pen_graph *graph,
                           struct pen_op_range *const range[PEN_PROGRAMS],
                           struct pen_stage_buffers *buffers) {
  static const int f[] = {PEN_PROGRAM_F}, fi[] = {PEN_PROGRAM_F, PEN_PROGRAM_I},
                   iw[] = {PEN_PROGRAM_I, PEN_PROGRAM_W}, w[] = {PEN_PROGRAM_W};
  count_live(graph, range, PEN_PROGRAM_F, NULL, 0, iw, 2, buffers);
  count_live(graph, range, PEN_PROGRAM_I, f, 1, w, 1, buffers);
  count_live(graph, range, PEN_PROGRAM_W, fi, 2, NULL, 0, buffers);
  count_live(graph, range, PEN_PROGRAM_B, f, 1, NULL, 0, buffers);
}

static void place_unsharded(struct pen_buffer_filling *f) {
  uint64_t *bytes = &f->tree[PEN_BASE_UNSHARDED].bytes;
  for (uint32_t v = 0; v < f->graph->value_count; v++) {
    if (!pen_is_used(f, v) || !pen_value_is_unsharded(f->partition, f->graph, v)) continue;
    f->buffers->base[v] = PEN_BASE_UNSHARDED;
    f->buffers->offset[v] = *bytes;
    *bytes += pen_aligned(f->graph->value[v].bytes);
  }
}

/* Keys and values, layer after layer. */
static void place_cache(struct pen_buffer_filling *f) {
  uint64_t *bytes = &f->tree[PEN_BASE_CACHE].bytes;
  for (uint32_t v = 0; v < f->graph->value_count; v++) {
    if (f->graph->value[v].role != PEN_ROLE_CACHE) continue;
    f->buffers->offset[v] = *bytes;
    *bytes += pen_aligned(f->graph->value[v].bytes);
  }
}

/* What outlives the step, in the order of model.outputs. */
static void place_results(struct pen_buffer_filling *f) {
  uint64_t *bytes = &f->tree[PEN_BASE_RESULT].bytes;
  for (uint32_t n = 0; n < f->graph->output_count; n++) {
    if (f->graph->outputs[n] == PEN_NONE) continue;
    f->buffers->offset[f->graph->outputs[n]] = *bytes;
    *bytes += pen_aligned(f->graph->value[f->graph->outputs[n]].bytes);
  }
}

/* Numbers of slots, whose offsets are known when all stages are; and the bytes of the largest: what
 * an exchange writes for one tensor rank. */
static void place_slots(struct pen_buffer_filling *f) {
  const struct pen_put_source source = {.partition = f->partition, .graph = f->graph};
  uint64_t *most = &f->tree[PEN_BASE_EXCHANGE].bytes;
  for (int p = 0; p < PEN_PROGRAMS && pen_graph_tensor_ranks(f->graph) > 1; p++)
    for (size_t i = 0; i < f->graph->program[p].count; i++) {
      const struct pen_op *op = &f->graph->program[p].op[i];
      if (!pen_exchange_ops(f->graph, op) || !pen_is_used(f, op->operand[1])) continue;
      const struct pen_put put = pen_put_of_op(&source, op);
      const uint64_t bytes = pen_aligned(put.count * put.bytes);
      f->buffers->offset[op->operand[1]] = f->graph->value[op->operand[1]].slot;
      if (bytes > *most) *most = bytes;
    }
}

struct pen_stage_buffers pen_stage_buffers_of(const struct pen_partition *partition,
                                              const struct pen_graph *graph,
                                              const struct pen_buffer_split *split) {
  struct pen_stage_buffers buffers = {.offset = pen_new(graph->value_count + 1, sizeof(uint64_t)),
                                      .base = pen_new(graph->value_count + 1, sizeof(uint8_t))};
  struct pen_buffer_filling filling = pen_start_filling(partition, graph, &buffers);
  for (uint32_t v = 0; v < graph->value_count; v++) buffers.base[v] = graph->value[v].base;
  place_boundaries(&filling);
  pen_place_kept(&filling, split);
  for (int p = 0; p < PEN_PROGRAMS; p++)
    if (!split->runs || split->runs[p]) {
      place_scratch(&filling, p);
      place_partials(&filling, p);
    }
  place_unsharded(&filling);
  place_cache(&filling);
  place_results(&filling);
  place_slots(&filling);
  for (int b = 0; b < PEN_BASES; b++) {
    buffers.bytes[b] = filling.tree[b].bytes;
    pen_interval_tree_free(&filling.tree[b]);
  }
  for (uint32_t v = 0; v < graph->value_count; v++) {
    buffers.offset[v] = buffers.offset[graph->value[v].storage] + graph->value[v].within;
    buffers.base[v] = buffers.base[graph->value[v].storage];
  }
  buffers.input_last = last_program(filling.range, graph->input);
  buffers.output_last = last_program(filling.range, graph->output);
  buffers.output_gradient_last = last_program(filling.range, graph->output_gradient);
  buffers.input_gradient_last = last_program(filling.range, graph->input_gradient);
  count_programs(graph, filling.range, &buffers);
  return buffers;
}

struct pen_stage_buffers pen_stage_live_of(const struct pen_graph *graph) {
  struct pen_stage_buffers buffers = {.offset = NULL};
  struct pen_buffer_filling filling = pen_start_filling(NULL, graph, &buffers);
  count_programs(graph, filling.range, &buffers);
  return buffers;
}
