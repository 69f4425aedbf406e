/* gantt_svg.c: --print=svg: a Gantt chart for a paper, with the memory of each rank below it.
 *
 * Lanes are ranks, time runs to the right. The colours of the kinds differ in lightness as well as
 * in hue (L* about 83, 67, 46 and 34), so that they are distinct for colour-blind readers and in
 * grey. Where a rank has several stages, the height of a dark mark at the left edge of an action
 * shows its stage: the rank's first at the top. The halves of a pair a|b share the height of the
 * lane.
 *
 * A chart that would be too wide is folded: the lanes are drawn once, as wide as they are, and each
 * row shows a part of them. Then actions may be too narrow for marks, numbers and borders. */
#include <stdio.h>
#include <math.h>
#include <string.h>

#include "gen/timing/critical_path.h"
#include "gen/views/chart.h"
#include "gen/views/gantt_memory.h"
#include "gen/timing/cost.h"
#include "gen/base/arena.h"
#include "gen/partition/partition.h"
#include "gen/schedule/order.h"
#include "gen/timing/timing.h"
#include "runtime/plan/plan.h"

enum { KINDS = PEN_ACTION_KINDS, LANES_TALL = 16 };

static const double left = 52, right = 76, top = 88, lane_tall = 24, row_lane_tall = 16,
                    lane_least = 5, memory_tall = 20, memory_least = 5;
static const double chart_least = 872, chart_most = 4000,
                    action_wide = 11; /* the chart grows with the actions of a rank */
static const double row_wide = 960, axis_tall = 36, plain_wide = 6; /* of folded charts */
enum { ROWS_MOST = 6 };
static const double digit_width = 0.56; /* of a digit, as a fraction of the font size */
static const double font_most = 11, font_least = 4.5;

static const char idle_fill[] = "#f1f2f4";

static double y_of(const struct pen_drawing *d, uint32_t rank) { return d->top + rank * d->lane; }

/* ---- the actions ---- */

static struct pen_action_box box_of(const struct pen_drawing *d, uint32_t rank, uint32_t index) {
  const struct pen_compute *action = &d->view->order->action[rank][index];
  const struct pen_timing *timing = d->view->timing;
  bool first = action->overlaps && index + 1 < d->view->order->count[rank],
       second = index > 0 && action[-1].overlaps;
  double x = pen_svg_at(&d->time, timing->start[rank][index]),
         w = pen_svg_at(&d->time, timing->end[rank][index]) - x;
  double h = first || second ? d->bar / 2 : d->bar;
  return (struct pen_action_box){action, x, y_of(d, rank) + (second ? h : 0), w, h};
}

/* Width of the mark that shows the stage of an action. */
static double mark_wide(const struct pen_drawing *d, double w) {
  return d->view->partition->stages_per_rank > 1 ? fmin(1.8, w * 0.15) : 0;
}

static int digits_of(uint32_t number) { return snprintf(NULL, 0, "%u", number); }

/* One font size for all numbers: the largest at which that of the narrowest action fits, within
 * bounds. */
static double find_font(const struct pen_drawing *d) {
  double font = fmin(font_most, d->bar * 0.62);
  for (const struct pen_action_box *box = d->box; box < d->box + d->box_count; box++) {
    double fits = fmin(
        (box->w - 2 - mark_wide(d, box->w)) / (digit_width * digits_of(box->action->microbatch)),
        box->h * 0.9);
    if (box->w > 0) font = fmin(font, fits);
  }
  return fmax(font, font_least);
}

static void draw_kind(const struct pen_drawing *d, int kind) {
  const struct pen_action_box *box, *past = d->box + d->box_count;
  fprintf(d->out, "<g fill=\"%s\"%s>\n", pen_chart_kinds[kind].svg,
          d->plain ? " shape-rendering=\"crispEdges\"" : " stroke=\"#fff\" stroke-width=\"0.5\"");
  for (box = d->box; box < past; box++)
    if (box->action->kind == kind) pen_svg_rectangle(d->out, box->x, box->y, box->w, box->h, "");
  fputs("</g>\n", d->out);
  if (d->plain) return;
  fprintf(d->out, "<g fill=\"%s\" font-size=\"%.3g\" text-anchor=\"middle\">\n",
          pen_chart_kinds[kind].dark ? "#fff" : "#000", d->font);
  for (box = d->box; box < past; box++) {
    const uint32_t number = box->action->microbatch;
    bool fits = digit_width * d->font * digits_of(number) + 1 <= box->w && d->font <= box->h &&
                kind <= PEN_W;
    if (box->action->kind == kind && fits)
      pen_svg_text(d->out, box->x + (box->w + mark_wide(d, box->w)) / 2,
                   box->y + box->h / 2 + d->font * 0.36, 0, NULL, pen_text("%u", number));
  }
  fputs("</g>\n", d->out);
}

/* Marks show which of the stages of its rank an action belongs to. */
static void draw_stage_marks(const struct pen_drawing *d) {
  uint32_t stages = d->view->partition->stages_per_rank;
  if (stages == 1 || d->plain) return;
  fputs("<g fill=\"#000\" fill-opacity=\"0.75\">\n", d->out);
  for (const struct pen_action_box *box = d->box; box < d->box + d->box_count; box++) {
    double h = box->h / stages;
    pen_svg_rectangle(d->out, box->x + 0.25, box->y + h * d->local[box->action->stage],
                      mark_wide(d, box->w), h, "");
  }
  fputs("</g>\n", d->out);
}

static bool has_kind(const struct pen_drawing *d, int kind) {
  for (const struct pen_action_box *box = d->box; box < d->box + d->box_count; box++)
    if (box->action->kind == kind) return true;
  return false;
}

/* ---- messages and the critical path ---- */

static void draw_arrows(const struct pen_drawing *d) {
  const struct pen_view *view = d->view;
  fputs(
      "<defs><marker id=\"head\" viewBox=\"0 0 6 6\" refX=\"6\" refY=\"3\" markerWidth=\"5\" "
      "markerHeight=\"5\" orient=\"auto\">"
      "<path d=\"M0 0 6 3 0 6z\" fill=\"#333\"/></marker></defs>\n"
      "<g stroke=\"#333\" stroke-width=\"0.7\" stroke-opacity=\"0.7\" marker-end=\"url(#head)\">\n",
      d->out);
  for (uint32_t rank = 0; rank < view->order->rank_count; rank++)
    for (uint32_t index = 0; index < view->order->count[rank]; index++) {
      const struct pen_compute *action = &view->order->action[rank][index];
      uint32_t to = pen_message_stage(view->partition, action, 1);
      double end = view->timing->end[rank][index];
      if (to == PEN_NONE) continue;
      /* From the near quarter of one lane to that of the other, so that no number is crossed. */
      uint32_t receiver = view->partition->rank_of[to];
      double x = pen_svg_at(&d->time, end),
             past = pen_svg_at(&d->time, end + pen_send_cost(view->partition, view->cost,
                                                             action->stage, receiver)),
             near = d->bar * (receiver > rank ? 0.75 : 0.25);
      pen_svg_line(d->out, x, y_of(d, rank) + near, past, y_of(d, receiver) + d->bar - near);
    }
  fputs("</g>\n", d->out);
}

static void draw_critical(const struct pen_drawing *d) {
  const struct pen_view *view = d->view;
  const struct pen_path *path =
      pen_critical_path(view->order, view->partition, view->training, view->cost, view->timing);
  fputs("<g fill=\"none\" stroke=\"#000\" stroke-width=\"1.4\">\n", d->out);
  for (size_t i = 0; i < path->count; i++) {
    const struct pen_path_step *step = &path->step[i];
    const double x = pen_svg_at(&d->time, step->start), w = pen_svg_at(&d->time, step->end) - x;
    pen_svg_rectangle(d->out, x, y_of(d, step->rank), w, d->bar, "");
    if (i > 0 && step->rank != path->step[i - 1].rank)
      pen_svg_line(d->out, pen_svg_at(&d->time, path->step[i - 1].end),
                   y_of(d, path->step[i - 1].rank) + d->bar / 2, x,
                   y_of(d, step->rank) + d->bar / 2);
  }
  fputs("</g>\n", d->out);
}

/* ---- labels and axes ---- */

/* Returns where the next entry begins. */
static double draw_meaning(const struct pen_drawing *d, double x, double y, const char *attributes,
                           const char *meaning) {
  fprintf(d->out, "<g %s>", attributes);
  pen_svg_rectangle(d->out, x, y - 9, 14, 10, "");
  fputs("</g>\n", d->out);
  pen_svg_text(d->out, x + 18, y, 11, "start", meaning);
  return x + 32 + 6.5 * (double)strlen(meaning); /* wide enough for a wide font */
}

static void draw_legend(const struct pen_drawing *d, double y) {
  const bool marks = d->view->partition->stages_per_rank > 1;
  const char *rest = "";
  double x = left;
  for (int kind = 0; kind < KINDS; kind++) {
    const struct pen_chart_kind *of = &pen_chart_kinds[kind];
    if (has_kind(d, kind))
      x = draw_meaning(d, x, y, pen_text("fill=\"%s\"", of->svg),
                       kind <= PEN_W ? pen_text("%c %s", of->letter, of->meaning) : of->meaning);
  }
  draw_meaning(d, x, y, pen_text("stroke=\"#999\" stroke-width=\"0.5\" fill=\"%s\"", idle_fill),
               "idle");
  if (!d->plain) rest = "; number: microbatch";
  if (!d->plain && marks)
    rest = pen_text("%s; mark at the left edge: the rank's stage, the first on top", rest);
  if (d->rows > 1) rest = pen_text("%s; the step goes on from row to row", rest);
  if (d->view->arrows) rest = pen_text("%s; arrows: messages", rest);
  if (d->view->critical) rest = pen_text("%s; framed: critical path", rest);
  if (*rest) pen_svg_text(d->out, left, y + 16, 11, "start", rest + strlen("; "));
}

static void draw_lanes(const struct pen_drawing *d) {
  fprintf(d->out, "<g fill=\"%s\">\n", idle_fill);
  for (uint32_t rank = 0; rank < d->view->plan->rank_count; rank++)
    pen_svg_rectangle(d->out, left, y_of(d, rank), d->time.to - left, d->bar, "");
  fputs("</g>\n", d->out);
}

/* A line where the lower bound of the makespan ends. */
static void draw_bound(const struct pen_drawing *d) {
  const double x = pen_svg_at(&d->time, d->view->bound);
  if (!(d->view->bound > 0)) return;
  fputs("<g class=\"bound\" stroke=\"#d01c1c\" stroke-width=\"1.6\" stroke-dasharray=\"6 3\">",
        d->out);
  pen_svg_line(d->out, x, d->top - 3, x, y_of(d, d->view->plan->rank_count) + 2);
  fputs("</g>\n", d->out);
}

static void draw_step(const struct pen_drawing *d) {
  draw_lanes(d);
  for (int kind = 0; kind < KINDS; kind++)
    if (has_kind(d, kind)) draw_kind(d, kind);
  draw_stage_marks(d);
  if (d->view->arrows) draw_arrows(d);
  if (d->view->critical) draw_critical(d);
  draw_bound(d);
}

/* ---- rows ---- */

/* A part of the step: what is between two positions of the unfolded chart. */
struct chart_row {
  double begin, past, y; /* y: of the first lane */
};

static struct chart_row row_of(const struct pen_drawing *d, uint32_t index) {
  const double wide = (d->time.to - left) / d->rows,
               tall = y_of(d, d->view->plan->rank_count) - d->top + axis_tall;
  return (struct chart_row){left + index * wide, left + (index + 1) * wide, d->top + index * tall};
}

static void draw_rank_numbers(const struct pen_drawing *d, const struct chart_row *row) {
  const uint32_t every = (uint32_t)ceil(9 / d->lane);
  const double size = fmin(11, d->bar * 0.8 * every);
  for (uint32_t rank = 0; rank < d->view->plan->rank_count; rank += every)
    pen_svg_text(d->out, left - 6, row->y + rank * d->lane + d->bar / 2 + size * 0.36, size, "end",
                 pen_text("%u", rank));
}

/* The time axis: ticks at round numbers. */
static void draw_axis(const struct pen_drawing *d, const struct chart_row *row, double y) {
  const struct pen_time_unit unit = pen_time_unit_of(d->view->timing->makespan, d->view->unit);
  const double span = d->view->timing->makespan / unit.size,
               step = pen_scale_step(span, (int)((d->time.to - left) / 70)),
               shift = left - row->begin;
  double first = 0;
  while (pen_svg_at(&d->time, first * step * unit.size) < row->begin - 0.01) first++;
  fputs("<g stroke=\"#000\" stroke-width=\"0.8\">\n", d->out);
  pen_svg_line(d->out, left, y, row->past + shift, y);
  for (int drawn = 0; drawn < 2; drawn++) {
    for (double tick = first; tick * step <= span * (1 + 1e-9); tick++) {
      const double x = pen_svg_at(&d->time, tick * step * unit.size);
      if (x > row->past + 0.01) break;
      if (drawn == 0)
        pen_svg_line(d->out, x + shift, y, x + shift, y + 4);
      else
        pen_svg_text(d->out, x + shift, y + 14, 10, "middle", pen_text("%.6g", tick * step));
    }
    if (drawn == 0) fputs("</g>\n", d->out);
  }
}

static void draw_row(const struct pen_drawing *d, uint32_t index) {
  const struct chart_row row = row_of(d, index);
  const struct pen_time_unit unit = pen_time_unit_of(d->view->timing->makespan, d->view->unit);
  const double tall = y_of(d, d->view->plan->rank_count) - d->top,
               bound = pen_svg_at(&d->time, d->view->bound), above = 4;
  if (d->rows > 1)
    fprintf(d->out,
            "<svg x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" "
            "viewBox=\"%.2f %.2f %.2f %.2f\"><use href=\"#step\"/></svg>\n",
            left, row.y - above, row.past - row.begin, tall + above, row.begin, d->top - above,
            row.past - row.begin, tall + above);
  pen_svg_text(d->out, left - 6, row.y - 4, 10, "end", "rank");
  draw_rank_numbers(d, &row);
  draw_axis(d, &row, row.y + tall + 2);
  if (d->view->bound > 0 && bound >= row.begin && (bound < row.past || index + 1 == d->rows))
    pen_svg_text(d->out, bound + left - row.begin, row.y - 6, 10, "end",
                 pen_text("lower bound %.6g", d->view->bound / unit.size));
  if (index + 1 == d->rows)
    pen_svg_text(d->out, row.past + left - row.begin, row.y + tall + 29, 10, "end",
                 pen_text("time, %s", unit.name));
}

/* ---- the drawing ---- */

/* The height of a lane: smaller when there are many. */
static double lane_height(double tall, double least, uint32_t ranks) {
  return ranks <= LANES_TALL ? tall : fmax(least, tall * LANES_TALL / ranks);
}

static struct pen_drawing drawing_of(FILE *out, const struct pen_view *view) {
  const uint32_t ranks = view->plan->rank_count;
  struct pen_drawing d = {.view = view,
                          .out = out,
                          .local = pen_local_stages(view->partition),
                          .time = {0, view->timing->makespan, left, left},
                          .top = top,
                          .rows = 1};
  uint32_t most = 1;
  for (uint32_t rank = 0; rank < ranks; rank++)
    most = view->order->count[rank] > most ? view->order->count[rank] : most;
  const double wide = most * action_wide;
  if (wide > chart_most) {
    d.rows = (uint32_t)fmin(ROWS_MOST, ceil(wide / row_wide));
    d.plain = d.rows * row_wide / most < plain_wide;
  }
  d.time.to = left + (d.rows > 1 ? d.rows * row_wide : fmax(chart_least, wide));
  d.lane = lane_height(d.rows > 1 ? row_lane_tall : lane_tall, lane_least, ranks);
  d.bar = d.lane > 8 ? d.lane - 2 : d.lane * 0.85;
  struct pen_action_box *box = pen_new((size_t)ranks * most, sizeof *box);
  for (uint32_t rank = 0; rank < ranks; rank++)
    for (uint32_t index = 0; index < view->order->count[rank]; index++)
      box[d.box_count++] = box_of(&d, rank, index);
  d.box = box;
  d.font = find_font(&d);
  return d;
}

static void draw_titles(const struct pen_drawing *d) {
  const struct pen_plan *plan = d->view->plan;
  const struct pen_timing *timing = d->view->timing;
  const struct pen_time_unit unit = pen_time_unit_of(timing->makespan, d->view->unit);
  pen_svg_text(
      d->out, left, 20, 14, "start",
      pen_text("%s: %s, %s × %s, %s", plan->name, plan->schedule,
               pen_counted(plan->rank_count, "rank"), pen_counted(plan->stages_per_rank, "stage"),
               pen_counted(plan->microbatch_count, "microbatch")));
  pen_svg_text(d->out, left, 37, 11, "start",
               pen_text("makespan %.4g (%s), bubble %.2f %%, idle %.2f %%, %.2f %% above the "
                        "lower bound",
                        timing->makespan / unit.size, unit.name, 100 * timing->bubble,
                        100 * timing->idle_share, 100 * pen_gap(timing->makespan, d->view->bound)));
  draw_legend(d, 56);
}

void pen_gantt_svg(FILE *out, const struct pen_view *view) {
  const struct pen_drawing d = drawing_of(out, view);
  const struct chart_row last = row_of(&d, d.rows - 1);
  const uint32_t ranks = view->plan->rank_count;
  struct pen_drawing page = d; /* the whole step in the width of a row */
  page.time.to = left + last.past - last.begin;
  const double memory = last.y + ranks * d.lane + 50,
               memory_lane = lane_height(memory_tall, memory_least, ranks),
               height = memory + memory_lane * ranks + 10, width = page.time.to + right;
  pen_svg_begin(out, width, height, true, "font-family=\"Helvetica, Arial, sans-serif\"", "");
  draw_titles(&d);
  if (d.rows > 1) fputs("<defs><g id=\"step\">\n", out);
  draw_step(&d);
  if (d.rows > 1) fputs("</g></defs>\n", out);
  for (uint32_t row = 0; row < d.rows; row++) draw_row(&d, row);
  pen_draw_memory(&page, memory, memory_lane);
  pen_svg_end(out);
}
