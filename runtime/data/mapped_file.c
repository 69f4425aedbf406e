/* mapped_file.c: maps files of data, and names one that is shortened while it is read (see
 * mapped_file.h). */
#include "runtime/data/mapped_file.h"

#include <inttypes.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/input_file.h"
#include "runtime/base/check.h"

static struct mapping {
  const char *path;
  const unsigned char *memory;
  size_t bytes;
} * mappings;
static size_t mapping_count;

/* The signal comes from a read in our own code, not from within a library's function that holds a
 * lock. */
static void handle_bus_error(int number, siginfo_t *info, void *unused) {
  const unsigned char *at = info->si_addr;
  (void)unused;
  for (size_t i = 0; i < mapping_count; i++) {
    if (at >= mappings[i].memory && at < mappings[i].memory + mappings[i].bytes) {
      pen_fail(PEN_EXIT_DATA, "%s: byte %zu of %zu is gone: it was shortened while it was read",
               mappings[i].path, (size_t)(at - mappings[i].memory), mappings[i].bytes);
    }
  }
  signal(number, SIG_DFL); /* of something else: the read is made again */
}

static void mapping_watch(const char *path, const void *memory, size_t bytes) {
  const struct sigaction action = {.sa_sigaction = handle_bus_error, .sa_flags = SA_SIGINFO};
  struct mapping *grown = realloc(mappings, (mapping_count + 1) * sizeof *mappings);
  pen_check(grown != NULL, "%s: no memory", path);
  mappings = grown;
  mappings[mapping_count++] = (struct mapping){path, memory, bytes};
  pen_check(sigaction(SIGBUS, &action, NULL) == 0, "cannot handle signals");
}

const unsigned char *pen_map_file(const char *path, uint64_t *bytes) {
  struct pen_input_error error;
  const int descriptor = pen_input_open(path, PEN_INPUT_DATA, bytes, &error);
  if (descriptor < 0) {
    pen_fail(error.status, "%s: %s", path, error.text);
  }
  const unsigned char *file = NULL;
  if (*bytes > 0) {
    file = mmap(NULL, *bytes, PROT_READ, MAP_PRIVATE, descriptor, 0);
    pen_check(file != MAP_FAILED, "%s: cannot map %" PRIu64 " bytes", path, *bytes);
    mapping_watch(path, file, *bytes);
  }
  close(descriptor);
  return file;
}
