/* layout.c: the plan: what persists in each arena, and every profile.
 *
 * A rank has one arena (see layout.h), which all profiles of the plan use in turn. In this order:
 *
 *   1. each profile by itself: receive slots and activations of every rank. No activation outlives
 *      its step, so the profiles use the same bytes
 *   2. the receive region: as large as the most slot bytes of any profile
 *   3. after it what persists, for all profiles (persistent.c). First what other processes read or
 *      write; up to there (shared_bytes) the memory is shared
 *   4. after that the activations: as large as the most of any profile
 *   5. with all sizes known, the tables, and the offsets of the weights in the checkpoint files
 *
 * All offsets are multiples of PEN_ALIGNMENT_BYTES. What is sharded takes the bytes of the largest
 * shard, at the same offset on each replica, so that one plan serves all (Rajbhandari et al. 2020,
 * ZeRO, arXiv 1910.02054). As in TensorFlow Lite Micro (David et al. 2021, arXiv 2010.08678)
 * offsets are known before the program runs. */
#include "gen/layout/layout.h"
#include <string.h>
#include "gen/base/arena.h"
#include "gen/layout/checkpoint_files.h"
#include "gen/layout/persistent.h"
#include "gen/layout/plan_header.h"
#include "gen/layout/strategy.h"
#include "gen/layout/tables.h"
#include "gen/layout/weights.h"
#include "gen/topology/message.h"
#include "gen/topology/weight_optimizer.h"

/* Stops if no weight has an ending in model.frozen; a plan of a few layers need not have one. */
static void check_frozen(const struct pen_topology *topology, const struct pen_weight *weights,
                         uint32_t count) {
  for (size_t i = 0; i < topology->model_frozen.count && !topology->only_trains; i++) {
    const char *ending = topology->model_frozen.value[i];
    size_t matches = 0;
    pen_check_stack_ending(topology, "model.frozen", ending, strlen(ending), weights, count);
    for (uint32_t w = 0; w < count; w++)
      matches += *ending && pen_is_of_model(&weights[w]) &&
                 pen_ends_in(weights[w].tensor, ending, strlen(ending));
    if (!matches)
      pen_topology_fail(topology, "model.frozen",
                        "endings of the model's tensor names, such as \"%s\"; none ends in \"%s\"",
                        count ? weights[0].tensor : "", ending);
  }
}

uint64_t pen_layout_excess(const struct pen_topology *t, const struct pen_plan *plan) {
  uint64_t limit = (uint64_t)t->memory_limit_mib << 20, most = 0;
  for (uint32_t r = 0; t->memory_limit_mib && r < plan->rank_count; r++)
    if (plan->memory[r].arena_bytes > most) most = plan->memory[r].arena_bytes;
  return most > limit ? most - limit : 0;
}

void pen_layout_check_limit(const struct pen_topology *t, const struct pen_plan *plan) {
  if (!t->memory_limit_mib) return;
  uint64_t limit = (uint64_t)t->memory_limit_mib << 20;
  for (uint32_t r = 0; r < plan->rank_count; r++)
    if (plan->memory[r].arena_bytes > limit)
      pen_topology_fail(t, "memory.limit_mib", "0 (none) or at least %llu, which rank %u needs",
                        (unsigned long long)((plan->memory[r].arena_bytes + (1 << 20) - 1) >> 20),
                        r);
}

/* Sets the sizes of every arena, from what the profiles need. */
static void size_arenas(struct pen_layout_state *l, size_t profile_count,
                        const struct pen_partition *partition) {
  struct pen_staged_inputs inputs = {.count = 0};
  for (uint32_t r = 0; r < partition->rank_count; r++) {
    struct pen_rank_memory *memory = &l[0].memory[r];
    memory->receive_slots = l[0].slot_count[r];
    for (size_t i = 0; i < profile_count; i++)
      if (l[i].receive_bytes[r] > memory->receive_bytes)
        memory->receive_bytes = l[i].receive_bytes[r];
    pen_place_persistent(l, profile_count, r, &inputs);
    uint64_t most = 0, most_without = 0; /* generation */
    int64_t live = 0;
    for (size_t i = 0; i < profile_count; i++) {
      const uint64_t beside = pen_cache_beside(&l[i], r), bytes = l[i].activation_bytes[r] + beside;
      if (bytes > most) most = bytes;
      if (bytes > most_without && !pen_profile_kind_generates(l[i].input->kind))
        most_without = bytes;
      if (l[i].live_bytes[r] + (int64_t)beside > live) live = l[i].live_bytes[r] + (int64_t)beside;
    }
    memory->arena_bytes = memory->persistent_end + most;
    memory->activation_bytes = memory->arena_bytes - memory->persistent_end;
    memory->generation_bytes = most - most_without;
    memory->cache_offset = memory->arena_bytes - memory->cache_bytes;
    memory->live_bytes = memory->persistent_end - memory->receive_bytes + (uint64_t)live;
  }
  l[0].plan->staged_inputs = inputs.input;
  l[0].plan->staged_input_count = inputs.count;
}

/* The cache of all stages of each rank: the same in all profiles that have it. */
static void size_caches(struct pen_layout_state *l, size_t profile_count) {
  bool has_cache = false;
  for (size_t i = 0; i < profile_count; i++)
    has_cache = has_cache || l[i].input->kind == PEN_CACHED;
  for (uint32_t s = 0; s < l->partition->stage_count && has_cache; s++)
    l->memory[l->partition->rank_of[s]].cache_bytes += pen_stage_cache_bytes(l->input->graph[s]);
}

/* Takes over the lists of a profile: the layout completes them, and the plan keeps them. A copy
 * would be a fifth of the generator's memory. */
static struct pen_lowered *take_lowered(struct pen_lowered *from) {
  struct pen_lowered *lowered = pen_new(1, sizeof *lowered);
  *lowered = *from;
  *from = (struct pen_lowered){.rank_count = 0};
  return lowered;
}

struct pen_plan *pen_layout(const struct pen_topology *topology,
                            const struct pen_partition *partition,
                            const struct pen_profile_input *profile, size_t profile_count) {
  struct pen_plan *plan = pen_plan_header(topology, partition);
  uint32_t *first_weight = pen_new(partition->stage_count, sizeof *first_weight);
  struct pen_weight *weights = pen_list_weights(partition, profile[0].graph, first_weight, plan);
  check_frozen(topology, weights, plan->weight_count);
  pen_weight_optimizer_check_names(topology, weights, plan->weight_count);
  struct pen_rank_memory *memory = pen_new(partition->rank_count, sizeof *memory);
  plan->weights = weights;
  struct pen_tie *ties =
      pen_find_ties(partition, profile[0].graph, weights, plan->weight_count, &plan->tie_count);
  plan->ties = ties;
  plan->memory = memory;
  struct pen_layout_state *l = pen_new(profile_count, sizeof *l);
  struct pen_tensor_rank_dims tensor_rank_dims = {.count = 0};
  for (size_t i = 0; i < profile_count; i++) {
    size_t ranks = partition->rank_count;
    l[i] = (struct pen_layout_state){.before = i ? &l[i - 1] : NULL,
                                     .input = &profile[i],
                                     .plan = plan,
                                     .lowered = take_lowered(profile[i].lowered),
                                     .topology = profile[i].topology,
                                     .partition = profile[i].partition,
                                     .weights = weights,
                                     .ties = ties,
                                     .memory = memory,
                                     .tensor_rank_dims = &tensor_rank_dims,
                                     .number = (uint32_t)i,
                                     .first_weight = first_weight,
                                     .buffers = pen_new(partition->stage_count, sizeof *l->buffers),
                                     .receive_bytes = pen_new(ranks, sizeof(uint64_t)),
                                     .slot_count = pen_new(ranks, sizeof(uint32_t)),
                                     .activation_bytes = pen_new(ranks, sizeof(uint64_t)),
                                     .live_bytes = pen_new(ranks, sizeof(int64_t)),
                                     .scratch = pen_new(ranks, sizeof(uint64_t *)),
                                     .shared_scratch = pen_new(ranks, sizeof(uint64_t))};
  }
  size_caches(l, profile_count);
  for (size_t i = 0; i < profile_count; i++) pen_place_activations(&l[i]);
  size_arenas(l, profile_count, partition);
  pen_place_tensor_ranks(plan, weights, ties);
  struct pen_profile *profiles = pen_new(profile_count, sizeof *profiles);
  for (size_t i = 0; i < profile_count; i++) profiles[i] = pen_profile_tables(&l[i]);
  plan->tensor_rank_dims = tensor_rank_dims.dim;
  plan->tensor_rank_dim_count = (uint32_t)tensor_rank_dims.count;
  plan->profiles = profiles;
  plan->profile_count = (uint32_t)profile_count;
  pen_files(plan, weights);
  return plan;
}
