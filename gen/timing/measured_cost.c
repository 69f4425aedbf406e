/* measured_cost.c: reads the file of --costs, and with measured_links.c what it says of links. */
#include "gen/timing/measured_cost.h"

#include <stdlib.h>
#include <string.h>

#include <jansson.h>
#include <math.h>

#include "base/input_file.h"
#include "gen/base/arena.h"
#include "gen/base/error.h"
#include "gen/model/blocks.h"
#include "gen/model/recompute.h"
#include "gen/model/units.h"
#include "gen/timing/cost.h"
#include "gen/timing/costs_json.h"

static const char *read_text(const char *path, const json_t *root, const char *key) {
  const char *text = json_string_value(json_object_get(root, key));
  if (!text) pen_costs_json_fail(path, key, "must be a string");
  return pen_text("%s", text);
}

/* The line on which the file has a key at first. */
static unsigned line_of(const char *path, const char *key) {
  struct pen_input_error refused;
  size_t bytes;
  char *text = pen_input_read(path, PEN_INPUT_TABLE, &bytes, &refused);
  const char *found = text ? strstr(text, pen_text("\"%s\"", key)) : NULL;
  unsigned line = 1;
  for (const char *at = text; found && at < found; at++) line += *at == '\n';
  free(text);
  return line;
}

/* `version`: NULL in a file that has none. */
static void check_version(const char *path, const json_t *version, bool has_stages) {
  const char *key = version ? "version" : "stages";
  const uint64_t number =
      version || !has_stages ? pen_costs_json_count(path, "version", version, 0, UINT32_MAX) : 1;
  if (number == 1)
    pen_stop(PEN_EXIT_TOPOLOGY,
             "%s:%u: %s: costs of version 1 (of the stages of one plan, by train --measure) are no "
             "longer read; measure those of blocks, for any plan: 'penstock-NAME measure --output "
             "FILE', by a binary that make or 'penstock-gen --blocks' built, then 'penstock-gen "
             "--costs=FILE'",
             path, line_of(path, key), key);
  if (number != 2) pen_costs_json_fail(path, "version", "must be 2");
}

static void read_costs(struct pen_measured *measured, const json_t *root) {
  const char *path = measured->path;
  measured->device = read_text(path, root, "device");
  measured->dtype = read_text(path, root, "dtype");
  measured->sequence =
      pen_costs_json_setting(path, "sequence", json_object_get(root, "sequence"), "model.sequence");
  measured->blocks = pen_measured_blocks_read(path, json_object_get(root, "blocks"));
  measured->links = pen_measured_links_read(path, json_object_get(root, "messages"),
                                            json_object_get(root, "collectives"));
  const json_t *optimizer = json_object_get(root, "optimizer"),
               *norm = json_object_get(optimizer, "norm_ms_per_element"),
               *peak = json_object_get(root, "peak_tflops");
  measured->update_element = pen_costs_json_time(path, "optimizer.ms_per_element",
                                                 json_object_get(optimizer, "ms_per_element"));
  measured->norm_element =
      norm ? pen_costs_json_time(path, "optimizer.norm_ms_per_element", norm) : 0;
  measured->peak_tflops =
      peak ? pen_costs_json_real(path, "peak_tflops", peak, "cluster.peak_tflops") : 0;
}

struct pen_measured *pen_measured_read(const char *path) {
  struct pen_measured *measured = pen_new(1, sizeof *measured);
  json_t *root = pen_costs_json_load(path);
  measured->path = path;
  if (!json_is_object(root))
    pen_costs_json_fail(path, "the file", "must be an object, as penstock-NAME measure writes it");
  check_version(path, json_object_get(root, "version"), json_object_get(root, "stages") != NULL);
  const json_t *overlap = json_object_get(root, "overlap");
  measured->overlap = overlap ? pen_costs_json_time(path, "overlap", overlap) : -1;
  read_costs(measured, root);
  json_decref(root);
  return measured;
}

static void check_text(const struct pen_measured *measured, const char *key, const char *text,
                       const char *wanted) {
  if (strcmp(text, wanted) != 0)
    pen_costs_json_fail(measured->path, key,
                        pen_text("%s was measured, the topology has %s", text, wanted));
}

void pen_measured_check(const struct pen_measured *measured, const struct pen_topology *t) {
  check_text(measured, "device", measured->device, pen_device_row(t->cluster_device)->text);
  check_text(measured, "dtype", measured->dtype, pen_dtype_text((int)t->model_dtype));
  if (measured->sequence != (uint64_t)t->sequence)
    pen_costs_json_fail(
        measured->path, "sequence",
        pen_text("another was measured than model.sequence = %lld", (long long)t->sequence));
}

/* ---- the costs of stages from those of blocks ----
 *
 * An action costs the sum over the blocks of its stage, of a tensor rank without its exchanges. The
 * file has one block of each kind, with the name that it has in a model of a few layers: the first
 * block of that kind. B costs what was measured for it, so that I and W have in common what they
 * take longer than B.
 *
 * A stage that recomputes runs all of F again, segment by segment, except what the last block of a
 * segment does not need for its own backward: of that block the time of recomputation was measured.
 * With "attention" the time is that of F in proportion to flops. */

/* One row of "blocks". */
struct measured_block {
  const char *name;
  uint32_t microbatch, tensor;
  uint32_t partials;   /* 0: the file does not say */
  uint64_t parameters; /* of a tensor rank; UINT64_MAX: the file does not say */
  bool doubled;        /* of experts, with twice their balanced rows */
  double forward, backward_input, backward_weight, backward, recompute;
};

struct pen_measured_blocks {
  const char *path;
  struct measured_block *block;
  size_t count;
};

/* ---- the file ---- */

static double block_time(const struct pen_measured_blocks *file, const json_t *object, size_t index,
                         const char *key) {
  return pen_costs_json_time(file->path, pen_text("blocks[%zu].%s", index, key),
                             json_object_get(object, key));
}

static bool read_routes(const struct pen_measured_blocks *file, const json_t *object,
                        size_t index) {
  const json_t *routes = json_object_get(object, "routes");
  const char *text = json_string_value(routes);
  const bool doubled = text && strcmp(text, "doubled") == 0;
  if (routes && !doubled && (!text || strcmp(text, "balanced") != 0))
    pen_costs_json_fail(file->path, pen_text("blocks[%zu].routes", index),
                        "must be \"balanced\" or \"doubled\"");
  return doubled;
}

static struct measured_block read_block(const struct pen_measured_blocks *file,
                                        const json_t *object, size_t index) {
  const char *name = json_string_value(json_object_get(object, "block"));
  const json_t *tensor = json_object_get(object, "tensor"),
               *partials = json_object_get(object, "partials"),
               *parameters = json_object_get(object, "parameters");
  if (!json_is_object(object))
    pen_costs_json_fail(file->path, pen_text("blocks[%zu]", index), "must be an object");
  if (!name)
    pen_costs_json_fail(file->path, pen_text("blocks[%zu].block", index), "must be a string");
  return (struct measured_block){
      .name = pen_text("%s", name),
      .microbatch =
          pen_costs_json_setting(file->path, pen_text("blocks[%zu].microbatch", index),
                                 json_object_get(object, "microbatch"), "batch.microbatch"),
      .tensor = tensor ? pen_costs_json_setting(file->path, pen_text("blocks[%zu].tensor", index),
                                                tensor, "tensor_parallel.ranks")
                       : 1,
      .partials = partials
                      ? pen_costs_json_setting(file->path, pen_text("blocks[%zu].partials", index),
                                               partials, "tensor_parallel.splits")
                      : 0,
      .parameters =
          parameters ? pen_costs_json_count(file->path, pen_text("blocks[%zu].parameters", index),
                                            parameters, 0, PEN_COSTS_PARAMETERS_MOST)
                     : UINT64_MAX,
      .doubled = read_routes(file, object, index),
      .forward = block_time(file, object, index, "forward"),
      .backward_input = block_time(file, object, index, "backward_input"),
      .backward_weight = block_time(file, object, index, "backward_weight"),
      .backward = block_time(file, object, index, "backward"),
      .recompute = block_time(file, object, index, "recompute"),
  };
}

struct pen_measured_blocks *pen_measured_blocks_read(const char *path, const json_t *blocks) {
  struct pen_measured_blocks *file = pen_new(1, sizeof *file);
  file->path = path;
  if (!json_is_array(blocks))
    pen_costs_json_fail(path, "blocks", "must be a list with an object for each block");
  file->count = json_array_size(blocks);
  file->block = pen_new(file->count + 1, sizeof *file->block);
  for (size_t i = 0; i < file->count; i++)
    file->block[i] = read_block(file, json_array_get(blocks, i), i);
  return file;
}

/* ---- blocks ---- */

/* The name in the file of a block of the model: that of the first block of its kind. */
static const char *measured_name(const struct pen_stages *stages, uint32_t block) {
  uint32_t first = 0;
  while (stages->block[first].kind != stages->block[block].kind) first++;
  return stages->block[first].name;
}

static uint64_t parameters_of(const struct pen_graph *graph, uint32_t block) {
  uint64_t count = 0;
  bool *seen = pen_new(graph->weight_count + 1, sizeof *seen);
  for (size_t v = 0; v < graph->value_count; v++) {
    const struct pen_value *value = &graph->value[v];
    if (value->role != PEN_ROLE_WEIGHT || value->block != block ||
        pen_is_tied_head(graph, value->weight) || seen[value->weight])
      continue;
    seen[value->weight] = true;
    if (pen_is_of_model(&graph->weight[value->weight])) count += graph->weight[value->weight].count;
  }
  pen_free(seen);
  return count;
}

/* The times of other numbers of tensor ranks, or of splits, say nothing of the topology's. */
static bool is_with(const struct measured_block *block, int64_t tensor_ranks, int64_t splits) {
  return block->tensor == tensor_ranks && (block->partials == 0 || block->partials == splits);
}

static bool is_of(const struct measured_block *block, const struct pen_topology *t,
                  const char *name) {
  return strcmp(block->name, name) == 0 &&
         is_with(block, t->tensor_parallel_ranks, t->tensor_parallel_splits);
}

bool pen_measured_blocks_have(const struct pen_measured_blocks *file, int64_t tensor_ranks,
                              int64_t splits) {
  for (size_t i = 0; i < file->count; i++)
    if (is_with(&file->block[i], tensor_ranks, splits)) return true;
  return false;
}

/* ", but with tensor_parallel.ranks = 1 and splits = 2": the first row of that block; or "". */
static const char *measured_with(const struct pen_measured_blocks *file, const char *name) {
  for (size_t i = 0; i < file->count; i++) {
    const struct measured_block *block = &file->block[i];
    if (!strcmp(block->name, name))
      return pen_text(", but with tensor_parallel.ranks = %u%s", block->tensor,
                      block->partials ? pen_text(" and splits = %u", block->partials) : "");
  }
  return "";
}

static _Noreturn void fail_microbatch(const struct pen_measured_blocks *file,
                                      const struct pen_topology *t, const char *name) {
  const char *sizes = "";
  for (size_t i = 0; i < file->count; i++)
    if (is_of(&file->block[i], t, name))
      sizes = pen_text("%s%s%u", sizes, *sizes ? ", " : "", file->block[i].microbatch);
  const char *other =
      t->tensor_parallel_splits > 1
          ? pen_text(" with tensor_parallel.ranks = %lld and splits = %lld",
                     (long long)t->tensor_parallel_ranks, (long long)t->tensor_parallel_splits)
          : "";
  pen_costs_json_fail(
      file->path, "blocks",
      *sizes ? pen_text("%s was measured%s with microbatches of %s, the topology has %lld", name,
                        other, sizes, (long long)t->batch_microbatch)
             : pen_text("%s was not measured%s%s", name, other, measured_with(file, name)));
}

/* With doubled rows NULL where the file does not have them. */
static const struct measured_block *find_routed(const struct pen_measured_blocks *file,
                                                const struct pen_graph *graph, uint32_t block,
                                                bool doubled) {
  const char *name = measured_name(graph->stages, block);
  for (size_t i = 0; i < file->count; i++) {
    const struct measured_block *found = &file->block[i];
    if (!is_of(found, graph->topology, name) || found->doubled != doubled ||
        found->microbatch != graph->topology->batch_microbatch)
      continue;
    const uint64_t parameters = parameters_of(graph, block);
    if (found->parameters != UINT64_MAX && found->parameters != parameters)
      pen_costs_json_fail(
          file->path, pen_text("blocks[%zu].parameters", i),
          pen_text("%llu were measured, the topology's %s has %llu",
                   (unsigned long long)found->parameters, name, (unsigned long long)parameters));
    return found;
  }
  if (!doubled) fail_microbatch(file, graph->topology, name);
  return NULL;
}

static const struct measured_block *find_block(const struct pen_measured_blocks *file,
                                               const struct pen_graph *graph, uint32_t block) {
  return find_routed(file, graph, block, false);
}

/* What the backward of a stage runs again: of each segment all blocks but the last, whose own time
 * was measured; `doubled`: with doubled rows where the file has them. */
static double recomputed_time(const struct pen_measured_blocks *file, const struct pen_graph *graph,
                              double forward, bool doubled) {
  const struct pen_span *span = &graph->stages->span[graph->stage];
  const double flops = pen_program_flops(&graph->program[PEN_PROGRAM_F]);
  double time = 0;
  if (graph->recompute == PEN_RECOMPUTE_NONE) return 0;
  if (graph->recompute == PEN_RECOMPUTE_ATTENTION)
    return flops > 0 ? forward * pen_recomputed_flops(graph) / flops : 0;
  for (uint32_t b = span->first_block; b < span->past_last_block; b++) {
    const struct measured_block *block = doubled ? find_routed(file, graph, b, true) : NULL;
    if (!block) block = find_block(file, graph, b);
    bool last = b + 1 == span->past_last_block ||
                (graph->recompute == PEN_RECOMPUTE_LAYER &&
                 !pen_same_unit(&graph->stages->block[b], &graph->stages->block[b + 1]));
    time += last ? block->recompute : block->forward;
  }
  return time;
}

/* What the time of experts grows by with twice their rows, in F, I and W: as measured, or that part
 * of the time of a program which their flops are of its flops. */
static void find_doubling(const struct pen_measured_blocks *file, const struct pen_graph *graph,
                          const struct pen_stage_cost *cost, double more[PEN_PROGRAM_W + 1]) {
  const struct pen_span *span = &graph->stages->span[graph->stage];
  const double value[] = {cost->forward, cost->backward_input, cost->backward_weight};
  bool measured = false;
  for (uint32_t b = span->first_block; b < span->past_last_block; b++) {
    const struct measured_block *block = find_block(file, graph, b),
                                *doubled = find_routed(file, graph, b, true);
    if (!doubled) continue;
    more[PEN_PROGRAM_F] += fmax(0, doubled->forward - block->forward);
    more[PEN_PROGRAM_I] += fmax(0, doubled->backward_input - block->backward_input);
    more[PEN_PROGRAM_W] += fmax(0, doubled->backward_weight - block->backward_weight);
    measured = true;
  }
  if (measured)
    more[PEN_PROGRAM_I] +=
        fmax(0, recomputed_time(file, graph, 0, true) - recomputed_time(file, graph, 0, false));
  for (int p = 0; p <= PEN_PROGRAM_W && !measured; p++) {
    const double flops = pen_program_flops(&graph->program[p]);
    if (flops > 0) more[p] = value[p] * pen_expert_flops(&graph->program[p]) / flops;
  }
}

static void add_imbalance(const struct pen_measured_blocks *file, const struct pen_graph *graph,
                          struct pen_stage_cost *cost) {
  double *const value[] = {&cost->forward, &cost->backward_input, &cost->backward_weight},
                more[PEN_PROGRAM_W + 1] = {0};
  find_doubling(file, graph, cost, more);
  for (int p = 0; p <= PEN_PROGRAM_W; p++) {
    cost->routed[p] = pen_imbalance(graph->topology) * more[p];
    *value[p] += cost->routed[p];
  }
}

struct pen_stage_cost pen_measured_blocks_cost(const struct pen_measured_blocks *file,
                                               const struct pen_graph *graph) {
  const struct pen_span *span = &graph->stages->span[graph->stage];
  struct pen_stage_cost cost = {0};
  double backward = 0;
  for (uint32_t b = span->first_block; b < span->past_last_block; b++) {
    const struct measured_block *block = find_block(file, graph, b);
    cost.forward += block->forward;
    cost.backward_input += block->backward_input;
    cost.backward_weight += block->backward_weight;
    backward += block->backward;
  }
  cost.shared =
      fmin(fmax(0, cost.backward_input + cost.backward_weight - backward), cost.backward_weight);
  cost.backward_input += recomputed_time(file, graph, cost.forward, false);
  add_imbalance(file, graph, &cost);
  return cost;
}
