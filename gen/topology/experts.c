/* experts.c: the settings of mixtures of experts (see experts.h). */
#include "gen/topology/experts.h"

#include <string.h>

#include "gen/base/arena.h"
#include "gen/topology/data_parallel.h"
#include "gen/topology/family_table.h"
#include "gen/topology/message.h"
#include "gen/topology/weight_optimizer.h"

enum { ROWS = 1024 };

static bool has_experts(const struct pen_topology *t) {
  return pen_family_row_of(t->model_family)->experts;
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

void pen_experts_set_defaults(struct pen_topology *t) {
  if (!has_experts(t) || t->has_expert_parallel_rows) return;
  const int64_t all = t->batch_microbatch * t->model_sequence;
  int64_t slice = all < ROWS ? all : ROWS;
  while (slice > t->batch_microbatch && !divides_shapes(t, slice)) slice--;
  t->expert_parallel_rows = divides_shapes(t, slice) ? slice : t->batch_microbatch;
}

/* What the family alone has. */
static void check_absent(const struct pen_topology *t) {
  const char *name = pen_family_row_of(t->model_family)->name;
  for (size_t i = 0; i < pen_setting_count; i++) {
    const struct pen_setting *s = &pen_settings[i];
    const bool of_experts = strcmp(s->group, "expert_parallel") == 0 ||
                            strcmp(s->name, "experts") == 0 ||
                            strcmp(s->name, "experts_per_token") == 0 ||
                            strcmp(s->name, "moe_ffn") == 0 || strncmp(s->name, "router_", 7) == 0;
    if (of_experts && *(const bool *)((const char *)t + s->has_offset))
      pen_topology_fail(t, pen_text("%s.%s", s->group, s->name),
                        "not given, with family %s, which has no experts", name);
  }
}

void pen_experts_validate(const struct pen_topology *t) {
  if (!has_experts(t)) {
    check_absent(t);
    return;
  }
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
  if (t->cluster_device == PEN_DEVICE_CUDA)
    pen_topology_fail(t, "cluster.device", "\"cpu\", with family %s: experts run on CPUs alone",
                      pen_family_row_of(t->model_family)->name);
}

int64_t pen_slice_rows(const struct pen_topology *t, int64_t rows) {
  const int64_t slice = t->expert_parallel_rows;
  return rows % slice == 0 && slice % (rows / t->sequence) == 0 ? slice : rows;
}
