/* described_settings.c: the settings of a described model, which follow from its description. */
#include "gen/topology/described_settings.h"

#include <string.h>

#include "gen/base/arena.h"
#include "gen/base/error.h"
#include "gen/topology/described_experts.h"
#include "gen/topology/description.h"
#include "gen/topology/description_texts.h"
#include "gen/topology/message.h"
#include "gen/topology/named_file.h"
#include "gen/topology/settings.h"
#include "gen/topology/topology.h"

bool pen_description_replaces(const struct pen_setting *setting) {
  static const char *const own[] = {"family",   "description", "sequence", "dtype",
                                    "loss",     "loss_rows",   "frozen",   "outputs",
                                    "aux_loss", "aux_scope",   "z_loss",   "bias_update"};
  if (strcmp(setting->group, "model") != 0) return false;
  for (size_t i = 0; i < sizeof own / sizeof *own; i++)
    if (strcmp(setting->name, own[i]) == 0) return false;
  return true;
}

/* Notes of a setting that the topology file does not have where its value is from: messages name
 * the description. */
static void note(struct pen_topology *t, const char *path, const char *text) {
  *pen_topology_origin(t, pen_setting_find_path(path)) = (struct pen_origin){
      .where = pen_text("%s: ", t->description->path), .text = text, .file = t->description->path};
}

static void set(struct pen_topology *t, const char *path, int64_t value) {
  const struct pen_setting *setting = pen_setting_find_path(path);
  *(int64_t *)(void *)((char *)t + setting->offset) = value;
  note(t, path, pen_text("%lld", (long long)value));
}

static int64_t greater(int64_t one, uint64_t other) {
  return (uint64_t)one > other ? one : (int64_t)other;
}

/* The greatest value of an attribute of all attentions, or of those that are no multiples of
 * `step`: what kernels find hardest. Without attention: `step`. */
static int64_t most_of_attention(const struct pen_description *d, const char *attribute,
                                 int64_t step) {
  int64_t most = step, odd = 0;
  for (size_t k = 0; k < d->kind_count; k++)
    for (size_t i = 0; i < d->kind[k].op_count; i++) {
      const struct pen_described_op *op = &d->kind[k].op[i];
      const bool attends = strncmp(op->row, "ATTENTION", strlen("ATTENTION")) == 0;
      for (size_t a = 0; a < op->attribute_count && attends; a++) {
        const double value = op->attribute[a].value;
        if (strcmp(op->attribute[a].name, attribute) != 0 || value < 1 ||
            value > PEN_DESCRIBED_EXTENT_MAX)
          continue;
        most = greater(most, (uint64_t)value);
        if ((int64_t)value % step != 0) odd = greater(odd, (uint64_t)value);
      }
    }
  return odd ? odd : most;
}

/* The fewest rows of the tables that all ops of this row read, if fewer than `most`. */
static int64_t rows_of_tables(const struct pen_description *d, const char *row, int64_t most) {
  for (size_t u = 0; u < d->unit_count; u++)
    for (size_t i = 0; i < d->unit[u].kind->op_count; i++) {
      const struct pen_described_op *op = &d->unit[u].kind->op[i];
      const int64_t rows = (int64_t)pen_description_table_rows(d, u, op);
      if (strcmp(op->row, row) == 0 && rows > 0 && rows < most) most = rows;
    }
  return most;
}

/* The rows of the head: of the last matrix before the loss. */
static int64_t targets_of(const struct pen_description *d, int64_t most) {
  const size_t last = d->unit_count - 1;
  if (d->share_count > 0 && !d->texts.refused)
    return (int64_t)d->texts.columns < most ? (int64_t)d->texts.columns : most;
  for (size_t i = d->unit[last].kind->op_count; i-- > 0;) {
    const struct pen_described_op *op = &d->unit[last].kind->op[i];
    const int64_t rows = (int64_t)pen_description_table_rows(d, last, op);
    if (strcmp(op->row, "LINEAR") == 0 && rows > 0) return rows < most ? rows : most;
  }
  return most;
}

static void set_sizes(struct pen_topology *t, const struct pen_description *d) {
  int64_t widest = 1;
  for (size_t w = 0; w < d->weight_count; w++)
    for (uint32_t k = 0; k < d->weight[w].dim_count; k++)
      widest = greater(widest, d->weight[w].dim[k]);
  set(t, "model.layers", d->layer_count);
  set(t, "model.hidden", greater(1, d->unit[d->unit_count - 1].kind->width));
  set(t, "model.heads", most_of_attention(d, "heads", 1));
  set(t, "model.kv_heads", t->model_heads);
  set(t, "model.head_dim", most_of_attention(d, "head_dim", t->model_dtype == PEN_BF16 ? 8 : 1));
  set(t, "model.ffn", widest);
  set(t, "model.vocab", targets_of(d, rows_of_tables(d, "EMBEDDING", PEN_DESCRIBED_EXTENT_MAX)));
  t->model_tie_embeddings = d->tied != NULL;
  note(t, "model.tie_embeddings", "...");
}

/* Without experts these settings have no value. */
static void set_experts(struct pen_topology *t, struct pen_description *d) {
  const struct pen_described_router router = pen_described_router_of(d);
  if (router.experts == 0) return;
  set(t, "model.experts", router.experts);
  set(t, "model.experts_per_token", router.choices);
  set(t, "model.moe_ffn", router.ffn);
  set(t, "model.router_groups", router.groups);
  set(t, "model.router_top_groups", router.best_groups);
  t->model_router_normalize = router.normalizes;
  t->model_router_score = router.is_sigmoid ? PEN_ROUTER_SIGMOID : PEN_ROUTER_SOFTMAX;
  t->model_router_bias = router.has_bias;
  t->model_router_scale = router.scale;
  for (size_t i = 0; i < pen_setting_count; i++)
    if (strncmp(pen_settings[i].name, "router_", strlen("router_")) == 0)
      note(t, pen_text("model.%s", pen_settings[i].name), "...");
}

void pen_topology_take_description(struct pen_topology *t) {
  if (t->model_family != PEN_FAMILY_described) {
    if (t->has_model_description)
      pen_topology_fail(t, "model.description", "none, but with model.family = \"described\"");
    return;
  }
  if (!t->has_model_description)
    pen_stop(PEN_EXIT_TOPOLOGY, "%s: model.description: missing; family described needs it: %s",
             t->path, pen_setting_allowed(pen_setting_find_path("model.description")));
  const char *path = pen_named_file_path(t, "model.description", t->model_description);
  for (size_t i = 0; i < pen_setting_count; i++)
    if (pen_description_replaces(&pen_settings[i]) &&
        *(const bool *)((const char *)t + pen_settings[i].has_offset))
      pen_topology_fail(t, pen_text("model.%s", pen_settings[i].name),
                        "none, with model.family = \"described\": it follows from %s", path);
  struct pen_description *d = pen_description_read(path);
  pen_description_find_texts(d);
  d->is_bf16 = t->model_dtype == PEN_BF16;
  t->description = d;
  if (d->sequence && t->has_model_sequence && t->model_sequence > d->sequence)
    pen_topology_fail(t, "model.sequence", "at most %lld, the sequence of %s",
                      (long long)d->sequence, path);
  pen_named_file_add(t, path);
  set_sizes(t, d);
  set_experts(t, d);
}
