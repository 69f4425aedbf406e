/* handlers.c: what each kind of row does: the meanings in actions.def, one function each. */
#include <string.h>

#include "kernels/kernels.h"
#include "runtime/base/check.h"
#include "runtime/plan/shard.h"
#include "runtime/storage/bf16_weights.h"
#include "runtime/exec/replicas.h"
#include "runtime/comm/step_stats.h"
#include "runtime/exec/optimizer_step.h"
#include "runtime/exec/vm.h"

/* F, B, I, W: the row's program over the row's memory. */
static bool compute(struct pen_vm *vm, const struct pen_action *action) {
  pen_assert(action->frame < vm->program->frame_count &&
             action->program < vm->program->program_count);
  const struct pen_frame *frame = &vm->program->frames[action->frame];
  const struct pen_program *program = &vm->program->programs[action->program];
  vm->data.row_microbatch =
      (uint64_t)vm->replica * vm->profile->microbatch_count + action->microbatch;
  pen_vm_call(vm, program->first_op, program->op_count, frame);
  return true;
}

static const struct pen_message *message_of(const struct pen_vm *vm,
                                            const struct pen_action *action) {
  pen_assert(action->message < vm->profile->message_count);
  return &vm->profile->messages[action->message];
}

static bool send(struct pen_vm *vm, const struct pen_action *action) {
  return vm->transport->kind->send(vm->transport, message_of(vm, action), vm->profile_step);
}

static bool receive(struct pen_vm *vm, const struct pen_action *action) {
  vm->transport->kind->credit(vm->transport, message_of(vm, action));
  return true;
}

static bool await(struct pen_vm *vm, const struct pen_action *action) {
  return vm->transport->kind->wait(vm->transport, message_of(vm, action), vm->profile_step);
}

/* The sum lies where the embedding's gradient was; the head's is done with. */
static bool join(struct pen_vm *vm, const struct pen_action *action) {
  const struct pen_plan *plan = vm->plan;
  for (uint32_t i = 0; i < plan->tie_count; i++) {
    const struct pen_weight *weight = &plan->weights[plan->ties[i].weight];
    if (weight->rank == vm->rank && !weight->frozen) {
      float *sum = (float *)(vm->arena + weight->gradient_offset);
      bool came = plan->ties[i].rank != vm->rank;
      float *head = (float *)(vm->arena + (came ? message_of(vm, action)->target_offset
                                                : plan->ties[i].gradient_offset));
      vm->join.call.operand[0] = head;
      vm->join.call.operand[1] = sum;
      vm->join.call.operand[2] = sum;
      vm->join.call.dim[0] = (int64_t)weight->count;
      vm->join.run(&vm->join.call);
    }
  }
  return true;
}

/* What each gradient adds to the norm, by enum pen_norm_kind. */
static double (*const norm_parts[PEN_NORM_KINDS])(const float *x, size_t count) = {
    [PEN_NORM_TWO] = pen_sum_squares,
    [PEN_NORM_INFINITE] = pen_max_abs,
};

/* This replica's entries of the board. */
static double *own_board(struct pen_vm *vm) {
  return vm->transport->kind->board(vm->transport, vm->step) +
         pen_step_stats_first(vm->plan, vm->replica);
}

static bool norm(struct pen_vm *vm, const struct pen_action *action) {
  (void)action;
  double *board = own_board(vm);
  double (*measure)(const float *x, size_t count) = norm_parts[vm->plan->optimizer.norm];
  for (uint32_t i = 0; i < vm->weight_count; i++) {
    uint32_t weight = vm->weights[i];
    struct pen_shard shard = pen_shard_of(vm->plan, weight, vm->replica);
    board[weight] = measure(
        (const float *)(vm->arena + vm->plan->weights[weight].gradient_offset) + shard.first,
        shard.count);
  }
  return true;
}

static bool publish(struct pen_vm *vm, const struct pen_action *action) {
  (void)action;
  const struct pen_plan *plan = vm->plan;
  if (pen_last_stage_rank(plan, vm->profile) == vm->rank) {
    double *losses = own_board(vm) + plan->weight_count;
    memcpy(losses, vm->arena + plan->loss_offset, vm->profile->microbatch_count * sizeof *losses);
    memset(losses + vm->profile->microbatch_count, 0,
           (plan->loss_count - vm->profile->microbatch_count) * sizeof *losses);
  }
  vm->transport->kind->publish(vm->transport, vm->step);
  return true;
}

static bool gather(struct pen_vm *vm, const struct pen_action *action) {
  (void)action;
  return vm->transport->kind->gather(vm->transport, vm->step);
}

void pen_clear_head_gradients(struct pen_vm *vm) {
  const struct pen_plan *plan = vm->plan;
  for (uint32_t i = 0; i < plan->tie_count; i++) {
    const struct pen_weight *weight = &plan->weights[plan->ties[i].weight];
    if (plan->ties[i].rank == vm->rank && !weight->frozen) {
      vm->device->zero(vm->arena + plan->ties[i].gradient_offset, weight->count * sizeof(float),
                       vm->stream);
    }
  }
}

/* Leaves weights and moments as they are. */
static void skip(struct pen_vm *vm) {
  for (uint32_t i = 0; i < vm->weight_count; i++) {
    const struct pen_weight *weight = &vm->plan->weights[vm->weights[i]];
    memset(vm->arena + weight->gradient_offset, 0, weight->count * sizeof(float));
  }
}

/* AdamW on the shard of a weight that this replica updates: all of it where moments are whole.
 * Leaves all of the gradient zero. */
static void learn_weight(struct pen_vm *vm, uint32_t index, const struct pen_adamw *settings) {
  const struct pen_weight *weight = &vm->plan->weights[index];
  struct pen_shard own =
      pen_kept_of(vm->plan, index, vm->replica, pen_moments_are_sharded(vm->plan));
  float *gradient = (float *)(vm->arena + weight->gradient_offset);
  pen_adamw_step(
      (float *)(vm->arena + weight->value_offset) + (weight->value_sharded ? 0 : own.first),
      gradient + own.first, (float *)(vm->arena + weight->exp_avg_offset),
      (float *)(vm->arena + weight->exp_avg_sq_offset), own.count, settings);
  pen_weight_to_bf16(weight, own, vm->arena);
  if (own.count < weight->count) {
    memset(gradient, 0, own.first * sizeof *gradient);
    memset(gradient + own.first + own.count, 0,
           (weight->count - own.first - own.count) * sizeof *gradient);
  }
}

/* AdamW on every own weight. */
static void learn(struct pen_vm *vm) {
  const struct pen_optimizer *optimizer = &vm->plan->optimizer;
  /* Without clipping nothing of other ranks is read, and no WAIT_NORM need have come before. */
  double norm_before =
      optimizer->clip_norm == 0.0
          ? 0.0
          : pen_step_stats_norm(vm->plan, vm->transport->kind->board(vm->transport, vm->step));
  pen_clear_head_gradients(vm);
  if (pen_step_skipped(optimizer, vm->data.step_targets, norm_before)) {
    skip(vm);
    return;
  }
  struct pen_adamw settings = pen_adamw_of_step(optimizer, vm->optimizer_step, norm_before);
  for (uint32_t i = 0; i < vm->weight_count; i++) {
    settings.weight_decay = vm->plan->weights[vm->weights[i]].weight_decay;
    learn_weight(vm, vm->weights[i], &settings);
  }
}

static bool update(struct pen_vm *vm, const struct pen_action *action) {
  if (!pen_collective_begin(vm, action)) {
    return false;
  }
  learn(vm);
  pen_collective_end(vm);
  return true;
}

#define HANDLERS                                                                                   \
  [PEN_F] = compute, [PEN_B] = compute, [PEN_I] = compute, [PEN_W] = compute, [PEN_SEND_F] = send, \
  [PEN_RECV_F] = receive, [PEN_SEND_B] = send, [PEN_RECV_B] = receive, [PEN_WAIT_F] = await,       \
  [PEN_WAIT_B] = await, [PEN_SEND_G] = send, [PEN_RECV_G] = receive, [PEN_WAIT_G] = await,         \
  [PEN_SEND_V] = send, [PEN_RECV_V] = receive, [PEN_WAIT_V] = await, [PEN_ADD_TIED_GRAD] = join,   \
  [PEN_NORM] = norm, [PEN_PUBLISH] = publish, [PEN_WAIT_NORM] = gather, [PEN_UPDATE] = update,     \
  [PEN_GRAD_READY] = pen_grad_ready, [PEN_REDUCE_SCATTER] = pen_reduce_scatter,                    \
  [PEN_ALL_GATHER_GRAD] = pen_all_gather_gradients,                                                \
  [PEN_ALL_GATHER_WEIGHT] = pen_all_gather_weights, [PEN_UNSHARD] = pen_unshard,                   \
  [PEN_RESHARD] = pen_reshard
pen_handler *const pen_handlers[PEN_ACTION_KINDS] = {HANDLERS};

/* --trace: any row, with its time taken. */
static bool traced(struct pen_vm *vm, const struct pen_action *action) {
  uint64_t start_ns = pen_now_ns();
  bool going = pen_handlers[action->kind](vm, action);
  pen_trace_add(vm->trace, (uint32_t)(action - vm->program->actions), start_ns, pen_now_ns());
  return going;
}

pen_handler *const pen_handlers_traced[PEN_ACTION_KINDS] = {
#define PEN_ACTION(kind, text, printed, meaning) [PEN_##kind] = traced,
#include "runtime/plan/actions.def"
};
