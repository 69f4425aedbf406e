/* print_table.c: the best candidates as a table. */
#include <string.h>

#include "gen/base/arena.h"
#include "gen/planner/internal.h"

/* The choices of several axes in one column, separated by `/`; without those that do not apply. */
static const char *joined(const struct pen_planner *planner, const struct pen_choice *choice,
                          int first, int past) {
  const char *text = "";
  for (int a = first; a < past; a++) {
    const char *value = pen_axis_text(planner->axes, choice, (enum pen_axis)a);
    if (value) text = pen_text("%s%s%s", text, *text ? "/" : "", value);
  }
  return *text ? text : "-";
}

enum { COLUMNS = 13 };

static void fill_row(const struct pen_planner *planner, const struct pen_plan_result *result,
                     const struct pen_plan_candidate *c, size_t place, const char *cell[COLUMNS]) {
  const struct pen_axes *axes = planner->axes;
  const struct pen_choice *choice = &c->choice;
  const double tokens = pen_tokens_per_second(planner, result, c->step);
  size_t n = 0;
  cell[n++] = pen_text("%zu", place);
  cell[n++] = pen_text("%.6g", c->step);
  cell[n++] = tokens > 0 ? pen_text("%.0f", tokens) : "-";
  cell[n++] = pen_text("%llu", (unsigned long long)((c->arena_bytes + (1 << 20) - 1) >> 20));
  cell[n++] = pen_text("%.3f", c->bubble);
  cell[n++] = pen_text("%lldx%lld", (long long)pen_axis_number(axes, choice, PEN_AXIS_replicas),
                       (long long)pen_choice_ranks(axes, choice));
  cell[n++] = pen_text("%lld", (long long)pen_axis_number(axes, choice, PEN_AXIS_stages));
  cell[n++] = pen_text("%lldx%lld", (long long)pen_choice_microbatches(axes, choice),
                       (long long)pen_axis_number(axes, choice, PEN_AXIS_microbatch));
  const char *schedule = pen_axis_text(axes, choice, PEN_AXIS_schedule);
  cell[n++] = c->searched ? "search" : schedule;
  cell[n++] = joined(planner, choice, PEN_AXIS_balance, PEN_AXIS_recompute);
  cell[n++] = joined(planner, choice, PEN_AXIS_recompute, PEN_AXIS_shard);
  cell[n++] = joined(planner, choice, PEN_AXIS_shard, PEN_AXES);
  cell[n++] = c->reason ? c->reason : "";
}

void pen_plan_print_table(FILE *out, const struct pen_planner *planner,
                          const struct pen_plan_result *result) {
  const char *(*row)[COLUMNS] = pen_new(result->count + 1, sizeof *row);
  const char *const titles[COLUMNS] = {"",          "time",
                                       "tokens/s",  "MiB",
                                       "bubble",    "replicas x ranks",
                                       "stages",    "microbatches x size",
                                       "schedule",  "cut",
                                       "recompute", "sharding",
                                       "slower by"};
  size_t width[COLUMNS] = {0};
  memcpy(row[0], titles, sizeof titles);
  for (size_t i = 0; i < result->count; i++)
    fill_row(planner, result, &result->best[i], i + 1, row[i + 1]);
  for (size_t i = 0; i <= result->count; i++)
    for (int c = 0; c < COLUMNS; c++)
      if (strlen(row[i][c]) > width[c]) width[c] = strlen(row[i][c]);
  for (size_t i = 0; i <= result->count; i++) {
    for (int c = 0; c + 1 < COLUMNS; c++) fprintf(out, "%-*s  ", (int)width[c], row[i][c]);
    fprintf(out, "%s\n", row[i][COLUMNS - 1]);
  }
  fprintf(out, "%llu candidates, %llu evaluated, %llu left out by their bounds; times are %s\n",
          (unsigned long long)result->total, (unsigned long long)result->evaluated,
          (unsigned long long)(result->total - result->evaluated), result->unit);
}
