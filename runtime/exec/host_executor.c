/* host_executor.c: runs a step on a device whose calls are complete when they return: fetch an
 * action, call its handler, publish that it is done. */
#include "runtime/base/check.h"
#include "runtime/exec/audit.h"
#include "runtime/exec/exec.h"
#include "runtime/exec/optimizer_step.h"

static void prepare_step(struct pen_vm *vm) {
  vm->step_stats = pen_endpoint_step_stats(vm->endpoint, vm->run_step);
  if (vm->profile->kind == PEN_TRAIN) {
    vm->host_base =
        pen_adamw_of_step(&vm->plan->optimizer, vm->optimizer_step, vm->data.step_losses);
  }
  if (vm->audit != NULL) {
    pen_audit_begin_step(vm);
  }
  vm->transport->ops->begin_step(vm->transport, vm->run_step);
}

/* How long the step took. */
static void publish_timing(struct pen_vm *vm, uint64_t start_ns) {
  struct pen_endpoint *endpoint = vm->endpoint;
  struct pen_step_timing *timing = &endpoint->timing;
  const uint64_t other_ns = endpoint->waited_ns + vm->data.read_ns;
  const uint64_t whole_ns = pen_now_ns() - start_ns;
  timing->step = vm->profile->kind == PEN_TRAIN ? (uint32_t)vm->optimizer_step : 0;
  timing->compute_s = whole_ns > other_ns ? (float)(whole_ns - other_ns) * 1e-9f : 0;
  timing->data_s = (float)vm->data.read_ns * 1e-9f;
  pen_endpoint_publish_timing(endpoint, vm->run_step);
}

static bool run_step(struct pen_vm *vm) {
  const struct pen_action *action = vm->program->actions,
                          *past = action + vm->program->action_count;
  struct pen_rank_state *self = vm->endpoint->self;
  _Atomic uint64_t *finished = &self->finished;
  uint64_t done = atomic_load_explicit(finished, memory_order_relaxed);
  atomic_store_explicit(&self->step_began, done, memory_order_relaxed);
  atomic_store_explicit(&self->profile, (uint32_t)(vm->profile - vm->plan->profiles),
                        memory_order_relaxed);
  prepare_step(vm);
  const uint64_t start_ns = pen_now_ns();
  vm->endpoint->waited_ns = 0;
  bool going = true;
  for (; going && action < past; action++) {
    pen_assert(action->kind < PEN_ACTION_KINDS);
    vm->action = action;
    going = vm->handlers[action->kind](vm, action);
    atomic_store_explicit(finished, ++done, memory_order_relaxed);
  }
  vm->action = NULL;
  vm->transport->ops->end_step(vm->transport);
  atomic_fetch_add_explicit(&self->sent_bytes, vm->sent_bytes, memory_order_relaxed);
  publish_timing(vm, start_ns);
  return going;
}

static bool is_complete(struct pen_vm *vm) { return (void)vm, true; }

static void bind_data_op(struct pen_vm *vm, const struct pen_op *op, struct pen_bound_op *bound) {
  bound->run = pen_data_op(op->kind, op->dtype);
  bound->call.prepared = &vm->data;
}

static struct pen_bound_input *no_input(struct pen_vm *vm, const struct pen_op *op) {
  return (void)vm, (void)op, NULL;
}

static uint64_t *no_damage(const struct pen_vm *vm) { return (void)vm, NULL; }

const struct pen_executor pen_host_executor = {
    .step = run_step,
    .finish = is_complete,
    .wait_action = is_complete,
    .bind_input = bind_data_op,
    .input = no_input,
    .damage = no_damage,
};
