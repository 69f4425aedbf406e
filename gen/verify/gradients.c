/* gradients.c: does every stage compute the gradients of its own forward?
 *
 * The programs of a stage run over terms (stage_terms.h), once for each set of programs that a
 * microbatch may take: F and B, or F, I and W. The gradients that they must give are derived from
 * the forward terms by the rules of ops.def (derivative.h). The rules here, with
 * which messages begin:
 *
 *   derived   what a program adds to the gradient of a weight is the gradient of its forward, from
 *             the weight's only user, or from its users in the order of the derivation where I (or
 *             B) adds them; and it is added once for each microbatch. Embedding and head
 *             of a tied weight have a gradient each
 *   passed    what a stage sends back is the gradient of its input
 *   scaled    the gradient of the loss is scaled once: by the share of the same TARGETS whose
 *             targets the loss has (of a plan whose loss is their sum, 1), or by 1, if it has none
 *             and the loss is a sum. Of losses with shares of their own each loss and its gradient
 *             have one of these. No other op has a share or a number that its forward does not
 *             have, since all others are derived. The losses of routers: router_losses.c
 *   same      the forward that is trained is the one that an evaluation of the same sequence runs
 *   generated the rows of a step of generation are those of an evaluation (generation.h)
 *
 * By messages.c and memory.c a stage receives what its neighbour sends. So by induction over the
 * stages, from the last, each microbatch adds the derivative of its own scaled loss. That each
 * microbatch and replica is added once, and in which order, is in gradient_sums.c. */
#include <string.h>

#include "gen/base/arena.h"
#include "gen/model/op_signature.h"
#include "gen/verify/derivative.h"
#include "gen/verify/generation.h"
#include "gen/verify/internal.h"
#include "gen/verify/router_losses.h"
#include "gen/verify/routes.h"
#include "gen/verify/tensor_ranks.h"
#include "gen/verify/splits.h"
#include "gen/verify/term_text.h"
#include "runtime/plan/plan.h"

/* ---- the programs that a microbatch takes ---- */

static bool same_programs(const struct pen_stage_programs *a, const struct pen_stage_programs *b) {
  return a->stage == b->stage && memcmp(a->program, b->program, sizeof a->program) == 0;
}

void pen_list_stage_programs(struct pen_check_context *c) {
  for (uint32_t stage = 0; stage < c->stage_count; stage++)
    for (uint32_t microbatch = 0; microbatch < c->microbatch_count; microbatch++) {
      const struct pen_action *actions = c->action[c->rank_of[stage]];
      struct pen_stage_programs found = {.stage = stage};
      for (int kind = PEN_F; kind <= PEN_W; kind++) {
        const uint32_t action = pen_action_position(c, kind, stage, microbatch);
        found.action[kind] = action;
        found.program[kind] = action == PEN_NONE ? PEN_NONE : actions[action].program;
      }
      size_t n = c->stage_programs_count;
      while (n > 0 && c->stage_programs[n - 1].stage == stage &&
             !same_programs(&c->stage_programs[n - 1], &found))
        n--;
      if (n > 0 && c->stage_programs[n - 1].stage == stage) continue;
      PEN_RESERVE(c->stage_programs, c->stage_programs_count + 1);
      c->stage_programs[c->stage_programs_count++] = found;
    }
}

/* ---- one set of programs ---- */

static const char *weight_name(const struct pen_stage_terms *s, uint32_t weight) {
  return pen_gradient_name(s->context->plan, weight);
}

#define PROBLEM(s, index, ...) \
  pen_problem_note((s)->context->checked->problem, (s)->context->rank, index, __VA_ARGS__)

/* What the step keeps, one after the other. */
static uint32_t kept_values(const struct pen_stage_terms *s) {
  const struct pen_rank_program *tables = s->context->tables;
  uint32_t kept = 0;
  for (uint32_t t = 0; t < tables->tensor_count && s->context->plan->output_count; t++) {
    if (tables->tensors[t].base != PEN_BASE_RESULT || !pen_stage_value(s, t)) continue;
    const struct pen_term term = {.kind = PEN_TERM_KEPT, .input = {kept, pen_stage_value(s, t)}};
    kept = pen_term_output(pen_term_add(s->terms, &term), 0);
  }
  return kept;
}

/* Runs the programs of a set, and finds what its forward makes. `takes_run`: splits.h. */
static bool run_programs(struct pen_stage_terms *s, struct pen_stage_programs *set, bool takes_run,
                         struct pen_forward *result) {
  if (!pen_stage_terms_start(s, set->stage)) return false;
  for (int kind = PEN_F; kind <= PEN_W; kind++) /* B, or I and then W */
    if (set->program[kind] != PEN_NONE &&
        !pen_stage_terms_run(s, set->program[kind], set->action[kind]))
      return false;
  if (!pen_check_routes(s, set->action[PEN_F])) return false;
  if (!pen_check_split_terms(s, set->action[PEN_F], takes_run, &set->gives_run)) return false;
  const uint32_t output = s->context->profile->stages[set->stage].output;
  *result = (struct pen_forward){.profile = s->context->profile,
                                 .output = output == PEN_NONE ? 0 : pen_stage_value(s, output),
                                 .loss = s->loss,
                                 .kept = kept_values(s)};
  return true;
}

/* The rule "derived", for what the programs add. */
static bool check_contributions(const struct pen_stage_terms *s, const struct pen_derivative *d,
                                uint32_t action) {
  const struct pen_plan *plan = s->context->plan;
  for (size_t n = 0; n < s->contribution_count; n++) {
    const struct pen_contribution *added = &s->contribution[n];
    const size_t index = pen_gradient_index(s->context, added->weight);
    const char *kind = pen_signature_of(s->context->tables->ops[added->op].kind)->kind;
    const uint32_t wanted = d->first[index] ? d->part[d->first[index] - 1].value : 0;
    if (d->users[index] > 1 && d->has_w_user[index])
      return PROBLEM(s, action,
                     "derived: %u ops of its forward read %s: their gradients have no order",
                     d->users[index], weight_name(s, added->weight));
    if (wanted != added->value)
      return PROBLEM(s, action, "derived: op %u (%s) adds a wrong gradient to %s: %s", added->op,
                     kind, weight_name(s, added->weight),
                     pen_term_difference(plan, s->terms, wanted, added->value));
    d->first[index] = d->part[d->first[index] - 1].next; /* added */
  }
  return true;
}

/* The rule "derived", for the weights that the stage has or reads. */
static bool check_complete(const struct pen_stage_terms *s, const struct pen_derivative *d,
                           uint32_t action) {
  const struct pen_rank_context *b = s->context;
  for (uint32_t n = 0; n < b->own_weight_count + b->plan->tie_count; n++) {
    const bool of_head = n >= b->own_weight_count;
    const uint32_t number =
        of_head ? b->plan->weight_count + (n - b->own_weight_count) : b->own_weight[n];
    if (d->first[n])
      return PROBLEM(s, action,
                     "derived: the gradient of %s is not added: its forward depends on it",
                     weight_name(s, number));
    if (of_head || d->users[n] || b->plan->weights[number].stage != s->stage) continue;
    if (!b->plan->weights[number].frozen)
      return PROBLEM(s, action,
                     "derived: %s is trained, but the forward of its stage does not depend on it",
                     weight_name(s, number));
  }
  return true;
}

/* The rule "passed". */
static bool check_input_gradient(const struct pen_stage_terms *s, const struct pen_derivative *d,
                                 uint32_t action) {
  const struct pen_stage *stage = &s->context->profile->stages[s->stage];
  if (stage->input_gradient == PEN_NONE) return true;
  const uint32_t wanted = pen_derivative_input(d), made = pen_stage_value(s, stage->input_gradient);
  return made == wanted ||
         PROBLEM(s, action, "passed: %s is not the gradient of the input of stage %u: %s",
                 s->context->tables->tensors[stage->input_gradient].name, s->stage,
                 pen_term_difference(s->context->plan, s->terms, wanted, made));
}

static const struct pen_term *term_of(const struct pen_stage_terms *s, uint32_t value) {
  return &s->terms->term[pen_term_of_value(value)];
}

/* The rule "scaled", of losses with shares of their own: each has its share as a factor, and so has
 * the gradient that it makes. */
static bool check_loss_shares(const struct pen_stage_terms *s, uint32_t value, uint32_t action) {
  const struct pen_term *sum = term_of(s, value);
  if (sum->kind != PEN_OP_ADD_LOSS)
    return PROBLEM(s, action, "scaled: the losses of the plan have shares, but %s has none",
                   pen_term_text(s->context->plan, s->terms, value));
  const struct pen_term *loss = term_of(s, sum->input[0]);
  const struct pen_signature *signature = pen_signature_of((int)loss->kind);
  const int share = pen_signature_operand(signature, "share"),
            scale = pen_signature_real(signature, "scale");
  if (share < 0 || loss->input[share] != sum->input[1] ||
      term_of(s, sum->input[1])->kind != PEN_OP_SHARE)
    return PROBLEM(s, action, "scaled: %s and its gradient have different shares, or none",
                   signature->kind);
  if (scale >= 0 && !(loss->real[scale] >= 1.0 && loss->real[scale] <= 1.0))
    return PROBLEM(s, action, "scaled: %s scales its gradient by %g, too", signature->kind,
                   loss->real[scale]);
  return !sum->input[2] || check_loss_shares(s, sum->input[2], action);
}

/* The rule "scaled", of one loss, or of the losses of all splits. */
static bool check_loss_scale(const struct pen_stage_terms *s, uint32_t value, uint32_t action) {
  const struct pen_plan *plan = s->context->plan;
  const struct pen_term *loss = &s->terms->term[pen_term_of_value(value)];
  const struct pen_signature *signature = pen_signature_of((int)loss->kind),
                             *data = pen_signature_of(PEN_OP_TARGETS);
  if (loss->kind == PEN_OP_SUM_ADD)
    return check_loss_scale(s, loss->input[0], action) &&
           check_loss_scale(s, loss->input[1], action);
  if (loss->kind == PEN_OP_ALL_GATHER_PARTIAL) return check_loss_scale(s, loss->input[0], action);
  const int share = pen_signature_operand(signature, "share"),
            targets = pen_signature_operand(signature, "targets"),
            scale = pen_signature_real(signature, "scale");
  const bool is_sum = share < 0 || !loss->input[share];
  if (is_sum && (plan->loss_is_mean || scale < 0))
    return PROBLEM(s, action, "scaled: the loss of the plan is a mean, but %s gives a sum",
                   signature->kind);
  if (is_sum)
    return (loss->real[scale] >= 1.0 && loss->real[scale] <= 1.0) ||
           PROBLEM(s, action, "scaled: %s scales the gradient of a sum by %g", signature->kind,
                   loss->real[scale]);
  if (targets < 0)
    return PROBLEM(s, action, "scaled: %s has a share, and no targets", signature->kind);
  const uint32_t term = pen_term_of_value(loss->input[share]);
  return (s->terms->term[term].kind == PEN_OP_TARGETS &&
          loss->input[share] == pen_term_output(term, pen_signature_operand(data, "share")) &&
          loss->input[targets] == pen_term_output(term, pen_signature_operand(data, "targets"))) ||
         PROBLEM(s, action, "scaled: %s scales by another share than that of its targets",
                 signature->kind);
}

/* The rule "scaled". */
static bool check_scale(const struct pen_stage_terms *s, uint32_t action) {
  if (s->stage + 1 != s->context->checked->stage_count) return true;
  return s->context->plan->share_count > 0 ? check_loss_shares(s, s->loss, action)
                                           : check_loss_scale(s, s->loss, action);
}

static bool check_backward(const struct pen_stage_terms *s, const struct pen_stage_programs *set) {
  struct pen_derivative d;
  const bool whole = set->action[PEN_B] != PEN_NONE;
  const uint32_t of_input = set->action[whole ? PEN_B : PEN_I],
                 of_weights = set->action[whole ? PEN_B : PEN_W];
  if (!check_scale(s, of_input) || !pen_check_router_loss_terms(s, of_input)) return false;
  pen_derivative_open(&d, s);
  if (d.lost)
    return PROBLEM(s, of_input,
                   "derived: a value that %s reads has other users, but no op adds their gradients",
                   pen_signature_of((int)s->terms->term[d.lost - 1].kind)->kind);
  bool fine = check_input_gradient(s, &d, of_input) && check_contributions(s, &d, of_weights) &&
              check_complete(s, &d, of_weights);
  pen_derivative_close(&d);
  return fine;
}

/* ---- a stage in all profiles ---- */

/* The sets of programs of one profile, stage by stage. */
struct profile_stages {
  const struct pen_check_context *c;
  struct pen_stage_terms terms; /* of the rank of the stage */
  size_t next;                  /* into c->stage_programs */
};

/* The rule "same": forwards of equal sequences, of the profiles that compute losses. `known`: what
 * those before have made. */
static bool check_same(const struct pen_stage_terms *s, const struct pen_forward *known,
                       size_t known_count, const struct pen_forward *made, uint32_t action) {
  for (size_t n = 0; n < known_count; n++) {
    const struct pen_forward *other = &known[n];
    if (other->profile->sequence != made->profile->sequence) continue;
    const bool outputs = other->output != made->output;
    if (other->kept != made->kept)
      return PROBLEM(s, action, "same: stage %u keeps other values in %s than in %s", s->stage,
                     made->profile->name, other->profile->name);
    if (!outputs && other->loss == made->loss) continue;
    return PROBLEM(
        s, action, "same: the forward of stage %u in %s is not that in %s: %s", s->stage,
        made->profile->name, other->profile->name,
        pen_term_difference(s->context->plan, s->terms, outputs ? other->output : other->loss,
                            outputs ? made->output : made->loss));
  }
  return true;
}

/* The rule "generated", of a profile that computes no loss that counts. Not with several tensor
 * ranks: generation does not join their logits. */
static bool check_generated(const struct pen_stage_terms *s, const struct pen_forward *known,
                            size_t known_count, const struct pen_forward *made, uint32_t action) {
  const bool whole = pen_group_size(s->context->plan, PEN_TENSOR) == 1;
  const struct pen_forward *evaluation = NULL;
  for (size_t n = 0; n < known_count && whole; n++)
    if (known[n].profile->kind == PEN_SCORE || (known[n].profile->kind == PEN_EVAL && !evaluation))
      evaluation = &known[n];
  return !evaluation || pen_check_generation(s, evaluation, made, action);
}

/* The same rule, of the profile of score: the evaluation of its sequence is known. */
static bool check_scored(const struct pen_stage_terms *s, const struct pen_forward *known,
                         size_t known_count, const struct pen_forward *made, uint32_t known_terms,
                         uint32_t action) {
  for (size_t n = 0; n < known_count; n++)
    if (known[n].profile->kind == PEN_EVAL && known[n].profile->sequence == made->profile->sequence)
      return pen_check_scores(s, &known[n], made, known_terms, action);
  return PROBLEM(s, action, "generated: %s has no evaluation beside it", made->profile->name);
}

static bool computes_losses(const struct pen_check_context *c) {
  return c->profile_kind == PEN_TRAIN || c->profile_kind == PEN_EVAL;
}

/* All sets of programs of a stage in one profile. */
static bool check_profile_stage(struct profile_stages *p, uint32_t stage, struct pen_terms *terms,
                                struct pen_forward *known, size_t *known_count) {
  const struct pen_rank_context *context = &p->c->contexts[p->c->rank_of[stage]];
  struct pen_stage_terms *s = &p->terms;
  struct pen_forward result;
  if (s->context != context) {
    pen_stage_terms_close(s);
    pen_stage_terms_open(s, context, terms);
  }
  while (p->next < p->c->stage_programs_count && p->c->stage_programs[p->next].stage < stage)
    p->next++;                  /* of stages in which the tensor rank is like the first */
  size_t others = *known_count; /* then with the first set of its own, too */
  const bool takes_run = p->next > 0 && p->c->stage_programs[p->next - 1].gives_run;
  for (; p->next < p->c->stage_programs_count && p->c->stage_programs[p->next].stage == stage;
       p->next++) {
    struct pen_stage_programs *set = &p->c->stage_programs[p->next];
    const uint32_t known_terms = terms->count;
    const bool scores = p->c->profile_kind == PEN_SCORE;
    if (!run_programs(s, set, takes_run, &result)) return false;
    if (!computes_losses(p->c) && !scores) {
      if (!check_generated(s, known, others, &result, set->action[PEN_F])) return false;
      continue;
    }
    if (scores ? !check_scored(s, known, others, &result, known_terms, set->action[PEN_F])
               : !check_same(s, known, others, &result, set->action[PEN_F]))
      return false;
    if (p->c->profile_kind == PEN_TRAIN && !check_backward(s, set)) return false;
    known[*known_count] = result;
    others = *known_count + 1;
  }
  *known_count = others;
  return true;
}

/* Whether a tensor rank differs from the first in the rank of a stage. */
static bool differs(const struct pen_check_context *checked, uint32_t profile_count, uint32_t stage,
                    uint32_t tensor_rank) {
  bool any = false;
  for (uint32_t n = 0; n < profile_count; n++)
    any = any ||
          pen_tensor_rank_differs(&checked[n].contexts[checked[n].rank_of[stage]], tensor_rank);
  return any;
}

/* All stages, or those of ranks in which a tensor rank differs from the first. */
static bool check_stages(const struct pen_check_context *checked, uint32_t profile_count,
                         uint32_t tensor_rank) {
  struct profile_stages *profile = pen_new(profile_count, sizeof *profile);
  struct pen_forward *known = pen_new(profile_count, sizeof *known);
  struct pen_terms terms = {0};
  bool fine = true;
  for (uint32_t n = 0; n < profile_count; n++) profile[n].c = &checked[n];
  for (uint32_t stage = 0; stage < checked[0].stage_count && fine; stage++) {
    size_t known_count = 0;
    if (tensor_rank > 0 && !differs(checked, profile_count, stage, tensor_rank)) continue;
    pen_terms_clear(&terms);
    for (uint32_t n = 0; n < profile_count && fine; n++)
      fine = check_profile_stage(&profile[n], stage, &terms, known, &known_count);
  }
  for (uint32_t n = 0; n < profile_count; n++) pen_stage_terms_close(&profile[n].terms);
  pen_terms_free(&terms);
  pen_free(known);
  pen_free(profile);
  return fine;
}

/* The ranks of a profile as a tensor rank sees them, where it differs from the first. */
static bool make_contexts(const struct pen_check_context *checked, uint32_t tensor_rank,
                          struct pen_rank_context *contexts) {
  for (uint32_t rank = 0; rank < checked->rank_count; rank++) {
    contexts[rank] = checked->contexts[rank];
    if (pen_tensor_rank_differs(&contexts[rank], tensor_rank) &&
        !pen_tensor_rank_context(&checked->contexts[rank], tensor_rank, &contexts[rank]))
      return false;
  }
  return true;
}

static void free_contexts(const struct pen_check_context *checked) {
  for (uint32_t rank = 0; rank < checked->rank_count; rank++)
    if (checked->contexts[rank].tensor_rank > 0)
      pen_tensor_rank_context_free(&checked->contexts[rank]);
  pen_free((void *)(uintptr_t)checked->contexts);
}

/* The same for a tensor rank after the first. */
static bool check_tensor_rank(const struct pen_check_context *checked, uint32_t profile_count,
                              uint32_t tensor_rank) {
  struct pen_check_context *own = pen_new(profile_count, sizeof *own);
  bool fine = true;
  for (uint32_t n = 0; n < profile_count && fine; n++) {
    struct pen_rank_context *contexts = pen_new(checked[n].rank_count, sizeof *contexts);
    fine = make_contexts(&checked[n], tensor_rank, contexts);
    own[n] = checked[n];
    own[n].contexts = contexts;
  }
  if (!fine || !check_stages(own, profile_count, tensor_rank)) return false;
  for (uint32_t n = 0; n < profile_count; n++) free_contexts(&own[n]);
  pen_free(own);
  return true;
}

bool pen_check_gradients(const struct pen_check_context *checked, uint32_t profile_count) {
  bool fine = check_stages(checked, profile_count, 0);
  const uint32_t ranks = pen_group_size(checked[0].contexts[0].plan, PEN_TENSOR);
  for (uint32_t t = 1; t < ranks && fine; t++) fine = check_tensor_rank(checked, profile_count, t);
  return fine;
}
