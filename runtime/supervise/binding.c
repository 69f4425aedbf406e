/* binding.c: binds ranks to cores (see binding.h). */
#define _GNU_SOURCE
#include "runtime/supervise/binding.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "runtime/base/check.h"

enum { NODES_MAX = 64 };

static bool has_core(const struct pen_cores *cores, uint32_t core) {
  return core < PEN_CORES_MAX && (cores->bits[core / 64] >> core % 64 & 1) != 0;
}

static void add_core(struct pen_cores *cores, uint32_t core) {
  if (core < PEN_CORES_MAX) {
    cores->bits[core / 64] |= 1ull << core % 64;
  }
}

/* Adds the cores of a list of the kernel, "0-3,8". False: there is no such file. */
static bool read_list(const char *path, struct pen_cores *cores) {
  FILE *file = fopen(path, "re");
  unsigned first, last;
  char after = ',';
  if (file == NULL) {
    return false;
  }
  while (after == ',' && fscanf(file, "%u", &first) == 1) {
    last = first;
    if (fscanf(file, "-%u", &last) == EOF) {
      last = first;
    }
    for (uint32_t core = first; core <= last && core < PEN_CORES_MAX; core++) {
      add_core(cores, core);
    }
    if (fscanf(file, "%c", &after) != 1) {
      after = '\n';
    }
  }
  fclose(file);
  return true;
}

/* Whether the core is the first hardware thread of a physical core. */
static bool is_first_thread(uint32_t core) {
  char path[96];
  struct pen_cores siblings = {0};
  uint32_t first = 0;
  snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%u/topology/thread_siblings_list", core);
  if (!read_list(path, &siblings)) {
    return true;
  }
  while (first < core && !has_core(&siblings, first)) {
    first++;
  }
  return first == core;
}

static void read_allowed(struct pen_binding *binding) {
  _Static_assert(sizeof binding->allowed.bits % sizeof(cpu_set_t) == 0, "whole sets");
  pen_check(sched_getaffinity(0, sizeof binding->allowed.bits,
                              (cpu_set_t *)(void *)binding->allowed.bits) == 0,
            "cannot read which cores this process may use");
  for (int second = 0; second < 2; second++) {
    for (uint32_t core = 0; core < PEN_CORES_MAX; core++) {
      if (has_core(&binding->allowed, core) && is_first_thread(core) == !second) {
        binding->order[binding->allowed_count++] = core;
      }
    }
  }
}

static const char *host_name(void) {
  static char name[256];
  gethostname(name, sizeof name - 1);
  return name;
}

/* For a message about a setting. */
static const char *in_fallback(const struct pen_binding *binding) {
  static char text[32];
  if (binding->fallback == 0) {
    return "";
  }
  snprintf(text, sizeof text, ", in fallback %u", binding->fallback);
  return text;
}

static bool has_list(const struct pen_binding *binding) {
  for (uint32_t i = 0; i < binding->plan->core_count; i++) {
    if (!has_core(&binding->allowed, binding->plan->cores[i])) {
      return false;
    }
  }
  return true;
}

static void check_list(const struct pen_binding *binding) {
  char text[PEN_CORES_TEXT_BYTES];
  for (uint32_t i = 0; i < binding->plan->core_count; i++) {
    if (!has_core(&binding->allowed, binding->plan->cores[i])) {
      pen_fail(PEN_EXIT_USAGE, "host %s: cluster.bind%s has core %u, and this command may use %s",
               host_name(), in_fallback(binding), binding->plan->cores[i],
               pen_binding_text(&binding->allowed, text));
    }
  }
}

static _Noreturn void fail_cores(const struct pen_binding *binding, uint32_t needed) {
  const struct pen_plan *plan = binding->plan;
  char setting[64] = "cluster.bind = \"core\"";
  if (plan->threads_per_rank > 1) {
    snprintf(setting, sizeof setting, "cluster.threads_per_rank = %u", plan->threads_per_rank);
  }
  pen_fail(PEN_EXIT_USAGE,
           "host %s: %s%s: its ranks need %u cores, and this command may use %u; with cluster.bind "
           "= \"none\" they share cores",
           host_name(), setting, in_fallback(binding), needed, binding->allowed_count);
}

static uint32_t cores_of_host(const struct pen_binding *binding) {
  return pen_rank_set_of(binding->plan, binding->ranks.host, PEN_NONE).count *
         binding->plan->threads_per_rank;
}

/* Whether ranks may not share cores. */
static bool needs_all_cores(const struct pen_plan *plan) {
  return plan->bind == PEN_BIND_CORE || (plan->threads_per_rank > 1 && plan->bind != PEN_BIND_NONE);
}

/* With the allowed cores: checks the plan's settings, and sets how the ranks are bound. */
static void set_mode(struct pen_binding *binding) {
  const struct pen_plan *plan = binding->plan;
  const struct pen_rank_set *ranks = &binding->ranks;
  /* A launcher may have given each command the cores of its ranks. */
  const uint32_t of_host = cores_of_host(binding),
                 of_command = ranks->count * plan->threads_per_rank;
  binding->by_command = binding->allowed_count < of_host && binding->allowed_count == of_command;
  binding->alone = binding->allowed_count >= of_host || binding->by_command;
  if (needs_all_cores(plan) && !binding->alone) {
    fail_cores(binding, of_host);
  }
  if (plan->bind == PEN_BIND_LIST) {
    check_list(binding);
  }
  binding->mode = plan->bind;
  if (plan->bind == PEN_BIND_AUTO) { /* a device: threads of its driver would share the core */
    const bool to_cores = binding->alone && pen_device_row(plan->device)->on_host;
    binding->mode = to_cores ? PEN_BIND_CORE : PEN_BIND_NONE;
  }
}

void pen_binding_open(struct pen_binding *binding, const struct pen_plan *plan,
                      const struct pen_rank_set *ranks) {
  *binding = (struct pen_binding){.plan = plan, .ranks = *ranks};
  read_allowed(binding);
  set_mode(binding);
}

/* The cores that the plan's settings take for granted, from 0. */
static uint32_t cores_taken_for_granted(const struct pen_binding *binding) {
  const struct pen_plan *plan = binding->plan;
  uint32_t count = needs_all_cores(plan) ? cores_of_host(binding) : 0;
  for (uint32_t i = 0; i < plan->core_count && plan->bind == PEN_BIND_LIST; i++) {
    count = plan->cores[i] >= count ? plan->cores[i] + 1 : count;
  }
  return count;
}

bool pen_binding_open_for_enough(struct pen_binding *binding, const struct pen_plan *plan,
                                 const struct pen_rank_set *ranks) {
  *binding = (struct pen_binding){.plan = plan, .ranks = *ranks};
  read_allowed(binding);
  const uint32_t needed = cores_taken_for_granted(binding);
  const bool lacks = (needs_all_cores(plan) && binding->allowed_count < cores_of_host(binding)) ||
                     (plan->bind == PEN_BIND_LIST && !has_list(binding));
  if (lacks) {
    binding->allowed = (struct pen_cores){0};
    binding->allowed_count = needed < PEN_CORES_MAX ? needed : PEN_CORES_MAX;
    for (uint32_t core = 0; core < binding->allowed_count; core++) {
      add_core(&binding->allowed, core);
      binding->order[core] = core;
    }
  }
  set_mode(binding);
  return lacks;
}

void pen_binding_check_fallbacks(const struct pen_plan *plan) {
  static struct pen_binding binding;
  binding = (struct pen_binding){.plan = plan};
  read_allowed(&binding);
  for (uint32_t f = 0; f < plan->fallback_count; f++) {
    const struct pen_plan *fallback = &plan->fallbacks[f];
    const uint32_t hosts = fallback->host_count; /* may be 0, for one */
    for (uint32_t host = 0; host == 0 || host < hosts; host++) {
      binding.plan = fallback;
      binding.fallback = f + 1;
      binding.ranks =
          hosts < 2 ? pen_rank_set_all(fallback) : pen_rank_set_of(fallback, host, PEN_NONE);
      set_mode(&binding);
    }
  }
}

/* The allowed cores of the NUMA node with that index, modulo the nodes that have any; all, if the
 * kernel names no nodes. */
static struct pen_cores cores_of_node(const struct pen_cores *allowed, uint32_t index) {
  struct pen_cores nodes[NODES_MAX];
  uint32_t count = 0;
  for (uint32_t n = 0; n < NODES_MAX; n++) {
    struct pen_cores node = {0};
    char path[64];
    uint64_t any = 0;
    snprintf(path, sizeof path, "/sys/devices/system/node/node%u/cpulist", n);
    read_list(path, &node);
    for (size_t i = 0; i < sizeof node.bits / sizeof *node.bits; i++) {
      node.bits[i] &= allowed->bits[i];
      any |= node.bits[i];
    }
    if (any != 0) {
      nodes[count++] = node;
    }
  }
  return count == 0 ? *allowed : nodes[index % count];
}

struct pen_cores pen_binding_cores(const struct pen_binding *binding, uint32_t rank) {
  const struct pen_plan *plan = binding->plan;
  const uint32_t index =
      binding->by_command ? pen_rank_set_index(&binding->ranks, rank) : pen_host_index(plan, rank);
  struct pen_cores cores = {0};
  if (binding->mode == PEN_BIND_NONE) {
    return binding->allowed;
  }
  if (binding->mode == PEN_BIND_NUMA) {
    return cores_of_node(&binding->allowed, index);
  }
  for (uint32_t t = 0; t < plan->threads_per_rank; t++) {
    add_core(&cores,
             binding->mode == PEN_BIND_LIST
                 ? plan->cores[pen_host_index(plan, rank) * plan->threads_per_rank + t]
                 : binding->order[(index * plan->threads_per_rank + t) % binding->allowed_count]);
  }
  return cores;
}

void pen_binding_apply(const struct pen_cores *cores) {
  const int result =
      sched_setaffinity(0, sizeof cores->bits, (const cpu_set_t *)(const void *)cores->bits);
  (void)result;
}

static bool threads_may_share(const struct pen_plan *plan) {
  return plan->threads_per_rank > 1 && plan->bind == PEN_BIND_NONE;
}

void pen_binding_limit_spin(const struct pen_plan *plan, char **argv) {
  bool share = threads_may_share(plan);
  for (uint32_t f = 0; f < plan->fallback_count; f++) {
    share = share || threads_may_share(&plan->fallbacks[f]);
  }
  if (!share || getenv("OMP_WAIT_POLICY") != NULL || getenv("GOMP_SPINCOUNT") != NULL) {
    return;
  }
  pen_check(setenv("GOMP_SPINCOUNT", "5000", 1) == 0, "cannot set GOMP_SPINCOUNT");
  execv("/proc/self/exe", argv); /* if that fails, threads spin for longer */
}

const char *pen_binding_text(const struct pen_cores *cores, char text[PEN_CORES_TEXT_BYTES]) {
  size_t used = 0;
  text[0] = '\0';
  for (uint32_t first = 0; first < PEN_CORES_MAX && used < PEN_CORES_TEXT_BYTES; first++) {
    uint32_t past = first;
    while (past < PEN_CORES_MAX && has_core(cores, past)) {
      past++;
    }
    if (past > first) {
      used += (size_t)snprintf(text + used, PEN_CORES_TEXT_BYTES - used, "%s%u",
                               used == 0 ? "" : ",", first);
    }
    if (past > first + 1 && used < PEN_CORES_TEXT_BYTES) {
      used += (size_t)snprintf(text + used, PEN_CORES_TEXT_BYTES - used, "-%u", past - 1);
    }
    first = past;
  }
  return text;
}
