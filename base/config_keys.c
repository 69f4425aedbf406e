/* config_keys.c: the table of the keys of config.json (see config_keys.h). */
#include "base/config_keys.h"

#include <string.h>

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
