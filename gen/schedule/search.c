/* search.c: the schedule "search" has no rule: gen/search/search.c finds its order, for which it
 * needs costs and memory. */
#include "gen/schedule/schedule.h"
#include "gen/base/error.h"

void pen_schedule_search(const struct pen_composer *composer) {
  pen_stop(70, "penstock-gen: this is our bug: schedule %s is searched for, not composed",
           composer->topology->pipeline_schedule);
}
