/* patterns.c: expands the patterns of a list of files, and takes their weights (see patterns.h). */
#include "runtime/base/patterns.h"

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/check.h"

/* glob() itself sorts by the locale. */
static int compare_bytes(const void *a, const void *b) {
  return strcmp(*(char *const *)a, *(char *const *)b);
}

static void append(struct pen_texts *to, const char *text) {
  const char **grown = realloc(to->text, (to->count + 1) * sizeof *grown);
  pen_check(grown != NULL, "no memory for %zu names of files", to->count + 1);
  grown[to->count++] = text;
  to->text = grown;
}

static void append_matches(struct pen_texts *to, const char *option, const char *pattern,
                           bool single) {
  glob_t found;
  if (glob(pattern, GLOB_NOSORT, NULL, &found) != 0) {
    pen_fail(PEN_EXIT_NO_INPUT, "%s %s: no file matches this pattern", option, pattern);
  }
  if (single && found.gl_pathc > 1) {
    pen_fail(PEN_EXIT_USAGE, "%s %s: %zu files match, and a weight is that of one file", option,
             pattern, found.gl_pathc);
  }
  qsort(found.gl_pathv, found.gl_pathc, sizeof *found.gl_pathv, compare_bytes);
  for (size_t i = 0; i < found.gl_pathc; i++) {
    const char *path = strdup(found.gl_pathv[i]);
    pen_check(path != NULL, "no memory for a name");
    append(to, path);
  }
  globfree(&found);
}

void pen_patterns_expand(const char *option, struct pen_texts *paths, bool single) {
  struct pen_texts all = {.count = 0};
  for (size_t i = 0; i < paths->count; i++) {
    if (strpbrk(paths->text[i], "*?[") != NULL && access(paths->text[i], F_OK) != 0) {
      append_matches(&all, option, paths->text[i], single);
    } else {
      append(&all, paths->text[i]);
    }
  }
  *paths = all;
}

/* Where "=NUMBER" ends the text; null: it does not, or a file has this name. */
static const char *weight_in(const char *text) {
  const char *equals = strrchr(text, '=');
  char *end;
  if (equals == NULL || access(text, F_OK) == 0) {
    return NULL;
  }
  strtod(equals + 1, &end);
  return end == equals + 1 || *end != '\0' ? NULL : equals;
}

/* Of at most 7 digits, a point and 9 digits. */
static uint64_t weight_of(const char *option, const char *text, const char *number) {
  enum { DECIMALS = 9, WHOLE_DIGITS = 7 };
  const uint64_t unit = 1000000000, most = 1000000 * unit;
  const size_t whole = strspn(number, "0123456789");
  const char *decimals = number[whole] == '.' ? number + whole + 1 : number + whole;
  const size_t count = strspn(decimals, "0123456789");
  char digits[WHOLE_DIGITS + DECIMALS + 1] = "";
  if (whole <= WHOLE_DIGITS && count <= DECIMALS && decimals[count] == '\0') {
    snprintf(digits, sizeof digits, "%.*s%.*s%.*s", (int)whole, number, (int)count, decimals,
             (int)(DECIMALS - count), "000000000");
  }
  const uint64_t weight = strtoull(digits, NULL, 10);
  if (weight == 0 || weight > most) {
    pen_fail(PEN_EXIT_USAGE,
             "%s %s: a weight is above 0 and at most 1000000, with at most %d decimals", option,
             text, DECIMALS);
  }
  return weight;
}

const uint64_t *pen_weights_take(const char *option, struct pen_texts *paths) {
  const char *without = NULL;
  uint64_t *weights = pen_allocate(paths->count + 1, sizeof *weights, "weights");
  size_t taken = 0;
  for (size_t i = 0; i < paths->count; i++) {
    const char *text = paths->text[i], *equals = weight_in(text);
    if (equals == NULL) {
      without = text;
      continue;
    }
    weights[i] = weight_of(option, text, equals + 1);
    char *path = strndup(text, (size_t)(equals - text));
    pen_check(path != NULL, "no memory for a name");
    paths->text[i] = path;
    taken++;
  }
  if (taken > 0 && without != NULL) {
    pen_fail(PEN_EXIT_USAGE, "%s %s: it has no weight, and others have: give each one, or none",
             option, without);
  }
  if (taken < 2) {
    free(weights);
    return NULL;
  }
  return weights;
}
