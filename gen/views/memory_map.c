/* picture_memory.c: --print=memory: where every byte of each rank's arena is, and when.
 *
 * The chart is the arena's moving part: addresses upwards, from the window (receive slots) over the
 * activations; the step's time to the right. A cell shows the microbatch, in base 36, of the block
 * that has most of it, capital where the stage is not the rank's first; `.` is free. What persists
 * (weights, gradients, moments) lies between window and activations and is left out. */
#include <stdio.h>
#include <inttypes.h>
#include <math.h>

#include "gen/schedule/action_text.h"
#include "gen/views/live_ranges.h"
#include "gen/views/view.h"
#include "gen/base/arena.h"
#include "runtime/plan/plan.h"

enum { CHART_LINES = 24, LABEL = 15 };

/* One rank's chart: windows and activations on top of each other. */
struct map {
  const struct pen_view *picture;
  FILE *out;
  uint32_t rank;
  const uint32_t *local;
  int columns;
  double bytes_per_line, unit; /* of a line, of a column */
  struct pen_live_buffers lives;
  struct pen_action_times times;
  double *most; /* [line][column]: of the block shown */
  char *shown;
};

static void print_part(FILE *out, const char *name, uint64_t bytes) {
  fprintf(out, "  %-12s %14" PRIu64 "  %10.2f MiB\n", name, bytes, (double)bytes / 1048576.0);
}

static const struct pen_rank_memory *memory_of(const struct map *map) {
  return &map->picture->plan->memory[map->rank];
}

/* An address on the chart: the window, then what lies beyond what persists. */
static double height_of(const struct map *map, uint64_t address) {
  const struct pen_rank_memory *memory = memory_of(map);
  return (double)(address < memory->persistent_end
                      ? address
                      : address - memory->persistent_end + memory->receive_bytes);
}

static char letter_of(const struct map *map, const struct pen_buffer_life *life) {
  static const char small[] = "0123456789abcdefghijklmnopqrstuvwxyz",
                    capital[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
  return (map->local[life->stage] ? capital : small)[life->microbatch % 36];
}

/* Enters a block into the cells that it covers, where it has more of a cell than what is there. */
static void draw_life(struct map *map, const struct pen_buffer_life *life) {
  double low = height_of(map, life->offset) / map->bytes_per_line,
         high = low + (double)life->bytes / map->bytes_per_line;
  double from = map->times.start[life->first] / map->unit,
         past = map->times.end[life->last] / map->unit;
  for (int line = (int)low; line < CHART_LINES && line < high; line++)
    for (int column = (int)from; column < map->columns && column < past; column++) {
      double part = (fmin(high, line + 1.0) - fmax(low, line)) *
                    (fmin(past, column + 1.0) - fmax(from, column));
      size_t cell = (size_t)line * (size_t)map->columns + (size_t)column;
      if (part <= map->most[cell]) continue;
      map->most[cell] = part;
      map->shown[cell] = letter_of(map, life);
    }
}

static void print_chart(struct map *map) {
  const struct pen_rank_memory *memory = memory_of(map);
  double moving = (double)(memory->receive_bytes + memory->activation_bytes),
         makespan = map->picture->timing->makespan;
  map->columns = map->picture->columns - LABEL - 2;
  map->bytes_per_line = moving / CHART_LINES;
  map->unit = makespan > 0 ? makespan / map->columns : 1;
  map->most = pen_new((size_t)CHART_LINES * (size_t)map->columns, sizeof *map->most);
  map->shown = pen_new((size_t)CHART_LINES * (size_t)map->columns, 1);
  for (size_t i = 0; i < map->lives.count && moving > 0; i++) draw_life(map, &map->lives.life[i]);
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

/* Every block, in the order of first use: `saved_i of 3F1: 4096 bytes at 65536, rows 7 to 19`. */
static void print_lives(const struct map *map) {
  const struct pen_rank_program *program = &map->picture->plan->profiles[0].ranks[map->rank];
  for (size_t i = 0; i < map->lives.count; i++) {
    const struct pen_buffer_life *life = &map->lives.life[i];
    const struct pen_action *first = &program->actions[life->first],
                            *last = &program->actions[life->last];
    char from[32], to[32];
    fprintf(map->out,
            "  %-15s stage %-4u microbatch %-5u %12" PRIu64 " + %-10" PRIu64
            " rows %u to %u, %s to %s\n",
            pen_base_text(life->base), life->stage, life->microbatch, life->offset, life->bytes,
            life->first, life->last,
            pen_action_text(from, first->kind, first->stage, first->microbatch),
            pen_action_text(to, last->kind, last->stage, last->microbatch));
  }
}

static void print_rank(struct map *map) {
  const struct pen_rank_memory *m = memory_of(map);
  uint64_t peak = 0;
  for (uint32_t row = 0; row < map->picture->plan->profiles[0].ranks[map->rank].action_count; row++)
    if (map->lives.in_use[row] > peak) peak = map->lives.in_use[row];
  fprintf(map->out,
          "rank %" PRIu32 ": %" PRIu64 " bytes placed, %" PRIu64
          " live at the peak, ratio %.4f, %" PRIu32 " receive slots\n",
          map->rank, m->arena_bytes, m->live_bytes, (double)m->arena_bytes / (double)m->live_bytes,
          m->receive_slots);
  print_part(map->out, "window", m->receive_bytes);
  print_part(map->out, "weights", m->weight_bytes);
  if (m->bf16_bytes) print_part(map->out, "copies", m->bf16_bytes);
  print_part(map->out, "gradients", m->gradient_bytes);
  print_part(map->out, "moments", m->moment_bytes);
  if (m->snapshot_bytes) print_part(map->out, "snapshot", m->snapshot_bytes);
  print_part(map->out, "constants", m->constant_bytes);
  print_part(map->out, "activations", m->activation_bytes);
  print_part(map->out, "in use", peak);
  fputs("  addresses upwards, time to the right; microbatches in base 36, . is free\n", map->out);
  print_chart(map);
  print_lives(map);
}

void pen_view_memory(FILE *out, const struct pen_view *picture) {
  const struct pen_profile *profile = &picture->plan->profiles[0];
  struct map map = {.picture = picture, .out = out, .local = pen_local_stages(picture->partition)};
  for (uint32_t rank = 0; rank < picture->plan->rank_count; rank++) {
    map.rank = rank;
    map.lives = pen_live_buffers_of(picture->plan, profile, rank);
    map.times = pen_action_times_of(&profile->ranks[rank], picture->order->action[rank],
                                    picture->order->count[rank], picture->timing->start[rank],
                                    picture->timing->end[rank]);
    print_rank(&map);
  }
}
