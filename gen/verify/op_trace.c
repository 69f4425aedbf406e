/* op_trace.c: runs the ops of a program over a frame and checks them against each other: every read
 * finds its complete tensor, operands overlap only where the op's signature allows it, every
 * address is in its part of the arena. What remains is the program seen from outside: what it
 * reads, what its bytes hold afterwards, and what it accumulates into. */
#include "gen/verify/op_trace.h"

#include <string.h>

#include "gen/model/gradient_rules.h"
#include "gen/model/op_signature.h"
#include "gen/verify/problem.h"
#include "gen/base/arena.h"
#include "gen/verify/internal.h"
#include "runtime/plan/plan.h"

void pen_tracer_start(struct pen_tracer *tracer, const struct pen_rank_context *context) {
  tracer->context = context;
  tracer->extent_count = tracer->weight_count = 0;
  tracer->run = 0;
  tracer->cached = pen_new((size_t)context->tables->program_count + 1, sizeof *tracer->cached);
  tracer->written = pen_new((size_t)context->tables->tensor_count + 1, sizeof(uint32_t));
  tracer->read = pen_new((size_t)context->tables->tensor_count + 1, sizeof(uint32_t));
  pen_program_collectives_open(&tracer->collectives, context);
}

void pen_tracer_free(struct pen_tracer *tracer) {
  pen_free(tracer->cached);
  pen_free(tracer->written);
  pen_free(tracer->read);
  pen_extent_map_free(&tracer->map);
  pen_program_collectives_close(&tracer->collectives);
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

#define IN_USE(s, format, ...)                                                                     \
  pen_problem_note((s)->tracer->context->checked->problem, (s)->tracer->context->rank,             \
                   (s)->action, "in use: op %u (%s) " format, (s)->op_index, (s)->signature->kind, \
                   __VA_ARGS__)

/* Finds the bytes of an operand and checks that they are in the right part of the arena. */
static bool locate_operand(const struct op_context *s, uint32_t tensor,
                           struct placed_operand *operand) {
  const struct pen_rank_context *b = s->tracer->context;
  const struct pen_tensor *t = &b->tables->tensors[tensor];
  *operand =
      (struct placed_operand){.first = s->frame->base[t->base] + t->offset, .tensor = tensor};
  operand->past = operand->first + pen_extent_bytes(b, tensor);
  if (t->base == PEN_BASE_PERSISTENT || t->base == PEN_BASE_LOSS || t->base == PEN_BASE_CACHE)
    return true;                                             /* checked by their tables */
  if (t->base == PEN_BASE_RESULT && !s->starts) return true; /* outputs.c */
  operand->local = true;
  if (t->base == PEN_BASE_PARTIAL)
    return (operand->first >= b->memory->partial_offset && operand->past >= operand->first &&
            operand->past <= b->memory->partial_offset + b->memory->partial_bytes) ||
           PROBLEM(s, "has %s at %llu, outside the memory for gradients of a microbatch", t->name,
                   (unsigned long long)operand->first);
  if (t->base == PEN_BASE_EXCHANGE)
    return (operand->first >= b->memory->exchange_offset && operand->past >= operand->first &&
            operand->past <= b->memory->exchange_offset + b->memory->exchange_bytes) ||
           PROBLEM(s, "has %s at %llu, outside the slots of the tensor ranks", t->name,
                   (unsigned long long)operand->first);
  bool in_receive_region = b->received[tensor] || operand->first < b->memory->receive_bytes;
  uint64_t first = in_receive_region ? 0 : b->memory->persistent_end;
  uint64_t past =
      in_receive_region ? b->memory->receive_bytes : pen_activations_end(b->profile, b->memory);
  if (s->starts) return PROBLEM(s, "uses %s, which is not a constant", t->name);
  if (operand->past < operand->first || operand->first < first || operand->past > past)
    return PROBLEM(s, "has %s at %llu, outside the %s", t->name, (unsigned long long)operand->first,
                   in_receive_region ? "receive region" : "activation part");
  return true;
}

/* ---- collectives within a program ---- */

/* Whether an op may add gradients of one microbatch to the accumulator. */
static bool adds_partial(const struct op_context *s) {
  return s->op->kind == (s->tracer->collectives.alone ? PEN_OP_ACCUMULATE : PEN_OP_REDUCE_SCATTER);
}

/* Whether a tensor is named after another: its name, and more in parentheses. Else tensors of one
 * size could be swapped unnoticed. */
static bool is_named_after(const struct op_context *s, uint32_t tensor, uint32_t other) {
  const struct pen_tensor *tensors = s->tracer->context->tables->tensors;
  const char *name = strchr(tensors[tensor].name, '.'); /* after the stage, s3. */
  size_t length = strlen(tensors[other].name);
  return name && strncmp(name + 1, tensors[other].name, length) == 0 && name[1 + length] == '(';
}

/* A collective has all elements of the weight whose shard, or gradient, it names: each tensor rank
 * takes its shard from these. */
static bool check_elements(const struct op_context *s, uint32_t tensor) {
  const struct pen_rank_context *b = s->tracer->context;
  uint32_t number = b->weight[tensor];
  if (number == PEN_NONE) return true; /* refused as an operand */
  if (number >= b->plan->weight_count)
    number = b->plan->ties[number - b->plan->weight_count].weight;
  return s->op->dim[0] == (int64_t)b->plan->weights[number].count ||
         PROBLEM(s, "has %lld elements, but %s %llu", (long long)s->op->dim[0],
                 b->plan->weights[number].name, (unsigned long long)b->plan->weights[number].count);
}

/* The plan has such ops, and their operands belong together. */
static bool check_runtime_op(const struct op_context *s) {
  const struct pen_plan *plan = s->tracer->context->plan;
  const bool gathers = s->op->kind == PEN_OP_ALL_GATHER,
             reduces = s->op->kind == PEN_OP_REDUCE_SCATTER;
  if (pen_puts_values(s->op->kind) || s->op->kind == PEN_OP_SIGNAL_TENSOR)
    return true; /* moves.c */
  if (pen_group_size(plan, PEN_DATA) == 1 && s->op->kind != PEN_OP_ZERO)
    return PROBLEM(s, "sends to peers, but there is one replica%s", "");
  if ((gathers && !plan->gathers_units) || (reduces && !plan->reduces_microbatches))
    return PROBLEM(s, "is not an op of this plan: %s",
                   gathers ? "UNSHARD gathers weights" : "gradients are summed once a step");
  if ((gathers && !is_named_after(s, s->op->operand[1], s->op->operand[0])) ||
      (reduces && !is_named_after(s, s->op->operand[0], s->op->operand[1])))
    return PROBLEM(s, "has %s and %s, which are of two tensors", operand_name(s, s->op->operand[0]),
                   operand_name(s, s->op->operand[1]));
  return !(gathers || reduces) || check_elements(s, s->op->operand[gathers ? 0 : 1]);
}

/* Notes what a runtime op does besides its operands. */
static bool trace_runtime_op(const struct op_context *s) {
  struct pen_program_collectives *c = &s->tracer->collectives;
  if (s->op->kind == PEN_OP_ALL_GATHER) pen_weight_gathered(c, s->op->operand[1]);
  if (s->op->kind == PEN_OP_ZERO) pen_partial_zeroed(c, s->op->operand[0]);
  if (s->op->kind == PEN_OP_WAIT_EVENT) {
    const char *wrong = pen_event_waited(c, s->op->operand[0]);
    return !wrong || PROBLEM(s, "waits for %s, %s", operand_name(s, s->op->operand[0]), wrong);
  }
  return !c->row || c->row->group != PEN_DATA || c->row->awaited <= c->signals[PEN_DATA].ended ||
         PROBLEM(s, "deadlock: it waits for a signal that peers give after theirs%s", "");
}

/* Adds to the gradient of a microbatch, or the accumulator. */
static bool check_addition(const struct op_context *s, uint32_t tensor, int use) {
  struct pen_program_collectives *c = &s->tracer->collectives;
  const bool by_microbatch = s->tracer->context->plan->reduces_microbatches;
  const uint32_t added = s->op->operand[0];
  const char *wrong = NULL;
  if (use == PEN_USE_LOCAL) {
    if (adds_partial(s) && pen_is_partial(c, added))
      return PROBLEM(s, "adds %s to %s, but only to the sum of microbatches may it be added",
                     operand_name(s, added), operand_name(s, tensor));
    wrong = pen_partial_added(c, tensor);
    return !wrong || PROBLEM(s, "adds to %s, %s", operand_name(s, tensor), wrong);
  }
  if (use != PEN_USE_GRADIENT)
    return PROBLEM(s, "adds to %s, which is not the gradient of a trainable weight",
                   operand_name(s, tensor));
  if (!by_microbatch) return true;
  if (!adds_partial(s) || !pen_is_partial(c, added))
    return PROBLEM(s, "adds to %s, to which only whole gradients of a microbatch are added",
                   operand_name(s, tensor));
  if (!is_named_after(s, added, tensor))
    return PROBLEM(s, "adds %s to %s", operand_name(s, added), operand_name(s, tensor));
  wrong = pen_partial_summed(c, added);
  return !wrong || PROBLEM(s, "adds %s, %s", operand_name(s, added), wrong);
}

/* Nobody else uses what an output overwrites. */
static bool check_overwritten(const struct op_context *s, const struct placed_operand *operand) {
  struct pen_tracer *t = s->tracer;
  struct pen_extent_place place = pen_extent_map_find(&t->map, operand->first);
  for (const struct pen_extent *extent;
       (extent = pen_extent_map_next(&t->map, &place, operand->past));) {
    uint32_t tensor = extent->tensor;
    const char *wrong =
        tensor == PEN_NONE ? NULL : pen_partial_overwritten(&t->collectives, tensor);
    if (wrong)
      return PROBLEM(s, "writes %s over %s, %s", operand_name(s, operand->tensor),
                     operand_name(s, tensor), wrong);
    wrong = tensor == PEN_NONE ? NULL : pen_use_overwritten(&t->collectives, tensor);
    if (wrong)
      return IN_USE(s, "writes %s over %s, %s", operand_name(s, operand->tensor),
                    operand_name(s, tensor), wrong);
  }
  const char *wrong =
      pen_use_written(&t->collectives, operand->tensor, operand->first, operand->past);
  return !wrong || IN_USE(s, "writes %s, %s", operand_name(s, operand->tensor), wrong);
}

/* ---- operands ---- */

/* Bases of what no other program reads. */
static bool is_within_program(uint8_t base) {
  return base == PEN_BASE_SCRATCH || base == PEN_BASE_PARTIAL || base == PEN_BASE_EXCHANGE;
}

/* Reads an input: this program wrote all of its bytes, or none. */
static bool read_input(const struct op_context *s, const struct placed_operand *operand) {
  struct pen_tracer *t = s->tracer;
  const struct pen_rank_context *b = t->context;
  if ((b->use[operand->tensor] == PEN_USE_SHARD) != (s->op->kind == PEN_OP_ALL_GATHER))
    return PROBLEM(s, "reads %s, of which the rank has %s", operand_name(s, operand->tensor),
                   s->op->kind == PEN_OP_ALL_GATHER ? "all" : "a shard only");
  const char *early = pen_partial_read(&t->collectives, operand->tensor);
  if (early && !adds_partial(s) && s->op->kind != PEN_OP_WAIT_EVENT)
    return PROBLEM(s, "reads %s, %s", operand_name(s, operand->tensor), early);
  if (b->use[operand->tensor] == PEN_USE_GRADIENT)
    return PROBLEM(s, "reads %s, which is still being accumulated",
                   operand_name(s, operand->tensor));
  if (b->tables->tensors[operand->tensor].base == PEN_BASE_LOSS)
    return PROBLEM(s, "reads the loss %s", operand_name(s, operand->tensor));
  if (!operand->local) return true;
  bool own = t->written[operand->tensor] == t->run;
  uint64_t at = operand->first;
  struct pen_extent_place place = pen_extent_map_find(&t->map, operand->first);
  for (const struct pen_extent *extent;
       (extent = pen_extent_map_next(&t->map, &place, operand->past));) {
    if (!own || extent->tensor != operand->tensor || extent->first > at)
      return PROBLEM(s, "reads %s, but %s overlaps it", operand_name(s, operand->tensor),
                     operand_name(s, extent->tensor));
    at = extent->past;
  }
  if (own && at < operand->past)
    return PROBLEM(s, "reads %s, which is only partly written", operand_name(s, operand->tensor));
  const char *wrong = own ? pen_use_read(&t->collectives, operand->tensor, operand->first) : NULL;
  if (own) return !wrong || IN_USE(s, "reads %s, %s", operand_name(s, operand->tensor), wrong);
  if (is_within_program(b->tables->tensors[operand->tensor].base))
    return PROBLEM(s, "reads %s, which nothing in this program has written",
                   operand_name(s, operand->tensor));
  if (t->read[operand->tensor] == t->run) return true;
  t->read[operand->tensor] = t->run;
  PEN_RESERVE(t->extent, t->extent_count + 1);
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

/* Whether the program has added to the gradient already, by an op that makes input gradients, too:
 * those of one program have an order, which gradients.c checks. */
static bool adds_again(const struct op_context *s, uint32_t tensor,
                       const struct pen_program_trace *trace) {
  const struct pen_tracer *t = s->tracer;
  bool found = false;
  for (size_t n = trace->weight_first; n < t->weight_count && !found; n++)
    found = t->weight[n] == t->context->weight[tensor];
  return found && pen_op_adds_in_order(s->op->kind);
}

static bool trace_output(const struct op_context *s, const struct placed_operand *operand,
                         const struct pen_operand *declared, struct pen_program_trace *trace) {
  struct pen_tracer *t = s->tracer;
  const struct pen_rank_context *b = t->context;
  int use = b->use[operand->tensor];
  if (use == PEN_USE_CACHE || use == PEN_USE_COUNTS) return true; /* cache.c, router_counts.c */
  if (declared->accumulates) {
    if (!check_addition(s, operand->tensor, use)) return false;
    if (use == PEN_USE_LOCAL || adds_again(s, operand->tensor, trace)) return true;
    PEN_RESERVE(t->weight, t->weight_count + 1);
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
    if (b->tables->tensors[operand->tensor].offset == 0) trace->loss_offset = operand->first;
    return true; /* the losses of routers: router_losses.c */
  }
  if (b->tables->tensors[operand->tensor].base == PEN_BASE_RESULT) return true;
  if (!check_overwritten(s, operand)) return false;
  if (b->received[operand->tensor])
    return PROBLEM(s, "writes %s, which comes by message", operand_name(s, operand->tensor));
  pen_extent_map_write(&t->map, &(struct pen_extent){operand->first, operand->past, operand->tensor,
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
      (!operand[count].local || base_of(s, s->op->workspace) == PEN_BASE_EXCHANGE ||
       s->tracer->context->received[s->op->workspace]))
    return PROBLEM(s, "has %s for its workspace, which is not in the activation part",
                   operand_name(s, s->op->workspace));
  if (s->signature->is_runtime && !check_runtime_op(s)) return false;
  for (int k = 0; k < inputs; k++)
    if (s->op->operand[k] != PEN_NONE && !read_input(s, &operand[k])) return false;
  for (int k = inputs; k <= count; k++)
    for (int other = 0; other < k; other++)
      if (!check_operands_disjoint(s, operand, k, other)) return false;
  for (int k = inputs; k < count; k++)
    if (s->op->operand[k] != PEN_NONE &&
        !trace_output(s, &operand[k], &s->signature->operand[k], trace))
      return false;
  if (s->op->workspace != PEN_NONE && !check_overwritten(s, &operand[count])) return false;
  if (s->op->workspace != PEN_NONE)
    pen_extent_map_write(&s->tracer->map,
                         &(struct pen_extent){operand[count].first, operand[count].past, PEN_NONE,
                                              base_of(s, s->op->workspace)});
  if (s->signature->is_runtime && !trace_runtime_op(s)) return false;
  pen_program_op_ends(&s->tracer->collectives);
  return true;
}

/* ---- whole programs ---- */

/* The next program finds all gradients of a microbatch summed, and free. */
static bool check_end(const struct op_context *s) {
  struct pen_tracer *t = s->tracer;
  const struct pen_rank_context *b = t->context;
  for (size_t i = 0; i < t->collectives.partial_count; i++) {
    const uint32_t tensor = t->collectives.partials[i];
    const char *wrong = pen_partial_left(&t->collectives, tensor);
    if (wrong)
      return pen_problem_note(b->checked->problem, b->rank, s->action, "its program leaves %s, %s",
                              operand_name(s, tensor), wrong);
    wrong = pen_use_left(&t->collectives, tensor);
    if (wrong)
      return pen_problem_note(b->checked->problem, b->rank, s->action,
                              "in use: its program leaves %s, %s", operand_name(s, tensor), wrong);
  }
  return pen_slots_left(&t->collectives) ||
         pen_problem_note(b->checked->problem, b->rank, s->action,
                          "in use: its program still reads the slots that the next one fills");
}

static bool trace_ops(struct op_context *s, uint32_t first, uint32_t count,
                      struct pen_program_trace *trace) {
  struct pen_tracer *t = s->tracer;
  *trace = (struct pen_program_trace){.read_first = (uint32_t)t->extent_count,
                                      .weight_first = (uint32_t)t->weight_count,
                                      .loss_offset = UINT64_MAX};
  t->run++;
  pen_extent_map_clear(&t->map);
  pen_program_collectives_start(&t->collectives, first, first + count);
  for (uint32_t index = 0; index < count; index++) {
    s->op_index = first + index;
    s->op = &t->context->tables->ops[first + index];
    pen_program_op_begins(&t->collectives, first + index);
    s->signature = pen_signature_of(s->op->kind);
    if (!trace_op(s, trace)) return false;
  }
  if (!check_end(s)) return false;
  trace->read_count = (uint32_t)t->extent_count - trace->read_first;
  trace->weight_count = (uint32_t)t->weight_count - trace->weight_first;
  return true;
}

bool pen_trace_program(struct pen_tracer *tracer, uint32_t index, struct pen_program_trace *trace) {
  const struct pen_rank_program *tables = tracer->context->tables;
  const struct pen_action *action = &tables->actions[index];
  const struct pen_program *program = &tables->programs[action->program];
  struct op_context step = {
      .tracer = tracer, .frame = &tables->frames[action->frame], .action = index};
  if (!trace_ops(&step, program->first_op, program->op_count, trace)) return false;
  trace->left_first = (uint32_t)tracer->extent_count;
  PEN_RESERVE(tracer->extent, tracer->extent_count + pen_extent_map_size(&tracer->map));
  struct pen_extent_place place = {0};
  for (const struct pen_extent *held;
       (held = pen_extent_map_next(&tracer->map, &place, UINT64_MAX));) {
    struct pen_extent extent = *held;
    if (extent.tensor != PEN_NONE && is_within_program(tables->tensors[extent.tensor].base))
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

bool pen_trace_start(struct pen_tracer *tracer) {
  const struct pen_rank_program *tables = tracer->context->tables;
  static const struct pen_frame no_frame;
  struct op_context step = {
      .tracer = tracer, .frame = &no_frame, .action = PEN_NONE, .starts = true};
  struct pen_program_trace trace;
  return trace_ops(&step, tables->start_first_op, tables->start_op_count, &trace);
}
