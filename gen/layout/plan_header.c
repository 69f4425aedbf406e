/* plan_header.c: the fields of the plan that follow from the settings. */
#include "gen/layout/plan_header.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/config_write.h"
#include "base/json_text.h"
#include "gen/base/arena.h"
#include "gen/base/error.h"
#include "gen/base/version.h"
#include "gen/families/families.h"
#include "gen/model/pointwise.h"
#include "gen/topology/description.h"
#include "gen/topology/experts.h"
#include "gen/topology/schedule_table.h"
#include "gen/topology/settings.h"
#include "gen/topology/value.h"

static struct pen_optimizer optimizer_settings(const struct pen_topology *t) {
  return (struct pen_optimizer){.learning_rate = t->optimizer_learning_rate,
                                .minimum_ratio = t->optimizer_minimum_ratio,
                                .beta1 = t->optimizer_beta1,
                                .beta2 = t->optimizer_beta2,
                                .epsilon = t->optimizer_epsilon,
                                .momentum = t->optimizer_momentum,
                                .nesterov = t->optimizer_nesterov,
                                .ns_steps = (uint32_t)t->optimizer_ns_steps,
                                .clip_norm = t->optimizer_clip_norm,
                                .warmup_steps = (uint64_t)t->optimizer_warmup_steps,
                                .steps = (uint64_t)t->optimizer_steps,
                                .decay_steps = (uint64_t)t->optimizer_decay_steps,
                                .decay = (uint8_t)t->optimizer_decay,
                                .norm = (uint8_t)t->optimizer_norm};
}

/* The hosts, then the spares. */
static const char *const *host_names(const struct pen_topology *t) {
  const size_t hosts = t->cluster_hosts.count, spares = t->cluster_spares.count;
  const char **names = pen_new(hosts + spares, sizeof *names);
  for (size_t h = 0; h < hosts; h++) names[h] = t->cluster_hosts.value[h];
  for (size_t s = 0; s < spares; s++) names[hosts + s] = t->cluster_spares.value[s];
  return names;
}

/* cluster.bind: a choice, or the cores of the ranks of a host. */
static void set_binding(struct pen_plan *plan, const struct pen_topology *t) {
  const struct pen_integers *bind = &t->cluster_bind;
  plan->bind = bind->choice == PEN_UNSET ? PEN_BIND_LIST : (uint8_t)bind->choice;
  plan->core_count = (uint32_t)bind->count;
  uint32_t *core = pen_new(bind->count + 1, sizeof *core);
  for (size_t i = 0; i < bind->count; i++) core[i] = (uint32_t)bind->value[i];
  plan->cores = core;
}

static const char *model_setting(const void *topology, const char *name) {
  return pen_value_text(topology, pen_setting_find("model", strlen("model"), name));
}

/* As transformers reads it. */
static const char *config_json(const struct pen_topology *t, const struct pen_family *family) {
  if (family->config_json != NULL) return family->config_json(t);
  const struct pen_config_source source = {model_setting, t};
  json_t *object = pen_config_object(family->name, &source);
  char *text = pen_json_text(object);
  if (text == NULL) pen_stop(PEN_EXIT_INTERNAL, "no memory for config.json");
  const char *kept = pen_text("%s", text);
  free(text);
  json_decref(object);
  return kept;
}

/* Whether the elements of an input that are not -100 are targets: an op or a share counts them. */
static bool has_targets(const struct pen_description *d, uint32_t input) {
  bool has = d->input[input].declared[PEN_USED_AS_TARGETS] != NULL;
  for (size_t s = 0; s < d->share_count; s++)
    has = has || (d->share[s].over == PEN_SHARE_TARGETS && d->share[s].input == input);
  return has;
}

/* The inputs of a description that data have by their names, in its order. */
static void set_inputs(struct pen_plan *plan, const struct pen_description *d) {
  struct pen_input *inputs = pen_new(d->input_count + 1, sizeof *inputs);
  for (uint32_t i = 0; i < d->input_count; i++) {
    const struct pen_described_input *from = &d->input[i];
    if (from->from != PEN_SOURCE_NAME) continue;
    struct pen_input *input = &inputs[plan->input_count++];
    *input = (struct pen_input){.name = from->name,
                                .dtype = from->dtype,
                                .dim_count = from->dim_count,
                                .limit = from->limit,
                                .has_targets = has_targets(d, i)};
    memcpy(input->dim, from->dim, sizeof input->dim);
  }
  plan->inputs = inputs;
}

/* The shares of its losses. Inputs by name are counted from 1. */
static void set_shares(struct pen_plan *plan, const struct pen_description *d) {
  struct pen_share *shares = pen_new(d->share_count + 1, sizeof *shares);
  plan->share_count = (uint32_t)d->share_count;
  for (size_t s = 0; s < d->share_count; s++) {
    const struct pen_described_share *from = &d->share[s];
    uint32_t input = 0;
    for (uint32_t i = 0; from->input != PEN_NONE && i <= from->input; i++)
      input += d->input[i].from == PEN_SOURCE_NAME;
    shares[s] = (struct pen_share){
        .over = from->over, .input = input, .factor = from->factor, .least = from->least};
  }
  plan->shares = shares;
}

/* Stages and places follow in persistent.c. */
static void set_router_losses(struct pen_plan *plan, const struct pen_topology *t) {
  if (!t->trains || !pen_has_router_losses(t)) return;
  struct pen_router_loss *losses = pen_new((size_t)t->model_layers + 1, sizeof *losses);
  for (uint32_t n = 0; n < t->model_layers; n++)
    if (pen_layer_has_experts(t, n))
      losses[plan->router_loss_count++] =
          (struct pen_router_loss){.layer = n,
                                   .by_sequence = pen_balances_sequences(t),
                                   .by_step = pen_balances_steps(t),
                                   .aux = t->model_aux_loss > 0 ? t->model_aux_loss : 0,
                                   .z = t->model_z_loss > 0 ? t->model_z_loss : 0};
  plan->router_losses = losses;
}

/* Likewise. */
static void set_routers(struct pen_plan *plan, const struct pen_topology *t) {
  struct pen_router *routers = pen_new((size_t)t->model_layers + 1, sizeof *routers);
  for (uint32_t n = 0; n < t->model_layers && t->trains; n++)
    if (pen_layer_has_experts(t, n))
      routers[plan->router_count++] =
          (struct pen_router){.layer = n, .experts = (uint32_t)t->model_experts};
  plan->routers = routers;
}

struct pen_plan *pen_plan_header(const struct pen_topology *t,
                                 const struct pen_partition *partition) {
  const struct pen_family *family = pen_family_of(t);
  const struct pen_schedule *schedule = pen_schedule_of(t->pipeline_schedule);
  struct pen_plan *plan = pen_new(1, sizeof *plan);
  plan->name = t->name;
  plan->schedule = schedule->name;
  plan->backward_order = (uint8_t)schedule->backward_order;
  plan->family = family->name;
  plan->version = PEN_VERSION_TEXT;
  plan->device = (uint8_t)t->cluster_device;
  plan->transport = (uint8_t)t->cluster_transport;
  plan->interface = t->cluster_interface;
  set_binding(plan, t);
  if (t->cluster_hosts.count + t->cluster_spares.count > 1) {
    plan->hosts = host_names(t);
    plan->host_count = (uint32_t)t->cluster_hosts.count;
    plan->spare_count = (uint32_t)t->cluster_spares.count;
    plan->port = (uint16_t)t->cluster_port;
    plan->rank_hosts = pen_topology_rank_hosts(t);
  }
#define PEN_SIZE(field, setting) plan->field = partition->field;
#include "runtime/plan/groups.def"
  plan->stages_per_rank = partition->stages_per_rank;
  plan->stage_count = partition->stage_count;
  plan->microbatch_count = plan->loss_count = partition->microbatch_count;
  for (size_t i = 0; i < t->shapes_microbatches.count; i++)
    if (t->shapes_microbatches.value[i] > plan->loss_count)
      plan->loss_count = (uint32_t)t->shapes_microbatches.value[i];
  plan->sharding = (uint8_t)partition->sharding;
  plan->gathers_units = partition->gathers_units;
  plan->reduces_microbatches = partition->reduces_microbatches;
  plan->microbatch = (uint32_t)t->batch_microbatch;
  plan->loss_group = (uint32_t)t->batch_loss_group;
  plan->sequence = (uint32_t)t->model_sequence;
  plan->vocab = (uint32_t)t->model_vocab;
  plan->layers = (uint32_t)t->model_layers;
  plan->dtype = (uint8_t)t->model_dtype;
  plan->threads_per_rank = (uint32_t)t->cluster_threads_per_rank;
  plan->generated_groups = (uint32_t)t->generate_microbatches;
  plan->audits = t->memory_audit && t->trains;
  plan->needs_tokens = pen_family_needs_tokens(family);
  if (t->description) {
    set_inputs(plan, t->description);
    set_shares(plan, t->description);
    plan->loss_of_microbatch = t->description->loss_of_microbatch;
    plan->no_texts = t->description->texts.refused;
  }
  set_router_losses(plan, t);
  set_routers(plan, t);
  plan->packed = t->batch_packed;
  plan->loss_is_mean = t->model_loss == PEN_LOSS_CROSS_ENTROPY && plan->share_count == 0;
  plan->optimizer = optimizer_settings(t);
  plan->config_json = config_json(t, family);
  plan->settings = pen_topology_canonical(t);
  if (t->description) {
    plan->pointwise = (*t->description->pointwise)->row;
    plan->pointwise_count = (*t->description->pointwise)->count;
  }
  return plan;
}
