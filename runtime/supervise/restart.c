/* restart.c: restarts after a loss (see restart.h). */
#include "runtime/supervise/restart.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/check.h"
#include "runtime/base/files.h"
#include "runtime/control/control_start.h"
#include "runtime/comm/failure_text.h"
#include "runtime/control/failure_report.h"
#include "runtime/control/redistribute.h"
#include "runtime/observe/step_log.h"
#include "runtime/storage/checkpoint_load.h"
#include "runtime/storage/folder_mark.h"

bool pen_restart_mirrors(const struct pen_run *run) {
  return run->options->given.recover_every && run->plan->host_count > 1 &&
         run->membership.only == PEN_NONE;
}

static void open_memory(struct pen_run *run) {
  const struct pen_plan *plan = run->plan;
  if (run->options->given.recover_every) {
    pen_memory_checkpoints_open(&run->memory, plan, &run->local,
                                plan->host_count > 1 ? PEN_MIRRORED_COPIES : PEN_MEMORY_COPIES);
  }
  if (pen_restart_mirrors(run) && run->local.count > 0) {
    const struct pen_rank_set before = pen_rank_set_of(
        plan, (run->local.host + plan->host_count - 1) % plan->host_count, PEN_NONE);
    pen_memory_checkpoints_open(&run->mirrored, plan, &before, PEN_MEMORY_COPIES);
  }
}

void pen_restart_open(struct pen_run *run) {
  run->begin = (struct pen_run_begin){run->first_step, run->cursor, run->steps, run->updates,
                                      run->checkpoint_path};
  run->placed = run->plan;
  open_memory(run);
}

static void close_memory(struct pen_run *run) {
  pen_memory_checkpoints_close(&run->memory);
  pen_memory_checkpoints_close(&run->mirrored);
}

static void close_old(struct pen_run *run) {
  pen_memory_checkpoints_close(&run->old.memory);
  pen_memory_checkpoints_close(&run->old.mirrored);
  run->old.plan = NULL;
}

void pen_restart_close(struct pen_run *run) {
  close_memory(run);
  close_old(run);
}

/* Copies the reports of the lost ranks out of the shared memory; after an attempt that began no
 * step, and so reported no restart, behind those of the loss before. */
static void keep_reports(struct pen_run *run) {
  struct pen_restart *restart = &run->restart;
  const struct pen_failure *failure;
  if (restart->count == 0 || atomic_load(&run->shared.control->begun.count) > 0) {
    restart->lost_count = 0;
    restart->lost_ns = atomic_load(&run->shared.control->lost_ns);
  }
  for (uint32_t i = 0; restart->lost_count < PEN_FAILURES_MAX &&
                       (failure = pen_failure_reported(&run->shared, i)) != NULL;
       i++) {
    struct pen_lost_rank *lost = &restart->lost[restart->lost_count++];
    if (sscanf(failure->line, "penstock: rank %" SCNu32, &lost->rank) != 1) {
      lost->rank =
          failure->rank; /* of a lost host its first; the line names one that is waited for */
    }
    memcpy(lost->host, run->shared.ranks[failure->rank].host, sizeof lost->host);
    memcpy(lost->cause, failure->line, sizeof lost->cause);
  }
}

static void keep_saved_step(struct pen_run *run) {
  const uint64_t saved_step = atomic_load(&run->shared.control->saved_step);
  run->restart.saved_step = saved_step > 0 ? saved_step : run->restart.saved_step;
}

static bool lacks_memory_now(const struct pen_run *run) {
  const struct pen_failure *failure;
  bool lacks = false;
  for (uint32_t i = 0; (failure = pen_failure_reported(&run->shared, i)) != NULL; i++) {
    lacks = lacks || pen_failure_is_memory(failure->line);
  }
  return lacks;
}

bool pen_restart_prepare(struct pen_run *run, int status) {
  const struct pen_control *control = run->shared.control;
  struct pen_restart *restart = &run->restart;
  if (status != PEN_EXIT_LOST || restart->count >= run->options->restarts ||
      atomic_load(&control->stop_requested) != 0) {
    return false;
  }
  if (!pen_membership_can_continue(&run->membership)) {
    pen_warn("no restart: no spare is left for a lost host, %sor more hosts are lost than left",
             run->membership.plan->fallback_count > 0 ? "no fallback fits those that live, " : "");
    return false;
  }
  const bool lacks_memory = lacks_memory_now(run);
  if (lacks_memory && restart->lacks_memory) {
    pen_warn(
        "no restart: ranks were killed again before the first step, for lack of memory most "
        "likely (model.sequence, memory.recompute, batch.microbatch)");
    return false;
  }
  restart->lacks_memory = lacks_memory;
  keep_reports(run);
  keep_saved_step(run);
  restart->count++;
  for (uint32_t r = 0; r < run->shared.process_count; r++) {
    run->sent_bytes += atomic_load(&run->shared.ranks[r].sent_bytes);
  }
  return true;
}

bool pen_restart_prepare_save(struct pen_run *run, int status) {
  const struct pen_options *options = run->options;
  if (status != PEN_EXIT_DATA || options->checkpoint == NULL || !options->given.recover_every ||
      run->profile->kind != PEN_TRAIN) {
    return false;
  }
  keep_saved_step(run);
  run->restart.count++;
  run->saves_only = true;
  return true;
}

/* The log continues where this host finds it. A file server may keep the lock of a host that is
 * lost for a while. */
static void take_files(struct pen_run *run) {
  const double lock_timeout_s = 2;
  const char *folder = run->options->checkpoint;
  run->log_descriptor = pen_log_create_again(run->options->log);
  if (folder != NULL && pen_folder_lock(folder, lock_timeout_s, &run->checkpoints) < 0) {
    pen_warn("--checkpoint %s: another process has its lock, perhaps the lost host's", folder);
  }
  if (folder != NULL && pen_folder_mark_write(folder) != 0) {
    pen_fail(PEN_EXIT_CANNOT_CREATE, "--checkpoint %s: %s", folder, strerror(errno));
  }
}

/* The hosts that have not come again after the loss of others. Nothing is known of their ranks. */
static void name_absent(struct pen_run *run) {
  struct pen_membership *membership = &run->membership;
  struct pen_restart *restart = &run->restart;
  for (uint32_t h = 0; h < pen_host_and_spare_count(membership->plan); h++) {
    const char *host = membership->plan->hosts[h];
    if (membership->absent[h] != PEN_NONE && restart->lost_count < PEN_FAILURES_MAX) {
      struct pen_lost_rank *lost = &restart->lost[restart->lost_count++];
      lost->rank = membership->absent[h];
      snprintf(lost->host, sizeof lost->host, "%s", host);
      snprintf(lost->cause, sizeof lost->cause,
               "penstock: rank %u (pid 0, host %.*s) lost: host %.*s lost after start; no rank "
               "waits for it",
               lost->rank, PEN_HOST_BYTES, host, PEN_HOST_BYTES, host);
      pen_say_line(lost->cause);
    }
    membership->absent[h] = PEN_NONE;
  }
}

void pen_restart_take_plan(struct pen_run *run) {
  const struct pen_membership *membership = &run->membership;
  name_absent(run);
  if (run->plan == membership->current) {
    return;
  }
  run->plan = membership->current;
  run->buckets = pen_buckets_of(run->plan, run->profile->kind);
  if (run->options->given.shape) {
    pen_buckets_force(&run->buckets, run->options->shape);
  }
  run->profile = run->buckets.profile[run->buckets.count - 1];
  if (run->evaluation.buckets.count > 0) {
    run->evaluation.buckets = pen_buckets_of(run->plan, PEN_EVAL);
  }
  if (run->sampling.buckets.count > 0) {
    run->sampling.buckets = pen_buckets_of_generation(run->plan);
  }
  run->restart.fallback = pen_plan_index(membership->plan, run->plan);
}

void pen_restart_take_place(struct pen_run *run) {
  const struct pen_rank_set before = run->local, *now = &run->shared.local;
  if (run->plan == run->placed && now->count == before.count && now->first == before.first) {
    return;
  }
  if (run->plan != run->placed && run->old.plan == NULL) {
    run->old = (struct pen_run_old){run->placed, before, run->memory, run->mirrored};
    run->memory = run->mirrored = (struct pen_memory_checkpoints){.memory = NULL};
  }
  run->placed = run->plan;
  run->local = *now;
  close_memory(run);
  open_memory(run);
  if (now->first == 0 && before.first != 0 && run->profile->kind == PEN_TRAIN) {
    take_files(run);
  }
}

/* What the ranks of this command can start from. */
static struct pen_start_offer offer_of(const struct pen_run *run) {
  const struct pen_run_old *old = &run->old;
  const bool changed = old->plan != NULL;
  const struct pen_plan *plan = changed ? old->plan : run->plan;
  const struct pen_rank_set *ranks = changed ? &old->ranks : &run->local;
  struct pen_start_offer offer = {.host = changed && ranks->count == 0 ? PEN_NONE : ranks->host,
                                  .hosts = plan->host_count > 1 ? plan->host_count : 1,
                                  .plan = pen_plan_index(run->membership.plan, plan),
                                  .held = changed && ranks->count > 0,
                                  .saved_step = run->restart.saved_step,
                                  .restarts = run->restart.count};
  pen_memory_checkpoint_steps(changed ? &old->memory : &run->memory, offer.steps);
  pen_memory_checkpoint_steps(changed ? &old->mirrored : &run->mirrored, offer.mirrored);
  return offer;
}

static bool starts_from_memory(const struct pen_start_state *state) {
  return state->restarts > 0 && state->memory_step > 0 && state->memory_step >= state->saved_step;
}

uint64_t pen_restart_wanted_step(const struct pen_run *run, const struct pen_start_state *state) {
  uint64_t steps[PEN_MEMORY_COPIES_MAX];
  bool has = !starts_from_memory(state);
  pen_memory_checkpoint_steps(&run->memory, steps);
  for (int i = 0; i < PEN_MEMORY_COPIES_MAX; i++) {
    has = has || steps[i] == state->memory_step;
  }
  return has ? 0 : state->memory_step;
}

static bool redistribute(struct pen_run *run, struct pen_control_tcp *tcp,
                         const struct pen_start_state *state) {
  const struct pen_plan *plan = run->membership.plan;
  if (!starts_from_memory(state) || state->memory_plan == pen_plan_index(plan, run->plan)) {
    return true;
  }
  const struct pen_redistribution states = {
      .from = pen_plan_of_index(plan, state->memory_plan),
      .step = state->memory_step,
      .own = &run->old.memory,
      .mirrored = &run->old.mirrored,
      .to = &run->memory,
  };
  return pen_control_tcp_redistribute(
      tcp, &states, run->local.count > 0 || (run->old.plan != NULL && run->old.ranks.count > 0));
}

bool pen_restart_agree(struct pen_run *run, struct pen_control_tcp *tcp,
                       struct pen_start_state *state) {
  const struct pen_start_offer offer = offer_of(run);
  if (!pen_control_tcp_agree(tcp, &offer, state)) {
    return false;
  }
  if (state->failed_status != 0) {
    pen_fail((int)state->failed_status,
             "the command of host %s ended with status %d before the ranks were started",
             run->plan->hosts[state->failed_host % run->plan->host_count],
             (int)state->failed_status);
  }
  run->restart.count = state->restarts;
  if (!redistribute(run, tcp, state)) {
    return false;
  }
  close_old(run);
  pen_membership_release(&run->membership);
  return true;
}

static void start_from_checkpoint(struct pen_run *run) {
  static struct pen_checkpoint_info found;
  if (!pen_folder_is(run->options->checkpoint, &run->checkpoints) ||
      pen_checkpoint_find(run->options->checkpoint, run->plan, &found) != 0) {
    pen_fail(PEN_EXIT_NO_INPUT, "--checkpoint %s: its last checkpoint is gone",
             run->options->checkpoint);
  }
  run->checkpoint_path = found.path;
  pen_kept_files_open(&run->kept, found.path, run->plan->config_json, "float32");
  run->first_step = found.state.step;
  run->cursor = found.state.cursor;
  run->updates = found.state.updates;
}

void pen_restart_apply(struct pen_run *run, const struct pen_start_state *state) {
  if (state->restarts == 0) {
    return;
  }
  run->restart.saved_step = state->saved_step;
  if (run->local.count == 0) {
    return;
  }
  run->restart.from_memory = starts_from_memory(state);
  run->checkpoint_path = run->begin.checkpoint_path;
  run->first_step = run->begin.first_step;
  run->cursor = run->begin.cursor;
  run->updates = run->begin.updates;
  if (run->restart.from_memory) {
    run->checkpoint_path = NULL;
    run->first_step = state->memory_step;
    const struct pen_state_position position =
        pen_memory_checkpoint_position(&run->memory, state->memory_step);
    run->cursor = position.cursor;
    run->updates.most = position.updates;
  } else if (state->saved_step > 0) {
    start_from_checkpoint(run);
  }
  pen_memory_checkpoints_forget(&run->memory, run->first_step);
  pen_memory_checkpoints_forget(&run->mirrored, run->first_step);
  run->steps = run->begin.first_step + run->begin.steps - run->first_step;
  if (run->saves_only && (!run->restart.from_memory || run->first_step <= state->saved_step)) {
    run->steps = 0; /* all is saved */
  }
  run->announces = false;
  if (run->log_descriptor >= 0) {
    run->logged = pen_log_tail_read(run->options->log, run->first_step);
  }
}
