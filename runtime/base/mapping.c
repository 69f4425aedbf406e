/* mapping.c: reads of what a mapped file no longer has (see mapping.h). */
#include "runtime/base/mapping.h"

#include <signal.h>

#include "runtime/base/check.h"

static struct {
  const char *path;
  const unsigned char *memory;
  size_t bytes;
} mappings[PEN_MAPPINGS_MAX];
static size_t count;

/* The signal comes from a read in our own code, not from within a library's function that holds a
 * lock. */
static void handle_bus_error(int number, siginfo_t *info, void *unused) {
  const unsigned char *at = info->si_addr;
  (void)unused;
  for (size_t i = 0; i < count; i++) {
    if (at >= mappings[i].memory && at < mappings[i].memory + mappings[i].bytes) {
      pen_fail(PEN_EXIT_DATA, "%s: byte %zu of %zu is gone: it was shortened while it was read",
               mappings[i].path, (size_t)(at - mappings[i].memory), mappings[i].bytes);
    }
  }
  signal(number, SIG_DFL); /* of something else: the read is made again */
}

void pen_mapping_watch(const char *path, const void *memory, size_t bytes) {
  const struct sigaction action = {.sa_sigaction = handle_bus_error, .sa_flags = SA_SIGINFO};
  if (count < PEN_MAPPINGS_MAX) {
    mappings[count].path = path;
    mappings[count].memory = memory;
    mappings[count++].bytes = bytes;
  }
  pen_check(sigaction(SIGBUS, &action, NULL) == 0, "cannot handle signals");
}
