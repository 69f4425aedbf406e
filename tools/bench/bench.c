/* bench.c: `make bench`: measures the bench plans of this build, and PyTorch's pipelining beside
 * them, in turns (see bench.h).
 *
 *   tools/bench --topologies DIR [--peer PYTHON --peer-folder DIR] [--rounds N] [--steps N]
 * [--patience N] TEXT...
 *
 * A round is a hop, the matrix products, and for each plan the dispatch, a start, a training run,
 * and the peer's. On a machine that others use too, each waits for them to be quiet, and is done
 * again if they were not. */
#define _GNU_SOURCE
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "tools/bench/bench.h"

const char *const bench_plans[BENCH_PLANS] = {
    "bench_1",      "bench_1f1b",       "bench_1f1b_loop", "bench_zbv",     "bench_r2",
    "bench_r2_opt", "bench_r2_weights", "bench_1f1b_bf16", "bench_zbv_bf16"};

enum {
  ROUNDS = 3,
  STEPS = 12,
  STEPS_MAX = 1000,
  PATIENCE = 2,
  PATIENCE_MAX = 100,
  QUIET_WAIT_S = 20
};
static const double others_share_max = 0.05; /* of an undisturbed run */

/* ---- the command line ---- */

static unsigned number_of(const char *text, unsigned least, unsigned most, const char *option) {
  char *end;
  unsigned long value = strtoul(text, &end, 10);
  if (*text == 0 || *end != 0 || value < least || value > most) {
    bench_fail("%s %s: a number from %u to %u", option, text, least, most);
  }
  return (unsigned)value;
}

static struct bench_settings parse(int count, char **arguments) {
  static const struct option options[] = {{"peer", 1, NULL, 'p'},
                                          {"peer-folder", 1, NULL, 'f'},
                                          {"topologies", 1, NULL, 't'},
                                          {"rounds", 1, NULL, 'r'},
                                          {"steps", 1, NULL, 's'},
                                          {"patience", 1, NULL, 'w'},
                                          {0}};
  struct bench_settings settings = {.rounds = ROUNDS,
                                    .steps = STEPS,
                                    .patience = PATIENCE,
                                    .topologies = "topologies",
                                    .peer_folder = "."};
  for (int code; (code = getopt_long(count, arguments, "", options, NULL)) != -1;) {
    switch (code) {
      case 'p': settings.peer = optarg; break;
      case 'f': settings.peer_folder = optarg; break;
      case 't': settings.topologies = optarg; break;
      case 'r': settings.rounds = number_of(optarg, 1, BENCH_ROUNDS_MAX, "--rounds"); break;
      case 's':
        settings.steps = number_of(optarg, BENCH_WARM_STEPS + 1, STEPS_MAX, "--steps");
        break;
      case 'w': settings.patience = number_of(optarg, 0, PATIENCE_MAX, "--patience"); break;
      default: exit(EXIT_FAILURE);
    }
  }
  return settings;
}

/* ---- the machine ---- */

static void read_cpu_model(char *model, size_t bytes) {
  char line[256];
  FILE *file = fopen("/proc/cpuinfo", "re");
  snprintf(model, bytes, "unknown");
  while (file != NULL && fgets(line, sizeof line, file) != NULL) {
    const char *value = strchr(line, ':');
    if (strncmp(line, "model name", 10) == 0 && value != NULL) {
      snprintf(model, bytes, "%.*s", (int)strcspn(value + 2, "\n"), value + 2);
      break;
    }
  }
  if (file != NULL) {
    fclose(file);
  }
}

static double load_average(void) {
  double load = 0;
  return getloadavg(&load, 1) == 1 ? load : -1;
}

static json_t *describe_machine(void) {
  char model[256], date[32];
  struct utsname system;
  time_t now = time(NULL);
  read_cpu_model(model, sizeof model);
  uname(&system);
  strftime(date, sizeof date, "%Y-%m-%d %H:%M UTC", gmtime(&now));
  return json_pack("{s:s,s:s,s:I,s:s+,s:f}", "date", date, "cpu", model, "cores_online",
                   (json_int_t)sysconf(_SC_NPROCESSORS_ONLN), "system", system.sysname,
                   system.release, "load_average_before", load_average());
}

/* ---- the rounds ---- */

static json_t *plan_of(json_t *document, const char *plan) {
  return json_object_get(json_object_get(document, "plans"), plan);
}

/* One thing to measure, of one plan. */
struct job {
  const struct bench_settings *settings;
  const char *plan;
  const json_t *model, *info;
};
typedef json_t *measurement(const struct job *job);

static json_t *measure_hop(const struct job *job) {
  (void)job;
  return bench_run_json((const char *[]){"tools/bench_hop", NULL});
}

static json_t *measure_one(const struct job *job) {
  (void)job;
  return bench_run_json((const char *[]){"tools/bench_matmul", "1", NULL});
}

static json_t *measure_two(const struct job *job) {
  (void)job;
  return bench_run_json((const char *[]){"tools/bench_matmul", "2", NULL});
}

static json_t *measure_two_bf16(const struct job *job) {
  (void)job;
  return bench_run_json((const char *[]){"tools/bench_matmul_bf16", "2", NULL});
}

static json_t *measure_dispatch(const struct job *job) {
  char program[BENCH_PATH_BYTES];
  snprintf(program, sizeof program, "tools/bench_dispatch_%s", job->plan);
  return bench_run_json((const char *[]){program, NULL});
}

static json_t *measure_start(const struct job *job) { return bench_start(job->plan); }

static json_t *measure_ours(const struct job *job) {
  bool brief = bench_is_sharded(job->info) && job->settings->steps > BENCH_BRIEF_STEPS;
  return bench_train(job->plan, brief ? BENCH_BRIEF_STEPS : job->settings->steps);
}

static json_t *measure_peer(const struct job *job) {
  return bench_peer(job->settings, job->model, job->info);
}

/* Measures until others leave the machine alone, or patience ends; the run that they disturbed
 * least counts. */
static json_t *undisturbed(const char *label, measurement *measure, const struct job *job) {
  json_t *best = NULL;
  fprintf(stderr, " %s", label);
  for (unsigned attempt = 0; attempt <= job->settings->patience; attempt++) {
    bench_wait_for_quiet(QUIET_WAIT_S);
    json_t *result = measure(job);
    if (best == NULL || bench_number(result, "others_share") < bench_number(best, "others_share")) {
      json_decref(best);
      best = json_incref(result);
    }
    json_decref(result);
    if (bench_number(best, "others_share") <= others_share_max) {
      break;
    }
    fprintf(stderr, "*");
  }
  return best;
}

static void prepare(json_t *document, const struct bench_settings *settings, char **texts,
                    int text_count) {
  json_t *plans = json_object();
  json_object_set_new(document, "plans", plans);
  for (int p = 0; p < BENCH_PLANS; p++) {
    json_t *plan = bench_plan(settings, bench_plans[p]);
    json_object_set_new(plan, "rounds", json_array());
    json_object_set_new(plans, bench_plans[p], plan);
  }
  json_t *info = json_object_get(plan_of(document, bench_plans[0]), "info");
  json_object_set(json_object_get(document, "machine"), "kernels",
                  json_object_get(info, "kernels"));
  uint64_t step_tokens =
      (uint64_t)(bench_number(info, "microbatches") * bench_number(info, "microbatch") *
                 bench_number(info, "sequence"));
  bench_tokens(BENCH_TOKENS, step_tokens * settings->steps + 1,
               (uint32_t)bench_number(info, "vocab"), texts, text_count);
  bench_weights(bench_plans[0]);
  json_object_set_new(document, "matrix_products", json_pack("{s:[]}", "rounds"));
  json_object_set_new(document, "hop", json_pack("{s:[]}", "rounds"));
}

/* Pipelines are measured against the peer's pipelining; the plan on one rank by itself. Dispatch is
 * walked in one process, which cannot be a replica's peer, too. */
static json_t *run_plan(const struct job *job) {
  json_t *round = json_object();
  fprintf(stderr, "; %s:", job->plan);
  if (bench_replicas(job->info) < 2) {
    json_object_set_new(round, "dispatch", undisturbed("dispatch", measure_dispatch, job));
  }
  if (!bench_is_sharded(job->info)) {
    json_object_set_new(round, "start", undisturbed("start", measure_start, job));
  }
  json_object_set_new(round, "ours", undisturbed("training", measure_ours, job));
  if (job->settings->peer != NULL && bench_peer_can(job->info)) {
    json_object_set_new(round, "peer", undisturbed("peer", measure_peer, job));
  }
  return round;
}

static void run_round(json_t *document, const struct bench_settings *settings, unsigned number) {
  struct job job = {.settings = settings};
  fprintf(stderr, "bench: round %u of %u (*: disturbed, again):", number, settings->rounds);
  json_array_append_new(json_object_get(json_object_get(document, "hop"), "rounds"),
                        undisturbed("hop", measure_hop, &job));
  json_t *one = undisturbed("product", measure_one, &job),
         *two = undisturbed("two products", measure_two, &job);
  json_t *two_bf16 = undisturbed("two of bf16", measure_two_bf16, &job);
  json_t *rounds = json_object_get(json_object_get(document, "matrix_products"), "rounds");
  json_array_append_new(rounds, json_pack("{s:o,s:o,s:o}", "one_process", one, "two_processes", two,
                                          "two_processes_bf16", two_bf16));
  job.model = json_object_get(one, "model");
  for (int p = 0; p < BENCH_PLANS; p++) {
    job.plan = bench_plans[p];
    job.info = json_object_get(plan_of(document, job.plan), "info");
    json_array_append_new(json_object_get(plan_of(document, job.plan), "rounds"), run_plan(&job));
  }
  fprintf(stderr, "\n");
}

static void check_peer(const struct bench_settings *settings) {
  char script[BENCH_PATH_BYTES];
  snprintf(script, sizeof script, "%s/torch_llama.py", settings->peer_folder);
  if (settings->peer != NULL && access(script, R_OK) != 0) {
    bench_fail("%s: %s: say where it is by PEER_DIR=", script, strerror(errno));
  }
}

int main(int count, char **arguments) {
  struct bench_settings settings = parse(count, arguments);
  check_peer(&settings);
  if (mkdir(BENCH_FOLDER, 0777) != 0 && errno != EEXIST) {
    bench_fail("cannot make %s: %s", BENCH_FOLDER, strerror(errno));
  }
  json_t *document =
      json_pack("{s:o,s:{s:i,s:i,s:i,s:s?}}", "machine", describe_machine(), "settings", "rounds",
                (int)settings.rounds, "steps", (int)settings.steps, "warm_up_steps",
                BENCH_WARM_STEPS, "peer", settings.peer);
  prepare(document, &settings, arguments + optind, count - optind);
  for (unsigned round = 1; round <= settings.rounds; round++) {
    run_round(document, &settings, round);
  }
  bench_figures(document);
  json_object_set_new(json_object_get(document, "machine"), "load_average_after",
                      json_real(load_average()));
  if (json_dump_file(document, "bench.json", JSON_INDENT(1)) != 0) {
    bench_fail("cannot write bench.json: %s", strerror(errno));
  }
  bench_table(document);
  json_decref(document);
  return fflush(stdout) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
