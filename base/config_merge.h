/* config_merge.h: the config.json of a model that began as another's. */
#ifndef PEN_CONFIG_MERGE_H
#define PEN_CONFIG_MERGE_H

#include "base/config_settings.h"

/* The text of the config `there`, changed only where the model `here` differs: in settings, in what
 * is not supported, and in the dtype of its tensors ("float32"). Positions are never fewer than
 * there. The caller frees it; null: no memory. */
char *pen_config_merged(struct pen_model_config *there, struct pen_model_config *here,
                        const char *dtype);

#endif
