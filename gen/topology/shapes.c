/* shapes.c: sequence-length buckets: steps of shorter sequences than model.sequence. */
#include "gen/topology/shapes.h"

#include <string.h>

#include "gen/base/arena.h"
#include "gen/topology/description.h"
#include "gen/topology/family_table.h"
#include "gen/topology/message.h"
#include "gen/topology/schedule_table.h"
#include "gen/topology/settings.h"

enum { SHAPES_MAX = 16 };

/* Sorts by sequence, ascending, and removes the bucket of model.sequence. */
static void sort_by_sequence(struct pen_topology *t) {
  int64_t *sequence = t->shapes_sequence.value, *microbatches = t->shapes_microbatches.value;
  size_t count = 0;
  for (size_t i = 0; i < t->shapes_sequence.count; i++) {
    int64_t s = sequence[i], m = microbatches[i];
    if (s == t->model_sequence) continue;
    size_t at = count++;
    for (; at && sequence[at - 1] > s; at--) {
      sequence[at] = sequence[at - 1];
      microbatches[at] = microbatches[at - 1];
    }
    sequence[at] = s;
    microbatches[at] = m;
  }
  t->shapes_sequence.count = t->shapes_microbatches.count = count;
}

static void check_shape(const struct pen_topology *t, size_t index) {
  long long sequence = t->shapes_sequence.value[index],
            microbatches = t->shapes_microbatches.value[index];
  if (sequence > t->model_sequence)
    pen_topology_fail(t, "shapes.sequence", "at most model.sequence = %lld; one is %lld",
                      (long long)t->model_sequence, sequence);
  if (sequence == t->model_sequence && microbatches != t->pipeline_microbatches)
    pen_topology_fail(
        t, "shapes.microbatches",
        "pipeline.microbatches = %lld for sequences of model.sequence = %lld; it is %lld",
        (long long)t->pipeline_microbatches, sequence, microbatches);
  for (size_t i = 0; i < index; i++)
    if (t->shapes_sequence.value[i] == sequence)
      pen_topology_fail(t, "shapes.sequence", "shapes of different sequences; two have %lld",
                        sequence);
}

void pen_topology_sort_shapes(struct pen_topology *t) {
  const struct pen_schedule *schedule = pen_schedule_of(t->pipeline_schedule);
  size_t count = t->shapes_sequence.count;
  if (!t->has_shapes_sequence && !t->has_shapes_microbatches) return;
  if (count != t->shapes_microbatches.count)
    pen_topology_fail(t, "shapes.microbatches", "as many as shapes.sequence has, which are %zu",
                      count);
  if (count > SHAPES_MAX) pen_topology_fail(t, "shapes.sequence", "at most %d shapes", SHAPES_MAX);
  if (!pen_family_row_of(t->model_family)->needs_tokens)
    pen_topology_fail(t, "shapes.sequence", "none, with family %s, which has no sequences",
                      pen_enum_text(pen_enum_family_kind, (int)t->model_family));
  if (schedule->given)
    pen_topology_fail(t, "shapes.sequence", "none, with schedule %s: its order is for one shape",
                      schedule->name);
  for (size_t i = 0; i < count; i++) check_shape(t, i);
  sort_by_sequence(t);
}

struct pen_topology *pen_topology_of_shape(const struct pen_topology *topology, size_t index) {
  struct pen_topology *shape = pen_new(1, sizeof *shape);
  const struct pen_setting *from = pen_setting_find_path("shapes.microbatches"),
                           *to = pen_setting_find_path("pipeline.microbatches");
  struct pen_origin *origin = pen_new(pen_setting_count, sizeof *origin);
  *shape = *topology;
  shape->sequence = topology->shapes_sequence.value[index];
  shape->pipeline_microbatches = topology->shapes_microbatches.value[index];
  memcpy(origin, topology->origin, pen_setting_count * sizeof *origin);
  shape->origin =
      origin; /* so that a schedule that refuses the microbatches reports the line of the shape */
  *pen_topology_origin(shape, to) =
      (struct pen_origin){.where = pen_topology_origin(topology, from)->where,
                          .text = pen_text("%lld", (long long)shape->pipeline_microbatches)};
  return shape;
}

struct pen_topology *pen_topology_of_window(const struct pen_topology *topology, int64_t sequence) {
  struct pen_topology *window = pen_new(1, sizeof *window);
  *window = *topology;
  window->sequence = sequence;
  window->pipeline_microbatches = window->batch_microbatch = 1;
  return window;
}

bool pen_topology_reads_texts(const struct pen_topology *t) {
  return pen_family_row_of(t->model_family)->needs_tokens &&
         (!t->description || !t->description->texts.refused);
}

bool pen_topology_has_cache(const struct pen_topology *t) {
  return t->generate_prompts > 0 && pen_topology_reads_texts(t);
}

int64_t pen_topology_cache_slots(const struct pen_topology *t) {
  return t->generate_prompts * t->generate_microbatches;
}

struct pen_topology *pen_topology_of_cache(const struct pen_topology *topology, int64_t prompts,
                                           int64_t sequence) {
  struct pen_topology *window = pen_topology_of_window(topology, sequence);
  window->batch_microbatch = window->cached_prompts = prompts;
  return window;
}
