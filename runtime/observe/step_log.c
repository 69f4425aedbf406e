/* step_log.c: JSON lines and progress (see step_log.h). */
#include "runtime/observe/step_log.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/standard_error.h"
#include "runtime/base/check.h"
#include "runtime/base/files.h"
#include "runtime/base/output.h"
#include "runtime/base/text_writer.h"
#include "runtime/comm/step_stats.h"
#include "runtime/base/learning_rate.h"
#include "runtime/observe/log_tail.h"
#include "runtime/observe/plan_summary.h"

enum { LINE_BYTES = 512 };
static const uint64_t terminal_ns = 100 * 1000000u; /* between two states of the progress line */
static const uint64_t plain_ns = 10 * 1000 * 1000000ull; /* between two plain lines */

/* What is reported of one step. */
struct step_report {
  uint64_t step;       /* optimizer steps, from 1 */
  uint64_t tokens;     /* targets that count */
  uint64_t samples;    /* that data have by name */
  uint64_t losses;     /* what the loss is over (step_inputs.h); 0: loss and norm are not set */
  uint64_t epoch;      /* that begins in the step, from 2; 0: none does */
  uint64_t last_epoch; /* that of its last window, which each step tells; 0: without a file */
  double loss, norm, learning_rate, step_ms, tokens_per_second;
  struct pen_router_losses router;
  struct pen_expert_load load;
};

/* Whether it is what the command prints to, as /dev/stdout is: what is there may be its own. */
static bool is_printed_to(const struct stat *log) {
  struct stat out, error;
  return (fstat(STDOUT_FILENO, &out) == 0 && pen_file_same(&out, log)) ||
         (fstat(STDERR_FILENO, &error) == 0 && pen_file_same(&error, log));
}

/* Of a regular file: no other command writes there, and no former run has. A command that was
 * killed just before may hold the lock a little longer. */
static void take_log(int descriptor, const char *path, enum pen_log_mode mode) {
  const double lock_timeout_s = 2;
  struct stat status;
  if (pen_file_lock(descriptor, lock_timeout_s) != 0 && errno == EWOULDBLOCK) {
    pen_fail(PEN_EXIT_CANNOT_CREATE, "--log %s: another command writes there", path);
  }
  if (mode == PEN_LOG_CONTINUED) {
    pen_log_tail_mend(path);
  } else if (mode == PEN_LOG_OVERWRITTEN && ftruncate(descriptor, 0) != 0) {
    pen_fail(PEN_EXIT_CANNOT_CREATE, "--log %s: %s", path, strerror(errno));
  } else if (fstat(descriptor, &status) == 0 && status.st_size > 0) {
    pen_fail(PEN_EXIT_CANNOT_CREATE,
             "--log %s: a former run has written there: --resume, with its --checkpoint, appends, "
             "--overwrite begins anew",
             path);
  }
}

int pen_log_create(const char *path, enum pen_log_mode mode) {
  struct stat status;
  if (path == NULL) {
    return -1;
  }
  const bool exists = access(path, F_OK) == 0;
  int descriptor = pen_file_open_output(path, O_APPEND);
  if (descriptor < 0) {
    pen_fail(PEN_EXIT_CANNOT_CREATE, "--log %s: %s", path, strerror(errno));
  }
  if (fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode) && !is_printed_to(&status)) {
    take_log(descriptor, path, mode);
  }
  if (!exists) {
    pen_folder_sync_of(path); /* best effort */
  }
  return descriptor;
}

int pen_log_create_again(const char *path) {
  const int descriptor = path == NULL ? -1 : pen_file_open_output(path, O_APPEND);
  if (path != NULL && descriptor < 0) {
    pen_warn("--log %s: %s; training continues without it", path, strerror(errno));
  }
  if (descriptor >= 0) {
    pen_file_lock(descriptor, 0); /* a file server may still keep that of the lost host */
  }
  return descriptor;
}

void pen_log_open(struct pen_log *log, bool microbatches) {
  log->plan_text = pen_plan_summary(log->plan);
  log->line_bytes = LINE_BYTES + strlen(log->plan_text);
  if (microbatches) {
    pen_microbatch_losses_open(&log->microbatches, log->plan);
    log->line_bytes += pen_microbatch_losses_bytes(log->plan);
  }
  log->line = malloc(log->line_bytes);
  pen_check(log->line != NULL, "no memory for a line of --log");
}

void pen_log_start(struct pen_log *log) { log->reported_end_ns = pen_now_ns(); }

void pen_log_finish(struct pen_log *log) {
  if (log->terminal && !log->quiet && log->reported > 0) {
    pen_standard_error_show("\n", 1);
  }
}

static bool is_full(int cause) { return cause == ENOSPC || cause == EDQUOT || cause == EFBIG; }

/* A full disk does not end training: the whole line is left out. The next one may fit. Returns
 * whether the line is in the file. */
static bool append_line(struct pen_log *log, const char *line, size_t bytes) {
  ssize_t written = pen_file_is_regular(log->descriptor) ? write(log->descriptor, line, bytes)
                    : pen_output_write(log->descriptor, line, bytes) == 0 ? (ssize_t)bytes
                                                                          : -1;
  int cause = written < 0 ? errno : ENOSPC;
  if (written == (ssize_t)bytes) {
    return true;
  }
  if (!is_full(cause)) {
    pen_fail(PEN_EXIT_CANNOT_WRITE, "--log %s: %s", log->path, strerror(cause));
  }
  off_t end = lseek(log->descriptor, 0, SEEK_CUR);
  if (written > 0 && (end < written || ftruncate(log->descriptor, end - written) != 0)) {
    pen_fail(PEN_EXIT_CANNOT_WRITE, "--log %s: %s, and a part of the line remains in the file",
             log->path, strerror(cause));
  }
  if (log->lost++ == 0) {
    pen_warn("--log %s: %s; training continues without the lines that do not fit", log->path,
             strerror(cause));
  }
  return false;
}

void pen_log_must_be_whole(const struct pen_log *log) {
  if (log->lost > 0) {
    pen_fail(PEN_EXIT_CANNOT_WRITE, "--log %s: %" PRIu64 " lines could not be written", log->path,
             log->lost);
  }
}

/* `,"aux_loss":0.0102,"z_loss":0.0031,"expert_load":1.62,"idle_experts":0`: those that the plan
 * has. Returns the bytes used. */
static size_t write_routers(char *text, size_t bytes, const struct pen_plan *plan,
                            const struct step_report *report) {
  char aux[32], z[32];
  size_t used = 0;
  pen_json_mean(aux, sizeof aux, report->losses, report->router.aux);
  pen_json_mean(z, sizeof z, report->losses, report->router.z);
  if (plan->router_loss_count > 0 && plan->router_losses[0].aux > 0) {
    used += (size_t)snprintf(text, bytes, ",\"aux_loss\":%s", aux);
  }
  if (plan->router_loss_count > 0 && plan->router_losses[0].z > 0) {
    used += (size_t)snprintf(text + used, bytes - used, ",\"z_loss\":%s", z);
  }
  if (report->load.greatest > 0) {
    char load[32];
    pen_json_number(load, sizeof load, report->load.greatest);
    used +=
        (size_t)snprintf(text + used, bytes - used, ",\"expert_load\":%s,\"idle_experts\":%" PRIu64,
                         load, report->load.idle);
  }
  return used;
}

/* `index`: the step of the run, from 0. */
static void write_line(struct pen_log *log, const struct step_report *report, uint64_t index,
                       const double *stats) {
  char *line = log->line, loss[32], norm[32], rate[32], ms[32], speed[32];
  char skipped[40] = "", epoch[40] = "", samples[40] = "";
  const size_t room = log->line_bytes;
  pen_json_mean(loss, sizeof loss, report->losses, report->loss);
  pen_json_mean(norm, sizeof norm, report->losses, report->norm);
  pen_json_number(rate, sizeof rate, report->learning_rate);
  pen_json_number(ms, sizeof ms, report->step_ms);
  pen_json_number(speed, sizeof speed, report->tokens_per_second);
  if (log->skipped > 0) {
    snprintf(skipped, sizeof skipped, ",\"skipped\":%" PRIu64, log->skipped);
  }
  if (report->last_epoch > 0) {
    snprintf(epoch, sizeof epoch, ",\"epoch\":%" PRIu64, report->last_epoch);
  }
  if (report->samples > 0) {
    snprintf(samples, sizeof samples, ",\"samples\":%" PRIu64, report->samples);
  }
  size_t used = (size_t)snprintf(
      line, room,
      "{\"step\":%" PRIu64 ",\"loss\":%s,\"grad_norm\":%s,\"lr\":%s,\"tokens\":%" PRIu64
      "%s,\"step_ms\":%s,\"tokens_per_second\":%s%s%s",
      report->step, loss, norm, rate, report->tokens, samples, ms, speed, skipped, epoch);
  used += write_routers(line + used, room - used, log->plan, report);
  if (log->peak_ms > 0) {
    char mfu[32];
    pen_json_number(mfu, sizeof mfu, log->peak_ms / report->step_ms);
    used += (size_t)snprintf(line + used, room - used, ",\"mfu\":%s", mfu);
  }
  if (log->plan_text != NULL) {
    used += (size_t)snprintf(line + used, room - used, "%s,\"plan\":%s",
                             log->plan->loss_of_microbatch ? ",\"loss_of\":\"microbatch\"" : "",
                             log->plan_text);
  }
  if (log->microbatches.targets != NULL) {
    used += pen_microbatch_losses_write(&log->microbatches, line + used, room - used, index, stats);
  }
  used += (size_t)snprintf(line + used, room - used, "}\n");
  if (append_line(log, line, used)) {
    log->plan_text = NULL;
  }
}

/* ---- divergence ---- */

static void report_skipped(struct pen_log *log, uint64_t step) {
  pen_log_finish(log);
  if (log->plan->optimizer.clip_norm > 0) {
    pen_warn("step %" PRIu64 " skipped: its gradient norm is not finite", step);
  } else {
    pen_warn("step %" PRIu64 ": its loss is not finite", step);
  }
}

static _Noreturn void fail_diverged(struct pen_log *log) {
  pen_log_finish(log);
  pen_fail(PEN_EXIT_DIVERGED, "diverged: %" PRIu64 " consecutive steps skipped since step %" PRIu64,
           log->diverged, log->diverged_since);
}

/* A step without targets is skipped, but has not diverged. Of consecutive steps that diverge the
 * first is reported. */
static void count_skipped(struct pen_log *log, const struct step_report *report, bool diverged) {
  log->skipped += report->losses == 0 || !isfinite(report->norm);
  if (!diverged || log->plan->optimizer.clip_norm == 0) {
    log->sound_step = report->step;
  }
  if (report->losses == 0) {
    return;
  }
  log->loss_is_infinite = !isfinite(report->loss);
  log->diverged = diverged ? log->diverged + 1 : 0;
  if (log->diverged == 1) {
    log->diverged_since = report->step;
    report_skipped(log, report->step);
  }
}

void pen_log_must_be_finite(struct pen_log *log, bool whole, uint64_t saved_step) {
  const bool only_skipped = whole && log->diverged > 0 && log->sound_step <= saved_step;
  if (only_skipped || (log->loss_is_infinite && log->diverged > 0)) {
    fail_diverged(log);
  }
  if (log->loss_is_infinite) {
    pen_log_finish(log);
    pen_fail(PEN_EXIT_DIVERGED, "diverged: the last step's loss is not finite");
  }
}

/* ---- steps ---- */

const char *pen_clock_text(char *text, size_t bytes, double seconds) {
  uint64_t s = seconds < 1e9 ? (uint64_t)(seconds + 0.5) : 1000000000u;
  if (s >= 3600) {
    snprintf(text, bytes, "%" PRIu64 ":%02u:%02u", s / 3600, (unsigned)(s / 60 % 60),
             (unsigned)(s % 60));
  } else {
    snprintf(text, bytes, "%u:%02u", (unsigned)(s / 60), (unsigned)(s % 60));
  }
  return text;
}

const char *pen_mean_shown(char text[PEN_MEAN_SHOWN_BYTES], char form, uint64_t targets,
                           double value) {
  if (targets == 0) {
    snprintf(text, PEN_MEAN_SHOWN_BYTES, "null");
  } else {
    snprintf(text, PEN_MEAN_SHOWN_BYTES, form == 'f' ? "%.4f" : "%.4g", value);
  }
  return text;
}

static void print_progress(struct pen_log *log, const struct step_report *report) {
  char line[LINE_BYTES], left[32], loss[PEN_MEAN_SHOWN_BYTES], norm[PEN_MEAN_SHOWN_BYTES],
      epoch[40] = "";
  pen_clock_text(left, sizeof left, (double)(log->steps - log->reported) * log->smooth_ms / 1e3);
  if (log->trains && report->last_epoch > 0) {
    snprintf(epoch, sizeof epoch, "  epoch %" PRIu64, report->last_epoch);
  }
  int used = snprintf(line, sizeof line, "%sstep %" PRIu64 "/%" PRIu64 "%s  loss %s",
                      log->terminal ? "\r\033[K" : "", report->step, log->first_step + log->steps,
                      epoch, pen_mean_shown(loss, 'f', report->losses, report->loss));
  if (log->trains) {
    used +=
        snprintf(line + used, sizeof line - (size_t)used, "  norm %s  lr %.4g",
                 pen_mean_shown(norm, 'g', report->losses, report->norm), report->learning_rate);
  }
  if (log->skipped > 0) {
    used +=
        snprintf(line + used, sizeof line - (size_t)used, "  %" PRIu64 " skipped", log->skipped);
  }
  const bool counts_samples = report->tokens == 0 && report->losses > 0;
  used += snprintf(
      line + used, sizeof line - (size_t)used, "  %.0f %s/s  %s left%s",
      counts_samples ? (double)report->samples / report->step_ms * 1e3 : report->tokens_per_second,
      counts_samples ? "samples" : "tokens", left, log->terminal ? "" : "\n");
  pen_standard_error_show(line, (size_t)used);
}

static void publish_progress(const struct pen_log *log, const struct step_report *report) {
  struct pen_progress *to = log->watched;
  atomic_fetch_add(&to->version, 1);
  atomic_store_explicit(&to->step, report->step, memory_order_relaxed);
  atomic_store_explicit(&to->targets, report->losses, memory_order_relaxed);
  atomic_store_explicit(&to->loss, report->loss, memory_order_relaxed);
  atomic_store_explicit(&to->norm, report->norm, memory_order_relaxed);
  atomic_store_explicit(&to->learning_rate, report->learning_rate, memory_order_relaxed);
  atomic_store_explicit(&to->tokens_per_second, report->tokens_per_second, memory_order_relaxed);
  atomic_store_explicit(&to->expert_load, report->load.greatest, memory_order_relaxed);
  atomic_store_explicit(&to->step_seconds, report->step_ms / 1e3, memory_order_relaxed);
  atomic_store_explicit(&to->left_s, (double)(log->steps - log->reported) * log->smooth_ms / 1e3,
                        memory_order_relaxed);
  atomic_fetch_add(&to->version, 1);
}

/* The first epoch of the run after which data are read again. */
static void announce_epoch(struct pen_log *log, const struct step_report *report) {
  pen_log_finish(log);
  pen_say(log->plan->name,
          "epoch %" PRIu64 " begins in step %" PRIu64 ": the %" PRIu64 " %s of %s are read again",
          report->epoch, report->step, log->data->window_count, pen_data_windows_text(log->data),
          log->data->path);
  log->data = NULL;
}

static void report_step(struct pen_log *log, const double *stats) {
  const struct pen_plan *plan = log->plan;
  uint64_t end_ns = log->end_ns[log->reported % PEN_STEP_STATS_DEPTH],
           tokens = log->tokens[log->reported % PEN_STEP_STATS_DEPTH],
           losses = log->losses[log->reported % PEN_STEP_STATS_DEPTH];
  double step_ms = (double)(end_ns - log->reported_end_ns) / 1e6;
  uint64_t step = log->first_step + log->reported + 1;
  struct step_report report = {
      .step = step,
      .tokens = tokens,
      .samples = log->samples[log->reported % PEN_STEP_STATS_DEPTH],
      .losses = losses,
      .epoch = log->epochs[log->reported % PEN_STEP_STATS_DEPTH],
      .last_epoch = log->last_epochs[log->reported % PEN_STEP_STATS_DEPTH],
      .learning_rate = pen_learning_rate(&plan->optimizer, step),
      .step_ms = step_ms,
      .tokens_per_second = (double)tokens / step_ms * 1e3,
  };
  if (losses > 0) {
    report.loss = pen_step_stats_loss(plan, stats, losses);
    report.norm = pen_step_stats_norm(plan, stats);
    report.router = pen_step_stats_router_losses(plan, stats);
    log->not_finite += !isfinite(report.loss);
  }
  log->loss_sum += pen_step_stats_loss_sum(plan, stats);
  log->token_count += tokens;
  log->target_count += losses;
  log->reported_end_ns = end_ns;
  log->smooth_ms = log->reported == 0 ? step_ms : 0.9 * log->smooth_ms + 0.1 * step_ms;
  log->reported++;
  if (log->trains) {
    report.load = pen_step_stats_load(plan, stats);
    count_skipped(log, &report, pen_step_stats_diverged(plan, stats, losses));
  }
  const bool again = step <= log->logged_step; /* made again after a restart */
  if (log->descriptor >= 0 && !again) {
    write_line(log, &report, log->reported - 1, stats);
  }
  if (report.epoch > 0 && log->data != NULL && !again) {
    announce_epoch(log, &report);
  }
  if (log->watched != NULL) {
    publish_progress(log, &report);
  }
  bool edge = log->reported == 1 || log->reported == log->steps;
  if (!log->quiet && !again &&
      (edge || end_ns - log->shown_ns >= (log->terminal ? terminal_ns : plain_ns))) {
    log->shown_ns = end_ns;
    print_progress(log, &report);
  }
  if (log->max_skipped > 0 && log->diverged >= log->max_skipped) {
    fail_diverged(log);
  }
}

bool pen_log_step(struct pen_log *log, struct pen_endpoint *endpoint, uint64_t step,
                  const struct pen_data *data, bool all) {
  if (log->reported <= step) { /* else it is reported already */
    log->tokens[step % PEN_STEP_STATS_DEPTH] = data->step_targets;
    log->samples[step % PEN_STEP_STATS_DEPTH] = data->step_samples;
    log->losses[step % PEN_STEP_STATS_DEPTH] = data->step_losses;
    log->epochs[step % PEN_STEP_STATS_DEPTH] = data->epoch;
    log->last_epochs[step % PEN_STEP_STATS_DEPTH] = data->last_epoch;
    log->end_ns[step % PEN_STEP_STATS_DEPTH] = pen_now_ns();
  }
  /* The next step may overwrite the statistics of step + 1 - DEPTH: report that one now. */
  while (log->reported <= step) {
    bool must = all || log->reported + PEN_STEP_STATS_DEPTH <= step + 1;
    if (must && !pen_endpoint_gather(endpoint, log->before + log->reported)) {
      return false;
    }
    if (!must && !pen_endpoint_has_gathered(endpoint, log->before + log->reported)) {
      return true;
    }
    report_step(log, pen_endpoint_step_stats(endpoint, log->before + log->reported));
    pen_endpoint_log_read(endpoint);
  }
  return true;
}

/* {"step":300,"eval_loss":2.51,"eval_perplexity":12.3,"eval_tokens":16384,"eval_ms":210.5}; losses
 * with shares have no perplexity. */
static void write_evaluation(struct pen_log *log, uint64_t step, const struct pen_log *evaluation,
                             struct pen_evaluated result) {
  char line[LINE_BYTES], loss_text[32], mean[32], perplexity[64] = "", ms[32];
  pen_json_mean(loss_text, sizeof loss_text, evaluation->target_count, result.loss);
  pen_json_mean(mean, sizeof mean, evaluation->target_count, result.perplexity);
  if (log->plan->share_count == 0) {
    snprintf(perplexity, sizeof perplexity, ",\"eval_perplexity\":%s", mean);
  }
  pen_json_number(ms, sizeof ms, (double)(pen_now_ns() - log->reported_end_ns) / 1e6);
  int bytes = snprintf(line, sizeof line,
                       "{\"step\":%" PRIu64 ",\"eval_loss\":%s%s,\"eval_tokens\":%" PRIu64
                       ",\"eval_ms\":%s}\n",
                       step, loss_text, perplexity, evaluation->token_count, ms);
  append_line(log, line, (size_t)bytes);
}

void pen_log_evaluation(struct pen_log *log, uint64_t step, const struct pen_log *evaluation) {
  if (evaluation != NULL && step > log->logged_evaluation) {
    const uint64_t targets = evaluation->target_count;
    const struct pen_evaluated result =
        pen_evaluated_of(log->plan, evaluation->loss_sum, targets, evaluation->reported);
    if (log->descriptor >= 0) {
      write_evaluation(log, step, evaluation, result);
    }
    if (!log->quiet) {
      char line[LINE_BYTES], shown[PEN_MEAN_SHOWN_BYTES];
      int used = snprintf(line, sizeof line, "%sstep %" PRIu64 "  evaluation loss %s\n",
                          log->terminal ? "\r\033[K" : "", step,
                          pen_mean_shown(shown, 'f', targets, result.loss));
      pen_standard_error_write(line, (size_t)used);
    }
  }
  pen_log_start(log);
}
