/* gantt_memory.h: the memory of each rank in the Gantt chart of --print=svg. */
#ifndef PEN_GANTT_MEMORY_H
#define PEN_GANTT_MEMORY_H

#include "gen/views/gantt_drawing.h"

/* One curve a rank, each `height` tall, all to one scale; dashed, the bytes that the plan places.
 */
void pen_draw_memory(const struct pen_drawing *d, double top, double height);

#endif
