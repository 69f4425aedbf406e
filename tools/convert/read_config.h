/* read_config.h: the config that penstock-convert converts. */
#ifndef PEN_CONVERT_READ_CONFIG_H
#define PEN_CONVERT_READ_CONFIG_H

#include "base/model_config.h"
#include "base/options.h"

/* Reads a config.json, or the one in a folder, within the limits of settings.def. Keys that are not
 * known are accepted if `ignored` has them. Ends the program with a line `FILE: KEY = VALUE is not
 * supported: what is` for each such key: 65 for a model that is not supported, 66 if there is no
 * such file. */
void convert_read(struct pen_model_config *config, const char *path,
                  const struct pen_texts *ignored);

#endif
