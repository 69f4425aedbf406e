/* choose_recompute.c: chooses what the stages with memory.recompute = "auto" recompute.
 *
 * A level is a choice; a higher one takes more time. All stages begin at the lowest level. While a
 * rank's arena is above the limit, its stage with the lowest level takes the next one. A rank's
 * arena depends on its own stages alone (but for receive slots), and the makespan rises with the
 * costs of the actions, so with one stage a rank the first levels that fit have the least makespan.
 * With several stages some levels may then be higher than they need be: each stage in turn is given
 * a lower level where its rank still fits. Each trial lays out the whole plan: bytes are exact. */
#include "gen/pipeline/choose_recompute.h"

#include <string.h>

#include "gen/base/arena.h"
#include "gen/partition/partition.h"
#include "runtime/plan/plan.h"

static const enum pen_recompute_kind levels[] = {PEN_RECOMPUTE_NONE, PEN_RECOMPUTE_ATTENTION,
                                                 PEN_RECOMPUTE_LAYER, PEN_RECOMPUTE_FULL};
enum { LEVELS = sizeof levels / sizeof *levels, GIVEN = -1 };

struct recompute_choice {
  const struct pen_topology *topology;
  const struct pen_generator_options *options;
  const struct pen_measured *measured;
  pen_lay_out *lay_out;
  size_t stages;
  int *level;               /* [stages]; GIVEN: not "auto" */
  struct pen_result result; /* the last plan that was laid out */
  bool *over;               /* [rank]: its arena is above the limit */
};

static const struct pen_topology *with_choice(const struct recompute_choice *c) {
  struct pen_topology *topology = pen_new(1, sizeof *topology);
  int *value = pen_new(c->stages + 1, sizeof *value);
  *topology = *c->topology;
  for (size_t s = 0; s < c->stages; s++)
    value[s] =
        c->level[s] == GIVEN ? c->topology->memory_recompute.value[s] : (int)levels[c->level[s]];
  topology->memory_recompute.value = value;
  return topology;
}

/* Lays out the plan of the choice. Returns whether any rank is over the limit. */
static bool is_over(struct recompute_choice *c) {
  const uint64_t limit = (uint64_t)c->topology->memory_limit_mib << 20;
  bool any = false;
  c->result = c->lay_out(with_choice(c), c->options, c->measured, NULL);
  for (uint32_t r = 0; r < c->result.plan->rank_count; r++) {
    c->over[r] = c->result.plan->memory[r].arena_bytes > limit;
    any = any || c->over[r];
  }
  return any;
}

/* Raises the lowest level of each rank that is over the limit. Returns whether there was one. */
static bool raise_levels(struct recompute_choice *c) {
  const struct pen_partition *partition = c->result.partition;
  bool raised = false;
  for (uint32_t r = 0; r < partition->rank_count; r++) {
    size_t lowest = c->stages;
    for (size_t s = 0; s < c->stages; s++)
      if (partition->rank_of[s] == r && c->level[s] != GIVEN && c->level[s] + 1 < LEVELS &&
          (lowest == c->stages || c->level[s] < c->level[lowest]))
        lowest = s;
    if (!c->over[r] || lowest == c->stages) continue;
    c->level[lowest]++;
    raised = true;
  }
  return raised;
}

/* Lowers the level of one stage of each rank, the `place`-th, where the rank still fits. */
static void lower_levels(struct recompute_choice *c, uint32_t place) {
  const struct pen_partition *partition = c->result.partition;
  const uint32_t *stages = pen_partition_stages(partition);
  const struct pen_result fitting = c->result;
  int *before = pen_new(c->stages + 1, sizeof *before);
  bool lowered = false;
  memcpy(before, c->level, c->stages * sizeof *before);
  for (uint32_t r = 0; r < partition->rank_count; r++) {
    int *level = &c->level[stages[r * partition->stages_per_rank + place]];
    if (*level <= 0) continue;
    --*level;
    lowered = true;
  }
  if (lowered && is_over(c)) {
    for (size_t s = 0; s < c->stages; s++)
      if (c->over[partition->rank_of[s]]) c->level[s] = before[s];
    if (is_over(c)) {
      memcpy(c->level, before, c->stages * sizeof *before);
      c->result = fitting;
    }
  }
  pen_free(before);
}

struct pen_result pen_choose_recompute(const struct pen_topology *topology,
                                       const struct pen_generator_options *options,
                                       const struct pen_measured *measured, pen_lay_out *lay_out) {
  struct recompute_choice c = {.topology = topology,
                               .options = options,
                               .measured = measured,
                               .lay_out = lay_out,
                               .stages = topology->memory_recompute.count};
  size_t chosen = 0;
  c.level = pen_new(c.stages + 1, sizeof *c.level);
  for (size_t s = 0; s < c.stages; s++) {
    bool is_auto = topology->memory_recompute.value[s] == PEN_RECOMPUTE_AUTO;
    c.level[s] = is_auto ? 0 : GIVEN;
    chosen += is_auto;
  }
  if (!chosen) return lay_out(topology, options, measured, NULL);
  if (!topology->memory_limit_mib || !topology->trains)
    return lay_out(with_choice(&c), options, measured, NULL);
  c.over = pen_new((size_t)topology->pipeline_ranks, sizeof *c.over);
  while (is_over(&c))
    if (!raise_levels(&c)) return c.result;
  const uint32_t places = c.result.partition->stages_per_rank;
  for (int round = 1; round < LEVELS && places > 1; round++)
    for (uint32_t place = 0; place < places; place++) lower_levels(&c, place);
  return c.result;
}
