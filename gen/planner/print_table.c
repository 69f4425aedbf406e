/* print_table.c: the best candidates as a table. */
#include <string.h>

#include "gen/base/arena.h"
#include "gen/planner/equal_time.h"
#include "gen/planner/internal.h"
#include "gen/views/chart.h"

struct table {
  const struct pen_planner *planner;
  const struct pen_plan_result *result;
  struct pen_time_unit unit;
  int digits; /* of steps */
};

/* ---- cells ---- */

static const char *place_cell(const struct table *t, size_t i) {
  (void)t;
  return pen_text("%zu", i + 1);
}

static bool is_as_fast(const struct pen_plan_candidate *one,
                       const struct pen_plan_candidate *other) {
  return pen_equal_time(one->step) == pen_equal_time(other->step);
}

static const char *step_cell(const struct table *t, size_t i) {
  const struct pen_plan_candidate *c = &t->result->best[i];
  return i && is_as_fast(c, c - 1) ? "=" : pen_text("%.*g", t->digits, c->step / t->unit.size);
}

static const char *tokens_cell(const struct table *t, size_t i) {
  const double tokens = pen_tokens_per_second(t->planner, t->result, t->result->best[i].step);
  return tokens > 0 ? pen_text("%.0f", tokens) : NULL;
}

static const char *memory_cell(const struct table *t, size_t i) {
  const uint64_t bytes = t->result->best[i].arena_bytes;
  return pen_text("%llu", (unsigned long long)((bytes + (1 << 20) - 1) >> 20));
}

static const char *bubble_cell(const struct table *t, size_t i) {
  return pen_text("%.3f", t->result->best[i].bubble);
}

static const char *idle_cell(const struct table *t, size_t i) {
  return pen_text("%.3f", t->result->best[i].idle);
}

static const char *ranks_cell(const struct table *t, size_t i) {
  const struct pen_choice *choice = &t->result->best[i].choice;
  const char *members = pen_axis_text(t->planner->axes, choice, PEN_AXIS_tensor);
  return pen_text("%s x %lld%s%s", pen_axis_text(t->planner->axes, choice, PEN_AXIS_replicas),
                  (long long)pen_choice_ranks(t->planner->axes, choice), members ? " x " : "",
                  members ? members : "");
}

static const char *stages_cell(const struct table *t, size_t i) {
  return pen_axis_text(t->planner->axes, &t->result->best[i].choice, PEN_AXIS_stages);
}

static const char *microbatches_cell(const struct table *t, size_t i) {
  const struct pen_choice *choice = &t->result->best[i].choice;
  return pen_text("%lld x %s", (long long)pen_choice_microbatches(t->planner->axes, choice),
                  pen_axis_text(t->planner->axes, choice, PEN_AXIS_microbatch));
}

static const char *reason_cell(const struct table *t, size_t i) {
  const struct pen_plan_candidate *first = &t->result->best[0], *c = &t->result->best[i];
  if (i == 0) return "";
  if (!is_as_fast(first, c)) {
    const double percent = 100 * (c->step / first->step - 1);
    const bool computes = !strcmp(c->reason, "recomputation");
    return pen_text("%s%% slower: %s", percent < 0.01 ? "<0.01" : pen_text("%.2g", percent),
                    computes ? "more computation" : c->reason);
  }
  return c->arena_bytes > first->arena_bytes ? "as fast, more memory" : "as fast";
}

/* ---- columns ---- */

struct table_column {
  const char *title;
  const char *(*cell)(const struct table *t, size_t i); /* NULL of all rows: no column */
  enum pen_axis first, past; /* without `cell`: the values of these axes */
};

static const struct table_column columns[] = {
    {"", place_cell, 0, 0},
    {"step", step_cell, 0, 0},
    {"tokens/s", tokens_cell, 0, 0},
    {"MiB a rank", memory_cell, 0, 0},
    {"bubble", bubble_cell, 0, 0},
    {"idle", idle_cell, 0, 0},
    {"replicas x ranks", ranks_cell, 0, 0},
    {"stages a rank", stages_cell, 0, 0},
    {"microbatches x size", microbatches_cell, 0, 0},
    {NULL, NULL, PEN_AXIS_schedule, PEN_AXIS_balance},
    {NULL, NULL, PEN_AXIS_balance, PEN_AXIS_recompute},
    {NULL, NULL, PEN_AXIS_recompute, PEN_AXIS_shard},
    {NULL, NULL, PEN_AXIS_shard, PEN_AXES},
    {"why not the first", reason_cell, 0, 0},
};
enum { COLUMNS = sizeof columns / sizeof *columns };

static bool axis_is_used(const struct table *t, enum pen_axis axis) {
  bool used = false;
  for (size_t i = 0; i < t->result->count; i++)
    used |= pen_candidate_text(t->planner, &t->result->best[i], axis) != NULL;
  return used;
}

/* The values of the axes that any candidate uses, separated by `/`; row 0: their names. */
static const char *axes_cell(const struct table *t, const struct table_column *column, size_t row) {
  const char *text = NULL;
  for (enum pen_axis a = column->first; a < column->past; a++) {
    if (!axis_is_used(t, a)) continue;
    const char *value = row ? pen_candidate_text(t->planner, &t->result->best[row - 1], a)
                            : strchr(t->planner->axes->axis[a].setting, '.') + 1;
    text = pen_text("%s%s%s", text ? text : "", text ? "/" : "", value ? value : "-");
  }
  return text;
}

static const char *title_of(const struct table *t, const struct table_column *column) {
  if (column->cell == ranks_cell && axis_is_used(t, PEN_AXIS_tensor))
    return "replicas x ranks x tensor ranks";
  return column->cell == step_cell ? pen_text("step %s", t->unit.name) : column->title;
}

/* NULL: the table has no such column. */
static const char *cell_of(const struct table *t, const struct table_column *column, size_t row) {
  if (!column->cell) return axes_cell(t, column, row);
  if (row) return column->cell(t, row - 1);
  return column->cell(t, 0) ? title_of(t, column) : NULL;
}

void pen_plan_print_table(FILE *out, const struct pen_planner *planner,
                          const struct pen_plan_result *result) {
  const struct table t = {planner, result, pen_time_unit_of(result->best[0].step, result->unit),
                          pen_step_digits(result)};
  const char *(*row)[COLUMNS] = pen_new(result->count + 1, sizeof *row);
  size_t width[COLUMNS] = {0};
  for (size_t i = 0; i <= result->count; i++)
    for (int c = 0; c < COLUMNS; c++) {
      row[i][c] = cell_of(&t, &columns[c], i);
      if (row[i][c] && strlen(row[i][c]) > width[c]) width[c] = strlen(row[i][c]);
    }
  for (size_t i = 0; i <= result->count; i++) {
    for (int c = 0; c + 1 < COLUMNS; c++)
      if (row[i][c]) fprintf(out, "%-*s  ", (int)width[c], row[i][c]);
    fprintf(out, "%s\n", row[i][COLUMNS - 1]);
  }
  fprintf(out, "%s\n%llu candidates, %llu evaluated, %llu left out by their bounds%s\n",
          result->because, (unsigned long long)result->total, (unsigned long long)result->evaluated,
          (unsigned long long)(result->total - result->evaluated),
          result->is_measured ? "" : "; --costs=FILE gives ms and tokens/s");
}
