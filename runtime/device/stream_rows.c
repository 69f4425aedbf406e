/* queue_rows.c: what each kind of row puts on a rank's queue: the meanings in actions.def, in calls
 * that a device keeps in order. */
#include "runtime/device/stream_executor.h"

#include "runtime/base/check.h"
#include "runtime/device/link.h"
#include "runtime/exec/replicas.h"
#include "runtime/comm/step_stats.h"
#include "runtime/plan/shard.h"

static uint32_t index_of(const struct pen_vm *vm, const struct pen_action *row) {
  return (uint32_t)(row - vm->program->actions);
}

void pen_stream_await_sends(struct pen_vm *vm, const struct pen_action *row) {
  struct pen_link *link = vm->queued.link;
  const uint32_t index = index_of(vm, row);
  for (uint32_t i = link == NULL ? 0 : link->reuse.first[index];
       link != NULL && i < link->reuse.first[index + 1]; i++) {
    link->kind->reuse(link, link->reuse.message[i]);
  }
}

/* F, B, I, W. Of a pair a|b the second runs on the side stream, from where the first began; what
 * follows waits for both. */
static bool compute(struct pen_vm *vm, const struct pen_action *action) {
  pen_assert(action->frame < vm->program->frame_count &&
             action->program < vm->program->program_count);
  struct pen_stream_state *queue = vm->queue;
  const struct pen_program *program = &vm->program->programs[action->program];
  const bool second = queue->forked;
  pen_stream_await_sends(vm, action);
  if (second) {
    queue->device->stream_wait_event(queue->side, queue->fork);
  }
  queue->forked = action->overlaps;
  if (action->overlaps) {
    queue->device->event_record(queue->fork, queue->stream);
  }
  vm->data.row_microbatch = action->microbatch;
  vm->stream = second ? queue->side : queue->stream;
  pen_vm_call(vm, program->first_op, program->op_count, &vm->program->frames[action->frame]);
  vm->stream = queue->stream;
  if (second) {
    queue->device->event_record(queue->join, queue->side);
    queue->device->stream_wait_event(queue->stream, queue->join);
  }
  return true;
}

static bool send(struct pen_vm *vm, const struct pen_action *action) {
  pen_assert(action->message < vm->profile->message_count);
  vm->queued.link->kind->send(vm->queued.link, action->message);
  return true;
}

static bool receive(struct pen_vm *vm, const struct pen_action *action) {
  vm->queued.link->kind->credit(vm->queued.link, action->message, index_of(vm, action));
  return true;
}

static bool await(struct pen_vm *vm, const struct pen_action *action) {
  vm->queued.link->kind->wait(vm->queued.link, action->message);
  return true;
}

/* A tied matrix's gradients: as on the CPU. */
static bool join(struct pen_vm *vm, const struct pen_action *action) {
  pen_stream_await_sends(vm, action);
  vm->join.call.stream = vm->stream;
  return pen_handlers[PEN_ADD_TIED_GRAD](vm, action);
}

static double *board_there(const struct pen_stream_state *queue) {
  return (double *)(queue->arena + queue->memory->step_stats_offset);
}

/* This replica's entries. */
static double *own_board(const struct pen_vm *vm) {
  return board_there(vm->queue) + pen_step_stats_first(vm->plan, vm->replica);
}

static bool norm(struct pen_vm *vm, const struct pen_action *action) {
  (void)action;
  struct pen_stream_state *queue = vm->queue;
  const bool greatest = vm->plan->optimizer.norm == PEN_NORM_INFINITE;
  for (uint32_t i = 0; i < vm->weight_count; i++) {
    const struct pen_shard shard = pen_shard_of(vm->plan, vm->weights[i], vm->replica);
    const float *gradient =
        (const float *)(queue->arena + vm->plan->weights[vm->weights[i]].gradient_offset);
    (greatest ? queue->device->max_abs : queue->device->sum_squares)(
        own_board(vm) + vm->weights[i], gradient + shard.first, shard.count,
        queue->arena + queue->memory->reduce_offset, queue->stream);
  }
  return true;
}

static bool publish(struct pen_vm *vm, const struct pen_action *action) {
  (void)action;
  const struct pen_plan *plan = vm->plan;
  struct pen_stream_state *queue = vm->queue;
  if (pen_last_stage_rank(plan, vm->profile) == vm->rank) {
    const uint32_t count = vm->profile->microbatch_count;
    double *losses = own_board(vm) + plan->weight_count;
    queue->device->copy(losses, queue->arena + plan->loss_offset, count * sizeof *losses,
                        queue->stream);
    if (count < plan->loss_count) { /* of a step of another shape */
      queue->device->zero(losses + count, (plan->loss_count - count) * sizeof *losses,
                          queue->stream);
    }
  }
  if (vm->queued.link != NULL) {
    vm->queued.link->kind->publish(vm->queued.link);
  }
  return true;
}

static bool gather(struct pen_vm *vm, const struct pen_action *action) {
  (void)action;
  if (vm->queued.link != NULL) {
    vm->queued.link->kind->gather(vm->queued.link);
  }
  return true;
}

/* AdamW on the shard of a weight that this replica updates: all of it where moments are whole.
 * Leaves all of the gradient zero. */
static void learn_weight(struct pen_vm *vm, uint32_t index, const struct pen_adamw *settings) {
  struct pen_stream_state *queue = vm->queue;
  const struct pen_weight *weight = &vm->plan->weights[index];
  const struct pen_shard own =
      pen_kept_of(vm->plan, index, vm->replica, pen_moments_are_sharded(vm->plan));
  const uint64_t past = own.first + own.count;
  float *gradient = (float *)(queue->arena + weight->gradient_offset);
  uint16_t *copy = weight->bf16_offset == UINT64_MAX
                       ? NULL
                       : (uint16_t *)(queue->arena + weight->bf16_offset) +
                             (weight->bf16_sharded ? 0 : own.first);
  queue->device->adamw_step(
      (float *)(queue->arena + weight->value_offset) + (weight->value_sharded ? 0 : own.first),
      gradient + own.first, (float *)(queue->arena + weight->exp_avg_offset),
      (float *)(queue->arena + weight->exp_avg_sq_offset), copy, own.count, settings,
      weight->weight_decay, queue->stream);
  if (own.first > 0) {
    queue->device->zero(gradient, own.first * sizeof *gradient, queue->stream);
  }
  if (past < weight->count) {
    queue->device->zero(gradient + past, (weight->count - past) * sizeof *gradient, queue->stream);
  }
}

static bool update(struct pen_vm *vm, const struct pen_action *action) {
  pen_stream_await_sends(vm, action);
  pen_stream_collective_begin(vm, action);
  struct pen_stream_state *queue = vm->queue;
  struct pen_adamw *settings = (struct pen_adamw *)(queue->arena + queue->memory->settings_offset);
  const struct pen_adamw *base =
      (const struct pen_adamw *)(queue->arena + queue->memory->staged_input_offset);
  queue->device->clip_scale(settings, base, board_there(queue), vm->plan->weight_count,
                            vm->plan->replica_count, pen_step_stats_first(vm->plan, 1),
                            vm->plan->optimizer.clip_norm,
                            vm->plan->optimizer.norm == PEN_NORM_INFINITE, queue->stream);
  pen_clear_head_gradients(vm);
  for (uint32_t i = 0; i < vm->weight_count; i++) {
    learn_weight(vm, vm->weights[i], settings);
  }
  pen_stream_collective_end(vm);
  return true;
}

#define HANDLERS                                                                                   \
  [PEN_F] = compute, [PEN_B] = compute, [PEN_I] = compute, [PEN_W] = compute, [PEN_SEND_F] = send, \
  [PEN_RECV_F] = receive, [PEN_SEND_B] = send, [PEN_RECV_B] = receive, [PEN_WAIT_F] = await,       \
  [PEN_WAIT_B] = await, [PEN_NORM] = norm, [PEN_PUBLISH] = publish, [PEN_WAIT_NORM] = gather,      \
  [PEN_UPDATE] = update, [PEN_ADD_TIED_GRAD] = join, [PEN_SEND_G] = send, [PEN_RECV_G] = receive,  \
  [PEN_WAIT_G] = await, [PEN_SEND_V] = send, [PEN_RECV_V] = receive, [PEN_WAIT_V] = await,         \
  [PEN_GRAD_READY] = pen_queue_grad_ready, [PEN_REDUCE_SCATTER] = pen_queue_reduce_scatter,        \
  [PEN_ALL_GATHER_GRAD] = pen_queue_all_gather_gradients,                                          \
  [PEN_ALL_GATHER_WEIGHT] = pen_queue_all_gather_weights, [PEN_UNSHARD] = pen_stream_unshard,      \
  [PEN_RESHARD] = pen_reshard
pen_handler *const pen_stream_handlers[PEN_ACTION_KINDS] = {HANDLERS};

/* --trace: a row, and the wait until the device has done it: a step takes longer so, and pairs do
 * not overlap. */
static bool traced(struct pen_vm *vm, const struct pen_action *action) {
  uint64_t start_ns = pen_now_ns();
  bool going = pen_stream_handlers[action->kind](vm, action);
  void *end = vm->queue->row_done[vm->queue->rows_begun % PEN_ACTIONS_AHEAD];
  vm->queue->device->event_record(end, vm->queue->stream);
  going = going && pen_stream_await_action(vm, end);
  pen_trace_add(vm->trace, (uint32_t)(action - vm->program->actions), start_ns, pen_now_ns());
  return going;
}

pen_handler *const pen_stream_handlers_traced[PEN_ACTION_KINDS] = {
#define PEN_ACTION(kind, text, printed, meaning) [PEN_##kind] = traced,
#include "runtime/plan/actions.def"
};
