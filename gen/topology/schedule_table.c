/* schedule_table.c: the table of schedules, and what its columns mean for a topology. */
#include "gen/topology/schedule_table.h"
#include "gen/topology/named_file.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/file_kinds.h"
#include "base/input_file.h"
#include "gen/base/arena.h"
#include "gen/base/error.h"

#define PEN_SCHEDULE(key, compose, suits, label, bubble_expression, peak_expression, \
                     holds_expression, ...)                                          \
  {.name = label,                                                                    \
   .bubble = #bubble_expression,                                                     \
   .peak = #peak_expression,                                                         \
   .holds = #holds_expression,                                                       \
   __VA_ARGS__},
const struct pen_schedule pen_schedules[] = {
#include "gen/topology/schedules.def"
};
const uint32_t pen_schedule_count = sizeof pen_schedules / sizeof pen_schedules[0];

uint32_t pen_schedule_warmup(const struct pen_schedule *schedule,
                             const struct pen_topology *topology, uint32_t stages_per_rank) {
  if (schedule->warmup) return schedule->warmup;
  if (topology->has_pipeline_warmup) return (uint32_t)topology->pipeline_warmup;
  return stages_per_rank == 1 || pen_schedule_splits(schedule, topology) ? 1 : 2;
}

bool pen_schedule_splits(const struct pen_schedule *schedule, const struct pen_topology *topology) {
  return schedule->split == PEN_SPLIT_ALWAYS ||
         (schedule->split == PEN_SPLIT_SETTING && topology->pipeline_zero_bubble);
}

void pen_topology_read_schedule_file(struct pen_topology *t) {
  struct pen_input_error error;
  t->schedule_path = pen_named_file_path(t, "pipeline.schedule_file", t->pipeline_schedule_file);
  char *read = pen_input_read(t->schedule_path, PEN_INPUT_TABLE, &t->schedule_bytes, &error);
  if (read == NULL) pen_stop(error.status, "%s: %s", t->schedule_path, error.text);
  char *text = pen_new(t->schedule_bytes + 1, 1);
  memcpy(text, read, t->schedule_bytes);
  free(read);
  const size_t mark = pen_mark_bytes(text, t->schedule_bytes);
  t->schedule_text = text + mark;
  t->schedule_bytes -= mark;
  pen_named_file_add(t, t->schedule_path);
}

/* In a loop, all stages of rank 0 are multiples of the number of ranks; in a V, some are 2 x ranks
 * - 1 modulo 2 x ranks. */
enum pen_placement pen_topology_placement_of_file(const struct pen_topology *t) {
  const char *end = memchr(t->schedule_text, '\n', t->schedule_bytes);
  if (!end || t->pipeline_ranks == 1) return PEN_PLACEMENT_LOOP;
  for (const char *at = t->schedule_text; at < end; at++) {
    if (!isdigit((unsigned char)*at)) continue;
    bool begins =
        at == t->schedule_text || strchr(",(;\" ", at[-1]); /* it is a stage, not a microbatch */
    uint64_t stage = 0;
    for (; isdigit((unsigned char)*at); at++) stage = stage * 10 + (uint64_t)(*at - '0');
    if (begins && stage % (2 * (uint64_t)t->pipeline_ranks) == 2 * (uint64_t)t->pipeline_ranks - 1)
      return PEN_PLACEMENT_V;
  }
  return PEN_PLACEMENT_LOOP;
}
