/* patterns.c: expands the patterns of a list of files (see patterns.h). */
#include "runtime/base/patterns.h"

#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/check.h"

/* glob() itself sorts by the locale. */
static int compare_bytes(const void *a, const void *b) {
  return strcmp(*(char *const *)a, *(char *const *)b);
}

static void append(struct pen_texts *to, const char *const *text, size_t count) {
  const char **grown = realloc(to->text, (to->count + count) * sizeof *grown);
  pen_check(grown != NULL, "no memory for %zu names of files", to->count + count);
  memcpy(grown + to->count, text, count * sizeof *grown);
  to->text = grown;
  to->count += count;
}

static void append_matches(struct pen_texts *to, const char *option, const char *pattern) {
  glob_t found;
  if (glob(pattern, GLOB_NOSORT, NULL, &found) != 0) {
    pen_fail(PEN_EXIT_NO_INPUT, "%s %s: no file matches this pattern", option, pattern);
  }
  qsort(found.gl_pathv, found.gl_pathc, sizeof *found.gl_pathv, compare_bytes);
  append(to, (const char *const *)found.gl_pathv, found.gl_pathc);
}

void pen_patterns_expand(const char *option, struct pen_texts *paths) {
  struct pen_texts all = {.count = 0};
  for (size_t i = 0; i < paths->count; i++) {
    if (strpbrk(paths->text[i], "*?[") != NULL && access(paths->text[i], F_OK) != 0) {
      append_matches(&all, option, paths->text[i]);
    } else {
      append(&all, &paths->text[i], 1);
    }
  }
  *paths = all;
}
