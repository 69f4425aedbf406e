/* gantt_svg.c: --print=svg: a Gantt chart for a paper, with the memory of each rank below it.
 *
 * Lanes are ranks, time runs to the right. The colours of the kinds differ in lightness as well as
 * in hue (L* about 83, 67, 46 and 34), so that they are distinct for colour-blind readers and in
 * grey. Where a rank has several stages, the height of a dark mark at the left edge of an action
 * shows its stage: the rank's first at the top. The halves of a pair a|b share the height of the
 * lane. */
#include <stdio.h>
#include <math.h>
#include <string.h>

#include "gen/timing/critical_path.h"
#include "gen/views/live_ranges.h"
#include "gen/views/chart.h"
#include "gen/views/views.h"
#include "gen/timing/cost.h"
#include "gen/base/arena.h"
#include "gen/partition/partition.h"
#include "gen/partition/training.h"
#include "gen/schedule/order.h"
#include "gen/timing/timing.h"
#include "runtime/plan/plan.h"

enum { KINDS = PEN_ACTION_KINDS, LANES_TALL = 16 };

static const double left = 52, right = 76, lane_tall = 24, lane_least = 5, memory_tall = 20,
                    memory_least = 5;
static const double chart_least = 872, chart_most = 4000,
                    action_wide = 11;   /* the chart grows with the actions of a rank */
static const double digit_width = 0.56; /* of a digit, as a fraction of the font size */
static const double font_most = 11, font_least = 4.5;

static const struct {
  const char *fill, *text, *meaning;
} kinds[KINDS] = {
    [PEN_F] = {"#b5d5f2", "#000", "F forward"},
    [PEN_B] = {"#44508f", "#fff", "B backward"},
    [PEN_I] = {"#ec9532", "#000", "I backward for the input"},
    [PEN_W] = {"#1b7a55", "#fff", "W backward for the weights"},
    [PEN_REDUCE_SCATTER] = {"#9a9a9a", "#000", "gradients reduced over replicas"},
    [PEN_REDUCE_GROUPS] = {"#9a9a9a", "#000", "gradients reduced over groups"},
    [PEN_GATHER_GROUPS] = {"#cfcfcf", "#000", "gradients gathered from groups"},
    [PEN_ALL_GATHER_GRAD] = {"#cfcfcf", "#000", "gradients gathered from replicas"},
    [PEN_ALL_GATHER_WEIGHT] = {"#cfcfcf", "#000", "weights gathered from replicas"},
    [PEN_UNSHARD] = {"#cfcfcf", "#000", "weights unsharded"},
};

struct drawing {
  const struct pen_view *view;
  FILE *out;
  const uint32_t *local;
  double past;           /* right edge of the chart */
  double top, lane, bar; /* top of the first lane; distance of lanes; height of an action */
  double font;
};

/* ---- elements ---- */

static double x_of(const struct drawing *d, double time) {
  double makespan = d->view->timing->makespan;
  return makespan > 0 ? left + time / makespan * (d->past - left) : left;
}
static double y_of(const struct drawing *d, uint32_t rank) { return d->top + rank * d->lane; }

/* A text of the user, escaped for XML. */
static void write_escaped(FILE *out, const char *text) {
  for (; *text; text++) {
    switch (*text) {
      case '&': fputs("&amp;", out); break;
      case '<': fputs("&lt;", out); break;
      case '>': fputs("&gt;", out); break;
      default: fputc((unsigned char)*text < ' ' || *text == 127 ? '?' : *text, out);
    }
  }
}

static void draw_label(const struct drawing *d, double x, double y, double size, const char *anchor,
                       const char *text) {
  fprintf(d->out, "<text x=\"%.2f\" y=\"%.2f\" font-size=\"%.3g\" text-anchor=\"%s\">", x, y, size,
          anchor);
  write_escaped(d->out, text);
  fputs("</text>\n", d->out);
}

static void draw_box(const struct drawing *d, double x, double y, double w, double h) {
  fprintf(d->out, "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\"/>\n", x, y, w, h);
}

/* ---- the actions ---- */

struct action_box {
  double x, y, w, h;
};

/* Where an action is drawn: half of its lane when it is one of a pair. */
static struct action_box box_of(const struct drawing *d, uint32_t rank, uint32_t index) {
  const struct pen_compute *action = &d->view->order->action[rank][index];
  const struct pen_timing *timing = d->view->timing;
  bool first = action->overlaps && index + 1 < d->view->order->count[rank],
       second = index > 0 && action[-1].overlaps;
  double x = x_of(d, timing->start[rank][index]), w = x_of(d, timing->end[rank][index]) - x;
  double h = first || second ? d->bar / 2 : d->bar;
  return (struct action_box){x, y_of(d, rank) + (second ? h : 0), w, h};
}

/* Width of the mark that shows the stage of an action. */
static double mark_wide(const struct drawing *d, double w) {
  return d->view->partition->stages_per_rank > 1 ? fmin(1.8, w * 0.15) : 0;
}

static int digits_of(uint32_t number) { return snprintf(NULL, 0, "%u", number); }

/* One font size for all numbers: the largest at which that of the narrowest action fits, within
 * bounds. */
static double find_font(const struct drawing *d) {
  const struct pen_order *order = d->view->order;
  double font = fmin(font_most, d->bar * 0.62);
  for (uint32_t rank = 0; rank < order->rank_count; rank++)
    for (uint32_t index = 0; index < order->count[rank]; index++) {
      struct action_box box = box_of(d, rank, index);
      double fits = fmin((box.w - 2 - mark_wide(d, box.w)) /
                             (digit_width * digits_of(order->action[rank][index].microbatch)),
                         box.h * 0.9);
      if (box.w > 0) font = fmin(font, fits);
    }
  return fmax(font, font_least);
}

static void draw_kind(const struct drawing *d, int kind) {
  const struct pen_order *order = d->view->order;
  fprintf(d->out, "<g fill=\"%s\" stroke=\"#fff\" stroke-width=\"0.5\">\n", kinds[kind].fill);
  for (uint32_t rank = 0; rank < order->rank_count; rank++)
    for (uint32_t index = 0; index < order->count[rank]; index++) {
      if (order->action[rank][index].kind != kind) continue;
      struct action_box box = box_of(d, rank, index);
      draw_box(d, box.x, box.y, box.w, box.h);
    }
  fprintf(d->out, "</g>\n<g fill=\"%s\" font-size=\"%.3g\" text-anchor=\"middle\">\n",
          kinds[kind].text, d->font);
  for (uint32_t rank = 0; rank < order->rank_count; rank++)
    for (uint32_t index = 0; index < order->count[rank]; index++) {
      const struct pen_compute *action = &order->action[rank][index];
      struct action_box box = box_of(d, rank, index);
      bool fits = digit_width * d->font * digits_of(action->microbatch) + 1 <= box.w &&
                  d->font <= box.h && kind <= PEN_W;
      if (action->kind == kind && fits)
        fprintf(d->out, "<text x=\"%.2f\" y=\"%.2f\">%u</text>\n",
                box.x + (box.w + mark_wide(d, box.w)) / 2, box.y + box.h / 2 + d->font * 0.36,
                action->microbatch);
    }
  fputs("</g>\n", d->out);
}

/* Marks show which of the stages of its rank an action belongs to. */
static void draw_stage_marks(const struct drawing *d) {
  const struct pen_order *order = d->view->order;
  uint32_t stages = d->view->partition->stages_per_rank;
  if (stages == 1) return;
  fputs("<g fill=\"#000\" fill-opacity=\"0.75\">\n", d->out);
  for (uint32_t rank = 0; rank < order->rank_count; rank++)
    for (uint32_t index = 0; index < order->count[rank]; index++) {
      struct action_box box = box_of(d, rank, index);
      double h = box.h / stages;
      draw_box(d, box.x + 0.25, box.y + h * d->local[order->action[rank][index].stage],
               mark_wide(d, box.w), h);
    }
  fputs("</g>\n", d->out);
}

static bool has_kind(const struct pen_order *order, int kind) {
  for (uint32_t rank = 0; rank < order->rank_count; rank++)
    for (uint32_t index = 0; index < order->count[rank]; index++)
      if (order->action[rank][index].kind == kind) return true;
  return false;
}

/* ---- messages and the critical path ---- */

/* The stage that receives the message of an action, or PEN_NONE. */
static uint32_t receiver_of(const struct pen_view *view, uint32_t rank,
                            const struct pen_compute *action) {
  const struct pen_partition *partition = view->partition;
  uint32_t to = PEN_NONE;
  if (action->kind == PEN_F && action->stage + 1u < partition->stage_count) to = action->stage + 1u;
  if ((action->kind == PEN_B || action->kind == PEN_I) && action->stage > 0)
    to = action->stage - 1u;
  return to != PEN_NONE && partition->rank_of[to] != rank ? to : PEN_NONE;
}

static void draw_line(const struct drawing *d, double from_time, uint32_t from, double to_time,
                      uint32_t to) {
  fprintf(d->out, "<line x1=\"%.2f\" y1=\"%.2f\" x2=\"%.2f\" y2=\"%.2f\"/>\n", x_of(d, from_time),
          y_of(d, from) + d->bar / 2, x_of(d, to_time), y_of(d, to) + d->bar / 2);
}

static void draw_arrows(const struct drawing *d) {
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
      uint32_t to = receiver_of(view, rank, action);
      double end = view->timing->end[rank][index];
      if (to == PEN_NONE) continue;
      /* From the near quarter of one lane to that of the other, so that no number is crossed. */
      uint32_t receiver = view->partition->rank_of[to];
      double x = x_of(d, end),
             past =
                 x_of(d, end + pen_send_cost(view->partition, view->cost, action->stage, receiver)),
             near = d->bar * (receiver > rank ? 0.75 : 0.25);
      fprintf(d->out, "<line x1=\"%.2f\" y1=\"%.2f\" x2=\"%.2f\" y2=\"%.2f\"/>\n", x,
              y_of(d, rank) + near, past, y_of(d, receiver) + d->bar - near);
    }
  fputs("</g>\n", d->out);
}

static void draw_critical(const struct drawing *d) {
  const struct pen_view *view = d->view;
  const struct pen_path *path =
      pen_critical_path(view->order, view->partition, view->training, view->cost, view->timing);
  fputs("<g fill=\"none\" stroke=\"#000\" stroke-width=\"1.4\">\n", d->out);
  for (size_t i = 0; i < path->count; i++) {
    const struct pen_path_step *step = &path->step[i];
    draw_box(d, x_of(d, step->start), y_of(d, step->rank),
             x_of(d, step->end) - x_of(d, step->start), d->bar);
    if (i > 0 && step->rank != path->step[i - 1].rank)
      draw_line(d, path->step[i - 1].end, path->step[i - 1].rank, step->start, step->rank);
  }
  fputs("</g>\n", d->out);
}

/* ---- labels and axes ---- */

static void draw_legend(const struct drawing *d, double y) {
  double x = left;
  for (int kind = 0; kind < KINDS; kind++) {
    if (!has_kind(d->view->order, kind)) continue;
    fprintf(d->out, "<g fill=\"%s\">", kinds[kind].fill);
    draw_box(d, x, y - 9, 14, 10);
    fputs("</g>\n", d->out);
    draw_label(d, x + 18, y, 11, "start", kinds[kind].meaning);
    x += 32 + 6.5 * (double)strlen(kinds[kind].meaning); /* wide enough for a wide font */
  }
  const char *rest = "number: microbatch";
  if (d->view->partition->stages_per_rank > 1)
    rest = pen_text("%s; mark at the left edge: the rank's stage, the first on top", rest);
  if (d->view->arrows) rest = pen_text("%s; arrows: messages", rest);
  if (d->view->critical) rest = pen_text("%s; framed: critical path", rest);
  draw_label(d, left, y + 16, 11, "start", rest);
}

static void draw_ranks(const struct drawing *d) {
  uint32_t ranks = d->view->plan->rank_count, every = (uint32_t)ceil(9 / d->lane);
  fprintf(d->out, "<g fill=\"#f1f2f4\">\n");
  for (uint32_t rank = 0; rank < ranks; rank++)
    draw_box(d, left, y_of(d, rank), d->past - left, d->bar);
  fputs("</g>\n", d->out);
  double size = fmin(11, d->bar * 0.8 * every);
  for (uint32_t rank = 0; rank < ranks; rank += every)
    draw_label(d, left - 6, y_of(d, rank) + d->bar / 2 + size * 0.36, size, "end",
               pen_text("%u", rank));
}

/* The time axis: ticks at round numbers, and the unit. */
static void draw_axis(const struct drawing *d, double y) {
  double span = d->view->timing->makespan,
         step = pen_scale_step(span, (int)((d->past - left) / 70));
  fputs("<g stroke=\"#000\" stroke-width=\"0.8\">\n", d->out);
  fprintf(d->out, "<line x1=\"%.2f\" y1=\"%.2f\" x2=\"%.2f\" y2=\"%.2f\"/>\n", left, y, d->past, y);
  for (int tick = 0; tick * step <= span * (1 + 1e-9); tick++)
    fprintf(d->out, "<line x1=\"%.2f\" y1=\"%.2f\" x2=\"%.2f\" y2=\"%.2f\"/>\n",
            x_of(d, tick * step), y, x_of(d, tick * step), y + 4);
  fputs("</g>\n", d->out);
  for (int tick = 0; tick * step <= span * (1 + 1e-9); tick++)
    draw_label(d, x_of(d, tick * step), y + 14, 10, "middle", pen_text("%.6g", tick * step));
  draw_label(d, d->past, y + 27, 10, "end", pen_text("time, %s", d->view->unit));
}

/* A line where the lower bound of the makespan ends. */
static void draw_bound(const struct drawing *d, double past) {
  double x = x_of(d, d->view->bound);
  if (!(d->view->bound > 0)) return;
  fprintf(d->out,
          "<g class=\"bound\" stroke=\"#d01c1c\" stroke-width=\"1.6\" stroke-dasharray=\"6 3\">"
          "<line x1=\"%.2f\" y1=\"%.2f\" x2=\"%.2f\" y2=\"%.2f\"/></g>\n",
          x, d->top - 3, x, past);
  draw_label(d, x, d->top - 6, 10, "end", pen_text("lower bound %.6g", d->view->bound));
}

/* ---- memory ---- */

struct byte_unit {
  const char *name;
  double bytes;
};

static struct byte_unit byte_unit_of(uint64_t most) {
  static const struct byte_unit units[] = {
      {"GiB", 1073741824.0}, {"MiB", 1048576.0}, {"KiB", 1024.0}};
  for (size_t i = 0; i < 2; i++)
    if ((double)most >= units[i].bytes) return units[i];
  return units[2];
}

/* The memory in use of a rank over time, as a filled step curve; returns its peak. */
static uint64_t draw_curve(const struct drawing *d, uint32_t rank, double base, double per_byte) {
  const struct pen_view *view = d->view;
  const struct pen_rank_program *program = &view->plan->profiles[0].ranks[rank];
  struct pen_live_buffers ranges = pen_live_buffers_of(view->plan, &view->plan->profiles[0], rank);
  struct pen_action_times times =
      pen_action_times_of(program, view->order->action[rank], view->order->count[rank],
                          view->timing->start[rank], view->timing->end[rank]);
  uint64_t peak = 0, level = 0;
  fprintf(d->out, "<path d=\"M%.2f %.2f", left, base);
  for (uint32_t action = 0; action < program->action_count; action++) {
    if (ranges.in_use[action] > peak) peak = ranges.in_use[action];
    bool lasts =
        action + 1 == program->action_count || times.start[action + 1] > times.start[action];
    if (!lasts || ranges.in_use[action] == level)
      continue; /* of several levels at one time, only the last is drawn */
    level = ranges.in_use[action];
    fprintf(d->out, "H%.2fV%.2f", x_of(d, times.start[action]), base - (double)level * per_byte);
  }
  fprintf(d->out, "H%.2fV%.2fz\"/>\n", x_of(d, view->timing->makespan), base);
  return peak;
}

static uint64_t placed_bytes(const struct pen_view *view, uint32_t rank) {
  return view->plan->memory[rank].receive_bytes + view->plan->memory[rank].activation_bytes;
}

/* The zero line and, dashed, the bytes that the plan places. */
static void draw_bounds(const struct drawing *d, double base, double placed) {
  fprintf(d->out,
          "<g stroke=\"#444\" stroke-width=\"0.6\"><line x1=\"%.2f\" y1=\"%.2f\" x2=\"%.2f\" "
          "y2=\"%.2f\"/>",
          left, base, d->past, base);
  fprintf(d->out,
          "<line x1=\"%.2f\" y1=\"%.2f\" x2=\"%.2f\" y2=\"%.2f\" stroke-dasharray=\"4 3\"/></g>\n",
          left, placed, d->past, placed);
}

/* One curve a rank, all to one scale; dashed, the bytes that the plan places. */
static void draw_memory(const struct drawing *d, double top, double height) {
  uint32_t ranks = d->view->plan->rank_count, every = (uint32_t)ceil(9 / height);
  uint64_t most = 1;
  for (uint32_t rank = 0; rank < ranks; rank++)
    if (placed_bytes(d->view, rank) > most) most = placed_bytes(d->view, rank);
  struct byte_unit unit = byte_unit_of(most);
  double per_byte = (height - 2) / (double)most, size = fmin(9, height * 0.8 * every);
  bool lines = height >= 8; /* in lower lanes they would hide the curves */
  draw_label(d, left, top - 5, 11, "start",
             pen_text("activations and messages in use; %splaced, at most %.4g %s",
                      lines ? "dashed: " : "", (double)most / unit.bytes, unit.name));
  draw_label(d, d->past + 6, top - 5, 10, "start", pen_text("peak, %s", unit.name));
  for (uint32_t rank = 0; rank < ranks; rank++) {
    double base = top + (rank + 1) * height,
           placed = base - (double)placed_bytes(d->view, rank) * per_byte;
    fputs("<g fill=\"#8795a6\">", d->out);
    uint64_t peak = draw_curve(d, rank, base, per_byte);
    fputs("</g>\n", d->out);
    if (lines) draw_bounds(d, base, placed);
    if (rank % every != 0) continue;
    draw_label(d, left - 6, base - 2, size, "end", pen_text("%u", rank));
    draw_label(d, d->past + 6, base - 2, size, "start",
               pen_text("%.4g", (double)peak / unit.bytes));
  }
}

/* ---- the drawing ---- */

/* The height of a lane: smaller when there are many. */
static double lane_height(double tall, double least, uint32_t ranks) {
  return ranks <= LANES_TALL ? tall : fmax(least, tall * LANES_TALL / ranks);
}

void pen_gantt_svg(FILE *out, const struct pen_view *view) {
  const struct pen_plan *plan = view->plan;
  const struct pen_timing *timing = view->timing;
  struct drawing d = {
      .view = view, .out = out, .local = pen_local_stages(view->partition), .top = 88};
  d.lane = lane_height(lane_tall, lane_least, plan->rank_count);
  d.bar = d.lane > 8 ? d.lane - 2 : d.lane * 0.85;
  uint32_t most = 0;
  for (uint32_t rank = 0; rank < plan->rank_count; rank++)
    most = view->order->count[rank] > most ? view->order->count[rank] : most;
  d.past = left + fmax(chart_least, fmin(chart_most, most * action_wide));
  d.font = find_font(&d);
  double axis = d.top + d.lane * plan->rank_count + 2, memory = axis + 48;
  double memory_lane = lane_height(memory_tall, memory_least, plan->rank_count);
  double height = memory + memory_lane * plan->rank_count + 10, width = d.past + right;
  fprintf(out,
          "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" viewBox=\"0 0 "
          "%.0f %.0f\""
          " font-family=\"Helvetica, Arial, sans-serif\">\n<rect width=\"100%%\" height=\"100%%\" "
          "fill=\"#fff\"/>\n",
          width, height, width, height);
  draw_label(
      &d, left, 20, 14, "start",
      pen_text("%s: %s, %s × %s, %s", plan->name, plan->schedule,
               pen_counted(plan->rank_count, "rank"), pen_counted(plan->stages_per_rank, "stage"),
               pen_counted(plan->microbatch_count, "microbatch")));
  draw_label(&d, left, 37, 11, "start",
             pen_text("makespan %.4g (%s), bubble %.2f %%, %.2f %% above the lower bound",
                      timing->makespan, view->unit, 100 * timing->bubble,
                      100 * pen_gap(timing->makespan, view->bound)));
  draw_legend(&d, 56);
  draw_label(&d, left - 6, d.top - 4, 10, "end", "rank");
  draw_ranks(&d);
  for (int kind = 0; kind < KINDS; kind++)
    if (has_kind(view->order, kind)) draw_kind(&d, kind);
  draw_stage_marks(&d);
  if (view->arrows) draw_arrows(&d);
  if (view->critical) draw_critical(&d);
  draw_bound(&d, axis);
  draw_axis(&d, axis);
  draw_memory(&d, memory, memory_lane);
  fputs("</svg>\n", out);
}
