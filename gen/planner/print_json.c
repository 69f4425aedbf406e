/* print_json.c: the best candidates in JSON. */
#include <jansson.h>
#include <string.h>

#include "gen/planner/internal.h"
#include "gen/planner/write_topology.h"
#include "gen/topology/settings.h"

/* A value as JSON: numbers as numbers, all else as strings. */
static json_t *setting_json(const struct pen_setting_text *setting) {
  const struct pen_setting *row = pen_setting_find_path(setting->path);
  if (row->type != PEN_INTEGER) return json_string(setting->text);
  json_int_t number = 0;
  for (const char *digit = setting->text; *digit; digit++) number = 10 * number + (*digit - '0');
  return json_integer(number);
}

static json_t *settings_json(const struct pen_planner *planner,
                             const struct pen_plan_candidate *candidate) {
  struct pen_setting_text setting[PEN_CHOICE_SETTINGS_MAX];
  struct pen_setting_text written[PEN_WRITTEN_SETTINGS_MAX];
  const size_t chosen = pen_choice_settings(planner->axes, &candidate->choice, setting),
               count = pen_written_settings(planner, &candidate->choice,
                                            candidate->searched ? &planner->options->seconds : NULL,
                                            written);
  json_t *object = json_object();
  for (size_t i = 0; i < chosen; i++)
    json_object_set_new(object, setting[i].path, setting_json(&setting[i]));
  for (size_t i = 0; i < count; i++)
    json_object_set_new(object, written[i].path, setting_json(&written[i]));
  return object;
}

static json_t *candidate_json(const struct pen_planner *planner,
                              const struct pen_plan_result *result,
                              const struct pen_plan_candidate *candidate) {
  const double tokens = pen_tokens_per_second(planner, result, candidate->step);
  json_t *object = json_object();
  json_object_set_new(object, "settings", settings_json(planner, candidate));
  json_object_set_new(object, "makespan", json_real(candidate->makespan));
  if (result->is_measured) json_object_set_new(object, "step", json_real(candidate->step));
  json_object_set_new(object, "tokens_per_second", tokens > 0 ? json_real(tokens) : json_null());
  json_object_set_new(object, "arena_bytes", json_integer((json_int_t)candidate->arena_bytes));
  json_object_set_new(object, "bubble", json_real(candidate->bubble));
  json_object_set_new(object, "idle", json_real(candidate->idle));
  json_object_set_new(object, "reason",
                      candidate->reason ? json_string(candidate->reason) : json_null());
  return object;
}

void pen_plan_print_json(FILE *out, const struct pen_planner *planner,
                         const struct pen_plan_result *result) {
  json_t *root = json_object(), *best = json_array();
  const json_int_t total = (json_int_t)result->total, evaluated = (json_int_t)result->evaluated;
  json_object_set_new(root, "candidates_total", json_integer(total));
  json_object_set_new(root, "candidates_evaluated", json_integer(evaluated));
  json_object_set_new(root, "candidates_pruned", json_integer(total - evaluated));
  json_object_set_new(root, "unit", json_string(result->unit));
  json_object_set_new(root, "first_because", json_string(result->because));
  for (size_t i = 0; i < result->count; i++)
    json_array_append_new(best, candidate_json(planner, result, &result->best[i]));
  json_object_set_new(root, "best", best);
  json_dumpf(root, out, JSON_INDENT(1) | JSON_REAL_PRECISION(15));
  fputc('\n', out);
  json_decref(root);
}
