/* shapes_json.c: --print=shapes: the named tensors at the input and output of every stage, as JSON.
 */
#include <stdio.h>
#include <jansson.h>

#include "gen/views/shapes_json.h"
#include "gen/model/op_signature.h"
#include "gen/partition/partition.h"
#include "gen/topology/topology.h"

static json_t *extents_json(const uint64_t *extent, uint32_t count) {
  json_t *list = json_array();
  for (uint32_t i = 0; i < count; i++)
    json_array_append_new(list, json_integer((json_int_t)extent[i]));
  return list;
}

/* "data", "start", or the number of a stage. */
static json_t *endpoint_of(int64_t end) {
  if (end >= 0) return json_integer(end);
  return json_string(end == PEN_FROM_DATA ? "data" : "start");
}

static json_t *tensor_object(const struct pen_stage_tensor *tensor) {
  const struct pen_shape *shape = &tensor->shape;
  json_t *object = json_object();
  json_object_set_new(object, "tensor", json_string(tensor->name));
  json_object_set_new(object, "from", endpoint_of(tensor->from));
  json_object_set_new(object, "to", endpoint_of(tensor->to));
  json_object_set_new(object, "dtype", json_string(pen_dtype_text(tensor->shape.dtype)));
  json_object_set_new(object, "shape", extents_json(shape->extent, shape->extent_count));
  json_object_set_new(object, "bytes", json_integer((json_int_t)shape->bytes));
  json_object_set_new(object, "step_shape", extents_json(shape->whole, shape->extent_count));
  bool split = tensor->declared->split != PEN_REPLICATED;
  json_object_set_new(object, "split", split ? json_integer(tensor->declared->split) : json_null());
  return object;
}

void pen_shapes_json(FILE *out, const struct pen_topology *t, const struct pen_partition *p,
                     const struct pen_stage_io *shapes) {
  json_t *root = json_object(), *stages = json_array();
  json_object_set_new(root, "name", json_string(t->name));
  json_object_set_new(root, "family", json_string(p->stages.family->name));
  json_object_set_new(root, "microbatches", json_integer(p->microbatch_count));
  json_object_set_new(root, "stages", stages);
  for (uint32_t stage = 0, next = 0; stage < p->stage_count; stage++) {
    json_t *object = json_object(), *tensors = json_array();
    json_object_set_new(object, "stage", json_integer(stage));
    json_object_set_new(object, "rank", json_integer(p->rank_of[stage]));
    json_object_set_new(object, "first_block",
                        json_string(p->stages.block[p->stages.span[stage].first_block].name));
    json_object_set_new(
        object, "last_block",
        json_string(p->stages.block[p->stages.span[stage].past_last_block - 1].name));
    json_object_set_new(object, "tensors", tensors);
    for (; next < shapes->count && shapes->tensor[next].stage == stage; next++)
      json_array_append_new(tensors, tensor_object(&shapes->tensor[next]));
    json_array_append_new(stages, object);
  }
  json_dumpf(root, out, JSON_INDENT(2));
  fputc('\n', out);
  json_decref(root);
}
