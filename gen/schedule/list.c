/* list.c: prints the table of schedules (--list-schedules). */
#include <stdio.h>
#include <string.h>

#include "gen/schedule/schedule.h"
#include "gen/base/arena.h"
#include "gen/topology/schedule_table.h"

const char pen_schedule_notation[] =
    "P ranks, s stages a rank, m microbatches, w the warm-up (1 classic, 2 doubled); the bubble, "
    "with / of real numbers, is"
    " (span - work) / span when F, I and W cost the same and sends cost nothing; the peak, with / "
    "of whole numbers, is counted in"
    " activations of one stage on the rank that holds most, from the start of F to the end of W or "
    "B.";

const char *pen_schedule_stages(const struct pen_schedule *schedule) {
  const char *place = schedule->placement == PEN_PLACEMENT_V ? "V" : "loop";
  const char *firm = schedule->strict ? "" : ", or as pipeline.placement says";
  if (schedule->stages_minimum == schedule->stages_maximum)
    return pen_text("%u a rank, in a %s%s", schedule->stages_minimum, place, firm);
  return pen_text("%u to %u a rank, in a %s%s", schedule->stages_minimum, schedule->stages_maximum,
                  place, firm);
}

const char *pen_schedule_figure(const struct pen_schedule *schedule, const char *expression) {
  if (schedule->given) return "depends on the order: see --print=report";
  return strcmp(schedule->holds, "true") ? pen_text("%s, where %s", expression, schedule->holds)
                                         : expression;
}

void pen_schedules_list(FILE *out) {
  for (uint32_t index = 0; index < pen_schedule_count; index++) {
    const struct pen_schedule *schedule = &pen_schedules[index];
    fprintf(out, "%s\n  rule    %s\n  source  %s\n  stages  %s\n", schedule->name, schedule->rule,
            schedule->source, pen_schedule_stages(schedule));
    fprintf(out, "  bubble  %s\n", pen_schedule_figure(schedule, schedule->bubble));
    if (schedule->trains)
      fprintf(out, "  peak    %s\n", pen_schedule_figure(schedule, schedule->peak));
    fputc('\n', out);
  }
  fprintf(out, "%s\n", pen_schedule_notation);
}
