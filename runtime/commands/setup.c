/* setup.c: what train, eval, score and generate have in common (see setup.h). */
#include "runtime/commands/setup.h"

#include <inttypes.h>

#include "runtime/base/check.h"
#include "runtime/commands/files.h"
#include "runtime/commands/library_data.h"
#include "runtime/data/windows.h"
#include "runtime/observe/trace.h"
#include "runtime/storage/initial_weights.h"
#include "runtime/supervise/early_exit.h"

/* The buckets that steps of this kind may run. */
static struct pen_buckets buckets_of(const struct pen_plan *plan, enum pen_profile_kind kind,
                                     const struct pen_options *options, const char *command) {
  struct pen_buckets buckets = pen_buckets_of(plan, kind);
  if (buckets.count == 0) {
    pen_fail(
        PEN_EXIT_USAGE,
        "%s: this binary has no plan for it: its schedule is %s; build one whose schedule trains",
        command, plan->schedule);
  }
  if (options->given.shape) {
    pen_buckets_force(&buckets, options->shape);
  }
  pen_check_files_differ(options);
  if (plan->host_count > 1 && options->trace != NULL) {
    pen_fail(PEN_EXIT_USAGE,
             "--trace follows the ranks of one host, and this binary's are on %" PRIu32,
             plan->host_count);
  }
  if (buckets.count > 1 && options->trace != NULL) {
    pen_fail(PEN_EXIT_USAGE,
             "--trace follows one shape, and this binary has %" PRIu32 ": choose one by --shape",
             buckets.count);
  }
  return buckets;
}

const struct pen_profile *pen_longest_profile(const struct pen_buckets *buckets) {
  return buckets->profile[buckets->count - 1];
}

void pen_run_open_data(struct pen_run *run) {
  if (run->options->mailbox != NULL) {
    pen_library_data_open(run);
    return;
  }
  const struct pen_texts paths =
      pen_token_paths(run->plan, "--data", &run->options->data, run->options->data_weights != NULL);
  pen_data_open_files(&run->data, run->plan, run->profile->sequence, &paths,
                      run->options->data_weights, (uint32_t)run->options->ids, run->options->seed);
  if (run->options->shuffle) {
    pen_data_shuffle(&run->data, run->options->given.shuffle_seed ? run->options->shuffle_seed
                                                                  : run->options->seed);
  }
}

void pen_run_check_weights(struct pen_run *run, const char *path) {
  run->shapes_alone = !pen_weights_check(run->plan, path, &run->options->ignored);
}

void pen_run_report_weights(const struct pen_run *run, bool quiet) {
  if (!quiet && run->shapes_alone && run->plan->needs_tokens && run->local.first == 0) {
    pen_say(run->plan->name, "%s: no config.json beside: the model is checked by shapes only",
            run->options->init != NULL ? run->options->init : run->options->checkpoint);
  }
}

void pen_run_open_trace(struct pen_run *run) {
  run->trace_descriptor = -1;
  if (run->options->trace != NULL) {
    run->trace_descriptor =
        pen_trace_create(run->options->trace, run->plan, run->profile, run->zero_ns);
  }
}

/* The windows of the step that begins there. */
static uint64_t windows_of_step(const struct pen_plan *plan, const struct pen_buckets *buckets,
                                const struct pen_data *data, uint64_t cursor) {
  return pen_data_step_windows(plan,
                               buckets->profile[pen_bucket_of_step(buckets, plan, data, cursor)]);
}

uint64_t pen_steps_of_file(const struct pen_plan *plan, const struct pen_buckets *buckets,
                           const struct pen_data *data) {
  uint64_t steps = 0, cursor = 0;
  if (data->tokens == NULL) {
    return 1;
  }
  for (;; steps++) {
    cursor += windows_of_step(plan, buckets, data, cursor);
    if (cursor > data->window_count) {
      break;
    }
  }
  if (steps == 0) {
    pen_fail(PEN_EXIT_DATA, "%s: %" PRIu64 " %s of sequence %" PRIu64 ": a step reads %" PRIu64,
             data->path, data->window_count, pen_data_windows_text(data), data->sequence, cursor);
  }
  return steps;
}

void pen_say_not_read(const struct pen_run *run, const struct pen_buckets *buckets,
                      const struct pen_data *data, uint64_t steps, bool chosen) {
  const struct pen_plan *plan = run->plan;
  const uint64_t windows = data->window_count;
  const char *text = pen_data_windows_text(data);
  uint64_t cursor = 0, step = 0;
  if (data->tokens == NULL || run->local.first != 0) {
    return;
  }
  for (; step < steps && cursor <= windows; step++) {
    cursor += windows_of_step(plan, buckets, data, cursor);
  }
  if (cursor > windows && !run->options->quiet) {
    pen_say(plan->name,
            "%s: its %" PRIu64 " %s end in step %" PRIu64 " of %" PRIu64
            ": from there on %s are read again",
            data->path, windows, text, step, steps, text);
  } else if (cursor < windows && !chosen) {
    pen_warn("%s: %" PRIu64 " of %" PRIu64 " %s are not read: a step reads %" PRIu64, data->path,
             windows - cursor, windows, text, windows_of_step(plan, buckets, data, cursor));
  }
}

struct pen_run pen_run_of(const struct pen_plan *plan, const struct pen_plan *deployed,
                          const struct pen_options *options, enum pen_profile_kind kind,
                          const char *command, uint64_t zero_ns) {
  struct pen_buckets buckets = buckets_of(plan, kind, options, command);
  struct pen_rank_set local = pen_local_ranks_of(deployed, options);
  if (plan != deployed) {
    local = plan->host_count < 2 ? pen_rank_set_all(plan)
                                 : pen_rank_set_of(plan, local.host, local.only);
  }
  const struct pen_run run = {
      .plan = plan,
      .buckets = buckets,
      .profile = pen_longest_profile(&buckets),
      .options = options,
      .local = local,
      .secret = pen_secret_read(plan, options),
      .log_descriptor = -1,
      .announces = !options->quiet,
      .zero_ns = zero_ns,
  };
  pen_early_exit_open(&run);
  return run;
}
