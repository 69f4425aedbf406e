/* generation.c: does a step of generation compute the logits of an evaluation?
 *
 * An evaluation reads whole sequences; generation reads one sequence, which may be shorter, or new
 * tokens alone, over a cache of keys and values. Every op of a forward works row by row but
 * attention, which reads the keys of rows before. So a row of the output of a stage, or of the
 * logits, is the same if it is the same term in both, but for the number of rows:
 *
 *   rows       all terms have them in one ratio; `sequence` is that of each profile
 *   starts     absent (a sequence is one document), the documents' or, over a cache, the position
 *              of a sequence's first token, of the op that also gives its slot
 *   attention  over a cache it is ATTENTION of what was written there (ops.def). Its window is that
 *              of evaluation, as far as the sequence or the cache reaches
 *   experts    a layer is one term, however many slices it has (routes.h)
 *   positions  a shorter sequence may have a shorter table of them
 *   logits     generation has the product of a row of each sequence, which INDEX_SELECT takes, by
 *              the indices of LAST_TOKENS, from what evaluation multiplies: also where this does it
 *              within the loss, in chunks, or by splits, which generation joins in the same order.
 *              Ops between the product and the loss are the same, and each works row by row
 *
 * All other kinds, numbers, dtypes, weights and inputs are equal. That a cache holds what the same
 * layer wrote at the same slot and position is in cache.c. By induction over the stages, from the
 * first, generation has the logits of evaluation. */
#include "gen/verify/generation.h"

#include <string.h>

#include "gen/base/arena.h"
#include "gen/model/gradient_rules.h"
#include "gen/model/op_signature.h"
#include "gen/verify/derivative.h"
#include "gen/verify/routes.h"
#include "gen/verify/problem.h"
#include "gen/verify/term_text.h"
#include "runtime/plan/plan.h"

/* A value of an evaluation and one of generation. */
struct value_pair {
  uint32_t wanted, found;
};

/* Values of an evaluation and of generation that are compared. */
struct comparison {
  const struct pen_terms *terms;
  const struct pen_profile *evaluation, *generation;
  uint32_t *matched;       /* [value of generation]: that of the evaluation; 0: not compared yet */
  struct value_pair *open; /* not compared yet, the next one last */
  size_t open_count;
  uint64_t rows[2];       /* of one term of each; 0: none was compared yet */
  uint32_t wanted, found; /* the first that differ */
};

static bool differs(struct comparison *c, uint32_t wanted, uint32_t found) {
  c->wanted = wanted;
  c->found = found;
  return false;
}

static const struct pen_term *term_of(const struct comparison *c, uint32_t value) {
  return &c->terms->term[pen_term_of_value(value)];
}

static const struct pen_signature *signature_of(const struct pen_term *term) {
  return pen_signature_of((int)term->kind);
}

/* The dim of that name; 0: the op has none. */
static int64_t dim_of(const struct pen_term *term, const char *name) {
  const int index = pen_signature_dim(signature_of(term), name);
  return index < 0 ? 0 : term->dim[index];
}

/* The input of that name; 0: absent. */
static uint32_t input_of(const struct pen_term *term, const char *name) {
  const struct pen_signature *signature = signature_of(term);
  const int index = pen_signature_operand(signature, name);
  return index < 0 || index >= signature->input_count ? 0 : term->input[index];
}

/* ---- dims ---- */

/* How many rows, or elements of rows, a term has; 0: it has none. */
static uint64_t rows_of(const struct pen_term *term) {
  const int64_t rows = dim_of(term, "rows"), count = dim_of(term, "count"),
                batch = dim_of(term, "batch");
  return (uint64_t)(rows ? rows : count ? count : batch * dim_of(term, "sequence"));
}

static bool same_ratio(struct comparison *c, const struct pen_term *wanted,
                       const struct pen_term *found) {
  const uint64_t rows[2] = {rows_of(wanted), rows_of(found)};
  if (c->rows[0] == 0) memcpy(c->rows, rows, sizeof rows);
  return rows[0] * c->rows[1] == rows[1] * c->rows[0];
}

static bool is_over_cache(const struct pen_term *term) {
  return term->kind == PEN_OP_ATTENTION_CACHED || term->kind == PEN_OP_ATTENTION_CACHED_QKV;
}

static bool same_dim(const struct comparison *c, const struct pen_term *wanted,
                     const struct pen_term *found, const char *name) {
  const int64_t w = dim_of(wanted, name), f = dim_of(found, name);
  const bool is_cached = is_over_cache(found);
  if (strcmp(name, "rows") == 0 || strcmp(name, "count") == 0 || strcmp(name, "batch") == 0)
    return true; /* same_ratio() */
  if (strcmp(name, "own") == 0 || strcmp(name, "whole") == 0)
    return w == dim_of(wanted, "rows") && f == dim_of(found, "rows");
  if (strcmp(name, "sequence") == 0 || strcmp(name, "run") == 0)
    return rows_of(found) == 0 || (w <= 1 && f == w) ||
           (w == (int64_t)c->evaluation->sequence && f == (int64_t)c->generation->sequence);
  if (strcmp(name, "positions") == 0)
    return f == w || (c->generation->kind != PEN_CACHED && f == (int64_t)c->generation->sequence);
  if (strcmp(name, "window") == 0) {
    const int64_t reach = is_cached ? dim_of(found, "positions") : dim_of(found, "sequence");
    return f == (w < reach ? w : reach);
  }
  return f == w;
}

static bool same_numbers(struct comparison *c, const struct pen_term *wanted,
                         const struct pen_term *found) {
  const struct pen_signature *signature = signature_of(wanted);
  bool same = wanted->dtype == found->dtype &&
              memcmp(wanted->real, found->real, sizeof wanted->real) == 0 &&
              same_ratio(c, wanted, found);
  for (int n = 0; n < signature->dim_count; n++)
    same = same && same_dim(c, wanted, found, signature->dim[n]);
  return same;
}

/* ---- values ---- */

/* Whether a value is that output of an op of this kind. */
static bool is_output(const struct comparison *c, uint32_t value, int kind, const char *name) {
  return value && (int)term_of(c, value)->kind == kind &&
         pen_operand_of_value(value) == pen_signature_operand(pen_signature_of(kind), name);
}

static bool same_starts(const struct comparison *c, uint32_t wanted, uint32_t found) {
  return (!wanted || is_output(c, wanted, PEN_OP_STARTS, "starts")) &&
         (c->generation->kind == PEN_CACHED
              ? is_output(c, found, PEN_OP_POSITIONS, "starts")
              : !found || is_output(c, found, PEN_OP_STARTS, "starts"));
}

/* Whether all tokens have one row of a table of positions; where sequences have one token they may
 * have it by their starts, too. */
static bool have_one_row(const struct comparison *c, const struct pen_term *wanted,
                         const struct pen_term *found, bool has_starts) {
  return wanted->kind == PEN_OP_POSITION && dim_of(wanted, "sequence") == 1 &&
         dim_of(found, "sequence") == 1 && (c->evaluation->sequence > 1 || !has_starts);
}

/* Whether an attention over a cache has the slots of the op that gives its starts. */
static bool has_own_slots(const struct comparison *c, const struct pen_term *term) {
  const uint32_t slot = input_of(term, "slot"), starts = input_of(term, "starts");
  return !is_over_cache(term) || (is_output(c, slot, PEN_OP_POSITIONS, "slots") && starts &&
                                  pen_term_of_value(slot) == pen_term_of_value(starts));
}

static bool same_kind(const struct pen_term *wanted, const struct pen_term *found) {
  return wanted->kind == found->kind ||
         (wanted->kind == PEN_OP_ATTENTION && found->kind == PEN_OP_ATTENTION_CACHED) ||
         (wanted->kind == PEN_OP_ATTENTION_QKV && found->kind == PEN_OP_ATTENTION_CACHED_QKV);
}

static void open_pair(struct comparison *c, uint32_t wanted, uint32_t found) {
  PEN_RESERVE(c->open, c->open_count + 1);
  c->open[c->open_count++] = (struct value_pair){wanted, found};
}

/* Layers of experts, which may have other slices: what each reads is in one order. */
static bool compare_layers(struct comparison *c, uint32_t wanted, uint32_t found) {
  const struct pen_term *w = term_of(c, wanted), *f = term_of(c, found);
  uint32_t one[PEN_EXPERTS_INPUTS], other[PEN_EXPERTS_INPUTS];
  if (w->dtype != f->dtype || !same_ratio(c, w, f)) return differs(c, wanted, found);
  pen_experts_inputs(c->terms, wanted, one);
  pen_experts_inputs(c->terms, found, other);
  for (int k = 0; k < PEN_EXPERTS_INPUTS; k++) open_pair(c, one[k], other[k]);
  return true;
}

/* Compares two values but for what their ops read, which it opens, the first input last. */
static bool compare_one(struct comparison *c, uint32_t wanted, uint32_t found) {
  if (!wanted || !found || wanted == found) return wanted == found || differs(c, wanted, found);
  if (c->matched[found]) return c->matched[found] == wanted || differs(c, wanted, found);
  c->matched[found] = wanted;
  const struct pen_term *w = term_of(c, wanted), *f = term_of(c, found);
  if (pen_is_experts_layer(c->terms, wanted) && pen_is_experts_layer(c->terms, found))
    return compare_layers(c, wanted, found);
  if (w->kind >= PEN_OP_COUNT || f->kind >= PEN_OP_COUNT || !same_kind(w, f) ||
      strcmp(signature_of(w)->operand[pen_operand_of_value(wanted)].name,
             signature_of(f)->operand[pen_operand_of_value(found)].name) != 0 ||
      !same_numbers(c, w, f) || !has_own_slots(c, f))
    return differs(c, wanted, found);
  for (int k = signature_of(w)->input_count; k-- > 0;) {
    const char *name = signature_of(w)->operand[k].name;
    const uint32_t one = w->input[k], other = input_of(f, name);
    if (strcmp(name, "starts") != 0)
      open_pair(c, one, other);
    else if (have_one_row(c, w, f, one || other) ? one || other : !same_starts(c, one, other))
      return differs(c, wanted, found);
  }
  return true;
}

/* Compares two values and all that they are made of. No recursion: a stage may have any number of
 * layers, each of which reads the one before. */
static bool compare(struct comparison *c, uint32_t wanted, uint32_t found) {
  bool same = true;
  c->open_count = 0;
  for (open_pair(c, wanted, found); c->open_count && same;) {
    const struct value_pair next = c->open[--c->open_count];
    same = compare_one(c, next.wanted, next.found);
  }
  return same;
}

/* ---- logits ---- */

/* The logits of a split of the vocabulary: a value or, where the loss computes them, 0; the product
 * of `x` and `weight` (0: they are none). */
struct logits {
  uint32_t value, x, weight;
  int64_t first, vocab;
};

/* Logits that are no value are a product within the loss. */
static void find_product(const struct comparison *c, struct logits *logits) {
  const struct pen_term *product = logits->value ? term_of(c, logits->value) : NULL;
  if (!product || input_of(product, "a") || product->kind != PEN_OP_LINEAR) return;
  logits->x = input_of(product, "x");
  logits->weight = input_of(product, "w");
}

struct logits_list {
  struct logits *split;
  size_t count;
};

static void add_split(const struct comparison *c, struct logits_list *list,
                      const struct logits *split) {
  PEN_RESERVE(list->split, list->count + 1);
  list->split[list->count] = *split;
  find_product(c, &list->split[list->count++]);
}

/* Lists the logits that a loss reads, or that are joined, from the first split to the last. */
static void list_logits(const struct comparison *c, uint32_t value, struct logits_list *list) {
  const struct pen_term *term = value ? term_of(c, value) : NULL;
  if (!term || term->kind >= PEN_OP_COUNT) return;
  const struct logits split = {.value = input_of(term, "logits"),
                               .x = input_of(term, "x"),
                               .weight = input_of(term, "w"),
                               .first = dim_of(term, "first"),
                               .vocab = dim_of(term, "vocab")};
  if (term->kind == PEN_OP_SUM_ADD || term->kind == PEN_OP_LOGITS_JOIN)
    list_logits(c, input_of(term, "a"), list);
  if (term->kind == PEN_OP_SUM_ADD)
    list_logits(c, input_of(term, "b"), list);
  else if (split.value && term_of(c, split.value)->kind == PEN_OP_LOGITS_JOIN)
    list_logits(c, split.value, list);
  else
    add_split(c, list, &split);
}

/* The value of which `x` is a row of each sequence; 0: it is something else. */
static uint32_t selected_from(const struct comparison *c, uint32_t x) {
  const struct pen_term *select = term_of(c, x);
  return is_output(c, x, PEN_OP_INDEX_SELECT, "y") &&
                 is_output(c, input_of(select, "index"), PEN_OP_LAST_TOKENS, "index") &&
                 dim_of(select, "total") ==
                     dim_of(select, "rows") * (int64_t)c->generation->sequence
             ? input_of(select, "x")
             : 0;
}

/* Whether an op works row by row: it has no sequence, nor heads. */
static bool is_by_rows(const struct pen_term *term) {
  return term->kind < PEN_OP_COUNT && dim_of(term, "sequence") == 0 && dim_of(term, "batch") == 0 &&
         signature_of(term)->input_count > 0 && !signature_of(term)->is_data;
}

/* Whether two ops after the products are the same, but for the value that they read first. Their
 * rows have a ratio of their own. */
static bool same_row_op(struct comparison *c, const struct pen_term *wanted,
                        const struct pen_term *found) {
  uint64_t rows[2];
  memcpy(rows, c->rows, sizeof rows);
  memset(c->rows, 0, sizeof c->rows);
  bool same = wanted->kind == found->kind && is_by_rows(wanted) && same_numbers(c, wanted, found);
  for (int k = 1; same && k < signature_of(wanted)->input_count; k++)
    same = wanted->input[k] == found->input[k];
  memcpy(c->rows, rows, sizeof rows);
  return same;
}

/* Goes back from the logits to the products of which ops make them. */
static bool find_products(struct comparison *c, struct logits *wanted, struct logits *found) {
  while (wanted->value && found->value && !wanted->x && !found->x) {
    const struct pen_term *w = term_of(c, wanted->value), *f = term_of(c, found->value);
    if (w->kind >= PEN_OP_COUNT || !same_row_op(c, w, f)) return false;
    wanted->value = w->input[0];
    found->value = f->input[0];
    find_product(c, wanted);
    find_product(c, found);
  }
  return true;
}

static bool same_product(const struct comparison *c, uint32_t wanted, uint32_t found) {
  const struct pen_term *w = term_of(c, wanted), *f = term_of(c, found);
  return w->kind == f->kind && w->dtype == f->dtype;
}

static bool compare_logits(struct comparison *c, struct logits *wanted, struct logits *found) {
  if (!find_products(c, wanted, found) || !wanted->x || !found->x || !found->value ||
      wanted->first != found->first || wanted->vocab != found->vocab ||
      (wanted->value && !same_product(c, wanted->value, found->value)))
    return differs(c, wanted->value, found->value);
  return compare(c, wanted->weight, found->weight) &&
         compare(c, wanted->x, selected_from(c, found->x));
}

static bool compare_losses(struct comparison *c, uint32_t wanted, uint32_t found) {
  struct logits_list one = {0}, other = {0};
  list_logits(c, wanted, &one);
  list_logits(c, found, &other);
  bool same = one.count == other.count || differs(c, wanted, found);
  for (size_t n = 0; n < one.count && same; n++)
    same = compare_logits(c, &one.split[n], &other.split[n]);
  pen_free(one.split);
  pen_free(other.split);
  return same;
}

#define PROBLEM(s, action, ...) \
  pen_problem_note((s)->context->checked->problem, (s)->context->rank, action, __VA_ARGS__)

/* No op of the stage reads later rows, or those of other sequences. */
static bool check_rows(const struct pen_stage_terms *s, const struct pen_forward *made,
                       uint32_t action) {
  for (size_t n = 0; n < s->forward_count; n++) {
    const uint32_t kind = s->terms->term[s->forward[n]].kind;
    if (kind < PEN_OP_COUNT && pen_op_mixes_rows((int)kind))
      return PROBLEM(s, action,
                     "generated: stage %u of %s has %s, of which a row depends on later ones, or "
                     "on those of other sequences",
                     s->stage, made->profile->name, pen_signature_of((int)kind)->kind);
  }
  return true;
}

/* Whether a known term has the product of the same two values: TOKEN_LOGP has it within. */
static bool is_known_product(const struct pen_terms *terms, const struct pen_term *product,
                             uint32_t known_terms) {
  for (uint32_t n = 0; n < known_terms; n++) {
    const struct pen_term *known = &terms->term[n];
    if ((known->kind == PEN_OP_TOKEN_LOGP ||
         (known->kind == PEN_OP_LINEAR && !input_of(known, "a"))) &&
        input_of(known, "x") == input_of(product, "x") &&
        input_of(known, "w") == input_of(product, "w"))
      return true;
  }
  return false;
}

bool pen_check_scores(const struct pen_stage_terms *s, const struct pen_forward *evaluation,
                      const struct pen_forward *made, uint32_t known_terms, uint32_t action) {
  const struct pen_term *loss = made->loss ? &s->terms->term[pen_term_of_value(made->loss)] : NULL;
  if (!check_rows(s, made, action)) return false;
  if (evaluation->output != made->output)
    return PROBLEM(
        s, action, "generated: the output of stage %u in %s is not that in %s: %s", s->stage,
        made->profile->name, evaluation->profile->name,
        pen_term_difference(s->context->plan, s->terms, evaluation->output, made->output));
  if (!loss) return true;
  const bool is_head = loss->kind == PEN_OP_HEAD_LOSS;
  const uint32_t read = loss->input[0];
  if ((loss->kind != PEN_OP_CROSS_ENTROPY && !is_head) || !read)
    return PROBLEM(s, action, "generated: %s ends with %s, not with the logits of texts",
                   made->profile->name, pen_term_text(s->context->plan, s->terms, made->loss));
  const struct pen_term *product = is_head ? loss : &s->terms->term[pen_term_of_value(read)];
  const bool multiplies = is_head || (product->kind == PEN_OP_LINEAR && !input_of(product, "a"));
  /* Equal values are one term: those that the evaluation has made were known before. */
  return (!is_head && pen_term_of_value(read) < known_terms) ||
         (multiplies && is_known_product(s->terms, product, known_terms)) ||
         PROBLEM(s, action, "generated: %s has logits of %s, which %s does not make",
                 made->profile->name, pen_term_text(s->context->plan, s->terms, read),
                 evaluation->profile->name);
}

bool pen_check_generation(const struct pen_stage_terms *s, const struct pen_forward *evaluation,
                          const struct pen_forward *made, uint32_t action) {
  if (!check_rows(s, made, action)) return false;
  struct comparison c = {.terms = s->terms,
                         .evaluation = evaluation->profile,
                         .generation = made->profile,
                         .matched = pen_new(pen_terms_past_value(s->terms), sizeof *c.matched)};
  const bool same = compare(&c, evaluation->output, made->output) &&
                    compare_losses(&c, evaluation->loss, made->loss);
  pen_free(c.matched);
  pen_free(c.open);
  return same || PROBLEM(s, action,
                         "generated: stage %u of %s does not compute the rows of %s: it has "
                         "%s for %s",
                         s->stage, made->profile->name, evaluation->profile->name,
                         pen_term_text(s->context->plan, s->terms, c.found),
                         pen_term_text(s->context->plan, s->terms, c.wanted));
}
