/* local_ranks.c: which ranks this command starts (see local_ranks.h). */
#include "runtime/control/local_ranks.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/check.h"

enum { OWN_NAME_BYTES = 256 };

/* The variables in which launchers give a command its rank, in the order in which they are read,
 * and those that hold the number of commands, and of those on its host. */
struct launcher {
  const char *rank, *size, *other_size, *host_size;
};

static const struct launcher launchers[] = {
    {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", NULL, "SLURM_STEP_TASKS_PER_NODE"},
    {"PMIX_RANK", "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"PMI_RANK", "PMI_SIZE", NULL, "MPI_LOCALNRANKS"},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", NULL, "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"RANK", "WORLD_SIZE", NULL, "LOCAL_WORLD_SIZE"},
};

/* A whole number of a variable or an option, from `least` to `most`. `what` says what it is. */
static uint32_t read_number(const char *source, const char *text, uint64_t least, uint64_t most,
                            const char *what) {
  char *end;
  errno = 0;
  unsigned long long number = strtoull(text, &end, 10);
  if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0 || number < least ||
      number > most) {
    pen_fail(PEN_EXIT_USAGE, "%s = %s: %s, %" PRIu64 " to %" PRIu64, source, text, what, least,
             most);
  }
  return (uint32_t)number;
}

/* The only rank of a host is all of that host. */
static struct pen_rank_set one_rank(const struct pen_plan *plan, const char *source,
                                    const char *text) {
  const uint32_t rank =
      read_number(source, text, 0, pen_process_count(plan) - 1u, "a rank of this binary");
  const uint32_t host = pen_rank_host(plan, rank);
  const struct pen_rank_set all = pen_rank_set_of(plan, host, PEN_NONE);
  return all.count == 1 ? all : pen_rank_set_of(plan, host, rank);
}

/* ---- by name ---- */

/* Whether the names are equal, except for a domain that only one of them has. */
static bool is_same_host(const char *name, const char *other) {
  const size_t bytes = strcspn(name, "."), other_bytes = strcspn(other, ".");
  const bool short_one = name[bytes] == '\0' || other[other_bytes] == '\0';
  return strcmp(name, other) == 0 ||
         (short_one && bytes == other_bytes && strncmp(name, other, bytes) == 0);
}

static void list_hosts(const struct pen_plan *plan, char *text, size_t bytes) {
  size_t used = 0;
  text[0] = '\0';
  for (uint32_t h = 0; h < pen_host_and_spare_count(plan) && used < bytes; h++) {
    used += (size_t)snprintf(text + used, bytes - used, "%s%s", h == 0 ? "" : ", ", plan->hosts[h]);
  }
}

/* The index of the host with this name; PEN_NONE: the plan has none. */
static uint32_t find_host(const struct pen_plan *plan, const char *name) {
  uint32_t h = 0;
  while (h < pen_host_and_spare_count(plan) && !is_same_host(plan->hosts[h], name)) {
    h++;
  }
  return h < pen_host_and_spare_count(plan) ? h : PEN_NONE;
}

static struct pen_rank_set ranks_of_host(const struct pen_plan *plan, const char *name,
                                         const char *source) {
  const uint32_t host = find_host(plan, name);
  if (host != PEN_NONE) {
    return pen_rank_set_of(plan, host, PEN_NONE);
  }
  char hosts[1024];
  list_hosts(plan, hosts, sizeof hosts);
  pen_fail(PEN_EXIT_USAGE,
           "%s, %s, is none of cluster.hosts (%s); say --host NAME or --rank N, or start it by a "
           "launcher",
           source, name, hosts);
}

static void get_own_name(char name[OWN_NAME_BYTES]) {
  memset(name, 0, OWN_NAME_BYTES);
  gethostname(name, OWN_NAME_BYTES - 1);
}

static struct pen_rank_set ranks_of_this_host(const struct pen_plan *plan) {
  char name[OWN_NAME_BYTES];
  get_own_name(name);
  return ranks_of_host(plan, name, "this host");
}

/* ---- by a launcher ---- */

/* How many commands the launcher starts; 0: not known. *source: the variable that says so. */
static uint32_t launched_commands(const struct launcher *launcher, const char **source) {
  const char *text = getenv(*source = launcher->size);
  if (text == NULL && launcher->other_size != NULL) {
    text = getenv(*source = launcher->other_size);
  }
  return text == NULL ? 0 : read_number(*source, text, 0, UINT32_MAX, "a number of commands");
}

/* The first launcher whose number of commands fits the plan; else the first with more than one. A
 * launcher's variables may come from a shell in which another one was started. */
static const struct launcher *find_launcher(const struct pen_plan *plan) {
  const struct launcher *found = NULL;
  for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++) {
    const char *source;
    const uint32_t size =
        getenv(launchers[i].rank) == NULL ? 0 : launched_commands(&launchers[i], &source);
    if (size == pen_process_count(plan) || (size > 1 && size == pen_host_and_spare_count(plan))) {
      return &launchers[i];
    }
    found = size > 1 && found == NULL ? &launchers[i] : found;
  }
  return found;
}

/* A plan may have as many ranks as hosts, spares included. Whether the launcher then starts a
 * command a host: it says so, 1 or, of Slurm's hosts, 1(xN), and the plan has this host. */
static bool starts_hosts(const struct pen_plan *plan, const struct launcher *launcher,
                         uint32_t size) {
  const char *text = getenv(launcher->host_size);
  char name[OWN_NAME_BYTES];
  get_own_name(name);
  return size == pen_host_and_spare_count(plan) && text != NULL &&
         (strcmp(text, "1") == 0 || (strncmp(text, "1(x", 3) == 0 && strchr(text, ',') == NULL)) &&
         find_host(plan, name) != PEN_NONE;
}

/* A plan of one host has one command, which starts all ranks: several would each train all of it.
 */
static void check_started_once(void) {
  for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++) {
    const char *source;
    const uint32_t size = launched_commands(&launchers[i], &source);
    if (size > 1) {
      pen_fail(PEN_EXIT_USAGE,
               "%s = %" PRIu32 ": all ranks of this binary are on one host: start one command",
               source, size);
    }
  }
}

struct pen_rank_set pen_local_ranks_of(const struct pen_plan *plan,
                                       const struct pen_options *options) {
  if (plan->host_count < 2 && (options->given.rank || options->given.host)) {
    pen_fail(PEN_EXIT_USAGE, "--%s: all ranks of this binary are on one host, and started together",
             options->given.rank ? "rank" : "host");
  }
  if (plan->host_count < 2) {
    check_started_once();
    return pen_rank_set_all(plan);
  }
  if (options->given.host) {
    return ranks_of_host(plan, options->host, "--host");
  }
  if (options->given.rank) {
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, options->rank);
    return one_rank(plan, "--rank", text);
  }
  const struct launcher *launcher = find_launcher(plan);
  if (launcher == NULL) {
    return ranks_of_this_host(plan);
  }
  const char *source;
  const uint32_t size = launched_commands(launcher, &source);
  if (size == pen_process_count(plan) && !starts_hosts(plan, launcher, size)) {
    return one_rank(plan, launcher->rank, getenv(launcher->rank));
  }
  if (size != pen_host_and_spare_count(plan)) {
    pen_fail(PEN_EXIT_USAGE,
             "%s = %" PRIu32 ": start %" PRIu32 " commands, one a rank, or %" PRIu32 ", one a host",
             source, size, pen_process_count(plan), pen_host_and_spare_count(plan));
  }
  return ranks_of_this_host(plan);
}

/* ---- the port ---- */

uint16_t pen_first_port(const struct pen_plan *plan) {
  const char *text = getenv("MASTER_PORT");
  if (text == NULL || text[0] == '\0') {
    return plan->port;
  }
  return (uint16_t)read_number("MASTER_PORT", text, 1, UINT16_MAX, "a TCP port");
}
