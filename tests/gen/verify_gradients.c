/* verify_gradients.c: random plans with wrong gradients: ops that read or write another tensor, of
 * another kind, with other numbers, and losses of another scale. Each is rejected, by gradients.c
 * unless an earlier check has seen it. The kinds are modelled on what users of other systems
 * report: a weight's gradient from another's tensors (pytorch #170277), scaled again (DeepSpeed
 * #8152), not normalised (torchtitan #1732), lost with a residual branch or a norm's gain
 * (Megatron-LM #7452). verify_order.c has the sums over microbatches and replicas, and the norm. */
#include "gen/verify/verify.h"
#include "tests/support/op_changes.h"

/* ---- gradients of weights ---- */

TAKES(input_of_another, "x", false, PEN_OP_LINEAR_DW, PEN_OP_AFFINE_DW)
TAKES(output_gradient_of_another, "dy", false, PEN_OP_LINEAR_DW, PEN_OP_AFFINE_DW)
TAKES(accumulators_exchanged, "dw", true, PEN_OP_LINEAR_DW, PEN_OP_AFFINE_DW)
TAKES(bias_of_another, "dy", false, PEN_OP_BIAS_DW)
TAKES(biases_exchanged, "dbias", true, PEN_OP_BIAS_DW)

static bool gain_of_another(struct broken_plan *p) {
  for (unsigned tries = 0; tries < 20; tries++) {
    struct pen_op *op = OP_OF(p, PEN_OP_ACCUMULATE), *other = op ? other_op(p, op, 0) : NULL;
    if (!other || !strchr(p->tables->tensors[op->operand[0]].name, '*')) continue;
    op->operand[0] = other->operand[0];
    return true;
  }
  return false;
}

/* Another kind with the same operands. */
static bool becomes(struct broken_plan *p, int from, int to) {
  struct pen_op *op = OP_OF(p, from);
  if (op) op->kind = (uint16_t)to;
  return op;
}

static bool transposed(struct broken_plan *p) {
  for (unsigned tries = 0; tries < 20; tries++) {
    struct pen_op *op = OP_OF(p, PEN_OP_LINEAR_DW, PEN_OP_AFFINE_DW);
    if (!op || op->dim[1] != op->dim[2]) continue;
    op->kind = op->kind == PEN_OP_LINEAR_DW ? PEN_OP_AFFINE_DW : PEN_OP_LINEAR_DW;
    return true;
  }
  return false;
}

/* The gradient of a table, from some other tensor of the size. */
static bool table_from_another(struct broken_plan *p) {
  struct pen_op *op = OP_OF(p, PEN_OP_EMBEDDING_DW, PEN_OP_POSITION_DW);
  if (!op) return false;
  const struct pen_program *program = program_of(p, (uint32_t)(op - ops_of(p)));
  const struct pen_tensor *tensors = p->tables->tensors, *own = &tensors[op->operand[0]];
  for (uint32_t n = 0; n < program->op_count; n++)
    for (int k = 0; k < PEN_OPERANDS_MAX; k++) {
      uint32_t tensor = p->tables->ops[program->first_op + n].operand[k];
      if (tensor == PEN_NONE || tensor == op->operand[0] || tensors[tensor].bytes != own->bytes ||
          tensors[tensor].dtype != own->dtype || draw(p->seed, 3))
        continue;
      op->operand[0] = tensor;
      return true;
    }
  return false;
}

static bool weight_op_dropped(struct broken_plan *p) {
  struct pen_op *op = OP_OF(p, PEN_OP_LINEAR_DW, PEN_OP_AFFINE_DW, PEN_OP_BIAS_DW);
  if (op) drop_op(p, (uint32_t)(op - ops_of(p)));
  return op;
}

static bool weight_op_doubled(struct broken_plan *p) {
  struct pen_op *op = OP_OF(p, PEN_OP_LINEAR_DW, PEN_OP_AFFINE_DW, PEN_OP_BIAS_DW);
  if (op) double_op(p, (uint32_t)(op - ops_of(p)));
  return op;
}

/* On one rank, all that the head adds goes to the embedding's gradient, and the other way round. */
static bool tied_gradients_exchanged(struct broken_plan *p) {
  if (p->plan->tie_count == 0 || p->plan->weights[p->plan->ties->weight].frozen) return false;
  const uint32_t weight = p->plan->ties->weight;
  uint32_t own = PEN_NONE, head = PEN_NONE;
  turn_to_training(p, p->plan->ties->rank);
  if (p->plan->weights[weight].rank != p->rank) return false;
  for (uint32_t n = 0; n < p->tables->tensor_count; n++) {
    const struct pen_tensor *t = &p->tables->tensors[n];
    if (t->base != PEN_BASE_PERSISTENT) continue;
    if (t->offset == p->plan->ties->gradient_offset) head = n;
    if (t->offset == p->plan->weights[weight].gradient_offset) own = n;
  }
  for (uint32_t op = 0; op < p->tables->op_count; op++) {
    int k = accumulated_operand(&ops_of(p)[op]);
    uint32_t *operand = &ops_of(p)[op].operand[k < 0 ? 0 : k];
    if (k >= 0 && (*operand == head || *operand == own)) *operand = *operand == head ? own : head;
  }
  return true;
}

enum { ADAMW_MOMENTS = 2 };

static bool trains_what_is_frozen(struct broken_plan *p) {
  struct pen_weight *weight =
      WRITABLE(struct pen_weight, &p->plan->weights[draw(p->seed, p->plan->weight_count)]);
  weight->frozen = !weight->frozen;
  weight->moment_count = weight->frozen ? 0 : ADAMW_MOMENTS;
  return true;
}

/* ---- gradients of inputs ---- */

TAKES(weight_of_another, "w", false, PEN_OP_LINEAR_DX, PEN_OP_AFFINE_DX)
TAKES(addend_of_another, "a", false, PEN_OP_LINEAR_DX, PEN_OP_RMSNORM_DX, PEN_OP_LAYERNORM_DX)
TAKES(input_gradient_from_another, "dy", false, PEN_OP_LINEAR_DX, PEN_OP_AFFINE_DX,
      PEN_OP_RMSNORM_DX, PEN_OP_LAYERNORM_DX)
TAKES(input_gradients_exchanged, "dx", true, PEN_OP_LINEAR_DX, PEN_OP_AFFINE_DX, PEN_OP_RMSNORM_DX,
      PEN_OP_LAYERNORM_DX)
TAKES(norm_of_another, "x", false, PEN_OP_RMSNORM_DX, PEN_OP_LAYERNORM_DX)
TAKES(statistics_of_another, "rstd", false, PEN_OP_RMSNORM_DX, PEN_OP_LAYERNORM_DX)
TAKES(gain_read_of_another, "gain", false, PEN_OP_RMSNORM_DX, PEN_OP_LAYERNORM_DX)

/* The sum over the users of a value loses one. */
static bool loses_addend(struct broken_plan *p, bool of_norm) {
  for (unsigned tries = 0; tries < 20; tries++) {
    struct pen_op *op =
        of_norm ? OP_OF(p, PEN_OP_RMSNORM_DX, PEN_OP_LAYERNORM_DX) : OP_OF(p, PEN_OP_LINEAR_DX);
    if (!op || op->operand[operand_named(op, "a")] == PEN_NONE) continue;
    op->operand[operand_named(op, "a")] = PEN_NONE;
    return true;
  }
  return false;
}
static bool residual_lost(struct broken_plan *p) { return loses_addend(p, true); }
static bool addend_lost(struct broken_plan *p) { return loses_addend(p, false); }

/* It adds what the next op back already has: the input's own gradient twice. */
static bool addend_too_many(struct broken_plan *p) {
  for (unsigned tries = 0; tries < 20; tries++) {
    struct pen_op *op = OP_OF(p, PEN_OP_LINEAR_DX, PEN_OP_AFFINE_DX);
    if (!op || op->operand[operand_named(op, "a")] != PEN_NONE || op->dim[1] != op->dim[2])
      continue;
    op->operand[operand_named(op, "a")] = op->operand[operand_named(op, "dy")];
    return true;
  }
  return false;
}

static bool rotated_again(struct broken_plan *p) { return becomes(p, PEN_OP_ROPE_DX, PEN_OP_ROPE); }
static bool another_activation(struct broken_plan *p) {
  return draw(p->seed, 2) ? becomes(p, PEN_OP_GELU_DX, PEN_OP_GELU_TANH_DX)
                          : becomes(p, PEN_OP_GELU_TANH_DX, PEN_OP_GELU_DX);
}

static bool key_for_value(struct broken_plan *p) {
  return draw(p->seed, 2) ? exchange_own_operands(p, PEN_OP_ATTENTION_DX, "dk", "dv")
                          : exchange_own_operands(p, PEN_OP_ATTENTION_DX, "k", "v");
}
static bool gate_for_up(struct broken_plan *p) {
  return draw(p->seed, 2) ? exchange_own_operands(p, PEN_OP_SWIGLU_DX, "dgate", "dup")
                          : exchange_own_operands(p, PEN_OP_SWIGLU_DX, "gate", "up");
}
static bool parts_exchanged(struct broken_plan *p) {
  return draw(p->seed, 2) ? exchange_own_operands(p, PEN_OP_SPLIT_DX, "dq", "dv")
                          : exchange_own_operands(p, PEN_OP_SPLIT_DX, "dk", "dq");
}

/* ---- scale ---- */

static bool multiplies_real(struct broken_plan *p, const char *name, struct pen_op *op,
                            double factor) {
  (void)p;
  if (op) op->real[pen_signature_real(pen_signature_of(op->kind), name)] *= factor;
  return op;
}
static double some_factor(struct broken_plan *p) { return 1.0 / (2.0 + (double)draw(p->seed, 8)); }

/* Of a gradient. */
static bool scaled_again(struct broken_plan *p) {
  struct pen_op *op = OP_OF(p, PEN_OP_SCALE);
  return op && strchr(p->tables->tensors[op->operand[0]].name, '\'') &&
         multiplies_real(p, "factor", op, some_factor(p));
}
static bool another_epsilon(struct broken_plan *p) {
  return multiplies_real(p, "epsilon", OP_OF(p, PEN_OP_RMSNORM_DX, PEN_OP_LAYERNORM_DX), 10);
}
static bool sum_is_scaled(struct broken_plan *p) {
  return multiplies_real(p, "scale", OP_OF(p, PEN_OP_SUM_LOSS), some_factor(p));
}
static bool mean_for_sum(struct broken_plan *p) {
  const bool changes = !p->plan->loss_is_mean;
  p->plan->loss_is_mean = true;
  return changes;
}

/* The loss of the microbatch in place of the share of its targets. */
static bool another_share(struct broken_plan *p) {
  struct pen_op *op =
      OP_OF(p, PEN_OP_CROSS_ENTROPY, PEN_OP_HEAD_LOSS, PEN_OP_HEAD_LOSS_B, PEN_OP_HEAD_LOSS_DW);
  for (uint32_t n = 0; op && n < p->tables->tensor_count; n++)
    if (p->tables->tensors[n].base == PEN_BASE_LOSS) {
      op->operand[operand_named(op, "share")] = n;
      return true;
    }
  return false;
}

/* Chunks of other rows: the sum over the rows has another order than the loss's, or evaluation's.
 */
static bool another_chunk(struct broken_plan *p) {
  struct pen_op *op = OP_OF(p, PEN_OP_HEAD_LOSS, PEN_OP_HEAD_LOSS_DW, PEN_OP_HEAD_LOSS_B);
  if (op) op->dim[pen_signature_dim(pen_signature_of(op->kind), "chunk")] /= 2;
  return op;
}

/* ---- forwards ---- */

/* A forward op in F, or one that a backward computes again. */
static struct pen_op *forward_op(struct broken_plan *p, int kind, bool again) {
  for (unsigned tries = 0; tries < 30; tries++) {
    struct pen_op *op = OP_OF(p, kind);
    if (!op) return NULL;
    if ((program_of(p, (uint32_t)(op - ops_of(p)))->kind != PEN_F) == again) return op;
  }
  return NULL;
}

static bool forward_takes(struct broken_plan *p, const char *operand, bool again) {
  for (unsigned tries = 0; tries < 20; tries++) {
    struct pen_op *op = forward_op(p, draw(p->seed, 2) ? PEN_OP_LINEAR : PEN_OP_AFFINE, again);
    struct pen_op *other = op ? other_op(p, op, operand_named(op, operand)) : NULL;
    if (!other) continue;
    op->operand[operand_named(op, operand)] = other->operand[operand_named(op, operand)];
    return true;
  }
  return false;
}
static bool recomputes_from_another(struct broken_plan *p) { return forward_takes(p, "x", true); }
static bool recomputes_by_another(struct broken_plan *p) { return forward_takes(p, "w", true); }
static bool forward_by_another(struct broken_plan *p) { return forward_takes(p, "w", false); }

static bool recomputes_otherwise(struct broken_plan *p) {
  struct pen_op *op = forward_op(p, draw(p->seed, 2) ? PEN_OP_RMSNORM : PEN_OP_LAYERNORM, true);
  return op && multiplies_real(p, "epsilon", op, 10);
}

static bool forward_lacks_residual(struct broken_plan *p) {
  for (unsigned tries = 0; tries < 20; tries++) {
    struct pen_op *op = forward_op(p, draw(p->seed, 2) ? PEN_OP_LINEAR : PEN_OP_AFFINE, false);
    if (!op || op->operand[operand_named(op, "a")] == PEN_NONE) continue;
    op->operand[operand_named(op, "a")] = PEN_NONE;
    return true;
  }
  return false;
}

/* A product takes the gate twice: no op adds the two gradients of the gate. */
static bool reads_twice(struct broken_plan *p) {
  struct pen_op *op = forward_op(p, PEN_OP_SWIGLU, draw(p->seed, 2));
  if (op) op->operand[operand_named(op, "up")] = op->operand[operand_named(op, "gate")];
  return op;
}

/* Evaluation runs another forward than training. */
static bool evaluates_another(struct broken_plan *p) {
  if (p->plan->profiles[1].kind != PEN_EVAL) return false;
  p->profile = WRITABLE(struct pen_profile, &p->plan->profiles[1]);
  turn_to_rank(p, p->rank);
  uint32_t op = op_of_kind(p, draw(p->seed, 2) ? PEN_OP_LINEAR : PEN_OP_AFFINE);
  if (op == PEN_NONE) return false;
  struct pen_op *own = ops_of(p) + op, *other = other_op(p, own, operand_named(own, "w"));
  if (other) own->operand[operand_named(own, "w")] = other->operand[operand_named(own, "w")];
  return other;
}

#define WRONG "derived: op", "passed: "
#define BYTES                                                                            \
  "but its bytes hold", "has overwritten", "overlaps it", "in this program has written", \
      "which nothing has written", "may not have been gathered", "may still use",        \
      "in the same bytes", "the gradient of one microbatch"

#define FORWARD "same: ", "derived: "

static const struct defect defects[] = {
    {"x of another weight", input_of_another, {WRONG, BYTES}},
    {"dy of another weight", output_gradient_of_another, {WRONG, BYTES}},
    {"gradients of two weights exchanged",
     accumulators_exchanged,
     {WRONG, "nor zero", "to which nothing was added", "is not summed", "in the same bytes"}},
    {"dy of another bias", bias_of_another, {WRONG, BYTES}},
    {"gradients of two biases exchanged",
     biases_exchanged,
     {WRONG, "nor zero", "to which nothing was added", "is not summed", "in the same bytes"}},
    {"gain of another norm", gain_of_another, {WRONG, BYTES, "only to the sum of microbatches"}},
    {"a transposed gradient", transposed, {WRONG}},
    {"a table's gradient from another tensor",
     table_from_another,
     {WRONG, BYTES, "a shard only", "still being accumulated"}},
    {"no op for a weight", weight_op_dropped, {"lacks microbatch", "to which nothing was added"}},
    {"an op for a weight twice", weight_op_doubled, {"twice for microbatch", WRONG}},
    {"gradients of a tied weight exchanged",
     tied_gradients_exchanged,
     {WRONG, "which are of two tensors", "adds "}},
    {"a frozen weight that is trained",
     trains_what_is_frozen,
     {"is persistent, but", "outside the persistent part", "overlaps", "is not aligned",
      "sharded over the replicas", "lacks microbatch", "are shared, but", "snapshot",
      "lacks a gradient of the head's", "but has a gradient of the head's"}},
    {"dx by another weight", weight_of_another, {WRONG, BYTES}},
    {"another addend", addend_of_another, {WRONG, BYTES}},
    {"dx from another dy", input_gradient_from_another, {WRONG, BYTES}},
    {"two dx exchanged", input_gradients_exchanged, {WRONG, BYTES, "second time"}},
    {"dx of another norm's input", norm_of_another, {WRONG, BYTES}},
    {"dx by another norm's statistics", statistics_of_another, {WRONG, BYTES}},
    {"dx by another norm's gain", gain_read_of_another, {WRONG, BYTES}},
    {"a residual branch is lost", residual_lost, {WRONG}},
    {"a user's gradient is lost", addend_lost, {WRONG}},
    {"an addend too many", addend_too_many, {WRONG, "in the same bytes"}},
    {"rotated again, not back", rotated_again, {WRONG}},
    {"gradient of another activation", another_activation, {WRONG}},
    {"keys for values", key_for_value, {WRONG, "in the same bytes"}},
    {"gate for up", gate_for_up, {WRONG, "in the same bytes"}},
    {"parts of q, k, v exchanged", parts_exchanged, {WRONG, "in the same bytes"}},
    {"scaled again", scaled_again, {WRONG}},
    {"another epsilon", another_epsilon, {WRONG}},
    {"a sum that is scaled", sum_is_scaled, {"scaled: ", WRONG}},
    {"a mean for a sum", mean_for_sum, {"scaled: "}},
    {"another share of targets", another_share, {"reads the loss", "scaled: "}},
    {"chunks of another size", another_chunk, {WRONG, FORWARD}},
    {"recomputed from another input", recomputes_from_another, {WRONG, BYTES, FORWARD}},
    {"recomputed by another weight", recomputes_by_another, {WRONG, BYTES, FORWARD}},
    {"recomputed with other numbers", recomputes_otherwise, {WRONG, FORWARD}},
    {"a forward by another weight", forward_by_another, {WRONG, BYTES, FORWARD}},
    {"a forward without its residual", forward_lacks_residual, {WRONG, FORWARD}},
    {"a value with two gradients", reads_twice, {WRONG, FORWARD}},
    {"evaluated otherwise than trained", evaluates_another, {"same: ", BYTES}},
};

int main(void) { return main_of_defects(defects, sizeof defects / sizeof *defects, 161803398); }
