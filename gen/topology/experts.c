/* experts.c: the settings of mixtures of experts (see experts.h). */
#include "gen/topology/experts.h"

#include "gen/base/error.h"
#include "gen/topology/data_parallel.h"
#include "gen/topology/family_table.h"
#include "gen/topology/message.h"
#include "gen/topology/weight_optimizer.h"

enum { ROWS = 1024 };

static bool has_experts(const struct pen_topology *t) {
  return pen_family_row_of(t->model_family)->experts != PEN_EXPERTS_NONE;
}

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
  bool has = t->model_expert_every == 0 || (layer + 1) % t->model_expert_every == 0;
  for (size_t i = 0; i < t->model_mlp_only.count; i++)
    has = has && t->model_mlp_only.value[i] != layer;
  return has;
}

void pen_experts_set_defaults(struct pen_topology *t) {
  if (pen_family_row_of(t->model_family)->experts == PEN_EXPERTS_NORMALIZED)
    t->model_router_normalize = true;
  if (!has_experts(t) || t->has_expert_parallel_rows) return;
  const int64_t all = t->batch_microbatch * t->model_sequence;
  int64_t slice = all < ROWS ? all : ROWS;
  while (slice > t->batch_microbatch && !divides_shapes(t, slice)) slice--;
  t->expert_parallel_rows = divides_shapes(t, slice) ? slice : t->batch_microbatch;
}

/* Settings of experts that the family's class has not. */
static void check_absent(const struct pen_topology *t) {
  const struct pen_family_row *family = pen_family_row_of(t->model_family);
  const bool none = family->experts == PEN_EXPERTS_NONE,
             scored = family->experts == PEN_EXPERTS_SCORED;
  const struct {
    const char *setting;
    bool given, allowed;
  } of_experts[] = {{"model.experts", t->has_model_experts, !none},
                    {"model.experts_per_token", t->has_model_experts_per_token, !none},
                    {"model.moe_ffn", t->has_model_moe_ffn, !none},
                    {"model.expert_every", t->has_model_expert_every, scored},
                    {"model.mlp_only", t->has_model_mlp_only, scored},
                    {"model.router_normalize", t->has_model_router_normalize, scored},
                    {"expert_parallel.rows", t->has_expert_parallel_rows, !none}};
  for (size_t i = 0; i < sizeof of_experts / sizeof *of_experts; i++)
    if (of_experts[i].given && !of_experts[i].allowed)
      pen_topology_fail(t, of_experts[i].setting, "not given, with family %s%s", family->name,
                        none ? ", which has no experts" : "");
}

static void check_layers(const struct pen_topology *t) {
  for (size_t i = 0; i < t->model_mlp_only.count; i++)
    if (t->model_mlp_only.value[i] >= t->model_layers)
      pen_topology_fail(t, "model.mlp_only", "numbers of layers, from 0 to model.layers - 1");
  int64_t with = 0;
  for (uint32_t n = 0; n < t->model_layers; n++) with += pen_layer_has_experts(t, n);
  if (with == 0)
    pen_topology_fail(t, t->has_model_expert_every ? "model.expert_every" : "model.mlp_only",
                      "so that one of model.layers = %lld has experts", (long long)t->model_layers);
  if (with < t->model_layers && !t->has_model_ffn)
    pen_stop(PEN_EXIT_TOPOLOGY,
             "%s: model.ffn: missing; layers without experts need it: the width within their "
             "feed-forward block",
             t->path);
}

void pen_experts_validate(const struct pen_topology *t) {
  check_absent(t);
  if (!has_experts(t)) return;
  check_layers(t);
  if (t->model_experts_per_token > t->model_experts)
    pen_topology_fail(t, "model.experts_per_token", "at most model.experts = %lld",
                      (long long)t->model_experts);
  if (!divides_shapes(t, t->expert_parallel_rows))
    pen_topology_fail(t, "expert_parallel.rows",
                      "a multiple of batch.microbatch = %lld that divides the tokens of a "
                      "microbatch, in each shape",
                      (long long)t->batch_microbatch);
  if (pen_optimizer_is_used(t, PEN_OPTIMIZER_MUON))
    pen_topology_fail(t, "optimizer.name", "\"adamw\" or \"sgd\", with family %s",
                      pen_family_row_of(t->model_family)->name);
  if (pen_reduces_microbatches(t))
    pen_topology_fail(t, "data_parallel.reduce", "\"step\", with family %s",
                      pen_family_row_of(t->model_family)->name);
}

int64_t pen_slice_rows(const struct pen_topology *t, int64_t rows) {
  const int64_t slice = t->expert_parallel_rows;
  return rows % slice == 0 && slice % (rows / t->sequence) == 0 ? slice : rows;
}
