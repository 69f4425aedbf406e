/* run.c: the commands that run steps: everything that a user can have got wrong is found here, by
 * one process, before ranks exist; what holds for all ranks is settled once. */
#include "runtime/rank/run.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/check.h"
#include "runtime/storage/checkpoint_load.h"
#include "runtime/storage/checkpoint_prune.h"
#include "runtime/storage/checkpoint_tensors.h"
#include "runtime/base/files.h"
#include "runtime/commands/generate.h"
#include "runtime/storage/initial_weights.h"
#include "runtime/observe/step_log.h"
#include "runtime/storage/manifest.h"
#include "runtime/commands/score.h"
#include "runtime/comm/step_stats.h"
#include "runtime/exec/op_hook.h"
#include "runtime/observe/trace.h"

/* The files that a command line names. */
static const struct named_file {
  const char *option;
  size_t offset; /* of the path in struct pen_options */
  bool written;
} named_files[] = {
    {"--data", offsetof(struct pen_options, data), false},
    {"--eval-data", offsetof(struct pen_options, eval_data), false},
    {"--init", offsetof(struct pen_options, init), false},
    {"--log", offsetof(struct pen_options, log), true},
    {"--trace", offsetof(struct pen_options, trace), true},
    {"--measure", offsetof(struct pen_options, measure), true},
    {"--output", offsetof(struct pen_options, output), true},
};
enum { NAMED_FILE_COUNT = sizeof named_files / sizeof *named_files };

static const char *path_of(const struct pen_options *options, const struct named_file *file) {
  return *(const char *const *)((const char *)options + file->offset);
}

/* The folder of a path; returns its last part. */
static const char *part_path(const char *path, char folder[PATH_MAX]) {
  const char *slash = strrchr(path, '/');
  snprintf(folder, PATH_MAX, "%.*s", slash == NULL ? 1 : (int)(slash - path + 1),
           slash == NULL ? "." : path);
  return slash == NULL ? path : slash + 1;
}

/* Whether both name one file, whose content would be lost: not a device or a pipe. One that is not
 * there yet is known by its folder. */
static bool same_file(const char *path, const char *other) {
  struct stat one, two;
  int missing = stat(path, &one) != 0, other_missing = stat(other, &two) != 0;
  if (!missing && !other_missing) {
    return S_ISREG(one.st_mode) && pen_file_same(&one, &two);
  }
  char folder[PATH_MAX], other_folder[PATH_MAX];
  bool same_name = strcmp(part_path(path, folder), part_path(other, other_folder)) == 0;
  return missing && other_missing && same_name && stat(folder, &one) == 0 &&
         stat(other_folder, &two) == 0 && pen_file_same(&one, &two);
}

/* A file that is written would be emptied before, or while, it is read as another. */
static void keep_files_apart(const struct pen_options *options) {
  for (size_t i = 0; i < NAMED_FILE_COUNT; i++) {
    const char *path = path_of(options, &named_files[i]);
    for (size_t j = 0; j < NAMED_FILE_COUNT && named_files[i].written && path != NULL; j++) {
      const char *other = path_of(options, &named_files[j]);
      if (i != j && other != NULL && same_file(path, other)) {
        pen_fail(PEN_EXIT_USAGE, "%s %s: the same file as that of %s", named_files[i].option, path,
                 named_files[j].option);
      }
    }
  }
}

/* Nor may such a file be one of the folder that weights are read from. */
static void keep_weights_apart(const struct pen_run *run) {
  const char *path = run->checkpoint_path != NULL ? run->checkpoint_path : run->weights_path;
  DIR *folder = path == NULL ? NULL : opendir(path);
  for (const struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;) {
    char file[PATH_MAX];
    const char *ending = strrchr(entry->d_name, '.');
    if (ending == NULL || (strcmp(ending, ".safetensors") != 0 && strcmp(ending, ".json") != 0) ||
        pen_path_join(file, path, entry->d_name) != 0) {
      continue;
    }
    for (size_t i = 0; i < NAMED_FILE_COUNT; i++) {
      const char *written = named_files[i].written ? path_of(run->options, &named_files[i]) : NULL;
      if (written != NULL && same_file(file, written)) {
        pen_fail(PEN_EXIT_USAGE, "%s %s: a file of the weights that are read from %s",
                 named_files[i].option, written, path);
      }
    }
  }
  if (folder != NULL) {
    closedir(folder);
  }
}

/* What steps of that kind may run. */
static struct pen_buckets shapes_of(const struct pen_plan *plan, enum pen_profile_kind kind,
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
  keep_files_apart(options);
  const char *follows = options->trace != NULL     ? "--trace"
                        : options->measure != NULL ? "--measure"
                                                   : NULL;
  if (plan->host_count > 1 && follows != NULL) {
    pen_fail(PEN_EXIT_USAGE, "%s follows the ranks of one host, and this binary's are on %" PRIu32,
             follows, plan->host_count);
  }
  if (buckets.count > 1 && follows != NULL) {
    pen_fail(PEN_EXIT_USAGE,
             "%s follows one shape, and this binary has %" PRIu32 ": choose one by --shape",
             follows, buckets.count);
  }
  return buckets;
}

static const struct pen_profile *last_of(const struct pen_buckets *buckets) {
  return buckets->profile[buckets->count - 1];
}

static void need_data(const struct pen_plan *plan, const struct pen_options *options,
                      const char *command) {
  if (plan->needs_tokens && options->data == NULL) {
    pen_fail(PEN_EXIT_USAGE, "%s needs --data FILE: a token file, as penstock-tokens writes it",
             command);
  }
}

/* A model that makes its own inputs has no use for a token file: one that is named must be there,
 * and is left alone. */
static const char *tokens_wanted(const struct pen_plan *plan, const char *option,
                                 const char *path) {
  if (plan->needs_tokens || path == NULL) {
    return path;
  }
  if (access(path, R_OK) != 0) {
    pen_fail(PEN_EXIT_NO_INPUT, "%s: %s", path, strerror(errno));
  }
  fprintf(stderr, "%s: %s %s is not read: the model makes its own inputs\n", plan->name, option,
          path);
  return NULL;
}

static void open_data(struct pen_run *run) {
  const char *path = tokens_wanted(run->plan, "--data", run->options->data);
  pen_data_open(&run->data, run->plan, run->profile->sequence, path, run->options->seed);
}

static void open_trace(struct pen_run *run) {
  run->trace_descriptor = -1;
  if (run->options->trace != NULL) {
    run->trace_descriptor = pen_trace_create(run->options->trace, run->plan, run->zero_ns);
  }
}

/* A run that starts anew where checkpoints are will take the place of some: nobody should learn
 * that afterwards. */
static void say_what_is_there(const struct pen_run *run) {
  const char *name = run->plan->name, *folder = run->options->checkpoint;
  uint64_t newest;
  if (!pen_checkpoint_newest(folder, &newest)) {
    if (run->options->resume) {
      fprintf(stderr, "%s: no checkpoint in %s: starting at step 1\n", name, folder);
    }
    return;
  }
  const char *advice =
      run->options->resume ? "but no latest to resume" : "and --resume goes on from the latest";
  fprintf(stderr,
          "%s: %s holds checkpoints up to step-%08" PRIu64
          ", %s: starting at step 1; those of the same steps are replaced\n",
          name, folder, newest, advice);
}

/* `path`, or, where the folder that it is or lies in is a link, where that leads now: DIR/latest
 * may name another by the time that a rank opens it. 0. */
static int settle_path(const char *path, char settled[PATH_MAX]) {
  char folder[PATH_MAX], real[PATH_MAX];
  struct stat status;
  const char *slash = strrchr(path, '/'), *file = "";
  size_t length = strlen(path);
  if (slash != NULL && stat(path, &status) == 0 && !S_ISDIR(status.st_mode)) {
    file = slash;
    length = (size_t)(slash - path);
  }
  while (length > 1 && path[length - 1] == '/') {
    length--;
  }
  snprintf(folder, sizeof folder, "%.*s", (int)length, path);
  bool leads =
      lstat(folder, &status) == 0 && S_ISLNK(status.st_mode) && realpath(folder, real) != NULL;
  if (pen_path_suffix(settled, leads ? real : path, leads ? file : "") != 0) {
    pen_fail(PEN_EXIT_NO_INPUT, "%s: %s", path, strerror(errno));
  }
  return 0;
}

/* Where the weights come from, and which step is next. */
static void find_start(struct pen_run *run, struct pen_checkpoint_info *found) {
  const struct pen_options *options = run->options;
  if (options->resume && pen_checkpoint_find(options->checkpoint, run->plan, found) == 0) {
    run->checkpoint_path = found->path;
    run->first_step = found->step;
    run->cursor = found->cursor;
    return;
  }
  if (options->checkpoint != NULL && run->local.first == 0) {
    say_what_is_there(run);
  }
  if (options->init != NULL) {
    static char path[PATH_MAX];
    settle_path(options->init, path);
    run->weights_path = path;
    pen_weights_check(run->plan, run->weights_path);
  }
}

/* All full steps of the file, once, whatever their buckets; without a file there is no natural end,
 * and one step is made. */
static uint64_t steps_of_file(const struct pen_plan *plan, const struct pen_buckets *buckets,
                              const struct pen_data *data) {
  uint64_t steps = 0, cursor = 0;
  if (data->tokens == NULL) {
    return 1;
  }
  for (;; steps++) {
    uint32_t shape = pen_bucket_of_step(buckets, plan, data, cursor);
    cursor += pen_data_step_windows(plan, buckets->profile[shape]);
    if (cursor > data->window_count) {
      break;
    }
  }
  if (steps == 0) {
    pen_fail(PEN_EXIT_DATA,
             "%s: %" PRIu64 " windows of sequence %" PRIu64 ": a step reads %" PRIu64, data->path,
             data->window_count, data->sequence, cursor);
  }
  return steps;
}

/* One step up is meant, not checkpoints within a checkpoint. */
static void must_hold_checkpoints(const char *folder) {
  char file[PATH_MAX];
  if (pen_path_join(file, folder, pen_checkpoint_files[PEN_OPTIMIZER_FILE]) == 0 &&
      access(file, F_OK) == 0) {
    pen_fail(PEN_EXIT_USAGE,
             "--checkpoint %s: is one checkpoint itself: name the folder that holds it", folder);
  }
}

/* Better now than after a week of training. A run that was killed a moment ago may still be
 * leaving. Of several hosts, the one that has rank 0 claims the folder for all. */
static void claim_checkpoints(const struct pen_run *run) {
  const double leaving_s = 2;
  const char *folder = run->options->checkpoint;
  must_hold_checkpoints(folder);
  if (pen_folder_make(folder) != 0 || access(folder, W_OK | X_OK) != 0) {
    pen_fail(PEN_EXIT_CANNOT_CREATE, "--checkpoint %s: %s", folder, strerror(errno));
  }
  if (run->local.first == 0 && pen_folder_lock(folder, leaving_s) != 0) {
    pen_fail(PEN_EXIT_CANNOT_CREATE, "--checkpoint %s: %s", folder,
             errno == EWOULDBLOCK ? "another run saves there" : strerror(errno));
  }
}

/* --eval-every: the plans for it, and its data. */
static void open_evaluation(struct pen_run *run) {
  const struct pen_options *options = run->options;
  struct pen_run_evaluation *evaluation = &run->evaluation;
  if (options->given.eval_every) {
    evaluation->buckets = pen_buckets_of(run->plan, PEN_EVAL);
    pen_assert(evaluation->buckets.count > 0); /* every plan that trains has them */
    pen_data_open(&evaluation->data, run->plan, last_of(&evaluation->buckets)->sequence,
                  tokens_wanted(run->plan, "--eval-data", options->eval_data), options->seed);
    evaluation->steps = options->given.eval_steps
                            ? options->eval_steps
                            : steps_of_file(run->plan, &evaluation->buckets, &evaluation->data);
  }
}

static void check_evaluation(const struct pen_plan *plan, const struct pen_options *options) {
  if (options->given.eval_every && plan->needs_tokens && options->eval_data == NULL) {
    pen_fail(PEN_EXIT_USAGE, "--eval-every %" PRIu64 " needs --eval-data FILE: what to evaluate on",
             options->eval_every);
  }
  if ((options->given.eval_steps || options->eval_data != NULL) && !options->given.eval_every) {
    pen_fail(PEN_EXIT_USAGE, "--%s needs --eval-every N: after how many steps to evaluate",
             options->given.eval_steps ? "eval-steps" : "eval-data");
  }
}

static void check_train(const struct pen_plan *plan, const struct pen_options *options) {
  need_data(plan, options, "train");
  if (options->resume && options->checkpoint == NULL) {
    pen_fail(PEN_EXIT_USAGE, "--resume needs --checkpoint DIR: what to resume");
  }
  if (options->given.keep && options->checkpoint == NULL) {
    pen_fail(PEN_EXIT_USAGE, "--keep %" PRIu64 " needs --checkpoint DIR: where to remove",
             options->keep);
  }
  if (options->given.save_every && options->checkpoint == NULL) {
    pen_fail(PEN_EXIT_USAGE, "--save-every %" PRIu64 " needs --checkpoint DIR: where to save",
             options->save_every);
  }
  check_evaluation(plan, options);
}

/* A run of that command, as far as its options and the binary say. */
static struct pen_run run_of(const struct pen_plan *plan, const struct pen_options *options,
                             enum pen_profile_kind kind, const char *command, uint64_t zero_ns) {
  struct pen_buckets buckets = shapes_of(plan, kind, options, command);
  struct pen_local_ranks local = pen_local_ranks_of(plan, options);
  return (struct pen_run){
      .plan = plan,
      .buckets = buckets,
      .profile = last_of(&buckets),
      .options = options,
      .local = local,
      .log_descriptor = -1,
      .announces = !options->quiet,
      .zero_ns = zero_ns,
  };
}

int pen_run_train(const struct pen_plan *plan, const struct pen_options *options,
                  uint64_t zero_ns) {
  pen_block_signals(); /* one that comes before there are ranks is theirs, too: they leave in order
                        */
  struct pen_run run = run_of(plan, options, PEN_TRAIN, "train", zero_ns);
  struct pen_checkpoint_info found;
  check_train(plan, options);
  open_data(&run);
  open_evaluation(&run);
  if (options->checkpoint != NULL) {
    claim_checkpoints(
        &run); /* before what is there is read: who had it may have saved while it left */
  }
  find_start(&run, &found);
  keep_weights_apart(&run);
  uint64_t past_step = options->given.steps ? options->steps : plan->optimizer.steps;
  if (run.first_step >= past_step) {
    fprintf(stderr, "%s: %s is at step %" PRIu64 " already: nothing to do up to step %" PRIu64 "\n",
            plan->name, run.checkpoint_path == NULL ? "the run" : run.checkpoint_path,
            run.first_step, past_step);
    return 0;
  }
  run.steps = past_step - run.first_step;
  if (run.local.first == 0) {
    run.log_descriptor = pen_log_create(options->log, run.checkpoint_path != NULL);
  }
  open_trace(&run);
  if (options->measure != NULL) {
    pen_measure_open(&run.measure, plan, run.profile, options->measure, run.steps);
  }
  int status = pen_launch(&run);
  if (options->measure != NULL) {
    pen_measure_write(&run.measure, status == 0);
  }
  pen_shared_close(&run.shared);
  return status;
}

/* DIR itself when it holds weights, else what DIR/latest names. With a manifest, checksums are
 * verified too. */
static void find_weights(struct pen_run *run, const char *command,
                         struct pen_checkpoint_info *found) {
  const struct pen_options *options = run->options;
  if ((options->checkpoint == NULL) == (options->init == NULL)) {
    pen_fail(PEN_EXIT_USAGE, "%s needs weights: either --checkpoint DIR or --init PATH", command);
  }
  static char folder[PATH_MAX];
  char file[PATH_MAX];
  if (options->init != NULL) {
    pen_checkpoint_share(settle_path, options->init, folder);
    pen_weights_check(run->plan, folder);
    run->weights_path = folder;
  } else if (pen_path_join(file, options->checkpoint, "model.safetensors") == 0 &&
             access(file, F_OK) == 0) {
    pen_checkpoint_share(settle_path, options->checkpoint, folder);
    pen_weights_check(run->plan, folder);
    *(pen_manifest_find(folder, run->plan) == PEN_MANIFEST_OURS ? &run->checkpoint_path
                                                                : &run->weights_path) = folder;
  } else if (pen_checkpoint_find_weights(options->checkpoint, run->plan, found) == 0) {
    run->checkpoint_path = found->path;
  } else {
    pen_fail(PEN_EXIT_NO_INPUT,
             "--checkpoint %s: holds neither model.safetensors nor a checkpoint named latest",
             options->checkpoint);
  }
  keep_weights_apart(run);
}

static bool is_here(const struct pen_run *run, uint32_t rank) {
  return rank - run->local.first < run->local.count;
}

/* The result line. A loss that is a sum is given for one step, as training logs it. */
static void print_result(const struct pen_run *run) {
  const struct pen_control *control = run->shared.control;
  uint64_t divisor = run->plan->loss_is_mean ? control->target_count : control->step_count;
  if (divisor == 0) {
    pen_fail(PEN_EXIT_DATA,
             "%s: no target in the windows of the %" PRIu64
             " steps that were made: they have no loss",
             run->options->data, control->step_count);
  }
  double loss = control->loss_sum / (double)divisor;
  char loss_text[32], perplexity_text[32];
  pen_json_number(loss_text, sizeof loss_text, loss);
  pen_json_number(perplexity_text, sizeof perplexity_text, exp(loss));
  printf("{\"loss\":%s,\"perplexity\":%s,\"tokens\":%" PRIu64 "}\n", loss_text, perplexity_text,
         control->target_count);
}

/* Runs the steps of a command that trains nothing; where that rank is, the result line says what
 * came of them. PEN_NONE: nowhere. */
static int run_forward(struct pen_run *run, uint32_t telling_rank) {
  open_trace(run);
  int status = pen_launch(run);
  if (status == 0 && is_here(run, telling_rank)) {
    print_result(run);
  }
  if (status == 0 && telling_rank != PEN_NONE && is_here(run, 0) &&
      run->shared.control->step_count < run->steps) {
    fprintf(stderr,
            "%s: stopped by a signal after %" PRIu64 " of %" PRIu64
            " steps: the rest was not read\n",
            run->plan->name, run->shared.control->step_count, run->steps);
  }
  pen_shared_close(&run->shared);
  return status;
}

static void need_language(const struct pen_plan *plan, const char *command) {
  if (!plan->needs_tokens || !plan->loss_is_mean) {
    pen_fail(PEN_EXIT_USAGE, "%s: this binary's model foretells no tokens: its loss is a sum",
             command);
  }
}

/* One replica does the work, and its ranks may stand beside those of the next: on several hosts
 * nobody could say who starts which. */
static void need_one_replica_or_host(const struct pen_plan *plan, const char *command) {
  if (plan->host_count > 1 && plan->replica_count > 1) {
    pen_fail(PEN_EXIT_USAGE,
             "%s: the %" PRIu32 " replicas of this binary are on %" PRIu32
             " hosts; build one with"
             " data_parallel.replicas = 1, which takes the same weights",
             command, plan->replica_count, plan->host_count);
  }
}

/* One text, or one file in its order, is the work of one replica: its plan is the deployment's. Of
 * values that are cut it keeps the copies alone. Replicas that share out what their programs read
 * (UNSHARD) can run only together, and do. */
static struct pen_plan of_one_replica(const struct pen_plan *plan) {
  struct pen_plan one = *plan;
  if (plan->sharding == PEN_SHARD_WEIGHTS) {
    return one;
  }
  struct pen_weight *weights = calloc(plan->weight_count + 1u, sizeof *weights);
  pen_check(weights != NULL, "no memory for %u weights", plan->weight_count);
  for (uint32_t i = 0; i < plan->weight_count; i++) {
    weights[i] = plan->weights[i];
    weights[i].value_offset = weights[i].value_sharded ? UINT64_MAX : weights[i].value_offset;
  }
  one.weights = weights;
  one.replica_count = 1;
  if (plan->replica_count > 1) {
    one.ranks_per_host = one.rank_count; /* of one host, see need_one_replica_or_host() */
  }
  return one;
}

/* Who finds what tokens are worth. */
static uint32_t finding_rank(const struct pen_run *run) {
  return pen_last_stage_rank(run->plan, run->profile);
}

int pen_run_eval(const struct pen_plan *plan, const struct pen_options *options, uint64_t zero_ns) {
  need_data(plan, options, "eval");
  struct pen_run run = run_of(plan, options, PEN_EVAL, "eval", zero_ns);
  struct pen_checkpoint_info found;
  find_weights(&run, "eval", &found);
  open_data(&run);
  run.steps = options->given.steps ? options->steps : steps_of_file(plan, &run.buckets, &run.data);
  return run_forward(&run, 0);
}

int pen_run_score(const struct pen_plan *plan, const struct pen_options *options,
                  uint64_t zero_ns) {
  need_one_replica_or_host(plan, "score");
  need_language(plan, "score");
  need_data(plan, options, "score");
  if (options->output == NULL) {
    pen_fail(PEN_EXIT_USAGE, "score needs --output FILE: where to write the scores");
  }
  struct pen_plan one = of_one_replica(plan);
  plan = &one;
  struct pen_run run = run_of(plan, options, PEN_EVAL, "score", zero_ns);
  struct pen_checkpoint_info found;
  find_weights(&run, "score", &found);
  run.buckets =
      (struct pen_buckets){.profile = {run.profile}, .count = 1}; /* its taps are of one plan */
  pen_data_open_to_end(&run.data, plan, run.profile->sequence, options->data, options->seed);
  if (run.data.packed.header != NULL && options->given.end_of_text) {
    pen_fail(PEN_EXIT_USAGE,
             "--end-of-text %" PRIu64 ": %s is packed, and says itself where documents end",
             options->end_of_text, run.data.path);
  }
  uint64_t step_windows = pen_data_step_windows(plan, run.profile);
  run.steps = (run.data.window_count + step_windows - 1) / step_windows;
  run.hooks = &pen_score_hooks;
  if (is_here(&run, finding_rank(&run))) {
    pen_score_open(&run);
  }
  return run_forward(&run, finding_rank(&run));
}

int pen_run_generate(const struct pen_plan *plan, const struct pen_options *options,
                     uint64_t zero_ns) {
  need_one_replica_or_host(plan, "generate");
  need_language(plan, "generate");
  if (options->prompt == NULL) {
    pen_fail(PEN_EXIT_USAGE, "generate needs --prompt TEXT: what to go on from");
  }
  struct pen_options quiet = *options;
  quiet.quiet = true;
  struct pen_plan one = of_one_replica(plan);
  plan = &one;
  struct pen_run run = run_of(plan, &quiet, PEN_GENERATE, "generate", zero_ns);
  struct pen_checkpoint_info found;
  find_weights(&run, "generate", &found);
  pen_data_open(&run.data, plan, run.profile->sequence, NULL, options->seed);
  run.data.window_count = 1; /* taps read the samples instead */
  run.hooks = &pen_generate_hooks;
  pen_generate_open(plan, &quiet);
  run.steps = options->tokens *
              options->samples; /* at most; pen_generate_open() has looked that it is a number */
  return run_forward(&run, PEN_NONE);
}
