/* measured_stages.c: costs measured for the stages of one cut (see measured_stages.h).
 *
 * They are valid for the same model (by the digest of its weights), the same number of parameters
 * in each stage, the same tensor ranks and pieces, and the same shape of a microbatch. Schedule,
 * pipeline ranks and the number of microbatches may differ: the file serves to try them. What
 * tensor ranks exchange is within the costs. */
#include "gen/timing/measured_stages.h"

#include <math.h>
#include <string.h>

#include <jansson.h>

#include "gen/base/arena.h"
#include "gen/model/pieces.h"
#include "gen/model/fused_loss.h"
#include "gen/timing/costs_json.h"

/* One object of "stages"; a time below 0 is not in the file. */
struct measured_stage {
  uint64_t parameters;
  uint8_t recompute; /* enum pen_recompute_kind */
  double forward, send, send_host;
  double input, weight, both; /* of the backward */
};

struct pen_measured_stages {
  const char *path;
  uint8_t model_digest[PEN_DIGEST_BYTES];
  uint32_t microbatch, sequence;
  uint32_t tensor, partials; /* 0: the file does not say */
  struct measured_stage *stage;
  size_t count;
};

/* ---- the file ---- */

static int digit_value(char c) {
  return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static void read_digest(struct pen_measured_stages *file, const json_t *value) {
  const char *text = json_string_value(value);
  bool good = text && strlen(text) == 2 * PEN_DIGEST_BYTES;
  for (size_t i = 0; good && i < PEN_DIGEST_BYTES; i++) {
    int high = digit_value(text[2 * i]), low = digit_value(text[2 * i + 1]);
    good = high >= 0 && low >= 0;
    file->model_digest[i] = (uint8_t)(good ? high * 16 + low : 0);
  }
  if (!good) pen_costs_json_fail(file->path, "model_digest", "must be 64 hexadecimal digits");
}

/* A choice of memory.recompute; files of older versions have true or false: full or none. */
static uint8_t read_recompute(const char *path, size_t stage, const json_t *value) {
  if (json_is_boolean(value)) return json_is_true(value) ? PEN_RECOMPUTE_FULL : PEN_RECOMPUTE_NONE;
  const char *allowed = "must be one of";
  for (int kind = 0; kind < PEN_RECOMPUTE_KINDS; kind++) {
    if (json_is_string(value) && strcmp(json_string_value(value), pen_recompute_text(kind)) == 0)
      return (uint8_t)kind;
    allowed = pen_text("%s \"%s\",", allowed, pen_recompute_text(kind));
  }
  pen_costs_json_fail(path, pen_text("stages[%zu].recomputes", stage),
                      pen_text("%s true or false", allowed));
}

static double read_time(const char *path, size_t stage, const json_t *object, const char *key) {
  return pen_costs_json_time(path, pen_text("stages[%zu].%s", stage, key),
                             json_object_get(object, key));
}

static double read_time_if_any(const char *path, size_t stage, const json_t *object,
                               const char *key) {
  return json_object_get(object, key) ? read_time(path, stage, object, key) : -1;
}

/* Needs the whole backward, or its parts. */
static void read_backward(const char *path, size_t stage, const json_t *object,
                          struct measured_stage *read) {
  read->both = read_time_if_any(path, stage, object, "backward");
  read->input = read->weight = -1;
  if (json_object_get(object, "backward_input") || json_object_get(object, "backward_weight")) {
    read->input = read_time(path, stage, object, "backward_input");
    read->weight = read_time(path, stage, object, "backward_weight");
  } else if (read->both < 0) {
    pen_costs_json_fail(path, pen_text("stages[%zu]", stage),
                        "needs backward, or backward_input and backward_weight");
  }
}

static uint32_t read_setting_if_any(const char *path, const json_t *root, const char *key,
                                    const char *setting) {
  const json_t *value = json_object_get(root, key);
  return value ? pen_costs_json_setting(path, key, value, setting) : 0;
}

static struct measured_stage read_stage(const char *path, size_t stage, const json_t *object) {
  if (!json_is_object(object))
    pen_costs_json_fail(path, pen_text("stages[%zu]", stage), "must be an object");
  if (pen_costs_json_count(path, pen_text("stages[%zu].stage", stage),
                           json_object_get(object, "stage"), 0, UINT32_MAX) != stage)
    pen_costs_json_fail(path, pen_text("stages[%zu].stage", stage),
                        "stages are listed in order, from 0");
  struct measured_stage read = {
      .parameters = pen_costs_json_count(path, pen_text("stages[%zu].parameters", stage),
                                         json_object_get(object, "parameters"), 0,
                                         PEN_COSTS_PARAMETERS_MOST)};
  read.forward = read_time(path, stage, object, "forward");
  read.send = read_time(path, stage, object, "send");
  read.send_host = read_time_if_any(path, stage, object, "send_host");
  if (read.send_host < 0) read.send_host = read.send;
  read_backward(path, stage, object, &read);
  read.recompute = read_recompute(path, stage, json_object_get(object, "recomputes"));
  return read;
}

struct pen_measured_stages *pen_measured_stages_read(const char *path, const json_t *root) {
  struct pen_measured_stages *file = pen_new(1, sizeof *file);
  const char *unit = json_string_value(json_object_get(root, "unit"));
  const json_t *stages = json_object_get(root, "stages");
  file->path = path;
  if (!unit || strcmp(unit, "ms") != 0) pen_costs_json_fail(path, "unit", "must be \"ms\"");
  read_digest(file, json_object_get(root, "model_digest"));
  file->microbatch = pen_costs_json_setting(path, "microbatch", json_object_get(root, "microbatch"),
                                            "batch.microbatch");
  file->sequence =
      pen_costs_json_setting(path, "sequence", json_object_get(root, "sequence"), "model.sequence");
  file->tensor = read_setting_if_any(path, root, "tensor", "tensor_parallel.ranks");
  file->partials = read_setting_if_any(path, root, "partials", "tensor_parallel.partials");
  pen_costs_json_time(path, "step", json_object_get(root, "step"));
  if (!json_is_array(stages))
    pen_costs_json_fail(path, "stages", "must be a list with an object for each stage");
  file->count = json_array_size(stages);
  file->stage = pen_new(file->count + 1, sizeof *file->stage);
  for (size_t s = 0; s < file->count; s++)
    file->stage[s] = read_stage(path, s, json_array_get(stages, s));
  return file;
}

/* ---- costs ---- */

/* The costs of I and W as measured, or that of B divided by flops. The cost of what I and W both do
 * is by flops too, unless all three were measured. */
static void divide_backward(const struct measured_stage *stage, const struct pen_graph *graph,
                            struct pen_stage_cost *cost) {
  const double of_input = pen_program_flops(&graph->program[PEN_PROGRAM_I]),
               of_weight = pen_program_flops(&graph->program[PEN_PROGRAM_W]),
               of_both = pen_shared_flops(graph), whole = stage->both;
  if (stage->input >= 0) {
    cost->backward_input = stage->input;
    cost->backward_weight = stage->weight;
    if (of_both > 0)
      cost->shared = whole >= 0 ? fmin(fmax(0, stage->input + stage->weight - whole), stage->weight)
                                : stage->weight * of_both / of_weight;
    return;
  }
  const double of_whole = of_input + of_weight - of_both;
  cost->backward_weight = of_whole > 0 ? whole * of_weight / of_whole : 0;
  cost->shared = of_whole > 0 ? whole * of_both / of_whole : 0;
  cost->backward_input = whole - cost->backward_weight + cost->shared;
}

struct pen_stage_cost pen_measured_stages_cost(const struct pen_measured_stages *file,
                                               const struct pen_graph *graph) {
  if (file->count != graph->stage_count)
    pen_costs_json_fail(file->path, "stages",
                        pen_text("%zu %s measured, the plan has %u", file->count,
                                 file->count == 1 ? "was" : "were", graph->stage_count));
  const struct measured_stage *stage = &file->stage[graph->stage];
  struct pen_stage_cost cost = {
      .forward = stage->forward, .send = stage->send, .send_host = stage->send_host};
  divide_backward(stage, graph, &cost);
  return cost;
}

/* ---- what they were measured for ---- */

/* The trained and frozen elements of a stage. */
static uint64_t parameters_of(const struct pen_graph *graph) {
  uint64_t count = 0;
  for (uint32_t w = 0; w < graph->weight_count; w++)
    if (pen_graph_has_weight(graph, w) && !pen_is_tied_head(graph, w))
      count += graph->weight[w].count;
  return count;
}

struct pen_measured_difference pen_measured_stages_difference(
    const struct pen_measured_stages *file, const struct pen_topology *t,
    struct pen_graph *const *graph) {
  if (file->microbatch != t->batch_microbatch || file->sequence != t->sequence)
    return (struct pen_measured_difference){
        "microbatch",
        pen_text("%u sequences of %u were measured, the plan has %lld of %lld", file->microbatch,
                 file->sequence, (long long)t->batch_microbatch, (long long)t->sequence)};
  if ((file->tensor && file->tensor != t->tensor_parallel_ranks) ||
      (file->partials && file->partials != t->tensor_parallel_partials))
    return (struct pen_measured_difference){
        "tensor", pen_text("%u tensor ranks with %u pieces were measured, the plan has %lld with "
                           "%lld",
                           file->tensor, file->partials, (long long)t->tensor_parallel_ranks,
                           (long long)t->tensor_parallel_partials)};
  for (size_t s = 0; s < file->count; s++) {
    const uint64_t parameters = parameters_of(graph[s]);
    if (file->stage[s].parameters != parameters)
      return (struct pen_measured_difference){
          pen_text("stages[%zu].parameters", s),
          pen_text("%llu were measured, the plan's stage has %llu",
                   (unsigned long long)file->stage[s].parameters, (unsigned long long)parameters)};
    if (t->trains && file->stage[s].recompute != graph[s]->recompute)
      return (struct pen_measured_difference){
          pen_text("stages[%zu].recomputes", s),
          "memory.recompute was another when this was measured"};
  }
  return (struct pen_measured_difference){NULL, NULL};
}

void pen_measured_stages_check(const struct pen_measured_stages *file,
                               const struct pen_topology *topology, struct pen_graph *const *graph,
                               const struct pen_plan *plan) {
  if (memcmp(file->model_digest, plan->model_digest, PEN_DIGEST_BYTES) != 0)
    pen_costs_json_fail(file->path, "model_digest",
                        "was measured on another model than the plan's");
  const struct pen_measured_difference difference =
      pen_measured_stages_difference(file, topology, graph);
  if (difference.place) pen_costs_json_fail(file->path, difference.place, difference.reason);
}
