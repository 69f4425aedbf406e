/* memory_map.c: --print=memory: where every byte of each rank's arena is, and when.
 *
 * The chart has addresses upwards, the receive region (receive slots) and above it the activations,
 * and the time of the step to the right. A character shows the microbatch, in base 36, of the
 * buffer that covers most of it, a capital for stages other than the rank's first; `.` is free. The
 * persistent part (weights, gradients, moments) is between the two and is left out. */
#include <stdio.h>
#include <inttypes.h>
#include <math.h>

#include "gen/schedule/action_text.h"
#include "gen/views/live_ranges.h"
#include "gen/views/chart.h"
#include "gen/views/views.h"
#include "gen/base/arena.h"
#include "runtime/plan/plan.h"

enum { CHART_LINES = 24, LABEL = 15 };

/* The chart of one rank. */
struct memory_map {
  const struct pen_view *view;
  FILE *out;
  uint32_t rank;
  const uint32_t *local;
  int columns;
  double bytes_per_line, unit; /* unit: time of a column */
  struct pen_live_buffers ranges;
  struct pen_action_times times;
  double *most; /* [line][column]: area of the buffer shown */
  char *shown;
};

static void print_part(FILE *out, const char *name, uint64_t bytes) {
  fprintf(out, "  %-12s %14" PRIu64 "  %10.2f MiB\n", name, bytes, (double)bytes / 1048576.0);
}

static const struct pen_rank_memory *memory_of(const struct memory_map *map) {
  return &map->view->plan->memory[map->rank];
}

/* The height of an address on the chart, without the persistent part. */
static double height_of(const struct memory_map *map, uint64_t address) {
  const struct pen_rank_memory *memory = memory_of(map);
  return (double)(address < memory->persistent_end
                      ? address
                      : address - memory->persistent_end + memory->receive_bytes);
}

static char letter_of(const struct memory_map *map, const struct pen_live_buffer *range) {
  static const char small[] = "0123456789abcdefghijklmnopqrstuvwxyz",
                    capital[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
  return (map->local[range->stage] ? capital : small)[range->microbatch % 36];
}

/* Draws a buffer where it covers more of a character than the one that is shown. */
static void draw_range(struct memory_map *map, const struct pen_live_buffer *range) {
  double low = height_of(map, range->offset) / map->bytes_per_line,
         high = low + (double)range->bytes / map->bytes_per_line;
  double from = map->times.start[range->first] / map->unit,
         past = map->times.end[range->last] / map->unit;
  for (int line = (int)low; line < CHART_LINES && line < high; line++)
    for (int column = (int)from; column < map->columns && column < past; column++) {
      double part = (fmin(high, line + 1.0) - fmax(low, line)) *
                    (fmin(past, column + 1.0) - fmax(from, column));
      size_t at = (size_t)line * (size_t)map->columns + (size_t)column;
      if (part <= map->most[at]) continue;
      map->most[at] = part;
      map->shown[at] = letter_of(map, range);
    }
}

static void print_chart(struct memory_map *map) {
  const struct pen_rank_memory *memory = memory_of(map);
  double moving = (double)(memory->receive_bytes + memory->activation_bytes),
         makespan = map->view->timing->makespan;
  map->columns = map->view->columns - LABEL - 2;
  map->bytes_per_line = moving / CHART_LINES;
  map->unit = makespan > 0 ? makespan / map->columns : 1;
  map->most = pen_new((size_t)CHART_LINES * (size_t)map->columns, sizeof *map->most);
  map->shown = pen_new((size_t)CHART_LINES * (size_t)map->columns, 1);
  for (size_t i = 0; i < map->ranges.count && moving > 0; i++)
    draw_range(map, &map->ranges.range[i]);
  for (int line = CHART_LINES; line-- > 0;) {
    double low = line * map->bytes_per_line;
    uint64_t address = low < (double)memory->receive_bytes
                           ? (uint64_t)low
                           : (uint64_t)low - memory->receive_bytes + memory->persistent_end;
    fprintf(map->out, "  %*" PRIu64 " |", LABEL - 4, address);
    for (int column = 0; column < map->columns; column++) {
      char shown = map->shown[(size_t)line * (size_t)map->columns + (size_t)column];
      fputc(shown ? shown : '.', map->out);
    }
    fputs("|\n", map->out);
  }
}

/* Every buffer, in the order of first use. */
static void print_ranges(const struct memory_map *map) {
  const struct pen_rank_program *program = &map->view->plan->profiles[0].ranks[map->rank];
  for (size_t i = 0; i < map->ranges.count; i++) {
    const struct pen_live_buffer *range = &map->ranges.range[i];
    const struct pen_action *first = &program->actions[range->first],
                            *last = &program->actions[range->last];
    char from[32], to[32];
    fprintf(map->out,
            "  %-15s stage %-4u microbatch %-5u %12" PRIu64 " + %-10" PRIu64
            " actions %u to %u, %s to %s\n",
            pen_base_text(range->base), range->stage, range->microbatch, range->offset,
            range->bytes, range->first, range->last,
            pen_action_format(from, first->kind, first->stage, first->microbatch),
            pen_action_format(to, last->kind, last->stage, last->microbatch));
  }
}

static void print_rank(struct memory_map *map) {
  const struct pen_rank_memory *m = memory_of(map);
  uint64_t peak = 0;
  for (uint32_t action = 0; action < map->view->plan->profiles[0].ranks[map->rank].action_count;
       action++)
    if (map->ranges.in_use[action] > peak) peak = map->ranges.in_use[action];
  fprintf(map->out,
          "rank %" PRIu32 ": %" PRIu64 " bytes placed, %" PRIu64
          " live at the peak, ratio %.4f, %" PRIu32 " receive slots\n",
          map->rank, m->arena_bytes, m->live_bytes, (double)m->arena_bytes / (double)m->live_bytes,
          m->receive_slots);
  print_part(map->out, "receive", m->receive_bytes);
  print_part(map->out, "weights", m->weight_bytes);
  if (m->bf16_bytes) print_part(map->out, "bf16 copies", m->bf16_bytes);
  print_part(map->out, "gradients", m->gradient_bytes);
  print_part(map->out, "moments", m->moment_bytes);
  if (m->output_bytes) print_part(map->out, "outputs", m->output_bytes);
  if (m->snapshot_bytes) print_part(map->out, "snapshot", m->snapshot_bytes);
  if (m->audit_bytes) print_part(map->out, "audit", m->audit_bytes);
  if (m->muon_bytes) print_part(map->out, "muon", m->muon_bytes);
  if (m->exchange_bytes) print_part(map->out, "exchange", m->exchange_bytes);
  if (m->generation_bytes) print_part(map->out, "cache", m->generation_bytes);
  print_part(map->out, "constants", m->constant_bytes);
  print_part(map->out, "activations", m->activation_bytes - m->generation_bytes);
  print_part(map->out, "in use", peak);
  fputs("  addresses upwards, time to the right; microbatches in base 36, . is free\n", map->out);
  print_chart(map);
  print_ranges(map);
}

void pen_memory_map(FILE *out, const struct pen_view *view) {
  const struct pen_profile *profile = &view->plan->profiles[0];
  struct memory_map map = {.view = view, .out = out, .local = pen_local_stages(view->partition)};
  for (uint32_t rank = 0; rank < view->plan->rank_count; rank++) {
    map.rank = rank;
    map.ranges = pen_live_buffers_of(view->plan, profile, rank);
    map.times = pen_action_times_of(&profile->ranks[rank], view->order->action[rank],
                                    view->order->count[rank], view->timing->start[rank],
                                    view->timing->end[rank]);
    print_rank(&map);
  }
}
