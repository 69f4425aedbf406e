/* config_merge.c: the config.json of a model that began as another's (see config_merge.h). */
#include "base/config_merge.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_text.h"

/* The key of the file that a key is a part of: "rope_scaling" of "rope_scaling.factor". */
static const char *file_key(struct pen_model_config *config, const char *key) {
  return pen_config_text(config, "%.*s", (int)strcspn(key, ".["), key);
}

static bool differs(const struct pen_config_setting *there, const struct pen_config_setting *here) {
  if (there == NULL) return !here->is_implied;
  return there->is_length ? atoll(there->text) < atoll(here->text)
                          : !pen_config_same_value(there->text, here->text);
}

static void replace(json_t *root, const char *key, const json_t *here, const char *here_key) {
  json_t *value = json_object_get(here, here_key);
  if (strcmp(key, here_key) != 0 || value == NULL) json_object_del(root, key);
  if (value != NULL) json_object_set(root, here_key, value);
}

/* A key of the file may hold several settings: all of them are replaced if one differs, or if it
 * was taken although it is not supported. */
static void replace_keys(json_t *root, struct pen_model_config *there,
                         struct pen_model_config *here) {
  const char *replaced[PEN_CONFIG_LINES_MAX + PEN_CONFIG_SETTINGS_MAX];
  size_t count = 0;
  for (; count < there->refused.count && count < PEN_CONFIG_LINES_MAX; count++) {
    replaced[count] = file_key(there, there->refused.line[count]);
    replace(root, replaced[count], here->root, replaced[count]);
  }
  for (size_t i = 0; i < here->count; i++) {
    const struct pen_config_setting *old = pen_model_config_find(there, here->setting[i].name);
    if (differs(old, &here->setting[i]))
      replaced[count++] = file_key(there, old != NULL ? old->key : here->setting[i].key);
  }
  for (size_t i = 0; i < here->count; i++) {
    const struct pen_config_setting *new = &here->setting[i],
                                    *old = pen_model_config_find(there, new->name);
    const char *key = file_key(there, old != NULL ? old->key : new->key);
    for (size_t n = 0; n < count; n++)
      if (strcmp(replaced[n], key) == 0) replace(root, key, here->root, file_key(here, new->key));
  }
}

static void set_dtype(json_t *root, const char *dtype) {
  static const char *const keys[] = {"dtype", "torch_dtype"};
  bool is_set = false;
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
    if (json_object_get(root, keys[i]) != NULL || (i == 1 && !is_set))
      is_set = json_object_set_new(root, keys[i], json_string(dtype)) == 0;
}

char *pen_config_merged(struct pen_model_config *there, struct pen_model_config *here,
                        const char *dtype) {
  const bool same = there->family != NULL && strcmp(there->family, here->family) == 0;
  json_t *root = json_deep_copy(same ? there->root : here->root);
  if (same) {
    replace_keys(root, there, here);
    if (json_object_get(root, "architectures") == NULL)
      replace(root, "architectures", here->root, "architectures");
  }
  set_dtype(root, dtype);
  char *text = pen_json_text(root);
  json_decref(root);
  return text;
}
