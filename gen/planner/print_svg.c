/* print_svg.c: --print=svg: the step time of the best candidates against their memory.
 *
 * A candidate is on the Pareto front if no other takes less memory for a step that is as short, or
 * a shorter step with as much: a full dot, joined by a line of steps. Others are hollow. The number
 * beside a dot refers to the list under the chart; dots that lie close together share a label. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "gen/base/arena.h"
#include "gen/planner/equal_time.h"
#include "gen/planner/internal.h"
#include "gen/views/chart.h"
#include "gen/views/svg.h"

static const double left = 80, top = 92, wide = 640, tall = 360, line_tall = 15, margin = 20,
                    list_wide = 300; /* of lines that are longer than the chart */
static const double character_wide = 5.6;
static const double near_wide = 26, near_tall = 11; /* dots within this share a label */
enum { MEMORY_STEPS = 6, TIME_STEPS = 10 };         /* of the scales, at most */

struct plot {
  FILE *out;
  const struct pen_planner *planner;
  const struct pen_plan_result *result;
  struct pen_time_unit unit;
  struct pen_svg_scale mib, time;
};

static double mib_of(const struct pen_plan_candidate *c) {
  return (double)c->arena_bytes / 1048576.0;
}

static double time_of(const struct plot *p, const struct pen_plan_candidate *c) {
  return c->step / p->unit.size;
}

/* The range of the values, with a margin of a twentieth; of values that count as equal, of a
 * twentieth of the value. */
static void widen(struct pen_svg_scale *s) {
  const bool differ = pen_equal_time(s->most) > pen_equal_time(s->least);
  const double room = (differ ? s->most - s->least : s->most > 0 ? s->most : 1) / 20;
  s->least -= room;
  s->most += room;
}

static void include(struct pen_svg_scale *s, double value) {
  s->least = fmin(s->least, value);
  s->most = fmax(s->most, value);
}

static struct plot plot_of(FILE *out, const struct pen_planner *planner,
                           const struct pen_plan_result *result) {
  struct plot p = {.out = out,
                   .planner = planner,
                   .result = result,
                   .unit = pen_time_unit_of(result->best[0].step, result->unit),
                   .mib = {INFINITY, -INFINITY, left, left + wide},
                   .time = {INFINITY, -INFINITY, top + tall, top}};
  for (size_t i = 0; i < result->count; i++) {
    include(&p.mib, mib_of(&result->best[i]));
    include(&p.time, time_of(&p, &result->best[i]));
  }
  widen(&p.mib);
  widen(&p.time);
  return p;
}

static double x_of(const struct plot *p, const struct pen_plan_candidate *c) {
  return pen_svg_at(&p->mib, mib_of(c));
}
static double y_of(const struct plot *p, const struct pen_plan_candidate *c) {
  return pen_svg_at(&p->time, time_of(p, c));
}

/* ---- frame ---- */

static void draw_titles(const struct plot *p) {
  const struct pen_topology *t = p->planner->written;
  fputs("<g font-size=\"14\">\n", p->out);
  pen_svg_text(
      p->out, margin, 20, 0, "start",
      pen_text("%s: the best %zu of %llu candidates for %s of %llu MiB", t->name, p->result->count,
               (unsigned long long)p->result->total, pen_counted((uint64_t)t->plan_ranks, "rank"),
               (unsigned long long)(p->planner->memory_bytes >> 20)));
  fputs("</g>\n", p->out);
  pen_svg_text(p->out, margin, 40, 0, "start",
               "full dot, on the line: no other is faster with as little memory (Pareto front); "
               "number: see the list below");
  pen_svg_text(p->out, margin, 56, 0, "start", p->result->because);
}

/* The n-th multiple of the step of a scale, with the digits that tell it from the next. */
static const char *tick_text(double n, double step) {
  const double decimals = -floor(log10(step) + 1e-9);
  return decimals > 0 ? pen_text("%.*f", (int)decimals, n * step) : pen_text("%.10g", n * step);
}

static void draw_scales(const struct plot *p) {
  const double mib = pen_scale_step(p->mib.most - p->mib.least, MEMORY_STEPS),
               time = pen_scale_step(p->time.most - p->time.least, TIME_STEPS);
  pen_svg_rectangle(p->out, left, top, wide, tall, " class=\"frame\"");
  for (double n = ceil(p->mib.least / mib); n * mib <= p->mib.most; n++)
    pen_svg_text(p->out, pen_svg_at(&p->mib, n * mib), top + tall + line_tall, 0, "middle",
                 tick_text(n, mib));
  for (double n = ceil(p->time.least / time); n * time <= p->time.most; n++)
    pen_svg_text(p->out, left - 6, pen_svg_at(&p->time, n * time) + 4, 0, "end",
                 tick_text(n, time));
  pen_svg_text(p->out, left + wide / 2, top + tall + 2.2 * line_tall, 0, "middle",
               "memory of the rank with the most, MiB");
  pen_svg_text(p->out, left, top - 8, 0, "start", pen_text("time of a step %s", p->unit.name));
}

/* ---- front ---- */

static bool is_on_front(const struct pen_plan_result *result, size_t index) {
  const struct pen_plan_candidate *c = &result->best[index];
  const double step = pen_equal_time(c->step);
  for (size_t i = 0; i < result->count; i++) {
    const struct pen_plan_candidate *other = &result->best[i];
    const double other_step = pen_equal_time(other->step);
    const bool as_good = other_step <= step && other->arena_bytes <= c->arena_bytes;
    const bool same = other_step == step && other->arena_bytes == c->arena_bytes;
    if (i != index && as_good && (!same || i < index)) return false;
  }
  return true;
}

static int compare_bytes(const void *a, const void *b) {
  const struct pen_plan_candidate *x = *(const struct pen_plan_candidate *const *)a,
                                  *y = *(const struct pen_plan_candidate *const *)b;
  return (x->arena_bytes > y->arena_bytes) - (x->arena_bytes < y->arena_bytes);
}

static void draw_front(const struct plot *p) {
  const struct pen_plan_candidate **front = pen_new(p->result->count + 1, sizeof *front);
  size_t count = 0;
  for (size_t i = 0; i < p->result->count; i++)
    if (is_on_front(p->result, i)) front[count++] = &p->result->best[i];
  qsort(front, count, sizeof *front, compare_bytes);
  fprintf(p->out, "<path class=\"front\" d=\"");
  for (size_t i = 0; i < count; i++)
    fprintf(p->out, i ? "H%.2fV%.2f" : "M%.2f %.2f", x_of(p, front[i]), y_of(p, front[i]));
  fprintf(p->out, "\"/>\n");
}

/* ---- candidates ---- */

/* "3", "3, 5", and "3-5" for three or more in a row. */
static const char *numbers_text(const bool *chosen, size_t count) {
  const char *text = "";
  for (size_t i = 0; i < count; i++) {
    size_t past = i;
    if (!chosen[i]) continue;
    while (past < count && chosen[past]) past++;
    if (past - i < 3) past = i + 1;
    text = pen_text("%s%s%zu", text, *text ? ", " : "", i + 1);
    if (past > i + 1) text = pen_text("%s-%zu", text, past);
    i = past - 1;
  }
  return text;
}

/* A label for each dot, and one for dots that lie close to it and have none yet. */
static void draw_labels(const struct plot *p) {
  const struct pen_plan_result *result = p->result;
  bool *labelled = pen_new(result->count + 1, sizeof *labelled),
       *here = pen_new(result->count + 1, sizeof *here);
  for (size_t i = 0; i < result->count; i++) {
    const double x = x_of(p, &result->best[i]), y = y_of(p, &result->best[i]);
    double most = x;
    if (labelled[i]) continue;
    for (size_t j = 0; j < result->count; j++) {
      const double of_x = x_of(p, &result->best[j]), of_y = y_of(p, &result->best[j]);
      here[j] = !labelled[j] && fabs(of_x - x) < near_wide && fabs(of_y - y) < near_tall;
      labelled[j] |= here[j];
      if (here[j]) most = fmax(most, of_x);
    }
    pen_svg_text(p->out, most + 7, y - 5, 0, "start", numbers_text(here, result->count));
  }
}

/* The settings of the list: the ranks, the microbatches, and the axes. */
enum { RANKS, MICROBATCHES, AXES, SETTINGS = AXES + PEN_AXES };

static const char *setting_text(const struct plot *p, size_t candidate, int setting) {
  const struct pen_axes *axes = p->planner->axes;
  const struct pen_plan_candidate *c = &p->result->best[candidate];
  if (setting == RANKS)
    return pen_text("ranks %lld", (long long)pen_choice_ranks(axes, &c->choice));
  if (setting == MICROBATCHES)
    return pen_text("microbatches %lld", (long long)pen_choice_microbatches(axes, &c->choice));
  const enum pen_axis axis = (enum pen_axis)(setting - AXES);
  const char *text = pen_candidate_text(p->planner, c, axis);
  const char *name =
      axis == PEN_AXIS_tensor ? "tensor ranks" : strchr(axes->axis[axis].setting, '.') + 1;
  return text ? pen_text("%s %s", name, text) : "";
}

static bool is_common(const struct plot *p, int setting) {
  const char *first = setting_text(p, 0, setting);
  bool common = true;
  for (size_t i = 1; i < p->result->count; i++)
    common &= !strcmp(setting_text(p, i, setting), first);
  return common;
}

/* The settings that all candidates have in common, or those that differ, of one candidate. */
static const char *settings_text(const struct plot *p, size_t candidate, bool common) {
  const char *text = "";
  for (int k = 0; k < SETTINGS; k++) {
    const char *setting = setting_text(p, candidate, k);
    if (*setting && is_common(p, k) == common)
      text = pen_text("%s%s%s", text, *text ? ", " : "", setting);
  }
  return text;
}

/* Those of the front are drawn last: others may be at the same place. */
static void draw_dots(const struct plot *p, bool on_front) {
  for (size_t i = 0; i < p->result->count; i++)
    if (is_on_front(p->result, i) == on_front)
      fprintf(p->out, "<circle class=\"%s\" cx=\"%.2f\" cy=\"%.2f\" r=\"5\"/>\n",
              on_front ? "pareto" : "other", x_of(p, &p->result->best[i]),
              y_of(p, &p->result->best[i]));
}

static void draw_candidates(const struct plot *p) {
  const double list = top + tall + 4 * line_tall;
  const char *common = settings_text(p, 0, true);
  const int digits = pen_step_digits(p->result);
  draw_labels(p);
  draw_dots(p, false);
  draw_dots(p, true);
  for (size_t i = 0; i < p->result->count; i++) {
    const struct pen_plan_candidate *c = &p->result->best[i];
    pen_svg_text(p->out, margin, list + (1 + (double)i) * line_tall, 0, "start",
                 pen_text("%zu: %.*g, %.0f MiB: %s", i + 1, digits, time_of(p, c), ceil(mib_of(c)),
                          settings_text(p, i, false)));
  }
  pen_svg_text(p->out, margin, list, 0, "start",
               pen_text("all: %s", *common ? common : "nothing in common"));
}

void pen_plan_print_svg(FILE *out, const struct pen_planner *planner,
                        const struct pen_plan_result *result) {
  const struct plot p = plot_of(out, planner, result);
  const double sentence = margin + character_wide * (double)strlen(result->because),
               width = fmax(left + wide + list_wide, sentence),
               height = top + tall + (6 + (double)result->count) * line_tall;
  pen_svg_begin(out, width, height, false, "font-family=\"sans-serif\" font-size=\"11\"",
                "<style>.frame{fill:none;stroke:#888}.front{fill:none;stroke:#1b7a55}"
                ".pareto{fill:#1b7a55}.other{fill:#fff;stroke:#44508f}</style>\n");
  draw_titles(&p);
  draw_scales(&p);
  draw_front(&p);
  draw_candidates(&p);
  pen_svg_end(out);
}
