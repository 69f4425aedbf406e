/* stage_io.c: the named tensors that enter and leave each stage, and the checks that neighbouring
 * blocks agree about them. */
#include "gen/model/stage_io.h"

#include <string.h>

#include "gen/base/arena.h"
#include "gen/model/blocks.h"
#include "gen/model/stages.h"
#include "gen/topology/topology.h"
#include "runtime/plan/plan.h"

#define FAIL PEN_FAIL_DECLARED

/* The tensor that a block gives or takes, for messages. */
static const char *side_text(const struct pen_topology *t, const struct pen_family *family,
                             const struct pen_declared *declared) {
  if (!declared) return "nothing";
  struct pen_shape shape = pen_shape_of(t, family, declared);
  return pen_text("%s, %s", declared->name, pen_shape_text(&shape));
}

static bool declared_alike(const struct pen_topology *t, const struct pen_family *family,
                           const struct pen_declared *a, const struct pen_declared *b) {
  if (a == b) return true;
  if (!a || !b || strcmp(a->name, b->name) || a->dtype != b->dtype ||
      (a->split == PEN_REPLICATED) != (b->split == PEN_REPLICATED))
    return false;
  struct pen_shape x = pen_shape_of(t, family, a), y = pen_shape_of(t, family, b);
  return x.extent_count == y.extent_count && memcmp(x.extent, y.extent, sizeof x.extent) == 0 &&
         memcmp(x.whole, y.whole, sizeof x.whole) == 0;
}

/* Checks that each block takes what the previous one gives; the first takes nothing and the last
 * gives nothing. */
static void check_neighbours(const struct pen_topology *t, const struct pen_stages *p) {
  const struct pen_declared *given = NULL;
  for (uint32_t b = 0; b <= p->block_count; b++) {
    const struct pen_declared *taken = b < p->block_count ? p->block[b].kind->takes : NULL;
    if (!declared_alike(t, p->family, given, taken)) {
      const struct pen_declared *named = given ? given : taken;
      FAIL(t, p->family, named, "does not match: %s gives %s, but %s takes %s",
           b ? p->block[b - 1].name : "the start", side_text(t, p->family, given),
           b < p->block_count ? p->block[b].name : "the end", side_text(t, p->family, taken));
    }
    if (b < p->block_count) given = p->block[b].kind->gives;
  }
}

/* Checks that the input which a block reads is one of the family and goes to its stage. */
static void check_receiver(const struct pen_topology *t, const struct pen_stages *p, uint32_t stage,
                           uint32_t stage_count, uint32_t block,
                           const struct pen_declared *declared) {
  const char *name = p->block[block].name;
  bool listed = false;
  for (const struct pen_declared *const *input = p->family->input; *input; input++)
    listed = listed || *input == declared;
  if (!listed)
    FAIL(t, p->family, declared, "is read by block %s, but is not among the family's inputs", name);
  if (declared->receivers == PEN_TO_FIRST && stage != 0)
    FAIL(t, p->family, declared, "goes only to the first stage, but block %s of stage %u reads it",
         name, stage);
  if (declared->receivers == PEN_TO_LAST && stage + 1 != stage_count)
    FAIL(t, p->family, declared, "goes only to the last stage, but block %s of stage %u reads it",
         name, stage);
}

struct listing {
  const struct pen_topology *topology;
  const struct pen_stages *stages;
  struct pen_stage_io io;
};

static void add_tensor(struct listing *l, const struct pen_declared *declared, const char *suffix,
                       uint32_t stage, int64_t from, int64_t to) {
  struct pen_stage_io *s = &l->io;
  PEN_RESERVE(s->tensor, s->count + 1);
  s->tensor[s->count++] =
      (struct pen_stage_tensor){.declared = declared,
                                .name = pen_text("%s%s", declared->name, suffix),
                                .stage = stage,
                                .from = from,
                                .to = to,
                                .shape = pen_shape_of(l->topology, l->stages->family, declared)};
}

/* Adds the inputs of the step that a stage's blocks read, each once, in the family's order. */
static void add_inputs(struct listing *l, uint32_t stage) {
  const struct pen_stages *p = l->stages;
  for (const struct pen_declared *const *input = p->family->input; *input; input++) {
    bool read = false;
    for (uint32_t b = p->span[stage].first_block; b < p->span[stage].past_last_block && !read; b++)
      for (size_t k = 0; k < PEN_BLOCK_READS_MAX && p->block[b].kind->reads[k]; k++)
        read = read || p->block[b].kind->reads[k] == *input;
    if (read && pen_declared_wanted(l->topology, *input))
      add_tensor(l, *input, "", stage,
                 (*input)->split == PEN_REPLICATED ? PEN_FROM_START : PEN_FROM_DATA, stage);
  }
}

struct pen_stage_io pen_stage_io_of(const struct pen_topology *t, const struct pen_stages *p) {
  struct listing l = {.topology = t, .stages = p};
  check_neighbours(t, p);
  for (uint32_t stage = 0; stage < p->stage_count; stage++) {
    const struct pen_span *span = &p->span[stage];
    for (uint32_t b = span->first_block; b < span->past_last_block; b++)
      for (size_t k = 0; k < PEN_BLOCK_READS_MAX && p->block[b].kind->reads[k]; k++)
        check_receiver(t, p, stage, p->stage_count, b, p->block[b].kind->reads[k]);
    const struct pen_declared *taken = p->block[span->first_block].kind->takes,
                              *given = p->block[span->past_last_block - 1].kind->gives;
    add_inputs(&l, stage);
    if (taken) add_tensor(&l, taken, "", stage, stage - 1, stage);
    if (given) add_tensor(&l, given, "", stage, stage, stage + 1);
    if (given && t->trains) add_tensor(&l, given, ".grad", stage, stage + 1, stage);
    if (taken && t->trains) add_tensor(&l, taken, ".grad", stage, stage, stage - 1);
  }
  return l.io;
}

void pen_stage_io_check_reader(const struct pen_graph *graph, const struct pen_declared *declared) {
  const struct pen_stages *p = graph->stages;
  const struct pen_model_block *block = &p->block[graph->block];
  bool declares = false;
  for (size_t k = 0; k < PEN_BLOCK_READS_MAX && block->kind->reads[k]; k++)
    declares = declares || block->kind->reads[k] == declared;
  if (!declares)
    FAIL(graph->topology, p->family, declared, "is read by block %s, which does not declare it",
         block->name);
  check_receiver(graph->topology, p, graph->stage, graph->stage_count, graph->block, declared);
  struct pen_shape shape = pen_shape_of(graph->topology, p->family, declared);
  bool by_sequences =
      declared->split == 0 && shape.extent[0] == (uint64_t)graph->topology->batch_microbatch;
  if (declared->split != PEN_REPLICATED &&
      !by_sequences) /* docs/contracts.md section 9: a row of a microbatch is a sequence */
    FAIL(graph->topology, p->family, declared,
         "is declared as %s, but a microbatch gets its %lld sequences of the data",
         pen_shape_text(&shape), (long long)graph->topology->batch_microbatch);
}
