/* shape.c: which of a plan's shapes a step runs (see shape.h). */
#include "runtime/data/bucket.h"

#include <inttypes.h>
#include <stdio.h>

#include "runtime/base/check.h"

struct pen_shapes pen_shapes_of(const struct pen_plan *plan, enum pen_profile_kind kind) {
  struct pen_shapes shapes = {.count = 0};
  for (uint32_t p = 0; p < plan->profile_count; p++) {
    const struct pen_profile *profile = &plan->profiles[p];
    if (profile->kind != kind) {
      continue;
    }
    pen_assert(shapes.count < PEN_SHAPES_MAX);
    uint32_t at = shapes.count++;
    for (; at > 0 && shapes.profile[at - 1]->sequence > profile->sequence; at--) {
      shapes.profile[at] = shapes.profile[at - 1];
    }
    shapes.profile[at] = profile;
  }
  return shapes;
}

void pen_shapes_force(struct pen_shapes *shapes, uint64_t sequence) {
  char list[PEN_SHAPES_MAX * 12] = "";
  size_t used = 0;
  for (uint32_t s = 0; s < shapes->count; s++) {
    if (shapes->profile[s]->sequence == sequence) {
      shapes->profile[0] = shapes->profile[s];
      shapes->count = 1;
      return;
    }
    used += (size_t)snprintf(list + used, sizeof list - used, "%s%" PRIu32, s == 0 ? "" : ", ",
                             shapes->profile[s]->sequence);
  }
  pen_fail(PEN_EXIT_USAGE, "--shape %" PRIu64 ": this binary's shapes have sequences of %s",
           sequence, list);
}

uint32_t pen_bucket_of_step(const struct pen_shapes *shapes, const struct pen_plan *plan,
                            const struct pen_data *data, uint64_t cursor) {
  uint32_t s = 0;
  while (s + 1 < shapes->count &&
         pen_data_longest(data, cursor, pen_data_step_windows(plan, shapes->profile[s])) >
             shapes->profile[s]->sequence) {
    s++;
  }
  return s;
}
