/* costs_json.c: values of a file of measured costs (see costs_json.h). */
#include "gen/timing/costs_json.h"

#include <math.h>

#include <jansson.h>

#include "base/input_file.h"
#include "gen/base/arena.h"
#include "gen/base/error.h"
#include "gen/base/json_file.h"
#include "gen/topology/settings.h"
#include "runtime/plan/plan.h"

_Noreturn void pen_costs_json_fail(const char *path, const char *place, const char *reason) {
  pen_stop(PEN_EXIT_DATA, "%s: %s: %s", path, place, reason);
}

/* Fails, as the topology does for a setting, with the value and what is allowed. */
static _Noreturn void fail_value(const char *path, const char *place, const json_t *value,
                                 const char *allowed) {
  if (!value) pen_costs_json_fail(path, place, "is missing");
  pen_json_fail(PEN_EXIT_DATA, path, place, value, allowed);
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
  return pen_json_load(path, PEN_INPUT_TABLE, PEN_EXIT_DATA);
}
