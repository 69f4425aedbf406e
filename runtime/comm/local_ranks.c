/* local_ranks.c: which ranks this command starts (see local_ranks.h). */
#include "runtime/comm/local_ranks.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/check.h"

/* The variables in which launchers give a process its rank, in the order in which they are read. */
static const char *const variables[] = {"SLURM_PROCID", "PMIX_RANK", "OMPI_COMM_WORLD_RANK",
                                        "RANK"};

static struct pen_local_ranks one_rank(const struct pen_plan *plan, const char *source,
                                       const char *text) {
  char *end;
  errno = 0;
  unsigned long long rank = strtoull(text, &end, 10);
  if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0 ||
      rank >= pen_process_count(plan)) {
    pen_fail(PEN_EXIT_USAGE, "%s = %s: a rank of this binary, 0 to %" PRIu32, source, text,
             pen_process_count(plan) - 1);
  }
  return (struct pen_local_ranks){(uint32_t)rank, 1};
}

/* Whether the names are equal, except for a domain that only one of them has. */
static bool same_host(const char *name, const char *other) {
  const size_t bytes = strcspn(name, "."), other_bytes = strcspn(other, ".");
  const bool short_one = name[bytes] == '\0' || other[other_bytes] == '\0';
  return strcmp(name, other) == 0 ||
         (short_one && bytes == other_bytes && strncmp(name, other, bytes) == 0);
}

static struct pen_local_ranks ranks_of_host(const struct pen_plan *plan) {
  char name[256] = "?";
  gethostname(name, sizeof name - 1);
  for (uint32_t h = 0; h < plan->host_count; h++) {
    if (same_host(plan->hosts[h], name)) {
      return (struct pen_local_ranks){h * plan->ranks_per_host, plan->ranks_per_host};
    }
  }
  pen_fail(PEN_EXIT_USAGE,
           "this host, %s, is none of cluster.hosts (%s, ...); say --rank N, or let a launcher set "
           "SLURM_PROCID, PMIX_RANK,"
           " OMPI_COMM_WORLD_RANK or RANK",
           name, plan->hosts[0]);
}

struct pen_local_ranks pen_local_ranks_of(const struct pen_plan *plan,
                                          const struct pen_options *options) {
  if (plan->host_count < 2 && options->given.rank) {
    pen_fail(PEN_EXIT_USAGE,
             "--rank %" PRIu64 ": all ranks of this binary are on one host, and started together",
             options->rank);
  }
  if (plan->host_count < 2) {
    return (struct pen_local_ranks){0, pen_process_count(plan)};
  }
  if (options->given.rank) {
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, options->rank);
    return one_rank(plan, "--rank", text);
  }
  for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
    const char *text = getenv(variables[i]);
    if (text != NULL) {
      return one_rank(plan, variables[i], text);
    }
  }
  return ranks_of_host(plan);
}
