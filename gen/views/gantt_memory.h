/* gantt_memory.h: the memory of each rank in the Gantt chart of --print=svg, and what both are
 * drawn with. */
#ifndef PEN_GANTT_MEMORY_H
#define PEN_GANTT_MEMORY_H

#include "gen/views/svg.h"
#include "gen/views/views.h"

/* An action; half of its lane when it is one of a pair. */
struct pen_action_box {
  const struct pen_compute *action;
  double x, y, w, h;
};

struct pen_drawing {
  const struct pen_view *view;
  FILE *out;
  const uint32_t *local;            /* [stage]: pen_local_stages() */
  const struct pen_action_box *box; /* [box_count] rank by rank */
  uint32_t box_count;
  struct pen_svg_scale time;
  double top, lane, bar; /* top of the first lane; distance of lanes; height of an action */
  double font;           /* of the numbers in actions */
  uint32_t rows;         /* that the chart is folded into */
  bool plain;            /* actions are too narrow for borders, marks and numbers */
};

/* One curve a rank, each `height` tall, all to one scale; dashed, the bytes that the plan places.
 */
void pen_draw_memory(const struct pen_drawing *d, double top, double height);

#endif
