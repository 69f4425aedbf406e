/* costs_json.h: values of a file of measured costs, with messages that name their place. */
#ifndef PEN_COSTS_JSON_H
#define PEN_COSTS_JSON_H

#include <stdint.h>

struct json_t;

#define PEN_COSTS_PARAMETERS_MOST INT64_MAX
#define PEN_COSTS_BYTES_MOST (UINT64_C(1) << 53) /* all whole numbers up to here are doubles */

/* Parses a file. Fails: 66 absent, 65 with `FILE:LINE: reason` if it is not JSON. */
struct json_t *pen_costs_json_load(const char *path);

/* Fails (65) with `FILE: PLACE: REASON`, as in `FILE: stages[2].forward: is missing`. */
_Noreturn void pen_costs_json_fail(const char *path, const char *place, const char *reason);

/* The value at a place; null: it is missing. Outside of the range, or of another type, it fails
 * (65) with `FILE: PLACE = VALUE: RANGE`. A time is in the range of a cost in a topology. */
double pen_costs_json_time(const char *path, const char *place, const struct json_t *value);
/* A whole number from `least` to `most`. */
uint64_t pen_costs_json_count(const char *path, const char *place, const struct json_t *value,
                              uint64_t least, uint64_t most);
/* A whole number in the range of a setting, `GROUP.NAME`. */
uint32_t pen_costs_json_setting(const char *path, const char *place, const struct json_t *value,
                                const char *setting);
/* A number in the range of a setting. */
double pen_costs_json_real(const char *path, const char *place, const struct json_t *value,
                           const char *setting);

#endif
