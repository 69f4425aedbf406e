/* json_file.c: reads a JSON file (see json_file.h). */
#include "gen/base/json_file.h"

#include <stdlib.h>

#include "base/message.h"
#include "gen/base/error.h"

json_t *pen_json_load(const char *path, enum pen_input_kind kind, int status) {
  struct pen_input_error refused;
  size_t bytes;
  char *text = pen_input_read(path, kind, &bytes, &refused);
  if (text == NULL)
    pen_stop(refused.status == PEN_EXIT_DATA ? status : refused.status, "penstock-gen: %s: %s",
             path, refused.text);
  json_error_t error;
  json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
  free(text);
  if (!root) pen_stop(status, "%s:%d: %s", path, error.line, error.text);
  return root;
}

void pen_json_fail(int status, const char *path, const char *place, const json_t *value,
                   const char *allowed) {
  char shown[PEN_SHOWN_BYTES];
  if (!value) pen_stop(status, "%s: %s: missing; %s", path, place, allowed);
  char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(15));
  pen_shown(shown, text ? text : "");
  free(text);
  pen_stop(status, "%s: %s = %s: %s", path, place, shown, allowed);
}
