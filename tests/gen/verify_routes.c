/* verify_routes.c: random plans of mixtures of experts in which rows go elsewhere: ops of another
 * slice, layer or matrix, routes that are made again, gradients that are added twice, in another
 * order or to another stack. Each is rejected, by the rule for it unless an earlier check has seen
 * it. */
#include "gen/verify/verify.h"
#include "tests/support/op_changes.h"

/* ---- forwards ---- */

TAKES(rows_of_another, "x", false, PEN_OP_DISPATCH, PEN_OP_EXPERTS)
TAKES(slots_of_another, "slots", false, PEN_OP_SUM_CHOICES)
TAKES(added_to_another, "a", false, PEN_OP_SUM_CHOICES)
TAKES(routes_of_another, "expert", false, PEN_OP_DISPATCH, PEN_OP_EXPERTS, PEN_OP_SUM_CHOICES)
TAKES(probabilities_of_another, "weight", false, PEN_OP_EXPERTS)
TAKES(matrix_of_another, "gate", false, PEN_OP_EXPERTS)
TAKES(logits_of_another, "logits", false, PEN_OP_ROUTE)

static bool gate_for_up(struct broken_plan *p) {
  return exchange_own_operands(p, PEN_OP_EXPERTS, "gate", "up");
}

/* The dim of that name becomes that of another slice; false: there is one. */
static bool turns_slice(struct pen_op *op) {
  const struct pen_signature *signature = pen_signature_of(op->kind);
  int64_t *slice = &op->dim[pen_signature_dim(signature, "slice")];
  const int64_t count =
      op->dim[pen_signature_dim(signature, "rows")] / op->dim[pen_signature_dim(signature, "part")];
  *slice = (*slice + 1) % count;
  return count > 1;
}

static bool another_slice(struct broken_plan *p) {
  struct pen_op *op = OP_OF(p, PEN_OP_DISPATCH, PEN_OP_EXPERTS, PEN_OP_SUM_CHOICES);
  return op && turns_slice(op);
}

/* All ops of a program that have one slice, have another. */
static bool slice_twice(struct broken_plan *p) {
  struct pen_op *op = OP_OF(p, PEN_OP_EXPERTS);
  if (!op) return false;
  const struct pen_program *program = program_of(p, (uint32_t)(op - ops_of(p)));
  const int64_t slice = op->dim[pen_signature_dim(pen_signature_of(op->kind), "slice")];
  bool turned = true;
  for (uint32_t n = 0; n < program->op_count; n++) {
    struct pen_op *other = ops_of(p) + program->first_op + n;
    const int dim = pen_signature_dim(pen_signature_of(other->kind), "slice");
    if (dim >= 0 && other->dim[dim] == slice) turned = turned && turns_slice(other);
  }
  return turned;
}

/* What follows a layer reads what lacks its last slice. */
static bool last_slice_left_out(struct broken_plan *p) {
  for (unsigned tries = 0; tries < 20; tries++) {
    struct pen_op *sum = OP_OF(p, PEN_OP_SUM_CHOICES);
    if (!sum || sum->operand[operand_named(sum, "a")] == PEN_NONE) return false;
    const uint32_t at = (uint32_t)(sum - ops_of(p)), made = sum->operand[operand_named(sum, "y")],
                   before = sum->operand[operand_named(sum, "a")];
    const struct pen_program *program = program_of(p, at);
    bool found = false;
    for (uint32_t n = at + 1; n < program->first_op + program->op_count; n++)
      for (int k = 0; k < pen_signature_of(ops_of(p)[n].kind)->input_count; k++)
        if (ops_of(p)[n].operand[k] == made && ops_of(p)[n].kind != PEN_OP_SUM_CHOICES) {
          ops_of(p)[n].operand[k] = before;
          found = true;
        }
    if (found) return true;
  }
  return false;
}

/* Evaluation chooses otherwise than training. */
static bool evaluates_otherwise(struct broken_plan *p) {
  p->profile = WRITABLE(struct pen_profile, &p->plan->profiles[1]);
  turn_to_rank(p, p->rank);
  const uint32_t op = op_of_kind(p, PEN_OP_ROUTE);
  if (op == PEN_NONE) return false;
  ops_of(p)[op].dim[3] ^= 1;
  return true;
}

static bool generates_otherwise(struct broken_plan *p) {
  struct pen_op *op = op_of_generation(p, PEN_OP_EXPERTS);
  if (!op) return false;
  const int gate = operand_named(op, "gate");
  const uint32_t tensor = op->operand[gate];
  op->operand[gate] = op->operand[gate + 1];
  op->operand[gate + 1] = tensor;
  return true;
}

/* A backward that computes logits again chooses again, in place of the routes of F. */
static bool chooses_again(struct broken_plan *p) {
  for (unsigned tries = 0; tries < 30; tries++) {
    struct pen_op *op = OP_OF(p, PEN_OP_ROUTER_LOGITS);
    const uint32_t route = op ? op_of_kind(p, PEN_OP_ROUTE) : PEN_NONE;
    if (route == PEN_NONE) return false;
    const uint32_t at = (uint32_t)(op - ops_of(p));
    if (program_of(p, at)->kind == PEN_F) continue;
    struct pen_op again = ops_of(p)[route];
    again.operand[0] = op->operand[operand_named(op, "logits")];
    double_op(p, at);
    ops_of(p)[at + 1] = again;
    return true;
  }
  return false;
}

/* ---- gradients ---- */

TAKES(dy_of_another, "dy", false, PEN_OP_EXPERTS_DX)
TAKES(backward_by_another, "down", false, PEN_OP_EXPERTS_DX)
TAKES(backward_by_other_routes, "expert", false, PEN_OP_EXPERTS_DX, PEN_OP_ROUTE_DX)
TAKES(stacks_exchanged, "dgate", true, PEN_OP_EXPERTS_DX)
TAKES(slots_back_exchanged, "dslots", true, PEN_OP_EXPERTS_DX)
TAKES(routers_exchanged, "dw", true, PEN_OP_ROUTER_LOGITS_DW)

static bool gate_gradient_for_up(struct broken_plan *p) {
  return exchange_own_operands(p, PEN_OP_EXPERTS_DX, "dgate", "dup");
}

static bool loses_addend(struct broken_plan *p) {
  struct pen_op *op = OP_OF(p, PEN_OP_EXPERTS_DX, PEN_OP_ROUTER_LOGITS_DX, PEN_OP_ROUTE_DX);
  if (!op || op->operand[operand_named(op, "a")] == PEN_NONE) return false;
  op->operand[operand_named(op, "a")] = PEN_NONE;
  return true;
}

static bool another_slice_back(struct broken_plan *p) {
  struct pen_op *op = OP_OF(p, PEN_OP_EXPERTS_DX);
  return op && turns_slice(op);
}

static bool gradient_dropped(struct broken_plan *p) {
  struct pen_op *op = OP_OF(p, PEN_OP_EXPERTS_DX);
  if (op) op->operand[operand_named(op, draw(p->seed, 2) ? "dgate" : "ddown")] = PEN_NONE;
  return op;
}

static bool gradient_doubled(struct broken_plan *p) {
  struct pen_op *op = OP_OF(p, PEN_OP_EXPERTS_DX);
  if (op) double_op(p, (uint32_t)(op - ops_of(p)));
  return op;
}

/* Two slices add to the stacks in the other order. */
static bool slices_exchanged(struct broken_plan *p) {
  for (unsigned tries = 0; tries < 20; tries++) {
    struct pen_op *op = OP_OF(p, PEN_OP_EXPERTS_DX);
    const uint32_t at = op ? (uint32_t)(op - ops_of(p)) : PEN_NONE,
                   other = op ? next_of_kind(p, at + 1, PEN_OP_EXPERTS_DX) : PEN_NONE;
    if (other == PEN_NONE || ops_of(p)[other].operand[10] != op->operand[10]) continue;
    for (int k = 10; k < 13; k++) { /* only where they add */
      const uint32_t of_other = ops_of(p)[other].operand[k];
      ops_of(p)[other].operand[k] = op->operand[k];
      op->operand[k] = of_other;
    }
    const struct pen_op moved = *op;
    *op = ops_of(p)[other];
    ops_of(p)[other] = moved;
    return true;
  }
  return false;
}

TAKES(counts_of_another, "expert", false, PEN_OP_COUNT_CHOICES)

static void exchange(uint32_t *one, uint32_t *other) {
  const uint32_t first = *one;
  *one = *other;
  *other = first;
}

/* Those of two routers: one router's bias and counts get the same. */
static bool counts_exchanged(struct broken_plan *p) {
  struct pen_op *op = OP_OF(p, PEN_OP_COUNT_CHOICES);
  const int counts = operand_named(op ? op : ops_of(p), "counts");
  struct pen_op *other = op ? other_op(p, op, counts) : NULL;
  if (!other || other->operand[0] == op->operand[0]) return false;
  exchange(&op->operand[counts], &other->operand[counts]);
  return true;
}

/* Of the weights whose optimizer is that one, or, with PEN_OPTIMIZERS, that have it from a setting;
 * null: there is none. */
static struct pen_weight *updated_by(struct broken_plan *p, int optimizer) {
  struct pen_weight *found = NULL;
  for (uint32_t w = 0, seen = 0; w < p->plan->weight_count; w++) {
    const struct pen_weight *weight = &p->plan->weights[w];
    const bool own =
        weight->optimizer == PEN_OPTIMIZER_BALANCE || weight->optimizer == PEN_OPTIMIZER_CHOICES;
    if (!weight->frozen && (optimizer == PEN_OPTIMIZERS ? !own : weight->optimizer == optimizer) &&
        draw(p->seed, ++seen) == 0)
      found = WRITABLE(struct pen_weight, weight);
  }
  return found;
}

/* Without a momentum SGD has no moments, as what updates a bias; with one it has one, as counts
 * have. */
static bool updated_otherwise(struct broken_plan *p, struct pen_weight *weight) {
  if (!weight) return false;
  const int others[] = {PEN_OPTIMIZER_ADAMW, PEN_OPTIMIZER_SGD, PEN_OPTIMIZER_MUON,
                        PEN_OPTIMIZER_BALANCE, PEN_OPTIMIZER_CHOICES};
  const int other = others[draw(p->seed, sizeof others / sizeof *others)];
  if (other == PEN_OPTIMIZER_SGD) p->plan->optimizer.momentum = weight->moment_count ? 0.5 : 0;
  const bool differs = other != weight->optimizer;
  weight->optimizer = (uint8_t)other;
  return differs;
}
static bool bias_updated_otherwise(struct broken_plan *p) {
  return updated_otherwise(p, updated_by(p, PEN_OPTIMIZER_BALANCE));
}
static bool choices_left_otherwise(struct broken_plan *p) {
  return updated_otherwise(p, updated_by(p, PEN_OPTIMIZER_CHOICES));
}
static bool weight_counted(struct broken_plan *p) {
  struct pen_weight *weight = updated_by(p, PEN_OPTIMIZERS);
  weight->optimizer = draw(p->seed, 2) ? PEN_OPTIMIZER_BALANCE : PEN_OPTIMIZER_CHOICES;
  weight->moment_count = weight->optimizer == PEN_OPTIMIZER_CHOICES;
  return true;
}

/* ---- choices of a step ---- */

TAKES(choices_of_another, "expert", false, PEN_OP_ADD_CHOICES)
TAKES(choices_exchanged, "counts", true, PEN_OP_ADD_CHOICES)

/* In the place of an op of any program of the rank. */
static bool choices_twice(struct broken_plan *p) {
  const struct pen_op *counts = OP_OF(p, PEN_OP_ADD_CHOICES);
  if (!counts) return false;
  const struct pen_program *program = &p->tables->programs[draw(p->seed, p->tables->program_count)];
  const uint32_t other = next_of_kind(p, program->first_op, PEN_OP_DISPATCH);
  if (other != PEN_NONE) ops_of(p)[other] = *counts;
  return other != PEN_NONE;
}

static struct pen_router *router_row(struct broken_plan *p) {
  return WRITABLE(struct pen_router, &p->plan->routers[draw(p->seed, p->plan->router_count)]);
}

static bool choices_elsewhere(struct broken_plan *p) {
  router_row(p)->offset += draw(p->seed, 2) ? sizeof(double) : PEN_ALIGNMENT_BYTES;
  return true;
}
static bool router_of_another_stage(struct broken_plan *p) {
  router_row(p)->stage += draw(p->seed, 2) ? 1 : UINT32_MAX;
  return true;
}
static bool router_of_more(struct broken_plan *p) { return ++router_row(p)->experts; }
static bool router_left_out(struct broken_plan *p) {
  p->plan->router_count--;
  return true;
}

/* ---- losses of routers ---- */

TAKES(losses_of_another, draw(p->seed, 2) ? "logits" : "expert", false, PEN_OP_ROUTER_LOSS)
TAKES(losses_back_exchanged, "dlogits", true, PEN_OP_ROUTER_LOSS)

/* The loss of a router in F; null: there is none. */
static struct pen_op *loss_of_forward(struct broken_plan *p) {
  for (unsigned tries = 0; tries < 30; tries++) {
    struct pen_op *op = OP_OF(p, PEN_OP_ROUTER_LOSS);
    if (!op || program_of(p, (uint32_t)(op - ops_of(p)))->kind == PEN_F) return op;
  }
  return NULL;
}

TAKES(balanced_by_another, "counts", false, PEN_OP_ROUTER_LOSS)

/* By the choices of the microbatch. */
static bool balanced_by_now(struct broken_plan *p) {
  struct pen_op *op = OP_OF(p, PEN_OP_ROUTER_LOSS);
  const int counts = operand_named(op ? op : ops_of(p), "counts");
  if (!op || op->operand[counts] == PEN_NONE) return false;
  op->operand[counts] = PEN_NONE;
  return true;
}

static bool losses_exchanged(struct broken_plan *p) {
  struct pen_op *op = loss_of_forward(p);
  const uint32_t at = op ? (uint32_t)(op - ops_of(p)) : PEN_NONE,
                 other = op ? next_of_kind(p, at + 1, PEN_OP_ROUTER_LOSS) : PEN_NONE;
  if (other == PEN_NONE) return false;
  const int k = operand_named(op, draw(p->seed, 2) ? "aux" : "z");
  exchange(&op->operand[k], &ops_of(p)[other].operand[k]);
  return true;
}

static bool aux_for_z(struct broken_plan *p) {
  struct pen_op *op = loss_of_forward(p);
  if (op) exchange(&op->operand[operand_named(op, "aux")], &op->operand[operand_named(op, "z")]);
  return op;
}

static bool other_factor(struct broken_plan *p) {
  struct pen_op *op = OP_OF(p, PEN_OP_ROUTER_LOSS);
  if (op) op->real[draw(p->seed, 2)] += 0.125;
  return op;
}

static bool other_scope(struct broken_plan *p) {
  struct pen_op *op = OP_OF(p, PEN_OP_ROUTER_LOSS);
  if (op) op->dim[pen_signature_dim(pen_signature_of(op->kind), "sequences")]++;
  return op;
}

/* The loss of another microbatch or row. */
static bool loss_elsewhere(struct broken_plan *p) {
  struct pen_op *op = loss_of_forward(p);
  if (!op) return false;
  const uint32_t tensor = op->operand[operand_named(op, draw(p->seed, 2) ? "aux" : "z")];
  WRITABLE(struct pen_tensor, &p->tables->tensors[tensor])->offset +=
      sizeof(double) * (draw(p->seed, 2) ? 1 : p->plan->loss_count);
  return true;
}

static struct pen_router_loss *some_router(struct broken_plan *p) {
  const uint32_t count = p->plan->router_loss_count;
  return count ? WRITABLE(struct pen_router_loss, &p->plan->router_losses[draw(p->seed, count)])
               : NULL;
}

static bool row_elsewhere(struct broken_plan *p) {
  struct pen_router_loss *row = some_router(p);
  if (row) row->offset += draw(p->seed, 2) ? sizeof(double) : PEN_ALIGNMENT_BYTES;
  return row;
}
static bool row_of_another_stage(struct broken_plan *p) {
  struct pen_router_loss *row = some_router(p);
  if (row) row->stage += draw(p->seed, 2) ? 1 : UINT32_MAX;
  return row;
}
static bool row_of_another_factor(struct broken_plan *p) {
  struct pen_router_loss *row = some_router(p);
  if (row) row->aux += 0.125;
  return row;
}
static bool row_of_another_scope(struct broken_plan *p) {
  struct pen_router_loss *row = some_router(p);
  if (row) row->by_step = !row->by_step;
  return row;
}
static bool no_row(struct broken_plan *p) {
  const bool any = p->plan->router_loss_count > 0;
  if (any) p->plan->router_loss_count--;
  return any;
}

/* ---- tables ---- */

static struct pen_weight *some_stack(struct broken_plan *p) {
  uint32_t seen = 0, found = 0;
  for (uint32_t w = 0; w < p->plan->weight_count; w++)
    if (p->plan->weights[w].stack && draw(p->seed, ++seen) == 0) found = w;
  return WRITABLE(struct pen_weight, &p->plan->weights[found]);
}

static bool another_stack(struct broken_plan *p) {
  some_stack(p)->stack += draw(p->seed, 2) ? 1 : UINT32_MAX;
  return true;
}
static bool tensors_shifted(struct broken_plan *p) { return ++some_stack(p)->stacked_before; }
static bool other_entries(struct broken_plan *p) { return ++p->plan->stacked; }
static bool name_of_one(struct broken_plan *p) {
  struct pen_weight *weight = some_stack(p);
  weight->tensor = "model.layers.0.mlp.experts.0.gate_proj.weight";
  return true;
}

#define BYTES                                                                                      \
  "but its bytes hold", "has overwritten", "overlaps it", "in this program has written",           \
      "which nothing has written", "in the same bytes", "may still use", "not have been gathered", \
      "to which nothing was added", "nor zero", "the gradient of one microbatch"
#define MUON "muon", "Muon"
#define FORWARD "routed: ", "derived: ", "passed: ", "same: ", "scaled: "

static const struct defect defects[] = {
    {"rows of another op", rows_of_another, {FORWARD, BYTES}},
    {"slots of another slice or layer", slots_of_another, {FORWARD, BYTES}},
    {"added to another sum", added_to_another, {FORWARD, BYTES}},
    {"routes of another layer", routes_of_another, {FORWARD, BYTES}},
    {"probabilities of another layer", probabilities_of_another, {FORWARD, BYTES}},
    {"matrices of another layer", matrix_of_another, {FORWARD, BYTES}},
    {"logits of another layer", logits_of_another, {FORWARD, BYTES}},
    {"gate for up", gate_for_up, {FORWARD}},
    {"an op of another slice", another_slice, {FORWARD}},
    {"a slice twice", slice_twice, {FORWARD}},
    {"the last slice is left out", last_slice_left_out, {FORWARD, BYTES}},
    {"evaluated by other weights of experts", evaluates_otherwise, {"same: "}},
    {"generated by other matrices", generates_otherwise, {"generated: ", "routed: "}},
    {"routes are made again", chooses_again, {"kept: ", "writes ", "outside the", BYTES}},
    {"dy of another slice", dy_of_another, {FORWARD, BYTES}},
    {"a gradient by another layer", backward_by_another, {FORWARD, BYTES}},
    {"a gradient by other routes", backward_by_other_routes, {FORWARD, BYTES}},
    {"gradients of two layers exchanged", stacks_exchanged, {FORWARD, BYTES}},
    {"slots of gradients exchanged", slots_back_exchanged, {FORWARD, BYTES, "second time"}},
    {"gradients of two routers exchanged", routers_exchanged, {FORWARD, BYTES}},
    {"the gradient of gate for up", gate_gradient_for_up, {FORWARD}},
    {"an addend is lost", loses_addend, {FORWARD}},
    {"a gradient of another slice", another_slice_back, {FORWARD}},
    {"a slice adds nothing", gradient_dropped, {FORWARD, "lacks microbatch", BYTES}},
    {"a slice adds twice", gradient_doubled, {FORWARD, "second time", BYTES}},
    {"slices add in another order", slices_exchanged, {FORWARD, BYTES}},
    {"choices of another router are counted", counts_of_another, {FORWARD, BYTES}},
    {"counts of two routers exchanged", counts_exchanged, {FORWARD, BYTES}},
    {"a bias that another optimizer updates",
     bias_updated_otherwise,
     {"moments", "updated: ", MUON}},
    {"choices that another optimizer leaves",
     choices_left_otherwise,
     {"moments", "updated: ", "counted: ", MUON}},
    {"a weight that is updated as counts",
     weight_counted,
     {"moments", "updated: ", "counted: ", BYTES, MUON}},
    {"choices of another router are added", choices_of_another, {"kept: "}},
    {"choices of two routers exchanged", choices_exchanged, {"kept: "}},
    {"choices are added again", choices_twice, {"kept: ", FORWARD, BYTES, "writes "}},
    {"choices in another place",
     choices_elsewhere,
     {"kept: ", "overlap", "is not aligned", "is persistent, but"}},
    {"a router of another stage",
     router_of_another_stage,
     {"kept: ", "overlap", "outside the persistent part", "is persistent, but"}},
    {"a router of more experts",
     router_of_more,
     {"kept: ", "overlap", "is persistent, but", "device control block"}},
    {"a router is left out",
     router_left_out,
     {"kept: ", "is persistent, but", "device control block"}},
    {"losses of another router", losses_of_another, {FORWARD, BYTES}},
    {"gradients of two routers' losses", losses_back_exchanged, {FORWARD, BYTES}},
    {"balanced by choices of another router", balanced_by_another, {FORWARD, BYTES}},
    {"balanced by choices of now", balanced_by_now, {FORWARD, BYTES}},
    {"losses of two routers exchanged", losses_exchanged, {"kept: ", "second time", BYTES}},
    {"the aux loss for the z-loss", aux_for_z, {"kept: ", BYTES}},
    {"another factor of a loss", other_factor, {FORWARD}},
    {"a loss of other sequences", other_scope, {FORWARD}},
    {"a loss in another entry", loss_elsewhere, {"kept: "}},
    {"a row in another place", row_elsewhere, {"kept: ", "overlap", "is not aligned"}},
    {"a row of another stage",
     row_of_another_stage,
     {"kept: ", "scaled: ", "outside the persistent part", "overlap"}},
    {"a row with another factor", row_of_another_factor, {"scaled: "}},
    {"a row of another scope", row_of_another_scope, {"scaled: "}},
    {"a router without a row", no_row, {"kept: ", "scaled: ", "device control block", "loss"}},
    {"a stack of other tensors",
     another_stack,
     {"counted: ", " overlaps ", "are shared, but", "is at the address", "outside the"}},
    {"tensors that are counted elsewhere", tensors_shifted, {"counted: "}},
    {"entries for other tensors", other_entries, {"counted: ", "device control block"}},
    {"a stack with the name of one", name_of_one, {"counted: "}},
};

int main(void) {
  give_plans_experts();
  return main_of_defects(defects, sizeof defects / sizeof *defects, 244948974);
}
