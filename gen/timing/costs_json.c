/* costs_json.c: values of a file of measured costs (see costs_json.h). */
#include "gen/timing/costs_json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/input_file.h"
#include "base/message.h"
#include "gen/base/arena.h"
#include "gen/base/error.h"
#include "gen/topology/settings.h"
#include "runtime/plan/plan.h"

_Noreturn void pen_costs_json_fail(const char *path, const char *place, const char *reason) {
  pen_stop(PEN_EXIT_DATA, "%s: %s: %s", path, place, reason);
}

/* Fails, as the topology does for a setting, with the value and what is allowed. */
static _Noreturn void fail_value(const char *path, const char *place, const json_t *value,
                                 const char *allowed) {
  char shown[PEN_SHOWN_BYTES];
  if (!value) pen_costs_json_fail(path, place, "is missing");
  char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(15));
  pen_shown(shown, text ? text : "");
  free(text);
  pen_stop(PEN_EXIT_DATA, "%s: %s = %s: %s", path, place, shown, allowed);
}

double pen_costs_json_time(const char *path, const char *place, const json_t *value) {
  const double time = json_is_number(value) ? json_number_value(value) : -1;
  if (time != 0 && !(time >= PEN_COST_LEAST && time <= PEN_COST_MOST))
    fail_value(path, place, value,
               pen_text("0, or a number from %g to %g", PEN_COST_LEAST, PEN_COST_MOST));
  return time;
}

uint64_t pen_costs_json_count(const char *path, const char *place, const json_t *value,
                              uint64_t least, uint64_t most) {
  const json_int_t number = json_is_integer(value) ? json_integer_value(value) : -1;
  if (number < 0 || (uint64_t)number < least || (uint64_t)number > most)
    fail_value(path, place, value,
               pen_text("a whole number from %llu to %llu", (unsigned long long)least,
                        (unsigned long long)most));
  return (uint64_t)number;
}

uint32_t pen_costs_json_setting(const char *path, const char *place, const json_t *value,
                                const char *setting) {
  const struct pen_setting *row = pen_setting_find_path(setting);
  return (uint32_t)pen_costs_json_count(path, place, value, (uint64_t)row->minimum,
                                        (uint64_t)row->maximum);
}

double pen_costs_json_real(const char *path, const char *place, const json_t *value,
                           const char *setting) {
  const struct pen_setting *row = pen_setting_find_path(setting);
  const double number = json_is_number(value) ? json_number_value(value) : NAN;
  if (!(number >= row->minimum && number <= row->maximum))
    fail_value(path, place, value, pen_text("a number from %g to %g", row->minimum, row->maximum));
  return number;
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
