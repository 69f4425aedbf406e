/* bench_gen.c: `make bench-gen`: times each pass of the generator over topologies and over
 * pipelines of growing size, and beside them the plan builders of PyTorch and d9d.
 *
 *   tools/bench_gen --topologies DIR [--cc COMMAND] [--peer PYTHON --peer-folder DIR] [--large]
 * TOPOLOGY.cfg...
 *
 * Times are processor seconds, the least of several runs; a run is `penstock-gen --print=report`,
 * so all passes are in it, the proof and the report too. "order" is what the builders do: compose,
 * simulate and lower. "growth" is the exponent e of whole ~ rows^e between a pipeline and the next
 * smaller one of its schedule; n log n is about 1.1 here. The peers time themselves by the clock on
 * the wall: how much of a core they had meanwhile stands beside. With --cc the C of each pipeline
 * is emitted and compiled too, as make does it. --large adds 1024 ranks with 4096 microbatches. */
#define _GNU_SOURCE
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tools/bench/bench.h"

#define TIMES BENCH_FOLDER "/times.json"
#define PLAN BENCH_FOLDER "/plan"
enum { RUNS = 9, OVERRIDES_MAX = 8, CASES_MAX = 64 };
static const double enough_s = 4; /* no further run once the runs of a case took this long */

/* A pipeline, and what the peer calls its schedule. Layers follow the stages. */
static const struct pipeline {
  const char *schedule, *peer;
  unsigned ranks, stages, microbatches;
  bool large;
} pipelines[] = {
    {"1f1b", "interleaved", 8, 2, 32, false},        {"1f1b", "interleaved", 16, 2, 64, false},
    {"1f1b", "interleaved", 32, 2, 192, false},      {"1f1b", "interleaved", 64, 2, 512, false},
    {"zero_bubble_v", "zbv", 8, 2, 32, false},       {"zero_bubble_v", "zbv", 16, 2, 64, false},
    {"zero_bubble_v", "zbv", 64, 2, 512, false},     {"looped_bfs", "looped_bfs", 8, 2, 32, false},
    {"looped_bfs", "looped_bfs", 64, 2, 512, false}, {"1f1b", "1f1b", 64, 1, 512, false},
    {"1f1b", "1f1b", 1024, 1, 4096, true},
};
enum { PIPELINES = sizeof pipelines / sizeof *pipelines };

struct settings {
  const char *topologies, *cc, *peer, *peer_folder;
  bool large;
};

static double number(const json_t *object, const char *key) {
  const json_t *value = json_object_get(object, key);
  return json_is_number(value) ? json_number_value(value) : NAN;
}

/* ---- the generator ---- */

/* The document of `--times`, of the fastest of several runs. */
static json_t *time_gen(const char *const more[]) {
  const char *arguments[OVERRIDES_MAX + 8] = {"./penstock-gen", "--print=report", "--times=" TIMES};
  size_t used = 3;
  for (; *more; more++) arguments[used++] = *more;
  json_t *best = NULL;
  double spent_s = 0;
  for (int run = 0; run < RUNS && spent_s < enough_s; run++) {
    struct bench_child child;
    json_error_t error;
    bench_run(&child, arguments, false);
    free(child.output);
    json_t *times = json_load_file(TIMES, 0, &error);
    if (!times) bench_fail("%s: %s", TIMES, error.text);
    spent_s += number(times, "seconds");
    if (!best || number(times, "seconds") < number(best, "seconds")) {
      json_decref(best);
      best = json_incref(times);
    }
    json_decref(times);
  }
  return best;
}

/* Seconds of the passes that `names` lists, parted by '|'. */
static double seconds_of(const json_t *times, const char *names) {
  double seconds = 0;
  size_t index;
  json_t *pass;
  json_array_foreach(json_object_get(times, "passes"), index, pass) {
    const char *name = json_string_value(json_object_get(pass, "name")),
               *found = strstr(names, name);
    size_t bytes = strlen(name);
    bool listed =
        found && (found == names || found[-1] == '|') && (found[bytes] == 0 || found[bytes] == '|');
    if (listed) seconds += number(pass, "seconds");
  }
  return seconds;
}

/* Emits the plan's C and compiles it. */
static void time_compiler(const char *cc, const char *const more[], json_t *result) {
  const char *arguments[OVERRIDES_MAX + 8] = {"./penstock-gen", "--output=" PLAN ".c",
                                              "--times=" TIMES};
  size_t used = 3;
  for (; *more; more++) arguments[used++] = *more;
  struct bench_child child;
  bench_run(&child, arguments, false);
  free(child.output);
  json_t *times = json_load_file(TIMES, 0, NULL);
  json_object_set_new(result, "emit_s", json_real(seconds_of(times, "c")));
  json_decref(times);
  struct stat status;
  if (stat(PLAN ".c", &status) == 0)
    json_object_set_new(result, "source_bytes", json_integer(status.st_size));
  char command[BENCH_PATH_BYTES];
  snprintf(command, sizeof command, "CCACHE_DISABLE=1 %s -c -o " PLAN ".o " PLAN ".c",
           cc); /* a cache would be what is timed */
  bench_run(&child, (const char *const[]){"/bin/sh", "-c", command, NULL}, false);
  free(child.output);
  json_object_set_new(result, "compile_s", json_real(child.cpu_s));
  json_object_set_new(result, "compile_peak_bytes", json_integer((json_int_t)child.peak_bytes));
}

/* ---- the peers ---- */

/* What a peer's script prints for one size: a line a schedule and maker. It times every schedule of
 * the size, which for the largest takes half an hour, so each size is run once. The text is ours
 * until the end. */
static const char *peer_lines(const struct settings *settings, const char *size,
                              double *core_share) {
  static struct {
    char size[64];
    char *lines;
    double core_share; /* of one core, which is all that they use */
  } known[PIPELINES];
  size_t place = 0;
  while (place < PIPELINES && known[place].lines && strcmp(known[place].size, size) != 0) place++;
  if (place == PIPELINES) bench_fail("more sizes than pipelines");
  if (!known[place].lines) {
    char script[BENCH_PATH_BYTES];
    snprintf(script, sizeof script, "%s/torch_plan.py", settings->peer_folder);
    struct bench_child child;
    bench_run(&child,
              (const char *const[]){settings->peer, script, "--only", size, "--skip-simulate-above",
                                    "0", NULL},
              false);
    snprintf(known[place].size, sizeof known[place].size, "%s", size);
    known[place].lines = child.output;
    known[place].core_share = child.cpu_s / ((double)(bench_now_ns() - child.start_ns) / 1e9);
  }
  *core_share = known[place].core_share;
  return known[place].lines;
}

/* Adds what PyTorch (and d9d, where it is installed) take for the same pipeline: {"torch_s":…,
 * "d9d_s":…}. */
static void time_peer(const struct settings *settings, const struct pipeline *p, json_t *result) {
  char size[64];
  double core_share;
  snprintf(size, sizeof size, "%u,%u,%u", p->ranks, p->stages, p->microbatches);
  for (const char *line = peer_lines(settings, size, &core_share), *end; *line;
       line = *end ? end + 1 : end) {
    end = strchrnul(line, '\n');
    json_t *row = json_loadb(line, (size_t)(end - line), 0, NULL);
    const char *maker = json_string_value(json_object_get(row, "maker"));
    const char *schedule = json_string_value(json_object_get(row, "schedule"));
    if (maker && schedule && strcmp(schedule, p->peer) == 0 && json_object_get(row, "build_s")) {
      char key[32];
      snprintf(key, sizeof key, "%s_s", maker);
      json_object_set(result, key, json_object_get(row, "build_s"));
    }
    json_decref(row);
  }
  json_object_set_new(result, "peer_core_share", json_real(core_share));
}

/* ---- cases ---- */

static json_t *time_topology(const char *path) {
  const char *slash = strrchr(path, '/');
  const char *const arguments[] = {path, NULL};
  json_t *result = time_gen(arguments);
  json_object_set_new(result, "name", json_string(slash ? slash + 1 : path));
  return result;
}

static json_t *time_pipeline(const struct settings *settings, const struct pipeline *p) {
  char text[6][128], topology[BENCH_PATH_BYTES];
  snprintf(text[0], sizeof *text, "-spipeline.schedule=%s", p->schedule);
  snprintf(text[1], sizeof *text, "-spipeline.ranks=%u", p->ranks);
  snprintf(text[2], sizeof *text, "-spipeline.stages_per_rank=%u", p->stages);
  snprintf(text[3], sizeof *text, "-spipeline.microbatches=%u", p->microbatches);
  snprintf(text[4], sizeof *text, "-smodel.layers=%u", p->ranks * p->stages);
  snprintf(topology, sizeof topology, "%s/scale.cfg", settings->topologies);
  const char *const arguments[] = {text[0], text[1], text[2], text[3], text[4], topology, NULL};
  json_t *result = time_gen(arguments);
  snprintf(text[5], sizeof *text, "%s %ux%ux%u", p->schedule, p->ranks, p->stages, p->microbatches);
  json_object_set_new(result, "name", json_string(text[5]));
  if (settings->cc && !p->large) time_compiler(settings->cc, arguments, result);
  if (settings->peer && !p->large) time_peer(settings, p, result);
  return result;
}

/* ---- the table ---- */

/* Columns of passes; what no column names stands under "rest". */
static const struct column {
  const char *head, *passes;
} columns[] = {
    {"settings", "topology|partition"},
    {"model", "model and derive|costs"},
    {"compose", "compose"},
    {"simulate", "simulate"},
    {"lower", "lower"},
    {"layout", "layout"},
    {"digest", "digest"},
    {"verify", "verify"},
    {"report", "report"},
};
enum { COLUMNS = sizeof columns / sizeof *columns };
static const char order_passes[] = "compose|simulate|lower";

static void print_head(void) {
  printf("%-28s %9s %8s", "milliseconds", "rows", "rest");
  for (int c = 0; c < COLUMNS; c++) printf(" %8s", columns[c].head);
  printf(" %8s %9s %6s %8s\n", "order", "whole", "growth", "peak MiB");
}

static double growth(const json_t *smaller, const json_t *larger) {
  return log(number(larger, "seconds") / number(smaller, "seconds")) /
         log(number(larger, "rows") / number(smaller, "rows"));
}

static void print_case(const json_t *times, const json_t *smaller) {
  printf("%-28s %9.0f", json_string_value(json_object_get(times, "name")), number(times, "rows"));
  double named_s = 0;
  for (int c = 0; c < COLUMNS; c++) named_s += seconds_of(times, columns[c].passes);
  printf(" %8.2f", 1e3 * (number(times, "seconds") - named_s));
  for (int c = 0; c < COLUMNS; c++) printf(" %8.2f", 1e3 * seconds_of(times, columns[c].passes));
  printf(" %8.2f %9.2f", 1e3 * seconds_of(times, order_passes), 1e3 * number(times, "seconds"));
  if (smaller)
    printf(" %6.2f", growth(smaller, times));
  else
    printf(" %6s", "");
  printf(" %8.1f\n", number(times, "peak_kib") / 1024);
}

static void print_ratio(double peer_s, double own_s) {
  if (isnan(peer_s))
    printf(" %10s %7s", "-", "");
  else
    printf(" %10.1f %6.0fx", 1e3 * peer_s, peer_s / own_s);
}

/* The peers' builders beside ours, and the compiler. */
static void print_others(const json_t *cases, const struct settings *settings) {
  size_t index;
  json_t *times;
  printf("\n%-28s %10s", "milliseconds", "order");
  if (settings->peer)
    printf(" %10s %7s %10s %7s %6s", "PyTorch", "ratio", "d9d", "ratio", "core,%");
  if (settings->cc) printf(" %9s %9s %9s %9s", "emit", "C, MiB", "compile", "peak MiB");
  printf("\n");
  json_array_foreach(cases, index, times) {
    double order_s = seconds_of(times, order_passes);
    printf("%-28s %10.2f", json_string_value(json_object_get(times, "name")), 1e3 * order_s);
    if (settings->peer) {
      print_ratio(number(times, "torch_s"), order_s);
      print_ratio(number(times, "d9d_s"), order_s);
      printf(" %6.0f", 100 * number(times, "peer_core_share"));
    }
    if (settings->cc && json_object_get(times, "compile_s"))
      printf(" %9.1f %9.1f %9.1f %9.1f", 1e3 * number(times, "emit_s"),
             0x1p-20 * number(times, "source_bytes"), 1e3 * number(times, "compile_s"),
             0x1p-20 * number(times, "compile_peak_bytes"));
    printf("\n");
  }
}

/* ---- the whole ---- */

static struct settings parse(int count, char **arguments) {
  static const struct option options[] = {
      {"topologies", 1, NULL, 't'},  {"cc", 1, NULL, 'c'},    {"peer", 1, NULL, 'p'},
      {"peer-folder", 1, NULL, 'f'}, {"large", 0, NULL, 'l'}, {0}};
  struct settings settings = {.topologies = "topologies", .peer_folder = "."};
  for (int code; (code = getopt_long(count, arguments, "", options, NULL)) != -1;) {
    switch (code) {
      case 't': settings.topologies = optarg; break;
      case 'c': settings.cc = optarg; break;
      case 'p': settings.peer = optarg; break;
      case 'f': settings.peer_folder = optarg; break;
      case 'l': settings.large = true; break;
      default: exit(EXIT_FAILURE);
    }
  }
  return settings;
}

int main(int count, char **arguments) {
  struct settings settings = parse(count, arguments);
  if (mkdir(BENCH_FOLDER, 0777) != 0 && errno != EEXIST)
    bench_fail("cannot make %s: %s", BENCH_FOLDER, strerror(errno));
  json_t *topologies = json_array(), *sizes = json_array();
  print_head();
  for (int index = optind; index < count; index++) {
    json_t *times = time_topology(arguments[index]);
    print_case(times, NULL);
    json_array_append_new(topologies, times);
  }
  printf("\n");
  for (int index = 0; index < PIPELINES; index++) {
    const struct pipeline *p = &pipelines[index];
    if (p->large && !settings.large) continue;
    bool grows = index > 0 && strcmp(p->peer, p[-1].peer) == 0;
    json_t *times = time_pipeline(&settings, p);
    print_case(times, grows ? json_array_get(sizes, json_array_size(sizes) - 1) : NULL);
    fflush(stdout);
    json_array_append_new(sizes, times);
  }
  if (settings.peer || settings.cc) print_others(sizes, &settings);
  json_t *document = json_pack("{s:o,s:o}", "topologies", topologies, "pipelines", sizes);
  if (json_dump_file(document, "bench-gen.json", JSON_INDENT(1)) != 0)
    bench_fail("cannot write bench-gen.json: %s", strerror(errno));
  json_decref(document);
  return fflush(stdout) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
