/* tensor_shapes.c: the shapes of named tensors.
 *
 * A family declares the shape of every tensor that enters the model or passes between blocks, over
 * one step of one replica ("batch sequence hidden"), and which extent the microbatches split
 * evenly; or that it is replicated: each microbatch gets all of it (as TensorChunkSpec says for
 * inputs in torch.distributed.pipelining). The settings determine all shapes: nothing is traced or
 * run. The values that blocks emit are checked against the declarations. */
#include "gen/model/tensor_shapes.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "gen/model/op_signature.h"
#include "gen/base/arena.h"
#include "gen/base/error.h"
#include "gen/topology/topology.h"
#include "runtime/plan/plan.h"

#define FAIL PEN_FAIL_DECLARED

/* The value of a word of a declaration; 0: unknown. */
static uint64_t extent_of(const struct pen_topology *t, const char *word, size_t length) {
  const struct {
    const char *name;
    int64_t value;
  } names[] = {
      {"batch", t->pipeline_microbatches * t->batch_microbatch},
      {"sequence", t->sequence},
      {"held", t->sequence / pen_topology_token_ranks(t)},
      {"predicting", t->generates ? 1 : t->sequence},
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
      FAIL(t, family, declared, "has an extent that is not a number: \"%.*s\"", (int)length, word);
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
           "is split by its extent %d, which is %llu, not a multiple of the %llu microbatches",
           declared->split, (unsigned long long)*extent, (unsigned long long)microbatches);
    *extent /= microbatches;
  }
  for (uint32_t i = 0; i < shape.extent_count; i++)
    if (__builtin_mul_overflow(shape.elements, shape.extent[i], &shape.elements))
      FAIL(t, family, declared, "is %s", "too large");
  shape.dtype = declared->dtype == PEN_OF_MODEL ? (uint8_t)t->model_dtype : declared->dtype;
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

bool pen_declared_wanted(const struct pen_topology *topology, const struct pen_declared *declared) {
  return !declared->wanted || declared->wanted(topology);
}

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
