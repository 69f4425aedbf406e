/* config_keys.h: the table of the keys of config.json, model_keys.def, as data. */
#ifndef PEN_CONFIG_KEYS_H
#define PEN_CONFIG_KEYS_H

#include <stdbool.h>
#include <stddef.h>

enum pen_config_kind {
  PEN_CONFIG_INTEGER,
  PEN_CONFIG_NULLABLE,
  PEN_CONFIG_LENGTH,
  PEN_CONFIG_REAL,
  PEN_CONFIG_BOOLEAN,
  PEN_CONFIG_ONLY,
  PEN_CONFIG_DROPOUT,
  PEN_CONFIG_ROPE,
  PEN_CONFIG_ROPES,
  PEN_CONFIG_LIST,
  PEN_CONFIG_SAME,
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

#endif
