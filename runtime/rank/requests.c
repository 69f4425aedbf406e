/* requests.c: serves the requests of the library (see requests.h). */
#include "runtime/rank/requests.h"

#include "runtime/base/check.h"
#include "runtime/base/learning_rate.h"
#include "runtime/base/mailbox.h"
#include "runtime/comm/step_stats.h"
#include "runtime/rank/saving.h"

static const uint64_t sleep_ns = 100 * 1000000ull; /* between two looks at the run's end */

/* Waits for the next request: no stall, as long as it may be. */
static bool await_request(struct pen_rank *rank) {
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
  atomic_store(phase, PEN_PHASE_STEPS);
  rank->requests += came;
  return came;
}

static bool save(struct pen_rank *rank) {
  struct pen_mailbox *mailbox = rank->run->options->mailbox;
  struct pen_arena_view view;
  const struct pen_saving saving = pen_rank_saving(rank, mailbox->path, &view);
  int status = 0;
  const bool going = pen_save(&rank->endpoint, &saving, &status);
  if (going && rank->endpoint.global == rank->run->local.first) {
    mailbox->status = status;
  }
  return going;
}

/* What is done between steps; null: it ends the wait. */
static bool (*const served[])(struct pen_rank *rank) = {
    [PEN_REQUEST_STEP] = NULL, [PEN_REQUEST_SAVE] = save, [PEN_REQUEST_CLOSE] = NULL};

bool pen_requests_serve(struct pen_rank *rank, bool *step) {
  struct pen_mailbox *mailbox = rank->run->options->mailbox;
  if (rank->requests == 0) {
    rank->vm->optimizer_step = rank->run->first_step;
    pen_mailbox_answer(mailbox); /* it can make a step */
  }
  while (await_request(rank)) {
    if (served[mailbox->request] == NULL) {
      *step = mailbox->request == PEN_REQUEST_STEP;
      pen_named_inputs_take(rank->run->given, mailbox);
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
        .targets = vm->data.step_targets,
        .learning_rate = pen_learning_rate(&plan->optimizer, vm->optimizer_step)};
    if (mailbox->step.targets > 0) {
      mailbox->step.loss = pen_step_stats_loss(plan, stats, mailbox->step.targets);
      mailbox->step.norm = pen_step_stats_norm(plan, stats);
    }
    mailbox->status = 0;
  }
  pen_mailbox_answer(mailbox);
  return true;
}
