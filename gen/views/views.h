/* picture.h: pictures of a finished plan and of its simulated step. Same plan, same bytes. */
#ifndef PEN_VIEW_H
#define PEN_VIEW_H

#include <stdio.h>

#include "gen/partition/partition.h"
#include "gen/schedule/order.h"
#include "gen/timing/timing.h"
#include "gen/lower/lower.h"
#include "runtime/plan/plan.h"

/* What is to be shown, and how. */
struct pen_view {
  const struct pen_plan *plan;
  const struct pen_partition *partition;
  const struct pen_training *training;
  const struct pen_order *order;
  const struct pen_timing *timing; /* complete */
  const struct pen_stage_cost *cost;
  const struct pen_lowered *lowered;
  const char *unit;      /* of the costs: "in Gflop" */
  bool arrows, critical; /* svg: draw the messages, mark the critical path */
  int columns;           /* text, memory: width of a line */
  bool colour;           /* text: the terminal's colours */
};

/* A Gantt chart in characters: a line a rank, as wide as `columns`; below it the scale, the figures
 * and the critical path. */
void pen_view_text(FILE *out, const struct pen_view *picture);

/* A Gantt chart for a paper: lanes of ranks, colours by kind (apart for colour-blind eyes and in
 * grey), microbatch numbers where there is room, legend and scale, and below it each rank's memory
 * in use. */
void pen_view_svg(FILE *out, const struct pen_view *picture);

/* The simulated step as a Chrome trace, which ui.perfetto.dev reads: a process a rank; messages as
 * flows; memory as a counter. One unit of cost is shown as a millisecond, so that costs in
 * milliseconds come out as they are. */
void pen_view_trace(FILE *out, const struct pen_view *picture);

/* The lowered order as torch.distributed.pipelining writes it in format compute_comms: a line a
 * rank; after a stage's backward the wait for its SEND_F, at the end those for the SEND_Bs; after a
 * stage's last backward the reduction of its gradients. */
void pen_view_comms(FILE *out, const struct pen_view *picture);

/* A map of every rank's arena: its parts in bytes; a chart of addresses over time; then every block
 * with its rows. */
void pen_view_memory(FILE *out, const struct pen_view *picture);

/* Width of the terminal's lines: $COLUMNS, else what the terminal says, else 80. */
int pen_terminal_columns(FILE *out);
/* Whether to colour: a terminal, not a dumb one, and no NO_COLOR (no-color.org). */
bool pen_terminal_colour(FILE *out);

/* ---- what the pictures share ---- */

/* The place of each stage among its rank's stages, from 0 [stage]. */
uint32_t *pen_local_stages(const struct pen_partition *partition);
/* A round step of a scale: 1, 2 or 5 times a power of ten, so that `span` has at most `steps` of
 * them. */
double pen_scale_step(double span, int steps);
/* "1 stage", "2 stages", "8 microbatches". */
const char *pen_counted(uint64_t count, const char *noun);

#endif
