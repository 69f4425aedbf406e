/* samples.c: samples between two steps of training (see samples.h). */
#include "runtime/rank/samples.h"

#include "runtime/exec/op_hook.h"
#include "runtime/rank/evaluate.h"

bool pen_samples(const struct pen_run *run, uint64_t step, bool last) {
  const struct pen_options *options = run->options;
  return options->given.sample_every && (last || step % options->sample_every == 0);
}

/* Chooses the vm of the next step; null: all samples have ended. Before a step of another profile
 * all ranks end the one before. False: aborted. */
static bool choose(struct pen_rank *rank, uint64_t index, struct pen_vm **chosen) {
  const struct pen_run *run = rank->run;
  struct pen_vm *before = rank->vm;
  uint32_t bucket = PEN_NONE;
  bool going = run->sampling.hooks->choose(run, before, index, &bucket);
  *chosen = bucket == PEN_NONE
                ? NULL
                : &rank->vms[run->buckets.count + run->evaluation.buckets.count + bucket];
  if (going && *chosen != before) {
    going = before->executor->finish(before) && pen_endpoint_barrier(&rank->endpoint);
  }
  return going;
}

/* Runs the steps; *whole: until the samples had ended. False: aborted. */
static bool run_samples(struct pen_rank *rank, uint64_t step, bool *whole) {
  const struct pen_run *run = rank->run;
  bool going = true, last = false;
  *whole = false;
  for (uint64_t index = 0; going && !last; index++) {
    struct pen_vm *chosen;
    going = choose(rank, index, &chosen);
    if (!going || chosen == NULL) {
      *whole = going;
      return going && (index == 0 || pen_between_end(rank, index));
    }
    rank->vm = chosen;
    chosen->optimizer_step = step;
    going = pen_between_step(rank, index, 0, false) && chosen->executor->finish(chosen) &&
            run->sampling.hooks->stepped(run, chosen);
    last = pen_between_stops(rank);
    if (last) {
      going = going && pen_between_end(rank, index + 1);
    }
  }
  return going;
}

/* Whether this rank gives the texts away: rank 0 writes them to the log; of each command that a
 * library has started the first one gives them to its caller. All ranks have them. */
static bool gives(const struct pen_rank *rank) {
  const struct pen_run *run = rank->run;
  return rank->endpoint.global == (run->options->mailbox != NULL ? run->local.first : 0);
}

bool pen_make_samples(struct pen_rank *rank, uint64_t step) {
  const struct pen_run *run = rank->run;
  struct pen_vm *training = rank->vm;
  const uint64_t first = rank->run_step;
  bool whole;
  pen_between_start(rank, UINT64_MAX);
  const bool going = run_samples(rank, step, &whole);
  if (going && whole && gives(rank)) {
    run->sampling.hooks->left(run, rank->vm);
  }
  rank->vm = training;
  if (going && rank->endpoint.global == 0) {
    rank->log.before += rank->run_step - first;
    pen_log_start(&rank->log); /* their time is not the next step's */
  }
  return going;
}
