/* gantt_memory.c: the memory of each rank in the Gantt chart of --print=svg. */
#include "gen/views/gantt_memory.h"

#include <math.h>

#include "gen/base/arena.h"
#include "gen/timing/timing.h"
#include "gen/views/live_ranges.h"
#include "runtime/plan/plan.h"

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
static uint64_t draw_curve(const struct pen_drawing *d, uint32_t rank, double base,
                           double per_byte) {
  const struct pen_view *view = d->view;
  const struct pen_rank_program *program = &view->plan->profiles[0].ranks[rank];
  struct pen_live_buffers ranges = pen_live_buffers_of(view->plan, &view->plan->profiles[0], rank);
  struct pen_action_times times =
      pen_action_times_of(program, view->order->action[rank], view->order->count[rank],
                          view->timing->start[rank], view->timing->end[rank]);
  uint64_t peak = 0, level = 0;
  fprintf(d->out, "<path d=\"M%.2f %.2f", d->time.from, base);
  for (uint32_t action = 0; action < program->action_count; action++) {
    if (ranges.in_use[action] > peak) peak = ranges.in_use[action];
    bool lasts =
        action + 1 == program->action_count || times.start[action + 1] > times.start[action];
    if (!lasts || ranges.in_use[action] == level)
      continue; /* of several levels at one time, only the last is drawn */
    level = ranges.in_use[action];
    fprintf(d->out, "H%.2fV%.2f", pen_svg_at(&d->time, times.start[action]),
            base - (double)level * per_byte);
  }
  fprintf(d->out, "H%.2fV%.2fz\"/>\n", pen_svg_at(&d->time, view->timing->makespan), base);
  return peak;
}

static uint64_t placed_bytes(const struct pen_view *view, uint32_t rank) {
  return view->plan->memory[rank].receive_bytes + view->plan->memory[rank].activation_bytes;
}

/* The zero line and, dashed, the bytes that the plan places. */
static void draw_bounds(const struct pen_drawing *d, double base, double placed) {
  fprintf(d->out,
          "<g stroke=\"#444\" stroke-width=\"0.6\"><line x1=\"%.2f\" y1=\"%.2f\" x2=\"%.2f\" "
          "y2=\"%.2f\"/>",
          d->time.from, base, d->time.to, base);
  fprintf(d->out,
          "<line x1=\"%.2f\" y1=\"%.2f\" x2=\"%.2f\" y2=\"%.2f\" stroke-dasharray=\"4 3\"/></g>\n",
          d->time.from, placed, d->time.to, placed);
}

void pen_draw_memory(const struct pen_drawing *d, double top, double height) {
  uint32_t ranks = d->view->plan->rank_count, every = (uint32_t)ceil(9 / height);
  uint64_t most = 1;
  for (uint32_t rank = 0; rank < ranks; rank++)
    if (placed_bytes(d->view, rank) > most) most = placed_bytes(d->view, rank);
  struct byte_unit unit = byte_unit_of(most);
  double per_byte = (height - 2) / (double)most, size = fmin(9, height * 0.8 * every);
  bool lines = height >= 8; /* in lower lanes they would hide the curves */
  pen_svg_text(d->out, d->time.from, top - 5, 11, "start",
               pen_text("activations and messages in use%s; %sreserved, at most %.4g %s",
                        d->rows > 1 ? ", in the whole step" : "", lines ? "dashed: " : "",
                        (double)most / unit.bytes, unit.name));
  pen_svg_text(d->out, d->time.to + 6, top - 5, 10, "start", pen_text("peak, %s", unit.name));
  for (uint32_t rank = 0; rank < ranks; rank++) {
    double base = top + (rank + 1) * height,
           placed = base - (double)placed_bytes(d->view, rank) * per_byte;
    fputs("<g fill=\"#8795a6\">", d->out);
    uint64_t peak = draw_curve(d, rank, base, per_byte);
    fputs("</g>\n", d->out);
    if (lines) draw_bounds(d, base, placed);
    if (rank % every != 0) continue;
    pen_svg_text(d->out, d->time.from - 6, base - 2, size, "end", pen_text("%u", rank));
    pen_svg_text(d->out, d->time.to + 6, base - 2, size, "start",
                 pen_text("%.4g", (double)peak / unit.bytes));
  }
}
