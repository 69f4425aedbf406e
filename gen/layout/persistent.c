/* persistent.c: weights, gradients, moments, losses, snapshot, audit memory and constants of
 * a rank. */
#include "gen/layout/persistent.h"
#include <string.h>
#include "gen/base/arena.h"
#include "gen/base/error.h"
#include "gen/layout/audit.h"
#include "gen/layout/device_state.h"
#include "gen/layout/muon.h"
#include "gen/layout/weights.h"
#include "gen/model/op_signature.h"
#include "gen/model/outputs.h"
#include "gen/model/splits.h"
#include "gen/partition/puts.h"
#include "gen/topology/shapes.h"
#include "runtime/plan/losses.h"
#include "runtime/plan/shard.h"

/* ---- sizes ---- */

/* Elements that a data rank keeps of a tensor. */
static uint64_t kept_count(const struct pen_weight *weight, uint32_t shards, bool cut) {
  return cut ? pen_largest_in(pen_division_of(weight, shards)) : weight->count;
}

/* Whether the sole owner of a weight has as many of its size before it as any other: then it needs
 * a place of its own, else it has one of another's (allocate_shard()). */
static bool needs_place(const struct pen_graph *graph, size_t index, uint32_t members) {
  const struct pen_weight *weight = &graph->weight[index];
  if (!weight->sole_owner) return true;
  uint32_t *before = pen_new(members, sizeof *before), most = 0;
  for (size_t i = 0; i < index; i++)
    if (graph->weight[i].sole_owner && graph->weight[i].count == weight->count)
      before[graph->weight[i].sole_owner - 1]++;
  for (uint32_t m = 0; m < members; m++) most = before[m] > most ? before[m] : most;
  const bool needs = before[weight->sole_owner - 1] == most;
  pen_free(before);
  return needs;
}

/* What a weight takes whatever the activations: value, bf16 copy, and, if it is trained, gradient
 * and moments, or their shards; with memory.snapshot also a copy of what a checkpoint holds of
 * it. Of a tied weight the head keeps what it reads, unless that is on the rank already, and its
 * gradient. */
static uint64_t weight_bytes(const struct pen_partition *partition, const struct pen_graph *graph,
                             size_t index) {
  const struct pen_weight *weight = &graph->weight[index];
  const uint8_t sharding = (uint8_t)partition->sharding;
  const uint32_t shards = pen_group_size(partition, PEN_SHARD);
  const bool has_bf16 = weight->bf16_offset != UINT64_MAX,
             tied_head = pen_is_tied_head(graph, index),
             value_sharded = pen_weight_is_sharded(sharding, has_bf16, false, PEN_F32),
             bf16_sharded = pen_weight_is_sharded(sharding, has_bf16, tied_head, PEN_BF16),
             shares = sharding != PEN_SHARD_NONE && !needs_place(graph, index, shards);
  const uint64_t copied = shares && bf16_sharded ? 0 : kept_count(weight, shards, bf16_sharded),
                 copy = has_bf16 ? pen_aligned(copied * sizeof(uint16_t)) : 0,
                 whole = pen_aligned(weight->count * sizeof(float)),
                 stored = pen_aligned(kept_count(weight, shards, sharding != PEN_SHARD_NONE) *
                                      sizeof(float)),
                 shard = shares ? 0 : stored,
                 gradient = partition->reduces_microbatches && sharding >= PEN_SHARD_GRADIENTS
                                ? shard
                                : whole;
  const bool learns = graph->training && !weight->frozen,
             together = partition->rank_of[0] == partition->rank_of[graph->stage],
             snapshot = graph->training && graph->topology->memory_snapshot;
  const uint32_t moments = learns ? weight->moment_count : 0;
  uint64_t kept = (value_sharded ? shard : whole) + moments * shard;
  if (snapshot) kept += (value_sharded ? stored : whole) + moments * stored;
  if (!tied_head) return copy + kept + gradient * learns;
  return (copy ? copy : together ? 0 : whole) + gradient * learns;
}

static bool attends(const struct pen_op *op) {
  return op->kind == PEN_OP_ATTENTION || op->kind == PEN_OP_ATTENTION_QKV ||
         op->kind == PEN_OP_ATTENTION_CACHED || op->kind == PEN_OP_ATTENTION_CACHED_QKV;
}

uint64_t pen_stage_cache_bytes(const struct pen_graph *graph) {
  const struct pen_topology *t = graph->topology;
  uint64_t bytes = 0;
  for (size_t i = 0; i < graph->forward.count && pen_topology_has_cache(t); i++) {
    const struct pen_op *op = &graph->forward.op[i];
    if (!attends(op)) continue;
    const struct pen_signature *signature = pen_signature_of(op->kind);
    bytes += 2 * pen_aligned((uint64_t)(pen_topology_cache_slots(t) * t->model_sequence *
                                        op->dim[pen_signature_dim(signature, "kv_heads")] *
                                        op->dim[pen_signature_dim(signature, "head_dim")]) *
                             pen_dtype_bytes(op->dtype));
  }
  return bytes;
}

uint64_t pen_stage_resident_bytes(const struct pen_partition *partition,
                                  const struct pen_graph *graph) {
  uint64_t bytes = partition->microbatch_count * pen_output_bytes(graph);
  for (size_t i = 0; i < graph->weight_count; i++)
    if (pen_graph_has_weight(graph, i)) bytes += weight_bytes(partition, graph, i);
  return bytes;
}

/* ---- offsets ---- */

static uint64_t allocate_persistent(uint64_t *end, uint64_t bytes, uint64_t *counted) {
  uint64_t offset = *end;
  if (__builtin_add_overflow(*end, pen_aligned(bytes), end))
    pen_stop(PEN_EXIT_TOPOLOGY, "penstock-gen: the model is too large: " PEN_MODEL_SETTINGS);
  *counted += pen_aligned(bytes);
  return offset;
}

/* Offsets of tensors that have sole owners: those of several members of a group may have one. */
struct owned_place {
  uint64_t offset, bytes;
  bool *taken; /* [member] */
};

struct owned_places {
  uint32_t members;
  struct owned_place *place;
  size_t count;
};

static struct owned_places no_places(const struct pen_plan *plan) {
  return (struct owned_places){.members = pen_group_size(plan, PEN_SHARD)};
}

/* The first place that none of the owner's is in; else a new one. Without a sole owner, or of what
 * is not sharded, a place of its own. */
static uint64_t allocate_shard(struct owned_places *places, const struct pen_weight *weight,
                               bool sharded, uint64_t bytes, uint64_t *end, uint64_t *counted) {
  const uint32_t owner = weight->sole_owner - 1;
  size_t n = 0;
  if (!sharded || !weight->sole_owner) return allocate_persistent(end, bytes, counted);
  while (n < places->count && (places->place[n].bytes != bytes || places->place[n].taken[owner]))
    n++;
  if (n == places->count) {
    PEN_RESERVE(places->place, n + 1);
    places->place[places->count++] = (struct owned_place){
        allocate_persistent(end, bytes, counted), bytes, pen_new(places->members, sizeof(bool))};
  }
  places->place[n].taken[owner] = true;
  return places->place[n].offset;
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
      if (seen_count == sizeof seen / sizeof *seen)
        pen_stop(PEN_EXIT_INTERNAL, "layout: too many constants");
      seen[seen_count++] = value->name;
      bytes += pen_aligned(value->bytes);
    }
  return bytes;
}

/* Whether a weight is of a rank, and of its first tensor rank: the others have theirs where that
 * has its. */
static bool is_of(const struct pen_plan *plan, const struct pen_weight *weight, uint32_t rank) {
  return pen_has_weight(plan, weight, pen_group_process(plan, 0, PEN_PIPELINE, rank));
}

static uint64_t stored_count(const struct pen_plan *plan, const struct pen_weight *weight,
                             bool cut) {
  return kept_count(weight, pen_group_size(plan, PEN_SHARD), cut);
}

static uint64_t gradient_count(const struct pen_plan *plan, const struct pen_weight *weight) {
  return stored_count(plan, weight, pen_gradients_are_sharded(plan));
}

/* What the head reads of a tied weight whose embedding is on another rank. Those of all splits lie
 * side by side, and so do the owner's, and the gradients: a message has all of them. */
static void place_tied_value(const struct pen_plan *plan, struct pen_tie *tie,
                             struct pen_rank_memory *memory, uint32_t rank, uint64_t *end) {
  if (tie->rank == rank && plan->weights[tie->weight].rank != rank)
    tie->value_offset =
        allocate_persistent(end, pen_tied_value_bytes(plan, tie),
                            tie->dtype == PEN_BF16 ? &memory->bf16_bytes : &memory->weight_bytes);
}

/* The head's gradient of a tied weight; what it reads, if that is on its rank. */
static void place_tied_gradient(const struct pen_plan *plan, struct pen_tie *tie,
                                const struct pen_weight *weights, struct pen_rank_memory *memory,
                                uint32_t rank, bool trains, uint64_t *end) {
  const struct pen_weight *weight = &weights[tie->weight];
  if (tie->rank != rank) return;
  if (weight->rank == rank)
    tie->value_offset = tie->dtype == PEN_BF16 ? weight->bf16_offset : weight->value_offset;
  if (trains && !weight->frozen)
    tie->gradient_offset =
        allocate_persistent(end, gradient_count(plan, weight) * 4, &memory->gradient_bytes);
}

static void place_gradients(const struct pen_plan *plan, struct pen_weight *weights,
                            struct pen_rank_memory *memory, uint32_t rank, bool trains,
                            uint64_t *end) {
  struct owned_places places = no_places(plan);
  for (uint32_t i = 0; i < plan->weight_count; i++) {
    if (!is_of(plan, &weights[i], rank)) continue;
    weights[i].gradient_sharded = trains && !weights[i].frozen && pen_gradients_are_sharded(plan);
    weights[i].gradient_offset =
        weights[i].frozen || !trains
            ? UINT64_MAX
            : allocate_shard(&places, &weights[i], weights[i].gradient_sharded,
                             gradient_count(plan, &weights[i]) * 4, end, &memory->gradient_bytes);
  }
}

/* The largest buffer of a base in the rank's stages, in any profile. */
static uint64_t largest_buffer(const struct pen_layout_state *l, size_t profile_count,
                               uint32_t rank, int base) {
  uint64_t most = 0;
  for (size_t i = 0; i < profile_count; i++)
    for (uint32_t s = 0; s < l[i].partition->stage_count; s++)
      if (l[i].partition->rank_of[s] == rank && l[i].buffers[s].bytes[base] > most)
        most = l[i].buffers[s].bytes[base];
  return most;
}

/* The gradients of one microbatch and unit, for the largest unit of any profile. */
static void place_partial_gradients(const struct pen_layout_state *l, size_t profile_count,
                                    uint32_t rank, uint64_t *end) {
  struct pen_rank_memory *memory = &l->memory[rank];
  const uint64_t most = largest_buffer(l, profile_count, rank, PEN_BASE_PARTIAL);
  memory->partial_bytes = pen_aligned(most);
  memory->partial_offset = allocate_persistent(end, most, &memory->gradient_bytes);
}

/* The slots of the tensor ranks, for the largest exchange of any profile. */
static void place_slots(const struct pen_layout_state *l, size_t profile_count, uint32_t rank,
                        uint64_t *end) {
  struct pen_rank_memory *memory = &l->memory[rank];
  const uint64_t most = largest_buffer(l, profile_count, rank, PEN_BASE_EXCHANGE);
  if (most == 0) return;
  memory->exchange_offset = allocate_persistent(end, 2 * pen_group_size(l->plan, PEN_TENSOR) * most,
                                                &memory->exchange_bytes);
}

void pen_place_tensor_ranks(const struct pen_plan *plan, struct pen_weight *weights,
                            struct pen_tie *ties) {
  const uint32_t own_ties = pen_local_tie_count(plan);
  for (uint32_t n = own_ties; n < plan->tie_count; n++) {
    ties[n].value_offset = ties[n % own_ties].value_offset;
    ties[n].gradient_offset = ties[n % own_ties].gradient_offset;
  }
  for (uint32_t i = 0; i < plan->weight_count; i++) {
    const uint32_t tensor_rank = pen_first_tensor_rank(plan, &weights[i]);
    if (tensor_rank == 0) continue;
    const struct pen_weight *first = &weights[pen_first_tensor_rank_weight(plan, i)];
    weights[i].value_sharded = first->value_sharded;
    weights[i].bf16_sharded = first->bf16_sharded;
    weights[i].gradient_sharded = first->gradient_sharded;
    weights[i].value_offset = first->value_offset;
    weights[i].gradient_offset = first->gradient_offset;
    weights[i].exp_avg_offset = first->exp_avg_offset;
    weights[i].exp_avg_sq_offset = first->exp_avg_sq_offset;
    weights[i].bf16_offset = first->bf16_offset;
  }
}

/* The tie of a weight; NULL: it is not tied. */
static const struct pen_tie *tie_of(const struct pen_layout_state *l, uint32_t weight) {
  for (uint32_t n = 0; n < l->plan->tie_count; n++)
    if (l->ties[n].weight == weight) return &l->ties[n];
  return NULL;
}

/* Bytes of a weight's value, or of its bf16 copy. A checksum follows what SEND_V sends. */
static uint64_t value_bytes(const struct pen_layout_state *l, uint32_t index, bool sharded,
                            uint8_t dtype) {
  const struct pen_weight *weight = &l->weights[index];
  const struct pen_tie *tie = tie_of(l, index);
  if (tie && tie->rank != weight->rank && tie->dtype == dtype)
    return pen_tied_value_bytes(l->plan, tie);
  return stored_count(l->plan, weight, sharded) * pen_dtype_bytes(dtype);
}

/* Values, then bf16 copies: those that peers read (shared), or the others. With sharded moments
 * peers read shards of weights that each updates and all keep whole; with sharded weights, shards
 * of what programs read. */
static void place_values(struct pen_layout_state *l, uint32_t rank, bool shared, bool trains,
                         uint64_t *end) {
  struct pen_rank_memory *memory = &l->memory[rank];
  const struct pen_plan *plan = l->plan;
  struct owned_places values = no_places(plan), copies = no_places(plan);
  bool cuts = plan->sharding != PEN_SHARD_NONE;
  for (uint32_t i = 0; i < plan->weight_count; i++) {
    struct pen_weight *weight = &l->weights[i];
    if (!is_of(plan, weight, rank)) continue;
    const bool has_bf16 = weight->bf16_offset != UINT64_MAX, tied = tie_of(l, i) != NULL;
    weight->value_sharded = pen_weight_is_sharded(plan->sharding, has_bf16, tied, PEN_F32);
    weight->bf16_sharded = pen_weight_is_sharded(plan->sharding, has_bf16, tied, PEN_BF16);
    if ((cuts && (weight->value_sharded ? weight->bf16_offset == UINT64_MAX
                                        : trains && !weight->frozen)) != shared)
      continue;
    weight->value_offset = allocate_shard(&values, weight, weight->value_sharded,
                                          value_bytes(l, i, weight->value_sharded, PEN_F32), end,
                                          &memory->weight_bytes);
  }
  for (uint32_t i = 0; i < plan->weight_count; i++) {
    struct pen_weight *weight = &l->weights[i];
    if (!is_of(plan, weight, rank) || weight->bf16_offset == UINT64_MAX ||
        (cuts && (weight->bf16_sharded || (trains && !weight->frozen))) != shared)
      continue;
    weight->bf16_offset =
        allocate_shard(&copies, weight, weight->bf16_sharded,
                       value_bytes(l, i, weight->bf16_sharded, PEN_BF16), end, &memory->bf16_bytes);
  }
}

/* A copy of what a checkpoint holds of each weight. */
static void place_snapshot(const struct pen_plan *plan, struct pen_rank_memory *memory,
                           uint32_t rank, uint64_t *end) {
  for (uint32_t i = 0; i < plan->weight_count; i++) {
    const struct pen_weight *weight = &plan->weights[i];
    for (int part = 0; part <= (int)weight->moment_count && is_of(plan, weight, rank); part++)
      allocate_persistent(
          end,
          4 * stored_count(plan, weight,
                           part ? pen_moments_are_sharded(plan) : weight->value_sharded),
          &memory->snapshot_bytes);
  }
}

/* Where an audit recomputes the largest op of any profile. */
static void place_audit(const struct pen_layout_state *l, size_t profile_count, uint32_t rank,
                        uint64_t *end) {
  struct pen_rank_memory *memory = &l->memory[rank];
  uint64_t most = 0;
  for (size_t i = 0; i < profile_count; i++) {
    uint64_t bytes = pen_audit_bytes(l[i].partition, l[i].input->graph, rank, l[i].runs);
    if (bytes > most) most = bytes;
  }
  memory->audit_offset = allocate_persistent(end, most, &memory->audit_bytes);
}

static void place_muon(const struct pen_layout_state *l, uint32_t rank, uint64_t *end) {
  struct pen_rank_memory *memory = &l->memory[rank];
  const uint64_t bytes = pen_muon_bytes(l->partition, l->input->graph, rank);
  if (bytes) memory->muon_offset = allocate_persistent(end, bytes, &memory->muon_bytes);
}

/* The outputs of all microbatches, on the rank of the last stage. */
static void place_outputs(const struct pen_layout_state *l, uint32_t rank, uint64_t *end) {
  const struct pen_partition *partition = l->partition;
  const uint32_t last = partition->stage_count - 1;
  const struct pen_graph *graph = l->input->graph[last];
  struct pen_plan *plan = l->plan;
  if (partition->rank_of[last] != rank || graph->output_count == 0) return;
  pen_outputs_check(graph);
  struct pen_output *output = pen_new(graph->output_count, sizeof *output);
  plan->output_stride = pen_output_bytes(graph);
  plan->output_offset = allocate_persistent(end, partition->microbatch_count * plan->output_stride,
                                            &l->memory[rank].output_bytes);
  for (uint32_t n = 0; n < graph->output_count; n++) {
    const struct pen_value *value = &graph->value[graph->outputs[n]];
    output[n] = (struct pen_output){
        .name = l->topology->model_outputs.value[n],
        .dtype = value->dtype,
        .rows = value->of_samples ? 1 : plan->sequence,
        .width = value->elements / (value->of_samples ? plan->microbatch : (uint64_t)graph->rows),
        .offset = plan->output_offset + l->buffers[last].offset[graph->outputs[n]],
        .bytes = value->bytes};
  }
  plan->outputs = output;
  plan->output_count = graph->output_count;
}

/* The stages that compute the losses of routers. */
static void find_router_losses(const struct pen_layout_state *l, struct pen_router_loss *losses) {
  for (uint32_t s = 0; s < l->partition->stage_count && l->plan->router_loss_count; s++) {
    const struct pen_graph *graph = l->input->graph[s];
    for (size_t v = 0; v < graph->value_count; v++)
      if (graph->value[v].role == PEN_ROLE_LOSS && graph->value[v].loss_row > 0)
        losses[(graph->value[v].loss_row - 1) / 2].stage = s;
  }
}

/* The loss table of a rank: of the last stage, or of layers whose routers have losses. */
static void place_losses(const struct pen_layout_state *l, uint32_t rank, uint64_t *end) {
  const struct pen_partition *partition = l->partition;
  struct pen_plan *plan = l->plan;
  struct pen_router_loss *losses = (struct pen_router_loss *)(uintptr_t)plan->router_losses;
  const bool is_last = partition->rank_of[partition->stage_count - 1] == rank;
  bool has = is_last;
  find_router_losses(l, losses);
  for (uint32_t n = 0; n < plan->router_loss_count; n++)
    has = has || partition->rank_of[losses[n].stage] == rank;
  if (!has) return;
  uint64_t bytes = 0;
  const uint64_t row = (uint64_t)plan->loss_count * sizeof(double),
                 table = allocate_persistent(end, pen_loss_entries(plan) * sizeof(double), &bytes);
  if (is_last) plan->loss_offset = table;
  for (uint32_t n = 0; n < plan->router_loss_count; n++)
    if (partition->rank_of[losses[n].stage] == rank) losses[n].offset = table + (1 + 2 * n) * row;
}

/* After the receive region: first what other processes read or write (the copy of a tied weight,
 * with replicas gradients, those of one microbatch, with tensor ranks their slots and the workspace
 * of Muon with the gradients, and what peers read of weights), then weights, bf16 copies,
 * gradients, moments, losses, outputs, snapshot, audit memory, workspace of Muon, device control
 * block, constants. A plan that does not train has neither gradients nor moments. */
void pen_place_persistent(struct pen_layout_state *l, size_t profile_count, uint32_t rank,
                          struct pen_staged_inputs *feeds) {
  struct pen_plan *plan = l->plan;
  struct pen_weight *weights = l->weights;
  struct pen_rank_memory *memory = &l->memory[rank];
  const struct pen_partition *partition = l->partition;
  struct owned_places moments = no_places(plan);
  uint64_t end = memory->receive_bytes;
  bool trains = l->input->kind == PEN_TRAIN,
       exchanges = pen_group_size(plan, PEN_TENSOR) > 1 &&
                   pen_muon_bytes(partition, l->input->graph, rank) > 0,
       shares = trains &&
                (exchanges || (pen_group_size(plan, PEN_DATA) > 1 &&
                               (!plan->reduces_microbatches || plan->sharding == PEN_SHARD_NONE ||
                                pen_group_size(plan, PEN_SAME_SHARD) > 1)));
  for (uint32_t n = 0; n < pen_local_tie_count(plan); n++)
    place_tied_value(plan, &l->ties[n], memory, rank, &end);
  if (shares) place_gradients(plan, weights, memory, rank, true, &end);
  place_partial_gradients(l, profile_count, rank, &end);
  place_slots(l, profile_count, rank, &end);
  if (exchanges) place_muon(l, rank, &end);
  place_values(l, rank, true, trains, &end);
  memory->shared_bytes = end;
  place_values(l, rank, false, trains, &end);
  if (!shares) place_gradients(plan, weights, memory, rank, trains, &end);
  for (uint32_t n = 0; n < pen_local_tie_count(plan); n++)
    place_tied_gradient(plan, &l->ties[n], weights, memory, rank, trains, &end);
  for (uint32_t i = 0; i < plan->weight_count; i++) {
    if (!is_of(plan, &weights[i], rank)) continue;
    bool learns = trains && !weights[i].frozen;
    uint64_t moment = stored_count(plan, &weights[i], pen_moments_are_sharded(plan)) * 4;
    weights[i].exp_avg_offset =
        !learns || weights[i].moment_count == 0
            ? UINT64_MAX
            : allocate_shard(&moments, &weights[i], pen_moments_are_sharded(plan), moment, &end,
                             &memory->moment_bytes);
    weights[i].exp_avg_sq_offset = learns && weights[i].moment_count > 1
                                       ? allocate_persistent(&end, moment, &memory->moment_bytes)
                                       : UINT64_MAX;
  }
  place_losses(l, rank, &end);
  place_outputs(l, rank, &end);
  memory->snapshot_offset = end;
  if (trains && l->topology->memory_snapshot) place_snapshot(plan, memory, rank, &end);
  place_audit(l, profile_count, rank, &end);
  if (!exchanges) place_muon(l, rank, &end);
  if (pen_device_row(plan->device)->on_host)
    end = pen_shard_staging_place(l, profile_count, rank, end);
  else
    end = pen_device_control_place(l, profile_count, rank, end, feeds);
  memory->constant_bytes = constant_bytes(partition, l->input->graph, rank);
  memory->persistent_end = end + memory->constant_bytes;
}
