/* pass_times.c: processor time and peak memory of each pass, for --times. */
#include "gen/base/pass_times.h"

#include <stdbool.h>
#include <stdio.h>
#include <errno.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "gen/base/error.h"
#include "base/json_members.h"

enum { PASSES_MAX = 32 };

static struct pass_time {
  const char *name;
  int64_t ns;
  long peak_kib; /* of the process, when the pass last ended */
} passes[PASSES_MAX], *running;
static size_t pass_count;
static int64_t started_ns;
static bool timed;

static int64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static long peak_kib(void) {
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

static struct pass_time *find_pass(const char *name) {
  for (size_t index = 0; index < pass_count; index++)
    if (strcmp(passes[index].name, name) == 0) return &passes[index];
  if (pass_count == PASSES_MAX)
    pen_stop(PEN_EXIT_INTERNAL, "penstock-gen: internal error: more than %d passes", PASSES_MAX);
  passes[pass_count].name = name;
  return &passes[pass_count++];
}

void pen_passes_time(void) { timed = true; }

void pen_pass(const char *name) {
  if (!timed) return;
  int64_t now = now_ns();
  if (running) {
    running->ns += now - started_ns;
    running->peak_kib = peak_kib();
  }
  running = name ? find_pass(name) : NULL;
  started_ns = now;
}

static json_t *seconds(int64_t ns) { return json_real((double)ns * 1e-9); }

void pen_passes_write(const char *path, uint64_t actions) {
  pen_pass(NULL);
  json_t *list = json_array();
  for (size_t index = 0; index < pass_count; index++) {
    const struct pass_time *pass = &passes[index];
    PEN_JSON_APPEND(list, {"name", json_string(pass->name)}, {"seconds", seconds(pass->ns)},
                    {"peak_kib", json_integer(pass->peak_kib)});
  }
  json_t *all = PEN_JSON({"passes", list}, {"rows", pen_json_integer(actions)},
                         {"seconds", seconds(now_ns())}, {"peak_kib", json_integer(peak_kib())});
  FILE *out = fopen(path, "w");
  if (!out) pen_stop(PEN_EXIT_CREATE, "penstock-gen: %s: %s", path, strerror(errno));
  int failed = json_dumpf(all, out, JSON_INDENT(1) | JSON_REAL_PRECISION(9));
  failed |= fputc('\n', out) == EOF;
  if (fclose(out) || failed)
    pen_stop(PEN_EXIT_WRITE, "penstock-gen: %s: %s", path, strerror(errno));
  json_decref(all);
}
