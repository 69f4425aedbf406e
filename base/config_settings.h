/* config_settings.h: what a config.json says (model_config.h reads it), as settings of the group
 * model of a topology, and as lines for messages. */
#ifndef PEN_CONFIG_SETTINGS_H
#define PEN_CONFIG_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>

/* One setting. */
struct pen_config_setting {
  const char *name; /* "hidden"; "family" is the first */
  const char *text; /* as a topology has it: "768" */
  const char *key;  /* that says it: "rope_scaling.factor"; or that would, but is absent */
  bool is_default;  /* the key is absent: the value is that of transformers' class */
  bool is_implied;  /* penstock-gen has the same default */
  bool is_length;   /* the positions that there may be: sequences may be shorter */
  bool is_weight;   /* of a loss: of training, not of the model */
};

enum { PEN_CONFIG_SETTINGS_MAX = 32, PEN_CONFIG_LINES_MAX = 100 };

/* Lines of text, of which the first are kept. */
struct pen_config_lines {
  const char *line[PEN_CONFIG_LINES_MAX];
  size_t count; /* may be more than are kept */
};

struct pen_model_config {
  const char *path;   /* of config.json */
  const char *family; /* "llama"; null: see the reasons */
  struct pen_config_setting setting[PEN_CONFIG_SETTINGS_MAX];
  size_t count;
  struct pen_config_lines reasons; /* why it is not supported: "FILE: KEY = VALUE is not ..." */
  struct pen_config_lines refused; /* the keys of all reasons, those of ignored ones included */
  struct pen_config_lines notes;   /* what is done otherwise, or is odd: "FILE: KEY = VALUE: ..." */
  struct pen_config_lines unknown; /* the keys that the table does not have */
  struct pen_config_lines unknown_values;
  struct json_t *root;           /* the file; null: it could not be read, see the reasons */
  struct pen_config_text *texts; /* what the lines and settings point to */
};

/* What a reader asks for. */
struct pen_config_rules {
  /* Keys that are taken whatever they say, with all that is in them. */
  const char *const *ignored;
  size_t ignored_count;
  /* What is allowed for a setting (and null, if `nullable`), if the number is not, else null. NAN:
   * the value was no number of that type. Null: any number is allowed. */
  const char *(*allowed)(const char *setting, bool nullable, double number);
};

/* Whether the key, or one that it is part of ("a" of "a.b"), is ignored. */
bool pen_config_ignores(const struct pen_config_rules *rules, const char *key);

/* The setting of that name, or null. */
struct pen_config_setting *pen_model_config_find(struct pen_model_config *config, const char *name);

/* Formats a text that lives as long as the config. */
const char *pen_config_text(struct pen_model_config *config, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Whether two texts are the same value: equal as numbers, if both are numbers. */
bool pen_config_same_value(const char *a, const char *b);

void pen_model_config_free(struct pen_model_config *config);

#endif
