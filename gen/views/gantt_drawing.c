/* gantt_drawing.c: labels, boxes and lines of the Gantt chart of --print=svg. */
#include "gen/views/gantt_drawing.h"

#include "gen/base/escape.h"

double pen_drawing_x(const struct pen_drawing *d, double time) {
  double makespan = d->view->timing->makespan;
  return makespan > 0 ? d->left + time / makespan * (d->past - d->left) : d->left;
}

void pen_draw_label(const struct pen_drawing *d, double x, double y, double size,
                    const char *anchor, const char *text) {
  fprintf(d->out, "<text x=\"%.2f\" y=\"%.2f\" font-size=\"%.3g\" text-anchor=\"%s\">", x, y, size,
          anchor);
  pen_write_xml(d->out, text);
  fputs("</text>\n", d->out);
}

void pen_draw_box(const struct pen_drawing *d, double x, double y, double w, double h) {
  fprintf(d->out, "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\"/>\n", x, y, w, h);
}

void pen_draw_line(const struct pen_drawing *d, double x, double y, double past_x, double past_y) {
  fprintf(d->out, "<line x1=\"%.2f\" y1=\"%.2f\" x2=\"%.2f\" y2=\"%.2f\"/>\n", x, y, past_x,
          past_y);
}
