/* print_svg.c: --print=svg: the step time of the best candidates against their memory.
 *
 * A candidate is on the Pareto front if no other takes less memory for a step that is as short, or
 * a shorter step with as much: a full dot, joined by a line of steps. Others are hollow. A dot's
 * title has its settings, and a number refers to the list under the chart. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "gen/base/arena.h"
#include "gen/planner/internal.h"
#include "gen/views/chart.h"

static const double left = 80, top = 40, wide = 640, tall = 360, line_tall = 15, margin = 20;
enum { SCALE_STEPS = 6 };

struct plot {
  FILE *out;
  const struct pen_planner *planner;
  const struct pen_plan_result *result;
  double least_time, most_time, least_mib, most_mib;
};

static double mib_of(const struct pen_plan_candidate *c) {
  return (double)c->arena_bytes / 1048576.0;
}

/* The range of the values, with a margin of a twentieth. */
static void widen(double *least, double *most) {
  const double room = *most > *least ? (*most - *least) / 20 : fmax(fabs(*most), 1) / 20;
  *least -= room;
  *most += room;
}

static struct plot plot_of(FILE *out, const struct pen_planner *planner,
                           const struct pen_plan_result *result) {
  struct plot p = {out, planner, result, INFINITY, -INFINITY, INFINITY, -INFINITY};
  for (size_t i = 0; i < result->count; i++) {
    const struct pen_plan_candidate *c = &result->best[i];
    p.least_time = fmin(p.least_time, c->step);
    p.most_time = fmax(p.most_time, c->step);
    p.least_mib = fmin(p.least_mib, mib_of(c));
    p.most_mib = fmax(p.most_mib, mib_of(c));
  }
  widen(&p.least_time, &p.most_time);
  widen(&p.least_mib, &p.most_mib);
  return p;
}

static double x_of(const struct plot *p, double mib) {
  return left + (mib - p->least_mib) / (p->most_mib - p->least_mib) * wide;
}
static double y_of(const struct plot *p, double time) {
  return top + tall - (time - p->least_time) / (p->most_time - p->least_time) * tall;
}

static void write_text(const struct plot *p, double x, double y, const char *anchor,
                       const char *text) {
  fprintf(p->out, "<text x=\"%.2f\" y=\"%.2f\" text-anchor=\"%s\">", x, y, anchor);
  for (; *text; text++) {
    if (*text == '&' || *text == '<' || *text == '>')
      fprintf(p->out, "&#%d;", *text);
    else
      fputc((unsigned char)*text < ' ' ? '?' : *text, p->out);
  }
  fputs("</text>\n", p->out);
}

static void draw_scales(const struct plot *p) {
  const double mib = pen_scale_step(p->most_mib - p->least_mib, SCALE_STEPS),
               time = pen_scale_step(p->most_time - p->least_time, SCALE_STEPS);
  fprintf(p->out, "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" class=\"frame\"/>\n",
          left, top, wide, tall);
  for (double v = ceil(p->least_mib / mib) * mib; v <= p->most_mib; v += mib)
    write_text(p, x_of(p, v), top + tall + line_tall, "middle", pen_text("%.6g", v));
  for (double v = ceil(p->least_time / time) * time; v <= p->most_time; v += time)
    write_text(p, left - 6, y_of(p, v) + 4, "end", pen_text("%.6g", v));
  write_text(p, left + wide / 2, top + tall + 2.2 * line_tall, "middle",
             "MiB of the largest arena");
  write_text(p, left, top - 8, "start", pen_text("step time %s", p->result->unit));
}

static bool is_on_front(const struct pen_plan_result *result, size_t index) {
  const struct pen_plan_candidate *c = &result->best[index];
  for (size_t i = 0; i < result->count; i++) {
    const struct pen_plan_candidate *other = &result->best[i];
    const bool as_good = other->step <= c->step && other->arena_bytes <= c->arena_bytes;
    const bool same = other->step == c->step && other->arena_bytes == c->arena_bytes;
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
  for (size_t i = 0; i < count; i++) {
    const double x = x_of(p, mib_of(front[i])), y = y_of(p, front[i]->step);
    if (i == 0)
      fprintf(p->out, "M%.2f %.2f", x, y);
    else
      fprintf(p->out, "H%.2fV%.2f", x, y);
  }
  fprintf(p->out, "\"/>\n");
}

/* The choices as one line. */
static const char *settings_text(const struct plot *p, size_t index) {
  const struct pen_plan_candidate *c = &p->result->best[index];
  struct pen_setting_text setting[PEN_CHOICE_SETTINGS_MAX];
  const size_t count = pen_choice_settings(p->planner->axes, &c->choice, setting);
  const char *text = pen_text("%zu: ", index + 1);
  for (size_t i = 0; i < count; i++) {
    const bool searched = c->searched && !strcmp(setting[i].path, "pipeline.schedule");
    const char *name = strchr(setting[i].path, '.') + 1;
    text = pen_text("%s%s%s %s", text, i ? ", " : "", name, searched ? "search" : setting[i].text);
  }
  return text;
}

static void draw_candidates(const struct plot *p) {
  for (size_t i = 0; i < p->result->count; i++) {
    const struct pen_plan_candidate *c = &p->result->best[i];
    const double x = x_of(p, mib_of(c)), y = y_of(p, c->step);
    fprintf(p->out, "<circle class=\"%s\" cx=\"%.2f\" cy=\"%.2f\" r=\"5\"/>\n",
            is_on_front(p->result, i) ? "pareto" : "other", x, y);
    write_text(p, x + 7, y - 5, "start", pen_text("%zu", i + 1));
    write_text(p, margin, top + tall + (4 + (double)i) * line_tall, "start", settings_text(p, i));
  }
}

void pen_plan_print_svg(FILE *out, const struct pen_planner *planner,
                        const struct pen_plan_result *result) {
  const struct plot p = plot_of(out, planner, result);
  const double width = left + wide + 300,
               height = top + tall + (5 + (double)result->count) * line_tall;
  fprintf(out,
          "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" "
          "font-family=\"sans-serif\" font-size=\"11\">\n"
          "<style>.frame{fill:none;stroke:#888}.front{fill:none;stroke:#1b7a55}"
          ".pareto{fill:#1b7a55}.other{fill:#fff;stroke:#44508f}</style>\n"
          "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
          width, height);
  draw_scales(&p);
  draw_front(&p);
  draw_candidates(&p);
  fprintf(out, "</svg>\n");
}
