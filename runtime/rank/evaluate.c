/* evaluate.c: evaluation between two steps of training (see evaluate.h). */
#include "runtime/rank/evaluate.h"

#include "runtime/data/windows.h"

bool pen_evaluates(const struct pen_run *run, uint64_t step, bool last) {
  return run->options->given.eval_every && (last || step % run->options->eval_every == 0);
}

/* ---- steps between those of training ---- */

void pen_between_start(struct pen_rank *rank, uint64_t steps) {
  rank->evaluation_log = (struct pen_log){.plan = rank->run->plan,
                                          .descriptor = -1,
                                          .quiet = true,
                                          .before = rank->run_step,
                                          .steps = steps};
  pen_log_start(&rank->evaluation_log);
}

bool pen_between_step(struct pen_rank *rank, uint64_t index, uint64_t cursor, bool counted) {
  struct pen_control *control = rank->run->shared.control;
  struct pen_endpoint *endpoint = &rank->endpoint;
  struct pen_vm *vm = rank->vm;
  vm->run_step = rank->run_step;
  pen_data_prepare_step(&vm->data, cursor, pen_data_step_windows(rank->run->plan, vm->profile));
  if (endpoint->global == 0 && (counted || atomic_load(&control->stop_requested) != 0)) {
    atomic_store(&control->last_evaluation_step, rank->run_step);
  }
  const bool waits =
      endpoint->rank == 0 || rank->stream_state != NULL || rank->run->plan->host_count > 1;
  return (!waits || pen_endpoint_begin_step(endpoint, rank->run_step)) &&
         pen_endpoint_wait_log(endpoint, rank->run_step) && vm->executor->step(vm) &&
         (!counted || vm->executor->finish(vm)) &&
         (endpoint->global != 0 ||
          pen_log_step(&rank->evaluation_log, endpoint, index, &vm->data, counted));
}

bool pen_between_stops(struct pen_rank *rank) {
  return rank->run_step++ == atomic_load(&rank->run->shared.control->last_evaluation_step);
}

bool pen_between_end(struct pen_rank *rank, uint64_t count) {
  return rank->vm->executor->finish(rank->vm) &&
         (rank->endpoint.global != 0 ||
          pen_log_step(&rank->evaluation_log, &rank->endpoint, count - 1, &rank->vm->data, true)) &&
         pen_endpoint_barrier(&rank->endpoint);
}

/* ---- evaluation ---- */

/* Runs the steps; *index becomes their count. */
static bool run_evaluation(struct pen_rank *rank, uint64_t *index) {
  const struct pen_run *run = rank->run;
  struct pen_vm *vms = rank->vms + run->buckets.count;
  uint64_t cursor = 0;
  bool going = true, last = false;
  for (*index = 0; going && !last; ++*index) {
    struct pen_vm *chosen = &vms[pen_bucket_of_step(&run->evaluation.buckets, run->plan,
                                                    &run->evaluation.data, cursor)];
    going = chosen == rank->vm ||
            (rank->vm->executor->finish(rank->vm) && pen_endpoint_barrier(&rank->endpoint));
    rank->vm = chosen;
    going = going && pen_between_step(rank, *index, cursor, *index + 1 == run->evaluation.steps);
    last = pen_between_stops(rank);
    cursor += pen_data_step_windows(run->plan, chosen->profile);
  }
  return going && pen_between_end(rank, *index);
}

bool pen_evaluate(struct pen_rank *rank, uint64_t step) {
  struct pen_vm *training = rank->vm;
  const uint64_t first = rank->run_step;
  uint64_t count;
  pen_between_start(rank, rank->run->evaluation.steps);
  const bool going = run_evaluation(rank, &count);
  rank->vm = training;
  if (going && rank->endpoint.global == 0) {
    const bool whole = count == rank->run->evaluation.steps;
    rank->log.before += rank->run_step - first;
    pen_log_evaluation(&rank->log, step, whole ? &rank->evaluation_log : NULL);
  }
  return going;
}
