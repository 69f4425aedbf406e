/* picture_text.c: --print=text: a Gantt chart in characters.
 *
 * The step is cut into as many equal columns as fit the line. A column shows what takes most of it:
 * F, I, W, B, a row of the exchange between replicas, or nothing; of several actions of that kind
 * the longest there. Where one action has several columns it shows its microbatch as well. */
#include <stdio.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "gen/schedule/action_text.h"
#include "gen/timing/critical_path.h"
#include "gen/views/view.h"
#include "gen/base/arena.h"
#include "gen/base/error.h"
#include "gen/schedule/order.h"
#include "gen/timing/timing.h"
#include "runtime/plan/plan.h"
#include "gen/partition/training.h"

enum { KINDS = PEN_ACTION_KINDS, PATH_LINES = 12 };

/* Letter, what fills the rest of an action's columns without colour, and the colours of a terminal
 * with 256 of them: apart in lightness too. */
static const struct {
  char letter, fill;
  const char *colour, *meaning;
} kinds[KINDS] = {
    [PEN_F] = {'F', '-', "\033[48;5;153;38;5;16m", "forward"},
    [PEN_B] = {'B', '=', "\033[48;5;61;38;5;231m", "backward"},
    [PEN_I] = {'I', '=', "\033[48;5;208;38;5;16m", "backward for the input"},
    [PEN_W] = {'W', '~', "\033[48;5;29;38;5;231m", "backward for the weights"},
    [PEN_REDUCE_SCATTER] = {'R', '+', "\033[48;5;246;38;5;16m", "gradients of replicas added up"},
    [PEN_ALL_GATHER_GRAD] = {'G', '+', "\033[48;5;252;38;5;16m", "gradients of replicas gathered"},
    [PEN_ALL_GATHER_WEIGHT] = {'V', '+', "\033[48;5;252;38;5;16m", "weights of replicas gathered"},
    [PEN_UNSHARD] = {'U', '+', "\033[48;5;252;38;5;16m", "weights of replicas brought together"},
};

struct chart {
  const struct pen_view *picture;
  FILE *out;
  const uint32_t *local;
  int label, columns; /* of the names in front, and of the chart itself */
  double unit;        /* time of a column */
};

/* What takes a column of one rank. */
struct cell {
  double taken[KINDS], longest[KINDS];
  uint32_t action[KINDS]; /* the longest */
};

/* The kind that takes most of a cell, or -1 where nothing runs for longest. */
static int winner(const struct cell *cell, double unit) {
  int best = -1;
  double most = unit;
  for (int kind = 0; kind < KINDS; kind++) most -= cell->taken[kind];
  for (int kind = 0; kind < KINDS; kind++)
    if (cell->taken[kind] > most + 1e-9 * unit) best = kind, most = cell->taken[kind];
  return best;
}

static struct cell *cells_of(const struct chart *chart, uint32_t rank) {
  const struct pen_view *picture = chart->picture;
  struct cell *cell = pen_new((size_t)chart->columns, sizeof *cell);
  for (uint32_t index = 0; index < picture->order->count[rank]; index++) {
    int kind = picture->order->action[rank][index].kind;
    double start = picture->timing->start[rank][index] / chart->unit,
           end = picture->timing->end[rank][index] / chart->unit;
    for (int column = (int)start; column < chart->columns && column < end; column++) {
      double part = (fmin(end, column + 1.0) - fmax(start, column)) * chart->unit;
      cell[column].taken[kind] += part;
      if (part <= cell[column].longest[kind]) continue;
      cell[column].longest[kind] = part;
      cell[column].action[kind] = index;
    }
  }
  return cell;
}

/* One action's columns: `F12---`; of a rank's second, fourth ... stage in small letters. */
static void print_run(const struct chart *chart, const struct pen_compute *action, int columns) {
  bool small = chart->local[action->stage] % 2 == 1;
  char letter = kinds[action->kind].letter, text[16];
  int bytes = snprintf(text, sizeof text, "%c%u", small ? letter + ('a' - 'A') : letter,
                       action->microbatch);
  if (!pen_kind_has_microbatch(action->kind)) bytes = 1;
  if (bytes > columns) bytes = 1;
  if (chart->picture->colour) fputs(kinds[action->kind].colour, chart->out);
  fprintf(chart->out, "%.*s", bytes, text);
  for (; bytes < columns; bytes++)
    fputc(chart->picture->colour ? ' ' : kinds[action->kind].fill, chart->out);
  if (chart->picture->colour) fputs("\033[0m", chart->out);
}

static void print_lane(const struct chart *chart, uint32_t rank) {
  struct cell *cell = cells_of(chart, rank);
  fprintf(chart->out, "%*u |", chart->label - 2, rank);
  for (int column = 0; column < chart->columns;) {
    int kind = winner(&cell[column], chart->unit), past = column + 1;
    while (past < chart->columns && winner(&cell[past], chart->unit) == kind &&
           (kind < 0 || cell[past].action[kind] == cell[column].action[kind]))
      past++;
    if (kind < 0)
      fprintf(chart->out, "%*s", past - column, "");
    else
      print_run(chart, &chart->picture->order->action[rank][cell[column].action[kind]],
                past - column);
    column = past;
  }
  fputs("|\n", chart->out);
}

/* Numbers under the columns at which those times begin. */
static void print_scale(const struct chart *chart) {
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

/* A text in lines as wide as the picture, each but the first indented. */
static void print_wrapped(const struct chart *chart, const char *text) {
  int width = chart->picture->columns, column = 0;
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

static void print_legend(const struct chart *chart) {
  const struct pen_order *order = chart->picture->order;
  bool there[KINDS] = {0};
  for (uint32_t rank = 0; rank < order->rank_count; rank++)
    for (uint32_t index = 0; index < order->count[rank]; index++)
      there[order->action[rank][index].kind] = true;
  const char *legend = "";
  for (int kind = 0; kind < KINDS; kind++)
    if (there[kind])
      legend = pen_text("%s%s%c %s", legend, *legend ? ", " : "", kinds[kind].letter,
                        kinds[kind].meaning);
  if (chart->picture->partition->stages_per_rank > 1)
    legend = pen_text("%s; small letters: each rank's %s", legend,
                      chart->picture->partition->stages_per_rank == 2 ? "second stage"
                                                                      : "second, fourth ... stage");
  print_wrapped(chart,
                pen_text("%s; one column: %.4g (%s)", legend, chart->unit, chart->picture->unit));
}

static void print_figures(const struct chart *chart) {
  const struct pen_timing *timing = chart->picture->timing;
  print_wrapped(
      chart,
      pen_text("makespan %.6g (%s), span %.6g, work %.6g: bubble %.4f; lower bound %.6g, gap %.4f",
               timing->makespan, chart->picture->unit, timing->span, timing->work, timing->bubble,
               timing->lower_bound, timing->gap));
}

static void print_path(const struct chart *chart) {
  const struct pen_view *picture = chart->picture;
  char *text = NULL;
  size_t bytes = 0;
  FILE *lines = open_memstream(&text, &bytes);
  if (!lines) pen_stop(PEN_EXIT_TOPOLOGY, "penstock-gen: out of memory");
  pen_path_print(lines,
                 pen_critical_path(picture->order, picture->partition, picture->training,
                                   picture->cost, picture->timing),
                 picture->order, PATH_LINES);
  fclose(lines);
  for (char *line = text, *next; *line; line = next) {
    next = line + strcspn(line, "\n");
    *next++ = 0;
    print_wrapped(chart, line);
  }
  free(text);
}

/* A time of which every action takes a whole number, or 0 where there is none: the shortest
 * action's, if it divides all others. */
static double common_time(const struct pen_view *picture) {
  double least = INFINITY;
  for (uint32_t rank = 0; rank < picture->order->rank_count; rank++)
    for (uint32_t index = 0; index < picture->order->count[rank]; index++)
      least = fmin(least, picture->timing->end[rank][index] - picture->timing->start[rank][index]);
  for (uint32_t rank = 0; rank < picture->order->rank_count; rank++)
    for (uint32_t index = 0; index < picture->order->count[rank]; index++) {
      double times =
          (picture->timing->end[rank][index] - picture->timing->start[rank][index]) / least;
      if (!(fabs(times - round(times)) < 1e-6)) return 0;
    }
  return isfinite(least) ? least : 0;
}

/* The time of a column: the step fills the line, or less of it by a fifth at most, if every action
 * has whole columns then. */
static double unit_of(const struct pen_view *picture, int columns) {
  double unit = picture->timing->makespan / columns, common = common_time(picture);
  if (!(unit > 0)) return 1;
  double whole = floor(common / unit + 1e-9);
  return whole >= 1 && common / whole <= 1.25 * unit ? common / whole : unit;
}

void pen_view_text(FILE *out, const struct pen_view *picture) {
  const struct pen_plan *plan = picture->plan;
  int label = snprintf(NULL, 0, "%u", plan->rank_count - 1) + 2;
  struct chart chart = {.picture = picture,
                        .out = out,
                        .local = pen_local_stages(picture->partition),
                        .label = label,
                        .columns = picture->columns - label - 1};
  chart.unit = unit_of(picture, chart.columns);
  if (picture->timing->makespan > 0)
    chart.columns = (int)ceil(picture->timing->makespan / chart.unit - 1e-6);
  print_wrapped(&chart, pen_text("%s: %s, %s x %s, %s", plan->name, plan->schedule,
                                 pen_counted(plan->rank_count, "rank"),
                                 pen_counted(plan->stages_per_rank, "stage"),
                                 pen_counted(plan->microbatch_count, "microbatch")));
  for (uint32_t rank = 0; rank < plan->rank_count; rank++) print_lane(&chart, rank);
  print_scale(&chart);
  print_legend(&chart);
  print_figures(&chart);
  print_path(&chart);
}
