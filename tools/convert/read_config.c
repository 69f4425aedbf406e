/* read_config.c: reads the config within the limits of settings.def, and prints what is not
 * supported (see read_config.h). */
#include "tools/convert/read_config.h"

#include <math.h>
#include <stdlib.h>

#include "gen/base/arena.h"
#include "gen/topology/settings.h"
#include "tools/convert/convert.h"

static const char *allowed(const char *name, bool nullable, double number) {
  const struct pen_setting *setting = pen_setting_find_path(pen_text("model.%s", name));
  const double least = nullable ? 1 : setting->minimum;
  if (isfinite(number) && number >= least && number <= setting->maximum) return NULL;
  return setting->type == PEN_REAL ? pen_setting_allowed(setting)
                                   : pen_text("a whole number from %.0f to %.0f%s", least,
                                              setting->maximum, nullable ? ", or null" : "");
}

/* All reasons at once. Returns how many there are. */
static size_t print_reasons(const struct pen_model_config *config) {
  const struct pen_config_lines *reasons = &config->reasons, *unknown = &config->unknown;
  size_t printed = 0;
  for (; printed < reasons->count && printed < PEN_CONFIG_LINES_MAX; printed++)
    convert_say("%s", reasons->line[printed]);
  for (size_t i = 0; i < unknown->count && printed < PEN_CONFIG_LINES_MAX; i++, printed++)
    convert_say(
        "%s: %s = %s is not supported: unknown key; if the results of the model do not depend on "
        "it: "
        "--ignore %s",
        config->path, unknown->line[i], config->unknown_values.line[i], unknown->line[i]);
  const size_t all = reasons->count + unknown->count;
  if (printed < all)
    convert_say("%s: %zu keys more are not supported", config->path, all - printed);
  return all;
}

void convert_read(struct pen_model_config *config, const char *path,
                  const struct pen_texts *ignored) {
  const struct pen_config_rules rules = {ignored->text, ignored->count, allowed};
  const int status = pen_model_config_read(config, path, &rules);
  if (print_reasons(config) > 0) exit(status == 0 ? 65 : status);
  for (size_t i = 0; i < config->notes.count && i < PEN_CONFIG_LINES_MAX; i++)
    convert_warn("%s", config->notes.line[i]);
}
