/* verify_tables.c: every entry of the finished plan's tables by itself: stages, tensors, ops, rows,
 * messages, channels.
 *
 * The parts after this one index tables and follow addresses without looking; so nothing may be out
 * of range when it is done, and each entry must mean what its row says. For each rank, then for
 * all:
 *
 *   sizes      window, persistent part and arena follow each other
 *   ops        kind, dtype and dims are possible; each operand is there unless optional, and its
 * tensor has the dtype and the bytes that the op's signature gives for these dims
 * (kernels/ops.def); the workspace suffices; programs lie within the table tensors    aligned; what
 * is persistent lies on a weight, a gradient or a constant (verify_persistent.c) stages     input,
 * output and their gradients are there where a neighbour is, count from the right base, and have at
 * both ends of the border the same dtype and bytes rows       name a program of their own kind and
 * stage, a frame with aligned places, or the message that is theirs replicas   the rows and places
 * of the exchange between them (verify_replicas.c) messages   leave from where the maker's frame
 * puts the tensor, arrive where the reader's does, and within the receiver's window; on their
 *              channel numbered as they are sent, and credits as they are received; channels count
 * what they carry
 *
 * Whether what lies at an address is still, or already, the value that is meant, verify_memory.c
 * asks. */
#include "gen/model/op_signature.h"
#include "gen/verify/internal.h"
#include "gen/base/arena.h"
#include "runtime/plan/plan.h"

static const char *const bases[PEN_BASES] = {
#define PEN_BASE(name, text, meaning) [PEN_BASE_##name] = text,
#include "runtime/plan/bases.def"
};

static bool is_aligned(uint64_t offset) { return offset % PEN_ALIGNMENT_BYTES == 0; }

/* ---- tensors ---- */

/* Which base a stage's boundary tensor must count from. */
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

/* The two ends of a border have one size and one type. */
static bool check_border(const struct pen_rank_context *b, uint32_t own, uint32_t other_rank,
                         uint32_t other) {
  const struct pen_tensor *mine = &b->tables->tensors[own];
  const struct pen_rank_program *tables = &b->profile->ranks[other_rank];
  if (other >= tables->tensor_count) return true; /* found when that rank is checked */
  const struct pen_tensor *theirs = &tables->tensors[other];
  if (mine->bytes == theirs->bytes && mine->dtype == theirs->dtype) return true;
  return pen_problem_note(b->checked->problem, b->rank, PEN_NONE,
                          "%s has %llu bytes of %s, but %s on rank %u %llu of %s", mine->name,
                          (unsigned long long)mine->bytes, pen_dtype_text(mine->dtype),
                          theirs->name, other_rank, (unsigned long long)theirs->bytes,
                          pen_dtype_text(theirs->dtype));
}

/* A stage's boundary tensors, and which of them come by message or are a neighbour's. */
static bool check_stage(struct pen_rank_context *b, uint32_t index) {
  const struct pen_checked *c = b->checked;
  const struct pen_stage *stage = &b->profile->stages[index];
  bool first = index == 0, last = index + 1 == c->stage_count, train = c->profile_kind == PEN_TRAIN;
  if (!check_boundary(b, index, stage->input, PEN_BASE_INPUT, !first) ||
      !check_boundary(b, index, stage->output, PEN_BASE_OUTPUT, !last) ||
      !check_boundary(b, index, stage->output_gradient, PEN_BASE_OUTPUT_GRADIENT, !last && train) ||
      !check_boundary(b, index, stage->input_gradient, PEN_BASE_INPUT_GRADIENT, !first && train))
    return false;
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

static bool check_tensors(struct pen_rank_context *b) {
  const struct pen_rank_program *tables = b->tables;
  struct pen_problem *problem = b->checked->problem;
  for (uint32_t index = 0; index < tables->tensor_count; index++) {
    const struct pen_tensor *tensor = &tables->tensors[index];
    if (tensor->base >= PEN_BASES)
      return pen_problem_note(problem, b->rank, PEN_NONE, "tensor %s has no base", tensor->name);
    if (!is_aligned(tensor->offset))
      return pen_problem_note(problem, b->rank, PEN_NONE,
                              "tensor %s stands at %llu, not a multiple of %d", tensor->name,
                              (unsigned long long)tensor->offset, PEN_ALIGNMENT_BYTES);
    b->weight[index] = PEN_NONE;
    b->same_as[index] = index;
  }
  if (!pen_find_weights(b)) return false;
  for (uint32_t index = 0; index < tables->start_op_count;
       index++) { /* what start ops make is a constant */
    const struct pen_op *op = &tables->ops[tables->start_first_op + index];
    uint32_t made = op->operand[pen_signature_of(op->kind)->input_count];
    if (b->use[made] != PEN_USE_LOCAL || tables->tensors[made].base != PEN_BASE_PERSISTENT)
      return pen_problem_note(problem, b->rank, PEN_NONE,
                              "the start writes %s, which is no constant",
                              tables->tensors[made].name);
    b->use[made] = PEN_USE_CONSTANT;
  }
  for (uint32_t index = 0; index < tables->tensor_count; index++)
    if (tables->tensors[index].base == PEN_BASE_PERSISTENT && b->use[index] == PEN_USE_LOCAL)
      return pen_problem_note(problem, b->rank, PEN_NONE,
                              "%s is persistent, but no weight, gradient or constant lies there",
                              tables->tensors[index].name);
  return true;
}

/* ---- ops ---- */

/* One operand against its place in the signature. */
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

static bool check_ops(const struct pen_rank_context *b) {
  struct pen_problem *problem = b->checked->problem;
  const struct pen_rank_program *tables = b->tables;
  for (uint32_t index = 0; index < tables->op_count; index++) {
    const struct pen_op *op = &tables->ops[index];
    if (op->kind >= PEN_OP_COUNT)
      return pen_problem_note(problem, b->rank, PEN_NONE, "op %u: there is no kind %u", index,
                              op->kind);
    const struct pen_signature *signature = pen_signature_of(op->kind);
    if (op->dtype != PEN_F32 && op->dtype != pen_signature_dtype(signature, PEN_BF16))
      return pen_problem_note(problem, b->rank, PEN_NONE, "op %u (%s): it cannot be of dtype %s",
                              index, signature->kind, pen_dtype_text(op->dtype));
    for (int dim = 0; dim < signature->dim_count; dim++)
      if (op->dim[dim] < 0) /* 0 in a shape: see check_operand */
        return pen_problem_note(problem, b->rank, PEN_NONE, "op %u (%s): dim %s is %lld", index,
                                signature->kind, signature->dim[dim], (long long)op->dim[dim]);
    for (int k = 0; k < PEN_OPERANDS_MAX; k++)
      if (!check_operand(b, index, op, signature, k)) return false;
    uint64_t wanted = pen_signature_workspace_bytes(signature, b->plan->device, op->dtype, op->dim);
    if (op->workspace == PEN_NONE ? wanted > 0
                                  : op->workspace >= tables->tensor_count ||
                                        tables->tensors[op->workspace].bytes < wanted)
      return pen_problem_note(problem, b->rank, PEN_NONE,
                              "op %u (%s): its workspace has not the %llu bytes it wants", index,
                              signature->kind, (unsigned long long)wanted);
  }
  if ((uint64_t)tables->start_first_op + tables->start_op_count > tables->op_count)
    return pen_problem_note(problem, b->rank, PEN_NONE, "the start's ops are beyond the table");
  for (uint32_t index = 0; index < tables->program_count; index++) {
    const struct pen_program *program = &tables->programs[index];
    bool backward = program->kind == PEN_I || program->kind == PEN_B;
    if (program->recompute_op_count > (backward ? program->op_count : 0))
      return pen_problem_note(problem, b->rank, PEN_NONE,
                              "program %u: it cannot run %u ops of F again", index,
                              program->recompute_op_count);
    if ((uint64_t)program->first_op + program->op_count > tables->op_count)
      return pen_problem_note(problem, b->rank, PEN_NONE,
                              "program %u: its ops are beyond the table", index);
  }
  return true;
}

/* ---- rows ---- */

static bool check_row(const struct pen_rank_context *b, uint32_t index) {
  struct pen_problem *problem = b->checked->problem;
  const struct pen_rank_program *tables = b->tables;
  const struct pen_action *row = &tables->actions[index];
  if (row->kind == PEN_UNSHARD) {
    if (row->frame >= tables->frame_count)
      return pen_problem_note(problem, b->rank, index, "it names no frame");
    uint64_t at = tables->frames[row->frame].base[PEN_BASE_UNSHARDED];
    return (is_aligned(at) && at <= b->memory->arena_bytes) ||
           pen_problem_note(problem, b->rank, index, "its place is at %llu",
                            (unsigned long long)at);
  }
  if (!pen_is_compute(row->kind)) {
    if (row->kind == PEN_ADD_TIED_GRAD)
      return pen_check_join(b->checked, b->plan, b->profile, b->rank, index);
    if (row->kind >= PEN_MICROBATCH_KINDS) return true;
    if (row->message >= b->profile->message_count)
      return pen_problem_note(problem, b->rank, index, "it names no message");
    const struct pen_message *message = &b->profile->messages[row->message];
    struct pen_wanted wanted;
    pen_message_of_action(b->checked, row, &wanted);
    if (message->kind != pen_direction_send[wanted.way] || message->stage != wanted.from_stage ||
        message->microbatch != row->microbatch)
      return pen_problem_note(problem, b->rank, index, "it names message %u, which is another's",
                              row->message);
    return true;
  }
  if (row->program >= tables->program_count)
    return pen_problem_note(problem, b->rank, index, "it names no program");
  if (row->frame >= tables->frame_count)
    return pen_problem_note(problem, b->rank, index, "it names no frame");
  const struct pen_program *program = &tables->programs[row->program];
  if (program->stage != row->stage || program->kind != row->kind)
    return pen_problem_note(problem, b->rank, index, "its program is of another stage or kind");
  const struct pen_frame *frame = &tables->frames[row->frame];
  uint64_t bits =
      0; /* of all places at once: a loop that asks of each is a twentieth of the whole proof */
  for (int base = 0; base < PEN_BASES; base++)
    bits |= base == PEN_BASE_LOSS ? 0 : frame->base[base];
  if (is_aligned(bits) && frame->base[PEN_BASE_PERSISTENT] == 0) return true;
  for (int base = 0; base < PEN_BASES; base++)
    if (base == PEN_BASE_PERSISTENT ? frame->base[base] != 0
                                    : base != PEN_BASE_LOSS && !is_aligned(frame->base[base]))
      return pen_problem_note(problem, b->rank, index, "its frame's %s stands at %llu", bases[base],
                              (unsigned long long)frame->base[base]);
  return true;
}

/* With clipping the update needs every rank's norm. */
static bool check_gather(const struct pen_rank_context *b) {
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

/* ---- messages and channels ---- */

/* Where a tensor lies when a row runs. */
static uint64_t place_of(const struct pen_profile *profile, uint32_t rank, uint32_t row,
                         uint32_t tensor) {
  const struct pen_rank_program *tables = &profile->ranks[rank];
  const struct pen_tensor *t = &tables->tensors[tensor];
  return tables->frames[tables->actions[row].frame].base[t->base] + t->offset;
}

/* What leaves from a border of stages and where it goes. */
static bool check_border_message(const struct pen_checked *c, const struct pen_plan *plan,
                                 const struct pen_profile *profile, uint32_t rank, uint32_t row) {
  const struct pen_message *message = &profile->messages[c->row[rank][row].message];
  bool backward = message->kind == PEN_SEND_B;
  uint32_t reader = pen_reader(c, pen_direction_of(message->kind), message->stage),
           to = c->rank_of[reader], microbatch = message->microbatch;
  uint32_t made = backward ? pen_backward_index(c, message->stage, microbatch)
                           : pen_action_index(c, PEN_F, message->stage, microbatch);
  uint32_t used = backward ? pen_backward_index(c, reader, microbatch)
                           : pen_action_index(c, PEN_F, reader, microbatch);
  const struct pen_stage *from_stage = &profile->stages[message->stage],
                         *to_stage = &profile->stages[reader];
  uint32_t source = backward ? from_stage->input_gradient : from_stage->output;
  uint32_t target = backward ? to_stage->output_gradient : to_stage->input;
  if (message->bytes != profile->ranks[rank].tensors[source].bytes)
    return pen_problem_note(c->problem, rank, row,
                            "its message has %llu bytes, but the tensor %llu",
                            (unsigned long long)message->bytes,
                            (unsigned long long)profile->ranks[rank].tensors[source].bytes);
  if (message->source_offset != place_of(profile, rank, made, source))
    return pen_problem_note(c->problem, rank, row,
                            "its message leaves from %llu, but what it sends is made at %llu",
                            (unsigned long long)message->source_offset,
                            (unsigned long long)place_of(profile, rank, made, source));
  const struct pen_rank_memory *own = &plan->memory[rank];
  bool in_window = message->source_offset < own->receive_bytes;
  uint64_t first = in_window ? 0 : own->persistent_end,
           past = in_window ? own->receive_bytes : own->arena_bytes;
  if (message->source_offset < first || message->source_offset > past ||
      message->bytes > past - message->source_offset)
    return pen_problem_note(c->problem, rank, row,
                            "its message leaves from %llu, outside window and activation part",
                            (unsigned long long)message->source_offset);
  if (message->target_offset != place_of(profile, to, used, target))
    return pen_problem_note(c->problem, rank, row,
                            "its message's home is at %llu, but rank %u reads it at %llu",
                            (unsigned long long)message->target_offset, to,
                            (unsigned long long)place_of(profile, to, used, target));
  if (message->target_offset > plan->memory[to].receive_bytes ||
      message->bytes > plan->memory[to].receive_bytes - message->target_offset)
    return pen_problem_note(c->problem, rank, row,
                            "its message's home at %llu is outside the window of rank %u",
                            (unsigned long long)message->target_offset, to);
  return true;
}

static bool check_message(const struct pen_checked *c, const struct pen_plan *plan,
                          const struct pen_profile *profile, uint32_t rank, uint32_t row,
                          uint32_t number) {
  const struct pen_message *message = &profile->messages[c->row[rank][row].message];
  enum pen_direction way = pen_direction_of(message->kind);
  uint32_t to = c->rank_of[pen_reader(c, way, message->stage)];
  if (message->channel >= profile->channel_count)
    return pen_problem_note(c->problem, rank, row, "its message has no channel");
  const struct pen_channel *channel = &profile->channels[message->channel];
  if (channel->from_rank != rank || channel->to_rank != to)
    return pen_problem_note(c->problem, rank, row,
                            "its message goes to rank %u, but its channel is from %u to %u", to,
                            channel->from_rank, channel->to_rank);
  if (message->sequence != number)
    return pen_problem_note(c->problem, rank, row,
                            "its message has sequence %u, but is number %u on its channel",
                            message->sequence, number);
  bool of_border = way == PEN_DIRECTION_FORWARD || way == PEN_DIRECTION_BACKWARD;
  return of_border ? check_border_message(c, plan, profile, rank, row)
                   : pen_check_tie_message(c, plan, profile, rank, row);
}

/* Sequence numbers by the senders' rows, credit numbers by the receivers'. */
static bool check_messages(const struct pen_checked *c, const struct pen_plan *plan,
                           const struct pen_profile *profile) {
  uint32_t *sent = pen_new((size_t)profile->channel_count + 1, sizeof *sent), total = 0;
  uint32_t *credits = pen_new((size_t)profile->channel_count + 1, sizeof *credits);
  for (uint32_t rank = 0; rank < c->rank_count; rank++)
    for (uint32_t row = 0; row < c->count[rank]; row++) {
      const struct pen_action *action = &c->row[rank][row];
      if (pen_is_send(action->kind)) {
        uint32_t channel = profile->messages[action->message].channel;
        if (!check_message(c, plan, profile, rank, row,
                           channel < profile->channel_count ? sent[channel] : 0))
          return false;
        sent[channel]++;
        total++;
      }
    }
  for (uint32_t rank = 0; rank < c->rank_count; rank++)
    for (uint32_t row = 0; row < c->count[rank]; row++) {
      const struct pen_action *action = &c->row[rank][row];
      if (!pen_is_receive(action->kind)) continue;
      const struct pen_message *message = &profile->messages[action->message];
      if (message->credit != PEN_NONE && message->credit != credits[message->channel]++)
        return pen_problem_note(c->problem, rank, row,
                                "it gives credit %u, but is number %u to give one on its channel",
                                message->credit, credits[message->channel] - 1);
    }
  if (total != profile->message_count)
    return pen_problem_note(c->problem, PEN_NONE, PEN_NONE, "%u messages, but %u are sent",
                            profile->message_count, total);
  for (uint32_t index = 0; index < profile->channel_count; index++) {
    const struct pen_channel *channel = &profile->channels[index];
    if (channel->message_count != sent[index] || channel->credit_count != credits[index])
      return pen_problem_note(
          c->problem, PEN_NONE, PEN_NONE,
          "the channel from rank %u to %u counts %u messages and %u credits, but has %u and %u",
          channel->from_rank, channel->to_rank, channel->message_count, channel->credit_count,
          sent[index], credits[index]);
  }
  return true;
}

/* ---- the whole ---- */

static bool check_rank(struct pen_rank_context *b) {
  const struct pen_rank_memory *memory = b->memory;
  if (memory->receive_bytes > memory->persistent_end ||
      memory->persistent_end > memory->arena_bytes ||
      memory->activation_bytes != memory->arena_bytes - memory->persistent_end)
    return pen_problem_note(b->checked->problem, b->rank, PEN_NONE,
                            "window, persistent part and arena do not follow each other");
  if (!check_ops(b) || !check_tensors(b)) return false;
  for (uint32_t stage = 0; stage < b->checked->stage_count; stage++)
    if (b->checked->rank_of[stage] == b->rank && !check_stage(b, stage)) return false;
  for (uint32_t index = 0; index < b->tables->action_count; index++)
    if (!check_row(b, index)) return false;
  return check_gather(b) && pen_check_persistent(b);
}

/* The plan's weights by rank, in order: which are whose, where each rank's begin ([rank_count +
 * 1]), each one's place among its rank's. */
struct shares {
  uint32_t *weight, *first, *place;
};

static struct shares share_weights(const struct pen_plan *plan) {
  size_t count = plan->weight_count;
  struct shares shares = {pen_new(count + 1, sizeof(uint32_t)),
                          pen_new((size_t)plan->rank_count + 2, sizeof(uint32_t)),
                          pen_new(count + 1, sizeof(uint32_t))};
  for (size_t index = 0; index < count; index++)
    shares.place[index] = shares.first[plan->weights[index].rank + 1]++;
  for (uint32_t rank = 0; rank < plan->rank_count; rank++)
    shares.first[rank + 1] += shares.first[rank];
  for (size_t index = 0; index < count; index++)
    shares.weight[shares.first[plan->weights[index].rank] + shares.place[index]] = (uint32_t)index;
  return shares;
}

bool pen_check_tables(const struct pen_checked *c, const struct pen_plan *plan,
                      const struct pen_profile *profile, struct pen_rank_context *bench) {
  for (uint32_t index = 0; index < plan->weight_count; index++) {
    const struct pen_weight *weight = &plan->weights[index];
    if (weight->stage >= c->stage_count || weight->rank != c->rank_of[weight->stage])
      return pen_problem_note(c->problem, PEN_NONE, PEN_NONE,
                              "weight %s is on rank %u, but its stage is not", weight->name,
                              weight->rank);
  }
  struct shares shares = share_weights(plan);
  for (uint32_t rank = 0; rank < c->rank_count; rank++) {
    const struct pen_rank_program *tables = &profile->ranks[rank];
    size_t tensors = (size_t)tables->tensor_count + 1;
    bench[rank] =
        (struct pen_rank_context){.checked = c,
                                  .plan = plan,
                                  .profile = profile,
                                  .tables = tables,
                                  .rank = rank,
                                  .memory = &plan->memory[rank],
                                  .own_weight = shares.weight + shares.first[rank],
                                  .own_weight_count = shares.first[rank + 1] - shares.first[rank],
                                  .weight_place = shares.place,
                                  .use = pen_new(tensors, sizeof(uint8_t)),
                                  .weight = pen_new(tensors, sizeof(uint32_t)),
                                  .received = pen_new(tensors, sizeof(bool)),
                                  .same_as = pen_new(tensors, sizeof(uint32_t))};
    if (!check_rank(&bench[rank]) || !pen_check_replicas(&bench[rank])) return false;
  }
  return check_messages(c, plan, profile);
}
