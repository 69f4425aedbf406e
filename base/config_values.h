/* config_values.h: the values of a config.json while it is read: a value becomes the text of a
 * setting, or a reason why it is not supported. For model_config.c and its parts. */
#ifndef PEN_CONFIG_VALUES_H
#define PEN_CONFIG_VALUES_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/config_settings.h"

enum pen_config_kind {
  PEN_CONFIG_INTEGER,
  PEN_CONFIG_NULLABLE,
  PEN_CONFIG_LENGTH,
  PEN_CONFIG_REAL,
  PEN_CONFIG_BOOLEAN,
  PEN_CONFIG_NUMBERS,
  PEN_CONFIG_ONLY,
  PEN_CONFIG_DROPOUT,
  PEN_CONFIG_ROPE,
  PEN_CONFIG_ROPES,
  PEN_CONFIG_LIST,
  PEN_CONFIG_SAME,
  PEN_CONFIG_WEIGHT,
  PEN_CONFIG_WINDOWED,
  PEN_CONFIG_ANY,
};

/* A row of model_keys.def, or the like for a part of a key. */
struct pen_config_key {
  const char *family, *key;
  enum pen_config_kind kind;
  const char *setting, *default_value, *wanted;
};

extern const struct pen_config_key pen_config_keys[];
extern const size_t pen_config_key_count;

bool pen_config_is_of_family(const struct pen_config_key *row, const char *family);

/* The row of a key in a family, or null. */
const struct pen_config_key *pen_config_key_of(const char *family, const char *key);

/* A config while it is read. */
struct pen_config_reading {
  struct pen_model_config *config;
  const struct pen_config_rules *rules;
};

/* A value as JSON, cut; a key as a message may show it. They live as long as the config. */
const char *pen_config_value_text(struct pen_model_config *config, const json_t *value);
const char *pen_config_shown(struct pen_model_config *config, const char *key);

void pen_config_add_line(struct pen_config_lines *lines, const char *line);

/* Note a reason, so that all are told at once; of a key that is ignored, none. */
void pen_config_refuse(const struct pen_config_reading *r, const char *key, const json_t *value,
                       const char *allowed);
void pen_config_refuse_missing(const struct pen_config_reading *r, const char *key);

/* Sets the row's setting; refuses if another key has said another value. Returns the setting. */
struct pen_config_setting *pen_config_set(const struct pen_config_reading *r,
                                          const struct pen_config_key *row, const char *text);
/* The same with a value of that type, or refuse it. */
void pen_config_set_integer(const struct pen_config_reading *r, const struct pen_config_key *row,
                            const json_t *value);
void pen_config_set_real(const struct pen_config_reading *r, const struct pen_config_key *row,
                         const json_t *value);
void pen_config_set_boolean(const struct pen_config_reading *r, const struct pen_config_key *row,
                            const json_t *value);
void pen_config_set_numbers(const struct pen_config_reading *r, const struct pen_config_key *row,
                            const json_t *value);

/* The text of the row's setting as the value of its key. */
json_t *pen_config_value(const struct pen_config_key *row, const char *text);

/* Whether a value is one of the JSON texts in `wanted`, which are separated by "|". */
bool pen_config_is_one_of(const struct pen_config_reading *r, const json_t *value,
                          const char *wanted);

#endif
