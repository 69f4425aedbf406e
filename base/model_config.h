/* model_config.h: config.json of a model of Hugging Face's transformers, as settings of the group
 * model of a topology, by the table model_keys.def: a key is a setting, is passed over, or is
 * refused by name if it asks for what is not supported. The one reader of such files: for
 * penstock-convert, and for commands that compare a model's folder with their plan. */
#ifndef PEN_MODEL_CONFIG_H
#define PEN_MODEL_CONFIG_H

#include "base/config_settings.h"

/* Reads a config.json, or the one in a folder. What is wrong is in `reasons`. Returns 0, 65 if
 * there are reasons, or 66 if there is no such file. Release with
 * pen_model_config_free() (config_settings.h). */
int pen_model_config_read(struct pen_model_config *config, const char *path,
                          const struct pen_config_rules *rules);

/* The same with a text, which is called `path`. */
int pen_model_config_parse(struct pen_model_config *config, const char *path, const char *text,
                           const struct pen_config_rules *rules);

#endif
