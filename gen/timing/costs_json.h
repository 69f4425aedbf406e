/* costs_json.h: values of a file of measured costs, with messages that name their place. */
#ifndef PEN_COSTS_JSON_H
#define PEN_COSTS_JSON_H

#include <stdint.h>

struct json_t;

/* Parses a file. Fails: 66 absent, 65 with `FILE:LINE: reason` if it is not JSON. */
struct json_t *pen_costs_json_load(const char *path);

/* Fails (65) with `FILE: PLACE: REASON`, as in `FILE: stages[2].forward: is missing`. */
_Noreturn void pen_costs_json_fail(const char *path, const char *place, const char *reason);

/* The value at a place; null: it is missing. Fails (65) unless it is 0 or more and finite. */
double pen_costs_json_number(const char *path, const char *place, const struct json_t *value);
/* The same for whole numbers. */
uint64_t pen_costs_json_count(const char *path, const char *place, const struct json_t *value);
uint32_t pen_costs_json_count32(const char *path, const char *place, const struct json_t *value);

#endif
