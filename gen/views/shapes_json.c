/* shapes_json.c: --print=shapes: the named tensors at the input and output of every stage, as JSON.
 */
#include <stdio.h>

#include "gen/views/shapes_json.h"
#include "base/json_members.h"
#include "gen/model/op_signature.h"
#include "gen/partition/partition.h"
#include "gen/topology/topology.h"

static json_t *extents_json(const uint64_t *extent, uint32_t count) {
  json_t *list = json_array();
  for (uint32_t i = 0; i < count; i++) json_array_append_new(list, pen_json_integer(extent[i]));
  return list;
}

/* "data", "start", or the number of a stage. */
static json_t *endpoint_of(int64_t end) {
  if (end >= 0) return json_integer(end);
  return json_string(end == PEN_FROM_DATA ? "data" : "start");
}

static json_t *tensor_object(const struct pen_stage_tensor *tensor) {
  const struct pen_shape *shape = &tensor->shape;
  const bool split = tensor->declared->split != PEN_REPLICATED;
  return PEN_JSON({"tensor", json_string(tensor->name)}, {"from", endpoint_of(tensor->from)},
                  {"to", endpoint_of(tensor->to)},
                  {"dtype", json_string(pen_dtype_text(shape->dtype))},
                  {"shape", extents_json(shape->extent, shape->extent_count)},
                  {"bytes", pen_json_integer(shape->bytes)},
                  {"step_shape", extents_json(shape->whole, shape->extent_count)},
                  {"split", split ? json_integer(tensor->declared->split) : json_null()});
}

void pen_shapes_json(FILE *out, const struct pen_topology *t, const struct pen_partition *p,
                     const struct pen_stage_io *shapes) {
  const struct pen_model_block *block = p->stages.block;
  json_t *stages = json_array();
  for (uint32_t stage = 0, next = 0; stage < p->stage_count; stage++) {
    const struct pen_span *span = &p->stages.span[stage];
    json_t *tensors = json_array();
    for (; next < shapes->count && shapes->tensor[next].stage == stage; next++)
      json_array_append_new(tensors, tensor_object(&shapes->tensor[next]));
    PEN_JSON_APPEND(
        stages, {"stage", json_integer(stage)}, {"rank", json_integer(p->rank_of[stage])},
        {"first_block", json_string(block[span->first_block].name)},
        {"last_block", json_string(block[span->past_last_block - 1].name)}, {"tensors", tensors});
  }
  json_t *root =
      PEN_JSON({"name", json_string(t->name)}, {"family", json_string(p->stages.family->name)},
               {"microbatches", json_integer(p->microbatch_count)}, {"stages", stages});
  json_dumpf(root, out, JSON_INDENT(2));
  fputc('\n', out);
  json_decref(root);
}
