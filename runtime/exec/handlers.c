/* handlers.c: what each kind of action does: the meanings in runtime/plan/actions.def, one function
 * each, as calls of the rank's device and transport. */
#include "runtime/base/check.h"
#include "runtime/comm/step_stats.h"
#include "runtime/exec/audit.h"
#include "runtime/exec/exec.h"
#include "runtime/exec/collectives.h"
#include "runtime/exec/matrices.h"
#include "runtime/exec/weight_arrays.h"
#include "runtime/plan/losses.h"
#include "runtime/plan/shard.h"

/* An action that computes on a device whose streams run at the same time. Of a pair a|b the second
 * runs on the side stream, from where the first began; what follows waits for both. */
static bool compute_on_streams(struct pen_vm *vm, const struct pen_action *action,
                               const struct pen_program *program, const struct pen_frame *frame) {
  const struct pen_streams *streams = &vm->streams;
  const bool second = vm->forked;
  vm->forked = action->overlaps;
  if (action->overlaps) {
    vm->device->event_record(streams->fork, streams->compute);
  }
  if (!second) {
    pen_vm_call(vm, program->first_op, program->op_count, frame);
    return true;
  }
  vm->device->stream_wait_event(streams->side, streams->fork);
  pen_vm_call_on(vm, program->first_op, program->op_count, frame, streams->side);
  vm->device->event_record(streams->joined, streams->side);
  vm->device->stream_wait_event(streams->compute, streams->joined);
  return true;
}

/* F, B, I, W: the action's program over its memory. */
static bool compute(struct pen_vm *vm, const struct pen_action *action) {
  pen_assert(action->frame < vm->program->frame_count &&
             action->program < vm->program->program_count);
  const struct pen_frame *frame = &vm->program->frames[action->frame];
  const struct pen_program *program = &vm->program->programs[action->program];
  vm->data.microbatch_index = action->microbatch;
  vm->collectives_before = action->awaited_collective;
  pen_wait_sends(vm, action);
  if (__builtin_expect(vm->device->asynchronous, 0)) {
    return compute_on_streams(vm, action, program, frame);
  }
  if (__builtin_expect(vm->audit != NULL, 0)) {
    pen_audit_call(vm, action);
  } else {
    pen_vm_call(vm, program->first_op, program->op_count, frame);
  }
  return !vm->aborted;
}

/* An action has changed weights that programs read; passes `going` on. */
static bool weights_written(struct pen_vm *vm, bool going) {
  if (vm->audit != NULL && going) {
    pen_audit_weights_written(vm);
  }
  return going;
}

/* ---- messages ---- */

static bool send_message(struct pen_vm *vm, const struct pen_action *action) {
  pen_assert(action->message < vm->profile->message_count);
  return vm->transport->ops->send(vm->transport, action->message);
}

static bool receive_message(struct pen_vm *vm, const struct pen_action *action) {
  uint32_t count;
  const uint32_t *sends = pen_sends_before(vm, action, &count);
  pen_assert(action->message < vm->profile->message_count);
  return vm->transport->ops->receive(vm->transport, action->message, sends, count);
}

static bool wait_message(struct pen_vm *vm, const struct pen_action *action) {
  pen_assert(action->message < vm->profile->message_count);
  return vm->transport->ops->wait(vm->transport, action->message);
}

static bool wait_tied_value(struct pen_vm *vm, const struct pen_action *action) {
  const bool going = wait_message(vm, action);
  if (vm->audit != NULL && going) {
    pen_audit_tied_value_arrived(vm);
  }
  return going;
}

/* The sum is in the place of the embedding's gradient; the head's is not used any more. A message
 * has the gradients of all ties of the tensor rank as they lie at its sender. */
static bool add_tied_gradients(struct pen_vm *vm, const struct pen_action *action) {
  const struct pen_tie *ties = pen_own_ties(vm->plan, vm->endpoint->global);
  pen_wait_sends(vm, action);
  for (uint32_t i = 0; i < pen_local_tie_count(vm->plan); i++) {
    const struct pen_weight *weight = &vm->plan->weights[ties[i].weight];
    if (weight->rank == vm->rank && !weight->frozen) {
      const bool received = ties[i].rank != vm->rank;
      struct pen_call *call = &vm->add_tied.call;
      call->operand[0] =
          vm->arena + ties[i].gradient_offset +
          (received ? vm->profile->messages[action->message].target_offset - ties[0].gradient_offset
                    : 0);
      call->operand[1] = call->operand[2] = vm->arena + weight->gradient_offset;
      call->dim[0] = (int64_t)pen_kept_gradient(vm, ties[i].weight).count;
      vm->add_tied.run(call);
    }
  }
  return true;
}

/* ---- the step's statistics ---- */

static double *own_stats(const struct pen_vm *vm) {
  return vm->step_stats + pen_step_stats_first(vm->plan, vm->replica);
}

static bool measure_norms(struct pen_vm *vm, const struct pen_action *action) {
  (void)action;
  const bool infinite = vm->plan->optimizer.norm == PEN_NORM_INFINITE;
  (infinite ? vm->device->max_abs : vm->device->sum_squares)(
      own_stats(vm), vm->norms, vm->norm_count, vm->arena + vm->memory->reduce_offset,
      vm->streams.compute);
  return true;
}

/* A row of the loss table. */
static void publish_losses(const struct pen_vm *vm, uint32_t row) {
  const struct pen_plan *plan = vm->plan;
  const bool computed = row == 0 || vm->profile->kind == PEN_TRAIN;
  const uint32_t count = computed ? vm->profile->microbatch_count : 0;
  double *losses = own_stats(vm) + pen_stats_row_first(plan, row);
  if (count > 0) {
    vm->device->copy(losses, vm->arena + pen_loss_row_offset(plan, row), count * sizeof *losses,
                     vm->streams.compute);
  }
  if (count < plan->loss_count) { /* another profile has more */
    vm->device->zero(losses + count, (plan->loss_count - count) * sizeof *losses,
                     vm->streams.compute);
  }
}

/* The choices of a router of the rank, of which the next step has none yet. */
static void publish_choices(const struct pen_vm *vm, uint32_t row) {
  const struct pen_router *router = &vm->plan->routers[row - pen_loss_rows(vm->plan)];
  const size_t bytes = router->experts * sizeof(double);
  if (pen_has_stats_row(vm->plan, vm->profile, row, vm->endpoint->global)) {
    vm->device->copy(own_stats(vm) + pen_stats_row_first(vm->plan, row), vm->arena + router->offset,
                     bytes, vm->streams.compute);
  }
  vm->device->zero(vm->arena + router->offset, bytes, vm->streams.compute);
}

static bool publish_stats(struct pen_vm *vm, const struct pen_action *action) {
  (void)action;
  for (uint32_t row = 0; row < pen_stats_rows(vm->plan); row++) {
    if (row >= pen_loss_rows(vm->plan)) {
      if (vm->profile->stages[pen_stats_row_stage(vm->plan, row)].rank == vm->rank) {
        publish_choices(vm, row);
      }
    } else if (pen_has_stats_row(vm->plan, vm->profile, row, vm->endpoint->global)) {
      publish_losses(vm, row);
    }
  }
  return vm->transport->ops->publish(vm->transport);
}

static bool wait_norm(struct pen_vm *vm, const struct pen_action *action) {
  (void)action;
  return vm->transport->ops->gather(vm->transport);
}

/* ---- UPDATE ---- */

/* Tensors [first, past) of the list: those that follow each other with one optimizer at a time. */
static void update_tensors(struct pen_vm *vm, uint32_t first, uint32_t past) {
  while (first < past) {
    uint32_t next = first + 1;
    while (next < past && vm->updates[next].optimizer == vm->updates[first].optimizer) {
      next++;
    }
    pen_update_tensors(vm, vm->updates + first, next - first);
    first = next;
  }
}

/* Before all of them have momentum. */
static void check_audited_matrix(struct pen_vm *vm) {
  for (uint32_t i = 0; i < vm->weight_count; i++) {
    if (pen_audit_updates(vm, vm->updates[i].weight) &&
        vm->updates[i].optimizer == PEN_OPTIMIZER_MUON) {
      pen_audit_update_check(&vm->audit->audit->update, vm, &vm->updates[i]);
    }
  }
}

static void update_audited(struct pen_vm *vm) {
  uint32_t done = 0;
  for (uint32_t i = 0; i < vm->weight_count; i++) {
    if (pen_audit_updates(vm, vm->updates[i].weight) &&
        vm->updates[i].optimizer != PEN_OPTIMIZER_MUON) {
      update_tensors(vm, done, i);
      pen_audit_update_run(&vm->audit->audit->update, vm, &vm->updates[i]);
      done = i + 1;
    }
  }
  update_tensors(vm, done, vm->update_count);
  pen_audit_updated(vm);
}

/* Without clipping nothing of other ranks is read, and no WAIT_NORM need have come before. */
static bool update(struct pen_vm *vm, const struct pen_action *action) {
  const struct pen_optimizer *optimizer = &vm->plan->optimizer;
  if (!pen_collective_begin(vm, action)) {
    return false;
  }
  vm->device->clip_scale(vm->adamw, vm->base, vm->step_stats, pen_entry_count(vm->plan),
                         pen_group_size(vm->plan, PEN_SHARD), pen_step_stats_first(vm->plan, 1),
                         optimizer->clip_norm, optimizer->norm == PEN_NORM_INFINITE,
                         vm->streams.compute);
  if (vm->audit != NULL) {
    check_audited_matrix(vm);
  }
  if (!pen_orthogonalize_matrices(vm)) {
    return false;
  }
  if (vm->audit != NULL) {
    update_audited(vm);
  } else {
    update_tensors(vm, 0, vm->update_count);
  }
  pen_collective_end(vm, action);
  return weights_written(vm, true);
}

/* ---- collectives ---- */

static bool run_collective(struct pen_vm *vm, const struct pen_action *action) {
  const bool going = pen_run_collective(vm, action);
  if (action->kind == PEN_ALL_GATHER_WEIGHT) {
    return weights_written(vm, going);
  }
  if (vm->audit != NULL && going && action->kind == PEN_UNSHARD) {
    pen_audit_unsharded(vm, action);
  }
  return going;
}

/* RESHARD: the buffer of UNSHARD is free again. */
static bool nothing(struct pen_vm *vm, const struct pen_action *action) {
  return (void)vm, (void)action, true;
}

pen_handler *const pen_handlers[PEN_ACTION_KINDS] = {
    [PEN_F] = compute,
    [PEN_B] = compute,
    [PEN_I] = compute,
    [PEN_W] = compute,
    [PEN_SEND_F] = send_message,
    [PEN_RECV_F] = receive_message,
    [PEN_SEND_B] = send_message,
    [PEN_RECV_B] = receive_message,
    [PEN_WAIT_F] = wait_message,
    [PEN_WAIT_B] = wait_message,
    [PEN_SEND_G] = send_message,
    [PEN_RECV_G] = receive_message,
    [PEN_WAIT_G] = wait_message,
    [PEN_SEND_V] = send_message,
    [PEN_RECV_V] = receive_message,
    [PEN_WAIT_V] = wait_tied_value,
    [PEN_ADD_TIED_GRAD] = add_tied_gradients,
    [PEN_NORM] = measure_norms,
    [PEN_PUBLISH] = publish_stats,
    [PEN_WAIT_NORM] = wait_norm,
    [PEN_UPDATE] = update,
    [PEN_RESHARD] = nothing,
#define PEN_ACTION(kind, text, printed, meaning)
#define PEN_COLLECTIVE(kind, text, meaning) [PEN_##kind] = run_collective,
#include "runtime/plan/actions.def"
};

/* --trace, measure: any action, with its time taken until it is complete. On an asynchronous
 * device a step takes longer so, and pairs do not overlap. */
static bool run_traced(struct pen_vm *vm, const struct pen_action *action) {
  if (vm->trace->others != NULL) {
    pen_other_layers_read(vm->trace->others, action);
  }
  const uint64_t start_ns = pen_trace_now_ns(vm->trace);
  const bool going = pen_handlers[action->kind](vm, action) && vm->executor->wait_action(vm);
  pen_trace_add(vm->trace, (uint32_t)(action - vm->program->actions), start_ns,
                pen_trace_now_ns(vm->trace));
  return going;
}

pen_handler *const pen_handlers_traced[PEN_ACTION_KINDS] = {
#define PEN_ACTION(kind, text, printed, meaning) [PEN_##kind] = run_traced,
#include "runtime/plan/actions.def"
};
