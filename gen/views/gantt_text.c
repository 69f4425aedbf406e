/* gantt_text.c: --print=text: a Gantt chart in characters.
 *
 * The step is divided into as many equal columns as fit the line. A column shows the kind that
 * takes most of it (F, I, W, B, a collective, or nothing), and of several actions of that kind the
 * longest one. An action with several columns also shows its microbatch. */
#include <stdio.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "gen/timing/critical_path.h"
#include "gen/views/chart.h"
#include "gen/views/views.h"
#include "gen/base/arena.h"
#include "gen/base/error.h"
#include "gen/schedule/order.h"
#include "gen/timing/timing.h"
#include "runtime/plan/plan.h"

enum { KINDS = PEN_ACTION_KINDS, PATH_LINES = 12 };

struct text_chart {
  const struct pen_view *view;
  FILE *out;
  const uint32_t *local;
  int label, columns; /* columns of the rank numbers, and of the chart */
  double unit;        /* time of a column */
};

/* The time that each kind takes of one column. */
struct column_use {
  double taken[KINDS], longest[KINDS];
  uint32_t action[KINDS]; /* the longest */
};

/* The kind that takes most of a column, or -1 for idle time. */
static int longest_kind(const struct column_use *use, double unit) {
  int best = -1;
  double most = unit;
  for (int kind = 0; kind < KINDS; kind++) most -= use->taken[kind];
  for (int kind = 0; kind < KINDS; kind++)
    if (use->taken[kind] > most + 1e-9 * unit) best = kind, most = use->taken[kind];
  return best;
}

static struct column_use *column_uses(const struct text_chart *chart, uint32_t rank) {
  const struct pen_view *view = chart->view;
  struct column_use *use = pen_new((size_t)chart->columns, sizeof *use);
  for (uint32_t index = 0; index < view->order->count[rank]; index++) {
    int kind = view->order->action[rank][index].kind;
    double start = view->timing->start[rank][index] / chart->unit,
           end = view->timing->end[rank][index] / chart->unit;
    for (int column = (int)start; column < chart->columns && column < end; column++) {
      double part = (fmin(end, column + 1.0) - fmax(start, column)) * chart->unit;
      use[column].taken[kind] += part;
      if (part <= use[column].longest[kind]) continue;
      use[column].longest[kind] = part;
      use[column].action[kind] = index;
    }
  }
  return use;
}

/* The columns of one action: `F12---`; in small letters for the second, fourth ... stage of a rank.
 */
static void print_action(const struct text_chart *chart, const struct pen_compute *action,
                         int columns) {
  bool small = chart->local[action->stage] % 2 == 1;
  const struct pen_chart_kind *kind = &pen_chart_kinds[action->kind];
  char text[16];
  int bytes = snprintf(text, sizeof text, "%c%u", small ? kind->letter + ('a' - 'A') : kind->letter,
                       action->microbatch);
  if (!pen_kind_has_microbatch(action->kind)) bytes = 1;
  if (bytes > columns) bytes = 1;
  if (chart->view->colour)
    fprintf(chart->out, "\033[48;5;%u;38;5;%um", kind->terminal, kind->dark ? 231 : 16);
  fprintf(chart->out, "%.*s", bytes, text);
  for (; bytes < columns; bytes++) fputc(chart->view->colour ? ' ' : kind->fill, chart->out);
  if (chart->view->colour) fputs("\033[0m", chart->out);
}

static void print_lane(const struct text_chart *chart, uint32_t rank) {
  struct column_use *use = column_uses(chart, rank);
  fprintf(chart->out, "%*u |", chart->label - 2, rank);
  for (int column = 0; column < chart->columns;) {
    int kind = longest_kind(&use[column], chart->unit), past = column + 1;
    while (past < chart->columns && longest_kind(&use[past], chart->unit) == kind &&
           (kind < 0 || use[past].action[kind] == use[column].action[kind]))
      past++;
    if (kind < 0)
      fprintf(chart->out, "%*s", past - column, "");
    else
      print_action(chart, &chart->view->order->action[rank][use[column].action[kind]],
                   past - column);
    column = past;
  }
  fputs("|\n", chart->out);
}

/* Times, under the columns where they begin. */
static void print_scale(const struct text_chart *chart) {
  double span = chart->unit * chart->columns, step = pen_scale_step(span, chart->columns / 12 + 1);
  int at = fprintf(chart->out, "%*s", chart->label, "");
  for (int tick = 0; tick * step <= span; tick++) {
    char text[32];
    int wanted = chart->label + (int)(tick * step / chart->unit + 0.5),
        bytes = snprintf(text, sizeof text, "%.6g", tick * step);
    if (wanted + bytes > chart->label + chart->columns + 1) break;
    at += fprintf(chart->out, "%*s%s", wanted - at, "", text);
  }
  fputc('\n', chart->out);
}

/* A mark under the column where the lower bound ends, with its value on the side that has room. */
static void print_bound(const struct text_chart *chart) {
  int at = chart->label + (int)(chart->view->bound / chart->unit + 1e-6);
  const char *text = pen_text("lower bound %.6g", chart->view->bound);
  int bytes = (int)strlen(text);
  if (!(chart->view->bound > 0)) return;
  if (at + 2 + bytes <= chart->view->columns)
    fprintf(chart->out, "%*s^ %s\n", at, "", text);
  else if (bytes + 1 <= at)
    fprintf(chart->out, "%*s ^\n", at - 1, text);
  else
    fprintf(chart->out, "%*s^\n", at, "");
}

/* A text in lines as wide as the view; all but the first are indented. */
static void print_wrapped(const struct text_chart *chart, const char *text) {
  int width = chart->view->columns, column = 0;
  while (*text) {
    int blanks = (int)strspn(text, " "), bytes = (int)strcspn(text + blanks, " ");
    if (column > 0 && column + blanks + bytes > width) {
      column = fprintf(chart->out, "\n    ") - 1;
      blanks -= (int)strspn(text, " ");
      text += strspn(text, " ");
    }
    column += fprintf(chart->out, "%.*s", blanks + bytes, text);
    text += blanks + bytes;
  }
  fputc('\n', chart->out);
}

static void print_legend(const struct text_chart *chart) {
  const struct pen_order *order = chart->view->order;
  bool shown[KINDS] = {0};
  for (uint32_t rank = 0; rank < order->rank_count; rank++)
    for (uint32_t index = 0; index < order->count[rank]; index++)
      shown[order->action[rank][index].kind] = true;
  const char *legend = "";
  for (int kind = 0; kind < KINDS; kind++)
    if (shown[kind])
      legend = pen_text("%s%s%c %s", legend, *legend ? ", " : "", pen_chart_kinds[kind].letter,
                        pen_chart_kinds[kind].meaning);
  if (chart->view->partition->stages_per_rank > 1)
    legend = pen_text(
        "%s; small letters: each rank's %s", legend,
        chart->view->partition->stages_per_rank == 2 ? "second stage" : "second, fourth ... stage");
  print_wrapped(chart,
                pen_text("%s; one column: %.4g (%s)", legend, chart->unit, chart->view->unit));
}

static void print_figures(const struct text_chart *chart) {
  const struct pen_timing *timing = chart->view->timing;
  double bound = chart->view->bound;
  print_wrapped(
      chart, pen_text("makespan %.6g (%s), span %.6g, work %.6g: bubble %.4f, idle %.4f; lower "
                      "bound %.6g, gap %.4f",
                      timing->makespan, chart->view->unit, timing->span, timing->work,
                      timing->bubble, timing->idle_share, bound, pen_gap(timing->makespan, bound)));
}

static void print_path(const struct text_chart *chart) {
  const struct pen_view *view = chart->view;
  char *text = NULL;
  size_t bytes = 0;
  FILE *lines = open_memstream(&text, &bytes);
  if (!lines) pen_stop(PEN_EXIT_TOPOLOGY, "penstock-gen: out of memory: " PEN_PLAN_SETTINGS);
  pen_path_print(
      lines,
      pen_critical_path(view->order, view->partition, view->training, view->cost, view->timing),
      view->order, PATH_LINES);
  fclose(lines);
  for (char *line = text, *next; *line; line = next) {
    next = line + strcspn(line, "\n");
    *next++ = 0;
    print_wrapped(chart, line);
  }
  free(text);
}

/* The duration of the shortest action, if it divides all others; else 0. */
static double common_time(const struct pen_view *view) {
  double least = INFINITY;
  for (uint32_t rank = 0; rank < view->order->rank_count; rank++)
    for (uint32_t index = 0; index < view->order->count[rank]; index++)
      least = fmin(least, view->timing->end[rank][index] - view->timing->start[rank][index]);
  for (uint32_t rank = 0; rank < view->order->rank_count; rank++)
    for (uint32_t index = 0; index < view->order->count[rank]; index++) {
      double times = (view->timing->end[rank][index] - view->timing->start[rank][index]) / least;
      if (!(fabs(times - round(times)) < 1e-6)) return 0;
    }
  return isfinite(least) ? least : 0;
}

/* The time of a column: the step fills the line, or at least four fifths of it if every action then
 * has whole columns. */
static double column_time(const struct pen_view *view, int columns) {
  double unit = view->timing->makespan / columns, common = common_time(view);
  if (!(unit > 0)) return 1;
  double whole = floor(common / unit + 1e-9);
  return whole >= 1 && common / whole <= 1.25 * unit ? common / whole : unit;
}

void pen_gantt_text(FILE *out, const struct pen_view *view) {
  const struct pen_plan *plan = view->plan;
  int label = snprintf(NULL, 0, "%u", plan->rank_count - 1) + 2;
  struct text_chart chart = {.view = view,
                             .out = out,
                             .local = pen_local_stages(view->partition),
                             .label = label,
                             .columns = view->columns - label - 1};
  chart.unit = column_time(view, chart.columns);
  if (view->timing->makespan > 0)
    chart.columns = (int)ceil(view->timing->makespan / chart.unit - 1e-6);
  print_wrapped(&chart, pen_text("%s: %s, %s x %s, %s", plan->name, plan->schedule,
                                 pen_counted(plan->rank_count, "rank"),
                                 pen_counted(plan->stages_per_rank, "stage"),
                                 pen_counted(plan->microbatch_count, "microbatch")));
  for (uint32_t rank = 0; rank < plan->rank_count; rank++) print_lane(&chart, rank);
  print_bound(&chart);
  print_scale(&chart);
  print_legend(&chart);
  print_figures(&chart);
  print_path(&chart);
}
