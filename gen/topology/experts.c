/* experts.c: the settings of mixtures of experts (see experts.h). */
#include "gen/topology/experts.h"

#include <math.h>

#include "gen/base/arena.h"
#include "gen/base/error.h"
#include "gen/topology/description.h"
#include "gen/topology/family_table.h"
#include "gen/topology/message.h"

#define IMBALANCE 1.2
enum { ROWS = 1024, CHOICES = 64 /* model.experts_per_token */ };

/* Of a description without MOE, none. */
static enum pen_expert_kind kind_of(const struct pen_topology *t) {
  const enum pen_expert_kind kind = pen_family_row_of(t->model_family)->experts;
  return kind == PEN_EXPERTS_DESCRIBED && t->model_experts == 0 ? PEN_EXPERTS_NONE : kind;
}

static bool has_experts(const struct pen_topology *t) { return kind_of(t) != PEN_EXPERTS_NONE; }

/* Whether a slice of so many tokens has equally many of each sequence, and slices divide a
 * microbatch. */
static bool divides(const struct pen_topology *t, int64_t slice, int64_t sequence) {
  return slice % t->batch_microbatch == 0 && t->batch_microbatch * sequence % slice == 0;
}

static bool divides_shapes(const struct pen_topology *t, int64_t slice) {
  bool fine = divides(t, slice, t->model_sequence);
  for (size_t i = 0; i < t->shapes_sequence.count; i++)
    fine = fine && divides(t, slice, t->shapes_sequence.value[i]);
  return fine;
}

bool pen_layer_has_experts(const struct pen_topology *t, uint32_t layer) {
  if (kind_of(t) == PEN_EXPERTS_DESCRIBED) return t->description->experts[layer] != NULL;
  bool has = has_experts(t) && layer >= t->model_dense_layers &&
             (t->model_expert_every == 0 || (layer + 1) % t->model_expert_every == 0);
  for (size_t i = 0; i < t->model_mlp_only.count; i++)
    has = has && t->model_mlp_only.value[i] != layer;
  return has;
}

bool pen_has_router_losses(const struct pen_topology *t) {
  return has_experts(t) && (t->model_aux_loss > 0 || t->model_z_loss > 0);
}

bool pen_balances_sequences(const struct pen_topology *t) {
  return t->model_aux_scope != PEN_AUX_MICROBATCH && t->model_aux_scope != PEN_AUX_STEP;
}

bool pen_balances_steps(const struct pen_topology *t) {
  return t->trains && has_experts(t) && t->model_aux_loss > 0 && t->model_aux_scope == PEN_AUX_STEP;
}

/* Settings that a family has not have no value, so that they are no part of the model's digest. */
static void default_router(struct pen_topology *t) {
  const enum pen_expert_kind kind = pen_family_row_of(t->model_family)->experts;
  const bool grouped = kind == PEN_EXPERTS_GROUPED;
  if (kind == PEN_EXPERTS_NORMALIZED) t->model_router_normalize = true;
  if (!t->has_model_shared_experts) t->model_shared_experts = grouped ? 0 : -1;
  if (!t->has_model_dense_layers) t->model_dense_layers = grouped ? 0 : -1;
  if (!t->has_model_aux_loss) t->model_aux_loss = -1;
  if (!t->has_model_z_loss) t->model_z_loss = -1;
  if (!t->has_model_bias_update) t->model_bias_update = -1;
  if (!grouped && t->model_router_score == PEN_ROUTER_SOFTMAX)
    t->model_router_score = (enum pen_router_score)PEN_UNSET;
  if (!grouped) return;
  if (!t->has_model_router_score) t->model_router_score = PEN_ROUTER_SIGMOID;
  if (!t->has_model_router_bias) t->model_router_bias = true;
  if (!t->has_model_router_scale) t->model_router_scale = 1;
  if (!t->has_model_router_groups) t->model_router_groups = 1;
  if (!t->has_model_router_top_groups) t->model_router_top_groups = 1;
}

void pen_experts_set_defaults(struct pen_topology *t) {
  default_router(t);
  if (has_experts(t) && !t->has_costs_expert_imbalance) t->costs_expert_imbalance = IMBALANCE;
  if (!has_experts(t) || t->has_expert_parallel_rows) return;
  const int64_t all = t->batch_microbatch * t->model_sequence;
  int64_t slice = all < ROWS ? all : ROWS;
  while (slice > t->batch_microbatch && !divides_shapes(t, slice)) slice--;
  t->expert_parallel_rows = divides_shapes(t, slice) ? slice : t->batch_microbatch;
}

#define KIND(kind) (1u << PEN_EXPERTS_##kind)
#define ANY_KIND (KIND(SCORED) | KIND(NORMALIZED) | KIND(GROUPED) | KIND(DESCRIBED))

/* Settings of experts that the family's class has not. */
static void check_absent(const struct pen_topology *t) {
  const struct pen_family_row *family = pen_family_row_of(t->model_family);
  const struct {
    const char *setting;
    bool given;
    unsigned kinds; /* that have it */
  } of_experts[] = {
      {"model.experts", t->has_model_experts, ANY_KIND},
      {"model.experts_per_token", t->has_model_experts_per_token, ANY_KIND},
      {"model.moe_ffn", t->has_model_moe_ffn, ANY_KIND},
      {"model.shared_experts", t->has_model_shared_experts, KIND(GROUPED)},
      {"model.dense_layers", t->has_model_dense_layers, KIND(GROUPED)},
      {"model.expert_every", t->has_model_expert_every, KIND(SCORED)},
      {"model.mlp_only", t->has_model_mlp_only, KIND(SCORED)},
      {"model.router_normalize", t->has_model_router_normalize, KIND(SCORED) | KIND(GROUPED)},
      {"model.router_score", t->has_model_router_score, ANY_KIND},
      {"model.router_bias", t->has_model_router_bias, ANY_KIND},
      {"model.router_scale", t->has_model_router_scale, KIND(GROUPED)},
      {"model.router_groups", t->has_model_router_groups, KIND(GROUPED)},
      {"model.router_top_groups", t->has_model_router_top_groups, KIND(GROUPED)},
      {"model.aux_loss", t->has_model_aux_loss, ANY_KIND},
      {"model.aux_scope", t->has_model_aux_scope, ANY_KIND},
      {"model.z_loss", t->has_model_z_loss, ANY_KIND},
      {"model.bias_update", t->has_model_bias_update,
       KIND(GROUPED) | (t->model_router_bias ? KIND(DESCRIBED) : 0)},
      {"expert_parallel.rows", t->has_expert_parallel_rows, ANY_KIND},
      {"costs.expert_imbalance", t->has_costs_expert_imbalance, ANY_KIND}};
  for (size_t i = 0; i < sizeof of_experts / sizeof *of_experts; i++)
    if (of_experts[i].given && !(of_experts[i].kinds >> kind_of(t) & 1))
      pen_topology_fail(t, of_experts[i].setting, "not given, with %s%s",
                        t->description ? t->description->path : pen_text("family %s", family->name),
                        !has_experts(t)  ? ", which has no experts"
                        : t->description ? ", whose routers have no bias"
                                         : "");
}

/* What follows from the family. */
static void check_router(const struct pen_topology *t) {
  const struct pen_family_row *family = pen_family_row_of(t->model_family);
  const bool grouped = family->experts == PEN_EXPERTS_GROUPED;
  if (t->model_experts_per_token > t->model_experts)
    pen_topology_fail(t, "model.experts_per_token", "at most model.experts = %lld",
                      (long long)t->model_experts);
  if (t->has_model_router_score && (t->model_router_score == PEN_ROUTER_SIGMOID) != grouped)
    pen_topology_fail(t, "model.router_score", "\"%s\", with family %s",
                      grouped ? "sigmoid" : "softmax", family->name);
  if (t->has_model_router_bias && t->model_router_bias != grouped)
    pen_topology_fail(t, "model.router_bias", "%s, with family %s", grouped ? "true" : "false",
                      family->name);
  if (!grouped) return;
  const int64_t groups = t->model_router_groups, size = t->model_experts / groups;
  if (t->model_experts % groups != 0 || size < 2)
    pen_topology_fail(t, "model.router_groups",
                      "a divisor of model.experts = %lld, with two experts or more in each",
                      (long long)t->model_experts);
  if (t->model_router_top_groups > groups ||
      t->model_router_top_groups * size < t->model_experts_per_token)
    pen_topology_fail(t, "model.router_top_groups",
                      "at most model.router_groups = %lld, with model.experts_per_token = %lld "
                      "experts or more in all",
                      (long long)groups, (long long)t->model_experts_per_token);
}

static void check_layers(const struct pen_topology *t) {
  for (size_t i = 0; i < t->model_mlp_only.count; i++)
    if (t->model_mlp_only.value[i] >= t->model_layers)
      pen_topology_fail(t, "model.mlp_only", "numbers of layers, from 0 to model.layers - 1");
  int64_t with = 0;
  for (uint32_t n = 0; n < t->model_layers; n++) with += pen_layer_has_experts(t, n);
  if (with == 0)
    pen_topology_fail(t,
                      t->has_model_dense_layers   ? "model.dense_layers"
                      : t->has_model_expert_every ? "model.expert_every"
                                                  : "model.mlp_only",
                      "so that one of model.layers = %lld has experts", (long long)t->model_layers);
  if (with < t->model_layers && !t->has_model_ffn)
    pen_stop(PEN_EXIT_TOPOLOGY,
             "%s: model.ffn: missing; layers without experts need it: the width within their "
             "feed-forward block",
             t->path);
}

static double step_tokens(const struct pen_topology *t, int64_t sequence, int64_t microbatches) {
  return (double)t->batch_microbatch * (double)sequence * (double)microbatches *
         (double)t->data_parallel_replicas;
}

/* Choices of a step are counted in f32, which has all whole numbers up to that: a token chooses an
 * expert once. */
static void check_counts(const struct pen_topology *t) {
  const double limit = 1 << 24;
  const bool updates = t->trains && t->model_bias_update > 0;
  double most = step_tokens(t, t->model_sequence, t->pipeline_microbatches);
  for (size_t i = 0; i < t->shapes_sequence.count; i++)
    most = fmax(most, step_tokens(t, t->shapes_sequence.value[i], t->shapes_microbatches.value[i]));
  if ((updates || pen_balances_steps(t)) && most > limit)
    pen_topology_fail(t, updates ? "model.bias_update" : "model.aux_scope",
                      "%s with at most %.0f tokens a step, up to which choices are counted "
                      "exactly, not %.0f",
                      updates ? "above 0" : "\"step\"", limit, most);
}

void pen_experts_validate(const struct pen_topology *t) {
  check_absent(t);
  if (!has_experts(t)) return;
  if (!t->description) {
    check_layers(t);
    check_router(t);
  }
  check_counts(t);
  if (!divides_shapes(t, t->expert_parallel_rows))
    pen_topology_fail(t, "expert_parallel.rows",
                      "a multiple of batch.microbatch = %lld that divides the tokens of a "
                      "microbatch, in each shape",
                      (long long)t->batch_microbatch);
}

bool pen_experts_can_double(const struct pen_topology *t) {
  const bool grouped = has_experts(t) && t->model_router_groups > 1;
  const int64_t most = grouped
                           ? t->model_experts / t->model_router_groups * t->model_router_top_groups
                           : t->model_experts;
  return has_experts(t) && 2 * t->model_experts_per_token <= (most < CHOICES ? most : CHOICES);
}

int64_t pen_slice_rows(const struct pen_topology *t, int64_t rows) {
  const int64_t slice = t->expert_parallel_rows;
  return rows % slice == 0 && slice % (rows / t->sequence) == 0 ? slice : rows;
}
