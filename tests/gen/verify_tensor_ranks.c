/* verify_tensor_ranks.c: random plans with tensor ranks (tensor_parallel.ranks) and a defect: parts
 * of sums that are exchanged wrongly, slots that are used too early, too late or by others, weights
 * and dims of tensor ranks that are not theirs. Each is rejected, by op_trace.c, moves.c, tensor
 * ranks.c or splits.c, unless an earlier check has seen it. */
#include "gen/verify/verify.h"
#include "tests/support/op_changes.h"

/* ---- exchanges ---- */

/* A tensor rank's part of an exchange on some rank; null: there is none. */
static struct pen_op *some_part(struct broken_plan *p) {
  return OP_OF(p, PEN_OP_ALL_GATHER_PARTIAL, PEN_OP_ALL_TO_ALL_PARTIAL);
}

static int64_t *tensor_rank_of(struct pen_op *part) {
  return &part->dim[pen_signature_dim(pen_signature_of(part->kind), "tensor_rank")];
}

/* The first op of an exchange on some rank; PEN_NONE: there is none. */
static uint32_t some_exchange(struct broken_plan *p) {
  struct pen_op *op = some_part(p);
  return op ? (uint32_t)(op - ops_of(p)) - (uint32_t)*tensor_rank_of(op) : PEN_NONE;
}

static struct pen_tensor *slot_of(const struct broken_plan *p, const struct pen_op *part) {
  return WRITABLE(struct pen_tensor, &p->tables->tensors[part->operand[1]]);
}

static uint64_t slot_bytes(const struct broken_plan *p) {
  return p->plan->memory[p->rank].exchange_bytes / (2 * p->plan->tensor_ranks);
}

TAKES(part_of_another_value, "x", false, PEN_OP_ALL_GATHER_PARTIAL, PEN_OP_ALL_TO_ALL_PARTIAL)

/* All parts of an exchange are of another value: the tensor ranks agree. */
static bool exchange_of_another_value(struct broken_plan *p) {
  for (unsigned tries = 0; tries < 20; tries++) {
    const uint32_t first = some_exchange(p);
    if (first == PEN_NONE) return false;
    const struct pen_op *other = other_op(p, &ops_of(p)[first], 0);
    if (!other) continue;
    const uint32_t value = other->operand[0];
    for (uint32_t m = 0; m < p->plan->tensor_ranks; m++) ops_of(p)[first + m].operand[0] = value;
    return true;
  }
  return false;
}

static bool another_tensor_rank(struct broken_plan *p) {
  struct pen_op *op = some_part(p);
  if (op) *tensor_rank_of(op) ^= 1;
  return op;
}

static bool part_left_out(struct broken_plan *p) {
  struct pen_op *op = some_part(p);
  if (op) drop_op(p, (uint32_t)(op - ops_of(p)));
  return op;
}

static bool part_twice(struct broken_plan *p) {
  struct pen_op *op = some_part(p);
  if (op) double_op(p, (uint32_t)(op - ops_of(p)));
  return op;
}

static bool exchange_left_out(struct broken_plan *p) {
  const uint32_t first = some_exchange(p);
  for (uint32_t m = 0; first != PEN_NONE && m < p->plan->tensor_ranks; m++) drop_op(p, first);
  return first != PEN_NONE;
}

static bool signal_left_out(struct broken_plan *p) {
  struct pen_op *op = OP_OF(p, PEN_OP_SIGNAL_TENSOR);
  if (op) drop_op(p, (uint32_t)(op - ops_of(p)));
  return op;
}

static bool signal_twice(struct broken_plan *p) {
  struct pen_op *op = OP_OF(p, PEN_OP_SIGNAL_TENSOR);
  if (op) double_op(p, (uint32_t)(op - ops_of(p)));
  return op;
}

/* Before the first exchange of its program, which then uses the second slots. */
static bool signal_at_the_start(struct broken_plan *p) {
  struct pen_op *op = OP_OF(p, PEN_OP_SIGNAL_TENSOR);
  const uint32_t from = op ? (uint32_t)(op - ops_of(p)) : 0;
  if (op) move_op(p, from, program_of(p, from)->first_op);
  return op;
}

/* ---- slots ---- */

static bool slot_of_the_other_set(struct broken_plan *p) {
  struct pen_op *op = some_part(p);
  const uint64_t set = p->plan->tensor_ranks * slot_bytes(p);
  if (!op) return false;
  struct pen_tensor *slot = slot_of(p, op);
  slot->offset = slot->offset >= set ? slot->offset - set : slot->offset + set;
  return true;
}

static bool slot_of_another_tensor_rank(struct broken_plan *p) {
  struct pen_op *op = some_part(p);
  if (!op) return false;
  struct pen_tensor *slot = slot_of(p, op);
  slot->offset += *tensor_rank_of(op) ? -slot_bytes(p) : slot_bytes(p);
  return true;
}

static bool slot_in_scratch(struct broken_plan *p) {
  struct pen_op *op = some_part(p);
  if (op) slot_of(p, op)->base = PEN_BASE_SCRATCH;
  return op;
}

/* Half as many bytes: the second set, or a large part, is outside, or two parts overlap. */
static bool slots_too_small(struct broken_plan *p) {
  const uint32_t first = some_exchange(p);
  if (first != PEN_NONE)
    WRITABLE(struct pen_rank_memory, p->plan->memory)[p->rank].exchange_bytes /= 2;
  return first != PEN_NONE;
}

static bool slots_over_others(struct broken_plan *p) {
  const uint32_t first = some_exchange(p);
  struct pen_rank_memory *memory = WRITABLE(struct pen_rank_memory, p->plan->memory);
  if (first != PEN_NONE)
    memory[p->rank].exchange_offset += draw(p->seed, 2) ? slot_bytes(p) : -slot_bytes(p);
  return first != PEN_NONE;
}

static bool slots_not_shared(struct broken_plan *p) {
  const uint32_t first = some_exchange(p);
  struct pen_rank_memory *memory = WRITABLE(struct pen_rank_memory, p->plan->memory);
  if (first != PEN_NONE) memory[p->rank].shared_bytes = memory[p->rank].exchange_offset;
  return first != PEN_NONE;
}

static bool slots_elsewhere_in_an_action(struct broken_plan *p) {
  for (unsigned tries = 0; tries < 20; tries++) {
    turn_to_training(p, (uint32_t)draw(p->seed, p->plan->rank_count));
    const uint32_t row = some_row(p, PEN_F, PEN_W);
    if (row == PEN_NONE || !uses_base(p, row, PEN_BASE_EXCHANGE)) continue;
    set_base(p, row, PEN_BASE_EXCHANGE, base_of(p, row, PEN_BASE_EXCHANGE) + slot_bytes(p));
    return true;
  }
  return false;
}

/* What reads a part reads that of another exchange, with the same bytes. */
TAKES(part_of_another_exchange, "a", false, PEN_OP_ADD, PEN_OP_SUM_PARTIALS, PEN_OP_SUM_ADD,
      PEN_OP_MAXIMUM)
TAKES(rows_of_another_tensor_rank, "x", false, PEN_OP_EMBEDDING_SELECT)

static bool tensor_ranks_in_reverse(struct broken_plan *p) {
  static const int kinds[] = {PEN_OP_ADD, PEN_OP_SUM_PARTIALS, PEN_OP_SUM_ADD, PEN_OP_MAXIMUM};
  return exchange_own_operands(p, kinds[draw(p->seed, sizeof kinds / sizeof *kinds)], "a", "b");
}

/* An op writes its result into a slot that has as many bytes. */
static bool result_in_a_slot(struct broken_plan *p) {
  for (unsigned tries = 0; tries < 20; tries++) {
    struct pen_op *op = OP_OF(p, PEN_OP_ADD, PEN_OP_LINEAR, PEN_OP_AFFINE_ROWS);
    if (!op) continue;
    const struct pen_program *program = program_of(p, (uint32_t)(op - ops_of(p)));
    const int k = pen_signature_of(op->kind)->input_count;
    const uint32_t result = op->operand[k];
    for (uint32_t n = 0; n < program->op_count; n++) {
      const struct pen_op *part = &ops_of(p)[program->first_op + n];
      const bool puts =
          part->kind == PEN_OP_ALL_GATHER_PARTIAL || part->kind == PEN_OP_ALL_TO_ALL_PARTIAL;
      if (!puts || part->dtype != PEN_F32 ||
          slot_of(p, part)->bytes != p->tables->tensors[result].bytes)
        continue;
      op->operand[k] = part->operand[1];
      return true;
    }
  }
  return false;
}

/* ---- vocabulary ---- */

static bool tokens_of_another_tensor_rank(struct broken_plan *p) {
  struct pen_op *op = OP_OF(p, PEN_OP_EMBEDDING_SELECT);
  if (op) op->dim[2 + draw(p->seed, 2)]++;
  return op;
}

static bool rows_without_the_rest(struct broken_plan *p) {
  for (unsigned tries = 0; tries < 20; tries++) {
    struct pen_op *op = OP_OF(p, PEN_OP_EMBEDDING_SELECT);
    if (!op || op->operand[2] == PEN_NONE) continue;
    op->operand[2] = PEN_NONE;
    return true;
  }
  return false;
}

/* The maximum is that of the tensor rank's own logits. */
static bool maximum_of_one_tensor_rank(struct broken_plan *p) {
  struct pen_op *op =
      OP_OF(p, PEN_OP_LOGITS_SUM, PEN_OP_CROSS_ENTROPY_COLUMNS, PEN_OP_HEAD_SUM,
            PEN_OP_HEAD_LOSS_COLUMNS, PEN_OP_HEAD_LOSS_COLUMNS_DW, PEN_OP_HEAD_LOSS_COLUMNS_B);
  if (!op) return false;
  const uint32_t first = program_of(p, (uint32_t)(op - ops_of(p)))->first_op;
  uint32_t *maximum = &op->operand[operand_named(op, "maximum")],
           made = writer_of(p, first, *maximum);
  while (made != PEN_NONE && ops_of(p)[made].kind == PEN_OP_MAXIMUM)
    made = writer_of(p, first, ops_of(p)[made].operand[0]);
  if (made == PEN_NONE || ops_of(p)[made].kind != PEN_OP_ALL_GATHER_PARTIAL) return false;
  *maximum = ops_of(p)[made].operand[0];
  return true;
}

/* ---- ties ---- */

/* A tie of a tensor rank after the first; null: the plan has none, or its matrix is not trained. */
static struct pen_tie *some_later_tie(struct broken_plan *p) {
  struct pen_tie *ties = some_ties(p, false);
  const uint32_t own = pen_local_tie_count(p->plan);
  return ties ? &ties[own + draw(p->seed, p->plan->tie_count - own)] : NULL;
}

static bool tie_in_another_place(struct broken_plan *p) {
  struct pen_tie *tie = some_later_tie(p);
  if (!tie) return false;
  *(draw(p->seed, 2) ? &tie->value_offset : &tie->gradient_offset) += PEN_ALIGNMENT_BYTES;
  return true;
}

static bool tie_of_the_first_tensor_rank(struct broken_plan *p) {
  struct pen_tie *tie = some_later_tie(p);
  if (tie) tie->weight = p->plan->ties[(tie - p->plan->ties) % pen_local_tie_count(p->plan)].weight;
  return tie;
}

/* A message has the splits of all tensor ranks. */
static bool message_of_all_tensor_ranks(struct broken_plan *p) {
  struct pen_message *message = message_of_ties(p);
  if (message) message->bytes *= p->plan->tensor_ranks;
  return message;
}

/* ---- generation ---- */

static bool generation_without_a_part(struct broken_plan *p) {
  const struct pen_op *op = op_of_generation(p, PEN_OP_ALL_GATHER_PARTIAL);
  if (op) drop_op(p, (uint32_t)(op - ops_of(p)));
  return op;
}

static bool sampled_columns_elsewhere(struct broken_plan *p) {
  struct pen_op *op = op_of_generation(p, PEN_OP_CROSS_ENTROPY_COLUMNS);
  if (op) op->dim[2]++;
  return op;
}

static bool sampled_rows_by_targets(struct broken_plan *p) {
  struct pen_op *op = op_of_generation(p, PEN_OP_INDEX_SELECT);
  const uint32_t made = op ? op_of_kind(p, PEN_OP_LAST_TOKENS) : PEN_NONE;
  if (made == PEN_NONE) return false;
  op->operand[operand_named(op, "index")] =
      ops_of(p)[made].operand[operand_named(&ops_of(p)[made], "targets")];
  return true;
}

static bool sampled_columns_of_another(struct broken_plan *p) {
  return generation_takes(p, PEN_OP_CROSS_ENTROPY_COLUMNS, "logits");
}

/* ---- tensor ranks ---- */

/* A weight of a tensor rank after the first. */
static struct pen_weight *some_weight(struct broken_plan *p) {
  struct pen_weight *weights = WRITABLE(struct pen_weight, p->plan->weights);
  for (unsigned tries = 0; tries < 100; tries++) {
    struct pen_weight *weight = &weights[draw(p->seed, p->plan->weight_count)];
    if (pen_first_tensor_rank(p->plan, weight) > 0) return weight;
  }
  return NULL;
}

static bool weight_in_another_place(struct broken_plan *p) {
  struct pen_weight *weight = some_weight(p);
  if (!weight) return false;
  uint64_t *const offset[] = {&weight->value_offset, &weight->gradient_offset,
                              &weight->exp_avg_offset, &weight->exp_avg_sq_offset,
                              &weight->bf16_offset};
  *offset[draw(p->seed, sizeof offset / sizeof *offset)] += PEN_ALIGNMENT_BYTES;
  return true;
}

static bool weight_of_another_kind(struct broken_plan *p) {
  struct pen_weight *weight = some_weight(p);
  if (!weight) return false;
  bool *const flag[] = {&weight->value_sharded, &weight->bf16_sharded, &weight->gradient_sharded,
                        &weight->frozen};
  *flag[draw(p->seed, sizeof flag / sizeof *flag)] ^= true;
  return true;
}

static bool other_tensor_ranks(struct broken_plan *p) {
  if (draw(p->seed, 2))
    p->plan->tensor_ranks *= 2;
  else
    p->plan->tensor_ranks /= 2;
  return true;
}

/* A dim that is another for a tensor rank; null: the plan has none. */
static struct pen_tensor_rank_dim *some_dim(struct broken_plan *p) {
  if (p->plan->tensor_rank_dim_count == 0) return NULL;
  return WRITABLE(struct pen_tensor_rank_dim,
                  &p->plan->tensor_rank_dims[draw(p->seed, p->plan->tensor_rank_dim_count)]);
}

static bool dim_off_by_one(struct broken_plan *p) {
  struct pen_tensor_rank_dim *dim = some_dim(p);
  if (dim) dim->value += draw(p->seed, 2) ? 1 : -1;
  return dim;
}

static bool dim_left_out(struct broken_plan *p) {
  struct pen_tensor_rank_dim *dim = some_dim(p);
  if (!dim) return false;
  const struct pen_tensor_rank_dim *last =
      &p->plan->tensor_rank_dims[--p->plan->tensor_rank_dim_count];
  *dim = *last;
  return true;
}

/* Then the tensor rank would be taken for one that is like the first. */
static bool dims_left_out(struct broken_plan *p) {
  struct pen_tensor_rank_dim *dim = some_dim(p), *dims;
  if (!dim) return false;
  const struct pen_tensor_rank_dim of = *dim;
  uint32_t kept = 0;
  dims = WRITABLE(struct pen_tensor_rank_dim, p->plan->tensor_rank_dims);
  for (uint32_t n = 0; n < p->plan->tensor_rank_dim_count; n++)
    if (dims[n].profile != of.profile || dims[n].rank != of.rank ||
        dims[n].tensor_rank != of.tensor_rank)
      dims[kept++] = dims[n];
  p->plan->tensor_rank_dim_count = kept;
  return true;
}

static bool dim_of_another_op(struct broken_plan *p) {
  struct pen_tensor_rank_dim *dim = some_dim(p);
  if (dim) dim->op += draw(p->seed, 2) ? 1 : -1u;
  return dim;
}

static bool dim_of_another_number(struct broken_plan *p) {
  struct pen_tensor_rank_dim *dim = some_dim(p);
  if (dim) dim->dim = (dim->dim + 1) % PEN_DIMS_MAX;
  return dim;
}

static bool dim_of_no_tensor_rank(struct broken_plan *p) {
  struct pen_tensor_rank_dim *dim = some_dim(p);
  if (dim) dim->tensor_rank = draw(p->seed, 2) ? 0 : p->plan->tensor_ranks;
  return dim;
}

#define WRONG "whole: ", "derived: ", "passed: ", "same: ", "in use: ", "moved: "
#define BYTES                                                                            \
  "but its bytes hold", "has overwritten", "overlaps it", "in this program has written", \
      "which nothing has written", "in the same bytes", "a second time", "only partly written"
#define TENSOR_RANK "whole: ", "derived: ", "tensor rank ", "than ", "same: ", "passed: "

static const struct defect defects[] = {
    {"a part of another value", part_of_another_value, {WRONG, BYTES}},
    {"an exchange of another value", exchange_of_another_value, {WRONG, BYTES}},
    {"a part of another tensor rank", another_tensor_rank, {WRONG, BYTES}},
    {"a part is left out", part_left_out, {WRONG, BYTES}},
    {"a part twice", part_twice, {WRONG, BYTES}},
    {"an exchange is left out", exchange_left_out, {WRONG, BYTES}},
    {"a signal is left out", signal_left_out, {WRONG}},
    {"a signal twice", signal_twice, {WRONG}},
    {"a signal at the start", signal_at_the_start, {WRONG}},
    {"a slot of the other set", slot_of_the_other_set, {WRONG, BYTES}},
    {"a slot of another tensor rank",
     slot_of_another_tensor_rank,
     {WRONG, BYTES, "outside the slots"}},
    {"a slot in scratch", slot_in_scratch, {WRONG, BYTES, "outside the"}},
    {"slots too small", slots_too_small, {WRONG, "outside the slots", "are shared"}},
    {"slots over others", slots_over_others, {"overlaps", "are shared", "outside", "slots are at"}},
    {"slots that are not shared", slots_not_shared, {"are shared"}},
    {"slots elsewhere in an action", slots_elsewhere_in_an_action, {"its slots are at"}},
    {"a part of another exchange", part_of_another_exchange, {WRONG, BYTES}},
    {"rows of another tensor rank", rows_of_another_tensor_rank, {WRONG, BYTES}},
    {"tensor ranks in reverse", tensor_ranks_in_reverse, {WRONG, BYTES}},
    {"a result in a slot", result_in_a_slot, {WRONG, BYTES, ": y is "}},
    {"tokens of another tensor rank", tokens_of_another_tensor_rank, {WRONG}},
    {"rows without those of other tensor ranks", rows_without_the_rest, {WRONG}},
    {"the maximum of one tensor rank", maximum_of_one_tensor_rank, {WRONG, BYTES}},
    {"a tensor rank's tie in another place", tie_in_another_place, {"tied: ", "the head reads"}},
    {"a tie of the first tensor rank", tie_of_the_first_tensor_rank, {"tied: "}},
    {"a message of all tensor ranks", message_of_all_tensor_ranks, {"its message has"}},
    {"generation without a part", generation_without_a_part, {WRONG, BYTES}},
    {"sampled columns elsewhere", sampled_columns_elsewhere, {WRONG}},
    {"sampled rows by other numbers", sampled_rows_by_targets, {WRONG, BYTES}},
    {"sampled columns of another split", sampled_columns_of_another, {WRONG, BYTES}},
    {"a tensor rank's weight in another place", weight_in_another_place, {"is in another place"}},
    {"a tensor rank's weight of another kind", weight_of_another_kind, {"is of another kind"}},
    {"another number of tensor ranks",
     other_tensor_ranks,
     {"whole: ", "derived: ", "in use: ", "moved: ", "tensor rank", "splits", "slot", "than ",
      "in this program has written"}},
    {"a tensor rank's dim off by one", dim_off_by_one, {TENSOR_RANK}},
    {"a tensor rank's dim is left out", dim_left_out, {TENSOR_RANK}},
    {"all dims of a tensor rank on a rank are left out", dims_left_out, {TENSOR_RANK}},
    {"a tensor rank's dim of another op", dim_of_another_op, {TENSOR_RANK}},
    {"another dim of a tensor rank", dim_of_another_number, {TENSOR_RANK}},
    {"a dim of no tensor rank", dim_of_no_tensor_rank, {"there is none", TENSOR_RANK}},
};

int main(void) {
  share_splits_of_plans();
  return main_of_defects(defects, sizeof defects / sizeof *defects, 141421356);
}
