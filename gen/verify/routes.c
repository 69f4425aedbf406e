/* routes.c: does every row reach its experts and come back?
 *
 * A layer of experts is a chain of slices (gen/model/experts.c). The rules here, with which
 * messages begin:
 *
 *   routed   of each slice DISPATCH, EXPERTS and SUM_CHOICES have the same slice and the routes of
 *            one ROUTE; the slices of a layer have the same routes, weights and rows, and all of
 *            them are there, once and rising, before anything else reads the result. So each row
 *            has the sum of its own choices, once
 *   kept     no program but F makes routes
 *
 * The gradient of all this is derived (gradients.c). That a program reads what its own microbatch
 * made is in memory.c. */
#include "gen/verify/routes.h"

#include <string.h>

#include "gen/model/gradient_rules.h"
#include "gen/model/op_signature.h"
#include "gen/verify/internal.h"
#include "gen/verify/problem.h"

static const struct pen_term *term_of(const struct pen_terms *terms, uint32_t value) {
  return value ? &terms->term[pen_term_of_value(value)] : NULL;
}

static bool is_kind(const struct pen_terms *terms, uint32_t value, int kind) {
  return value && (int)term_of(terms, value)->kind == kind;
}

static int64_t dim_of(const struct pen_term *term, const char *name) {
  return term->dim[pen_signature_dim(pen_signature_of((int)term->kind), name)];
}

static uint32_t input_of(const struct pen_term *term, const char *name) {
  return term->input[pen_signature_operand(pen_signature_of((int)term->kind), name)];
}

/* The ops of a slice. */
struct slice_terms {
  const struct pen_term *sum, *experts, *dispatch;
};

/* False: they are others. */
static bool find_slice(const struct pen_terms *terms, uint32_t sum, struct slice_terms *slice) {
  slice->sum = &terms->term[sum];
  const uint32_t slots = input_of(slice->sum, "slots");
  if (!is_kind(terms, slots, PEN_OP_EXPERTS)) return false;
  slice->experts = term_of(terms, slots);
  const uint32_t rows = input_of(slice->experts, "x");
  if (!is_kind(terms, rows, PEN_OP_DISPATCH)) return false;
  slice->dispatch = term_of(terms, rows);
  return true;
}

static int64_t slice_count(const struct pen_term *sum) {
  return dim_of(sum, "rows") / dim_of(sum, "part");
}

static bool is_last(const struct pen_term *sum) {
  return dim_of(sum, "slice") + 1 == slice_count(sum);
}

/* ---- one slice ---- */

static bool same_dims(const struct slice_terms *s) {
  static const char *const shared[] = {"rows", "part", "choices", "sequences", "slice", "experts"};
  bool same = true;
  for (size_t n = 0; n < sizeof shared / sizeof *shared; n++)
    same = same && dim_of(s->sum, shared[n]) == dim_of(s->experts, shared[n]) &&
           dim_of(s->sum, shared[n]) == dim_of(s->dispatch, shared[n]);
  return same;
}

static bool divides(const struct pen_term *sum) {
  const int64_t rows = dim_of(sum, "rows"), part = dim_of(sum, "part"),
                sequences = dim_of(sum, "sequences");
  return part > 0 && sequences > 0 && rows % part == 0 && part % sequences == 0 &&
         rows % sequences == 0 && dim_of(sum, "slice") < rows / part;
}

static bool same_routes(const struct pen_terms *terms, const struct slice_terms *s) {
  const uint32_t expert = input_of(s->sum, "expert"), weight = input_of(s->experts, "weight");
  const struct pen_signature *route = pen_signature_of(PEN_OP_ROUTE);
  if (!is_kind(terms, expert, PEN_OP_ROUTE) || input_of(s->experts, "expert") != expert ||
      input_of(s->dispatch, "expert") != expert)
    return false;
  const struct pen_term *made = term_of(terms, expert);
  return expert ==
             pen_term_output(pen_term_of_value(expert), pen_signature_operand(route, "expert")) &&
         weight ==
             pen_term_output(pen_term_of_value(expert), pen_signature_operand(route, "weight")) &&
         dim_of(made, "experts") == dim_of(s->sum, "experts") &&
         dim_of(made, "choices") == dim_of(s->sum, "choices");
}

/* ---- a chain ---- */

static bool same_layer(const struct slice_terms *s, const struct slice_terms *before) {
  static const char *const shared[] = {"weight", "gate", "up", "down"};
  static const char *const dims[] = {"rows", "part", "choices", "sequences", "experts"};
  bool same = input_of(s->dispatch, "x") == input_of(before->dispatch, "x") &&
              input_of(s->sum, "expert") == input_of(before->sum, "expert");
  for (size_t n = 0; n < sizeof shared / sizeof *shared; n++)
    same = same && input_of(s->experts, shared[n]) == input_of(before->experts, shared[n]);
  for (size_t n = 0; n < sizeof dims / sizeof *dims; n++)
    same = same && dim_of(s->sum, dims[n]) == dim_of(before->sum, dims[n]);
  return same && dim_of(s->sum, "slice") == dim_of(before->sum, "slice") + 1;
}

/* What is wrong with a slice of the forward; null: nothing. */
static const char *slice_problem(const struct pen_terms *terms, uint32_t term) {
  struct slice_terms s, before;
  const uint32_t a = input_of(&terms->term[term], "a");
  if (!find_slice(terms, term, &s)) return "sums what no experts have made of dispatched rows";
  if (!same_dims(&s) || !divides(s.sum)) return "has slots of another slice";
  if (!same_routes(terms, &s)) return "has slots of other routes";
  if (dim_of(s.sum, "slice") == 0)
    return is_kind(terms, a, PEN_OP_SUM_CHOICES) && !is_last(term_of(terms, a))
               ? "begins a layer before the one before has all slices"
               : NULL;
  if (!is_kind(terms, a, PEN_OP_SUM_CHOICES) || !find_slice(terms, pen_term_of_value(a), &before) ||
      !same_layer(&s, &before))
    return "does not follow the slice before it";
  return NULL;
}

#define PROBLEM(s, action, ...) \
  pen_problem_note((s)->context->checked->problem, (s)->context->rank, action, __VA_ARGS__)

/* Only the next slice reads a result that lacks some. */
static bool check_readers(const struct pen_stage_terms *s, uint32_t term, uint32_t action) {
  const struct pen_term *reader = &s->terms->term[term];
  const struct pen_signature *signature = pen_signature_of((int)reader->kind);
  for (int k = 0; k < signature->input_count; k++) {
    const uint32_t value = reader->input[k];
    const bool continues = reader->kind == PEN_OP_SUM_CHOICES &&
                           k == pen_signature_operand(signature, "a") &&
                           dim_of(reader, "slice") > 0;
    if (is_kind(s->terms, value, PEN_OP_SUM_CHOICES) && !is_last(term_of(s->terms, value)) &&
        !continues)
      return PROBLEM(s, action, "routed: %s reads slice %lld of %lld of a layer of experts",
                     signature->kind, (long long)dim_of(term_of(s->terms, value), "slice"),
                     (long long)slice_count(term_of(s->terms, value)));
  }
  return true;
}

static bool check_output(const struct pen_stage_terms *s, uint32_t action) {
  const uint32_t output = s->context->profile->stages[s->stage].output,
                 value = output == PEN_NONE ? 0 : pen_stage_value(s, output);
  return !is_kind(s->terms, value, PEN_OP_SUM_CHOICES) || is_last(term_of(s->terms, value)) ||
         PROBLEM(s, action, "routed: the output of stage %u lacks slices of a layer of experts",
                 s->stage);
}

/* The rule "kept". */
static bool check_kept(const struct pen_stage_terms *s) {
  const struct pen_rank_program *tables = s->context->tables;
  for (uint32_t p = 0; p < tables->program_count; p++) {
    const struct pen_program *program = &tables->programs[p];
    for (uint32_t n = 0; n < program->op_count && program->kind != PEN_F; n++) {
      const int kind = tables->ops[program->first_op + n].kind;
      if (pen_op_is_kept(kind))
        return PROBLEM(s, PEN_NONE, "kept: op %u (%s) of a backward makes what F has made",
                       program->first_op + n, pen_signature_of(kind)->kind);
    }
  }
  return true;
}

bool pen_check_routes(const struct pen_stage_terms *s, uint32_t action) {
  bool any = false;
  for (size_t n = 0; n < s->forward_count; n++) {
    const uint32_t term = s->forward[n];
    if (s->terms->term[term].kind >= PEN_OP_COUNT) continue;
    if (s->terms->term[term].kind == PEN_OP_SUM_CHOICES) {
      const char *wrong = slice_problem(s->terms, term);
      if (wrong)
        return PROBLEM(s, action, "routed: slice %lld of a layer of experts %s",
                       (long long)dim_of(&s->terms->term[term], "slice"), wrong);
      any = true;
    }
    if (any && !check_readers(s, term, action)) return false;
  }
  return !any || (check_output(s, action) && check_kept(s));
}

/* ---- a layer as one term ---- */

bool pen_is_experts_layer(const struct pen_terms *terms, uint32_t value) {
  return is_kind(terms, value, PEN_OP_SUM_CHOICES) && is_last(term_of(terms, value));
}

void pen_experts_inputs(const struct pen_terms *terms, uint32_t value,
                        uint32_t input[PEN_EXPERTS_INPUTS]) {
  struct slice_terms s = {0};
  find_slice(terms, pen_term_of_value(value), &s);
  const uint32_t of_last[] = {input_of(s.dispatch, "x"),     input_of(s.sum, "expert"),
                              input_of(s.experts, "weight"), input_of(s.experts, "gate"),
                              input_of(s.experts, "up"),     input_of(s.experts, "down")};
  memcpy(input, of_last, sizeof of_last);
  while (dim_of(s.sum, "slice") > 0) find_slice(terms, pen_term_of_value(input_of(s.sum, "a")), &s);
  input[PEN_EXPERTS_INPUTS - 1] = input_of(s.sum, "a");
}
