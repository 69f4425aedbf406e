/* tables.c: every entry of the finished plan's tables by itself: stages, tensors, ops, actions,
 * messages, channels.
 *
 * The later checks index tables and follow addresses without bounds checks; so after this one
 * nothing is out of range, and each entry agrees with its action. For each rank, then for all:
 *
 *   sizes      receive region, persistent part and arena follow each other
 *   ops        kind, dtype and dims are possible; each operand is present unless optional, and its
 *              tensor has the dtype and the bytes that the signature of the op gives for these dims
 *              (kernels/ops.def); parts of one tensor are one after the other; the workspace
 *              suffices; programs are within the table
 *   tensors    aligned; a persistent tensor is a weight, a gradient or a constant (persistent.c)
 *   stages     input, output and their gradients are present where there is a neighbour, count from
 *              the right base, and have the same dtype and bytes at both ends of the border
 *   actions    name a program of their own kind and stage, a frame with aligned addresses, or their
 *              own message
 *   replicas   the data-parallel collectives and their addresses (replicas.c)
 *   messages   addresses, numbers and counts (messages.c)
 *
 * Whether the bytes at an address still hold, or already hold, the expected value is checked by
 * memory.c. */
#include "gen/model/op_signature.h"
#include "gen/verify/internal.h"
#include "gen/verify/split_table.h"
#include "gen/base/arena.h"
#include "runtime/plan/plan.h"

static const char *const bases[PEN_BASES] = {
#define PEN_BASE(name, text, meaning) [PEN_BASE_##name] = text,
#include "runtime/plan/bases.def"
};

static bool is_aligned(uint64_t offset) { return offset % PEN_ALIGNMENT_BYTES == 0; }

/* ---- tensors ---- */

/* A boundary tensor of a stage is present where `wanted`, and counts from its base. */
static bool check_boundary(const struct pen_rank_context *b, uint32_t stage, uint32_t tensor,
                           int base, bool wanted) {
  struct pen_problem *problem = b->checked->problem;
  if (!wanted)
    return tensor == PEN_NONE ||
           pen_problem_note(problem, b->rank, PEN_NONE,
                            "stage %u has an %s, but no neighbour for it", stage, bases[base]);
  if (tensor >= b->tables->tensor_count)
    return pen_problem_note(problem, b->rank, PEN_NONE, "stage %u has no %s", stage, bases[base]);
  if (b->tables->tensors[tensor].base != base)
    return pen_problem_note(problem, b->rank, PEN_NONE, "%s counts from %s, not from %s",
                            b->tables->tensors[tensor].name, bases[b->tables->tensors[tensor].base],
                            bases[base]);
  return true;
}

/* The tensors at both ends of a border have the same size and dtype. */
static bool check_border(const struct pen_rank_context *b, uint32_t own, uint32_t other_rank,
                         uint32_t other) {
  const struct pen_tensor *mine = &b->tables->tensors[own];
  const struct pen_rank_program *tables = &b->profile->ranks[other_rank];
  if (other >= tables->tensor_count) return true; /* reported when that rank is checked */
  const struct pen_tensor *theirs = &tables->tensors[other];
  if (mine->bytes == theirs->bytes && mine->dtype == theirs->dtype) return true;
  return pen_problem_note(b->checked->problem, b->rank, PEN_NONE,
                          "%s has %llu bytes of %s, but %s on rank %u %llu of %s", mine->name,
                          (unsigned long long)mine->bytes, pen_dtype_text(mine->dtype),
                          theirs->name, other_rank, (unsigned long long)theirs->bytes,
                          pen_dtype_text(theirs->dtype));
}

/* With memory.audit a checksum follows what one stage passes to another. */
static void find_sums(struct pen_rank_context *b, const struct pen_stage *stage) {
  const uint32_t passed[] = {stage->input, stage->output, stage->output_gradient,
                             stage->input_gradient};
  for (size_t i = 0; i < sizeof passed / sizeof *passed; i++)
    if (passed[i] != PEN_NONE)
      b->has_sum[passed[i]] = b->plan->audits && b->checked->profile_kind == PEN_TRAIN;
}

/* The boundary tensors of a stage: fills `received`, `same_as` and `has_sum`. */
static bool check_stage_tensors(struct pen_rank_context *b, uint32_t index) {
  const struct pen_check_context *c = b->checked;
  const struct pen_stage *stage = &b->profile->stages[index];
  bool first = index == 0, last = index + 1 == c->stage_count, train = c->profile_kind == PEN_TRAIN;
  if (!check_boundary(b, index, stage->input, PEN_BASE_INPUT, !first) ||
      !check_boundary(b, index, stage->output, PEN_BASE_OUTPUT, !last) ||
      !check_boundary(b, index, stage->output_gradient, PEN_BASE_OUTPUT_GRADIENT, !last && train) ||
      !check_boundary(b, index, stage->input_gradient, PEN_BASE_INPUT_GRADIENT, !first && train))
    return false;
  find_sums(b, stage);
  if (!first) {
    const struct pen_stage *before = &stage[-1];
    if (!check_border(b, stage->input, before->rank, before->output)) return false;
    if (train && !check_border(b, stage->input_gradient, before->rank, before->output_gradient))
      return false;
    b->received[stage->input] = before->rank != b->rank;
    if (before->rank == b->rank && before->output < b->tables->tensor_count)
      b->same_as[stage->input] = before->output;
  }
  if (!last && train) {
    const struct pen_stage *after = &stage[1];
    b->received[stage->output_gradient] = after->rank != b->rank;
    if (after->rank == b->rank && after->input_gradient < b->tables->tensor_count)
      b->same_as[stage->output_gradient] = after->input_gradient;
  }
  return true;
}

static bool check_tensor_table(struct pen_rank_context *b) {
  const struct pen_rank_program *tables = b->tables;
  struct pen_problem *problem = b->checked->problem;
  for (uint32_t index = 0; index < tables->tensor_count; index++) {
    const struct pen_tensor *tensor = &tables->tensors[index];
    if (tensor->base >= PEN_BASES)
      return pen_problem_note(problem, b->rank, PEN_NONE, "tensor %s has no base", tensor->name);
    if (tensor->base != PEN_BASE_LOSS && !is_aligned(tensor->offset))
      return pen_problem_note(problem, b->rank, PEN_NONE,
                              "tensor %s is at %llu, not a multiple of %d", tensor->name,
                              (unsigned long long)tensor->offset, PEN_ALIGNMENT_BYTES);
    b->weight[index] = PEN_NONE;
    b->same_as[index] = index;
  }
  if (!pen_find_weights(b)) return false;
  /* The ops before the first step make constants. */
  for (uint32_t index = 0; index < tables->start_op_count; index++) {
    const struct pen_op *op = &tables->ops[tables->start_first_op + index];
    uint32_t made = op->operand[pen_signature_of(op->kind)->input_count];
    if (b->use[made] != PEN_USE_LOCAL || tables->tensors[made].base != PEN_BASE_PERSISTENT)
      return pen_problem_note(problem, b->rank, PEN_NONE,
                              "an op before the first step writes %s, which is not a constant",
                              tables->tensors[made].name);
    b->use[made] = PEN_USE_CONSTANT;
  }
  for (uint32_t index = 0; index < tables->tensor_count; index++)
    if (tables->tensors[index].base == PEN_BASE_PERSISTENT && b->use[index] == PEN_USE_LOCAL)
      return pen_problem_note(
          problem, b->rank, PEN_NONE,
          "%s is persistent, but no weight, gradient or constant is at its address",
          tables->tensors[index].name);
  return true;
}

/* ---- ops ---- */

/* A data op of an input by name makes what a microbatch has of one that the plan has. In generation
 * a command fills it. */
static bool check_input(const struct pen_rank_context *b, uint32_t op_index,
                        const struct pen_op *op, const struct pen_signature *signature) {
  const int number = pen_signature_dim(signature, "input"),
            rows = pen_signature_dim(signature, "rows"),
            width = pen_signature_dim(signature, "width");
  if (op->kind == PEN_OP_SHARE && (uint64_t)op->dim[0] >= b->plan->share_count)
    return pen_problem_note(b->checked->problem, b->rank, PEN_NONE,
                            "op %u (SHARE) makes share %lld, but the plan has %u", op_index,
                            (long long)op->dim[0], b->plan->share_count);
  if (number < 0 || op->dim[number] == 0) return true;
  if ((uint64_t)op->dim[number] > b->plan->input_count)
    return pen_problem_note(b->checked->problem, b->rank, PEN_NONE,
                            "op %u (%s) reads input %lld, but the plan has %u", op_index,
                            signature->kind, (long long)op->dim[number], b->plan->input_count);
  const struct pen_input *input = &b->plan->inputs[op->dim[number] - 1];
  uint64_t wanted = b->plan->microbatch;
  for (uint32_t n = 0; n < input->dim_count; n++)
    wanted *= input->dim[n] ? input->dim[n] : b->profile->sequence;
  const uint64_t made = (uint64_t)op->dim[rows] * (uint64_t)(width < 0 ? 1 : op->dim[width]);
  return made == wanted || pen_profile_kind_generates(b->profile->kind) ||
         pen_problem_note(b->checked->problem, b->rank, PEN_NONE,
                          "op %u (%s) makes %llu elements, but a microbatch has %llu of %s",
                          op_index, signature->kind, (unsigned long long)made,
                          (unsigned long long)wanted, input->name);
}

/* One operand against the signature. */
static bool check_operand(const struct pen_rank_context *b, uint32_t op_index,
                          const struct pen_op *op, const struct pen_signature *signature, int k) {
  struct pen_problem *problem = b->checked->problem;
  uint32_t tensor = op->operand[k];
  if (k >= signature->operand_count)
    return tensor == PEN_NONE || pen_problem_note(problem, b->rank, PEN_NONE,
                                                  "op %u (%s) has more operands than its signature",
                                                  op_index, signature->kind);
  const struct pen_operand *operand = &signature->operand[k];
  if (tensor == PEN_NONE)
    return operand->optional ||
           pen_problem_note(problem, b->rank, PEN_NONE, "op %u (%s): %s is missing", op_index,
                            signature->kind, operand->name);
  if (tensor >= b->tables->tensor_count)
    return pen_problem_note(problem, b->rank, PEN_NONE, "op %u (%s): %s is tensor %u of %u",
                            op_index, signature->kind, operand->name, tensor,
                            b->tables->tensor_count);
  const struct pen_tensor *t = &b->tables->tensors[tensor];
  uint8_t dtype = pen_operand_dtype(operand, op->dtype);
  if (t->dtype != dtype)
    return pen_problem_note(problem, b->rank, PEN_NONE, "op %u (%s): %s is %s, but %s is %s",
                            op_index, signature->kind, operand->name, pen_dtype_text(dtype),
                            t->name, pen_dtype_text(t->dtype));
  uint64_t bytes = pen_operand_bytes(operand, op->dtype, op->dim);
  if (t->bytes != bytes)
    return pen_problem_note(problem, b->rank, PEN_NONE,
                            "op %u (%s): %s has %llu bytes, but %s %llu", op_index, signature->kind,
                            operand->name, (unsigned long long)bytes, t->name,
                            (unsigned long long)t->bytes);
  return true;
}

/* The parts of one tensor (PEN_PARTS) are all there, and one after the other. */
static bool check_parts(const struct pen_rank_context *b, uint32_t op_index,
                        const struct pen_op *op, const struct pen_signature *signature) {
  const struct pen_tensor *before = NULL;
  for (int k = signature->first_part; k <= signature->last_part && signature->last_part > 0; k++) {
    const struct pen_operand *operand = &signature->operand[k];
    if ((op->operand[k] == PEN_NONE) != pen_part_is_empty(operand, op->dim))
      return pen_problem_note(b->checked->problem, b->rank, PEN_NONE,
                              "op %u (%s): %s is %s, but by its dims it is not", op_index,
                              signature->kind, operand->name,
                              op->operand[k] == PEN_NONE ? "missing" : "present");
    if (op->operand[k] == PEN_NONE) continue;
    const struct pen_tensor *part = &b->tables->tensors[op->operand[k]];
    if (before && (part->base != before->base || part->offset != before->offset + before->bytes))
      return pen_problem_note(b->checked->problem, b->rank, PEN_NONE,
                              "op %u (%s): %s does not begin where %s ends", op_index,
                              signature->kind, part->name, before->name);
    before = part;
  }
  return true;
}

static bool check_dims(const struct pen_rank_context *b, uint32_t op_index, const struct pen_op *op,
                       const struct pen_signature *signature) {
  struct pen_problem *problem = b->checked->problem;
  for (int dim = 0; dim < signature->dim_count; dim++)
    if (op->dim[dim] < 0)
      return pen_problem_note(problem, b->rank, PEN_NONE, "op %u (%s): dim %s is %lld", op_index,
                              signature->kind, signature->dim[dim], (long long)op->dim[dim]);
  return pen_signature_adds_up(signature, op->dim) ||
         pen_problem_note(problem, b->rank, PEN_NONE,
                          "op %u (%s): dim %s is %lld, which is not the sum of the others",
                          op_index, signature->kind, signature->dim[signature->sum_dim],
                          (long long)op->dim[signature->sum_dim]);
}

static bool check_ops(const struct pen_rank_context *b) {
  struct pen_problem *problem = b->checked->problem;
  const struct pen_rank_program *tables = b->tables;
  for (uint32_t index = 0; index < tables->op_count; index++) {
    const struct pen_op *op = &tables->ops[index];
    if (op->kind >= PEN_OP_COUNT)
      return pen_problem_note(problem, b->rank, PEN_NONE, "op %u: there is no kind %u", index,
                              op->kind);
    const struct pen_signature *signature = pen_signature_of(op->kind);
    const bool any =
        (op->kind == PEN_OP_ALL_GATHER_PARTIAL && op->dtype == PEN_F64) ||
        (op->dtype == PEN_BF16_PARTIAL && signature->operand[signature->input_count].partial);
    if (op->dtype != PEN_F32 && op->dtype != pen_signature_dtype(signature, PEN_BF16) && !any)
      return pen_problem_note(problem, b->rank, PEN_NONE, "op %u (%s): it cannot be of dtype %s",
                              index, signature->kind, pen_dtype_text(op->dtype));
    if (!check_dims(b, index, op, signature) || !check_input(b, index, op, signature)) return false;
    for (int k = 0; k < PEN_OPERANDS_MAX; k++)
      if (!check_operand(b, index, op, signature, k)) return false;
    if (!check_parts(b, index, op, signature)) return false;
    uint64_t wanted = pen_signature_workspace_bytes(signature, b->plan->device,
                                                    b->plan->threads_per_rank, op->dtype, op->dim);
    if (op->workspace == PEN_NONE ? wanted > 0
                                  : op->workspace >= tables->tensor_count ||
                                        tables->tensors[op->workspace].bytes < wanted)
      return pen_problem_note(problem, b->rank, PEN_NONE,
                              "op %u (%s): its workspace has fewer than %llu bytes", index,
                              signature->kind, (unsigned long long)wanted);
  }
  if ((uint64_t)tables->start_first_op + tables->start_op_count > tables->op_count)
    return pen_problem_note(problem, b->rank, PEN_NONE,
                            "the ops before the first step are beyond the table");
  for (uint32_t index = 0; index < tables->program_count; index++) {
    const struct pen_program *program = &tables->programs[index];
    bool backward = program->kind == PEN_I || program->kind == PEN_B;
    if (program->recompute_op_count > (backward ? program->op_count : 0))
      return pen_problem_note(problem, b->rank, PEN_NONE,
                              "program %u: it cannot recompute %u ops of F", index,
                              program->recompute_op_count);
    if ((uint64_t)program->first_op + program->op_count > tables->op_count)
      return pen_problem_note(problem, b->rank, PEN_NONE,
                              "program %u: its ops are beyond the table", index);
  }
  return true;
}

/* ---- actions ---- */

/* The program and frame of a compute action. */
static bool check_compute_columns(const struct pen_rank_context *b, uint32_t index) {
  struct pen_problem *problem = b->checked->problem;
  const struct pen_rank_program *tables = b->tables;
  const struct pen_action *action = &tables->actions[index];
  if (action->program >= tables->program_count)
    return pen_problem_note(problem, b->rank, index, "it names no program");
  if (action->frame >= tables->frame_count)
    return pen_problem_note(problem, b->rank, index, "it names no frame");
  const struct pen_program *program = &tables->programs[action->program];
  if (program->stage != action->stage || program->kind != action->kind)
    return pen_problem_note(problem, b->rank, index, "its program is of another stage or kind");
  const struct pen_frame *frame = &tables->frames[action->frame];
  uint64_t bits =
      0; /* of all addresses at once: a test in the loop takes a twentieth of the verifier's time */
  for (int base = 0; base < PEN_BASES; base++)
    bits |= base == PEN_BASE_LOSS ? 0 : frame->base[base];
  /* 0: the program has none, which op_trace.c checks. */
  if (frame->base[PEN_BASE_PARTIAL] && frame->base[PEN_BASE_PARTIAL] != b->memory->partial_offset)
    return pen_problem_note(problem, b->rank, index,
                            "the gradients of its microbatch are at %llu, not at %llu",
                            (unsigned long long)frame->base[PEN_BASE_PARTIAL],
                            (unsigned long long)b->memory->partial_offset);
  if (frame->base[PEN_BASE_EXCHANGE] &&
      frame->base[PEN_BASE_EXCHANGE] != b->memory->exchange_offset)
    return pen_problem_note(problem, b->rank, index, "its slots are at %llu, not at %llu",
                            (unsigned long long)frame->base[PEN_BASE_EXCHANGE],
                            (unsigned long long)b->memory->exchange_offset);
  if (!pen_check_outputs_frame(b, index)) return false;
  if (is_aligned(bits) && frame->base[PEN_BASE_PERSISTENT] == 0) return true;
  for (int base = 0; base < PEN_BASES; base++)
    if (base == PEN_BASE_PERSISTENT ? frame->base[base] != 0
                                    : base != PEN_BASE_LOSS && !is_aligned(frame->base[base]))
      return pen_problem_note(problem, b->rank, index, "the %s of its frame is at %llu",
                              bases[base], (unsigned long long)frame->base[base]);
  return true;
}

static bool check_action_columns(const struct pen_rank_context *b, uint32_t index) {
  struct pen_problem *problem = b->checked->problem;
  const struct pen_rank_program *tables = b->tables;
  const struct pen_action *action = &tables->actions[index];
  if (action->kind == PEN_UNSHARD) {
    if (action->frame >= tables->frame_count)
      return pen_problem_note(problem, b->rank, index, "it names no frame");
    uint64_t at = tables->frames[action->frame].base[PEN_BASE_UNSHARDED];
    return (is_aligned(at) && at <= b->memory->arena_bytes) ||
           pen_problem_note(problem, b->rank, index, "its address is %llu", (unsigned long long)at);
  }
  if (pen_is_compute(action->kind)) return check_compute_columns(b, index);
  if (action->kind == PEN_ADD_TIED_GRAD)
    return pen_check_add_tied_gradient(b->checked, b->plan, b->profile, b->rank, index);
  if (action->kind >= PEN_MICROBATCH_KINDS) return true;
  if (action->message >= b->profile->message_count)
    return pen_problem_note(problem, b->rank, index, "it names no message");
  const struct pen_message *message = &b->profile->messages[action->message];
  struct pen_message_key wanted;
  pen_message_of_action(b->checked, action, &wanted);
  if (message->kind != pen_direction_send[wanted.direction] ||
      message->stage != wanted.from_stage || message->microbatch != action->microbatch)
    return pen_problem_note(problem, b->rank, index,
                            "it names message %u, which belongs to another action",
                            action->message);
  return true;
}

/* UPDATE needs the norms of all ranks when it clips. */
static bool check_wait_norm(const struct pen_rank_context *b) {
  bool gathered = false;
  if (b->checked->profile_kind != PEN_TRAIN || b->plan->optimizer.clip_norm == 0) return true;
  for (uint32_t index = 0; index < b->tables->action_count; index++) {
    if (b->tables->actions[index].kind == PEN_WAIT_NORM) gathered = true;
    if (b->tables->actions[index].kind == PEN_UPDATE && !gathered)
      return pen_problem_note(
          b->checked->problem, b->rank, index,
          "it clips by the norm of all ranks, but WAIT_NORM does not come before it");
  }
  return true;
}

/* ---- all tables ---- */

static bool check_rank(struct pen_rank_context *b) {
  const struct pen_rank_memory *memory = b->memory;
  if (memory->receive_bytes > memory->persistent_end ||
      memory->persistent_end > memory->arena_bytes ||
      memory->activation_bytes != memory->arena_bytes - memory->persistent_end)
    return pen_problem_note(b->checked->problem, b->rank, PEN_NONE,
                            "receive region, persistent part and arena do not follow each other");
  if (memory->cache_offset < memory->persistent_end || !is_aligned(memory->cache_offset) ||
      memory->cache_offset > memory->arena_bytes ||
      memory->cache_bytes != memory->arena_bytes - memory->cache_offset)
    return pen_problem_note(b->checked->problem, b->rank, PEN_NONE,
                            "the cache is not at the end of the activation part");
  if (!check_ops(b) || !pen_check_rows(b) || !check_tensor_table(b)) return false;
  for (uint32_t stage = 0; stage < b->checked->stage_count; stage++)
    if (b->checked->rank_of[stage] == b->rank && !check_stage_tensors(b, stage)) return false;
  for (uint32_t index = 0; index < b->tables->action_count; index++)
    if (!check_action_columns(b, index)) return false;
  return check_wait_norm(b) && pen_check_audit_memory(b) && pen_check_muon(b) &&
         pen_check_persistent(b) && pen_check_outputs(b) && pen_check_router_losses(b) &&
         pen_check_router_counts(b) && pen_check_cache(b);
}

/* The weights of the plan grouped by rank: those of each rank's first tensor rank. */
struct weights_by_rank {
  uint32_t *weight; /* [weight_count]: indices into the plan's weights */
  uint32_t *first;  /* [rank_count + 1]: of each rank, in `weight` */
  uint32_t *index;  /* [weight of the plan]: its index among the weights of its tensor rank */
};

static struct weights_by_rank group_weights(const struct pen_plan *plan) {
  size_t count = plan->weight_count;
  struct weights_by_rank by_rank = {pen_new(count + 1, sizeof(uint32_t)),
                                    pen_new((size_t)plan->rank_count + 2, sizeof(uint32_t)),
                                    pen_new(count + 1, sizeof(uint32_t))};
  for (size_t index = 0; index < count; index++)
    if (pen_first_tensor_rank(plan, &plan->weights[index]) == 0)
      by_rank.index[index] = by_rank.first[plan->weights[index].rank + 1]++;
  for (uint32_t rank = 0; rank < plan->rank_count; rank++)
    by_rank.first[rank + 1] += by_rank.first[rank];
  for (size_t index = 0; index < count; index++)
    if (pen_first_tensor_rank(plan, &plan->weights[index]) == 0)
      by_rank.weight[by_rank.first[plan->weights[index].rank] + by_rank.index[index]] =
          (uint32_t)index;
  for (uint32_t index = 0; index < count; index++)
    by_rank.index[index] = by_rank.index[pen_first_tensor_rank_weight(plan, index)];
  return by_rank;
}

bool pen_check_tables(const struct pen_check_context *c, const struct pen_plan *plan,
                      const struct pen_profile *profile, struct pen_rank_context *contexts) {
  for (uint32_t index = 0; index < plan->weight_count; index++) {
    const struct pen_weight *weight = &plan->weights[index];
    if (weight->stage >= c->stage_count || weight->rank != c->rank_of[weight->stage])
      return pen_problem_note(c->problem, PEN_NONE, PEN_NONE,
                              "weight %s is on rank %u, but its stage is not", weight->name,
                              weight->rank);
  }
  struct weights_by_rank by_rank = group_weights(plan);
  const uint32_t splits = pen_split_count(plan);
  for (uint32_t rank = 0; rank < c->rank_count; rank++) {
    const struct pen_rank_program *tables = &profile->ranks[rank];
    size_t tensors = (size_t)tables->tensor_count + 1;
    contexts[rank] =
        (struct pen_rank_context){.checked = c,
                                  .plan = plan,
                                  .profile = profile,
                                  .tables = tables,
                                  .rank = rank,
                                  .split_count = splits,
                                  .memory = &plan->memory[rank],
                                  .own_weight = by_rank.weight + by_rank.first[rank],
                                  .own_weight_count = by_rank.first[rank + 1] - by_rank.first[rank],
                                  .own_weight_index = by_rank.index,
                                  .use = pen_new(tensors, sizeof(uint8_t)),
                                  .weight = pen_new(tensors, sizeof(uint32_t)),
                                  .received = pen_new(tensors, sizeof(bool)),
                                  .has_sum = pen_new(tensors, sizeof(bool)),
                                  .same_as = pen_new(tensors, sizeof(uint32_t))};
    if (!check_rank(&contexts[rank]) || !pen_check_replicas(&contexts[rank])) return false;
  }
  return pen_check_messages(c, plan, profile);
}
