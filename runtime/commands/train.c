/* train.c: the command train. */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>

#include "runtime/base/check.h"
#include "runtime/base/mailbox.h"
#include "runtime/base/stop_signals.h"
#include "runtime/commands/commands.h"
#include "runtime/commands/files.h"
#include "runtime/commands/generate.h"
#include "runtime/commands/setup.h"
#include "runtime/commands/train_files.h"
#include "runtime/control/listen_address.h"
#include "runtime/data/windows.h"
#include "runtime/storage/checkpoint_load.h"
#include "runtime/storage/folder_mark.h"
#include "runtime/storage/initial_weights.h"
#include "runtime/supervise/binding.h"
#include "runtime/supervise/monitor.h"
#include "runtime/supervise/signals.h"
#include "runtime/supervise/supervise.h"

/* What is not as expected of the checkpoint: no `latest` names it, or other tensors are frozen than
 * when it was saved. */
static void report_start(const struct pen_checkpoint_info *found,
                         const struct pen_options *options) {
  if (found->latest_is_missing) {
    pen_warn("--checkpoint %s: has no latest: continues from the newest complete checkpoint, %s",
             options->checkpoint, found->path);
  }
  if (found->unfrozen_count > 0) {
    pen_warn("%s: %u tensors were frozen and are trained now: their moments start at zero",
             found->path, found->unfrozen_count);
  }
  if (found->momentum_count > 0) {
    pen_warn(
        "%s: %u tensors were saved with another optimizer.momentum: theirs starts at zero, or"
        " is dropped",
        found->path, found->momentum_count);
  }
  if (found->unchosen_count > 0) {
    pen_warn(
        "%s: has no counts of choices of %u routers: the first step balances as if all experts "
        "had been chosen equally often",
        found->path, found->unchosen_count);
  }
  if (found->frozen_count > 0) {
    pen_warn("%s: %u tensors were trained and are frozen now: their moments are dropped",
             found->path, found->frozen_count);
  }
}

/* Sets where the weights come from, and the first step. */
static void find_start(struct pen_run *run, struct pen_checkpoint_info *found) {
  const struct pen_options *options = run->options;
  if (options->resume && pen_checkpoint_find(options->checkpoint, run->plan, found) == 0) {
    run->checkpoint_path = found->path;
    run->first_step = found->state.step;
    run->updates = found->state.updates;
    pen_train_data_continue(run, found);
    pen_kept_files_open(&run->kept, found->path, run->plan->config_json, "float32");
    if (run->local.first == 0) {
      report_start(found, options);
    }
    return;
  }
  if (options->mailbox != NULL && options->mailbox->loaded[0] != '\0') {
    pen_fail(PEN_EXIT_NO_INPUT, "%s: holds no checkpoint", options->checkpoint);
  }
  if (options->resume && run->local.first == 0) {
    pen_say(run->plan->name, "no checkpoint in %s: starting at step 1", options->checkpoint);
  }
  if (options->init != NULL) {
    static char path[PATH_MAX];
    pen_resolve_path(options->init, path);
    run->weights_path = path;
    pen_run_check_weights(run, run->weights_path);
    if (options->checkpoint != NULL) {
      pen_kept_files_open(&run->kept, path, run->plan->config_json, "float32");
    }
  } else {
    pen_weights_expect_initial(run->plan);
  }
}

/* --eval-every: opens its profiles and its data. */
static void open_evaluation(struct pen_run *run) {
  const struct pen_options *options = run->options;
  struct pen_run_evaluation *evaluation = &run->evaluation;
  if (options->given.eval_every) {
    evaluation->buckets = pen_buckets_of(run->plan, PEN_EVAL);
    pen_assert(evaluation->buckets.count > 0); /* every plan for training has them */
    const struct pen_texts paths =
        pen_token_paths(run->plan, "--eval-data", &options->eval_data, false);
    pen_data_open_files(&evaluation->data, run->plan,
                        pen_longest_profile(&evaluation->buckets)->sequence, &paths, NULL,
                        (uint32_t)options->ids, options->seed);
    evaluation->steps = options->given.eval_steps
                            ? options->eval_steps
                            : pen_steps_of_file(run->plan, &evaluation->buckets, &evaluation->data);
    pen_say_not_read(run, &evaluation->buckets, &evaluation->data, evaluation->steps,
                     options->given.eval_steps);
  }
}

/* --sample-every: opens the profiles of generation and reads the prompts. */
static void open_samples(struct pen_run *run) {
  const struct pen_options *options = run->options;
  struct pen_run_sampling *sampling = &run->sampling;
  if (!options->given.sample_every) {
    return;
  }
  sampling->buckets = pen_buckets_of_generation(run->plan);
  if (sampling->buckets.count == 0) {
    pen_fail(PEN_EXIT_USAGE, "--sample-every %" PRIu64 ": this binary has no plan to generate by",
             options->sample_every);
  }
  static struct pen_prompts prompts;
  prompts = pen_prompts_read(run->plan, options);
  pen_data_open(&sampling->data, run->plan, pen_longest_profile(&sampling->buckets)->sequence, NULL,
                0, options->seed);
  sampling->data.window_count = 1; /* hooks read the samples instead */
  sampling->hooks = &pen_sample_hooks;
  run->prompts_checksum = pen_prompts_checksum(&prompts);
  pen_generate_open(run, &sampling->buckets, options, &prompts);
}

static void check_evaluation(const struct pen_plan *plan, const struct pen_options *options) {
  if (options->given.eval_every && plan->needs_tokens && options->eval_data.count == 0) {
    pen_fail(PEN_EXIT_USAGE, "--eval-every %" PRIu64 " needs --eval-data FILE: what to evaluate on",
             options->eval_every);
  }
  if ((options->given.eval_steps || options->eval_data.count > 0) && !options->given.eval_every) {
    pen_fail(PEN_EXIT_USAGE, "--%s needs --eval-every N: after how many steps to evaluate",
             options->given.eval_steps ? "eval-steps" : "eval-data");
  }
}

static void check_samples(const struct pen_plan *plan, const struct pen_options *options) {
#define GIVEN(field, name) \
  { options->given.field, name }
  const struct {
    bool given;
    const char *name;
  } of_samples[] = {GIVEN(prompt, "prompt"),
                    GIVEN(prompts, "prompts"),
                    GIVEN(tokens, "tokens"),
                    GIVEN(stop, "stop"),
                    GIVEN(samples, "samples"),
                    GIVEN(temperature, "temperature"),
                    GIVEN(top_k, "top-k"),
                    GIVEN(top_p, "top-p"),
                    GIVEN(min_p, "min-p"),
                    GIVEN(repetition_penalty, "repetition-penalty"),
                    GIVEN(end_of_text, "end-of-text")};
#undef GIVEN
  for (size_t i = 0; i < sizeof of_samples / sizeof *of_samples; i++) {
    if (of_samples[i].given && !options->given.sample_every) {
      pen_fail(PEN_EXIT_USAGE, "--%s needs --sample-every N: after how many steps to sample",
               of_samples[i].name);
    }
  }
  if (!options->given.sample_every) {
    return;
  }
  char option[48];
  snprintf(option, sizeof option, "--sample-every %" PRIu64, options->sample_every);
  pen_check_reads_texts(plan, option);
  if ((options->prompt == NULL) == (options->prompts == NULL)) {
    pen_fail(PEN_EXIT_USAGE,
             "--sample-every %" PRIu64
             " needs either --prompt TEXT, the text to continue, or --prompts FILE",
             options->sample_every);
  }
  if (options->log == NULL) {
    pen_fail(PEN_EXIT_USAGE,
             "--sample-every %" PRIu64 " needs --log FILE: where to write the texts",
             options->sample_every);
  }
}

/* --audit needs memory that the plan reserves, also after a fallback. */
static void check_audit(const struct pen_plan *plan, const struct pen_options *options) {
  bool reserved = plan->audits;
  for (uint32_t f = 0; f < plan->fallback_count; f++) {
    reserved = reserved && plan->fallbacks[f].audits;
  }
  if (options->given.audit && !reserved) {
    pen_fail(PEN_EXIT_USAGE,
             "--audit %" PRIu64
             ": this binary%s reserves no memory for it; build one with"
             " memory.audit = true",
             options->audit, plan->audits ? ", in a fallback," : "");
  }
}

/* Options of a run that reads a file to its end, or is started again, are no options of a library.
 */
static void check_library(const struct pen_options *options) {
#define GIVEN(field, name) \
  { options->given.field, name }
  const struct {
    bool given;
    const char *name;
  } of_files[] = {GIVEN(data, "data"),
                  GIVEN(ids, "ids"),
                  GIVEN(shuffle, "shuffle"),
                  GIVEN(steps, "steps"),
                  GIVEN(save_every, "save-every"),
                  GIVEN(eval_every, "eval-every"),
                  GIVEN(sample_every, "sample-every"),
                  GIVEN(restarts, "restarts"),
                  GIVEN(trace, "trace"),
                  GIVEN(shape, "shape")};
#undef GIVEN
  for (size_t i = 0; i < sizeof of_files / sizeof *of_files && options->mailbox != NULL; i++) {
    if (of_files[i].given) {
      pen_fail(PEN_EXIT_USAGE, "--%s: not with a library, whose caller gives each step's samples",
               of_files[i].name);
    }
  }
}

static void check_train(const struct pen_plan *plan, const struct pen_options *options) {
  check_library(options);
  pen_check_data_given(plan, options, "train");
  if (options->resume && options->checkpoint == NULL) {
    pen_fail(PEN_EXIT_USAGE, "--resume needs --checkpoint DIR: what to resume");
  }
  if (options->resume && options->overwrite) {
    pen_fail(PEN_EXIT_USAGE, "--overwrite begins anew, --resume continues: give one of them");
  }
  if (options->new_data && !options->resume) {
    pen_fail(PEN_EXIT_USAGE, "--new-data needs --resume: what continues with other data");
  }
  if (options->shuffle && !plan->needs_tokens) {
    pen_fail(PEN_EXIT_USAGE, "--shuffle: the model makes its own inputs, in one order");
  }
  if (options->given.shuffle_seed && !options->shuffle) {
    pen_fail(PEN_EXIT_USAGE, "--shuffle-seed %" PRIu64 " needs --shuffle: what to shuffle",
             options->shuffle_seed);
  }
  if (options->log_microbatches && options->log == NULL) {
    pen_fail(PEN_EXIT_USAGE, "--log-microbatches needs --log FILE: where to write the losses");
  }
  if (options->given.keep && options->checkpoint == NULL) {
    pen_fail(PEN_EXIT_USAGE, "--keep %" PRIu64 " needs --checkpoint DIR: where to remove",
             options->keep);
  }
  if (options->given.save_every && options->checkpoint == NULL) {
    pen_fail(PEN_EXIT_USAGE, "--save-every %" PRIu64 " needs --checkpoint DIR: where to save",
             options->save_every);
  }
  if (options->given.recover_every && options->restarts == 0) {
    pen_fail(PEN_EXIT_USAGE, "--recover-every %" PRIu64 " needs --restarts N: what it is for",
             options->recover_every);
  }
  if (options->restarts > 0 && options->trace != NULL) {
    pen_fail(PEN_EXIT_USAGE, "--restarts %" PRIu64 ": --trace follows ranks that are started once",
             options->restarts);
  }
  check_audit(plan, options);
  check_evaluation(plan, options);
  check_samples(plan, options);
}

/* A fallback gives ranks to other hosts, whose commands may start no more than those of their own.
 * What it needs of this host is checked before the run depends on it. */
static void check_fallbacks(const struct pen_run *run) {
  const struct pen_plan *plan = run->plan;
  if (run->options->restarts == 0) {
    return;
  }
  if (plan->fallback_count > 0 && run->local.only != PEN_NONE) {
    pen_fail(PEN_EXIT_USAGE,
             "--restarts %" PRIu64
             ": this binary has fallbacks, which need one command a host (--host NAME), not one a "
             "rank",
             run->options->restarts);
  }
  pen_binding_check_fallbacks(plan);
  for (uint32_t f = 0; f < plan->fallback_count; f++) {
    const struct pen_plan *fallback = &plan->fallbacks[f];
    if (fallback->host_count > 1 && strcmp(fallback->interface, plan->interface) != 0) {
      pen_listen_address(fallback, run->local.host);
    }
  }
}

/* Before the commands connect, so that a failure is told to the other hosts. */
static void check_metrics(const struct pen_run *run) {
  struct pen_metrics metrics;
  if (run->options->metrics != NULL) {
    pen_metrics_open(&metrics, run);
  }
}

/* How a run ended that a signal ended, and where it continues. */
static void report_stop(const struct pen_run *run) {
  const struct pen_control *control = run->shared.control;
  const int number = pen_shared_stop_signal(&run->shared);
  const uint64_t step = run->first_step + control->step_count;
  const char *name = run->plan->name, *signal = pen_stop_signal_name(number);
  if (number == 0 || control->step_count == run->steps || run->options->quiet) {
    return;
  }
  if (run->options->checkpoint == NULL) {
    pen_say(name, "stopped by %s after step %" PRIu64 ", not saved: no --checkpoint", signal, step);
  } else {
    pen_say(name, "stopped by %s after step %" PRIu64 ", saved in %s/step-%08" PRIu64, signal, step,
            run->options->checkpoint, step);
  }
}

/* A file that is shorter than a step. */
static void report_short_data(const struct pen_run *run) {
  const struct pen_data *data = &run->data;
  const uint64_t windows = pen_data_step_windows(run->plan, run->profile);
  if (data->tokens != NULL && data->window_count < windows && run->local.first == 0) {
    const char *text = pen_data_windows_text(data);
    pen_warn("%s: %" PRIu64 " %s, and a step reads %" PRIu64 ": it reads %s again", data->path,
             data->window_count, text, windows, text);
  }
}

int pen_run_train(const struct pen_plan *plan, const struct pen_options *options,
                  uint64_t zero_ns) {
  pen_block_signals(); /* a signal before the ranks start ends them in order too */
  struct pen_run run = pen_run_of(plan, plan, options, PEN_TRAIN, "train", zero_ns);
  struct pen_checkpoint_info found;
  check_train(plan, options);
  check_fallbacks(&run);
  pen_run_open_data(&run);
  open_evaluation(&run);
  open_samples(&run);
  if (options->checkpoint != NULL) {
    pen_train_folder_open(
        &run); /* before it is read: the last run may save until it releases the lock */
  }
  find_start(&run, &found);
  pen_check_weights_not_written(&run);
  uint64_t past_step = options->mailbox != NULL ? INT64_MAX
                       : options->given.steps   ? options->steps
                                                : plan->optimizer.steps;
  if (run.first_step >= past_step) {
    pen_say(plan->name, "%s is at step %" PRIu64 " already: nothing to do up to step %" PRIu64,
            run.checkpoint_path == NULL ? "the run" : run.checkpoint_path, run.first_step,
            past_step);
    pen_kept_files_close(&run.kept);
    return 0;
  }
  run.steps = past_step - run.first_step;
  report_short_data(&run);
  pen_train_log_open(&run);
  if (run.local.first == 0) {
    check_metrics(&run);
  }
  pen_run_report_weights(&run, options->quiet);
  pen_run_open_trace(&run);
  int status = pen_launch(&run);
  if (status == 0 && run.local.first == 0) {
    report_stop(&run);
  }
  if (options->checkpoint != NULL && plan->host_count > 1 && run.local.first == 0) {
    pen_folder_mark_remove(options->checkpoint);
  }
  pen_kept_files_close(&run.kept);
  pen_shared_close(&run.shared);
  return status;
}
