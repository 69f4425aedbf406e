/* shapes.c: named tensors: shapes, splits, and who gets them.
 *
 * A family declares every tensor that enters the model or passes between blocks by its shape over
 * one step of one replica ("batch sequence hidden"), and which extent the microbatches share out
 * evenly; or that it is replicated: each gets all of it (as TensorChunkSpec does for inputs in
 * torch.distributed.pipelining). All shapes follow from the settings: nothing is traced, no block
 * is run. What blocks emit when stages are built is checked against what was declared. */
#include "gen/model/tensor_shapes.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "gen/model/op_signature.h"
#include "gen/base/arena.h"
#include "gen/base/error.h"
#include "gen/topology/topology.h"
#include "runtime/plan/plan.h"

/* ---- shapes ---- */

#define FAIL(topology, family, declared, format, ...)                               \
  pen_stop(PEN_EXIT_TOPOLOGY, "%s: family %s: tensor %s " format, (topology)->path, \
           (family)->name, (declared)->name, __VA_ARGS__)

/* The value of one word of a declaration; 0 when it has none. */
static uint64_t extent_of(const struct pen_topology *t, const char *word, size_t length) {
  const struct {
    const char *name;
    int64_t value;
  } names[] = {
      {"batch", t->pipeline_microbatches * t->batch_microbatch},
      {"sequence", t->sequence},
      {"positions", t->model_sequence},
      {"hidden", t->model_hidden},
      {"ffn", t->model_ffn},
      {"vocab", t->model_vocab},
      {"head_dim", t->model_head_dim},
  };
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (strlen(names[i].name) == length && memcmp(names[i].name, word, length) == 0)
      return (uint64_t)names[i].value;
  return isdigit((unsigned char)*word) ? strtoull(word, NULL, 10) : 0;
}

struct pen_shape pen_shape_of(const struct pen_topology *t, const struct pen_family *family,
                              const struct pen_declared *declared) {
  struct pen_shape shape = {.elements = 1};
  for (const char *word = declared->extents; *word;) {
    size_t length = strcspn(word, " ");
    uint32_t index = shape.extent_count++;
    if (index == PEN_SHAPE_EXTENTS_MAX)
      FAIL(t, family, declared, "has more than %d extents: \"%s\"", PEN_SHAPE_EXTENTS_MAX,
           declared->extents);
    shape.whole[index] = shape.extent[index] = extent_of(t, word, length);
    if (shape.whole[index] == 0)
      FAIL(t, family, declared, "has an extent that is no number: \"%.*s\"", (int)length, word);
    word += length + (word[length] == ' ');
  }
  if (declared->split >= 0) {
    uint64_t microbatches = (uint64_t)t->pipeline_microbatches;
    if ((uint32_t)declared->split >= shape.extent_count)
      FAIL(t, family, declared, "is split by its extent %d, but has %u", declared->split,
           shape.extent_count);
    uint64_t *extent = &shape.extent[declared->split];
    if (*extent % microbatches)
      FAIL(t, family, declared,
           "is split by its extent %d, which is %llu, no multiple of the %llu microbatches",
           declared->split, (unsigned long long)*extent, (unsigned long long)microbatches);
    *extent /= microbatches;
  }
  for (uint32_t i = 0; i < shape.extent_count; i++)
    if (__builtin_mul_overflow(shape.elements, shape.extent[i], &shape.elements))
      FAIL(t, family, declared, "is %s", "too large");
  shape.dtype = declared->dtype == PEN_OF_MODEL ? pen_topology_dtype(t) : declared->dtype;
  if (__builtin_mul_overflow(shape.elements, pen_dtype_bytes(shape.dtype), &shape.bytes))
    FAIL(t, family, declared, "is %s", "too large");
  return shape;
}

const char *pen_shape_text(const struct pen_shape *shape) {
  const char *text = "(";
  for (uint32_t i = 0; i < shape->extent_count; i++)
    text = pen_text("%s%s%llu", text, i ? ", " : "", (unsigned long long)shape->extent[i]);
  return pen_text("%s) of %s", text, pen_dtype_text(shape->dtype));
}

/* ---- neighbours ---- */

/* What a block gives or takes, for messages. */
static const char *side_text(const struct pen_topology *t, const struct pen_family *family,
                             const struct pen_declared *declared) {
  if (!declared) return "nothing";
  struct pen_shape shape = pen_shape_of(t, family, declared);
  return pen_text("%s, %s", declared->name, pen_shape_text(&shape));
}

static bool agree(const struct pen_topology *t, const struct pen_family *family,
                  const struct pen_declared *a, const struct pen_declared *b) {
  if (a == b) return true;
  if (!a || !b || strcmp(a->name, b->name) || a->dtype != b->dtype ||
      (a->split == PEN_REPLICATED) != (b->split == PEN_REPLICATED))
    return false;
  struct pen_shape x = pen_shape_of(t, family, a), y = pen_shape_of(t, family, b);
  return x.extent_count == y.extent_count && memcmp(x.extent, y.extent, sizeof x.extent) == 0 &&
         memcmp(x.whole, y.whole, sizeof x.whole) == 0;
}

/* The block before `block` gives what it takes; the first takes nothing and the last gives nothing.
 */
static void check_neighbours(const struct pen_topology *t, const struct pen_stages *p) {
  const struct pen_declared *given = NULL;
  for (uint32_t b = 0; b <= p->block_count; b++) {
    const struct pen_declared *taken = b < p->block_count ? p->block[b].kind->takes : NULL;
    if (!agree(t, p->family, given, taken)) {
      const struct pen_declared *named = given ? given : taken;
      FAIL(t, p->family, named, "is at odds: %s gives %s, but %s takes %s",
           b ? p->block[b - 1].name : "the start", side_text(t, p->family, given),
           b < p->block_count ? p->block[b].name : "the end", side_text(t, p->family, taken));
    }
    if (b < p->block_count) given = p->block[b].kind->gives;
  }
}

/* A stage's block reads an input that must be the family's, and go to that stage. */
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
    FAIL(t, p->family, declared, "goes to the first stage alone, but block %s of stage %u reads it",
         name, stage);
  if (declared->receivers == PEN_TO_LAST && stage + 1 != stage_count)
    FAIL(t, p->family, declared, "goes to the last stage alone, but block %s of stage %u reads it",
         name, stage);
}

/* ---- the pass ---- */

struct listing {
  const struct pen_topology *topology;
  const struct pen_stages *stages;
  struct pen_shapes shapes;
  size_t capacity;
};

static void add(struct listing *l, const struct pen_declared *declared, const char *suffix,
                uint32_t stage, int64_t from, int64_t to) {
  struct pen_shapes *s = &l->shapes;
  s->border = pen_grow(s->border, &l->capacity, s->count + 1u, sizeof *s->border);
  s->border[s->count++] =
      (struct pen_border){.declared = declared,
                          .name = pen_text("%s%s", declared->name, suffix),
                          .stage = stage,
                          .from = from,
                          .to = to,
                          .shape = pen_shape_of(l->topology, l->stages->family, declared)};
}

/* Inputs of the step that a stage's blocks read, each once, in the family's order. */
static void add_inputs(struct listing *l, uint32_t stage) {
  const struct pen_stages *p = l->stages;
  for (const struct pen_declared *const *input = p->family->input; *input; input++) {
    bool read = false;
    for (uint32_t b = p->span[stage].first_block; b < p->span[stage].past_last_block && !read; b++)
      for (size_t k = 0; k < PEN_BLOCK_READS_MAX && p->block[b].kind->reads[k]; k++)
        read = read || p->block[b].kind->reads[k] == *input;
    if (read && pen_declared_wanted(l->topology, *input))
      add(l, *input, "", stage, (*input)->split == PEN_REPLICATED ? PEN_FROM_START : PEN_FROM_DATA,
          stage);
  }
}

struct pen_shapes pen_shapes(const struct pen_topology *t, const struct pen_stages *p) {
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
    if (taken) add(&l, taken, "", stage, stage - 1, stage);
    if (given) add(&l, given, "", stage, stage, stage + 1);
    if (given && t->trains) add(&l, given, ".grad", stage, stage + 1, stage);
    if (taken && t->trains) add(&l, taken, ".grad", stage, stage, stage - 1);
  }
  return l.shapes;
}

/* ---- what blocks emit ---- */

void pen_shape_check_value(const struct pen_graph *graph, const struct pen_declared *declared,
                           uint32_t value, const char *verb) {
  const struct pen_family *family = graph->stages->family;
  struct pen_shape shape = pen_shape_of(graph->topology, family, declared);
  const char *block = graph->stages->block[graph->block].name;
  if (value == PEN_NONE)
    FAIL(graph->topology, family, declared, "is declared, but block %s %s none", block, verb);
  const struct pen_value *made = &graph->value[value];
  if (made->elements == shape.elements && made->dtype == shape.dtype) return;
  FAIL(graph->topology, family, declared, "is declared as %s, but block %s %s %llu elements of %s",
       pen_shape_text(&shape), block, verb, (unsigned long long)made->elements,
       pen_dtype_text(made->dtype));
}

void pen_shape_check_reader(const struct pen_graph *graph, const struct pen_declared *declared) {
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
      !by_sequences) /* design.md section 9: a row of a microbatch is a window */
    FAIL(graph->topology, p->family, declared,
         "is declared as %s, but a microbatch gets its %lld sequences of the data",
         pen_shape_text(&shape), (long long)graph->topology->batch_microbatch);
}
