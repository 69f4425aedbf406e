/* evaluate.c: evaluation between two steps of training (see evaluate.h). */
#include "runtime/rank/evaluate.h"

static struct pen_log evaluation_log; /* tells nothing by itself: it adds up */

bool pen_evaluates(const struct pen_run *run, uint64_t step, bool last) {
  return run->evaluation.buckets.count > 0 && (last || step % run->options->eval_every == 0);
}

/* One step. As with training, rank 0 decides before it sends anything whether it is the last: by
 * the count, or because the run is to end. A host that runs ahead of its device waits to hear that
 * it has begun, and so decided. */
static bool step_once(const struct pen_run *run, struct pen_transport *end, struct pen_vm *vm,
                      uint64_t index, uint64_t cursor, uint64_t board_step) {
  struct pen_control *control = run->shared.control;
  vm->step = board_step;
  pen_data_prepare_step(&vm->data, cursor, pen_data_step_windows(run->plan, vm->profile));
  if (end->global == 0 &&
      (index + 1 == run->evaluation.steps || atomic_load(&control->stop_requested) != 0)) {
    atomic_store(&control->last_evaluation_step, board_step);
  }
  const bool asks = end->rank == 0 || vm->queue != NULL;
  return (!asks || end->kind->begun(end, board_step)) && end->kind->board_free(end, board_step) &&
         vm->walk->step(vm) && (index + 1 != run->evaluation.steps || vm->walk->finish(vm)) &&
         (end->global != 0 || pen_log_step(&evaluation_log, end, index, vm->data.step_targets,
                                           index + 1 == run->evaluation.steps));
}

static void begin_log(const struct pen_run *run, uint64_t board_step) {
  evaluation_log = (struct pen_log){.plan = run->plan,
                                    .descriptor = -1,
                                    .quiet = true,
                                    .before = board_step,
                                    .steps = run->evaluation.steps};
  pen_log_start(&evaluation_log);
}

bool pen_evaluate(const struct pen_run *run, struct pen_transport *end, struct pen_log *log,
                  uint64_t step, struct pen_vm *vms, uint64_t *board_step, struct pen_vm **vm) {
  const struct pen_buckets *buckets = &run->evaluation.buckets;
  struct pen_vm *training = *vm;
  uint64_t cursor = 0, index = 0, first = *board_step;
  bool going = true, last = false;
  begin_log(run, first);
  for (; going && !last; index++) {
    struct pen_vm *chosen =
        &vms[pen_bucket_of_step(buckets, run->plan, &run->evaluation.data, cursor)];
    going = chosen == *vm || ((*vm)->walk->finish(*vm) && end->kind->barrier(end));
    *vm = chosen;
    going = going && step_once(run, end, chosen, index, cursor, *board_step);
    last = *board_step == atomic_load(&run->shared.control->last_evaluation_step);
    ++*board_step;
    cursor += pen_data_step_windows(run->plan, chosen->profile);
  }
  /* What an interrupted one has added up is of no use, but its boards must be given free. */
  going = going && (*vm)->walk->finish(*vm) &&
          (end->global != 0 ||
           pen_log_step(&evaluation_log, end, index - 1, (*vm)->data.step_targets, true));
  going = going && end->kind->barrier(end);
  *vm = training;
  if (going && end->global == 0) {
    log->before += *board_step - first;
    pen_log_evaluation(log, step, index == run->evaluation.steps ? &evaluation_log : NULL);
  }
  return going;
}
