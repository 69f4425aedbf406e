/* end_rank.c: a library for LD_PRELOAD: a rank of a run ends, by SIGKILL, at its N-th change of
 * what ranks tell each other, and of those that are started again another one: END_RANK_AT="N TIMES
 * PREFIX". The i-th that ends makes the file PREFIXi. A rank that began to run before the last one
 * had ended goes on, so that they end one after the other. The command is left alone. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static pid_t command;
static int least, times;
static char prefix[1024];
static atomic_int changes, ended = -1; /* of this process; files when it began to count */

__attribute__((constructor)) static void read_variable(void) {
  const char *text = getenv("END_RANK_AT");
  if (text == NULL || sscanf(text, "%d %d %1000s", &least, &times, prefix) != 3) {
    abort();
  }
  command = getpid();
}

static void name_file(char path[1100], int number) { snprintf(path, 1100, "%s%d", prefix, number); }

static int count_ended(void) {
  char path[1100];
  int count = 0;
  for (name_file(path, 1); access(path, F_OK) == 0; name_file(path, count + 1)) {
    count++;
  }
  return count;
}

static void change(void) {
  char path[1100];
  const int number = atomic_fetch_add(&changes, 1) + 1;
  if (number == 1) {
    ended = count_ended();
  }
  name_file(path, ended + 1);
  if (number == least && ended < times && open(path, O_CREAT | O_EXCL, 0666) >= 0) {
    kill(getpid(), SIGKILL);
  }
}

/* Changes are told by an eventfd (pen_shared_notify()). */
ssize_t write(int descriptor, const void *bytes, size_t count) {
  static ssize_t (*real)(int, const void *, size_t);
  real = real != NULL ? real : (ssize_t(*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
  if (getpid() != command && count == sizeof(uint64_t)) {
    change();
  }
  return real(descriptor, bytes, count);
}
