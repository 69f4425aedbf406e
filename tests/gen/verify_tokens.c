/* verify_tokens.c: random plans whose tensor ranks share the tokens between the matrices
 * (tensor_parallel.sequence), and a defect: a shard of other tokens, an exchange of other
 * sequences, a part that is missing, in a wrong slot or of a wrong tensor rank, a sum of its own
 * shard alone, another shard of what each has computed of all tokens. Each is rejected, by
 * splits.c, derivative.c, op_trace.c or moves.c, unless an earlier check has seen it.
 */
#include "gen/verify/verify.h"
#include "tests/support/op_changes.h"

static int64_t *dim_named(struct pen_op *op, const char *dim) {
  return &op->dim[pen_signature_dim(pen_signature_of(op->kind), dim)];
}

static uint32_t index_of(const struct broken_plan *p, const struct pen_op *op) {
  return (uint32_t)(op - ops_of(p));
}

static struct pen_tensor *slot_of(const struct broken_plan *p, const struct pen_op *op) {
  return WRITABLE(struct pen_tensor, &p->tables->tensors[op->operand[1]]);
}

static uint64_t slot_bytes(const struct broken_plan *p) {
  return p->plan->memory[p->rank].exchange_bytes / (2 * p->plan->tensor_ranks);
}

/* ---- runs ---- */

static bool run_of_another_tensor_rank(struct broken_plan *p) {
  struct pen_op *op = OP_OF(p, PEN_OP_SLICE_SEQUENCE, PEN_OP_POSITION);
  if (op) *dim_named(op, "first") += *dim_named(op, "run");
  return op;
}

static bool run_off_by_one(struct broken_plan *p) {
  struct pen_op *op = OP_OF(p, PEN_OP_SLICE_SEQUENCE, PEN_OP_POSITION);
  if (op) *dim_named(op, "first") += 1;
  return op;
}

/* Half as long sequences, and twice as many: of as many bytes. */
static bool other_sequences(struct broken_plan *p) {
  struct pen_op *op = OP_OF(p, PEN_OP_ALL_TO_ALL_PARTIAL, PEN_OP_ALL_GATHER_SEQUENCE);
  if (!op || *dim_named(op, "part") % 2) return false;
  *dim_named(op, "batch") *= 2;
  *dim_named(op, "part") /= 2;
  return true;
}

static bool other_sequences_in_all_parts(struct broken_plan *p) {
  struct pen_op *op = OP_OF(p, PEN_OP_ALL_TO_ALL_PARTIAL);
  if (!op || *dim_named(op, "part") % 2) return false;
  op -= *dim_named(op, "tensor_rank");
  for (uint32_t m = 0; m < p->plan->tensor_ranks; m++) {
    *dim_named(&op[m], "batch") *= 2;
    *dim_named(&op[m], "part") /= 2;
  }
  return true;
}

static bool rows_of_other_sequences(struct broken_plan *p) {
  struct pen_op *op = OP_OF(p, PEN_OP_RMSNORM, PEN_OP_RMSNORM_DX, PEN_OP_SUM_PARTIALS,
                            PEN_OP_LAYERNORM, PEN_OP_LAYERNORM_DX);
  if (!op || *dim_named(op, "sequence") == 0 || *dim_named(op, "sequence") % 2) return false;
  *dim_named(op, "sequence") /= 2;
  return true;
}

static bool other_runs(struct broken_plan *p) {
  struct pen_op *op =
      OP_OF(p, PEN_OP_RMSNORM, PEN_OP_RMSNORM_DX, PEN_OP_SUM_PARTIALS, PEN_OP_LAYERNORM,
            PEN_OP_LAYERNORM_DX, PEN_OP_POSITION, PEN_OP_BIAS_DW, PEN_OP_POSITION_DW);
  if (!op || *dim_named(op, "runs") == 0) return false;
  *dim_named(op, "runs") *= 2;
  return true;
}

/* ---- shards of blocks that all tensor ranks compute ---- */

static bool shard_of_another_tensor_rank(struct broken_plan *p) {
  struct pen_op *op = OP_OF(p, PEN_OP_SHARD_SEQUENCE, PEN_OP_UNSHARD_SEQUENCE);
  if (op) *dim_named(op, "first") += *dim_named(op, "tokens");
  return op;
}

static bool shard_off_by_one(struct broken_plan *p) {
  struct pen_op *op = OP_OF(p, PEN_OP_SHARD_SEQUENCE, PEN_OP_UNSHARD_SEQUENCE);
  if (op) *dim_named(op, "first") += 1;
  return op;
}

static bool shard_of_other_sequences(struct broken_plan *p) {
  struct pen_op *op = OP_OF(p, PEN_OP_SHARD_SEQUENCE, PEN_OP_UNSHARD_SEQUENCE);
  if (!op || *dim_named(op, "tokens") % 2) return false;
  *dim_named(op, "batch") *= 2;
  *dim_named(op, "sequence") /= 2;
  *dim_named(op, "tokens") /= 2;
  return true;
}

/* What follows the block, or its norm in the backward, gets what was gathered, not its shard. */
static bool shard_left_out(struct broken_plan *p) {
  struct pen_op *op = OP_OF(p, PEN_OP_SHARD_SEQUENCE, PEN_OP_UNSHARD_SEQUENCE);
  if (op) drop_op(p, index_of(p, op));
  return op;
}

/* Ops of the block read what the rank was sent, which the next exchange overwrites. */
static bool gathered_without_a_copy(struct broken_plan *p) {
  struct pen_op *op = OP_OF(p, PEN_OP_UNSHARD_SEQUENCE);
  if (!op) return false;
  const struct pen_program *program = program_of(p, index_of(p, op));
  bool found = false;
  for (uint32_t n = index_of(p, op) + 1; n < program->first_op + program->op_count; n++)
    for (int k = 0; k < pen_signature_of(ops_of(p)[n].kind)->input_count; k++)
      if (ops_of(p)[n].operand[k] == op->operand[1]) {
        ops_of(p)[n].operand[k] = op->operand[0];
        found = true;
      }
  return found;
}

/* ---- parts and slots ---- */

static bool part_of_another_tensor_rank(struct broken_plan *p) {
  struct pen_op *op = OP_OF(p, PEN_OP_ALL_TO_ALL_PARTIAL);
  if (op) *dim_named(op, "tensor_rank") ^= 1;
  return op;
}

static bool part_left_out(struct broken_plan *p) {
  struct pen_op *op = OP_OF(p, PEN_OP_ALL_TO_ALL_PARTIAL);
  if (op) drop_op(p, index_of(p, op));
  return op;
}

static bool gather_left_out(struct broken_plan *p) {
  struct pen_op *op = OP_OF(p, PEN_OP_ALL_GATHER_SEQUENCE);
  if (op) drop_op(p, index_of(p, op));
  return op;
}

static bool gather_twice(struct broken_plan *p) {
  struct pen_op *op = OP_OF(p, PEN_OP_ALL_GATHER_SEQUENCE);
  if (op) double_op(p, index_of(p, op));
  return op;
}

/* The exchange before it begins when that has put its values. */
static bool gather_too_early(struct broken_plan *p) {
  struct pen_op *op = OP_OF(p, PEN_OP_ALL_GATHER_SEQUENCE);
  const uint32_t from = op ? index_of(p, op) : 0,
                 to = op ? last_before(p, from, PEN_OP_ALL_TO_ALL_PARTIAL) : PEN_NONE;
  if (to == PEN_NONE) return false;
  move_op(p, from, to);
  return true;
}

static bool slots_of_the_other_set(struct broken_plan *p) {
  struct pen_op *op = OP_OF(p, PEN_OP_ALL_GATHER_SEQUENCE, PEN_OP_ALL_TO_ALL_PARTIAL);
  const uint64_t set = p->plan->tensor_ranks * slot_bytes(p);
  if (!op) return false;
  slot_of(p, op)->offset += slot_of(p, op)->offset >= set ? -set : set;
  return true;
}

static bool slot_of_another_tensor_rank(struct broken_plan *p) {
  struct pen_op *op = OP_OF(p, PEN_OP_ALL_GATHER_SEQUENCE, PEN_OP_ALL_TO_ALL_PARTIAL);
  if (!op) return false;
  const bool later = op->kind == PEN_OP_ALL_TO_ALL_PARTIAL && *dim_named(op, "tensor_rank") > 0;
  slot_of(p, op)->offset += later ? -slot_bytes(p) : slot_bytes(p);
  return true;
}

/* What is left does not hold all runs. */
static bool slots_too_small(struct broken_plan *p) {
  struct pen_op *op = OP_OF(p, PEN_OP_ALL_GATHER_SEQUENCE);
  if (op) WRITABLE(struct pen_rank_memory, p->plan->memory)[p->rank].exchange_bytes /= 2;
  return op;
}

/* ---- values ---- */

TAKES(part_of_another_value, "x", false, PEN_OP_ALL_TO_ALL_PARTIAL)
TAKES(gather_of_another_value, "x", false, PEN_OP_ALL_GATHER_SEQUENCE)
TAKES(gathered_at_another_place, "x", false, PEN_OP_LINEAR, PEN_OP_AFFINE)
TAKES(gradient_at_another_place, "dy", false, PEN_OP_LINEAR_DX, PEN_OP_AFFINE_DX, PEN_OP_LINEAR_DW,
      PEN_OP_AFFINE_DW, PEN_OP_BIAS_DW)

TAKES(shard_of_another_value, "x", false, PEN_OP_SHARD_SEQUENCE, PEN_OP_UNSHARD_SEQUENCE)

/* A gradient that all tensor ranks have gets the sum over this one's run. */
static bool sum_of_one_shard(struct broken_plan *p) {
  for (unsigned tries = 0; tries < 20; tries++) {
    struct pen_op *add = OP_OF(p, PEN_OP_ACCUMULATE);
    if (!add) return false;
    const uint32_t before = last_before(p, index_of(p, add), PEN_OP_ALL_GATHER_PARTIAL);
    const struct pen_op *part = before == PEN_NONE ? NULL : &ops_of(p)[before];
    if (!part || part->dim[0] != add->dim[0] || part->dtype != PEN_F32) continue;
    add->operand[0] = part->operand[0];
    return true;
  }
  return false;
}

#define WRONG "whole: ", "derived: ", "passed: ", "same: ", "scaled: ", "in use: ", "moved: "
#define BYTES                                                                            \
  "but its bytes hold", "has overwritten", "overlaps it", "in this program has written", \
      "which nothing has written", "in the same bytes", "a second time", "only partly written"

static const struct defect defects[] = {
    {"a shard of another tensor rank's tokens", run_of_another_tensor_rank, {WRONG}},
    {"a shard off by one token", run_off_by_one, {WRONG}},
    {"other sequences", other_sequences, {WRONG, BYTES}},
    {"other sequences in all parts", other_sequences_in_all_parts, {WRONG, BYTES}},
    {"rows of other sequences", rows_of_other_sequences, {WRONG, BYTES}},
    {"other runs", other_runs, {WRONG, "workspace"}},
    {"a part of another tensor rank", part_of_another_tensor_rank, {WRONG, BYTES}},
    {"a part is left out", part_left_out, {WRONG, BYTES}},
    {"nothing is gathered", gather_left_out, {WRONG, BYTES}},
    {"gathered twice", gather_twice, {WRONG, BYTES}},
    {"gathered too early", gather_too_early, {WRONG, BYTES}},
    {"slots of the other set", slots_of_the_other_set, {WRONG, BYTES, "outside the slots"}},
    {"a slot of another tensor rank",
     slot_of_another_tensor_rank,
     {WRONG, BYTES, "outside the slots"}},
    {"slots too small", slots_too_small, {WRONG, "outside the slots", "are shared"}},
    {"a part of another value", part_of_another_value, {WRONG, BYTES}},
    {"another value is gathered", gather_of_another_value, {WRONG, BYTES}},
    {"what is gathered elsewhere", gathered_at_another_place, {WRONG, BYTES}},
    {"a gradient that is gathered elsewhere", gradient_at_another_place, {WRONG, BYTES}},
    {"a block's shard of another tensor rank", shard_of_another_tensor_rank, {WRONG, BYTES}},
    {"a block's shard off by one token", shard_off_by_one, {WRONG, BYTES}},
    {"a block's shard of other sequences", shard_of_other_sequences, {WRONG, BYTES}},
    {"a block's shard is left out", shard_left_out, {WRONG, BYTES}},
    {"a block reads what is gathered", gathered_without_a_copy, {WRONG, BYTES}},
    {"a block's shard of another value", shard_of_another_value, {WRONG, BYTES}},
    {"the sum of its own shard alone", sum_of_one_shard, {WRONG, BYTES, "only whole gradients"}},
};

int main(void) {
  share_tokens_of_plans();
  return main_of_defects(defects, sizeof defects / sizeof *defects, 173205080);
}
