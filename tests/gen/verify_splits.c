/* verify_splits.c: random plans with split weights (tensor_parallel.splits) and a defect: splits
 * that are mixed, left out, added twice or in another order, or read before their sum is complete.
 * Each is rejected, by splits.c or by the gradients that it changes, unless an earlier check has
 * seen it. */
#include "gen/verify/verify.h"
#include "tests/support/op_changes.h"

/* ---- products ---- */

TAKES(columns_of_another, "w", false, PEN_OP_LINEAR, PEN_OP_AFFINE)
TAKES(columns_exchanged, "w", true, PEN_OP_LINEAR, PEN_OP_AFFINE)
TAKES(rows_of_another, "w", false, PEN_OP_LINEAR, PEN_OP_AFFINE_ROWS)
TAKES(rows_exchanged, "w", true, PEN_OP_LINEAR, PEN_OP_AFFINE_ROWS)
TAKES(bias_of_another_split, "bias", false, PEN_OP_AFFINE, PEN_OP_BIAS)
TAKES(bias_of_another_sum, "bias", false, PEN_OP_SUM_PARTIALS)
TAKES(input_of_another_split, "x", false, PEN_OP_LINEAR, PEN_OP_AFFINE_ROWS)
TAKES(keys_of_another_split, "k", false, PEN_OP_ATTENTION)
TAKES(gradient_by_another_split, "w", false, PEN_OP_LINEAR_DX, PEN_OP_AFFINE_DX)
TAKES(chain_of_another_split, "a", false, PEN_OP_LINEAR_DX, PEN_OP_AFFINE_DX)

static bool gate_of_another_split(struct broken_plan *p) {
  int kinds[PEN_OP_COUNT];
  size_t count = 0;
  for (int kind = 0; kind < PEN_OP_COUNT; kind++)
    if (pen_signature_operand(pen_signature_of(kind), "gate") == 0) kinds[count++] = kind;
  return takes_anothers(p, kinds, count, "gate", false);
}

static bool chain_lost(struct broken_plan *p) {
  for (unsigned tries = 0; tries < 20; tries++) {
    struct pen_op *op = OP_OF(p, PEN_OP_LINEAR_DX, PEN_OP_AFFINE_DX);
    if (!op || op->operand[operand_named(op, "a")] == PEN_NONE) continue;
    op->operand[operand_named(op, "a")] = PEN_NONE;
    return true;
  }
  return false;
}

/* ---- sums ---- */

static int some_sum(struct broken_plan *p) {
  static const int kinds[] = {PEN_OP_ADD, PEN_OP_SUM_PARTIALS, PEN_OP_SUM_ADD};
  return kinds[draw(p->seed, sizeof kinds / sizeof *kinds)];
}

static bool added_in_reverse(struct broken_plan *p) {
  return exchange_own_operands(p, some_sum(p), "a", "b");
}

static bool added_twice(struct broken_plan *p) {
  const int kind = some_sum(p);
  struct pen_op *op = op_of_kinds(p, &kind, 1);
  if (op) op->operand[operand_named(op, "b")] = op->operand[operand_named(op, "a")];
  return op;
}

TAKES(halves_of_another_sum, "a", false, PEN_OP_SUM_PARTIALS, PEN_OP_ADD, PEN_OP_SUM_ADD)

static bool sum_without_residual(struct broken_plan *p) {
  for (unsigned tries = 0; tries < 20; tries++) {
    struct pen_op *op = OP_OF(p, PEN_OP_SUM_PARTIALS);
    if (!op || op->operand[operand_named(op, "addend")] == PEN_NONE) continue;
    op->operand[operand_named(op, "addend")] = PEN_NONE;
    return true;
  }
  return false;
}

/* What reads a sum of all splits reads the half that is its first operand. */
static bool half_as_a_whole(struct broken_plan *p) {
  for (unsigned tries = 0; tries < 20; tries++) {
    struct pen_op *op = OP_OF(p, PEN_OP_SUM_PARTIALS);
    if (!op || op->dtype != PEN_F32) continue;
    const uint32_t at = (uint32_t)(op - ops_of(p)), sum = op->operand[4];
    const uint32_t reader = reader_of(p, at + 1, sum);
    if (reader == PEN_NONE) continue;
    for (int k = 0; k < PEN_OPERANDS_MAX; k++)
      if (ops_of(p)[reader].operand[k] == sum) ops_of(p)[reader].operand[k] = op->operand[0];
    return true;
  }
  return false;
}

/* ---- norms ---- */

static bool changes_dim(struct pen_op *op, const char *dim, int64_t number) {
  if (op) op->dim[pen_signature_dim(pen_signature_of(op->kind), dim)] = number;
  return op;
}

static bool fewer_runs(struct broken_plan *p) {
  struct pen_op *op = OP_OF(p, PEN_OP_RMSNORM, PEN_OP_RMSNORM_DX, PEN_OP_SUM_PARTIALS,
                            PEN_OP_LAYERNORM, PEN_OP_LAYERNORM_DX, PEN_OP_POSITION, PEN_OP_BIAS_DW);
  return changes_dim(op, "runs", 1);
}

static bool other_splits(struct broken_plan *p) {
  struct pen_op *op = OP_OF(p, PEN_OP_LINEAR, PEN_OP_AFFINE);
  if (!op) return false;
  const int64_t splits = op->dim[pen_signature_dim(pen_signature_of(op->kind), "splits")];
  return changes_dim(op, "splits", splits ? (int64_t)draw(p->seed, 2) * 2 * splits : 2);
}

TAKES(heads_of_another_split, "x", false, PEN_OP_RMSNORM)

/* ---- vocabulary ---- */

static bool rows_from_elsewhere(struct broken_plan *p) {
  struct pen_op *op =
      OP_OF(p, PEN_OP_EMBEDDING, PEN_OP_EMBEDDING_DW, PEN_OP_CROSS_ENTROPY_COLUMNS,
            PEN_OP_HEAD_LOSS_COLUMNS, PEN_OP_HEAD_LOSS_COLUMNS_DW, PEN_OP_HEAD_LOSS_COLUMNS_B);
  return op && changes_dim(op, "first",
                           op->dim[pen_signature_dim(pen_signature_of(op->kind), "first")] + 1);
}

static bool embedding_without_the_rest(struct broken_plan *p) {
  for (unsigned tries = 0; tries < 20; tries++) {
    struct pen_op *op = OP_OF(p, PEN_OP_EMBEDDING);
    if (!op || op->operand[2] == PEN_NONE) continue;
    op->operand[2] = PEN_NONE;
    return true;
  }
  return false;
}

/* The maximum is that of the splits before the last. */
static bool maximum_before_the_last(struct broken_plan *p) {
  struct pen_op *op =
      OP_OF(p, PEN_OP_LOGITS_SUM, PEN_OP_CROSS_ENTROPY_COLUMNS, PEN_OP_HEAD_SUM,
            PEN_OP_HEAD_LOSS_COLUMNS, PEN_OP_HEAD_LOSS_COLUMNS_DW, PEN_OP_HEAD_LOSS_COLUMNS_B);
  const uint32_t first = op ? program_of(p, (uint32_t)(op - ops_of(p)))->first_op : 0;
  if (!op) return false;
  uint32_t maximum = writer_of(p, first, op->operand[operand_named(op, "maximum")]);
  const struct pen_op *made = maximum == PEN_NONE ? NULL : &ops_of(p)[maximum];
  if (!made || made->operand[operand_named(made, "a")] == PEN_NONE) return false;
  op->operand[operand_named(op, "maximum")] = made->operand[operand_named(made, "a")];
  return true;
}

/* The sum of exponentials is that of the first half of the splits. */
static bool sum_of_half(struct broken_plan *p) {
  struct pen_op *op = OP_OF(p, PEN_OP_CROSS_ENTROPY_COLUMNS, PEN_OP_HEAD_LOSS_COLUMNS,
                            PEN_OP_HEAD_LOSS_COLUMNS_DW, PEN_OP_HEAD_LOSS_COLUMNS_B);
  const uint32_t first = op ? program_of(p, (uint32_t)(op - ops_of(p)))->first_op : 0;
  const uint32_t sum = op ? writer_of(p, first, op->operand[operand_named(op, "sum")]) : PEN_NONE;
  if (sum == PEN_NONE) return false;
  op->operand[operand_named(op, "sum")] = ops_of(p)[sum].operand[0];
  return true;
}

/* ---- the head by chunks of rows ---- */

TAKES(chunks_of_another, "w", false, PEN_OP_HEAD_MAXIMUM, PEN_OP_HEAD_SUM)
TAKES(chunk_loss_of_another, "w", false, PEN_OP_HEAD_LOSS_COLUMNS, PEN_OP_HEAD_LOSS_COLUMNS_B)
TAKES(chunk_weight_of_another, "w", false, PEN_OP_HEAD_LOSS_COLUMNS_DW)
TAKES(chunk_gradients_exchanged, "dx", true, PEN_OP_HEAD_LOSS_COLUMNS, PEN_OP_HEAD_LOSS_COLUMNS_B)
TAKES(chunk_sums_exchanged, "dw", true, PEN_OP_HEAD_LOSS_COLUMNS_DW, PEN_OP_HEAD_LOSS_COLUMNS_B)

static bool other_chunks(struct broken_plan *p) {
  return changes_dim(OP_OF(p, PEN_OP_HEAD_LOSS_COLUMNS_DW), "chunk", 16);
}

static bool fewer_tokens(struct broken_plan *p) {
  struct pen_op *op = OP_OF(p, PEN_OP_CROSS_ENTROPY_COLUMNS, PEN_OP_HEAD_LOSS_COLUMNS,
                            PEN_OP_HEAD_LOSS_COLUMNS_DW, PEN_OP_HEAD_LOSS_COLUMNS_B);
  return op && changes_dim(op, "tokens", 157);
}

TAKES(exponentials_of_another, "logits", false, PEN_OP_LOGITS_SUM)
TAKES(loss_of_another, "logits", false, PEN_OP_CROSS_ENTROPY_COLUMNS)
TAKES(loss_gradients_exchanged, "dlogits", true, PEN_OP_CROSS_ENTROPY_COLUMNS)

/* ---- the table ---- */

/* A weight that is a split; null: there is none. */
static struct pen_weight *some_split(struct broken_plan *p) {
  struct pen_weight *weights = WRITABLE(struct pen_weight, p->plan->weights);
  for (unsigned tries = 0; tries < 100; tries++) {
    struct pen_weight *weight = &weights[draw(p->seed, p->plan->weight_count)];
    if (weight->split_count > 1) return weight;
  }
  return NULL;
}

static bool another_split(struct broken_plan *p) {
  struct pen_weight *weight = some_split(p);
  if (weight) weight->split ^= 1;
  return weight;
}

static bool another_place(struct broken_plan *p) {
  struct pen_weight *weight = some_split(p);
  if (weight) weight->run_first += weight->run_first ? -(uint64_t)1 : 1;
  return weight;
}

static bool other_runs(struct broken_plan *p) {
  struct pen_weight *weight = some_split(p);
  if (!weight) return false;
  if (draw(p->seed, 2))
    weight->run_stride *= 2;
  else
    weight->run_count /= 2;
  return true;
}

static bool another_tensor(struct broken_plan *p) {
  struct pen_weight *weight = some_split(p);
  if (weight) weight->tensor = weight->name;
  return weight;
}

static bool fewer_splits(struct broken_plan *p) {
  struct pen_weight *weight = some_split(p);
  if (weight) weight->split_count = draw(p->seed, 2) ? 1 : 2 * weight->split_count;
  return weight;
}

/* ---- generation ---- */

static bool joins_another(struct broken_plan *p) {
  return generation_takes(p, PEN_OP_LOGITS_JOIN, "logits");
}
static bool generates_by_another(struct broken_plan *p) {
  return generation_takes(p, PEN_OP_LINEAR, "w");
}
static bool caches_another(struct broken_plan *p) {
  return generation_takes(p, PEN_OP_ATTENTION_CACHED, draw(p->seed, 2) ? "k" : "q");
}

static bool joins_without_the_rest(struct broken_plan *p) {
  for (unsigned tries = 0; tries < 20; tries++) {
    struct pen_op *op = op_of_generation(p, PEN_OP_LOGITS_JOIN);
    const int a = op ? operand_named(op, "a") : 0;
    if (!op || op->operand[a] == PEN_NONE) continue;
    op->operand[a] = PEN_NONE;
    return true;
  }
  return false;
}

static bool joins_elsewhere(struct broken_plan *p) {
  struct pen_op *op = op_of_generation(p, PEN_OP_LOGITS_JOIN);
  return op && changes_dim(op, "first", op->dim[2] ? op->dim[2] - 1 : 1);
}

/* The loss, whose logits the command reads, has those that were joined before the last split. */
static bool samples_before_the_last(struct broken_plan *p) {
  struct pen_op *op = op_of_generation(p, PEN_OP_CROSS_ENTROPY);
  if (!op) return false;
  const uint32_t first = program_of(p, (uint32_t)(op - ops_of(p)))->first_op,
                 joined = writer_of(p, first, op->operand[0]);
  if (joined == PEN_NONE || ops_of(p)[joined].kind != PEN_OP_LOGITS_JOIN) return false;
  op->operand[0] = ops_of(p)[joined].operand[operand_named(&ops_of(p)[joined], "a")];
  return true;
}

/* ---- ties ---- */

/* Two ties exchange what is at `bytes` in a row. */
static bool exchange_ties(struct broken_plan *p, size_t offset, size_t bytes) {
  struct pen_tie *tie = some_ties(p, false);
  if (!tie) return false;
  const size_t one = draw(p->seed, p->plan->tie_count),
               other = (one + 1 + draw(p->seed, p->plan->tie_count - 1)) % p->plan->tie_count;
  char kept[sizeof *tie], *a = (char *)&tie[one] + offset, *b = (char *)&tie[other] + offset;
  memcpy(kept, a, bytes);
  memcpy(a, b, bytes);
  memcpy(b, kept, bytes);
  return true;
}

static bool ties_of_other_splits(struct broken_plan *p) {
  return exchange_ties(p, offsetof(struct pen_tie, weight), sizeof(uint32_t));
}
static bool head_values_exchanged(struct broken_plan *p) {
  return exchange_ties(p, offsetof(struct pen_tie, value_offset), sizeof(uint64_t));
}
static bool head_gradients_exchanged(struct broken_plan *p) {
  return exchange_ties(p, offsetof(struct pen_tie, gradient_offset), sizeof(uint64_t));
}

static bool a_tie_fewer(struct broken_plan *p) {
  if (!some_ties(p, false)) return false;
  p->plan->tie_count--;
  return true;
}

/* Of the last split, so that it is next to nothing. */
static bool tie_further_away(struct broken_plan *p) {
  struct pen_tie *tie = some_ties(p, true);
  if (!tie) return false;
  tie[p->plan->tie_count - 1].gradient_offset += PEN_ALIGNMENT_BYTES;
  return true;
}

static bool message_of_some_ties(struct broken_plan *p) {
  struct pen_message *message = message_of_ties(p);
  if (message) message->bytes /= p->plan->tie_count;
  return message;
}

/* A product of the head adds to the gradient of the embedding. */
static bool head_adds_to_embedding(struct broken_plan *p) {
  const struct pen_tie *tie = some_ties(p, false);
  if (!tie || p->plan->weights[tie->weight].rank != tie->rank || p->plan->reduces_microbatches)
    return false;
  uint32_t heads = PEN_NONE, own = PEN_NONE;
  for (uint32_t n = 0; n < p->tables->tensor_count; n++) {
    const struct pen_tensor *t = &p->tables->tensors[n];
    if (t->base == PEN_BASE_PERSISTENT && t->offset == tie->gradient_offset) heads = n;
    if (t->base == PEN_BASE_PERSISTENT &&
        t->offset == p->plan->weights[tie->weight].gradient_offset)
      own = n;
  }
  for (uint32_t n = 0; n < p->tables->op_count; n++) {
    const int k = accumulated_operand(&ops_of(p)[n]);
    if (k < 0 || ops_of(p)[n].operand[k] != heads) continue;
    ops_of(p)[n].operand[k] = own;
    return own != PEN_NONE;
  }
  return false;
}

#define WRONG "whole: ", "derived: ", "passed: ", "same: "
#define BYTES                                                                            \
  "but its bytes hold", "has overwritten", "overlaps it", "in this program has written", \
      "which nothing has written", "may not have been gathered", "may still use",        \
      "in the same bytes", "the gradient of one microbatch"
#define TIES                                                                         \
  "tied: ", "tied weights of", "is at the address of", "the head reads", "overlaps", \
      "is persistent, but", "outside the persistent part"
#define TABLE "counted: ", "whole: ", TIES

static const struct defect defects[] = {
    {"columns of another split or weight", columns_of_another, {WRONG, BYTES}},
    {"columns of two products exchanged", columns_exchanged, {WRONG, BYTES}},
    {"rows of another split or weight", rows_of_another, {WRONG, BYTES}},
    {"rows of two products exchanged", rows_exchanged, {WRONG, BYTES}},
    {"a bias of another split", bias_of_another_split, {WRONG, BYTES}},
    {"a bias of another sum", bias_of_another_sum, {WRONG, BYTES}},
    {"a product with another split", input_of_another_split, {WRONG, BYTES}},
    {"a gate of another split", gate_of_another_split, {WRONG, BYTES}},
    {"keys of another split", keys_of_another_split, {WRONG, BYTES}},
    {"dx by another split", gradient_by_another_split, {WRONG, BYTES}},
    {"dx added to another split's", chain_of_another_split, {WRONG, BYTES}},
    {"dx of a user is lost", chain_lost, {WRONG}},
    {"partial sums added in reverse", added_in_reverse, {WRONG, BYTES}},
    {"a partial sum twice", added_twice, {WRONG, BYTES}},
    {"a partial sum of another sum", halves_of_another_sum, {WRONG, BYTES}},
    {"a sum without its residual", sum_without_residual, {WRONG}},
    {"a half read as a whole", half_as_a_whole, {WRONG, BYTES}},
    {"one run of tokens", fewer_runs, {WRONG, "workspace"}},
    {"another number of splits", other_splits, {WRONG}},
    {"heads of another split", heads_of_another_split, {WRONG, BYTES}},
    {"rows of the vocabulary from elsewhere", rows_from_elsewhere, {WRONG}},
    {"an embedding of one split", embedding_without_the_rest, {WRONG}},
    {"the maximum of some logits", maximum_before_the_last, {WRONG, BYTES}},
    {"the sum of some exponentials", sum_of_half, {WRONG, BYTES}},
    {"chunks of another split", chunks_of_another, {WRONG, BYTES}},
    {"the loss of another split by chunks", chunk_loss_of_another, {WRONG, BYTES}},
    {"dw of another split by chunks", chunk_weight_of_another, {WRONG, BYTES}},
    {"dx of two losses exchanged", chunk_gradients_exchanged, {WRONG, BYTES}},
    {"dw of two losses exchanged", chunk_sums_exchanged, {WRONG, BYTES}},
    {"other chunks", other_chunks, {WRONG}},
    {"fewer tokens", fewer_tokens, {WRONG}},
    {"exponentials of another split", exponentials_of_another, {WRONG, BYTES}},
    {"the loss of another split", loss_of_another, {WRONG, BYTES}},
    {"gradients of two losses exchanged", loss_gradients_exchanged, {WRONG, BYTES}},
    {"another number of a split", another_split, {TABLE, WRONG}},
    {"a split at another place", another_place, {TABLE}},
    {"other runs of a split", other_runs, {TABLE}},
    {"a split of another tensor", another_tensor, {TABLE}},
    {"another number of splits", fewer_splits, {TABLE}},
    {"joined logits of another split", joins_another, {WRONG, BYTES}},
    {"joined logits of one split", joins_without_the_rest, {WRONG}},
    {"joined logits elsewhere", joins_elsewhere, {WRONG}},
    {"tokens by the logits before the last", samples_before_the_last, {WRONG, BYTES}},
    {"generation by another split", generates_by_another, {WRONG, BYTES}},
    {"cached keys of another split", caches_another, {WRONG, BYTES}},
    {"ties of other splits", ties_of_other_splits, {TIES}},
    {"values of two ties exchanged", head_values_exchanged, {TIES}},
    {"gradients of two ties exchanged", head_gradients_exchanged, {TIES}},
    {"a tie fewer", a_tie_fewer, {TIES}},
    {"a tie further away", tie_further_away, {TIES}},
    {"a message of some ties", message_of_some_ties, {"its message has"}},
    {"the head adds to the embedding", head_adds_to_embedding, {WRONG, "twice for microbatch"}},
};

int main(void) {
  split_weights_of_plans();
  return main_of_defects(defects, sizeof defects / sizeof *defects, 271828182);
}
