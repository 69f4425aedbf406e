/* layout.c: the finished plan: what persists in each arena, then every profile on top of it.
 *
 * A rank has one arena (runtime/plan/plan.h draws it), and all profiles of the plan use it in turn.
 * Places are found in this order:
 *
 *   1. each profile by itself: receive slots and activations of every rank (place.c, slots.c,
 * pack.c). Nothing of an activation outlives its step, so the profiles lie on top of each other
 *   2. the window: as large as the profile with the most slot bytes wants it
 *   3. behind it what persists, the same for all profiles. First what other processes read or
 * write: a tied matrix's copy, and with replicas gradients and what they read of weights. Up to
 * there (shared_bytes) memory is shared, the rest is the rank's own. Then weights, bf16 copies,
 * gradients, moments, losses, snapshot, a device's step part, constants, of each kind in model
 * order
 *   4. behind that the activation part: as large as the profile with the most activations wants it
 *   5. with all sizes known the tables (tables.c), and what of each weight stands where in the
 * checkpoint's files (files.c)
 *
 * Whatever is placed begins at a multiple of PEN_ALIGNMENT_BYTES. What replicas share out
 * (data_parallel.shard) takes the bytes of the largest shard, on each replica at the same place; so
 * one plan serves all of them (Rajbhandari et al. 2020, ZeRO, arXiv 1910.02054). That offsets are
 * settled before the program runs is as in TensorFlow Lite Micro (David et al. 2021, arXiv
 * 2010.08678). */
#include <stdlib.h>
#include <string.h>

#include "gen/families/families.h"
#include "gen/layout/state.h"
#include "gen/model/op_signature.h"
#include "gen/base/arena.h"
#include "gen/base/error.h"
#include "gen/base/version.h"
#include "gen/partition/partition.h"
#include "gen/topology/topology.h"
#include "runtime/plan/plan.h"
#include "gen/topology/message.h"
#include "gen/topology/weight_decay.h"
#include "runtime/plan/shard.h"

/* ---- weights ---- */

/* How many weights of a stage are its own: not one that the head has from the embedding, which
 * comes last. */
static size_t own_weights(const struct pen_graph *graph) {
  if (graph->tied == PEN_NONE) return graph->weight_count;
  if (graph->tied + 1 != graph->weight_count)
    pen_stop(70, "layout: the tied weight of stage %u is not its last", graph->stage);
  return graph->tied;
}

/* All weights in model order, and where each stage's begin. */
static struct pen_weight *list_weights(const struct pen_partition *partition,
                                       struct pen_graph *const *graph, uint32_t *first_weight,
                                       uint32_t *count) {
  size_t total = 0;
  for (uint32_t s = 0; s < partition->stage_count; s++) {
    first_weight[s] = (uint32_t)total;
    total += own_weights(graph[s]);
  }
  struct pen_weight *weights = pen_new(total + 1, sizeof *weights);
  for (uint32_t s = 0; s < partition->stage_count; s++)
    for (size_t i = 0; i < own_weights(graph[s]); i++) {
      struct pen_weight *weight = &weights[first_weight[s] + i];
      *weight = graph[s]->weight[i];
      weight->rank = partition->rank_of[s];
    }
  *count = (uint32_t)total;
  return weights;
}

/* The matrix that the head has from the embedding, without its places; null: none. In a plan of
 * bf16 the head's product reads a copy, which the owner makes. */
static struct pen_tie *find_tie(const struct pen_partition *partition,
                                struct pen_graph *const *graph, struct pen_weight *weights,
                                uint32_t count) {
  const struct pen_graph *last = graph[partition->stage_count - 1];
  if (last->tied == PEN_NONE) return NULL;
  struct pen_tie *tie = pen_new(1, sizeof *tie);
  *tie = (struct pen_tie){.rank = partition->rank_of[last->stage], .gradient_offset = UINT64_MAX};
  while (tie->weight < count && strcmp(weights[tie->weight].name, last->weight[last->tied].name))
    tie->weight++;
  if (tie->weight == count)
    pen_stop(70, "layout: there is no weight %s to tie", last->weight[last->tied].name);
  weights[tie->weight].bf16_offset = last->weight[last->tied].bf16_offset;
  tie->dtype = weights[tie->weight].bf16_offset == UINT64_MAX ? PEN_F32 : PEN_BF16;
  return tie;
}

/* An ending in model.frozen that no weight has is a mistake. */
static void check_frozen(const struct pen_topology *topology, const struct pen_weight *weights,
                         uint32_t count) {
  for (size_t i = 0; i < topology->model_frozen.count; i++) {
    const char *ending = topology->model_frozen.value[i];
    size_t matches = 0;
    for (uint32_t w = 0; w < count; w++)
      matches += *ending && pen_ends_in(weights[w].name, ending, strlen(ending));
    if (!matches)
      pen_topology_fail(topology, "model.frozen",
                        "endings of the model's tensor names, such as \"%s\"; none ends in \"%s\"",
                        count ? weights[0].name : "", ending);
  }
}

static uint64_t take(uint64_t *end, uint64_t bytes, uint64_t *counted) {
  uint64_t offset = *end;
  if (__builtin_add_overflow(*end, pen_aligned(bytes), end))
    pen_stop(PEN_EXIT_TOPOLOGY, "penstock-gen: the model is too large");
  *counted += pen_aligned(bytes);
  return offset;
}

/* Bytes of a rank's constants: one tensor a name. */
static uint64_t constant_bytes(const struct pen_partition *partition,
                               struct pen_graph *const *graph, uint32_t rank) {
  const char *seen[8];
  size_t seen_count = 0;
  uint64_t bytes = 0;
  for (uint32_t s = 0; s < partition->stage_count; s++)
    for (size_t v = 0; partition->rank_of[s] == rank && v < graph[s]->value_count; v++) {
      const struct pen_value *value = &graph[s]->value[v];
      bool known = value->role != PEN_ROLE_CONSTANT;
      for (size_t i = 0; i < seen_count; i++) known = known || strcmp(seen[i], value->name) == 0;
      if (known) continue;
      if (seen_count == sizeof seen / sizeof *seen) pen_stop(70, "layout: too many constants");
      seen[seen_count++] = value->name;
      bytes += pen_aligned(value->bytes);
    }
  return bytes;
}

/* What the head reads of a tied matrix whose embedding is on another rank, right behind the window.
 */
static void place_tied_value(struct pen_tie *tie, const struct pen_weight *weights,
                             struct pen_rank_memory *memory, uint32_t rank, uint64_t *end) {
  const struct pen_weight *weight = &weights[tie->weight];
  if (tie->rank == rank && weight->rank != rank)
    tie->value_offset = take(end, weight->count * pen_dtype_bytes(tie->dtype),
                             tie->dtype == PEN_BF16 ? &memory->bf16_bytes : &memory->weight_bytes);
}

/* The head's gradient of a tied matrix; and on one rank what it reads. */
static void place_tied_gradient(struct pen_tie *tie, const struct pen_weight *weights,
                                struct pen_rank_memory *memory, uint32_t rank, bool trains,
                                uint64_t *end) {
  const struct pen_weight *weight = &weights[tie->weight];
  if (tie->rank != rank) return;
  if (weight->rank == rank)
    tie->value_offset = tie->dtype == PEN_BF16 ? weight->bf16_offset : weight->value_offset;
  if (trains && !weight->frozen)
    tie->gradient_offset = take(end, weight->count * 4, &memory->gradient_bytes);
}

static void place_gradients(const struct pen_plan *plan, struct pen_weight *weights,
                            struct pen_rank_memory *memory, uint32_t rank, bool trains,
                            uint64_t *end) {
  for (uint32_t i = 0; i < plan->weight_count; i++)
    if (weights[i].rank == rank)
      weights[i].gradient_offset = weights[i].frozen || !trains
                                       ? UINT64_MAX
                                       : take(end, weights[i].count * 4, &memory->gradient_bytes);
}

/* Whether a weight is the tied one. */
static bool is_tied(const struct pen_layout_state *l, uint32_t weight) {
  return l->tie && l->tie->weight == weight;
}

/* Values, then bf16 copies: those that peers read, or the others. Peers read of what moments make
 * anew and everybody has whole, and of what programs read and nobody has whole. */
static void place_values(struct pen_layout_state *l, uint32_t rank, bool shared, bool trains,
                         uint64_t *end) {
  struct pen_rank_memory *memory = &l->memory[rank];
  const struct pen_plan *plan = l->plan;
  bool cuts = plan->sharding != PEN_SHARD_NONE;
  for (uint32_t i = 0; i < plan->weight_count; i++) {
    struct pen_weight *weight = &l->weights[i];
    if (weight->rank != rank) continue;
    weight->value_sharded = pen_value_is_sharded((enum pen_sharding)plan->sharding,
                                                 weight->bf16_offset != UINT64_MAX, is_tied(l, i));
    weight->bf16_sharded = pen_bf16_is_sharded((enum pen_sharding)plan->sharding,
                                               weight->bf16_offset != UINT64_MAX, is_tied(l, i));
    if ((cuts && (weight->value_sharded ? weight->bf16_offset == UINT64_MAX
                                        : trains && !weight->frozen)) != shared)
      continue;
    weight->value_offset =
        take(end, pen_kept_count(weight->count, plan->replica_count, weight->value_sharded) * 4,
             &memory->weight_bytes);
  }
  for (uint32_t i = 0; i < plan->weight_count; i++) {
    struct pen_weight *weight = &l->weights[i];
    if (weight->rank != rank || weight->bf16_offset == UINT64_MAX ||
        (cuts && (weight->bf16_sharded || (trains && !weight->frozen))) != shared)
      continue;
    uint64_t kept = pen_kept_count(weight->count, plan->replica_count, weight->bf16_sharded);
    weight->bf16_offset = take(end, kept * pen_dtype_bytes(PEN_BF16), &memory->bf16_bytes);
  }
}

/* The parts of a weight that a checkpoint holds, as a replica keeps them. */
static void place_snapshot(const struct pen_plan *plan, struct pen_rank_memory *memory,
                           uint32_t rank, uint64_t *end) {
  for (uint32_t i = 0; i < plan->weight_count; i++) {
    const struct pen_weight *weight = &plan->weights[i];
    for (int part = 0; part < (weight->frozen ? 1 : 3) && weight->rank == rank; part++)
      take(end,
           pen_kept_count(weight->count, plan->replica_count,
                          part ? pen_moments_are_sharded(plan) : weight->value_sharded) *
               4,
           &memory->snapshot_bytes);
  }
}

/* Weights, then their copies, then gradients, then moments, then the loss table, then the snapshot,
 * then the step part where the device wants one, then constants, from the end of the window on. A
 * plan that does not train has neither gradients nor moments. What other ranks write or read stands
 * first, in shared memory: a tied matrix's copy, and, with replicas, the gradients and what of
 * weights peers read. */
static void place_persistent(struct pen_layout_state *l, size_t profile_count, uint32_t rank,
                             struct pen_staged_inputs *feeds) {
  struct pen_plan *plan = l->plan;
  struct pen_weight *weights = l->weights;
  struct pen_rank_memory *memory = &l->memory[rank];
  const struct pen_partition *partition = l->partition;
  uint64_t end = memory->receive_bytes;
  bool trains = l->input->kind == PEN_TRAIN, exchanges = trains && plan->replica_count > 1;
  struct pen_tie *tie = l->tie;
  if (tie) place_tied_value(tie, weights, memory, rank, &end);
  if (exchanges) place_gradients(plan, weights, memory, rank, true, &end);
  place_values(l, rank, true, trains, &end);
  memory->shared_bytes = end;
  place_values(l, rank, false, trains, &end);
  if (!exchanges) place_gradients(plan, weights, memory, rank, trains, &end);
  if (tie) place_tied_gradient(tie, weights, memory, rank, trains, &end);
  for (uint32_t i = 0; i < plan->weight_count; i++) {
    if (weights[i].rank != rank) continue;
    bool learns = trains && !weights[i].frozen;
    uint64_t moment =
        pen_kept_count(weights[i].count, plan->replica_count, pen_moments_are_sharded(plan)) * 4;
    weights[i].exp_avg_offset = learns ? take(&end, moment, &memory->moment_bytes) : UINT64_MAX;
    weights[i].exp_avg_sq_offset = learns ? take(&end, moment, &memory->moment_bytes) : UINT64_MAX;
  }
  uint64_t loss_bytes = 0;
  if (partition->rank_of[partition->stage_count - 1] == rank)
    plan->loss_offset = take(&end, (uint64_t)plan->loss_count * sizeof(double), &loss_bytes);
  memory->snapshot_offset = end;
  if (trains && l->topology->memory_snapshot) place_snapshot(plan, memory, rank, &end);
  if (pen_device_copies_data_op(plan->device))
    end = pen_device_control_place(l, profile_count, rank, end, feeds);
  memory->constant_bytes = constant_bytes(partition, l->input->graph, rank);
  memory->persistent_end = end + memory->constant_bytes;
}

/* ---- the pass ---- */

static const char *const decay_text[] = {
#define PEN_DECAY(name, text, meaning) text,
#include "runtime/plan/optimizer.def"
};
static const char *const norm_text[] = {
#define PEN_NORM_KIND(name, text, meaning) text,
#include "runtime/plan/optimizer.def"
};

/* The place of a choice in optimizer.def. */
static uint8_t place_of(const char *const *text, size_t count, const char *choice) {
  size_t place = 0;
  while (place < count && strcmp(text[place], choice)) place++;
  if (place == count) pen_stop(70, "layout: optimizer.def has no %s", choice);
  return (uint8_t)place;
}

static struct pen_optimizer optimizer_of(const struct pen_topology *t) {
  return (struct pen_optimizer){.learning_rate = t->optimizer_learning_rate,
                                .minimum_ratio = t->optimizer_minimum_ratio,
                                .beta1 = t->optimizer_beta1,
                                .beta2 = t->optimizer_beta2,
                                .epsilon = t->optimizer_epsilon,
                                .clip_norm = t->optimizer_clip_norm,
                                .warmup_steps = (uint64_t)t->optimizer_warmup_steps,
                                .steps = (uint64_t)t->optimizer_steps,
                                .decay_steps = (uint64_t)t->optimizer_decay_steps,
                                .decay = place_of(decay_text, PEN_DECAYS, t->optimizer_decay),
                                .norm = place_of(norm_text, PEN_NORM_KINDS, t->optimizer_norm)};
}

static struct pen_plan *plan_of(const struct pen_topology *t,
                                const struct pen_partition *partition) {
  const struct pen_family *family = pen_family_find(t->model_family);
  struct pen_plan *plan = pen_new(1, sizeof *plan);
  plan->name = t->name;
  plan->schedule = t->pipeline_schedule;
  plan->family = t->model_family;
  plan->version = PEN_VERSION_TEXT;
  plan->device = t->cluster_device;
  plan->transport = t->cluster_transport;
  if (t->cluster_hosts.count > 1) {
    plan->hosts = (const char *const *)t->cluster_hosts.value;
    plan->host_count = (uint32_t)t->cluster_hosts.count;
    plan->ranks_per_host = (uint32_t)t->cluster_ranks_per_host;
    plan->port = (uint16_t)t->cluster_port;
  }
  plan->rank_count = partition->rank_count;
  plan->stages_per_rank = partition->stages_per_rank;
  plan->stage_count = partition->stage_count;
  plan->microbatch_count = plan->loss_count = partition->microbatch_count;
  for (size_t i = 0; i < t->shapes_microbatches.count; i++)
    if (t->shapes_microbatches.value[i] > plan->loss_count)
      plan->loss_count = (uint32_t)t->shapes_microbatches.value[i];
  plan->replica_count = (uint32_t)t->data_parallel_replicas;
  plan->sharding = (uint8_t)partition->sharding;
  plan->microbatch = (uint32_t)t->batch_microbatch;
  plan->sequence = (uint32_t)t->model_sequence;
  plan->vocab = (uint32_t)t->model_vocab;
  plan->layers = (uint32_t)t->model_layers;
  plan->dtype = pen_topology_dtype(t);
  plan->threads_per_rank = (uint32_t)t->cluster_threads_per_rank;
  plan->needs_tokens = pen_family_needs_tokens(family);
  plan->packed = t->batch_packed;
  plan->loss_is_mean = strcmp(t->model_loss, "cross_entropy") == 0;
  plan->optimizer = optimizer_of(t);
  plan->config_json = family->config_json(t);
  plan->settings = pen_topology_canonical(t);
  return plan;
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

/* Sizes of every arena, from what the profiles need. */
static void size_arenas(struct pen_layout_state *l, size_t profile_count,
                        const struct pen_partition *partition) {
  struct pen_staged_inputs feeds = {.count = 0};
  for (uint32_t r = 0; r < partition->rank_count; r++) {
    struct pen_rank_memory *memory = &l[0].memory[r];
    memory->receive_slots = l[0].slot_count[r];
    for (size_t i = 0; i < profile_count; i++)
      if (l[i].receive_bytes[r] > memory->receive_bytes)
        memory->receive_bytes = l[i].receive_bytes[r];
    place_persistent(l, profile_count, r, &feeds);
    uint64_t most = 0;
    int64_t live = 0;
    for (size_t i = 0; i < profile_count; i++) {
      if (l[i].activation_bytes[r] > most) most = l[i].activation_bytes[r];
      if (l[i].live_bytes[r] > live) live = l[i].live_bytes[r];
    }
    memory->arena_bytes = memory->persistent_end + most;
    memory->activation_bytes = memory->arena_bytes - memory->persistent_end;
    memory->live_bytes = memory->persistent_end - memory->receive_bytes + (uint64_t)live;
  }
  l[0].plan->staged_inputs = feeds.feed;
  l[0].plan->staged_input_count = feeds.count;
}

struct pen_plan *pen_layout(const struct pen_topology *topology,
                            const struct pen_partition *partition,
                            const struct pen_profile_input *profile, size_t profile_count) {
  struct pen_plan *plan = plan_of(topology, partition);
  uint32_t *first_weight = pen_new(partition->stage_count, sizeof *first_weight);
  struct pen_weight *weights =
      list_weights(partition, profile[0].graph, first_weight, &plan->weight_count);
  check_frozen(topology, weights, plan->weight_count);
  pen_weight_decay_check_names(topology, weights, plan->weight_count);
  struct pen_rank_memory *memory = pen_new(partition->rank_count, sizeof *memory);
  plan->weights = weights;
  struct pen_tie *tie = find_tie(partition, profile[0].graph, weights, plan->weight_count);
  plan->ties = tie;
  plan->tie_count = tie != NULL;
  plan->memory = memory;
  struct pen_layout_state *l = pen_new(profile_count, sizeof *l);
  for (size_t i = 0; i < profile_count; i++) {
    size_t ranks = partition->rank_count;
    l[i] = (struct pen_layout_state){
        .before = i ? &l[i - 1] : NULL,
        .input = &profile[i],
        .plan = plan,
        .topology = profile[i].topology ? profile[i].topology : topology,
        .partition = profile[i].partition ? profile[i].partition : partition,
        .weights = weights,
        .tie = tie,
        .memory = memory,
        .first_weight = first_weight,
        .blocks = pen_new(partition->stage_count, sizeof *l->blocks),
        .receive_bytes = pen_new(ranks, sizeof(uint64_t)),
        .slot_count = pen_new(ranks, sizeof(uint32_t)),
        .activation_bytes = pen_new(ranks, sizeof(uint64_t)),
        .live_bytes = pen_new(ranks, sizeof(int64_t)),
        .scratch = pen_new(ranks, sizeof(uint64_t *)),
        .shared_scratch = pen_new(ranks, sizeof(uint64_t))};
    pen_place(&l[i]);
  }
  size_arenas(l, profile_count, partition);
  struct pen_profile *profiles = pen_new(profile_count, sizeof *profiles);
  for (size_t i = 0; i < profile_count; i++) profiles[i] = pen_tables(&l[i]);
  plan->profiles = profiles;
  plan->profile_count = (uint32_t)profile_count;
  pen_files(plan, weights);
  return plan;
}
