/* convert.h: what the parts of penstock-convert share. */
#ifndef PEN_CONVERT_H
#define PEN_CONVERT_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* A setting of the group model, as the topology will say it. */
struct convert_setting {
  const char *name, *text; /* "hidden", "768" */
  const char *key;         /* which of the config it is from; null: the command line */
};

enum { CONVERT_SETTINGS_MAX = 32 };

struct convert_model {
  const char *path;   /* of config.json */
  const char *family; /* "llama" */
  struct convert_setting setting[CONVERT_SETTINGS_MAX];
  size_t count;
};

/* Reads config.json, or that of a folder. `ignored` are keys that are taken although nothing here
 * knows them. Ends the program with `FILE: KEY = VALUE: what is allowed` and status 65 where the
 * model is not one of ours, 66 where there is no such file. */
struct convert_model convert_read(const char *path, const char *const *ignored,
                                  size_t ignored_count);

/* The setting of that name, or null. */
struct convert_setting *convert_find(struct convert_model *model, const char *name);

/* Ends the program: "penstock-convert: " and the message on a line of standard error. */
_Noreturn void convert_fail(int status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void convert_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
