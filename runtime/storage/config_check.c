/* config_check.c: compares a model's config.json with the plan (see config_check.h). */
#include "runtime/storage/config_check.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json_text.h"
#include "base/model_config.h"
#include "runtime/base/check.h"
#include "runtime/base/files.h"

enum { VALUE_BYTES = 512, NAMED_MAX = 8 };

/* The value of model.NAME in the plan's settings; false: they have none. */
static bool plan_value(const struct pen_plan *plan, const char *name, char value[VALUE_BYTES]) {
  const size_t length = strlen(name);
  for (const char *line = plan->settings; line != NULL && *line != '\0';) {
    const size_t bytes = strcspn(line, "\n");
    if (strncmp(line, "model.", 6) == 0 && strncmp(line + 6, name, length) == 0 &&
        strncmp(line + 6 + length, " = ", 3) == 0) {
      const size_t before = 6 + length + 3;
      snprintf(value, VALUE_BYTES, "%.*s", (int)(bytes - before), line + before);
      return true;
    }
    line += bytes + (line[bytes] == '\n');
  }
  return false;
}

/* A number that is not whole, as config.json would have it. */
static void shorten(char value[VALUE_BYTES]) {
  _Static_assert((int)VALUE_BYTES >= (int)PEN_NUMBER_BYTES, "a number fits");
  char *end;
  const double number = strtod(value, &end);
  if (end != value && *end == '\0' && strpbrk(value, ".e") != NULL) {
    pen_shortest_text(value, number);
  }
}

/* Whether the setting has another value in the plan, which `here` receives. Sequences may be
 * shorter or longer than what the model was trained for, where no weight has their length, and
 * losses others. */
static bool differs(const struct pen_plan *plan, const struct pen_config_setting *setting,
                    char here[VALUE_BYTES]) {
  if (setting->is_length || setting->is_weight) {
    return false;
  }
  if (!plan_value(plan, setting->name, here)) {
    strcpy(here, "absent");
    return !setting->is_default && !setting->is_implied &&
           !pen_config_same_value(setting->text, "0");
  }
  if (pen_config_same_value(setting->text, here)) {
    return false;
  }
  shorten(here);
  return true;
}

/* Writes all differences, separated by commas; those of another family are not worth naming. */
static size_t write_differences(char text[PEN_MESSAGE_BYTES], const struct pen_plan *plan,
                                const struct pen_model_config *config,
                                const struct pen_config_rules *rules) {
  size_t count = 0, used = 0;
  char here[VALUE_BYTES];
  for (size_t i = 0; i < config->count; i++) {
    const struct pen_config_setting *setting = &config->setting[i];
    if (!differs(plan, setting, here) || pen_config_ignores(rules, setting->key)) {
      continue;
    }
    if (used < PEN_MESSAGE_BYTES) {
      used += (size_t)snprintf(
          text + used, PEN_MESSAGE_BYTES - used, "%s%s = %s there%s, model.%s = %s here",
          count == 0 ? "" : "; ", setting->key, setting->text,
          setting->is_default ? " (transformers' default)" : "", setting->name, here);
    }
    count++;
    if (i == 0) { /* the family */
      break;
    }
  }
  return count;
}

static void name_unknown(const struct pen_model_config *config) {
  const struct pen_config_lines *unknown = &config->unknown;
  char text[PEN_MESSAGE_BYTES];
  size_t used = 0;
  for (size_t i = 0; i < unknown->count && i < NAMED_MAX; i++) {
    used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", i == 0 ? "" : ", ",
                             unknown->line[i]);
  }
  if (unknown->count > 0) {
    pen_warn("%s: %zu keys are not known, and not compared: %s%s", config->path, unknown->count,
             text, unknown->count > NAMED_MAX ? ", ..." : "");
  }
}

/* Of a description the operations say what a config.json would. */
static bool has_settings(const struct pen_plan *plan) {
  return plan->needs_tokens && strcmp(plan->family, "described") != 0;
}

static bool find_config(const struct pen_plan *plan, const char *folder, char path[PATH_MAX]) {
  if (pen_path_join(path, folder, "config.json")) {
    pen_fail(PEN_EXIT_NO_INPUT, "%s: %s", folder, strerror(errno));
  }
  return has_settings(plan) && access(path, F_OK) == 0;
}

static void fail_for_reasons(const struct pen_model_config *config, int status) {
  const struct pen_config_lines *reasons = &config->reasons;
  for (size_t i = 0; i + 1 < reasons->count && i + 1 < PEN_CONFIG_LINES_MAX; i++) {
    pen_warn("%s", reasons->line[i]);
  }
  if (status != 0) {
    const size_t last =
        reasons->count < PEN_CONFIG_LINES_MAX ? reasons->count : (size_t)PEN_CONFIG_LINES_MAX;
    pen_fail(status, "%s", reasons->line[last - 1]);
  }
}

bool pen_config_check(const struct pen_plan *plan, const char *folder,
                      const struct pen_texts *ignored) {
  const struct pen_config_rules rules = {ignored->text, ignored->count, NULL};
  struct pen_model_config config;
  char path[PATH_MAX], text[PEN_MESSAGE_BYTES];
  if (!find_config(plan, folder, path)) {
    return false;
  }
  fail_for_reasons(&config, pen_model_config_read(&config, path, &rules));
  const size_t count = write_differences(text, plan, &config, &rules);
  if (count > 0) {
    pen_fail(PEN_EXIT_DATA, "%s: %.*s; to load it all the same: --ignore KEY", path, 1000, text);
  }
  name_unknown(&config);
  pen_model_config_free(&config);
  return true;
}

const char *pen_config_differences(char text[PEN_MESSAGE_BYTES], const struct pen_plan *plan,
                                   const char *folder) {
  const struct pen_config_rules rules = {0};
  struct pen_model_config config;
  char path[PATH_MAX], all[PEN_MESSAGE_BYTES];
  *text = '\0';
  if (find_config(plan, folder, path)) {
    if (pen_model_config_read(&config, path, &rules) == 0 &&
        write_differences(all, plan, &config, &rules) > 0) {
      snprintf(text, PEN_MESSAGE_BYTES, ": %.*s", PEN_MESSAGE_BYTES - 3, all);
    }
    pen_model_config_free(&config);
  }
  return text;
}
