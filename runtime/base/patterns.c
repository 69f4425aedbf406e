/* patterns.c: expands the patterns of a list of files, and takes their weights (see patterns.h). */
#define _GNU_SOURCE 1
#include "runtime/base/patterns.h"

#include <glob.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/check.h"

enum { PARTS_MAX = 16384 };

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

/* A name of a part of several, "data-00001-of-00003.safetensors". */
struct part {
  const char *text;
  size_t stem_bytes; /* "data-" */
  size_t digits;
  uint64_t number, count; /* 0: it is no part */
  const char *rest;       /* "-of-00003.safetensors" */
};

static struct part part_of(const char *text) {
  static const char between[] = "-of-", digits[] = "0123456789";
  struct part part = {.text = text};
  const char *of = NULL;
  for (const char *at = text; (at = strstr(at, between)) != NULL; at++) {
    of = at;
  }
  const char *total = of == NULL ? "" : of + sizeof between - 1, *number = of;
  while (of != NULL && number > text && strchr(digits, number[-1]) != NULL) {
    number--;
  }
  if (of == NULL || number == of || number == text || number[-1] != '-' ||
      strcmp(total + strspn(total, digits), ".safetensors") != 0) {
    return part;
  }
  part.stem_bytes = (size_t)(number - text);
  part.digits = (size_t)(of - number);
  part.number = strtoull(number, NULL, 10);
  part.count = strtoull(total, NULL, 10);
  part.rest = of;
  return part;
}

static bool are_of_one(const struct part *a, const struct part *b) {
  return a->count > 0 && b->count > 0 && a->stem_bytes == b->stem_bytes &&
         memcmp(a->text, b->text, a->stem_bytes) == 0 && strcmp(a->rest, b->rest) == 0;
}

/* Whether the list has a part alone, the first. */
static bool stands_for_all(const struct pen_texts *paths, const struct part *part) {
  bool alone = part->number == 1 && part->count > 1 && part->count <= PARTS_MAX;
  for (size_t i = 0; alone && i < paths->count; i++) {
    const struct part other = part_of(paths->text[i]);
    alone = !are_of_one(part, &other) || other.number == 1;
  }
  return alone;
}

void pen_parts_expand(struct pen_texts *paths) {
  struct pen_texts all = {.count = 0};
  for (size_t i = 0; i < paths->count; i++) {
    const struct part part = part_of(paths->text[i]);
    const uint64_t count = stands_for_all(paths, &part) ? part.count : 0;
    for (uint64_t n = 1; n <= count; n++) {
      char *path = NULL;
      pen_check(asprintf(&path, "%.*s%0*" PRIu64 "%s", (int)part.stem_bytes, part.text,
                         (int)part.digits, n, part.rest) > 0,
                "no memory for a name");
      append(&all, path);
    }
    if (count == 0) {
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
