/* json_output.c: measured costs as a JSON file (see json_output.h). */
#include "runtime/observe/json_output.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/check.h"
#include "runtime/base/output.h"

void pen_json_output(int descriptor, const char *option, const char *path,
                     const struct json_t *object) {
  char *text = json_dumps(object, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
  pen_check(text != NULL, "no memory for the measured costs");
  bool failed = ftruncate(descriptor, 0) != 0 && errno != EINVAL; /* EINVAL: a pipe, a device */
  failed = failed || pen_output_write(descriptor, text, strlen(text)) != 0 ||
           pen_output_write(descriptor, "\n", 1) != 0;
  if (close(descriptor) != 0 || failed) {
    pen_fail(PEN_EXIT_CANNOT_WRITE, "%s %s: %s", option, path, strerror(errno));
  }
  free(text);
}
