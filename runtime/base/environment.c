/* environment.c: checks the variables of environment.def (see environment.h). Kernels read theirs
 * by getenv(), and are also called without this check, by tests. */
#include "runtime/base/environment.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"
#include "runtime/base/check.h"

enum { LIST_BYTES = 200 };

#define NAMES(function, ...)                                           \
  static const char *function(size_t index) {                          \
    static const char *const names[] = {__VA_ARGS__};                  \
    return index < sizeof names / sizeof *names ? names[index] : NULL; \
  }
NAMES(products, "own", "library")
NAMES(graphs, "marked", "unmarked", "serial", "plain")
NAMES(nccl_messages, "put", "send")
NAMES(attentions, "own")

typedef const char *value_of(size_t index);

struct variable {
  const char *name;
  value_of *value;
};

static const struct variable variables[] = {
#define PEN_VARIABLE(name, values) {#name, values},
#include "runtime/base/environment.def"
};

static void check(const struct variable *variable, const char *given) {
  char list[LIST_BYTES] = "";
  size_t used = 0;
  for (size_t i = 0; variable->value(i) != NULL && used < sizeof list; i++) {
    if (strcmp(variable->value(i), given) == 0) {
      return;
    }
    used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", i == 0 ? "" : ", ",
                             variable->value(i));
  }
  pen_fail(PEN_EXIT_USAGE, "%s = %.100s: one of %s", variable->name, given, list);
}

const char *pen_environment(const char *name) {
  const char *given = getenv(name);
  return given != NULL && given[0] != '\0' ? given : NULL;
}

void pen_environment_check(void) {
  for (size_t v = 0; v < sizeof variables / sizeof *variables; v++) {
    const char *given = pen_environment(variables[v].name);
    if (given != NULL) {
      check(&variables[v], given);
    }
  }
}
