/* requests.c: serves the requests of the library (see requests.h). */
#include "runtime/rank/requests.h"

#include "runtime/base/check.h"
#include "runtime/base/learning_rate.h"
#include "runtime/base/mailbox.h"
#include "runtime/comm/step_stats.h"
#include "runtime/exec/op_hook.h"
#include "runtime/rank/agreement.h"
#include "runtime/rank/evaluate.h"
#include "runtime/rank/request_save.h"
#include "runtime/rank/samples.h"
#include "runtime/rank/weight_values.h"

static const uint64_t sleep_ns = 100 * 1000000ull; /* between two looks at the run's end */

/* Waits for the next request, on several hosts until all callers have one: no stall, as long as it
 * may be. */
static bool await_request(struct pen_rank *rank, bool *agreed) {
  const struct pen_shared *shared = &rank->run->shared;
  struct pen_mailbox *mailbox = rank->run->options->mailbox;
  _Atomic uint32_t *phase = &rank->endpoint.self->phase;
  bool came = false;
  atomic_store(phase, PEN_PHASE_OUTPUT);
  while (!came && atomic_load(&shared->control->abort_status) == 0) {
    came = pen_futex_counter_wait_for(&mailbox->requests, rank->requests + 1,
                                      shared->control->spin_ns, sleep_ns);
    if (!came && rank->endpoint.global == 0 && atomic_load(&shared->control->stop_requested) != 0) {
      pen_shared_abort(shared, PEN_EXIT_LOST);
    }
  }
  rank->requests += came;
  *agreed = true;
  if (came && rank->run->plan->host_count > 1) {
    came = pen_callers_agree(rank, agreed);
  }
  atomic_store(phase, PEN_PHASE_STEPS);
  return came;
}

/* One step by the plan of the vm, whose hooks these are, as train --eval-every makes them. */
static bool evaluate_by(struct pen_rank *rank, struct pen_vm *vm,
                        const struct pen_command_hooks *hooks) {
  const struct pen_run *run = rank->run;
  struct pen_vm *training = rank->vm;
  struct pen_mailbox *mailbox = run->options->mailbox;
  const uint64_t first = rank->run_step;
  pen_named_inputs_take(run->library->named, mailbox);
  pen_between_start(rank, 1);
  rank->vm = vm;
  bool going = pen_endpoint_barrier(&rank->endpoint) && pen_between_step(rank, 0, 0, true) &&
               (hooks == NULL || hooks->stepped(run, rank->vm));
  if (going) {
    pen_between_stops(rank);
    going = pen_between_end(rank, 1);
  }
  const uint64_t losses = rank->vm->data.step_losses;
  rank->vm = training;
  if (going && rank->endpoint.global == 0) {
    rank->log.before += rank->run_step - first;
    pen_log_start(&rank->log);
  }
  if (going && rank->endpoint.global == run->local.first) {
    const double *stats = pen_endpoint_step_stats(&rank->endpoint, first);
    going = pen_endpoint_gather(&rank->endpoint, first);
    mailbox->step = (struct pen_mailbox_step){
        .loss =
            pen_evaluated_of(run->plan, pen_step_stats_loss_sum(run->plan, stats), losses, 1).loss,
        .targets = losses,
        .step = training->optimizer_step};
  }
  return going;
}

static bool evaluate(struct pen_rank *rank) {
  const struct pen_run *run = rank->run;
  return evaluate_by(rank, &rank->vms[run->buckets.count + run->evaluation.buckets.count - 1],
                     run->evaluation.hooks);
}

static bool score(struct pen_rank *rank) {
  const struct pen_run *run = rank->run;
  return run->scoring.buckets.count == 0
             ? evaluate(rank)
             : evaluate_by(rank, &rank->vms[rank->vm_count - 1], run->scoring.hooks);
}

static bool generate(struct pen_rank *rank) {
  return pen_make_samples(rank, rank->vm->optimizer_step);
}

static float *values(const struct pen_rank *rank, const struct pen_mailbox_weight **weight) {
  const struct pen_mailbox *mailbox = rank->run->options->mailbox;
  unsigned char *all = rank->run->library->all;
  *weight = (const struct pen_mailbox_weight *)(all + mailbox->weights_offset) + mailbox->requested;
  return (float *)(all + mailbox->values_offset);
}

/* A large weight comes to other hosts in many parts: no stall, as a save. */
static bool read_weight(struct pen_rank *rank) {
  const struct pen_mailbox_weight *weight;
  float *to = values(rank, &weight);
  atomic_store(&rank->endpoint.self->phase, PEN_PHASE_SAVE);
  const bool any = pen_weight_values_read(rank, weight->weight, to);
  const bool going =
      pen_endpoint_give_all(&rank->endpoint, rank->run->options->mailbox->values_offset,
                            weight->elements * sizeof *to, any);
  atomic_store(&rank->endpoint.self->phase, PEN_PHASE_STEPS);
  return going;
}

/* All callers give the same values. */
static bool write_weight(struct pen_rank *rank) {
  const struct pen_mailbox_weight *weight;
  const float *from = values(rank, &weight);
  pen_weight_values_write(rank, weight->weight, from);
  return true;
}

/* What is done between steps; null: it ends the wait. */
static bool (*const served[])(struct pen_rank *rank) = {
    [PEN_REQUEST_STEP] = NULL,
    [PEN_REQUEST_EVALUATE] = evaluate,
    [PEN_REQUEST_SCORE] = score,
    [PEN_REQUEST_GENERATE] = generate,
    [PEN_REQUEST_SAVE] = pen_request_save,
    [PEN_REQUEST_READ_WEIGHT] = read_weight,
    [PEN_REQUEST_WRITE_WEIGHT] = write_weight,
    [PEN_REQUEST_CLOSE] = NULL,
};

bool pen_requests_serve(struct pen_rank *rank, bool *step) {
  struct pen_mailbox *mailbox = rank->run->options->mailbox;
  if (rank->requests == 0) {
    rank->vm->optimizer_step = rank->run->first_step;
    pen_mailbox_answer(mailbox); /* it can make a step */
  }
  bool agreed;
  while (await_request(rank, &agreed)) {
    if (!agreed) {
      pen_mailbox_answer(mailbox);
      continue;
    }
    if (served[mailbox->request] == NULL) {
      *step = mailbox->request == PEN_REQUEST_STEP;
      pen_named_inputs_take(rank->run->library->named, mailbox);
      pen_learning_rate_set(mailbox->learning_rate);
      return true;
    }
    if (!served[mailbox->request](rank)) {
      return false;
    }
    pen_mailbox_answer(mailbox);
  }
  return false;
}

bool pen_requests_answer_step(struct pen_rank *rank) {
  const struct pen_plan *plan = rank->run->plan;
  const struct pen_vm *vm = rank->vm;
  struct pen_mailbox *mailbox = rank->run->options->mailbox;
  if (rank->endpoint.global == rank->run->local.first) {
    if (!pen_endpoint_gather(&rank->endpoint, vm->run_step)) {
      return false;
    }
    const double *stats = pen_endpoint_step_stats(&rank->endpoint, vm->run_step);
    mailbox->step = (struct pen_mailbox_step){
        .step = vm->optimizer_step,
        .targets = vm->data.step_losses,
        .learning_rate = pen_learning_rate(&plan->optimizer, vm->optimizer_step)};
    if (mailbox->step.targets > 0) {
      mailbox->step.loss = pen_step_stats_loss(plan, stats, mailbox->step.targets);
      mailbox->step.norm = pen_step_stats_norm(plan, stats);
    }
    mailbox->status = 0;
  }
  if (!pen_endpoint_barrier(&rank->endpoint)) {
    return false;
  }
  pen_mailbox_answer(mailbox);
  return true;
}
