/* forward.c: the commands eval, score and generate, which run steps without an optimizer. */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <poll.h>
#include <stdlib.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/check.h"
#include "runtime/base/files.h"
#include "runtime/base/output.h"
#include "runtime/base/stop_signals.h"
#include "runtime/base/text_writer.h"
#include "runtime/comm/step_stats.h"
#include "runtime/commands/commands.h"
#include "runtime/commands/eval_outputs.h"
#include "runtime/commands/files.h"
#include "runtime/commands/generate.h"
#include "runtime/commands/score.h"
#include "runtime/commands/score_logits.h"
#include "runtime/commands/setup.h"
#include "runtime/data/windows.h"
#include "runtime/exec/op_hook.h"
#include "runtime/observe/step_log.h"
#include "runtime/storage/checkpoint_load.h"
#include "runtime/storage/manifest.h"
#include "runtime/supervise/signals.h"
#include "runtime/supervise/supervise.h"

/* Finds the weights: DIR itself if it holds them, else the checkpoint that DIR/latest names. With a
 * manifest, their checksums are verified too. */
static void find_weights(struct pen_run *run, const char *command,
                         struct pen_checkpoint_info *found) {
  const struct pen_options *options = run->options;
  if ((options->checkpoint == NULL) == (options->init == NULL)) {
    pen_fail(PEN_EXIT_USAGE, "%s needs weights: either --checkpoint DIR or --init PATH", command);
  }
  static char folder[PATH_MAX];
  char file[PATH_MAX];
  if (options->init != NULL) {
    pen_checkpoint_share(pen_resolve_path, options->init, folder);
    pen_run_check_weights(run, folder);
    run->weights_path = folder;
  } else if (pen_path_join(file, options->checkpoint, "model.safetensors") == 0 &&
             access(file, F_OK) == 0) {
    pen_checkpoint_share(pen_resolve_path, options->checkpoint, folder);
    pen_run_check_weights(run, folder);
    *(pen_manifest_find(folder, run->plan) == PEN_MANIFEST_OURS ? &run->checkpoint_path
                                                                : &run->weights_path) = folder;
  } else if (pen_checkpoint_find_weights(options->checkpoint, run->plan, found) == 0) {
    run->checkpoint_path = found->path;
  } else {
    pen_fail(PEN_EXIT_NO_INPUT,
             "--checkpoint %s: holds neither model.safetensors nor a checkpoint named latest",
             options->checkpoint);
  }
  pen_check_weights_not_written(run);
}

static bool is_local(const struct pen_run *run, uint32_t rank) {
  return pen_rank_set_has(&run->local, rank);
}

static int stop_signal; /* that the ranks' parent has handled; 0: none */

/* For the reader of the result: a signal, then or before, ends the command. */
static void wait_for_reader(bool begins) {
  enum { UNREAD_MS = 1000 };
  struct pollfd polled = {.fd = STDOUT_FILENO, .events = POLLOUT};
  pen_stop_signals_end_command(begins);
  if (begins && stop_signal != 0 && poll(&polled, 1, UNREAD_MS) == 0) {
    pen_fail(128 + stop_signal, "ended by a signal: nobody reads the result");
  }
}

/* Prints the result line, and a line if a part of the loss is not finite. Without targets there is
 * none (65). */
static void print_result(const struct pen_run *run) {
  const struct pen_control *control = run->shared.control;
  const struct pen_evaluated result =
      pen_evaluated_of(run->plan, control->loss_sum, control->target_count, control->step_count);
  const bool has_perplexity = run->plan->share_count == 0;
  char loss_text[PEN_JSON_NUMBER_BYTES], perplexity_text[PEN_JSON_NUMBER_BYTES], line[200];
  pen_json_mean(loss_text, sizeof loss_text, control->target_count, result.loss);
  pen_json_mean(perplexity_text, sizeof perplexity_text, control->target_count, result.perplexity);
  const int bytes = snprintf(line, sizeof line, "{\"loss\":%s%s%s,\"tokens\":%" PRIu64 "}\n",
                             loss_text, has_perplexity ? ",\"perplexity\":" : "",
                             has_perplexity ? perplexity_text : "", control->token_count);
  stop_signal = pen_shared_stop_signal(&run->shared);
  pen_output_on_wait(wait_for_reader);
  if (pen_output_write(STDOUT_FILENO, line, (size_t)bytes) != 0) {
    pen_fail(PEN_EXIT_CANNOT_WRITE, "cannot write to standard output: %s", strerror(errno));
  }
  if (control->target_count == 0) {
    pen_fail(PEN_EXIT_DATA,
             "%s: no target in the %s of the %" PRIu64 " steps that were made: they have no loss",
             run->data.path, pen_data_windows_text(&run->data), control->step_count);
  }
  if (control->not_finite_count > 0) {
    const bool by_token = run->hooks != NULL && run->hooks->gives_result;
    pen_warn("%" PRIu64 " of %" PRIu64 " %s not finite: the result has no loss",
             control->not_finite_count, by_token ? control->target_count : control->step_count,
             by_token ? "log-probabilities are" : "steps have a loss that is");
  }
}

/* Runs the steps. The host of result_rank (PEN_NONE: no host) prints the result line. */
static int run_forward(struct pen_run *run, uint32_t result_rank) {
  pen_run_report_weights(run, run->options->quiet);
  pen_run_open_trace(run);
  int status = pen_launch(run);
  pen_eval_outputs_close(run);
  if (status == 0 && is_local(run, result_rank)) {
    print_result(run);
  }
  if (status == 0 && result_rank != PEN_NONE && is_local(run, 0) &&
      run->shared.control->step_count < run->steps) {
    pen_say(run->plan->name,
            "stopped by %s after %" PRIu64 " of %" PRIu64 " steps: the rest was not read",
            pen_stop_signal_name(pen_shared_stop_signal(&run->shared)),
            run->shared.control->step_count, run->steps);
  }
  pen_shared_close(&run->shared);
  return status;
}

/* The plan of one replica, which does the work of generate and score alone; hosts without its ranks
 * wait. Of sharded weights it keeps the bf16 copies only. Replicas that shard the weights that
 * their programs read (UNSHARD) run together. */
static struct pen_plan one_replica_of(const struct pen_plan *plan) {
  struct pen_plan one = *plan;
  if (plan->sharding == PEN_SHARD_WEIGHTS) {
    return one;
  }
  struct pen_weight *weights =
      pen_allocate(plan->weight_count + 1u, sizeof *weights, "%u weights", plan->weight_count);
  for (uint32_t i = 0; i < plan->weight_count; i++) {
    weights[i] = plan->weights[i];
    weights[i].value_offset = weights[i].value_sharded ? UINT64_MAX : weights[i].value_offset;
  }
  one.weights = weights;
  one.replica_count = one.shard_ranks = 1;
  return one;
}

static void release_one_replica(const struct pen_plan *one, const struct pen_plan *plan) {
  if (one->weights != plan->weights) {
    free((void *)(uintptr_t)one->weights);
  }
}

int pen_run_eval(const struct pen_plan *plan, const struct pen_options *options, uint64_t zero_ns) {
  pen_check_data_given(plan, options, "eval");
  struct pen_run run = pen_run_of(plan, plan, options, PEN_EVAL, "eval", zero_ns);
  struct pen_checkpoint_info found;
  find_weights(&run, "eval", &found);
  pen_run_open_data(&run);
  run.steps =
      options->given.steps ? options->steps : pen_steps_of_file(plan, &run.buckets, &run.data);
  pen_say_not_read(&run, &run.buckets, &run.data, run.steps, options->given.steps);
  pen_eval_outputs_open(&run);
  return run_forward(&run, 0);
}

int pen_run_score(const struct pen_plan *plan, const struct pen_options *options,
                  uint64_t zero_ns) {
  const struct pen_plan *const whole = plan;
  pen_check_reads_texts(plan, "score");
  pen_check_data_given(plan, options, "score");
  if (options->data.count > 1) {
    pen_fail(PEN_EXIT_USAGE, "--data: score reads one file, and %zu were given",
             options->data.count);
  }
  if (options->output == NULL) {
    pen_fail(PEN_EXIT_USAGE, "score needs --output FILE: where to write the scores");
  }
  struct pen_plan one = one_replica_of(plan);
  if (pen_scored_kind(plan) == PEN_SCORE) { /* whose loss is the cross-entropy of texts */
    one.share_count = 0;
    one.loss_is_mean = true;
  }
  struct pen_run run = pen_run_of(&one, plan, options, pen_scored_kind(plan), "score", zero_ns);
  plan = &one;
  struct pen_checkpoint_info found;
  find_weights(&run, "score", &found);
  run.buckets = (struct pen_buckets){.profile = {run.profile},
                                     .count = 1}; /* its hooks are those of one profile */
  pen_data_open_to_end(&run.data, plan, run.profile->sequence, options->data.text[0],
                       (uint32_t)options->ids, options->seed);
  if (run.data.packed.header != NULL && options->given.end_of_text) {
    pen_fail(PEN_EXIT_USAGE,
             "--end-of-text %" PRIu64
             ": not with a packed file: the index of %s has the document ends",
             options->end_of_text, run.data.path);
  }
  uint64_t step_windows = pen_data_step_windows(plan, run.profile);
  run.steps = (run.data.window_count + step_windows - 1) / step_windows;
  run.hooks = &pen_score_hooks;
  const uint32_t writer = pen_last_stage_process(plan, run.profile);
  pen_score_open(&run, writer);
  const int status = run_forward(&run, writer);
  pen_score_logits_close();
  release_one_replica(&one, whole);
  return status;
}

int pen_run_generate(const struct pen_plan *plan, const struct pen_options *options,
                     uint64_t zero_ns) {
  const struct pen_plan *const whole = plan;
  pen_check_reads_texts(plan, "generate");
  const struct pen_prompts prompts = pen_prompts_read(plan, options);
  struct pen_options quiet = *options;
  quiet.quiet = true;
  struct pen_plan one = one_replica_of(plan);
  struct pen_run run = pen_run_of(&one, plan, &quiet, PEN_GENERATE, "generate", zero_ns);
  plan = &one;
  struct pen_checkpoint_info found;
  find_weights(&run, "generate", &found);
  pen_data_open(&run.data, plan, run.profile->sequence, NULL, 0, options->seed);
  run.data.window_count = 1; /* hooks read the samples instead */
  run.hooks = &pen_generate_hooks;
  run.prompts_checksum = pen_prompts_checksum(&prompts);
  run.buckets = pen_buckets_of_generation(plan);
  pen_generate_open(&run, &run.buckets, options, &prompts);
  run.steps = pen_generate_steps();
  pen_run_report_weights(&run, options->quiet);
  const int status = run_forward(&run, PEN_NONE);
  release_one_replica(&one, whole);
  return status;
}
