/* views.h: charts and reports of a finished plan and of its simulated step, for --print.
 *
 * In: the plan, and the order, timing and costs that it was made from (struct pen_view). Out: text,
 * SVG, JSON or CSV on a stream. The same plan gives the same bytes. A view changes nothing and
 * computes no times.
 *
 *   gantt_text.c    --print=text: a Gantt chart in characters
 *   gantt_svg.c     --print=svg: a Gantt chart with the memory of each rank (gantt_memory.c, svg.c)
 *   chrome_trace.c  --print=trace: the step as a Chrome trace
 *   torch_comms.c   --print=csv-comms: the actions in PyTorch's notation
 *   memory_map.c    --print=memory: the buffers of each arena over time
 *   report_json.c   --print=report; shapes_json.c: --print=shapes
 */
#ifndef PEN_VIEWS_H
#define PEN_VIEWS_H

#include <stdbool.h>
#include <stdio.h>

#include "gen/partition/partition.h"
#include "gen/schedule/order.h"
#include "gen/timing/timing.h"
#include "runtime/plan/plan.h"

/* What to show, and how. */
struct pen_view {
  const struct pen_plan *plan;
  const struct pen_partition *partition;
  const struct pen_training *training;
  const struct pen_order *order;
  const struct pen_timing *timing; /* complete */
  const struct pen_stage_cost *cost;
  const char *unit; /* of the costs: "in Gflop" */
  double bound; /* of the makespan, for Gantt charts: no order within the memory limit is shorter */
  bool arrows, critical; /* svg: draw the messages, mark the critical path */
  int columns;           /* text, memory: width of a line */
  bool colour;           /* text: with the colours of a terminal */
};

/* A Gantt chart in characters: a line a rank, at most `columns` wide; then the scale, the figures
 * and the critical path. */
void pen_gantt_text(FILE *out, const struct pen_view *view);

/* A Gantt chart for a paper: a lane a rank, a colour a kind (distinct for colour-blind readers and
 * in grey), microbatch numbers where they fit, legend and scale; then the memory in use of each
 * rank. */
void pen_gantt_svg(FILE *out, const struct pen_view *view);

/* The simulated step as a Chrome trace, which ui.perfetto.dev reads: a process a rank, messages as
 * flows, memory as a counter. One unit of cost is shown as a millisecond. */
void pen_chrome_trace(FILE *out, const struct pen_view *view);

/* The lowered order in torch.distributed.pipelining's format compute_comms: a CSV line a rank. */
void pen_torch_comms(FILE *out, const struct pen_view *view);

/* A map of every rank's arena: its parts in bytes; a chart of addresses over time; then every
 * buffer with its actions. */
void pen_memory_map(FILE *out, const struct pen_view *view);

#endif
