/* stage_terms.c: runs the programs of a stage over terms instead of numbers.
 *
 * memory.c has proved that a program which reads a tensor finds what the programs of the same
 * microbatch wrote there. So the value of a tensor is the term of the op that wrote it, and an op
 * that is computed again makes the same term. The rule here, with
 * which its message begins:
 *
 *   own   a program reads what the programs of its own stage made, or its stage is given */
#include "gen/verify/stage_terms.h"

#include <string.h>

#include "gen/base/arena.h"
#include "gen/model/gradient_rules.h"
#include "gen/model/op_signature.h"
#include "gen/verify/internal.h"
#include "gen/verify/problem.h"
#include "runtime/plan/plan.h"

static size_t hash_of(const struct pen_term *term) {
  uint64_t words[sizeof *term / sizeof(uint64_t)], hash = 0;
  memcpy(words, term, sizeof *term);
  for (size_t n = 0; n < sizeof words / sizeof *words; n++)
    hash = (hash ^ words[n]) * 0x9e3779b97f4a7c15u;
  return (size_t)(hash >> 20);
}
_Static_assert(sizeof(struct pen_term) % sizeof(uint64_t) == 0, "whole words");

static size_t find_slot(const struct pen_terms *terms, const struct pen_term *term) {
  size_t slot = hash_of(term) & (terms->slots - 1);
  while (terms->slot[slot] && memcmp(&terms->term[terms->slot[slot] - 1], term, sizeof *term) != 0)
    slot = (slot + 1) & (terms->slots - 1);
  return slot;
}

static void grow_table(struct pen_terms *terms) {
  pen_free(terms->slot);
  terms->slots = terms->slots ? 2 * terms->slots : 256;
  terms->slot = pen_new(terms->slots, sizeof *terms->slot);
  for (size_t n = 0; n < terms->count; n++)
    terms->slot[find_slot(terms, &terms->term[n])] = (uint32_t)n + 1;
}

uint32_t pen_term_add(struct pen_terms *terms, const struct pen_term *term) {
  if (2 * terms->count >= terms->slots) grow_table(terms);
  size_t slot = find_slot(terms, term);
  if (terms->slot[slot]) return terms->slot[slot] - 1;
  PEN_RESERVE(terms->term, terms->count + 1);
  terms->term[terms->count++] = *term;
  terms->slot[slot] = (uint32_t)terms->count;
  return (uint32_t)terms->count - 1;
}

void pen_terms_clear(struct pen_terms *terms) {
  if (terms->slots) memset(terms->slot, 0, terms->slots * sizeof *terms->slot);
  terms->count = 0;
}

void pen_terms_free(struct pen_terms *terms) {
  pen_free(terms->term);
  pen_free(terms->slot);
}

void pen_stage_terms_open(struct pen_stage_terms *s, const struct pen_rank_context *context,
                          struct pen_terms *terms) {
  *s = (struct pen_stage_terms){
      .context = context,
      .terms = terms,
      .value = pen_new(context->tables->tensor_count + 1u, sizeof *s->value)};
}

void pen_stage_terms_close(struct pen_stage_terms *s) {
  pen_free(s->value);
  pen_free(s->written);
  pen_free(s->forward);
  pen_free(s->is_listed);
  pen_free(s->contribution);
  pen_free(s->part_sum);
  pen_free(s->part);
}

/* ---- values of tensors ---- */

static uint32_t given_value(struct pen_terms *terms, uint32_t kind, int64_t number, uint8_t dtype) {
  const struct pen_term term = {.kind = kind, .dim = {number}, .dtype = dtype};
  return pen_term_output(pen_term_add(terms, &term), 0);
}

uint32_t pen_stage_value(const struct pen_stage_terms *s, uint32_t tensor) {
  const struct pen_rank_context *b = s->context;
  const struct pen_stage *stage = &b->profile->stages[s->stage];
  if (b->use[tensor] == PEN_USE_WEIGHT)
    return given_value(s->terms, PEN_TERM_WEIGHT, b->weight[tensor],
                       b->tables->tensors[tensor].dtype);
  if (tensor == stage->input) return given_value(s->terms, PEN_TERM_INPUT, 0, 0);
  if (tensor == stage->output_gradient)
    return given_value(s->terms, PEN_TERM_OUTPUT_GRADIENT, 0, 0);
  return s->value[tensor];
}

static void set_value(struct pen_stage_terms *s, uint32_t tensor, uint32_t value) {
  PEN_RESERVE(s->written, s->written_count + 1);
  s->written[s->written_count++] = tensor;
  s->value[tensor] = value;
}

/* ---- ops ---- */

/* The op in progress, or the one of two ops that it is made of (PEN_FUSED_LOSS,
 * PEN_FUSED_GRADIENT). */
struct op_part {
  struct pen_stage_terms *s;
  const struct pen_op *op;
  const struct pen_signature *from, *to; /* of the op; of the part */
  uint32_t op_index, action;
  int kind;      /* of the part */
  uint32_t term; /* of the part */
};

#define PROBLEM(p, format, ...)                                                           \
  pen_problem_note((p)->s->context->checked->problem, (p)->s->context->rank, (p)->action, \
                   "own: op %u (%s) " format, (p)->op_index, (p)->from->kind, __VA_ARGS__)

/* Makes the term of a part from the operands, dims and reals of the op, by name. */
static bool make_term(struct op_part *p) {
  const bool whole = p->from == p->to;
  struct pen_term term = {.kind = (uint32_t)p->kind, .dtype = p->op->dtype};
  for (int n = 0; n < p->to->dim_count; n++)
    term.dim[n] = p->op->dim[whole ? n : pen_signature_dim(p->from, p->to->dim[n])];
  for (int n = 0; n < p->to->real_count; n++)
    term.real[n] = p->op->real[whole ? n : pen_signature_real(p->from, p->to->real[n])];
  for (int k = 0; k < p->to->input_count; k++) {
    int own = whole ? k : pen_signature_operand(p->from, p->to->operand[k].name);
    uint32_t tensor = p->op->operand[own];
    if (tensor == PEN_NONE) continue;
    term.input[k] = pen_stage_value(p->s, tensor);
    if (!term.input[k])
      return PROBLEM(p, "reads %s, which no program of stage %u has made before",
                     p->s->context->tables->tensors[tensor].name, p->s->stage);
  }
  p->term = pen_term_add(p->s->terms, &term);
  return true;
}

/* Is it an op of the forward, and not of its gradient? */
static bool is_forward_kind(int kind) {
  size_t count;
  const struct pen_gradient_rule *rules = pen_gradient_rules(&count);
  for (size_t n = 0; n < count; n++)
    if (rules[n].backward == kind) return false;
  return true;
}

/* Is it a term of the forward? Sums, SCALE, ROW_SUM, GROUP_SUM, exchanges, what moves rows to
 * experts and back, and what splits and joins parts are of both: as what they read is. The gradient
 * that a loss makes is not of the forward. */
static bool is_forward_term(const struct pen_terms *terms, uint32_t term) {
  const struct pen_term *t = &terms->term[term];
  const bool moves = t->kind == PEN_OP_DISPATCH || t->kind == PEN_OP_SUM_CHOICES ||
                     t->kind == PEN_OP_SPLIT_2 || t->kind == PEN_OP_JOIN_2 ||
                     t->kind == PEN_OP_SPLIT_3 || t->kind == PEN_OP_JOIN_3 ||
                     t->kind == PEN_OP_COPY_BLOCKS || t->kind == PEN_OP_SUM_TOKENS ||
                     t->kind == PEN_OP_REPEAT_TOKENS || t->kind == PEN_OP_SHARD_SEQUENCE ||
                     t->kind == PEN_OP_UNSHARD_SEQUENCE,
             adds = t->kind == PEN_OP_ADD || t->kind == PEN_OP_SUM_PARTIALS ||
                    t->kind == PEN_OP_SCALE || t->kind == PEN_OP_ROW_SUM ||
                    t->kind == PEN_OP_GROUP_SUM || pen_puts_values((int)t->kind);
  if (t->kind == PEN_TERM_OUTPUT_GRADIENT) return false;
  if (t->kind >= PEN_OP_COUNT || !t->input[0] || !(adds || moves))
    return is_forward_kind((int)t->kind);
  const uint32_t value = t->input[adds && t->input[1] != 0], added = pen_term_of_value(value);
  if (terms->term[added].kind < PEN_OP_COUNT &&
      pen_loss_gradient_of((int)terms->term[added].kind, pen_operand_of_value(value)) >= 0)
    return false;
  return is_forward_term(terms, added);
}

static void list_forward(struct pen_stage_terms *s, uint32_t term) {
  PEN_RESERVE(s->is_listed, term + 1);
  if (s->is_listed[term]) return;
  s->is_listed[term] = true;
  PEN_RESERVE(s->forward, s->forward_count + 1);
  s->forward[s->forward_count++] = term;
}

static void forget_forward(struct pen_stage_terms *s) {
  while (s->forward_count) s->is_listed[s->forward[--s->forward_count]] = false;
}

/* Adds a value to the gradient of a weight; or to zeros, for one microbatch. Counts of choices:
 * router_counts.c. */
static void accumulate(struct pen_stage_terms *s, uint32_t tensor, uint32_t value, uint32_t op) {
  if (s->context->use[tensor] == PEN_USE_COUNTS) return;
  if (s->context->use[tensor] != PEN_USE_GRADIENT) {
    PEN_RESERVE(s->part_sum, s->part_sum_count + 1);
    s->part_sum[s->part_sum_count++] = (struct pen_contribution){tensor, value, op};
    set_value(s, tensor, value);
    return;
  }
  PEN_RESERVE(s->contribution, s->contribution_count + 1);
  s->contribution[s->contribution_count++] =
      (struct pen_contribution){s->context->weight[tensor], value, op};
}

/* The outputs of a part. */
static void store_outputs(const struct op_part *p) {
  struct pen_stage_terms *s = p->s;
  for (int k = p->to->input_count; k < p->to->operand_count; k++) {
    int own = p->from == p->to ? k : pen_signature_operand(p->from, p->to->operand[k].name);
    uint32_t tensor = own < 0 ? PEN_NONE : p->op->operand[own], value = pen_term_output(p->term, k);
    if (tensor == PEN_NONE) continue;
    if (p->to->operand[k].accumulates)
      accumulate(s, tensor, value, p->op_index);
    else if (s->context->tables->tensors[tensor].base != PEN_BASE_LOSS)
      set_value(s, tensor, value);
    else if (s->context->tables->tensors[tensor].offset == 0) /* no router's */
      s->loss = value;
  }
}

static bool run_part(struct op_part *p, int kind) {
  p->kind = kind;
  p->to = pen_signature_of(kind);
  if (!make_term(p)) return false;
  if (is_forward_term(p->s->terms, p->term)) list_forward(p->s, p->term);
  store_outputs(p);
  return true;
}

/* The gradients of a microbatch that an op adds to the accumulator, or none. */
static bool adds_partial(const struct pen_stage_terms *s, const struct pen_op *op) {
  return op->kind == PEN_OP_REDUCE_SCATTER ||
         (op->kind == PEN_OP_ACCUMULATE && s->context->plan->reduces_microbatches &&
          s->context->use[op->operand[1]] == PEN_USE_GRADIENT);
}

/* A gradient of the microbatch becomes zero: what was added to it is lost. */
static void forget_parts(struct pen_stage_terms *s, uint32_t tensor) {
  size_t left = 0;
  for (size_t n = 0; n < s->part_sum_count; n++)
    if (s->part_sum[n].weight != tensor) s->part_sum[left++] = s->part_sum[n];
  s->part_sum_count = left;
}

/* Adds what was added to a gradient of the microbatch: of experts a term a slice. */
static void accumulate_parts(struct pen_stage_terms *s, uint32_t from, uint32_t to, uint32_t op) {
  bool any = false;
  for (size_t n = 0; n < s->part_sum_count; n++)
    if (s->part_sum[n].weight == from) accumulate(s, to, s->part_sum[n].value, op), any = true;
  if (!any) accumulate(s, to, 0, op);
}

static bool run_op(struct pen_stage_terms *s, uint32_t index, uint32_t action) {
  const struct pen_op *op = &s->context->tables->ops[index];
  struct op_part part = {
      .s = s, .op = op, .from = pen_signature_of(op->kind), .op_index = index, .action = action};
  const struct pen_fused_loss *fused = pen_fused_loss_made_by(op->kind);
  if (adds_partial(s, op)) {
    accumulate_parts(s, op->operand[0], op->operand[1], index);
    return true;
  }
  if (op->kind == PEN_OP_ZERO) forget_parts(s, op->operand[0]);
  if (op->kind == PEN_OP_ALL_GATHER) {
    const struct pen_tensor *whole = &s->context->tables->tensors[op->operand[1]];
    set_value(
        s, op->operand[1],
        given_value(s->terms, PEN_TERM_WEIGHT, s->context->weight[op->operand[0]], whole->dtype));
    return true;
  }
  if (part.from->is_runtime && !pen_puts_values(op->kind)) return true; /* program_collectives.c */
  if (fused) return run_part(&part, fused->forward) && run_part(&part, fused->weight);
  return run_part(&part, op->kind);
}

/* ---- programs ---- */

static bool run_ops(struct pen_stage_terms *s, uint32_t first, uint32_t count, uint32_t action) {
  for (uint32_t index = first; index < first + count; index++)
    if (!run_op(s, index, action)) return false;
  return true;
}

bool pen_stage_terms_start(struct pen_stage_terms *s, uint32_t stage) {
  const struct pen_rank_program *tables = s->context->tables;
  for (size_t n = 0; n < s->written_count; n++) s->value[s->written[n]] = 0;
  s->stage = stage;
  s->written_count = s->contribution_count = s->part_sum_count = 0;
  forget_forward(s);
  s->loss = 0;
  bool fine = run_ops(s, tables->start_first_op, tables->start_op_count, PEN_NONE);
  forget_forward(s); /* constants have no gradient */
  return fine;
}

bool pen_stage_terms_run(struct pen_stage_terms *s, uint32_t program, uint32_t action) {
  const struct pen_program *run = &s->context->tables->programs[program];
  return run_ops(s, run->first_op, run->op_count, action);
}
