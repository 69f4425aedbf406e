/* config_check.h: compares a model's config.json with the plan: what the shapes of tensors do not
 * tell. Allocates, and belongs before the seal. */
#ifndef PEN_CONFIG_CHECK_H
#define PEN_CONFIG_CHECK_H

#include <stdbool.h>

#include "base/message.h"
#include "base/options.h"
#include "runtime/plan/plan.h"

/* Whether the folder has a config.json. If so, fails (PEN_EXIT_DATA) for keys that ask for what is
 * not supported, and for those that correspond to a setting of the plan and have another value: it
 * names key, value there and value here. Differences in `ignored` keys are taken. Keys that are not
 * known are named in one line. A model that is none of transformers (mlp, described) is not
 * compared. */
bool pen_config_check(const struct pen_plan *plan, const char *folder,
                      const struct pen_texts *ignored);

/* Writes the settings in which the folder's config.json differs from the plan: ": KEY = VALUE
 * there, ..."; nothing, if it cannot tell. Returns `text`. */
const char *pen_config_differences(char text[PEN_MESSAGE_BYTES], const struct pen_plan *plan,
                                   const char *folder);

#endif
