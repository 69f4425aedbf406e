/* costs_json.c: values of a file of measured costs (see costs_json.h). */
#include "gen/timing/costs_json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/input_file.h"
#include "gen/base/error.h"
#include "runtime/plan/plan.h"

_Noreturn void pen_costs_json_fail(const char *path, const char *place, const char *reason) {
  pen_stop(PEN_EXIT_DATA, "%s: %s: %s", path, place, reason);
}

double pen_costs_json_number(const char *path, const char *place, const json_t *value) {
  double number = json_is_number(value) ? json_number_value(value) : -1;
  if (!isfinite(number) || number < 0)
    pen_costs_json_fail(path, place, value ? "must be a number, 0 or more" : "is missing");
  return number;
}

uint64_t pen_costs_json_count(const char *path, const char *place, const json_t *value) {
  json_int_t count = json_is_integer(value) ? json_integer_value(value) : -1;
  if (count < 0)
    pen_costs_json_fail(path, place, value ? "must be a whole number, 0 or more" : "is missing");
  return (uint64_t)count;
}

uint32_t pen_costs_json_count32(const char *path, const char *place, const json_t *value) {
  uint64_t count = pen_costs_json_count(path, place, value);
  if (count > UINT32_MAX) pen_costs_json_fail(path, place, "is too large");
  return (uint32_t)count;
}

json_t *pen_costs_json_load(const char *path) {
  struct pen_input_error refused;
  size_t bytes;
  char *text = pen_input_read(path, PEN_INPUT_TABLE, &bytes, &refused);
  if (text == NULL) pen_stop(refused.status, "penstock-gen: %s: %s", path, refused.text);
  json_error_t error;
  json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
  free(text);
  if (!root) pen_stop(PEN_EXIT_DATA, "%s:%d: %s", path, error.line, error.text);
  return root;
}
