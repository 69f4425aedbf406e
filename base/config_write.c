/* config_write.c: writes a config.json of transformers (see config_write.h). */
#include "base/config_write.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/config_values.h"
#include "base/config_rope.h"

/* Null: the key is left out. */
static json_t *value_of(const struct pen_config_key *row, const struct pen_config_source *source,
                        const json_t *object) {
  if (*row->default_value == '\0') return NULL; /* another name of a key */
  if (row->kind == PEN_CONFIG_WEIGHT) return NULL;
  if (row->kind == PEN_CONFIG_SAME) return json_copy(json_object_get(object, row->wanted));
  if (*row->setting == '\0') return json_loads(row->default_value, JSON_DECODE_ANY, NULL);
  if (row->kind == PEN_CONFIG_ROPE) return pen_config_rope_object(source);
  const char *text = source->value(source->context, row->setting);
  return text == NULL ? NULL : pen_config_value(row, text);
}

static void add_keys(json_t *object, const char *family, const char *row_family,
                     const struct pen_config_source *source) {
  for (size_t i = 0; i < pen_config_key_count; i++) {
    const struct pen_config_key *row = &pen_config_keys[i];
    json_t *value = strcmp(row->family, row_family) == 0 ? value_of(row, source, object) : NULL;
    if (strcmp(row->key, "model_type") == 0 && *row_family == '*') value = json_string(family);
    if (value != NULL) json_object_set_new(object, row->key, value);
  }
}

json_t *pen_config_object(const char *family, const struct pen_config_source *source) {
  json_t *object = json_object();
  add_keys(object, family, family, source);
  add_keys(object, family, "*", source);
  return object;
}
