/* host_memory.c: compares the bytes of ranks with those of the host (see host_memory.h). */
#include "runtime/supervise/host_memory.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/check.h"

enum { BYTES_TEXT = 24, LINE_BYTES = 4096 };

/* ---- what there is ---- */

/* Of a line of /proc/meminfo; UINT64_MAX: there is none. */
static uint64_t meminfo_bytes(const char *name) {
  char line[256];
  uint64_t kib = UINT64_MAX;
  const size_t length = strlen(name);
  FILE *file = fopen("/proc/meminfo", "re");
  while (file != NULL && kib == UINT64_MAX && fgets(line, sizeof line, file) != NULL) {
    if (strncmp(line, name, length) != 0 || sscanf(line + length, ": %" SCNu64, &kib) != 1) {
      kib = UINT64_MAX;
    }
  }
  if (file != NULL) {
    fclose(file);
  }
  return kib == UINT64_MAX ? kib : kib * 1024;
}

/* The limit in a file of a control group; UINT64_MAX: none ("max"), or there is no file. */
static uint64_t limit_of(const char *root, const char *group, const char *file) {
  char path[2 * PATH_MAX];
  uint64_t bytes = UINT64_MAX;
  snprintf(path, sizeof path, "%s%s/%s", root, group, file);
  FILE *limit = fopen(path, "re");
  if (limit != NULL) {
    if (fscanf(limit, "%" SCNu64, &bytes) != 1) {
      bytes = UINT64_MAX;
    }
    fclose(limit);
  }
  return bytes;
}

/* The least limit of a group and those above it. In a container the path may be one of its host. */
static uint64_t least_limit(const char *root, char *group, const char *file) {
  uint64_t least = UINT64_MAX;
  for (char *end = group + strlen(group); end != NULL; end = strrchr(group, '/')) {
    *end = '\0';
    const uint64_t limit = limit_of(root, group, file);
    least = limit < least ? limit : least;
  }
  return least;
}

static const struct {
  const char *controllers, *root, *file;
} hierarchies[] = {
    {"", "/sys/fs/cgroup", "memory.max"},
    {"", "/sys/fs/cgroup/unified", "memory.max"},
    {"memory", "/sys/fs/cgroup/memory", "memory.limit_in_bytes"},
};

/* Of this process's groups: lines "NUMBER:CONTROLLERS:PATH". */
static uint64_t group_limit(void) {
  static char line[LINE_BYTES];
  uint64_t least = UINT64_MAX;
  FILE *file = fopen("/proc/self/cgroup", "re");
  while (file != NULL && fgets(line, sizeof line, file) != NULL) {
    char *controllers = strchr(line, ':'), *path = NULL;
    line[strcspn(line, "\n")] = '\0';
    if (controllers == NULL || (path = strchr(controllers + 1, ':')) == NULL) {
      continue;
    }
    *path++ = '\0';
    for (size_t i = 0; i < sizeof hierarchies / sizeof *hierarchies; i++) {
      char group[LINE_BYTES];
      snprintf(group, sizeof group, "%s", path);
      if (strcmp(controllers + 1, hierarchies[i].controllers) == 0) {
        const uint64_t limit = least_limit(hierarchies[i].root, group, hierarchies[i].file);
        least = limit < least ? limit : least;
      }
    }
  }
  if (file != NULL) {
    fclose(file);
  }
  return least;
}

/* ---- what is needed ---- */

static uint64_t sum(uint64_t a, uint64_t b) { return a > UINT64_MAX - b ? UINT64_MAX : a + b; }

/* Of the ranks that the plan maps to a host, also where each has a command of its own: their
 * arenas, or with a device what they have in the host's memory. */
static uint64_t arena_bytes(const struct pen_plan *plan, uint32_t host) {
  const struct pen_rank_set ranks = pen_rank_set_of(plan, host, PEN_NONE);
  const bool on_host = pen_device_row(plan->device)->on_host;
  uint64_t bytes = 0;
  for (uint32_t r = ranks.first; r < ranks.process_count; r = pen_rank_set_next(&ranks, r + 1)) {
    const struct pen_rank_memory *memory = &plan->memory[pen_table_rank(plan, r)];
    bytes = sum(bytes, on_host ? memory->arena_bytes : memory->pinned_bytes);
  }
  return bytes;
}

/* --recover-every: copies of the states of a host's ranks. */
static uint64_t copy_bytes(const struct pen_plan *plan, uint32_t host, uint32_t copies) {
  const struct pen_rank_set ranks = pen_rank_set_of(plan, host, PEN_NONE);
  uint64_t bytes = 0;
  for (uint32_t r = ranks.first; r < ranks.process_count; r = pen_rank_set_next(&ranks, r + 1)) {
    for (uint32_t i = 0; i < copies; i++) {
      bytes = sum(bytes, pen_memory_copy_bytes(plan, r));
    }
  }
  return bytes;
}

static uint64_t needed_bytes(const struct pen_run *run) {
  const struct pen_plan *plan = run->plan;
  const uint32_t host = run->local.host, hosts = plan->host_count;
  uint64_t bytes = arena_bytes(plan, host);
  if (run->options->given.recover_every) {
    bytes = sum(bytes, copy_bytes(plan, host, hosts > 1 ? PEN_MIRRORED_COPIES : PEN_MEMORY_COPIES));
  }
  if (run->options->given.recover_every && hosts > 1) {
    bytes = sum(bytes, copy_bytes(plan, (host + hosts - 1) % hosts, PEN_MEMORY_COPIES));
  }
  return bytes;
}

static const char *bytes_text(char text[BYTES_TEXT], uint64_t bytes) {
  const double gb = (double)bytes / 1e9;
  snprintf(text, BYTES_TEXT, gb < 0.1 ? "%.3f GB" : gb < 10 ? "%.1f GB" : "%.0f GB", gb);
  return text;
}

void pen_host_memory_check(const struct pen_run *run) {
  static const char advice[] =
      "model.sequence, memory.recompute, batch.microbatch, pipeline.ranks and cluster.hosts change "
      "what a host needs";
  if (run->local.count == 0) {
    return;
  }
  const uint64_t needed = needed_bytes(run), total = meminfo_bytes("MemTotal"),
                 limit = group_limit(), available = meminfo_bytes("MemAvailable");
  const uint64_t most = limit < total ? limit : total;
  char need[BYTES_TEXT], has[BYTES_TEXT];
  bytes_text(need, needed);
  if (needed > most) {
    pen_fail(PEN_EXIT_SYSTEM, "%s needs %s, this host has %s%s: %s", run->plan->name, need,
             bytes_text(has, most), limit < total ? " (the limit of its control group)" : "",
             advice);
  }
  if (needed > available) {
    pen_warn("%s needs %s, of which this host has %s available: %s", run->plan->name, need,
             bytes_text(has, available), advice);
  }
}
