/* config_values.c: values of a config.json as texts of settings (see config_values.h). */
#include "base/config_values.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_text.h"
#include "base/message.h"

enum { SHOWN_BYTES = 120 };

/* ---- texts ---- */

/* A value as JSON, cut at SHOWN_BYTES. */
const char *pen_config_value_text(struct pen_model_config *config, const json_t *value) {
  char *text = json_dumps(
      value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(15));
  const char *bounded = text == NULL ? "?"
                        : strlen(text) > SHOWN_BYTES
                            ? pen_config_text(config, "%.*s...", SHOWN_BYTES, text)
                            : pen_config_text(config, "%s", text);
  free(text);
  return bounded;
}

const char *pen_config_shown(struct pen_model_config *config, const char *key) {
  char shown[PEN_SHOWN_BYTES];
  return pen_config_text(config, "%s", pen_shown(shown, key));
}

/* ---- reasons ---- */

void pen_config_add_line(struct pen_config_lines *lines, const char *line) {
  if (lines->count < PEN_CONFIG_LINES_MAX) lines->line[lines->count] = line;
  lines->count++;
}

static void add_reason(const struct pen_config_reading *r, const char *key, const char *reason) {
  pen_config_add_line(&r->config->refused, key);
  if (!pen_config_ignores(r->rules, key)) pen_config_add_line(&r->config->reasons, reason);
}

void pen_config_refuse(const struct pen_config_reading *r, const char *key, const json_t *value,
                       const char *allowed) {
  struct pen_model_config *config = r->config;
  add_reason(r, key,
             pen_config_text(config, "%s: %s = %s is not supported: %s", config->path,
                             pen_config_shown(config, key), pen_config_value_text(config, value),
                             allowed));
}

void pen_config_refuse_missing(const struct pen_config_reading *r, const char *key) {
  add_reason(r, key, pen_config_text(r->config, "%s: %s: missing", r->config->path, key));
}

/* ---- settings ---- */

/* Two keys may say the same setting, in the same way. */
struct pen_config_setting *pen_config_set(const struct pen_config_reading *r,
                                          const struct pen_config_key *row, const char *text) {
  struct pen_model_config *config = r->config;
  struct pen_config_setting *setting = pen_model_config_find(config, row->setting);
  const bool overrides = setting != NULL && pen_config_ignores(r->rules, setting->key);
  if (setting != NULL && !overrides && !pen_config_same_value(setting->text, text)) {
    add_reason(r, row->key,
               pen_config_text(config, "%s: %s = %s, but %s = %s: two names of one key",
                               config->path, row->key, text, setting->key, setting->text));
    return setting;
  }
  if (setting == NULL) setting = &config->setting[config->count++];
  *setting = (struct pen_config_setting){.name = row->setting,
                                         .text = text,
                                         .key = row->key,
                                         .is_length = row->kind == PEN_CONFIG_LENGTH,
                                         .is_weight = row->kind == PEN_CONFIG_WEIGHT};
  return setting;
}

/* Whether a number is within the setting's limits; refuses it if not. NAN never is. */
static bool is_allowed(const struct pen_config_reading *r, const struct pen_config_key *row,
                       const json_t *value, double number) {
  const bool nullable = row->kind == PEN_CONFIG_NULLABLE;
  const char *allowed = r->rules->allowed != NULL
                            ? r->rules->allowed(row->setting, nullable, number)
                        : isfinite(number)             ? NULL
                        : row->kind == PEN_CONFIG_REAL ? "a finite number"
                                                       : "a whole number";
  if (allowed != NULL) pen_config_refuse(r, row->key, value, allowed);
  return allowed == NULL;
}

void pen_config_set_integer(const struct pen_config_reading *r, const struct pen_config_key *row,
                            const json_t *value) {
  const json_int_t number = json_integer_value(value);
  if (is_allowed(r, row, value, json_is_integer(value) ? (double)number : NAN))
    pen_config_set(r, row, pen_config_text(r->config, "%lld", (long long)number));
}

void pen_config_set_real(const struct pen_config_reading *r, const struct pen_config_key *row,
                         const json_t *value) {
  const double number = json_number_value(value);
  char text[PEN_NUMBER_BYTES];
  if (is_allowed(r, row, value, json_is_number(value) && isfinite(number) ? number : NAN))
    pen_config_set(r, row, pen_config_text(r->config, "%s", pen_shortest_text(text, number)));
}

void pen_config_set_boolean(const struct pen_config_reading *r, const struct pen_config_key *row,
                            const json_t *value) {
  if (!json_is_boolean(value)) {
    pen_config_refuse(r, row->key, value, "true or false");
    return;
  }
  const char *text = json_is_true(value) ? "true" : "false";
  struct pen_config_setting *setting = pen_config_set(r, row, text);
  if (strncmp(row->default_value, "~~", 2) == 0)
    setting->is_implied = strcmp(row->default_value + 2, text) == 0;
}

void pen_config_set_numbers(const struct pen_config_reading *r, const struct pen_config_key *row,
                            const json_t *value) {
  const char *text = "";
  for (size_t i = 0; i < json_array_size(value); i++) {
    const json_t *number = json_array_get(value, i);
    if (!is_allowed(r, row, value,
                    json_is_integer(number) ? (double)json_integer_value(number) : NAN))
      return;
    text = pen_config_text(r->config, "%s%s%lld", text, i ? ", " : "",
                           (long long)json_integer_value(number));
  }
  if (!json_is_array(value))
    pen_config_refuse(r, row->key, value, "a list of whole numbers");
  else if (*text)
    pen_config_set(r, row, pen_config_text(r->config, "[%s]", text));
}

json_t *pen_config_value(const struct pen_config_key *row, const char *text) {
  if (row->kind == PEN_CONFIG_NUMBERS) return json_loads(text, 0, NULL);
  if (row->kind == PEN_CONFIG_BOOLEAN) return json_boolean(strcmp(text, "true") == 0);
  if (row->kind == PEN_CONFIG_REAL) return json_real(strtod(text, NULL));
  const long long number = atoll(text);
  return row->kind == PEN_CONFIG_NULLABLE && number == 0 ? json_null() : json_integer(number);
}

bool pen_config_is_one_of(const struct pen_config_reading *r, const json_t *value,
                          const char *wanted) {
  const char *text = pen_config_value_text(r->config, value);
  for (size_t length; *wanted; wanted += length + (wanted[length] == '|')) {
    length = strcspn(wanted, "|");
    if (strlen(text) == length && strncmp(text, wanted, length) == 0) return true;
  }
  return false;
}

const struct pen_config_key pen_config_keys[] = {
#define PEN_KEY(family, key, kind, setting, default_value, wanted) \
  {family, key, PEN_CONFIG_##kind, setting, default_value, wanted},
#include "base/model_keys.def"
};
const size_t pen_config_key_count = sizeof pen_config_keys / sizeof *pen_config_keys;

bool pen_config_is_of_family(const struct pen_config_key *row, const char *family) {
  return row->family[0] == '*' || strcmp(row->family, family) == 0;
}

const struct pen_config_key *pen_config_key_of(const char *family, const char *key) {
  for (size_t i = 0; i < pen_config_key_count; i++)
    if (strcmp(pen_config_keys[i].key, key) == 0 &&
        pen_config_is_of_family(&pen_config_keys[i], family))
      return &pen_config_keys[i];
  return NULL;
}
