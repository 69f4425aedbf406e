/* config_settings.c: what a config.json says (see config_settings.h). */
#include "base/config_settings.h"

#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#include "base/message.h"

struct pen_config_text {
  struct pen_config_text *next;
  char text[];
};

const char *pen_config_text(struct pen_model_config *config, const char *format, ...) {
  va_list list, again;
  va_start(list, format);
  va_copy(again, list);
  const int length = vsnprintf(NULL, 0, format, list);
  struct pen_config_text *text = malloc(sizeof *text + (size_t)length + 1);
  if (text == NULL) {
    pen_message_say("", "%s: out of memory", config->path);
    exit(EX_OSERR);
  }
  vsnprintf(text->text, (size_t)length + 1, format, again);
  va_end(again);
  va_end(list);
  text->next = config->texts;
  config->texts = text;
  return text->text;
}

void pen_model_config_free(struct pen_model_config *config) {
  while (config->texts != NULL) {
    struct pen_config_text *next = config->texts->next;
    free(config->texts);
    config->texts = next;
  }
  json_decref(config->root);
}

struct pen_config_setting *pen_model_config_find(struct pen_model_config *config,
                                                 const char *name) {
  for (size_t i = 0; i < config->count; i++)
    if (strcmp(config->setting[i].name, name) == 0) return &config->setting[i];
  return NULL;
}

/* A key ends, or continues with a part of it. */
bool pen_config_ignores(const struct pen_config_rules *rules, const char *key) {
  for (size_t i = 0; i < rules->ignored_count; i++) {
    const size_t length = strlen(rules->ignored[i]);
    if (strncmp(key, rules->ignored[i], length) == 0 && strchr(".[", key[length]) != NULL)
      return true;
  }
  return false;
}

bool pen_config_same_value(const char *a, const char *b) {
  char *a_end, *b_end;
  const double x = strtod(a, &a_end), y = strtod(b, &b_end);
  const bool numbers = a_end != a && b_end != b && *a_end == '\0' && *b_end == '\0';
  return numbers ? x <= y && x >= y : strcmp(a, b) == 0;
}
