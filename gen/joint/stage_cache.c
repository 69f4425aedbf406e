/* stage_cache.c: graph, cost and memory of each run of blocks as a stage, built when it is first
 * asked for.
 *
 * A stage depends on its blocks, on what it recomputes and, where costs are by number, on that. The
 * graph is built as the first, an inner, the last or the only stage of a pipeline. */
#include <string.h>

#include "gen/base/arena.h"
#include "gen/joint/internal.h"
#include "gen/model/model.h"

struct stage_entry {
  uint32_t stage, first, past, recompute;
  struct pen_joint_stage *built; /* NULL: the entry is free */
};

struct pen_joint_stages {
  const struct pen_cost_source *source;
  const struct pen_partition *base;
  bool by_number; /* costs depend on the number of the stage */
  bool holds;     /* there is a limit of memory */
  struct stage_entry *entry;
  size_t count, capacity; /* a power of two, at most half full */
};

struct pen_joint_stages *pen_joint_stages(const struct pen_cost_source *source,
                                          const struct pen_partition *base) {
  struct pen_joint_stages *stages = pen_new(1, sizeof *stages);
  stages->source = source;
  stages->base = base;
  stages->by_number = pen_cost_is_by_number(source);
  stages->holds = source->topology->memory_limit_mib || source->topology->has_pipeline_live_limit;
  stages->capacity = 1024;
  stages->entry = pen_new(stages->capacity, sizeof *stages->entry);
  return stages;
}

enum { PLACES = 3 }; /* a stage is built as the first, one between, or the last of so many */

/* What a stage holds, at its place. A model of fewer stages has no rank there: 0. */
static struct pen_stage_hold hold_of(const struct pen_partition *base,
                                     const struct pen_graph *graph) {
  struct pen_partition placed = *base;
  uint32_t rank_of[PLACES] = {0};
  for (uint32_t s = 0; s < PLACES && s < base->stage_count; s++) rank_of[s] = base->rank_of[s];
  placed.rank_of = rank_of;
  return pen_stage_hold_of(&placed, graph);
}

static struct pen_joint_stage *build_stage(const struct pen_joint_stages *s, uint32_t stage,
                                           uint32_t first, uint32_t past, uint8_t recompute) {
  const struct pen_stages *all = &s->base->stages;
  struct pen_stages *alone = pen_new(1, sizeof *alone);
  uint32_t count = first == 0 && past == all->block_count ? 1 : PLACES;
  uint32_t place = first == 0 ? 0 : past == all->block_count ? 2 : 1;
  *alone = *all;
  alone->stage_count = count;
  alone->span = pen_new(count, sizeof *alone->span);
  alone->span[place] = (struct pen_span){.first_block = first, .past_last_block = past};
  struct pen_joint_stage *built = pen_new(1, sizeof *built);
  built->graph = pen_stage_graph(s->source->topology, alone, place, s->source->topology->trains);
  built->graph->recompute = recompute;
  pen_stage_programs(built->graph);
  built->cost = pen_cost_of_stage(s->source, built->graph, stage);
  if (s->holds) built->hold = hold_of(s->base, built->graph);
  return built;
}

static size_t place_of(const struct pen_joint_stages *s, const struct stage_entry *key) {
  uint64_t hash = key->first;
  hash = (hash * 0x9E3779B97F4A7C15u) ^ key->past;
  hash = (hash * 0x9E3779B97F4A7C15u) ^ key->stage;
  hash = ((hash * 0x9E3779B97F4A7C15u) ^ key->recompute) * 0x9E3779B97F4A7C15u;
  size_t at = (size_t)(hash >> 32) & (s->capacity - 1);
  while (s->entry[at].built &&
         (s->entry[at].first != key->first || s->entry[at].past != key->past ||
          s->entry[at].stage != key->stage || s->entry[at].recompute != key->recompute))
    at = (at + 1) & (s->capacity - 1);
  return at;
}

static void grow_entries(struct pen_joint_stages *s) {
  struct stage_entry *old = s->entry;
  const size_t capacity = s->capacity;
  s->capacity = 2 * capacity;
  s->entry = pen_new(s->capacity, sizeof *s->entry);
  for (size_t i = 0; i < capacity; i++)
    if (old[i].built) s->entry[place_of(s, &old[i])] = old[i];
  pen_free(old);
}

const struct pen_joint_stage *pen_joint_stage_of(struct pen_joint_stages *s, uint32_t stage,
                                                 uint32_t first, uint32_t past, uint8_t recompute) {
  const struct stage_entry key = {s->by_number ? stage : 0, first, past, recompute, NULL};
  size_t at = place_of(s, &key);
  if (s->entry[at].built) return s->entry[at].built;
  if (2 * ++s->count > s->capacity) {
    grow_entries(s);
    at = place_of(s, &key);
  }
  s->entry[at] = key;
  s->entry[at].built = build_stage(s, stage, first, past, recompute);
  return s->entry[at].built;
}
