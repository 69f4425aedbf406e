/* bench_ours.c: runs penstock's own binaries for a bench and reads their logs and traces (see
 * bench.h). */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/bench/bench.h"

#define LOG BENCH_FOLDER "/log.json"
#define TRACE BENCH_FOLDER "/trace.json"

static const char *binary_of(char path[BENCH_PATH_BYTES], const char *plan) {
  snprintf(path, BENCH_PATH_BYTES, "./penstock-%s", plan);
  return path;
}

json_t *bench_plan(const struct bench_settings *settings, const char *plan) {
  char binary[BENCH_PATH_BYTES], topology[BENCH_PATH_BYTES];
  snprintf(topology, sizeof topology, "%s/%s.cfg", settings->topologies, plan);
  json_t *info = bench_run_json((const char *[]){binary_of(binary, plan), "info", "--json", NULL});
  json_t *report =
      bench_run_json((const char *[]){"./penstock-gen", "--print=report", topology, NULL});
  return json_pack("{s:o,s:o}", "info", info, "report", report);
}

void bench_weights(const char *plan) {
  char binary[BENCH_PATH_BYTES];
  struct bench_child child;
  bench_run(&child,
            (const char *[]){binary_of(binary, plan), "init", "--seed", "1", "--output",
                             BENCH_WEIGHTS, NULL},
            false);
  free(child.output);
}

/* ---- a training run ---- */

/* Adds the log's steps: the losses of all, the times of those after the warm-up. */
static void read_log(json_t *step_ms, json_t *losses) {
  char line[1024];
  FILE *file = fopen(LOG, "re");
  if (file == NULL) {
    bench_fail("no log in " LOG);
  }
  while (fgets(line, sizeof line, file) != NULL) {
    json_t *step = json_loads(line, 0, NULL);
    if (step == NULL) {
      bench_fail("not a line of a log: %s", line);
    }
    json_array_append_new(losses, json_real(bench_number(step, "loss")));
    if (json_array_size(losses) > BENCH_WARM_STEPS) {
      json_array_append_new(step_ms, json_real(bench_number(step, "step_ms")));
    }
    json_decref(step);
  }
  fclose(file);
}

static double median_of(const json_t *array) {
  double values[1024];
  size_t count = json_array_size(array);
  if (count == 0 || count > sizeof values / sizeof *values) {
    bench_fail("%zu steps were timed", count);
  }
  for (size_t i = 0; i < count; i++) {
    values[i] = json_number_value(json_array_get(array, i));
  }
  return bench_median(values, count);
}

json_t *bench_train(const char *plan, unsigned step_count) {
  char binary[BENCH_PATH_BYTES], steps[16];
  struct bench_child child;
  snprintf(steps, sizeof steps, "%u", step_count);
  bench_run(&child,
            (const char *[]){binary_of(binary, plan), "train", "--data", BENCH_TOKENS, "--init",
                             BENCH_WEIGHTS, "--steps", steps, "--log", LOG, "--quiet", NULL},
            true);
  free(child.output);
  json_t *step_ms = json_array(), *losses = json_array(), *peaks = json_array();
  read_log(step_ms, losses);
  for (size_t i = 1; i < child.process_count; i++) {
    json_array_append_new(peaks, json_integer((json_int_t)child.processes[i].peak_bytes));
  }
  return json_pack("{s:f,s:o,s:o,s:o,s:I,s:f}", "step_ms_median", median_of(step_ms), "step_ms",
                   step_ms, "losses", losses, "rank_peak_resident_bytes", peaks,
                   "launcher_peak_resident_bytes", (json_int_t)child.processes[0].peak_bytes,
                   "others_share", child.others_share);
}

/* ---- a start ---- */

/* First start and last end of all rows, in microseconds from the trace's zero. */
static void find_ends(const json_t *trace, double *first_us, double *last_us) {
  const json_t *event;
  size_t i;
  *first_us = INFINITY, *last_us = -INFINITY;
  json_array_foreach(json_object_get(trace, "traceEvents"), i, event) {
    const char *phase = json_string_value(json_object_get(event, "ph"));
    if (phase != NULL && strcmp(phase, "X") == 0) {
      double start_us = bench_number(event, "ts"), end_us = start_us + bench_number(event, "dur");
      *first_us = fmin(*first_us, start_us);
      *last_us = fmax(*last_us, end_us);
    }
  }
}

/* Seconds from exec to the first action and to the end of the last; returns others' share of the
 * cores. */
static double start(const char *plan, double *first_s, double *last_s) {
  char binary[BENCH_PATH_BYTES];
  struct bench_child child;
  bench_run(&child,
            (const char *[]){binary_of(binary, plan), "train", "--data", BENCH_TOKENS, "--init",
                             BENCH_WEIGHTS, "--steps", "1", "--trace", TRACE, "--quiet", NULL},
            false);
  free(child.output);
  json_t *trace = json_load_file(TRACE, 0, NULL);
  const char *zero =
      json_string_value(json_object_get(json_object_get(trace, "otherData"), "zero_monotonic_ns"));
  if (zero == NULL) {
    bench_fail("not a trace: " TRACE);
  }
  double first_us, last_us;
  double zero_s = ((double)strtoull(zero, NULL, 10) - (double)child.start_ns) / 1e9;
  find_ends(trace, &first_us, &last_us);
  json_decref(trace);
  *first_s = zero_s + first_us / 1e6;
  *last_s = zero_s + last_us / 1e6;
  return child.others_share;
}

json_t *bench_start(const char *plan) {
  double idle_first_s, idle_last_s, first_s, last_s;
  double share = start(plan, &idle_first_s, &idle_last_s);
  share = fmax(share, start(plan, &first_s, &last_s));
  return json_pack("{s:f,s:f,s:f,s:f}", "exec_to_first_action_s", first_s,
                   "exec_to_first_step_end_s", last_s, "exec_to_first_action_after_idle_s",
                   idle_first_s, "others_share", share);
}
