/* gantt_drawing.h: what the parts of the Gantt chart of --print=svg are drawn with. */
#ifndef PEN_GANTT_DRAWING_H
#define PEN_GANTT_DRAWING_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "gen/views/views.h"

/* Positions and sizes are in units of the drawing, pixels unless a viewer scales it. */
struct pen_drawing {
  const struct pen_view *view;
  FILE *out;
  const uint32_t *local; /* [stage]: pen_local_stages() */
  double left, past;     /* edges of the time from 0 to the makespan */
  double top, lane, bar; /* top of the first lane; distance of lanes; height of an action */
  double font;           /* of the numbers in actions */
  uint32_t rows;         /* that the chart is folded into */
  bool plain;            /* actions are too narrow for borders, marks and numbers */
};

double pen_drawing_x(const struct pen_drawing *d, double time);

/* `anchor`: "start", "middle" or "end" is at x. */
void pen_draw_label(const struct pen_drawing *d, double x, double y, double size,
                    const char *anchor, const char *text);
void pen_draw_box(const struct pen_drawing *d, double x, double y, double w, double h);
void pen_draw_line(const struct pen_drawing *d, double x, double y, double past_x, double past_y);

#endif
