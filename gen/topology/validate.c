/* validate.c: checks settings against each other. */
#include "gen/topology/validate.h"

#include <string.h>

#include "gen/base/arena.h"
#include "gen/topology/data_parallel.h"
#include "gen/topology/description.h"
#include "gen/topology/experts.h"
#include "gen/topology/family_table.h"
#include "gen/topology/message.h"
#include "gen/topology/schedule_table.h"
#include "gen/topology/shapes.h"
#include "gen/topology/tensor_parallel.h"
#include "gen/topology/weight_optimizer.h"
#include "runtime/plan/plan.h"

enum {
  ACTIONS_MAX = 8000000,           /* a minute, and 2 GiB, of the generator */
  LAYER_MICROBATCHES_MAX = 1 << 22 /* 6 GiB: each action is verified layer by layer */
};
/* Of one tensor, so that sums over tensors and layers fit 64 bits. */
#define ELEMENTS_MAX (1LL << 40)

static bool is_cuda(const struct pen_topology *t) { return t->cluster_device == PEN_DEVICE_CUDA; }

/* ---- pipeline ---- */

/* Settings that the schedule determines must agree with it. */
static void check_schedule_row(const struct pen_topology *t, const struct pen_schedule *schedule) {
  if (schedule->strict && t->pipeline_placement != schedule->placement)
    pen_topology_fail(t, "pipeline.placement", "\"%s\", with the schedule %s",
                      pen_enum_text(pen_enum_placement, (int)schedule->placement), schedule->name);
  if (schedule->warmup && t->pipeline_warmup != schedule->warmup)
    pen_topology_fail(t, "pipeline.warmup", "%u, with the schedule %s", schedule->warmup,
                      schedule->name);
  if (schedule->warmup && schedule->split == PEN_SPLIT_ALWAYS && t->has_pipeline_zero_bubble &&
      !t->pipeline_zero_bubble)
    pen_topology_fail(t, "pipeline.zero_bubble", "true, with the schedule %s", schedule->name);
}

static void check_pipeline(const struct pen_topology *t) {
  const struct pen_schedule *schedule = pen_schedule_of(t->pipeline_schedule);
  uint32_t stages = (uint32_t)t->pipeline_stages_per_rank;
  if (stages < schedule->stages_minimum || stages > schedule->stages_maximum) {
    const char *range =
        schedule->stages_minimum == schedule->stages_maximum
            ? pen_text("%u", schedule->stages_minimum)
            : pen_text("%u to %u", schedule->stages_minimum, schedule->stages_maximum);
    pen_topology_fail(t, "pipeline.stages_per_rank", "%s, with the schedule %s", range,
                      schedule->name);
  }
  check_schedule_row(t, schedule);
}

/* The number of stage boundaries between two ranks: each needs messages. */
static int64_t border_count(const struct pen_topology *t) {
  int64_t ranks = t->pipeline_ranks, turns = t->pipeline_stages_per_rank - 1,
          stages = ranks * (turns + 1);
  if (ranks == 1) return 0;
  return stages - 1 - (t->pipeline_placement == PEN_PLACEMENT_V ? turns : 0);
}

/* Checks products of settings; all fit 64 bits. */
static void check_actions(const struct pen_topology *t) {
  const struct pen_schedule *schedule = pen_schedule_of(t->pipeline_schedule);
  bool trains = t->trains, split = pen_schedule_splits(schedule, t);
  int64_t kinds = !trains ? 1 : split ? 3 : 2, transfers = trains ? 4 : 2;
  int64_t stages = t->pipeline_ranks * t->pipeline_stages_per_rank;
  int64_t actions = t->pipeline_microbatches * (stages * kinds + border_count(t) * transfers);
  if (actions > ACTIONS_MAX)
    pen_topology_fail(t, "pipeline.microbatches",
                      "at most %d actions; %lld ranks x %lld stages and these would make %lld",
                      ACTIONS_MAX, (long long)t->pipeline_ranks,
                      (long long)t->pipeline_stages_per_rank, (long long)actions);
  if (t->pipeline_microbatches * t->model_layers > LAYER_MICROBATCHES_MAX)
    pen_topology_fail(
        t, "pipeline.microbatches",
        "microbatches times model.layers are at most %d: at most %lld with %lld layers",
        LAYER_MICROBATCHES_MAX, (long long)(LAYER_MICROBATCHES_MAX / t->model_layers),
        (long long)t->model_layers);
  if (stages > UINT16_MAX) /* struct pen_action's stage */
    pen_topology_fail(t, "pipeline.stages_per_rank",
                      "at most %d stages in all; %lld ranks would have %lld", UINT16_MAX,
                      (long long)t->pipeline_ranks, (long long)stages);
}

/* ---- model ---- */

static void check_heads(const struct pen_topology *t, bool rotary) {
  long long heads = t->model_heads, hidden = t->model_hidden;
  if (heads % t->model_kv_heads)
    pen_topology_fail(t, "model.kv_heads", "a divisor of model.heads = %lld", heads);
  if (!t->has_model_head_dim && hidden % heads)
    pen_topology_fail(t, "model.heads",
                      "a divisor of model.hidden = %lld, unless model.head_dim is given", hidden);
  if (!rotary || t->model_head_dim % 2 == 0) return;
  if (!t->has_model_head_dim)
    pen_topology_fail(t, "model.heads",
                      "model.hidden/model.heads = %lld must be even, for rotary positions",
                      (long long)t->model_head_dim);
  pen_topology_fail(t, "model.head_dim", "an even number, for rotary positions");
}

static void check_window(const struct pen_topology *t, const struct pen_family_row *family) {
  bool has_local = family->windows == PEN_WINDOW_LOCAL_LAYERS;
  if (family->windows == PEN_WINDOW_NO_LAYER && t->model_window > 0)
    pen_topology_fail(t, "model.window", "0; family %s has no sliding window", family->name);
  if (has_local && t->model_window == 0)
    pen_topology_fail(t, "model.window", "1 or more, with family %s", family->name);
  if (!has_local && t->has_model_rope_local_theta)
    pen_topology_fail(t, "model.rope_local_theta",
                      "none, with family %s, which has no local layers", family->name);
  if (!has_local && t->has_model_query_scalar)
    pen_topology_fail(t, "model.query_scalar", "none, with family %s, where it is model.head_dim",
                      family->name);
}

static void check_rope(const struct pen_topology *t) {
  /* 0: this scaling does not use it */
  if (t->model_rope_high_freq_factor > 0 &&
      t->model_rope_high_freq_factor <= t->model_rope_low_freq_factor)
    pen_topology_fail(t, "model.rope_high_freq_factor", "above model.rope_low_freq_factor = %g",
                      t->model_rope_low_freq_factor);
  if (t->model_rope_beta_fast > 0 && t->model_rope_beta_fast <= t->model_rope_beta_slow)
    pen_topology_fail(t, "model.rope_beta_fast", "above model.rope_beta_slow = %g",
                      t->model_rope_beta_slow);
  if (t->model_rope_beta_fast > 0 && t->model_rope_theta <= 1)
    pen_topology_fail(t, "model.rope_theta", "above 1, with model.rope_scaling = \"yarn\"");
  if (!t->model_rope_truncate &&
      pen_family_row_of(t->model_family)->windows == PEN_WINDOW_LOCAL_LAYERS)
    pen_topology_fail(t, "model.rope_truncate", "true, with family %s, as transformers has it",
                      pen_family_row_of(t->model_family)->name);
}

static void check_biases(const struct pen_topology *t, const struct pen_family_row *family) {
  if (t->model_attention_bias && !family->biases)
    pen_topology_fail(t, "model.attention_bias", "false, with family %s", family->name);
  if (t->model_mlp_bias && !family->biases)
    pen_topology_fail(t, "model.mlp_bias", "false, with family %s", family->name);
}

static void check_outputs(const struct pen_topology *t) {
  const struct pen_strings *outputs = &t->model_outputs;
  if (outputs->count && t->tensor_parallel_splits > 1)
    pen_topology_fail(t, "model.outputs", "none, with tensor_parallel.splits = %lld",
                      (long long)t->tensor_parallel_splits);
  if (outputs->count && t->shapes_sequence.count)
    pen_topology_fail(t, "model.outputs", "none, with shapes, whose sequences are shorter");
  for (size_t n = 0; n < outputs->count; n++)
    for (size_t other = 0; other < n; other++)
      if (strcmp(outputs->value[n], outputs->value[other]) == 0)
        pen_topology_fail(t, "model.outputs", "names that differ; two are \"%s\"",
                          outputs->value[n]);
}

/* A microbatch has whole groups of samples. */
static void check_loss_group(const struct pen_topology *t) {
  if (t->batch_loss_group > 1 && !t->description)
    pen_topology_fail(t, "batch.loss_group", "1, but with model.family = \"described\"");
  if (t->batch_microbatch % t->batch_loss_group)
    pen_topology_fail(t, "batch.microbatch", "a multiple of %lld, batch.loss_group",
                      (long long)t->batch_loss_group);
}

static void check_model(const struct pen_topology *t) {
  const struct pen_family_row *family = pen_family_row_of(t->model_family);
  if (family->needs_tokens == (t->model_loss == PEN_LOSS_SUM))
    pen_topology_fail(
        t, "model.loss", "%s; family %s has %s",
        family->needs_tokens ? "\"cross_entropy\" or \"cross_entropy_sum\"" : "\"sum\"",
        family->name, family->needs_tokens ? "targets" : "no targets");
  check_outputs(t);
  if (t->description && t->description->share_count > 0 && t->model_loss != PEN_LOSS_CROSS_ENTROPY)
    pen_topology_fail(t, "model.loss",
                      "\"cross_entropy\"; the losses of %s have shares of their own",
                      t->description->path);
  check_loss_group(t);
  check_window(t, family);
  check_biases(t, family);
  if (!family->needs_tokens || t->description) return;
  check_heads(t, family->rotary);
  check_rope(t);
}

/* Fails if a tensor is so large that sizes overflow. */
static void check_elements(const struct pen_topology *t) {
  bool tokens = pen_family_row_of(t->model_family)->needs_tokens;
  int64_t rows = t->batch_microbatch * t->model_sequence, widest = t->model_hidden, elements;
  if (tokens && t->model_ffn > widest) widest = t->model_ffn;
  if (tokens && t->model_vocab > widest) widest = t->model_vocab;
  if (tokens && t->model_heads * t->model_head_dim > widest)
    widest = t->model_heads * t->model_head_dim;
  if (__builtin_mul_overflow(rows, widest, &elements) || elements > ELEMENTS_MAX)
    pen_topology_fail(t, "batch.microbatch",
                      "at most 2^40 elements a tensor; x model.sequence = %lld x %lld wide is more",
                      (long long)t->model_sequence, (long long)widest);
  if (__builtin_mul_overflow(t->model_hidden, widest, &elements) || elements > ELEMENTS_MAX)
    pen_topology_fail(t, "model.hidden", "at most 2^40 elements a tensor; x %lld wide is more",
                      (long long)widest);
}

/* ---- optimizer ---- */

static void check_settings_of_optimizers(const struct pen_topology *t) {
  for (size_t i = 0; i < pen_setting_count; i++) {
    const struct pen_setting *setting = &pen_settings[i];
    const bool given = *(const bool *)((const char *)t + setting->has_offset);
    if (given && !pen_optimizer_has_setting(t, setting))
      pen_topology_fail(t, pen_text("%s.%s", setting->group, setting->name),
                        "not given, with optimizer.name = \"%s\"%s",
                        pen_enum_text(pen_enum_optimizer_kind, (int)t->optimizer_name),
                        t->optimizer_groups.count ? " and these optimizer.groups" : "");
  }
}

static void check_optimizer(const struct pen_topology *t) {
  int64_t left = t->optimizer_steps - t->optimizer_warmup_steps;
  if (left < 0 && t->trains)
    pen_topology_warn(
        t, "optimizer.warmup_steps",
        "longer than optimizer.steps = %lld, which end at %.3g of optimizer.learning_rate",
        (long long)t->optimizer_steps,
        (double)t->optimizer_steps / (double)t->optimizer_warmup_steps);
  if (left >= 0 && t->trains && t->has_optimizer_decay_steps && t->optimizer_decay_steps > left)
    pen_topology_fail(t, "optimizer.decay_steps",
                      "at most optimizer.steps - optimizer.warmup_steps = %lld", (long long)left);
  check_settings_of_optimizers(t);
  if (t->optimizer_nesterov && t->optimizer_momentum == 0)
    pen_topology_fail(t, "optimizer.nesterov", "false, without optimizer.momentum");
  pen_weight_decay_check_groups(t);
}

/* ---- cluster ---- */

/* The most blocks of a grid in y and z (CUDA C++ Programming Guide, "Compute Capabilities"). */
enum { GRID_MOST = 65535 };

/* Checks what the attention kernels on a GPU support. */
static void check_heads_on_gpu(const struct pen_topology *t) {
  if (!is_cuda(t) || !pen_family_row_of(t->model_family)->needs_tokens) return;
  if (t->model_dtype == PEN_BF16 && (t->model_head_dim % 8 || t->model_head_dim > 128))
    pen_topology_fail(
        t, "model.head_dim",
        "a multiple of 8, at most 128, with model.dtype = \"bf16\" and cluster.device = \"cuda\"");
  if (t->model_head_dim > 256)
    pen_topology_fail(t, "model.head_dim", "at most 256, with cluster.device = \"cuda\"");
  /* The z dimension of a grid counts sequences; its y dimension counts blocks of at least 32 of
   * their tokens, never too many. */
  if (t->batch_microbatch > GRID_MOST)
    pen_topology_fail(t, "batch.microbatch", "at most %d, with cluster.device = \"cuda\"",
                      GRID_MOST);
}

/* bf16 elements in 16 bytes, the best alignment for tensor cores (cuBLAS Library, "Tensor Core
 * Usage"). */
enum { FAST_ROW = 8 };

/* Warns of row lengths that make bf16 matrix products slow. Those of heads are multiples of 8
 * already. */
static void warn_of_rows_on_gpu(const struct pen_topology *t) {
  const struct {
    const char *setting;
    int64_t length;
  } rows[] = {{"model.hidden", t->model_hidden},
              {"model.ffn", t->model_ffn},
              {"model.vocab", t->model_vocab}};
  if (!is_cuda(t) || t->model_dtype != PEN_BF16 ||
      !pen_family_row_of(t->model_family)->needs_tokens)
    return;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    if (rows[i].length % FAST_ROW)
      pen_topology_warn(
          t, rows[i].setting,
          "not a multiple of %d: bf16 matrix products of such rows are slower on a GPU", FAST_ROW);
}

static void check_host_names(const struct pen_topology *t, const char *setting,
                             const struct pen_strings *hosts) {
  static const char allowed[] =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_:";
  for (size_t h = 0; h < hosts->count; h++)
    if (!*hosts->value[h] || *hosts->value[h] == '-' ||
        hosts->value[h][strspn(hosts->value[h], allowed)])
      pen_topology_fail(t, setting, "names or addresses of hosts, which do not begin with -");
}

static void check_spares(const struct pen_topology *t) {
  const struct pen_strings *hosts = &t->cluster_hosts, *spares = &t->cluster_spares;
  check_host_names(t, "cluster.spares", spares);
  if (spares->count && hosts->count < 2 && !t->fallback)
    pen_topology_fail(t, "cluster.spares", "an empty list where cluster.hosts has one host");
}

/* A host or a spare, counted through both lists. */
static const char *host_at(const struct pen_topology *t, size_t index) {
  const struct pen_strings *hosts = &t->cluster_hosts;
  return index < hosts->count ? hosts->value[index] : t->cluster_spares.value[index - hosts->count];
}

/* A command finds its ranks by the name of its host. */
static void check_names_differ(const struct pen_topology *t) {
  const size_t hosts = t->cluster_hosts.count, all = hosts + t->cluster_spares.count;
  for (size_t h = 0; h < all; h++)
    for (size_t before = 0; before < h; before++)
      if (!strcmp(host_at(t, h), host_at(t, before)))
        pen_topology_fail(t, h < hosts ? "cluster.hosts" : "cluster.spares",
                          "hosts that no list has a second time, not %s twice", host_at(t, h));
}

/* The first host listens on a port. */
static void check_hosts(const struct pen_topology *t) {
  check_host_names(t, "cluster.hosts", &t->cluster_hosts);
  check_spares(t);
  check_names_differ(t);
  if (t->cluster_hosts.count < 2) return;
  if (!pen_transport_row(t->cluster_transport)->between_hosts)
    pen_topology_fail(
        t, "cluster.hosts",
        "one host, with cluster.transport = \"%s\": only %s works between hosts",
        pen_transport_row(t->cluster_transport)->text,
        pen_transport_row(pen_transport_row(pen_transport_for(t->cluster_device, true))->between)
            ->text);
  if (!t->has_cluster_port)
    pen_topology_fail(t, "cluster.port", "a TCP port on which the first host listens");
}

/* A fallback has as many hosts as its ranks need, the last perhaps with fewer ranks. */
static void check_ranks_per_host(const struct pen_topology *t) {
  if (t->fallback) return;
  int64_t total = pen_topology_process_count(t), hosts = (int64_t)t->cluster_hosts.count;
  if (hosts == 0) pen_topology_fail(t, "cluster.hosts", "a list of at least one host");
  if (t->has_cluster_ranks_per_host && t->cluster_ranks_per_host * hosts != total)
    pen_topology_fail(t, "cluster.ranks_per_host", "%lld %s on %lld hosts make %s",
                      (long long)total, pen_topology_process_factors(t), (long long)hosts,
                      total % hosts ? "not a whole number for each host"
                                    : pen_text("%lld", (long long)(total / hosts)));
  if (total % hosts)
    pen_topology_fail(t, "cluster.hosts", "a number of hosts that divides the %lld %s",
                      (long long)total, pen_topology_process_factors(t));
}

/* A list has the index of a host for each rank of all replicas, each host as often as any other; in
 * a fallback, at most cluster.ranks_per_host times. */
static void check_mapping(const struct pen_topology *t) {
  size_t total = (size_t)pen_topology_process_count(t), hosts = t->cluster_hosts.count;
  const struct pen_integers *mapping = &t->cluster_mapping;
  if (mapping->choice != PEN_UNSET) return;
  if (mapping->count != total)
    pen_topology_fail(t, "cluster.mapping", "a list of %zu, one a rank", total);
  size_t *ranks = pen_new(hosts, sizeof *ranks);
  for (size_t r = 0; r < total; r++) {
    if (mapping->value[r] >= (int64_t)hosts)
      pen_topology_fail(t, "cluster.mapping", "indices of the %zu hosts, from 0", hosts);
    ranks[mapping->value[r]]++;
  }
  const size_t per_host = (size_t)t->cluster_ranks_per_host;
  for (size_t h = 0; h < hosts && t->fallback; h++)
    if (ranks[h] == 0 || ranks[h] > per_host)
      pen_topology_fail(t, "cluster.mapping",
                        "each of %zu hosts 1 to %zu times, not host %zu %zu times", hosts, per_host,
                        h, ranks[h]);
  for (size_t h = 0; h < hosts && !t->fallback; h++)
    if (ranks[h] != total / hosts)
      pen_topology_fail(t, "cluster.mapping", "each host %zu times, not host %zu %zu times",
                        total / hosts, h, ranks[h]);
}

/* A list has the cores of the ranks of a host. */
static void check_bind(const struct pen_topology *t) {
  const size_t cores = (size_t)(t->cluster_ranks_per_host * t->cluster_threads_per_rank);
  if (t->cluster_bind.choice == PEN_UNSET && t->cluster_bind.count != cores)
    pen_topology_fail(t, "cluster.bind", "a list of %zu cores, %lld for each rank of a host", cores,
                      (long long)t->cluster_threads_per_rank);
}

/* A list has the factor of each rank of a replica. */
static void check_speed(const struct pen_topology *t) {
  const struct pen_reals *speed = &t->cluster_speed;
  if (!speed->value || (!speed->for_all && speed->count == (size_t)t->pipeline_ranks)) return;
  pen_topology_fail(t, "cluster.speed", "a list of %lld factors, one for each of pipeline.ranks",
                    (long long)t->pipeline_ranks);
}

/* The transport is one of the device's. */
static void check_transport(const struct pen_topology *t) {
  const char *allowed = "";
  for (int k = PEN_TRANSPORT_AUTO + 1; k < PEN_TRANSPORTS; k++)
    if (pen_transport_row(k)->device == t->cluster_device)
      allowed = pen_text("%s%s\"%s\"", allowed, *allowed ? " or " : "", pen_transport_row(k)->text);
  if (pen_transport_row(t->cluster_transport)->device != t->cluster_device)
    pen_topology_fail(t, "cluster.transport", "%s, with the device %s", allowed,
                      pen_device_row(t->cluster_device)->text);
}

static void check_cluster(const struct pen_topology *t) {
  check_speed(t);
  check_ranks_per_host(t);
  check_mapping(t);
  pen_tensor_parallel_check_mapping(t);
  check_bind(t);
  bool cuda = is_cuda(t);
  check_transport(t);
  check_hosts(t);
  check_heads_on_gpu(t);
  warn_of_rows_on_gpu(t);
  if (t->model_loss_rows % PEN_HEAD_CHUNK)
    pen_topology_fail(t, "model.loss_rows", "a multiple of %d", PEN_HEAD_CHUNK);
  if (t->data_parallel_replicas > PEN_DEVICE_ARRAYS_MAX && cuda)
    pen_topology_fail(t, "data_parallel.replicas", "at most %d, with cluster.device = \"cuda\"",
                      PEN_DEVICE_ARRAYS_MAX);
  if (t->memory_audit && cuda)
    pen_topology_fail(t, "memory.audit", "false, with cluster.device = \"cuda\"");
  if (t->cluster_threads_per_rank > 1 && cuda)
    pen_topology_fail(t, "cluster.threads_per_rank", "1, with cluster.device = \"cuda\"");
}

void pen_topology_validate(const struct pen_topology *topology) {
  check_pipeline(topology);
  check_model(topology);
  check_optimizer(topology);
  check_actions(topology);
  for (size_t i = 0; i < topology->shapes_sequence.count; i++)
    check_actions(pen_topology_of_shape(topology, i));
  check_elements(topology);
  pen_data_parallel_validate(topology);
  pen_tensor_parallel_validate(topology);
  pen_experts_validate(topology);
  check_cluster(topology);
}
