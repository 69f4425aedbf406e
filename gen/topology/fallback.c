/* fallback.c: what a fallback changes, and what it has of the main topology (see fallback.h). */
#include "gen/topology/fallback.h"

#include <string.h>

#include "gen/base/arena.h"
#include "gen/topology/message.h"

const char pen_fallback_allowed[] =
    "a fallback may change pipeline.ranks, pipeline.stages_per_rank, pipeline.schedule, "
    "tensor_parallel.ranks, tensor_parallel.sequence, partition, memory and cluster, except "
    "cluster.device, port and spares";

static bool is_one_of(const char *name, const char *const *names) {
  while (*names && strcmp(name, *names)) names++;
  return *names != NULL;
}

bool pen_fallback_may_change(const struct pen_setting *setting) {
  static const char *const pipeline[] = {"ranks", "stages_per_rank", "schedule", NULL};
  static const char *const tensor_parallel[] = {"ranks", "sequence", NULL};
  static const char *const groups[] = {"partition", "memory", "cluster", NULL};
  if (!strcmp(setting->group, "pipeline")) return is_one_of(setting->name, pipeline);
  if (!strcmp(setting->group, "tensor_parallel")) return is_one_of(setting->name, tensor_parallel);
  return is_one_of(setting->group, groups);
}

void pen_fallback_add(struct pen_fallback *fallback, const struct pen_fallback_change *change) {
  PEN_RESERVE(fallback->change, fallback->count + 1);
  fallback->change[fallback->count++] = *change;
}

const struct pen_origin *pen_fallback_origin(const struct pen_fallback *fallback,
                                             const struct pen_setting *setting) {
  for (size_t i = 0; i < fallback->count; i++)
    if (fallback->change[i].setting == setting) return &fallback->change[i].origin;
  return NULL;
}

size_t pen_fallback_count_changes(const struct pen_topology *topology,
                                  const struct pen_fallback_change *change) {
  size_t count = 0;
  for (uint32_t f = 0; change->setting && f < topology->fallback_count; f++)
    for (size_t i = 0; i < topology->fallback_changes[f].count; i++) {
      const struct pen_fallback_change *other = &topology->fallback_changes[f].change[i];
      count += other->setting == change->setting &&
               !other->origin.former_name == !change->origin.former_name;
    }
  return count;
}

/* ---- settings that depend on others ---- */

static void forget(struct pen_topology *topology, const char *path) {
  const struct pen_setting *setting = pen_setting_find_path(path);
  *pen_topology_origin(topology, setting) = (struct pen_origin){0};
  *(bool *)((char *)topology + setting->has_offset) = false;
}

void pen_fallback_forget(struct pen_topology *topology, const struct pen_setting *setting) {
  if (setting != pen_setting_find_path("pipeline.schedule")) return;
  forget(topology, "pipeline.placement");
  forget(topology, "pipeline.warmup");
  forget(topology, "pipeline.zero_bubble");
  forget(topology, "pipeline.schedule_file");
  topology->pipeline_placement = (enum pen_placement)PEN_UNSET;
  topology->pipeline_schedule_file = NULL;
}

static void forget_costs(struct pen_topology *t) {
  struct pen_reals *const lists[] = {
      &t->costs_forward,   &t->costs_backward_input, &t->costs_backward_weight, &t->costs_send,
      &t->costs_send_host, &t->costs_reduce,         &t->costs_gather};
  const size_t stages = (size_t)(t->pipeline_ranks * t->pipeline_stages_per_rank);
  bool fits = true;
  for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
    fits = fits && (!lists[i]->value || lists[i]->for_all || lists[i]->count == stages);
  for (size_t i = 0; i < sizeof lists / sizeof *lists && !fits; i++)
    *lists[i] = (struct pen_reals){.count = 0};
  if (fits) return;
  forget(t, "costs.overlap");
  t->costs_overlap = -1;
}

/* ---- settings that a fallback may only repeat ---- */

static void check_repeated(struct pen_topology *t, const struct pen_topology *main,
                           const struct pen_setting *setting, const char *reason) {
  const char *value = pen_value_text(main, setting), *repeated = pen_value_text(t, setting);
  if (!value || !repeated || strcmp(value, repeated))
    pen_topology_fail(t, pen_text("%s.%s", setting->group, setting->name),
                      "%s, as in the topology: %s", value ? value : "no value", reason);
}

static void check_fixed(struct pen_topology *t, const struct pen_topology *main) {
  static const struct {
    const char *path, *reason;
  } fixed[] = {
      {"cluster.device", "on another kind of device a run has other bits"},
      {"cluster.port", "the hosts meet there before they know which plan they run"},
      {"cluster.spares", "hosts that a fallback does not need wait, whichever they are"},
  };
  const struct pen_fallback *fallback = &main->fallback_changes[t->fallback - 1];
  if (t->cluster_device == PEN_DEVICE_AUTO) t->cluster_device = main->cluster_device;
  for (size_t i = 0; i < fallback->count; i++)
    for (size_t f = 0; f < sizeof fixed / sizeof *fixed; f++)
      if (fallback->change[i].setting == pen_setting_find_path(fixed[f].path))
        check_repeated(t, main, fallback->change[i].setting, fixed[f].reason);
}

/* ---- hosts ---- */

/* The first hosts of the topology and its spares, as many as the ranks need; the others wait. Their
 * order stays, so that a host has the same number in all plans. */
static void take_hosts(struct pen_topology *t, const struct pen_topology *main, size_t count) {
  const struct pen_strings *hosts = &main->cluster_hosts, *spares = &main->cluster_spares;
  const size_t all = hosts->count + spares->count;
  const char **names = pen_new(all, sizeof *names);
  for (size_t h = 0; h < all; h++)
    names[h] = h < hosts->count ? hosts->value[h] : spares->value[h - hosts->count];
  if (count > all)
    pen_topology_fail(
        t, "cluster.ranks_per_host", "at least %lld: the %lld %s have %zu hosts, spares included",
        (long long)((pen_topology_process_count(t) + (int64_t)all - 1) / (int64_t)all),
        (long long)pen_topology_process_count(t), pen_topology_process_factors(t), all);
  t->cluster_hosts = (struct pen_strings){.count = count, .value = names};
  t->cluster_spares = (struct pen_strings){.count = all - count, .value = names + count};
}

void pen_fallback_resolve(struct pen_topology *t, const struct pen_topology *main) {
  const int64_t total = pen_topology_process_count(t);
  const struct pen_setting *hosts = pen_setting_find_path("cluster.hosts"),
                           *per_host = pen_setting_find_path("cluster.ranks_per_host");
  const struct pen_fallback *fallback = &main->fallback_changes[t->fallback - 1];
  bool sets_hosts = false, sets_per_host = false;
  check_fixed(t, main);
  t->tensor_parallel_splits = main->tensor_parallel_splits;
  t->has_tensor_parallel_splits = true;
  for (size_t i = 0; i < fallback->count; i++) {
    sets_hosts |= fallback->change[i].setting == hosts;
    sets_per_host |= fallback->change[i].setting == per_host;
  }
  if (sets_hosts && t->cluster_hosts.count == 0)
    pen_topology_fail(t, "cluster.hosts", "a list of at least one host");
  if (!sets_per_host) {
    const int64_t count = (int64_t)t->cluster_hosts.count;
    t->cluster_ranks_per_host =
        sets_hosts ? (total + count - 1) / count : main->cluster_ranks_per_host;
    t->has_cluster_ranks_per_host = true;
  }
  take_hosts(t, main,
             (size_t)((total + t->cluster_ranks_per_host - 1) / t->cluster_ranks_per_host));
  forget_costs(t);
  if (!main->trains)
    pen_topology_fail(main, "pipeline.schedule", "one that trains, since there is a fallback");
  if (!t->trains) pen_topology_fail(t, "pipeline.schedule", "one that trains");
  t->shapes_sequence = main->shapes_sequence;
  t->shapes_microbatches = main->shapes_microbatches;
}
