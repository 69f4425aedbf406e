/* bench_child.c: runs programs as child processes, looks at their memory meanwhile, and reads what
 * they print (see bench.h). */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tools/bench/bench.h"

#define OUTPUT BENCH_FOLDER "/output.txt"
#define ERRORS BENCH_FOLDER "/errors.txt"

static const struct timespec sample_interval = {.tv_nsec = 50 * 1000000};

void bench_fail(const char *format, ...) {
  va_list arguments;
  fputs("bench: ", stderr);
  va_start(arguments, format);
  vfprintf(stderr, format, arguments);
  va_end(arguments);
  fputc('\n', stderr);
  exit(EXIT_FAILURE);
}

/* ---- memory of processes ---- */

/* The peak of a process that may be gone already: then 0. */
static uint64_t peak_bytes_of(pid_t pid) {
  char path[64], line[256];
  uint64_t kib = 0;
  snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
  FILE *file = fopen(path, "re");
  while (file != NULL && fgets(line, sizeof line, file) != NULL) {
    if (sscanf(line, "VmHWM: %" SCNu64, &kib) == 1) {
      break;
    }
  }
  if (file != NULL) {
    fclose(file);
  }
  return kib * 1024;
}

static void add_process(struct bench_child *child, pid_t pid) {
  for (size_t i = 0; i < child->process_count; i++) {
    if (child->processes[i].pid == pid) {
      return;
    }
  }
  if (child->process_count < BENCH_PROCESSES_MAX) {
    child->processes[child->process_count++].pid = pid;
  }
}

/* The kernel lists a process's children in the order in which they were started. */
static void find_processes(struct bench_child *child) {
  char path[64];
  int pid = (int)child->processes[0].pid;
  snprintf(path, sizeof path, "/proc/%d/task/%d/children", pid, pid);
  FILE *file = fopen(path, "re");
  if (file == NULL) {
    return;
  }
  while (fscanf(file, "%d", &pid) == 1) {
    add_process(child, pid);
  }
  fclose(file);
}

static void sample(struct bench_child *child) {
  find_processes(child);
  for (size_t i = 0; i < child->process_count; i++) {
    struct bench_process *process = &child->processes[i];
    uint64_t bytes = peak_bytes_of(process->pid);
    process->peak_bytes = bytes > process->peak_bytes ? bytes : process->peak_bytes;
  }
}

/* ---- running ---- */

static void redirect(const char *path, int descriptor) {
  int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file < 0 || dup2(file, descriptor) < 0) {
    _exit(127);
  }
}

static _Noreturn void become(const char *const arguments[]) {
  prctl(PR_SET_PDEATHSIG, SIGINT); /* which lets either of the two end its ranks */
  redirect(OUTPUT, STDOUT_FILENO);
  redirect(ERRORS, STDERR_FILENO);
  execvp(arguments[0], (char *const *)arguments); /* execvp() leaves its arguments as they are */
  dprintf(STDERR_FILENO, "%s: %s\n", arguments[0], strerror(errno));
  _exit(127);
}

static char *read_whole(const char *path) {
  char *text = NULL;
  size_t bytes = 0;
  FILE *file = fopen(path, "re");
  if (file == NULL || (getdelim(&text, &bytes, 0, file) < 0 && ferror(file))) {
    bench_fail("cannot read %s: %s", path, strerror(errno));
  }
  fclose(file);
  if (text == NULL) {
    bench_fail("no memory");
  }
  return text;
}

uint64_t bench_now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* ---- who had the cores ---- */

/* Seconds for which the cores worked, for whomever; a hypervisor's other guests too. */
static double machine_busy_s(void) {
  double user = 0, nice = 0, system = 0, idle, wait, interrupts = 0, soft = 0, steal = 0;
  FILE *file = fopen("/proc/stat", "re");
  if (file == NULL || fscanf(file, "cpu %lf %lf %lf %lf %lf %lf %lf %lf", &user, &nice, &system,
                             &idle, &wait, &interrupts, &soft, &steal) != 8) {
    user = NAN;
  }
  if (file != NULL) {
    fclose(file);
  }
  return (user + nice + system + interrupts + soft + steal) / (double)sysconf(_SC_CLK_TCK);
}

static double seconds_of(struct timeval time) {
  return (double)time.tv_sec + 1e-6 * (double)time.tv_usec;
}

/* Seconds that all ended children had, and theirs. */
static double children_busy_s(void) {
  struct rusage usage;
  getrusage(RUSAGE_CHILDREN, &usage);
  return seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime);
}

void bench_wait_for_quiet(unsigned seconds_max) {
  unsigned quiet = 0;
  for (unsigned second = 0; second < seconds_max && quiet < 2; second++) {
    double before_s = machine_busy_s();
    sleep(1);
    bool busy = machine_busy_s() - before_s > 0.05 * (double)sysconf(_SC_NPROCESSORS_ONLN);
    quiet = busy ? 0 : quiet + 1;
  }
}

/* ---- one run ---- */

/* Its status; a sampled one is looked at until it ends. */
static int wait_for(struct bench_child *child, bool sampled) {
  pid_t pid = child->processes[0].pid, ended;
  struct rusage usage = {0};
  int status = 0;
  while ((ended = wait4(pid, &status, sampled ? WNOHANG : 0, &usage)) == 0 ||
         (ended < 0 && errno == EINTR)) {
    sample(child);
    nanosleep(&sample_interval, NULL);
  }
  child->cpu_s = seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime);
  child->peak_bytes = (uint64_t)usage.ru_maxrss * 1024;
  return ended == pid ? status : -1;
}

void bench_run(struct bench_child *child, const char *const arguments[], bool sampled) {
  double machine_s = machine_busy_s(), children_s = children_busy_s();
  *child = (struct bench_child){.process_count = 1, .start_ns = bench_now_ns()};
  child->processes[0].pid = fork();
  if (child->processes[0].pid == 0) {
    become(arguments);
  }
  if (child->processes[0].pid < 0) {
    bench_fail("cannot start %s: %s", arguments[0], strerror(errno));
  }
  int status = wait_for(child, sampled);
  if (status != 0) {
    char *errors = read_whole(ERRORS);
    bench_fail("%s: %s %d\n%s", arguments[0],
               WIFSIGNALED(status) ? "ended by signal" : "left with status",
               WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status), errors);
  }
  double passed_s =
      (double)(bench_now_ns() - child->start_ns) / 1e9 * (double)sysconf(_SC_NPROCESSORS_ONLN);
  child->others_share =
      fmax(0, (machine_busy_s() - machine_s) - (children_busy_s() - children_s)) / passed_s;
  child->output = read_whole(OUTPUT);
}

/* The last object in a text that starts a line with its brace. */
static json_t *last_object(const char *text, const char *whose) {
  const char *last = NULL;
  for (const char *line = text; line != NULL; line = strchr(line, '\n')) {
    line += *line == '\n';
    last = *line == '{' ? line : last;
  }
  json_error_t error;
  json_t *object = last == NULL ? NULL : json_loads(last, JSON_DISABLE_EOF_CHECK, &error);
  if (object == NULL) {
    bench_fail("%s printed no JSON object: %s", whose, text);
  }
  return object;
}

json_t *bench_run_json(const char *const arguments[]) {
  struct bench_child child;
  bench_run(&child, arguments, false);
  json_t *object = last_object(child.output, arguments[0]);
  free(child.output);
  json_object_set_new(object, "others_share", json_real(child.others_share));
  return object;
}
