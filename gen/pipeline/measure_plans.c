/* measure_plans.c: the topologies of the plans that the command `measure` runs (see
 * measure_plans.h).
 *
 * Each is the deployment's topology with one rank, and with so few layers that each kind of block
 * is there: one, or a period of a family whose layers are not all alike, or up to the first layer
 * with experts, or without. Every block is a stage of its own, so that the times of the stage's
 * actions are those of the block. The forwards of all microbatches of a step come first, so that,
 * as in the deployment, none writes activations that the caches still hold. The backward of every
 * second microbatch is split in I and W, that of the others is whole.
 * Layers of experts are measured again with twice as many experts a token, and so twice their rows.
 * With memory.recompute = "full" I and B run again what the backward of the block needs. One more
 * plan has replicas, as many as the deployment, from 2 to REPLICAS_MAX, for the collectives; of one
 * tensor rank each, which computes the splits of all. */
#include "gen/pipeline/measure_plans.h"

#include "gen/base/arena.h"
#include "gen/base/error.h"
#include "gen/families/families.h"
#include "gen/topology/experts.h"
#include "gen/topology/tensor_parallel.h"
#include "runtime/plan/plan.h"

#include <string.h>

enum {
  SIZES = 4,
  RECOMPUTES = 2,
  ROUTES = 2,
  REPLICAS_MAX = 256, /* they are processes of one host (runtime/commands/block_times.c) */
  SEQUENCES = 8,
  MICROBATCHES_MIN = 4, /* of a step, at least */
  TOKENS_MAX = 1 << 22  /* of a microbatch that is larger than the topology's */
};
static int64_t default_sizes[SIZES] = {1, 2, 4, 8};

/* The step's only row, in the format of pipeline.schedule_file. */
static const char *actions_of(uint32_t stages, uint32_t microbatches) {
  const char *text = "";
  for (uint32_t j = 0; j < microbatches; j++)
    for (uint32_t s = 0; s < stages; s++) text = pen_text("%s%uF%u,", text, s, j);
  for (uint32_t j = 0; j < microbatches; j++)
    for (uint32_t s = stages; s-- > 0;)
      text = j % 2 == 0 ? pen_text("%s%uI%u,%uW%u,", text, s, j, s, j)
                        : pen_text("%s%uB%u,", text, s, j);
  return pen_text("%s\n", text);
}

/* The first layers that have all kinds of blocks. */
static int64_t needed_layers(const struct pen_topology *t, const struct pen_family *family) {
  int64_t layers = 1;
  if (!family->is_other) return family->period ? (int64_t)family->period : 1;
  while (layers < t->model_layers &&
         family->is_other(t, (uint32_t)layers) == family->is_other(t, 0))
    layers++;
  return layers < t->model_layers ? layers + 1 : 1;
}

/* Every block is a stage. */
static void divide(struct pen_topology *t) {
  const struct pen_family *family = pen_family_of(t);
  uint32_t count;
  const int64_t layers = needed_layers(t, family);
  t->model_layers = t->model_layers < layers ? t->model_layers : layers;
  const struct pen_model_block *block =
      pen_family_blocks(family, t, (uint32_t)t->model_layers, &count);
  const char **before = pen_new(count, sizeof *before);
  for (uint32_t b = 1; b < count; b++) before[b - 1] = block[b].name;
  t->partition_before = (struct pen_strings){.count = count - 1, .value = before};
  t->partition_layers = (struct pen_integers){.count = 0};
  t->partition_virtual_pre = t->partition_virtual_post = 0;
  t->partition_balance = PEN_BALANCE_COUNT;
  t->pipeline_ranks = 1;
  t->pipeline_stages_per_rank = count;
  t->pipeline_microbatches = MICROBATCHES_MIN * t->batch_microbatch < SEQUENCES
                                 ? SEQUENCES / t->batch_microbatch
                                 : MICROBATCHES_MIN;
  t->pipeline_placement = PEN_PLACEMENT_LOOP;
  t->pipeline_schedule = PEN_SCHEDULE_file;
  t->pipeline_schedule_file = t->schedule_path = "measure";
  t->schedule_text = actions_of(count, (uint32_t)t->pipeline_microbatches);
  t->schedule_bytes = strlen(t->schedule_text);
}

/* Without tensor_parallel.splits a candidate has as many splits as tensor ranks. */
static void take_tensor_ranks(struct pen_topology *t, int64_t ranks) {
  if (t->plan_tensor.count && !t->has_tensor_parallel_splits) t->tensor_parallel_splits = ranks;
  t->tensor_parallel_ranks = ranks;
}

/* The replicas that are measured. */
static int64_t replicas_of(const struct pen_topology *topology) {
  const int64_t replicas = topology->data_parallel_replicas;
  return replicas < 2 ? 2 : replicas < REPLICAS_MAX ? replicas : REPLICAS_MAX;
}

/* Replicas on this host, which sum their gradients at the end of the step. */
static void take_replicas(struct pen_topology *t, int64_t replicas) {
  static const char *localhost[] = {"localhost"};
  t->data_parallel_replicas = t->data_parallel_shard_ranks = replicas;
  t->data_parallel_shard = PEN_SHARD_NONE;
  t->data_parallel_unit = PEN_GATHER_STAGE;
  t->data_parallel_reduce = PEN_REDUCE_STEP;
  t->data_parallel_reshard = PEN_RESHARD_STEP;
  t->cluster_hosts = (struct pen_strings){.count = 1, .value = localhost};
  t->cluster_spares = (struct pen_strings){.count = 0};
  t->cluster_mapping = (struct pen_integers){.choice = PEN_MAPPING_BLOCK};
  t->cluster_bind = (struct pen_integers){.choice = PEN_BIND_NONE};
  t->cluster_transport = pen_transport_for(t->cluster_device, false);
  t->cluster_ranks_per_host = pen_topology_process_count(t);
  t->cluster_interface = "";
  t->fallback_count = 0;
  t->fallbacks = NULL;
}

/* Costs by flops; memory as the step alone needs it. Of Muon the time of an element is AdamW's:
 * what NEWTON_SCHULZ adds follows from flops (gen/timing/step_time.c). */
static void take_defaults(struct pen_topology *t) {
  t->costs_forward = t->costs_backward_input = t->costs_backward_weight = t->costs_send =
      t->costs_send_host = t->costs_reduce = t->costs_gather = (struct pen_reals){.count = 0};
  t->has_costs_overlap = false;
  t->memory_limit_mib = t->memory_extra_receive_buffers = 0;
  t->memory_snapshot = t->memory_audit = false;
  t->generate_prompts = 0;
  t->model_outputs = (struct pen_strings){.count = 0};
  t->shapes_sequence = t->shapes_microbatches = (struct pen_integers){.count = 0};
  if (t->optimizer_name == PEN_OPTIMIZER_MUON) t->optimizer_name = PEN_OPTIMIZER_ADAMW;
  t->optimizer_weight_decay_groups = t->optimizer_groups = (struct pen_strings){.count = 0};
}

/* What is measured: blocks of a microbatch, with so many tensor ranks. */
struct measured_blocks {
  int64_t microbatch, tensor_ranks;
  bool doubled; /* tokens go to twice as many experts */
};

static struct pen_topology *measure_topology(const struct pen_topology *topology,
                                             struct measured_blocks blocks,
                                             enum pen_recompute_kind kind, int64_t replicas) {
  struct pen_topology *t = pen_new(1, sizeof *t);
  *t = *topology;
  t->only_trains = true;
  t->batch_microbatch = blocks.microbatch;
  take_tensor_ranks(t, blocks.tensor_ranks);
  if (blocks.doubled) t->model_experts_per_token *= 2;
  divide(t);
  take_replicas(t, replicas);
  take_defaults(t);
  int *recompute = pen_new((size_t)t->pipeline_stages_per_rank, sizeof *recompute);
  for (int64_t s = 0; s < t->pipeline_stages_per_rank; s++) recompute[s] = (int)kind;
  t->memory_recompute =
      (struct pen_chosen){.count = (size_t)t->pipeline_stages_per_rank, .value = recompute};
  return t;
}

/* The microbatches: those of plan.microbatch, or 1, 2, 4 and 8; and the topology's own. */
static struct pen_integers sizes_of(const struct pen_topology *topology) {
  const struct pen_integers all =
      topology->plan_microbatch.count
          ? topology->plan_microbatch
          : (struct pen_integers){.count = SIZES, .value = default_sizes};
  const int64_t own = topology->batch_microbatch;
  struct pen_integers sizes = {.value = pen_new(all.count + 1, sizeof *sizes.value)};
  bool has_own = false;
  for (size_t i = 0; i < all.count; i++) {
    const int64_t size = all.value[i];
    if (size > own && size * topology->model_sequence > TOKENS_MAX) continue;
    if (size % topology->batch_loss_group) continue; /* no whole groups */
    has_own = has_own || size == own;
    sizes.value[sizes.count++] = size;
  }
  if (!has_own) sizes.value[sizes.count++] = own;
  return sizes;
}

struct tensor_job {
  struct pen_topology *topology;
  int64_t ranks;
};

static void check_tensor_ranks(void *context) {
  const struct tensor_job *job = context;
  take_tensor_ranks(job->topology, job->ranks);
  pen_tensor_parallel_validate(job->topology);
}

/* The numbers of tensor ranks: those of plan.tensor that the model can have, or the topology's own.
 * On a GPU one, which computes the splits of all: only on CPUs can a tensor rank run without the
 * others. */
static struct pen_integers tensor_ranks_of(const struct pen_topology *topology) {
  const struct pen_integers *listed = &topology->plan_tensor;
  struct pen_integers ranks = {.value = pen_new(listed->count + 1, sizeof *ranks.value)};
  const bool on_host = pen_device_row(topology->cluster_device)->on_host;
  for (size_t i = 0; i < listed->count && on_host; i++) {
    struct pen_topology copy = *topology;
    struct pen_refusal refusal;
    if (pen_attempt(check_tensor_ranks, &(struct tensor_job){&copy, listed->value[i]}, &refusal))
      ranks.value[ranks.count++] = listed->value[i];
  }
  if (!ranks.count) ranks.value[ranks.count++] = on_host ? topology->tensor_parallel_ranks : 1;
  return ranks;
}

struct pen_topology **pen_measure_topologies(const struct pen_topology *topology, size_t *count) {
  const struct pen_integers sizes = sizes_of(topology), tensor = tensor_ranks_of(topology);
  struct pen_topology **measured =
      pen_new(tensor.count * sizes.count * ROUTES * RECOMPUTES + 1, sizeof(struct pen_topology *));
  const size_t routes = pen_experts_can_double(topology) ? ROUTES : 1;
  *count = 0;
  if (!topology->trains) return measured;
  for (size_t i = 0; i < routes * tensor.count * sizes.count; i++) {
    const size_t of_routes = i / routes;
    const struct measured_blocks blocks = {sizes.value[of_routes % sizes.count],
                                           tensor.value[of_routes / sizes.count], i % routes == 1};
    measured[(*count)++] = measure_topology(topology, blocks, PEN_RECOMPUTE_NONE, 1);
    measured[(*count)++] = measure_topology(topology, blocks, PEN_RECOMPUTE_FULL, 1);
  }
  measured[(*count)++] =
      measure_topology(topology, (struct measured_blocks){sizes.value[0], 1, false},
                       PEN_RECOMPUTE_NONE, replicas_of(topology));
  return measured;
}
