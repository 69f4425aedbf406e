/* router_counts.c: the choices of routers that a step counts (plan.def, `routers`).
 *
 * PUBLISH makes the counts entries of the step statistics, and 0 for the next step
 * (runtime/exec/handlers.c). The rule here, with which its messages begin:
 *
 *   kept     in a profile that trains, F of a layer's stage adds the choices of its own router to
 *            the router's counts, once; no other program does, and no other op uses them
 *
 * That they overlap nothing else is in persistent.c. */
#include "gen/model/op_signature.h"
#include "gen/verify/internal.h"
#include "runtime/plan/losses.h"
#include "runtime/plan/plan.h"

#define PROBLEM(b, ...) \
  pen_problem_note((b)->checked->problem, (b)->rank, PEN_NONE, "kept: " __VA_ARGS__)

bool pen_check_router_rows(const struct pen_plan *plan, struct pen_problem *problem) {
  for (uint32_t n = 0; n < plan->router_count; n++) {
    const struct pen_router *router = &plan->routers[n], *before = router - (n > 0);
    if (router->stage >= plan->stage_count || router->stage < before->stage ||
        (n && router->layer <= before->layer) || router->experts != before->experts)
      return pen_problem_note(problem, PEN_NONE, PEN_NONE,
                              "kept: the router of layer %u is of stage %u and %u experts, after "
                              "those of other layers, stages and experts",
                              router->layer, router->stage, router->experts);
  }
  return true;
}

static uint32_t next_of_stage(const struct pen_plan *plan, uint32_t stage, uint32_t n) {
  while (n < plan->router_count && plan->routers[n].stage != stage) n++;
  return n;
}

uint32_t pen_router_at(const struct pen_rank_context *b, uint64_t offset) {
  uint32_t n = 0;
  while (n < b->plan->router_count && (b->checked->rank_of[b->plan->routers[n].stage] != b->rank ||
                                       b->plan->routers[n].offset != offset))
    n++;
  return n < b->plan->router_count ? n : PEN_NONE;
}

static bool uses_counts(const struct pen_rank_context *b, const struct pen_op *op) {
  bool uses = op->kind == PEN_OP_ADD_CHOICES;
  for (int k = 0; k < pen_signature_of(op->kind)->operand_count; k++)
    uses = uses || (op->operand[k] != PEN_NONE && b->use[op->operand[k]] == PEN_USE_COUNTS);
  return uses;
}

/* Whether the op adds what a route has chosen to the counts of the n-th router. */
static bool counts_route(const struct pen_rank_context *b, const struct pen_op *op,
                         const struct pen_op *route, uint32_t n) {
  static const char *const dims[] = {"rows", "experts", "choices"};
  const struct pen_signature *made = pen_signature_of(PEN_OP_ROUTE),
                             *counts = pen_signature_of(PEN_OP_ADD_CHOICES);
  if (op->kind != PEN_OP_ADD_CHOICES || !route || n == b->plan->router_count) return false;
  bool same = op->operand[pen_signature_operand(counts, "expert")] ==
              route->operand[pen_signature_operand(made, "expert")];
  for (size_t d = 0; d < sizeof dims / sizeof *dims; d++)
    same = same && op->dim[pen_signature_dim(counts, dims[d])] ==
                       route->dim[pen_signature_dim(made, dims[d])];
  const uint32_t to = op->operand[pen_signature_operand(counts, "counts")];
  return same && b->use[to] == PEN_USE_COUNTS &&
         pen_router_at(b, b->tables->tensors[to].offset) == n;
}

/* A program counts all routers of its stage, each before the next one routes, or none. */
static bool check_program(const struct pen_rank_context *b, const struct pen_program *program) {
  const struct pen_plan *plan = b->plan;
  const bool counts = b->profile->kind == PEN_TRAIN && program->kind == PEN_F;
  uint32_t n = counts ? next_of_stage(plan, program->stage, 0) : plan->router_count;
  const struct pen_op *route = NULL;
  for (uint32_t i = program->first_op; i < program->first_op + program->op_count; i++) {
    const struct pen_op *op = &b->tables->ops[i];
    if (op->kind == PEN_OP_ROUTE && counts) {
      if (route) break;
      route = op;
    }
    if (!uses_counts(b, op)) continue;
    if (!counts_route(b, op, route, n))
      return PROBLEM(b,
                     "op %u (%s) counts choices of a router, but not those of the next layer of F "
                     "of stage %u",
                     i, pen_signature_of(op->kind)->kind, program->stage);
    n = next_of_stage(plan, program->stage, n + 1);
    route = NULL;
  }
  return (n == plan->router_count && !route) ||
         PROBLEM(b, "F of stage %u does not count the choices of each of its routers",
                 program->stage);
}

bool pen_check_router_counts(const struct pen_rank_context *b) {
  for (uint32_t p = 0; p < b->tables->program_count; p++)
    if (!check_program(b, &b->tables->programs[p])) return false;
  return true;
}
