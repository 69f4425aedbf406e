/* config_write.h: writes a config.json of transformers from settings of the group model, by the
 * table that reads them. */
#ifndef PEN_CONFIG_WRITE_H
#define PEN_CONFIG_WRITE_H

/* Where the settings are: the text of one, as a topology has it, or null if it has no value. */
struct pen_config_source {
  const char *(*value)(const void *context, const char *setting);
  const void *context;
};

struct json_t;

/* The object for a model of that family; the caller releases it. */
struct json_t *pen_config_object(const char *family, const struct pen_config_source *source);

#endif
