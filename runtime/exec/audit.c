/* audit.c: runs an action twice and keeps the checksums of what it reads (see audit.h). */
#include "runtime/exec/audit.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/check.h"
#include "runtime/exec/audit_draw.h"
#include "runtime/exec/audit_report.h"
#include "runtime/exec/operands.h"
#include "runtime/exec/collectives.h"
#include "runtime/exec/tensor_sum.h"
#include "runtime/exec/weight_arrays.h"
#include "runtime/plan/puts.h"

static const struct pen_tensor *tensor_at(const struct pen_vm *vm, uint32_t tensor) {
  return &vm->program->tensors[tensor];
}

static const struct pen_frame *frame_of(const struct pen_vm *vm, const struct pen_action *action) {
  return &vm->program->frames[action->frame];
}

static const struct pen_program *program_of(const struct pen_vm *vm,
                                            const struct pen_action *action) {
  return &vm->program->programs[action->program];
}

static unsigned char *address_of(const struct pen_vm *vm, const struct pen_action *action,
                                 uint32_t tensor) {
  const struct pen_tensor *t = tensor_at(vm, tensor);
  return vm->arena + frame_of(vm, action)->base[t->base] + t->offset;
}

static void set_sum(struct pen_audit_state *state, uint32_t tensor, struct pen_audit_sum sum) {
  state->sums[tensor] = sum;
  state->use[tensor] |= PEN_AUDIT_SUM_KNOWN;
}

static struct pen_audit_draw draw_of(const struct pen_vm *vm, uint64_t step, uint32_t rank) {
  return (struct pen_audit_draw){.seed = vm->audit->audit->seed,
                                 .step = step,
                                 .global = pen_endpoint_process(vm->endpoint, PEN_PIPELINE, rank)};
}

void pen_audit_open(struct pen_audit *audit, struct pen_vm *vm) {
  const size_t tensors = vm->program->tensor_count + 1u, stages = vm->plan->stage_count;
  struct pen_audit_state *state = pen_allocate(1, sizeof *state, "audits");
  *state = (struct pen_audit_state){.audit = audit,
                                    .weight = malloc(tensors * sizeof *state->weight),
                                    .use = calloc(tensors, sizeof *state->use),
                                    .sums = calloc(tensors, sizeof *state->sums),
                                    .passed = {calloc(stages, sizeof *state->passed[0]),
                                               calloc(stages, sizeof *state->passed[1])}};
  pen_check(state->weight != NULL && state->use != NULL && state->sums != NULL &&
                state->passed[0] != NULL && state->passed[1] != NULL,
            "no memory for audits of %zu tensors", tensors);
  memset(state->weight, -1, tensors * sizeof *state->weight);
  vm->audit = state;
  pen_audit_weights_add(&audit->weights, vm, state->weight);
}

void pen_audit_start(struct pen_audit *audit, const struct pen_vm *vm, uint64_t step) {
  pen_audit_weights_sum(&audit->weights, vm, step);
  pen_audit_update_sum(&audit->update, vm, audit->seed, step);
}

bool pen_audit_updates(const struct pen_vm *vm, uint32_t weight) {
  return vm->audit->action != NULL && vm->audit->audit->update.weight == weight;
}

void pen_audit_updated(struct pen_vm *vm) {
  struct pen_audit *audit = vm->audit->audit;
  if ((vm->optimizer_step + 1) % audit->every == 0) {
    pen_audit_update_sum(&audit->update, vm, audit->seed, vm->optimizer_step + 1);
  }
}

/* The stage of which a rank audits an action in the next step; PEN_NONE: none is audited. */
static uint32_t next_stage(const struct pen_vm *vm, uint32_t rank) {
  const struct pen_audit_draw draw = draw_of(vm, vm->optimizer_step + 1, rank);
  return draw.step % vm->audit->audit->every == 0
             ? pen_audit_draw_stage(vm->profile, vm->plan, &draw)
             : PEN_NONE;
}

void pen_audit_weights_written(struct pen_vm *vm) {
  const uint32_t own = next_stage(vm, vm->rank), last = vm->plan->stage_count - 1;
  if (own == PEN_NONE) {
    return;
  }
  pen_audit_weights_sum_stage(&vm->audit->audit->weights, vm, vm->optimizer_step + 1, own);
  if (next_stage(vm, vm->profile->stages[last].rank) == last) {
    pen_audit_weights_pass_tied(vm);
  }
}

void pen_audit_tied_value_arrived(struct pen_vm *vm) {
  if (next_stage(vm, vm->rank) == vm->plan->stage_count - 1) {
    pen_audit_weights_take_tied(&vm->audit->audit->weights, vm, vm->optimizer_step + 1);
  }
}

void pen_audit_unsharded(struct pen_vm *vm, const struct pen_action *action) {
  struct pen_audit_state *state = vm->audit;
  if (state->action == NULL || state->done || action->stage != state->action->stage) {
    return;
  }
  for (uint32_t t = 0; t < vm->program->tensor_count; t++) {
    if ((state->use[t] & PEN_AUDIT_READS) != 0 && tensor_at(vm, t)->base == PEN_BASE_UNSHARDED) {
      set_sum(state, t, pen_tensor_sum(address_of(vm, action, t), tensor_at(vm, t)->bytes));
    }
  }
}

/* ---- the start of a step ---- */

/* What the action's program does with its tensors. */
static void find_uses(struct pen_vm *vm) {
  struct pen_audit_state *state = vm->audit;
  const struct pen_program *program = program_of(vm, state->action);
  memset(state->use, 0, vm->program->tensor_count);
  for (uint32_t i = program->first_op; i < program->first_op + program->op_count; i++) {
    const struct pen_op *op = &vm->program->ops[i];
    const struct pen_operand_count count = pen_operands_of(op->kind);
    for (uint32_t k = 0; k < count.all; k++) {
      const uint32_t tensor = op->operand[k];
      if (tensor != PEN_NONE && state->use[tensor] == 0) {
        state->use[tensor] = k < count.inputs                    ? PEN_AUDIT_READS
                             : (count.accumulated >> k & 1) != 0 ? PEN_AUDIT_ACCUMULATES
                                                                 : PEN_AUDIT_WRITES;
      }
    }
  }
}

/* The checksums that are known before the step: of weights and constants; accumulators are zero. */
static void find_known_sums(struct pen_vm *vm) {
  struct pen_audit_state *state = vm->audit;
  for (uint32_t t = 0; t < vm->program->tensor_count; t++) {
    if (state->use[t] == PEN_AUDIT_READS && state->weight[t] != PEN_NONE) {
      const struct pen_audit_weight *weight = &state->audit->weights.weight[state->weight[t]];
      pen_assert(!weight->changes || weight->step == vm->optimizer_step);
      set_sum(state, t, weight->sum);
    } else if (state->use[t] == PEN_AUDIT_ACCUMULATES &&
               tensor_at(vm, t)->base == PEN_BASE_PERSISTENT) {
      set_sum(state, t, (struct pen_audit_sum){0});
    }
  }
}

/* The last action before the audited one that adds to the same accumulators as F (choices of
 * routers), or as I (gradients of experts) or W of its stage; NULL: there is none. B adds to those
 * of both. */
static const struct pen_action *find_adds_before(const struct pen_vm *vm, int kind) {
  const struct pen_action *audited = vm->audit->action, *action = audited;
  while (action-- > vm->program->actions) {
    if (action->stage == audited->stage &&
        (action->kind == kind || (action->kind == PEN_B && kind != PEN_F))) {
      return action;
    }
  }
  return NULL;
}

/* The microbatch whose output of a stage the reader's rank audits a use of. */
static uint32_t find_passed(const struct pen_vm *vm, uint32_t reader) {
  const struct pen_audit_draw draw =
      draw_of(vm, vm->optimizer_step, vm->profile->stages[reader].rank);
  if (pen_audit_draw_stage(vm->profile, vm->plan, &draw) != reader) {
    return PEN_NONE;
  }
  return pen_audit_draw_action(vm->profile, vm->plan, &draw)->microbatch;
}

void pen_audit_begin_step(struct pen_vm *vm) {
  struct pen_audit_state *state = vm->audit;
  state->action = NULL;
  if (vm->optimizer_step % state->audit->every != 0) {
    return;
  }
  const struct pen_audit_draw draw = draw_of(vm, vm->optimizer_step, vm->rank);
  state->action = pen_audit_draw_action(vm->profile, vm->plan, &draw);
  state->adds_before[0] = find_adds_before(vm, state->action->kind == PEN_F ? PEN_F : PEN_W);
  state->adds_before[1] = find_adds_before(vm, state->action->kind == PEN_F ? PEN_F : PEN_I);
  state->done = false;
  find_uses(vm);
  find_known_sums(vm);
  for (uint32_t s = 0; s < vm->plan->stage_count; s++) {
    const bool own = vm->profile->stages[s].rank == vm->rank;
    state->passed[0][s] = own && s + 1 < vm->plan->stage_count ? find_passed(vm, s + 1) : PEN_NONE;
    state->passed[1][s] = own && s > 0 ? find_passed(vm, s - 1) : PEN_NONE;
  }
}

/* ---- what an op has written ---- */

/* Whether the tensor is one that its stage passes on, to a reader that is audited. */
static bool is_passed(const struct pen_vm *vm, const struct pen_action *action, uint32_t tensor) {
  const struct pen_stage *stage = &vm->profile->stages[action->stage];
  const uint32_t *const *passed = (const uint32_t *const *)vm->audit->passed;
  return (tensor == stage->output && passed[0][action->stage] == action->microbatch) ||
         (tensor == stage->input_gradient && passed[1][action->stage] == action->microbatch);
}

static bool adds_before(const struct pen_audit_state *state, const struct pen_action *action) {
  return action == state->adds_before[0] || action == state->adds_before[1];
}

/* Whether the audited action reads what an action writes: itself, or one before it; its
 * accumulators are as the last action before it has left them. */
static bool is_awaited(const struct pen_vm *vm, const struct pen_action *action, uint32_t tensor) {
  const struct pen_audit_state *state = vm->audit;
  const uint32_t base = tensor_at(vm, tensor)->base;
  if (state->done || action->stage != state->action->stage) {
    return false;
  }
  if (action == state->action) {
    return true;
  }
  return (state->use[tensor] & PEN_AUDIT_ACCUMULATES) != 0
             ? adds_before(state, action)
             : (state->use[tensor] & PEN_AUDIT_READS) != 0 &&
                   action->microbatch == state->action->microbatch &&
                   frame_of(vm, action)->base[base] == frame_of(vm, state->action)->base[base];
}

/* An op of an action has written a tensor: keeps the checksum for the audited action, and passes it
 * on to another one. */
static void note_written(struct pen_vm *vm, const struct pen_action *action, uint32_t tensor,
                         struct pen_audit_sum sum) {
  const struct pen_tensor *t = tensor_at(vm, tensor);
  if (is_awaited(vm, action, tensor)) {
    set_sum(vm->audit, tensor, sum);
  }
  if (is_passed(vm, action, tensor)) {
    memcpy(address_of(vm, action, tensor) + pen_audit_sum_offset(t->bytes), &sum, sizeof sum);
  }
}

/* The outputs of an op, as they are in memory. */
static void note_outputs(struct pen_vm *vm, const struct pen_action *action, uint32_t index) {
  const struct pen_op *op = &vm->program->ops[index];
  const struct pen_operand_count count = pen_operands_of(op->kind);
  for (uint32_t k = count.inputs; k < count.all; k++) {
    const uint32_t tensor = op->operand[k];
    if (tensor != PEN_NONE && (is_awaited(vm, action, tensor) || is_passed(vm, action, tensor))) {
      note_written(vm, action, tensor,
                   pen_tensor_sum(vm->ops[index].call.operand[k], tensor_at(vm, tensor)->bytes));
    }
  }
}

/* Past the ops of the collective that begins with op `index`, or past the op: the first of them
 * runs it. */
static uint32_t past_ops(const struct pen_vm *vm, const struct pen_program *program,
                         uint32_t index) {
  const struct pen_op *op = vm->program->ops;
  const struct pen_collective *row = pen_collective_of(vm->program, &op[index]);
  uint32_t past = index + 1;
  while (row != NULL && past < program->first_op + program->op_count &&
         pen_collective_of(vm->program, &op[past]) == row) {
    past++;
  }
  return past;
}

/* Runs an action that is not audited, or was; keeps the checksums of what the audited ones read. */
static void run_watched(struct pen_vm *vm, const struct pen_action *action) {
  const struct pen_program *program = program_of(vm, action);
  pen_vm_relocate(vm, program->first_op, program->op_count, frame_of(vm, action));
  for (uint32_t i = program->first_op; i < program->first_op + program->op_count;) {
    vm->ops[i].run(&vm->ops[i].call);
    for (const uint32_t past = past_ops(vm, program, i); i < past; i++) {
      note_outputs(vm, action, i);
    }
  }
}

/* ---- the audited action ---- */

static uint32_t writer_of(const struct pen_vm *vm, uint32_t tensor) {
  const struct pen_audit_state *state = vm->audit;
  const struct pen_stage *stage = &vm->profile->stages[state->action->stage];
  const struct pen_endpoint *endpoint = vm->endpoint;
  return tensor == stage->input ? pen_endpoint_process(endpoint, PEN_PIPELINE, stage[-1].rank)
         : tensor == stage->output_gradient
             ? pen_endpoint_process(endpoint, PEN_PIPELINE, stage[1].rank)
         : state->weight[tensor] != PEN_NONE
             ? state->audit->weights.weight[state->weight[tensor]].writer
             : vm->endpoint->global;
}

/* Compares the checksum of a tensor, which is at `has`, with what its writer made. */
static void check_sum(struct pen_vm *vm, uint32_t tensor, const unsigned char *has) {
  const struct pen_audit_state *state = vm->audit;
  pen_assert((state->use[tensor] & PEN_AUDIT_SUM_KNOWN) != 0);
  if (!pen_sums_equal(pen_tensor_sum(has, tensor_at(vm, tensor)->bytes), state->sums[tensor])) {
    pen_audit_report(vm->endpoint, &(struct pen_audit_finding){.action = state->action,
                                                               .tensor = tensor_at(vm, tensor),
                                                               .has = has,
                                                               .written = state->sums[tensor],
                                                               .writer = writer_of(vm, tensor)});
  }
}

/* Of what the stages before and after have passed on, the checksum follows the tensor. */
static void take_passed_sums(struct pen_vm *vm) {
  struct pen_audit_state *state = vm->audit;
  const struct pen_stage *stage = &vm->profile->stages[state->action->stage];
  const uint32_t tensors[] = {stage->input, stage->output_gradient};
  for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
    if (tensors[i] != PEN_NONE && (state->use[tensors[i]] & PEN_AUDIT_READS) != 0) {
      struct pen_audit_sum sum;
      const unsigned char *tensor = address_of(vm, state->action, tensors[i]);
      memcpy(&sum, tensor + pen_audit_sum_offset(tensor_at(vm, tensors[i])->bytes), sizeof sum);
      set_sum(state, tensors[i], sum);
    }
  }
}

/* Runs an op with its outputs in the audit memory. What was in their place is there before: of a
 * tensor rank that has fewer tokens of the vocabulary than the first, an op leaves the last bytes
 * of its outputs as they were. */
static void compute_apart(struct pen_vm *vm, uint32_t index, unsigned char *computed[]) {
  const struct pen_op *op = &vm->program->ops[index];
  const struct pen_operand_count count = pen_operands_of(op->kind);
  struct pen_call call = vm->ops[index].call;
  unsigned char *at = vm->arena + vm->memory->audit_offset;
  for (uint32_t k = count.inputs; k < count.all; k++) {
    if (op->operand[k] == PEN_NONE) {
      continue;
    }
    computed[k] = at;
    memcpy(at, call.operand[k], tensor_at(vm, op->operand[k])->bytes);
    if ((count.accumulated >> k & 1) != 0) {
      check_sum(vm, op->operand[k], at);
    }
    call.operand[k] = at;
    at += pen_aligned(tensor_at(vm, op->operand[k])->bytes);
  }
  vm->ops[index].run(&call);
}

static void compare_output(struct pen_vm *vm, uint32_t tensor, const unsigned char *computed) {
  const unsigned char *has = address_of(vm, vm->audit->action, tensor);
  const struct pen_tensor *t = tensor_at(vm, tensor);
  if (memcmp(has, computed, t->bytes) != 0) {
    pen_audit_report(
        vm->endpoint,
        &(struct pen_audit_finding){
            .action = vm->audit->action, .tensor = t, .has = has, .computed = computed});
  }
}

/* What an op reads has the bits that its writer made; `indices`: only what it uses as indices. */
static void check_inputs(struct pen_vm *vm, uint32_t index, bool indices) {
  const struct pen_op *op = &vm->program->ops[index];
  for (uint32_t k = 0; k < pen_operands_of(op->kind).inputs; k++) {
    if (op->operand[k] != PEN_NONE &&
        (!indices || tensor_at(vm, op->operand[k])->dtype == PEN_I32)) {
      check_sum(vm, op->operand[k], vm->ops[index].call.operand[k]);
    }
  }
}

/* Inputs are compared between the two runs: what changed before differs then, what changes after
 * that gives the second run other inputs than the first. But wrong indices would end the first. */
static void audit_op(struct pen_vm *vm, uint32_t index) {
  const struct pen_op *op = &vm->program->ops[index];
  unsigned char *computed[PEN_OPERANDS_MAX] = {NULL};
  check_inputs(vm, index, true);
  compute_apart(vm, index, computed);
  check_inputs(vm, index, false);
  vm->ops[index].run(&vm->ops[index].call);
  for (uint32_t k = 0; k < PEN_OPERANDS_MAX; k++) {
    if (computed[k] != NULL) {
      const uint32_t tensor = op->operand[k];
      compare_output(vm, tensor, computed[k]);
      note_written(vm, vm->audit->action, tensor,
                   pen_tensor_sum(computed[k], tensor_at(vm, tensor)->bytes));
    }
  }
}

/* Whether what op `number` of a collective adds to, which has a put, is this rank's: where another
 * data rank has all of it, another accumulator may be in the place. */
static bool adds_here(const struct pen_vm *vm, const struct pen_op *op, uint32_t number) {
  const struct pen_put *put =
      &vm->program->puts[vm->program->collectives[op->collective].first_put + number];
  const uint32_t weight = pen_put_weight(vm->plan, put, vm->endpoint->global);
  return vm->plan->weights[weight].sole_owner == 0 || pen_kept_gradient(vm, weight).count > 0;
}

/* Ops [first, past), of which the first runs all. */
static void run_collective(struct pen_vm *vm, uint32_t first, uint32_t past) {
  for (uint32_t i = first; i < past; i++) {
    const struct pen_op *op = &vm->program->ops[i];
    const struct pen_operand_count count = pen_operands_of(op->kind);
    check_inputs(vm, i, false);
    for (uint32_t k = count.inputs; k < count.all; k++) {
      if ((count.accumulated >> k & 1) != 0 && adds_here(vm, op, i - first)) {
        check_sum(vm, op->operand[k], vm->ops[i].call.operand[k]);
      }
    }
  }
  vm->ops[first].run(&vm->ops[first].call);
  for (uint32_t i = first; i < past; i++) {
    note_outputs(vm, vm->audit->action, i);
  }
}

/* Ends early when the run is aborted: what collectives and exchanges bring is then not complete. */
static void run_audited(struct pen_vm *vm, const struct pen_action *action) {
  const struct pen_program *program = program_of(vm, action);
  const uint32_t end = program->first_op + program->op_count;
  take_passed_sums(vm);
  pen_vm_relocate(vm, program->first_op, program->op_count, frame_of(vm, action));
  for (uint32_t i = program->first_op, past; i < end && !vm->aborted; i = past) {
    past = past_ops(vm, program, i);
    if (pen_is_runtime_op(vm->program->ops[i].kind)) {
      run_collective(vm, i, past);
    } else {
      audit_op(vm, i);
    }
  }
  vm->audit->done = true;
}

/* Whether an action writes anything that an audited one reads. */
static bool is_watched(const struct pen_vm *vm, const struct pen_action *action) {
  const struct pen_audit_state *state = vm->audit;
  return (action->stage == state->action->stage && !state->done &&
          (action->microbatch == state->action->microbatch || adds_before(state, action))) ||
         state->passed[0][action->stage] == action->microbatch ||
         state->passed[1][action->stage] == action->microbatch;
}

void pen_audit_call(struct pen_vm *vm, const struct pen_action *action) {
  const struct pen_program *program = program_of(vm, action);
  if (vm->audit->action == action) {
    run_audited(vm, action);
  } else if (vm->audit->action != NULL && is_watched(vm, action)) {
    run_watched(vm, action);
  } else {
    pen_vm_call(vm, program->first_op, program->op_count, frame_of(vm, action));
  }
}
