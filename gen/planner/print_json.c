/* print_json.c: the best candidates in JSON. */
#include <string.h>

#include "base/json_members.h"
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
  return PEN_JSON({"settings", settings_json(planner, candidate)},
                  {"makespan", json_real(candidate->makespan)},
                  {"step", result->is_measured ? json_real(candidate->step) : NULL},
                  {"tokens_per_second", tokens > 0 ? json_real(tokens) : json_null()},
                  {"arena_bytes", pen_json_integer(candidate->arena_bytes)},
                  {"bubble", json_real(candidate->bubble)}, {"idle", json_real(candidate->idle)},
                  {"reason", candidate->reason ? json_string(candidate->reason) : json_null()});
}

void pen_plan_print_json(FILE *out, const struct pen_planner *planner,
                         const struct pen_plan_result *result) {
  json_t *best = json_array();
  for (size_t i = 0; i < result->count; i++)
    json_array_append_new(best, candidate_json(planner, result, &result->best[i]));
  json_t *root =
      PEN_JSON({"candidates_total", pen_json_integer(result->total)},
               {"candidates_evaluated", pen_json_integer(result->evaluated)},
               {"candidates_pruned", pen_json_integer(result->total - result->evaluated)},
               {"unit", json_string(result->unit)}, {"first_because", json_string(result->because)},
               {"best", best});
  json_dumpf(root, out, JSON_INDENT(1) | JSON_REAL_PRECISION(15));
  fputc('\n', out);
  json_decref(root);
}
