/* config_rope.c: the rotary positions that a config.json asks for (see config_rope.h). */
#include "base/config_rope.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static const char original_positions[] = "original_max_position_embeddings";

/* The kinds of RoPE scaling, and the keys of each. */
static const struct scaling {
  const char *kind;
  size_t count;
  struct pen_config_key part[8]; /* with a default it may be absent, null, or as `wanted` */
} scalings[] = {
    {"default", 0, {{0}}},
    {"linear", 1, {{.key = "factor", .kind = PEN_CONFIG_REAL, .setting = "rope_factor"}}},
    {"llama3",
     4,
     {{.key = "factor", .kind = PEN_CONFIG_REAL, .setting = "rope_factor"},
      {.key = "low_freq_factor", .kind = PEN_CONFIG_REAL, .setting = "rope_low_freq_factor"},
      {.key = "high_freq_factor", .kind = PEN_CONFIG_REAL, .setting = "rope_high_freq_factor"},
      {.key = original_positions,
       .kind = PEN_CONFIG_INTEGER,
       .setting = "rope_original_sequence"}}},
    {"yarn",
     8,
     {{.key = "factor", .kind = PEN_CONFIG_REAL, .setting = "rope_factor"},
      {.key = original_positions, .kind = PEN_CONFIG_INTEGER, .setting = "rope_original_sequence"},
      {NULL, "beta_fast", PEN_CONFIG_REAL, "rope_beta_fast", "32", "0|0.0"},
      {NULL, "beta_slow", PEN_CONFIG_REAL, "rope_beta_slow", "1", "0|0.0"},
      {NULL, "truncate", PEN_CONFIG_BOOLEAN, "rope_truncate", "true", ""},
      {NULL, "attention_factor", PEN_CONFIG_REAL, "rope_attention_factor", "0", ""},
      {NULL, "mscale", PEN_CONFIG_REAL, "rope_mscale", "0", "0|0.0"},
      {NULL, "mscale_all_dim", PEN_CONFIG_REAL, "rope_mscale_all_dim", "0", "0|0.0"}}},
};
enum { SCALINGS = sizeof scalings / sizeof *scalings };

static void set_part(const struct pen_config_reading *r, const struct pen_config_key *row,
                     const struct pen_config_key *part, const json_t *value) {
  struct pen_config_key full = *part;
  full.key = pen_config_text(r->config, "%s.%s", row->key, part->key);
  const bool optional = part->default_value != NULL;
  if (optional && (json_is_null(value) || pen_config_is_one_of(r, value, part->wanted)))
    pen_config_set(r, &full, part->default_value)->is_default = true;
  else if (json_is_null(value))
    pen_config_refuse_missing(r, full.key);
  else if (part->kind == PEN_CONFIG_BOOLEAN)
    pen_config_set_boolean(r, &full, value);
  else if (part->kind == PEN_CONFIG_INTEGER)
    pen_config_set_integer(r, &full, value);
  else
    pen_config_set_real(r, &full, value);
  struct pen_config_setting *setting = pen_model_config_find(r->config, part->setting);
  if (optional && setting != NULL) /* penstock-gen has the same default */
    setting->is_implied = pen_config_same_value(setting->text, part->default_value);
}

/* Sets the kind and its parts; returns the kind, or null if it is refused. */
static const struct scaling *set_scaling(const struct pen_config_reading *r,
                                         const struct pen_config_key *row, const json_t *value) {
  const char *key = json_object_get(value, "rope_type") ? "rope_type" : "type"; /* the older name */
  const json_t *kind = json_object_get(value, key);
  const struct scaling *scaling = kind ? NULL : scalings;
  for (size_t i = 0; i < SCALINGS && !scaling; i++)
    if (json_is_string(kind) && strcmp(json_string_value(kind), scalings[i].kind) == 0)
      scaling = &scalings[i];
  if (!scaling) {
    pen_config_refuse(r, pen_config_text(r->config, "%s.%s", row->key, key), kind,
                      "only \"default\", \"linear\", \"llama3\" or \"yarn\"");
    return NULL;
  }
  const json_t *older = json_object_get(value, "type");
  if (older != NULL && !json_equal(older, kind))
    pen_config_refuse(r, pen_config_text(r->config, "%s.type", row->key), older,
                      "rope_type, the other name of this key, says otherwise");
  const struct pen_config_key setting = {.key = pen_config_text(r->config, "%s.%s", row->key, key),
                                         .setting = "rope_scaling"};
  if (scaling == scalings)
    pen_config_set(r, &setting, "\"none\"")->is_implied = true;
  else
    pen_config_set(r, &setting, pen_config_text(r->config, "\"%s\"", scaling->kind));
  for (size_t i = 0; i < scaling->count; i++) {
    const json_t *part = json_object_get(value, scaling->part[i].key);
    if (part == NULL && strcmp(scaling->part[i].key, original_positions) == 0)
      part =
          json_object_get(r->config->root, "max_position_embeddings"); /* transformers' default */
    set_part(r, row, &scaling->part[i], part ? part : json_null());
  }
  return scaling;
}

static bool is_part(const struct scaling *scaling, const char *key) {
  for (size_t i = 0; i < scaling->count; i++)
    if (strcmp(scaling->part[i].key, key) == 0) return true;
  return strcmp(key, "rope_type") == 0 || strcmp(key, "type") == 0;
}

/* transformers 5 has rope_theta in rope_parameters; before, rope_scaling had the scaling alone. */
void pen_config_set_rope(const struct pen_config_reading *r, const struct pen_config_key *row,
                         const json_t *value) {
  static const struct pen_config_key theta = {
      .key = "rope_theta", .kind = PEN_CONFIG_REAL, .setting = "rope_theta"};
  const char *key;
  json_t *part;
  if (!json_is_object(value)) pen_config_refuse(r, row->key, value, "an object, or null");
  const struct scaling *scaling = set_scaling(r, row, value);
  json_object_foreach((json_t *)(uintptr_t)value, key, part) {
    bool whole =
        strcmp(key, "partial_rotary_factor") == 0 && pen_config_is_one_of(r, part, "1.0|1");
    if (strcmp(key, "rope_theta") == 0)
      set_part(r, row, &theta, part);
    else if (scaling && !is_part(scaling, key) && !whole && !json_is_null(part))
      pen_config_refuse(
          r, pen_config_text(r->config, "%s.%s", row->key, key), part,
          pen_config_text(r->config, "RoPE scaling \"%s\" has no such key", scaling->kind));
  }
}

/* The positions of local layers. */
static void set_local_rope(const struct pen_config_reading *r, const struct pen_config_key *row,
                           const json_t *value) {
  static const struct pen_config_key theta = {
      .key = "rope_theta", .kind = PEN_CONFIG_REAL, .setting = "rope_local_theta"};
  const char *key;
  json_t *part;
  if (!json_is_object(value)) pen_config_refuse(r, row->key, value, "an object, or null");
  json_object_foreach((json_t *)(uintptr_t)value, key, part) {
    if (strcmp(key, theta.key) == 0)
      set_part(r, row, &theta, part);
    else if (!json_is_null(part) &&
             (strcmp(key, "rope_type") != 0 || !pen_config_is_one_of(r, part, "\"default\"")))
      pen_config_refuse(r, pen_config_text(r->config, "%s.%s", row->key, key), part,
                        "only \"default\" positions in these layers");
  }
}

void pen_config_set_ropes(const struct pen_config_reading *r, const struct pen_config_key *row,
                          const json_t *value) {
  const char *key;
  json_t *part;
  if (!json_is_object(value)) pen_config_refuse(r, row->key, value, "an object, or null");
  json_object_foreach((json_t *)(uintptr_t)value, key, part) {
    const struct pen_config_key of_layers = {
        .key = pen_config_text(r->config, "%s.%s", row->key, pen_config_shown(r->config, key))};
    if (json_is_null(part)) continue;
    if (strcmp(key, "full_attention") == 0)
      pen_config_set_rope(r, &of_layers, part);
    else if (strcmp(key, "sliding_attention") == 0)
      set_local_rope(r, &of_layers, part);
    else
      pen_config_refuse(r, of_layers.key, part, "only full_attention and sliding_attention");
  }
}

json_t *pen_config_rope_object(const struct pen_config_source *source) {
  const char *kind = source->value(source->context, "rope_scaling");
  json_t *object = NULL;
  for (size_t i = 1; i < SCALINGS && kind != NULL; i++) {
    const size_t length = strlen(scalings[i].kind);
    if (strncmp(kind + 1, scalings[i].kind, length) != 0) continue; /* it is quoted */
    object = json_object();
    json_object_set_new(object, "rope_type", json_string(scalings[i].kind));
    for (size_t n = 0; n < scalings[i].count; n++) {
      const struct pen_config_key *part = &scalings[i].part[n];
      const char *text = source->value(source->context, part->setting);
      if (text != NULL) json_object_set_new(object, part->key, pen_config_value(part, text));
    }
  }
  return object;
}
