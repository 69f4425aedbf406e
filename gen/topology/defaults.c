/* defaults.c: settings that must be given, and defaults that depend on other settings. */
#include "gen/topology/defaults.h"

#include <string.h>

#include "gen/base/arena.h"
#include "gen/base/error.h"
#include "gen/topology/data_parallel.h"
#include "gen/topology/experts.h"
#include "gen/topology/family_table.h"
#include "gen/topology/message.h"
#include "gen/topology/schedule_table.h"
#include "gen/topology/tensor_parallel.h"
#include "gen/topology/settings.h"
#include "gen/topology/weight_optimizer.h"
#include "runtime/plan/plan.h"

enum pen_device_kind pen_device_auto = PEN_DEVICE_CPU;

enum { LOSS_ROWS_ON_GPU = 2048 }; /* enough for the full throughput of the matrix products */
#define LOCAL_THETA 10000.0       /* of Gemma 3 */
#define MUON_MOMENTUM 0.95        /* Jordan et al. 2024 */

/* ---- missing settings ---- */

static bool is_given(const struct pen_topology *topology, const char *path) {
  return pen_topology_origin(topology, pen_setting_find_path(path))->where != NULL;
}

/* Fails if one of `paths`, separated by spaces, is not set. The message has `why` before what is
 * allowed. */
static void require_settings(const struct pen_topology *topology, const char *paths,
                             const char *why) {
  while (*paths) {
    size_t bytes = strcspn(paths, " ");
    const char *path = pen_text("%.*s", (int)bytes, paths);
    if (!is_given(topology, path))
      pen_stop(PEN_EXIT_TOPOLOGY, "%s: %s: missing; %s%s", topology->path, path, why,
               pen_setting_allowed(pen_setting_find_path(path)));
    paths += bytes + (paths[bytes] == ' ');
  }
}

/* A schedule file may be forward-only. Each of the letters B, I, W in it is a backward, or an error
 * that the reader of the file reports. */
static void require_schedule(struct pen_topology *t) {
  const struct pen_schedule *schedule = pen_schedule_of(t->pipeline_schedule);
  t->trains = schedule->trains;
  if (schedule->given != PEN_GIVEN_BY_FILE) return;
  require_settings(t, "pipeline.schedule_file",
                   pen_text("schedule %s needs it: the path of a CSV, ", schedule->name));
  pen_topology_read_schedule_file(t);
  t->trains = false;
  for (size_t i = 0; i < t->schedule_bytes; i++)
    t->trains |= strchr("BIW", t->schedule_text[i]) != NULL;
}

static void require_rope(const struct pen_topology *t) {
  const enum pen_rope_scaling kind = t->model_rope_scaling;
  const struct {
    bool given;
    const char *name;
  } needs_kind[] = {{t->has_model_rope_factor, "factor"},
                    {t->has_model_rope_original_sequence, "original_sequence"},
                    {t->has_model_rope_low_freq_factor, "low_freq_factor"},
                    {t->has_model_rope_high_freq_factor, "high_freq_factor"},
                    {t->has_model_rope_beta_fast, "beta_fast"},
                    {t->has_model_rope_beta_slow, "beta_slow"},
                    {t->has_model_rope_truncate, "truncate"},
                    {t->has_model_rope_attention_factor, "attention_factor"},
                    {t->has_model_rope_mscale, "mscale"},
                    {t->has_model_rope_mscale_all_dim, "mscale_all_dim"}};
  for (size_t i = 0; !t->has_model_rope_scaling && i < sizeof needs_kind / sizeof *needs_kind; i++)
    if (needs_kind[i].given)
      require_settings(t, "model.rope_scaling",
                       pen_text("model.rope_%s needs it: ", needs_kind[i].name));
  if (!t->has_model_rope_scaling || kind == PEN_ROPE_SCALING_NONE) return;
  const char *why = pen_text("model.rope_scaling = \"%s\" needs it: ",
                             pen_enum_text(pen_enum_rope_scaling, (int)kind));
  require_settings(t, "model.rope_factor", why);
  if (kind != PEN_ROPE_SCALING_LINEAR) require_settings(t, "model.rope_original_sequence", why);
}

void pen_topology_require(struct pen_topology *topology) {
  if (topology->has_plan_ranks && !topology->has_pipeline_ranks)
    pen_stop(
        PEN_EXIT_TOPOLOGY,
        "%s: pipeline.ranks: missing; with the group plan, penstock-plan chooses it and writes "
        "a topology that has it (penstock-plan -o FILE %s)",
        topology->path, topology->path);
  require_settings(
      topology,
      "pipeline.ranks pipeline.microbatches pipeline.schedule model.family batch.microbatch", "");
  require_schedule(topology);
  const struct pen_family_row *family = pen_family_row_of(topology->model_family);
  require_settings(topology, "model.layers model.hidden model.sequence", "");
  if (family->needs_tokens && !topology->description)
    require_settings(topology,
                     family->experts ? "model.heads model.experts model.experts_per_token "
                                       "model.moe_ffn model.vocab"
                                     : "model.heads model.ffn model.vocab",
                     pen_text("family %s needs it: ", family->name));
  if (family->windows == PEN_WINDOW_LOCAL_LAYERS)
    require_settings(topology, "model.window", pen_text("family %s needs it: ", family->name));
  if (topology->trains) require_settings(topology, "optimizer.learning_rate optimizer.steps", "");
  if (family->needs_tokens && family->rotary) require_rope(topology);
}

void pen_topology_require_plan(const struct pen_topology *written) {
  require_settings(written, "plan.ranks plan.sequences plan.memory_mib model.family model.layers",
                   "");
}

/* ---- defaults ---- */

static void default_pipeline(struct pen_topology *t) {
  const struct pen_schedule *schedule = pen_schedule_of(t->pipeline_schedule);
  if (!t->has_pipeline_placement)
    t->pipeline_placement = schedule->given == PEN_GIVEN_BY_FILE ? pen_topology_placement_of_file(t)
                                                                 : schedule->placement;
  if (!t->has_pipeline_warmup)
    t->pipeline_warmup = pen_schedule_warmup(schedule, t, (uint32_t)t->pipeline_stages_per_rank);
}

/* A group for each rank to work on. */
static void default_generate(struct pen_topology *t) {
  if (!t->has_generate_microbatches)
    t->generate_microbatches =
        t->pipeline_ranks < PEN_GROUPS_MAX ? t->pipeline_ranks : PEN_GROUPS_MAX;
}

static bool has_group(const struct pen_topology *t, const char *group) {
  bool has = false;
  for (size_t i = 0; i < pen_setting_count; i++)
    has |= !strcmp(pen_settings[i].group, group) &&
           *(const bool *)((const char *)t + pen_settings[i].has_offset);
  return has;
}

/* One rank has nothing to balance. */
static void default_partition(struct pen_topology *t) {
  t->cuts_by_default = t->pipeline_ranks > 1 && !has_group(t, "partition");
  if (!t->has_partition_balance)
    t->partition_balance = t->cuts_by_default ? PEN_BALANCE_TIME : PEN_BALANCE_COUNT;
  if (t->cuts_by_default) t->partition_unit = PEN_CUT_BLOCK;
}

static void default_llama3(struct pen_topology *t, bool is_used) {
  if (!is_used) {
    t->model_rope_low_freq_factor = t->model_rope_high_freq_factor = 0;
    return;
  }
  if (!t->has_model_rope_low_freq_factor) t->model_rope_low_freq_factor = 1;
  if (!t->has_model_rope_high_freq_factor) t->model_rope_high_freq_factor = 4;
}

static void default_yarn(struct pen_topology *t, bool is_used) {
  if (!is_used) {
    t->model_rope_beta_fast = t->model_rope_beta_slow = t->model_rope_attention_factor = 0;
    t->model_rope_mscale = t->model_rope_mscale_all_dim = 0;
    t->model_rope_truncate = true;
    return;
  }
  if (!t->has_model_rope_beta_fast) t->model_rope_beta_fast = 32;
  if (!t->has_model_rope_beta_slow) t->model_rope_beta_slow = 1;
}

/* Settings that the kind of rope scaling does not use have no value, so that they are not part of
 * the model's digest. */
static void default_rope(struct pen_topology *t, bool rotary) {
  if (!rotary || t->model_rope_scaling == PEN_ROPE_SCALING_NONE)
    t->model_rope_scaling = (enum pen_rope_scaling)PEN_UNSET;
  const bool stretches_some = t->model_rope_scaling == PEN_ROPE_SCALING_LLAMA3 ||
                              t->model_rope_scaling == PEN_ROPE_SCALING_YARN;
  if ((int)t->model_rope_scaling == PEN_UNSET) t->model_rope_factor = 0;
  if (!stretches_some) t->model_rope_original_sequence = 0;
  default_llama3(t, t->model_rope_scaling == PEN_ROPE_SCALING_LLAMA3);
  default_yarn(t, t->model_rope_scaling == PEN_ROPE_SCALING_YARN);
}

static void default_model(struct pen_topology *t) {
  const struct pen_family_row *family = pen_family_row_of(t->model_family);
  bool has_local = family->windows == PEN_WINDOW_LOCAL_LAYERS;
  if (family->windows == PEN_WINDOW_NO_LAYER && t->model_window == 0)
    t->model_window = -1; /* no value, which is no part of the model's digest */
  if (has_local && !t->has_model_rope_local_theta) t->model_rope_local_theta = LOCAL_THETA;
  if (!t->has_model_loss) t->model_loss = family->loss;
  if (t->description) return; /* described_settings.c has set the rest */
  if (!t->has_model_tie_embeddings) t->model_tie_embeddings = family->ties;
  if (!family->needs_tokens) return;
  if (!t->has_model_kv_heads) t->model_kv_heads = t->model_heads;
  if (!t->has_model_head_dim) t->model_head_dim = t->model_hidden / t->model_heads;
  if (has_local && !t->has_model_query_scalar) t->model_query_scalar = t->model_head_dim;
  default_rope(t, family->rotary);
}

/* Training that is shorter than its warm-up has no decay. */
static void default_optimizer(struct pen_topology *t) {
  const bool muon = pen_optimizer_is_used(t, PEN_OPTIMIZER_MUON);
  int64_t left = t->optimizer_steps - t->optimizer_warmup_steps,
          tenth = (t->optimizer_steps + 9) / 10;
  if (left < 0)
    t->optimizer_decay_steps = 0;
  else if (!t->has_optimizer_decay_steps && t->optimizer_decay == PEN_DECAY_WSD)
    t->optimizer_decay_steps = tenth < left ? tenth : left;
  if (!t->has_optimizer_momentum) t->optimizer_momentum = muon ? MUON_MOMENTUM : 0;
  if (!t->has_optimizer_nesterov) t->optimizer_nesterov = muon && t->optimizer_momentum > 0;
}

static void default_cluster(struct pen_topology *t) {
  int64_t hosts = (int64_t)t->cluster_hosts.count;
  if (!t->has_cluster_ranks_per_host && hosts)
    t->cluster_ranks_per_host = pen_topology_process_count(t) / hosts;
  if (t->cluster_device == PEN_DEVICE_AUTO) t->cluster_device = pen_device_auto;
  if (t->cluster_transport == PEN_TRANSPORT_AUTO)
    t->cluster_transport = pen_transport_for(t->cluster_device, hosts > 1);
  if (!t->has_model_loss_rows)
    t->model_loss_rows = pen_device_row(t->cluster_device)->on_host ? 0 : LOSS_ROWS_ON_GPU;
  if (!t->has_memory_extra_receive_buffers)
    t->memory_extra_receive_buffers = -1; /* layout chooses */
}

void pen_topology_set_defaults(struct pen_topology *topology) {
  topology->sequence = topology->model_sequence;
  default_pipeline(topology);
  default_partition(topology);
  default_generate(topology);
  default_model(topology);
  default_optimizer(topology);
  pen_data_parallel_set_defaults(topology);
  pen_tensor_parallel_set_defaults(topology);
  pen_experts_set_defaults(topology);
  default_cluster(topology);
}

/* ---- lists ---- */

/* False: the list has neither one value for all stages nor a value for each. */
static bool expand_list(size_t *count, void **values, bool for_all, size_t bytes, size_t stages) {
  if (!*values || *count == stages) return true;
  if (!for_all) return false;
  char *all = pen_new(stages, bytes);
  for (size_t i = 0; i < stages; i++) memcpy(all + i * bytes, *values, bytes);
  *values = all;
  *count = stages;
  return true;
}

static void expand_reals(const struct pen_topology *t, const char *path, struct pen_reals *list) {
  size_t stages = (size_t)(t->pipeline_ranks * t->pipeline_stages_per_rank);
  void *values = list->value;
  if (!expand_list(&list->count, &values, list->for_all, sizeof *list->value, stages))
    pen_topology_fail(t, path, "one number, or a list of %zu, one a stage", stages);
  list->value = values;
}

void pen_topology_expand_lists(struct pen_topology *t) {
  expand_reals(t, "costs.forward", &t->costs_forward);
  expand_reals(t, "costs.backward_input", &t->costs_backward_input);
  expand_reals(t, "costs.backward_weight", &t->costs_backward_weight);
  expand_reals(t, "costs.send", &t->costs_send);
  expand_reals(t, "costs.send_host", &t->costs_send_host);
  expand_reals(t, "costs.reduce", &t->costs_reduce);
  expand_reals(t, "costs.gather", &t->costs_gather);
  size_t stages = (size_t)(t->pipeline_ranks * t->pipeline_stages_per_rank);
  struct pen_chosen *recompute = &t->memory_recompute;
  void *values = recompute->value;
  if (!expand_list(&recompute->count, &values, recompute->for_all, sizeof *recompute->value,
                   stages))
    pen_topology_fail(t, "memory.recompute", "one choice, or a list of %zu, one a stage", stages);
  recompute->value = values;
}
