/* router_losses.c: the losses of routers (plan.def, `router_losses`).
 *
 * Of each layer with experts they are two entries of a row of the loss table, which overlaps
 * nothing else (persistent.c). The rules here, with which messages begin:
 *
 *   kept     in a profile that trains, F of the layer's stage writes both entries of its
 *            microbatch, once, and no other program does; other profiles have none
 *   scaled   they are those of the router's own logits and choices, of each sequence or of the
 *            microbatch, with the factors of the plan over the microbatches of the step, of all
 *            replicas; if the plan balances steps, with counts of choices, else with none
 *   updated  counts of choices, which a step leaves to the next, are of what such a loss reads, and
 *            nothing else; the steps sign(mean - count) of what ROUTE reads as its bias
 *
 * That their gradient is added is derived (gradients.c). */
#include "gen/verify/router_losses.h"

#include "gen/model/op_signature.h"
#include "gen/verify/internal.h"
#include "runtime/plan/losses.h"
#include "runtime/plan/plan.h"

#define PROBLEM(b, action, ...) \
  pen_problem_note((b)->checked->problem, (b)->rank, action, __VA_ARGS__)

/* ---- kept ---- */

static uint64_t row_bytes(const struct pen_plan *plan) {
  return (uint64_t)plan->loss_count * sizeof(double);
}

static bool trains(const struct pen_rank_context *b) { return b->profile->kind == PEN_TRAIN; }

static bool is_of_rank(const struct pen_rank_context *b, uint32_t row) {
  return b->checked->rank_of[pen_loss_row_stage(b->plan, row)] == b->rank;
}

bool pen_check_router_loss_rows(const struct pen_plan *plan, struct pen_problem *problem) {
  for (uint32_t n = 0; n < plan->router_loss_count; n++) {
    const struct pen_router_loss *loss = &plan->router_losses[n];
    if (loss->stage >= plan->stage_count || (n && loss->stage < loss[-1].stage) ||
        (n && loss->layer <= loss[-1].layer))
      return pen_problem_note(problem, PEN_NONE, PEN_NONE,
                              "kept: the losses of the router of layer %u are of stage %u, after "
                              "those of other layers and stages",
                              loss->layer, loss->stage);
  }
  return true;
}

/* The rank's rows are in one table. */
static bool check_places(const struct pen_rank_context *b) {
  const uint64_t table = pen_loss_table_offset(b->plan, b->profile, b->rank);
  for (uint32_t row = 0; row < pen_loss_rows(b->plan); row++)
    if (is_of_rank(b, row) && pen_loss_row_offset(b->plan, row) != table + row * row_bytes(b->plan))
      return PROBLEM(b, PEN_NONE, "kept: row %u of the loss table is not at %llu", row,
                     (unsigned long long)(table + row * row_bytes(b->plan)));
  return true;
}

/* Whether the op writes the two rows of the n-th router. */
static bool writes_rows(const struct pen_rank_context *b, const struct pen_op *op, uint32_t n) {
  const struct pen_signature *signature = pen_signature_of(op->kind);
  const uint64_t first = (1 + 2 * (uint64_t)n) * row_bytes(b->plan);
  if (op->kind != PEN_OP_ROUTER_LOSS) return false;
  for (int k = 0; k < 2; k++) {
    const uint32_t tensor = op->operand[signature->input_count + k];
    if (tensor == PEN_NONE) return false;
    const struct pen_tensor *t = &b->tables->tensors[tensor];
    if (t->base != PEN_BASE_LOSS || t->offset != first + (uint64_t)k * row_bytes(b->plan))
      return false;
  }
  return true;
}

/* How many operands of an op are in rows of routers. */
static uint32_t row_operands(const struct pen_rank_context *b, const struct pen_op *op) {
  uint32_t count = 0;
  for (int k = 0; k < pen_signature_of(op->kind)->operand_count; k++) {
    if (op->operand[k] == PEN_NONE) continue;
    const struct pen_tensor *t = &b->tables->tensors[op->operand[k]];
    count += t->base == PEN_BASE_LOSS && t->offset > 0;
  }
  return count;
}

static uint32_t next_of_stage(const struct pen_plan *plan, uint32_t stage, uint32_t n) {
  while (n < plan->router_loss_count && plan->router_losses[n].stage != stage) n++;
  return n;
}

/* A program writes all rows of its stage, rising, or none. */
static bool check_program(const struct pen_rank_context *b, const struct pen_program *program) {
  const struct pen_plan *plan = b->plan;
  const bool writes = trains(b) && program->kind == PEN_F;
  uint32_t n = writes ? next_of_stage(plan, program->stage, 0) : plan->router_loss_count;
  for (uint32_t i = program->first_op; i < program->first_op + program->op_count; i++) {
    const struct pen_op *op = &b->tables->ops[i];
    if (row_operands(b, op) == 0) continue;
    if (n == plan->router_loss_count || row_operands(b, op) != 2 || !writes_rows(b, op, n))
      return PROBLEM(b, PEN_NONE,
                     "kept: op %u (%s) writes losses of a router, but not those of the next layer "
                     "of F of stage %u",
                     i, pen_signature_of(op->kind)->kind, program->stage);
    n = next_of_stage(plan, program->stage, n + 1);
  }
  return n == plan->router_loss_count ||
         PROBLEM(b, PEN_NONE,
                 "kept: F of stage %u does not write the losses of the router of layer %u",
                 program->stage, plan->router_losses[n].layer);
}

/* An action has the entries of its microbatch. */
static bool check_action(const struct pen_rank_context *b, uint32_t index) {
  const struct pen_plan *plan = b->plan;
  const struct pen_action *action = &b->tables->actions[index];
  const uint32_t n = next_of_stage(plan, action->stage, 0);
  if (action->kind != PEN_F || n == plan->router_loss_count || !trains(b)) return true;
  const uint64_t wanted = pen_loss_table_offset(plan, b->profile, b->rank) +
                          action->microbatch * sizeof(double),
                 found = b->tables->frames[action->frame].base[PEN_BASE_LOSS];
  return found == wanted ||
         PROBLEM(b, index, "kept: the losses of its microbatch are at %llu, not at %llu",
                 (unsigned long long)found, (unsigned long long)wanted);
}

bool pen_check_router_losses(const struct pen_rank_context *b) {
  if (!check_places(b)) return false;
  for (uint32_t p = 0; p < b->tables->program_count; p++)
    if (!check_program(b, &b->tables->programs[p])) return false;
  for (uint32_t n = 0; n < b->tables->action_count; n++)
    if (!check_action(b, n)) return false;
  return true;
}

/* ---- scaled ---- */

static int64_t dim_of(const struct pen_term *term, const char *name) {
  return term->dim[pen_signature_dim(pen_signature_of((int)term->kind), name)];
}

static uint32_t input_of(const struct pen_term *term, const char *name) {
  return term->input[pen_signature_operand(pen_signature_of((int)term->kind), name)];
}

/* Whether a loss is of the logits and choices of a route. */
static bool is_of_route(const struct pen_terms *terms, const struct pen_term *loss,
                        uint32_t route) {
  static const char *const dims[] = {"rows", "experts", "choices", "sigmoid"};
  const struct pen_signature *signature = pen_signature_of(PEN_OP_ROUTE);
  const struct pen_term *made = &terms->term[route];
  bool same = input_of(loss, "logits") == input_of(made, "logits") &&
              input_of(loss, "expert") ==
                  pen_term_output(route, pen_signature_operand(signature, "expert"));
  for (size_t n = 0; n < sizeof dims / sizeof *dims; n++)
    same = same && dim_of(loss, dims[n]) == dim_of(made, dims[n]);
  return same;
}

static bool is_factor(double found, double wanted) { return found >= wanted && found <= wanted; }

static bool has_factors(const struct pen_stage_terms *s, const struct pen_term *loss,
                        const struct pen_router_loss *row) {
  const struct pen_profile *profile = s->context->profile;
  const double share = 1.0 / ((double)profile->microbatch_count *
                              (double)pen_group_size(s->context->plan, PEN_DATA));
  const int64_t sequences = row->by_sequence ? dim_of(loss, "rows") / profile->sequence : 1;
  return is_factor(loss->real[0], row->aux * share) && is_factor(loss->real[1], row->z * share) &&
         dim_of(loss, "sequences") == sequences &&
         (input_of(loss, "counts") != 0) == row->by_step && !(row->by_step && row->by_sequence);
}

/* The next term of a kind, from the n-th of the forward on, or forward_count. */
static size_t next_of_kind(const struct pen_stage_terms *s, size_t n, int kind) {
  while (n < s->forward_count && (int)s->terms->term[s->forward[n]].kind != kind) n++;
  return n;
}

/* ---- updated ---- */

/* What updates the weight that a forward op reads as that operand: an optimizer of its own, or
 * PEN_OPTIMIZERS, any other. */
static int updates_wanted(int kind, int operand) {
  const struct pen_signature *signature = pen_signature_of(kind);
  if (kind == PEN_OP_ROUTE && operand == pen_signature_operand(signature, "bias"))
    return PEN_OPTIMIZER_BALANCE;
  if (kind == PEN_OP_ROUTER_LOSS && operand == pen_signature_operand(signature, "counts"))
    return PEN_OPTIMIZER_CHOICES;
  return PEN_OPTIMIZERS;
}

static int updates_of(const struct pen_weight *weight) {
  const int optimizer = weight->optimizer;
  return optimizer == PEN_OPTIMIZER_BALANCE || optimizer == PEN_OPTIMIZER_CHOICES ? optimizer
                                                                                  : PEN_OPTIMIZERS;
}

static bool check_operand(const struct pen_stage_terms *s, const struct pen_term *reader,
                          int operand, uint32_t action) {
  const uint32_t value = reader->input[operand];
  const struct pen_term *made = &s->terms->term[pen_term_of_value(value)];
  const int wanted = updates_wanted((int)reader->kind, operand);
  const struct pen_signature *signature = pen_signature_of((int)reader->kind);
  if (!value) return true;
  if (made->kind != PEN_TERM_WEIGHT)
    return wanted != PEN_OPTIMIZER_CHOICES ||
           PROBLEM(s->context, action, "updated: %s reads counts of choices that no step has left",
                   signature->kind);
  const struct pen_weight *weight = &s->context->plan->weights[made->dim[0]];
  const int has = updates_of(weight);
  const bool is_frozen = weight->frozen && wanted != PEN_OPTIMIZER_CHOICES; /* a bias, too */
  return has == wanted || (is_frozen && has != PEN_OPTIMIZER_CHOICES) ||
         PROBLEM(s->context, action,
                 "updated: %s is the %s of %s, but what updates it is not of it", weight->name,
                 signature->operand[operand].name, signature->kind);
}

static bool check_updates(const struct pen_stage_terms *s, uint32_t action) {
  for (size_t n = 0; n < s->forward_count; n++) {
    const struct pen_term *reader = &s->terms->term[s->forward[n]];
    const int inputs =
        reader->kind < PEN_OP_COUNT ? pen_signature_of((int)reader->kind)->input_count : 0;
    for (int k = 0; k < inputs; k++)
      if (!check_operand(s, reader, k, action)) return false;
  }
  return true;
}

bool pen_check_router_loss_terms(const struct pen_stage_terms *s, uint32_t action) {
  const struct pen_plan *plan = s->context->plan;
  size_t route = next_of_kind(s, 0, PEN_OP_ROUTE), loss = next_of_kind(s, 0, PEN_OP_ROUTER_LOSS);
  if (!check_updates(s, action)) return false;
  for (uint32_t n = next_of_stage(plan, s->stage, 0); n < plan->router_loss_count;
       n = next_of_stage(plan, s->stage, n + 1)) {
    const bool found = route < s->forward_count && loss < s->forward_count;
    const struct pen_term *term = found ? &s->terms->term[s->forward[loss]] : NULL;
    if (!found || !is_of_route(s->terms, term, s->forward[route]))
      return PROBLEM(s->context, action, "scaled: the router of layer %u has losses of another one",
                     plan->router_losses[n].layer);
    if (!has_factors(s, term, &plan->router_losses[n]))
      return PROBLEM(s->context, action,
                     "scaled: the losses of the router of layer %u have other "
                     "factors than the plan",
                     plan->router_losses[n].layer);
    route = next_of_kind(s, route + 1, PEN_OP_ROUTE);
    loss = next_of_kind(s, loss + 1, PEN_OP_ROUTER_LOSS);
  }
  return (loss == s->forward_count && (route == s->forward_count || !plan->router_loss_count)) ||
         PROBLEM(s->context, action, "scaled: stage %u has more routers than losses of them",
                 s->stage);
}
