/* convert.h: penstock-convert writes a topology from the config.json of a model of Hugging Face's
 * transformers. read_config.c reads the config by the table keys.def into a struct convert_model;
 * convert.c reads the command line and writes the topology; message.c prints errors and warnings.
 */
#ifndef PEN_CONVERT_H
#define PEN_CONVERT_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* A setting of the group model, as text for the topology. */
struct convert_setting {
  const char *name, *text; /* "hidden", "768" */
  const char *key;         /* the key of the config; null: from the command line */
};

enum { CONVERT_SETTINGS_MAX = 32, CONVERT_REASONS_MAX = 100 };

struct convert_model {
  const char *path;   /* of config.json */
  const char *family; /* "llama" */
  struct convert_setting setting[CONVERT_SETTINGS_MAX];
  size_t count;
  const char *reason[CONVERT_REASONS_MAX]; /* why the model is not supported: the first of them */
  size_t reason_count;
};

/* Reads config.json, or the one in a folder. Unknown keys are accepted if `ignored` has them. Ends
 * the program with a line `FILE: KEY = VALUE is not supported: what is` for each such key: 65 for a
 * model that is not supported, 66 if there is no such file. */
struct convert_model convert_read(const char *path, const char *const *ignored,
                                  size_t ignored_count);

/* The setting of that name, or null. */
struct convert_setting *convert_find(struct convert_model *model, const char *name);

/* Ends the program: "penstock-convert: " and the message on a line of standard error. */
_Noreturn void convert_fail(int status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void convert_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
void convert_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
