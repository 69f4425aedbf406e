/* model_config.c: reads config.json of a model of Hugging Face's transformers by the table
 * model_keys.def (see model_config.h). */
#define _GNU_SOURCE 1
#include "base/model_config.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sysexits.h>

#include "base/config_rope.h"
#include "base/config_values.h"
#include "base/input_file.h"

static const char *const families[] = {"llama",   "qwen2",   "qwen3",       "qwen3_moe", "dots1",
                                       "mistral", "mixtral", "gemma3_text", "gpt2"};
enum { FAMILIES = sizeof families / sizeof *families };

/* ---- keys by their kind ---- */

static void check_only(const struct pen_config_reading *r, const struct pen_config_key *row,
                       const json_t *value) {
  if (json_is_null(value) || pen_config_is_one_of(r, value, row->wanted)) return;
  pen_config_refuse(r, row->key, value, pen_config_text(r->config, "only %s", row->wanted));
}

static void check_dropout(const struct pen_config_reading *r, const struct pen_config_key *row,
                          const json_t *value) {
  if (json_is_number(value) && json_number_value(value) > 0)
    pen_config_add_line(
        &r->config->notes,
        pen_config_text(r->config,
                        "%s: %s = %s: dropout is not supported; training continues without it",
                        r->config->path, row->key, pen_config_value_text(r->config, value)));
}

/* A WEIGHT counts where the key that the row names is true. */
static bool counts(const struct pen_config_reading *r, const struct pen_config_key *row) {
  return row->kind != PEN_CONFIG_WEIGHT ||
         json_is_true(json_object_get(r->config->root, row->wanted));
}

static void set_weight(const struct pen_config_reading *r, const struct pen_config_key *row,
                       const json_t *value) {
  if (!counts(r, row)) return;
  pen_config_set_real(r, row, value);
  pen_config_add_line(
      &r->config->notes,
      pen_config_text(r->config,
                      "%s: %s = %s, with %s: model.%s, of each layer; transformers' loss is of all "
                      "layers together",
                      r->config->path, row->key, pen_config_value_text(r->config, value),
                      row->wanted, row->setting));
}

static void check_list(const struct pen_config_reading *r, const struct pen_config_key *row,
                       const json_t *value) {
  if (!json_is_array(value)) pen_config_refuse(r, row->key, value, "a list");
  const char *wanted = row->wanted;
  for (size_t i = 0; i < json_array_size(value); i++) {
    const char *element = json_string_value(json_array_get(value, i));
    size_t length = strcspn(wanted, "|");
    if (element == NULL || strlen(element) != length || strncmp(element, wanted, length) != 0)
      pen_config_refuse(r, pen_config_text(r->config, "%s[%zu]", row->key, i),
                        json_array_get(value, i),
                        pen_config_text(r->config, "only \"%.*s\"", (int)length, wanted));
    wanted = wanted[length] == '|' ? wanted + length + 1 : row->wanted;
  }
}

/* The older name may be absent. */
static void check_same(const struct pen_config_reading *r, const struct pen_config_key *row,
                       const json_t *value) {
  const json_t *other = json_object_get(r->config->root, row->wanted);
  if (other != NULL && !json_is_null(other) && !json_equal(value, other))
    pen_config_refuse(r, row->key, value,
                      pen_config_text(r->config, "%s, the other name of this key, is %s",
                                      row->wanted, pen_config_value_text(r->config, other)));
}

static void apply_key(const struct pen_config_reading *r, const struct pen_config_key *row,
                      const json_t *value) {
  if (json_is_null(value) && row->kind != PEN_CONFIG_ONLY) return; /* like an absent key */
  switch (row->kind) {
    case PEN_CONFIG_INTEGER:
    case PEN_CONFIG_LENGTH:
    case PEN_CONFIG_NULLABLE: pen_config_set_integer(r, row, value); break;
    case PEN_CONFIG_REAL: pen_config_set_real(r, row, value); break;
    case PEN_CONFIG_BOOLEAN: pen_config_set_boolean(r, row, value); break;
    case PEN_CONFIG_NUMBERS: pen_config_set_numbers(r, row, value); break;
    case PEN_CONFIG_ONLY: check_only(r, row, value); break;
    case PEN_CONFIG_DROPOUT: check_dropout(r, row, value); break;
    case PEN_CONFIG_ROPE: pen_config_set_rope(r, row, value); break;
    case PEN_CONFIG_ROPES: pen_config_set_ropes(r, row, value); break;
    case PEN_CONFIG_LIST: check_list(r, row, value); break;
    case PEN_CONFIG_SAME: check_same(r, row, value); break;
    case PEN_CONFIG_WEIGHT: set_weight(r, row, value); break;
    case PEN_CONFIG_WINDOWED: /* check_windows() */
    case PEN_CONFIG_ANY: break;
  }
}

/* ---- the config ---- */

/* Applies every key of the config. An unknown key whose value is null or false changes nothing. */
static void apply_keys(const struct pen_config_reading *r) {
  const char *key;
  json_t *value;
  json_object_foreach(r->config->root, key, value) {
    const struct pen_config_key *row = pen_config_key_of(r->config->family, key);
    if (row != NULL) {
      apply_key(r, row, value);
    } else if (!json_is_null(value) && !json_is_false(value) &&
               !pen_config_ignores(r->rules, key)) {
      pen_config_add_line(&r->config->unknown, pen_config_shown(r->config, key));
      pen_config_add_line(&r->config->unknown_values, pen_config_value_text(r->config, value));
    }
  }
}

/* The number of the setting that a key has; 0: none. */
static long long number_of(const struct pen_config_reading *r, const char *key, size_t length) {
  const struct pen_config_key *row =
      pen_config_key_of(r->config->family, pen_config_text(r->config, "%.*s", (int)length, key));
  const struct pen_config_setting *setting = pen_model_config_find(r->config, row->setting);
  return setting == NULL ? 0 : atoll(setting->text);
}

/* A default that other keys give: "=n_embd*4", "=hidden_size/num_attention_heads". Returns null if
 * it is no whole number. */
static const char *computed_default(const struct pen_config_reading *r, const char *formula) {
  const size_t length = strcspn(formula, "*/|");
  const long long first = number_of(r, formula, length);
  const char *second = formula + length + 1;
  if (formula[length] == '*') return pen_config_text(r->config, "%lld", first * atoll(second));
  if (formula[length] != '/') return pen_config_text(r->config, "%lld", first);
  const long long divisor = number_of(r, second, strlen(second));
  return divisor == 0 || first % divisor != 0 ? NULL
                                              : pen_config_text(r->config, "%lld", first / divisor);
}

/* The default of a key that is absent or, if `is_null`, null; null: none. */
static const char *default_of(const struct pen_config_reading *r, const struct pen_config_key *row,
                              bool is_null) {
  const char *text = row->default_value + strspn(row->default_value, "~!"),
             *bar = strchr(text, '|');
  if (is_null && bar != NULL) text = bar + 1;
  if (*text == '=') return computed_default(r, text + 1);
  const char *number = pen_config_text(r->config, "%.*s", (int)strcspn(text, "|"), text);
  return row->kind != PEN_CONFIG_REAL || strpbrk(number, ".e")
             ? number
             : pen_config_text(r->config, "%s.0", number);
}

/* Sets the defaults of keys that are absent or null. */
static void set_defaults(const struct pen_config_reading *r) {
  for (size_t i = 0; i < pen_config_key_count; i++) {
    const struct pen_config_key *row = &pen_config_keys[i];
    const json_t *given = json_object_get(r->config->root, row->key);
    if (!pen_config_is_of_family(row, r->config->family) || *row->setting == '\0' ||
        *row->default_value == '\0' || !counts(r, row) ||
        pen_model_config_find(r->config, row->setting) != NULL)
      continue;
    const char *text = default_of(r, row, json_is_null(given));
    if (text == NULL) continue;
    struct pen_config_setting *setting = pen_config_set(r, row, text);
    setting->is_default = true;
    setting->is_implied = *row->default_value == '~';
    if (*row->default_value == '!')
      pen_config_add_line(
          &r->config->notes,
          pen_config_text(r->config, "%s: %s: absent: %s, as in transformers' class",
                          r->config->path, row->key, text));
  }
}

/* Whether transformers would give layers windows by a key that may be absent. */
static void check_windows(const struct pen_config_reading *r) {
  const struct pen_config_setting *layers = pen_model_config_find(r->config, "layers");
  const json_t *root = r->config->root, *types = json_object_get(root, "layer_types");
  for (size_t i = 0; i < pen_config_key_count && layers != NULL; i++) {
    const struct pen_config_key *row = &pen_config_keys[i];
    if (row->kind != PEN_CONFIG_WINDOWED || !pen_config_is_of_family(row, r->config->family) ||
        json_is_array(types))
      continue;
    const size_t length = strcspn(row->wanted, "|");
    const char *width = pen_config_text(r->config, "%.*s", (int)length, row->wanted);
    const json_t *given = json_object_get(root, row->key);
    const long long first =
        given == NULL ? atoll(row->wanted + length + 1) : json_integer_value(given);
    if (!json_is_null(json_object_get(root, width)) && first < atoll(layers->text))
      pen_config_refuse(r, row->key, given == NULL ? json_null() : given,
                        pen_config_text(r->config,
                                        "at least %s, the number of layers, or %s null, or a list "
                                        "layer_types: no windows of attention",
                                        layers->text, width));
  }
}

static void set_family(const struct pen_config_reading *r) {
  static const struct pen_config_key row = {.key = "model_type", .setting = "family"};
  struct pen_model_config *config = r->config;
  const json_t *type = json_object_get(config->root, row.key);
  const char *allowed = "";
  for (size_t i = 0; i < FAMILIES; i++) {
    if (json_is_string(type) && strcmp(families[i], json_string_value(type)) == 0)
      config->family = families[i];
    const char *between = i == 0 ? "" : i + 1 < FAMILIES ? ", " : " or ";
    allowed = pen_config_text(config, "%s%s\"%s\"", allowed, between, families[i]);
  }
  if (config->family != NULL)
    pen_config_set(r, &row, pen_config_text(config, "\"%s\"", config->family))->is_implied = true;
  else if (type == NULL)
    pen_config_refuse_missing(r, row.key);
  else
    pen_config_refuse(r, row.key, type, allowed);
}

/* The part for text of a model of text and images, as a model by itself: text_config, with what the
 * whole says for it. False: there is none. */
static bool take_text(const struct pen_config_reading *r) {
  static const char *const shared[] = {"tie_word_embeddings", "torch_dtype",  "dtype",
                                       "bos_token_id",        "eos_token_id", "pad_token_id"};
  struct pen_model_config *config = r->config;
  json_t *whole = config->root, *text = json_object_get(whole, "text_config");
  const json_t *type = json_object_get(whole, "model_type");
  if (!json_is_string(type) || strcmp(json_string_value(type), "gemma3") != 0) return true;
  if (text == NULL) pen_config_refuse_missing(r, "text_config");
  if (text != NULL && !json_is_object(text)) pen_config_refuse(r, "text_config", text, "an object");
  if (!json_is_object(text)) return false;
  config->family = "gemma3";
  apply_keys(r);
  config->family = NULL;
  for (size_t i = 0; i < sizeof shared / sizeof *shared; i++)
    if (json_object_get(text, shared[i]) == NULL)
      json_object_set(text, shared[i], json_object_get(whole, shared[i]));
  if (json_object_get(text, "model_type") == NULL)
    json_object_set_new(text, "model_type", json_string("gemma3_text"));
  config->root = json_incref(text);
  json_decref(whole);
  return true;
}

/* Notes why the file could not be read. Returns `status`. */
static int fail(struct pen_model_config *config, int status, const char *why) {
  pen_config_add_line(&config->reasons, pen_config_text(config, "%s: %s", config->path, why));
  return status;
}

/* Takes what was read. */
static int take_root(const struct pen_config_reading *r, json_t *root, const json_error_t *error) {
  struct pen_model_config *config = r->config;
  config->root = root;
  if (root == NULL) {
    pen_config_add_line(&config->reasons,
                        pen_config_text(config, "%s:%d: %s", config->path, error->line,
                                        pen_config_shown(config, error->text)));
    return EX_DATAERR;
  }
  if (!json_is_object(root)) return fail(config, EX_DATAERR, "not a JSON object");
  if (take_text(r)) set_family(r);
  if (config->family != NULL) {
    apply_keys(r);
    set_defaults(r);
    check_windows(r);
  }
  return config->reasons.count > 0 ? EX_DATAERR : 0;
}

int pen_model_config_read(struct pen_model_config *config, const char *path,
                          const struct pen_config_rules *rules) {
  struct stat status;
  *config = (struct pen_model_config){.path = path};
  const struct pen_config_reading r = {config, rules};
  if (stat(path, &status) == 0 && S_ISDIR(status.st_mode))
    config->path =
        pen_config_text(config, "%s%sconfig.json", path, path[strlen(path) - 1] == '/' ? "" : "/");
  struct pen_input_error refused;
  json_error_t error;
  size_t bytes;
  char *text = pen_input_read(config->path, PEN_INPUT_JSON, &bytes, &refused);
  if (text == NULL) return fail(config, refused.status, refused.text);
  json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
  free(text);
  return take_root(&r, root, &error);
}

int pen_model_config_parse(struct pen_model_config *config, const char *path, const char *text,
                           const struct pen_config_rules *rules) {
  json_error_t error;
  *config = (struct pen_model_config){.path = path};
  const struct pen_config_reading r = {config, rules};
  json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, &error);
  return take_root(&r, root, &error);
}
