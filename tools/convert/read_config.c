/* read_config.c: reads config.json of a model of Hugging Face's transformers by the table keys.def:
 * a key becomes a setting, is ignored, or is refused by name if it asks for what is not supported
 * or if the table does not have it. */
#include <stdio.h>
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sysexits.h>

#include "base/input_file.h"
#include "base/message.h"
#include "gen/base/arena.h"
#include "gen/topology/settings.h"
#include "tools/convert/convert.h"

enum key_kind { INTEGER, NULLABLE, REAL, BOOLEAN, ONLY, DROPOUT, ROPE, ROPES, LIST, ANY };

static const struct config_key {
  const char *family, *key;
  enum key_kind kind;
  const char *setting, *default_value, *wanted;
} config_keys[] = {
#define PEN_KEY(family, key, kind, setting, default_value, wanted) \
  {family, key, kind, setting, default_value, wanted},
#include "tools/convert/keys.def"
};
enum { KEYS = sizeof config_keys / sizeof *config_keys, SHOWN_BYTES = 120 };

static const char *const families[] = {"llama", "qwen2", "qwen3", "mistral", "gemma3_text", "gpt2"};
enum { FAMILIES = sizeof families / sizeof *families };

/* ---- messages ---- */

/* A value as JSON, cut at SHOWN_BYTES. */
static const char *value_text(const json_t *value) {
  char *text = json_dumps(
      value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(15));
  const char *bounded = text == NULL                 ? "?"
                        : strlen(text) > SHOWN_BYTES ? pen_text("%.*s...", SHOWN_BYTES, text)
                                                     : pen_text("%s", text);
  free(text);
  return bounded;
}

static const char *key_text(const char *key) {
  char shown[PEN_SHOWN_BYTES];
  return pen_text("%s", pen_shown(shown, key));
}

/* Notes a reason, so that all are told at once. */
static void refuse_for(struct convert_model *model, const char *reason) {
  if (model->reason_count < CONVERT_REASONS_MAX) model->reason[model->reason_count] = reason;
  model->reason_count++;
}

static void refuse(struct convert_model *model, const char *key, const json_t *value,
                   const char *allowed) {
  refuse_for(model,
             pen_text("%s = %s is not supported: %s", key_text(key), value_text(value), allowed));
}

static void refuse_missing(struct convert_model *model, const char *key) {
  refuse_for(model, pen_text("%s: missing", key));
}

static void fail_if_refused(const struct convert_model *model) {
  for (size_t i = 0; i < model->reason_count && i < CONVERT_REASONS_MAX; i++)
    convert_say("%s: %s", model->path, model->reason[i]);
  if (model->reason_count > CONVERT_REASONS_MAX)
    convert_say("%s: %zu keys more are not supported", model->path,
                model->reason_count - CONVERT_REASONS_MAX);
  if (model->reason_count > 0) exit(EX_DATAERR);
}

/* ---- settings ---- */

struct convert_setting *convert_find(struct convert_model *model, const char *name) {
  for (size_t i = 0; i < model->count; i++)
    if (strcmp(model->setting[i].name, name) == 0) return &model->setting[i];
  return NULL;
}

static void set_setting(struct convert_model *model, const struct config_key *row,
                        const char *text) {
  struct convert_setting *setting = convert_find(model, row->setting);
  if (setting == NULL) {
    if (model->count == CONVERT_SETTINGS_MAX)
      convert_fail(EX_SOFTWARE, "more settings than there is room for");
    setting = &model->setting[model->count++];
  }
  *setting = (struct convert_setting){row->setting, text, row->key};
}

static void set_integer(struct convert_model *model, const struct config_key *row,
                        const json_t *value) {
  const struct pen_setting *setting = pen_setting_find_path(pen_text("model.%s", row->setting));
  bool nullable = row->kind == NULLABLE;
  double least = nullable ? 1 : setting->minimum, most = setting->maximum;
  if (!json_is_integer(value) || (double)json_integer_value(value) < least ||
      (double)json_integer_value(value) > most)
    refuse(
        model, row->key, value,
        pen_text("a whole number from %.0f to %.0f%s", least, most, nullable ? ", or null" : ""));
  else
    set_setting(model, row, pen_text("%lld", (long long)json_integer_value(value)));
}

static void set_real(struct convert_model *model, const struct config_key *row,
                     const json_t *value) {
  const struct pen_setting *setting = pen_setting_find_path(pen_text("model.%s", row->setting));
  double number = json_number_value(value);
  if (!json_is_number(value) || !isfinite(number) || number < setting->minimum ||
      number > setting->maximum) {
    refuse(model, row->key, value, pen_setting_allowed(setting));
    return;
  }
  const char *text = pen_text("%.15g", number);
  if (strtod(text, NULL) < number || strtod(text, NULL) > number) text = pen_text("%.17g", number);
  set_setting(model, row, strpbrk(text, ".e") ? text : pen_text("%s.0", text));
}

static void set_boolean(struct convert_model *model, const struct config_key *row,
                        const json_t *value) {
  if (json_is_boolean(value))
    set_setting(model, row, json_is_true(value) ? "true" : "false");
  else
    refuse(model, row->key, value, "true or false");
}

/* ---- keys that must have a supported value ---- */

static bool is_one_of(const json_t *value, const char *wanted) {
  const char *text = value_text(value);
  for (size_t length; *wanted; wanted += length + (wanted[length] == '|')) {
    length = strcspn(wanted, "|");
    if (strlen(text) == length && strncmp(text, wanted, length) == 0) return true;
  }
  return false;
}

static void check_only(struct convert_model *model, const struct config_key *row,
                       const json_t *value) {
  if (json_is_null(value) || is_one_of(value, row->wanted)) return;
  refuse(model, row->key, value, pen_text("only %s", row->wanted));
}

static void check_dropout(const struct convert_model *model, const struct config_key *row,
                          const json_t *value) {
  if (json_is_number(value) && json_number_value(value) > 0)
    convert_warn("%s: %s = %s: dropout is not supported; training continues without it",
                 model->path, row->key, value_text(value));
}

static void check_list(struct convert_model *model, const struct config_key *row,
                       const json_t *value) {
  if (!json_is_array(value)) refuse(model, row->key, value, "a list");
  const char *wanted = row->wanted;
  for (size_t i = 0; i < json_array_size(value); i++) {
    const char *element = json_string_value(json_array_get(value, i));
    size_t length = strcspn(wanted, "|");
    if (element == NULL || strlen(element) != length || strncmp(element, wanted, length) != 0)
      refuse(model, pen_text("%s[%zu]", row->key, i), json_array_get(value, i),
             pen_text("only \"%.*s\"", (int)length, wanted));
    wanted = wanted[length] == '|' ? wanted + length + 1 : row->wanted;
  }
}

/* The kinds of RoPE scaling, and the keys of each. */
static const struct scaling {
  const char *kind;
  size_t count;
  struct config_key part[4];
} scalings[] = {
    {"default", 0, {{0}}},
    {"linear", 1, {{.key = "factor", .kind = REAL, .setting = "rope_factor"}}},
    {"llama3",
     4,
     {{.key = "factor", .kind = REAL, .setting = "rope_factor"},
      {.key = "low_freq_factor", .kind = REAL, .setting = "rope_low_freq_factor"},
      {.key = "high_freq_factor", .kind = REAL, .setting = "rope_high_freq_factor"},
      {.key = "original_max_position_embeddings",
       .kind = INTEGER,
       .setting = "rope_original_sequence"}}},
};
enum { SCALINGS = sizeof scalings / sizeof *scalings };

static void set_part(struct convert_model *model, const struct config_key *row,
                     const struct config_key *part, const json_t *value) {
  struct config_key full = *part;
  full.key = pen_text("%s.%s", row->key, part->key);
  if (json_is_null(value))
    refuse_missing(model, full.key);
  else if (part->kind == INTEGER)
    set_integer(model, &full, value);
  else
    set_real(model, &full, value);
}

/* Sets the kind and its parts; returns the kind, or null if it is refused. */
static const struct scaling *set_scaling(struct convert_model *model, const struct config_key *row,
                                         const json_t *value) {
  const char *key = json_object_get(value, "rope_type") ? "rope_type" : "type"; /* the older name */
  const json_t *kind = json_object_get(value, key);
  const struct scaling *scaling = kind ? NULL : scalings;
  for (size_t i = 0; i < SCALINGS && !scaling; i++)
    if (json_is_string(kind) && strcmp(json_string_value(kind), scalings[i].kind) == 0)
      scaling = &scalings[i];
  if (!scaling) {
    refuse(model, pen_text("%s.%s", row->key, key), kind,
           "only \"default\", \"linear\" or \"llama3\"");
    return NULL;
  }
  const struct config_key setting = {.key = pen_text("%s.%s", row->key, key),
                                     .setting = "rope_scaling"};
  if (scaling != scalings) set_setting(model, &setting, pen_text("\"%s\"", scaling->kind));
  for (size_t i = 0; i < scaling->count; i++) {
    const json_t *part = json_object_get(value, scaling->part[i].key);
    set_part(model, row, &scaling->part[i], part ? part : json_null());
  }
  return scaling;
}

static bool is_part(const struct scaling *scaling, const char *key) {
  for (size_t i = 0; i < scaling->count; i++)
    if (strcmp(scaling->part[i].key, key) == 0) return true;
  return strcmp(key, "rope_type") == 0 || strcmp(key, "type") == 0;
}

/* transformers 5 has rope_theta in rope_parameters; before, rope_scaling had the scaling alone. */
static void set_rope(struct convert_model *model, const struct config_key *row,
                     const json_t *value) {
  static const struct config_key theta = {
      .key = "rope_theta", .kind = REAL, .setting = "rope_theta"};
  const char *key;
  json_t *part;
  if (!json_is_object(value)) refuse(model, row->key, value, "an object, or null");
  const struct scaling *scaling = set_scaling(model, row, value);
  json_object_foreach((json_t *)(uintptr_t)value, key, part) {
    bool whole = strcmp(key, "partial_rotary_factor") == 0 && is_one_of(part, "1.0|1");
    if (strcmp(key, "rope_theta") == 0)
      set_part(model, row, &theta, part);
    else if (scaling && !is_part(scaling, key) && !whole && !json_is_null(part))
      refuse(model, pen_text("%s.%s", row->key, key), part,
             pen_text("RoPE scaling \"%s\" has no such key", scaling->kind));
  }
}

/* The positions of local layers. */
static void set_local_rope(struct convert_model *model, const struct config_key *row,
                           const json_t *value) {
  static const struct config_key theta = {
      .key = "rope_theta", .kind = REAL, .setting = "rope_local_theta"};
  const char *key;
  json_t *part;
  if (!json_is_object(value)) refuse(model, row->key, value, "an object, or null");
  json_object_foreach((json_t *)(uintptr_t)value, key, part) {
    if (strcmp(key, theta.key) == 0)
      set_part(model, row, &theta, part);
    else if (!json_is_null(part) &&
             (strcmp(key, "rope_type") != 0 || !is_one_of(part, "\"default\"")))
      refuse(model, pen_text("%s.%s", row->key, key), part,
             "only \"default\" positions in these layers");
  }
}

static void set_ropes(struct convert_model *model, const struct config_key *row,
                      const json_t *value) {
  const char *key;
  json_t *part;
  if (!json_is_object(value)) refuse(model, row->key, value, "an object, or null");
  json_object_foreach((json_t *)(uintptr_t)value, key, part) {
    const struct config_key of_layers = {.key = pen_text("%s.%s", row->key, key_text(key))};
    if (json_is_null(part)) continue;
    if (strcmp(key, "full_attention") == 0)
      set_rope(model, &of_layers, part);
    else if (strcmp(key, "sliding_attention") == 0)
      set_local_rope(model, &of_layers, part);
    else
      refuse(model, of_layers.key, part, "only full_attention and sliding_attention");
  }
}

static void apply_key(struct convert_model *model, const struct config_key *row,
                      const json_t *value) {
  if (json_is_null(value) && row->kind == NULLABLE) set_setting(model, row, "0");
  if (json_is_null(value) && row->kind != ONLY) return; /* like an absent key */
  switch (row->kind) {
    case INTEGER:
    case NULLABLE: set_integer(model, row, value); break;
    case REAL: set_real(model, row, value); break;
    case BOOLEAN: set_boolean(model, row, value); break;
    case ONLY: check_only(model, row, value); break;
    case DROPOUT: check_dropout(model, row, value); break;
    case ROPE: set_rope(model, row, value); break;
    case ROPES: set_ropes(model, row, value); break;
    case LIST: check_list(model, row, value); break;
    case ANY: break;
  }
}

/* ---- the config ---- */

static const struct config_key *config_key_of(const struct convert_model *model, const char *key) {
  for (size_t i = 0; i < KEYS; i++)
    if (strcmp(config_keys[i].key, key) == 0 &&
        (config_keys[i].family[0] == '*' || strcmp(config_keys[i].family, model->family) == 0))
      return &config_keys[i];
  return NULL;
}

/* Applies every key of the config. An unknown key is refused unless its value is null or false. */
static void apply_keys(struct convert_model *model, json_t *root, const char *const *ignored,
                       size_t ignored_count) {
  const char *key;
  json_t *value;
  json_object_foreach(root, key, value) {
    const struct config_key *row = config_key_of(model, key);
    bool ignore = json_is_null(value) || json_is_false(value);
    for (size_t i = 0; i < ignored_count; i++) ignore = ignore || strcmp(ignored[i], key) == 0;
    if (row != NULL)
      apply_key(model, row, value);
    else if (!ignore)
      refuse(model, key, value,
             pen_text("unknown key; if the results of the model do not depend on it: --ignore %s",
                      key_text(key)));
  }
}

/* A default that is a product of another key's value, as "=n_embd*4". */
static void set_product(struct convert_model *model, const struct config_key *row) {
  const char *formula = row->default_value + 1, *times = strchr(formula, '*');
  const struct config_key *other =
      config_key_of(model, pen_text("%.*s", (int)strcspn(formula, "*"), formula));
  const struct convert_setting *setting = convert_find(model, other->setting);
  if (setting != NULL)
    set_integer(model, row,
                json_integer(atoll(setting->text) * (times == NULL ? 1 : atoll(times + 1))));
}

/* Sets the defaults of keys that are absent or null. */
static void set_defaults(struct convert_model *model, const json_t *root) {
  for (size_t i = 0; i < KEYS; i++) {
    const struct config_key *row = &config_keys[i];
    bool of_family = row->family[0] == '*' || strcmp(row->family, model->family) == 0;
    const json_t *given = json_object_get(root, row->key);
    bool is_refused = given != NULL && !json_is_null(given); /* if it has no setting */
    if (!of_family || *row->setting == '\0' || *row->default_value == '\0' || is_refused ||
        convert_find(model, row->setting) != NULL)
      continue;
    if (*row->default_value == '?')
      refuse_missing(model, row->key);
    else if (*row->default_value == '=')
      set_product(model, row);
    else
      set_setting(model, row,
                  row->kind != REAL || strpbrk(row->default_value, ".e")
                      ? row->default_value
                      : pen_text("%s.0", row->default_value));
  }
}

static const char *family_of(const char *path, const json_t *root) {
  const json_t *type = json_object_get(root, "model_type");
  const char *allowed = "";
  for (size_t i = 0; i < FAMILIES; i++) {
    if (json_is_string(type) && strcmp(families[i], json_string_value(type)) == 0)
      return families[i];
    const char *between = i == 0 ? "" : i + 1 < FAMILIES ? ", " : " or ";
    allowed = pen_text("%s%s\"%s\"", allowed, between, families[i]);
  }
  if (type == NULL) convert_fail(EX_DATAERR, "%s: model_type: missing", path);
  convert_fail(EX_DATAERR, "%s: model_type = %s is not supported: %s", path, value_text(type),
               allowed);
}

static json_t *load_config(const char *path) {
  json_error_t error;
  struct pen_input_error refused;
  size_t bytes;
  char *text = pen_input_read(path, PEN_INPUT_JSON, &bytes, &refused);
  if (text == NULL) convert_fail(refused.status, "%s: %s", path, refused.text);
  json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
  free(text);
  if (root == NULL) convert_fail(EX_DATAERR, "%s:%d: %s", path, error.line, key_text(error.text));
  if (!json_is_object(root)) convert_fail(EX_DATAERR, "%s: not a JSON object", path);
  return root;
}

struct convert_model convert_read(const char *path, const char *const *ignored,
                                  size_t ignored_count) {
  struct stat status;
  if (stat(path, &status) == 0 && S_ISDIR(status.st_mode))
    path = pen_text("%s%sconfig.json", path, path[strlen(path) - 1] == '/' ? "" : "/");
  json_t *root = load_config(path);
  struct convert_model model = {.path = path, .family = family_of(path, root)};
  apply_keys(&model, root, ignored, ignored_count);
  set_defaults(&model, root);
  fail_if_refused(&model);
  json_decref(root);
  return model;
}
