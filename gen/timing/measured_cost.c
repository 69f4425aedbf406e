/* measured_cost.c: reads --costs FILE; files of version 2 by measured_blocks.c.
 *
 * The costs of version 1 are valid for the same model (by the digest of its weights), the same
 * number of parameters in each stage, and the same shape of a microbatch. Schedule, ranks and the
 * number of microbatches may differ: the file serves to try them. */
#include "gen/model/fused_loss.h"
#include "gen/timing/measured_cost.h"
#include "gen/base/arena.h"
#include "gen/base/error.h"
#include "gen/partition/partition.h"
#include "gen/timing/costs_json.h"
#include "gen/timing/measured_blocks.h"
#include "gen/timing/timing.h"
#include "runtime/plan/plan.h"

#include <stdio.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

static int digit_value(char c) {
  return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static void read_digest(struct pen_measured *measured, const json_t *value) {
  const char *text = json_string_value(value);
  bool good = text && strlen(text) == 2 * PEN_DIGEST_BYTES;
  for (size_t i = 0; good && i < PEN_DIGEST_BYTES; i++) {
    int high = digit_value(text[2 * i]), low = digit_value(text[2 * i + 1]);
    good = high >= 0 && low >= 0;
    measured->model_digest[i] = (uint8_t)(good ? high * 16 + low : 0);
  }
  if (!good) pen_costs_json_fail(measured->path, "model_digest", "must be 64 hexadecimal digits");
}

/* The costs of I and W as measured, or that of B divided by flops. The cost of what I and W both do
 * is by flops too, unless all three were measured. */
static void read_backward(struct pen_measured *measured, const json_t *object, uint32_t stage,
                          const struct pen_graph *graph) {
  struct pen_stage_cost *cost = &measured->cost[stage];
  const json_t *both = json_object_get(object, "backward"),
               *input = json_object_get(object, "backward_input");
  const json_t *weight = json_object_get(object, "backward_weight");
  double of_input = pen_program_flops(&graph->program[PEN_PROGRAM_I]),
         of_weight = pen_program_flops(&graph->program[PEN_PROGRAM_W]);
  double of_both = pen_shared_flops(graph);
  double whole =
      both ? pen_costs_json_number(measured->path, pen_text("stages[%u].backward", stage), both)
           : 0;
  if (input || weight) {
    cost->backward_input =
        pen_costs_json_number(measured->path, pen_text("stages[%u].backward_input", stage), input);
    cost->backward_weight = pen_costs_json_number(
        measured->path, pen_text("stages[%u].backward_weight", stage), weight);
    if (of_both > 0 && both) {
      cost->shared = fmin(fmax(0, cost->backward_input + cost->backward_weight - whole),
                          cost->backward_weight);
    } else if (of_both > 0) {
      cost->shared = cost->backward_weight * of_both / of_weight;
    }
  } else if (both) {
    double of_whole = of_input + of_weight - of_both;
    cost->backward_weight = of_whole > 0 ? whole * of_weight / of_whole : 0;
    cost->shared = of_whole > 0 ? whole * of_both / of_whole : 0;
    cost->backward_input = whole - cost->backward_weight + cost->shared;
  } else {
    pen_costs_json_fail(measured->path, pen_text("stages[%u]", stage),
                        "needs backward, or backward_input and backward_weight");
  }
}

/* A choice of memory.recompute; files of older versions have true or false: full or none. */
static uint8_t measured_recompute(const struct pen_measured *measured, uint32_t stage,
                                  const json_t *value) {
  if (json_is_boolean(value)) return json_is_true(value) ? PEN_RECOMPUTE_FULL : PEN_RECOMPUTE_NONE;
  const char *allowed = "must be one of";
  for (int kind = 0; kind < PEN_RECOMPUTE_KINDS; kind++) {
    if (json_is_string(value) && strcmp(json_string_value(value), pen_recompute_text(kind)) == 0)
      return (uint8_t)kind;
    allowed = pen_text("%s \"%s\",", allowed, pen_recompute_text(kind));
  }
  pen_costs_json_fail(measured->path, pen_text("stages[%u].recomputes", stage),
                      pen_text("%s true or false", allowed));
}

static void read_stages(struct pen_measured *measured, const json_t *stages,
                        const struct pen_partition *partition, struct pen_graph *const *graph) {
  if (!json_is_array(stages))
    pen_costs_json_fail(measured->path, "stages", "must be a list with an object for each stage");
  size_t count = json_array_size(stages);
  if (count != partition->stage_count)
    pen_costs_json_fail(measured->path, "stages",
                        pen_text("%zu %s measured, the plan has %u", count,
                                 count == 1 ? "was" : "were", partition->stage_count));
  for (uint32_t stage = 0; stage < partition->stage_count; stage++) {
    const json_t *object = json_array_get(stages, stage);
    if (!json_is_object(object))
      pen_costs_json_fail(measured->path, pen_text("stages[%u]", stage), "must be an object");
    if (pen_costs_json_count32(measured->path, pen_text("stages[%u].stage", stage),
                               json_object_get(object, "stage")) != stage)
      pen_costs_json_fail(measured->path, pen_text("stages[%u].stage", stage),
                          "stages are listed in order, from 0");
    measured->parameters[stage] =
        pen_costs_json_count(measured->path, pen_text("stages[%u].parameters", stage),
                             json_object_get(object, "parameters"));
    measured->cost[stage].forward = pen_costs_json_number(
        measured->path, pen_text("stages[%u].forward", stage), json_object_get(object, "forward"));
    measured->cost[stage].send = pen_costs_json_number(
        measured->path, pen_text("stages[%u].send", stage), json_object_get(object, "send"));
    const json_t *between = json_object_get(object, "send_host");
    measured->cost[stage].send_host =
        between ? pen_costs_json_number(measured->path, pen_text("stages[%u].send_host", stage),
                                        between)
                : measured->cost[stage].send;
    read_backward(measured, object, stage, graph[stage]);
    measured->recompute[stage] =
        measured_recompute(measured, stage, json_object_get(object, "recomputes"));
  }
}

/* Version 1: what `train --measure` writes, for the stages of one cut. */
static void read_version_1(struct pen_measured *measured, const json_t *root,
                           const struct pen_partition *partition, struct pen_graph *const *graph) {
  const char *unit = json_string_value(json_object_get(root, "unit"));
  if (!unit || strcmp(unit, "ms") != 0)
    pen_costs_json_fail(measured->path, "unit", "must be \"ms\"");
  read_digest(measured, json_object_get(root, "model_digest"));
  measured->microbatch =
      pen_costs_json_count32(measured->path, "microbatch", json_object_get(root, "microbatch"));
  measured->sequence =
      pen_costs_json_count32(measured->path, "sequence", json_object_get(root, "sequence"));
  measured->step = pen_costs_json_number(measured->path, "step", json_object_get(root, "step"));
  read_stages(measured, json_object_get(root, "stages"), partition, graph);
}

struct pen_measured *pen_measured_read(const char *path, const struct pen_partition *partition,
                                       struct pen_graph *const *graph) {
  struct pen_measured *measured = pen_new(1, sizeof *measured);
  json_t *root = pen_costs_json_load(path);
  measured->path = path;
  measured->stage_count = partition->stage_count;
  measured->cost = pen_new(partition->stage_count, sizeof *measured->cost);
  measured->parameters = pen_new(partition->stage_count, sizeof *measured->parameters);
  measured->recompute = pen_new(partition->stage_count, sizeof *measured->recompute);
  if (!json_is_object(root))
    pen_costs_json_fail(path, "the file",
                        "must be an object, as penstock-NAME train --measure writes it");
  const json_t *version = json_object_get(root, "version"),
               *overlap = json_object_get(root, "overlap");
  measured->version = version ? pen_costs_json_count32(path, "version", version) : 1;
  measured->overlap = overlap ? pen_costs_json_number(path, "overlap", overlap) : -1;
  if (measured->version == 1)
    read_version_1(measured, root, partition, graph);
  else if (measured->version == 2)
    pen_measured_blocks_read(measured, root, partition, graph);
  else
    pen_costs_json_fail(path, "version", "must be 1 or 2");
  json_decref(root);
  return measured;
}

void pen_measured_check(const struct pen_measured *measured, const struct pen_plan *plan) {
  if (measured->version != 1) return; /* its blocks were checked when they were read */
  if (memcmp(measured->model_digest, plan->model_digest, PEN_DIGEST_BYTES) != 0)
    pen_costs_json_fail(measured->path, "model_digest",
                        "was measured on another model than the plan's");
  if (measured->microbatch != plan->microbatch || measured->sequence != plan->sequence)
    pen_costs_json_fail(
        measured->path, "microbatch",
        pen_text("%u sequences of %u were measured, the plan has %u of %u", measured->microbatch,
                 measured->sequence, plan->microbatch, plan->sequence));
  uint64_t *parameters = pen_new(measured->stage_count, sizeof *parameters);
  for (uint32_t w = 0; w < plan->weight_count; w++)
    if (pen_first_member(plan, &plan->weights[w]) == 0)
      parameters[plan->weights[w].stage] += plan->weights[w].count;
  for (uint32_t stage = 0; stage < measured->stage_count; stage++) {
    if (measured->parameters[stage] != parameters[stage])
      pen_costs_json_fail(measured->path, pen_text("stages[%u].parameters", stage),
                          pen_text("%llu were measured, the plan's stage has %llu",
                                   (unsigned long long)measured->parameters[stage],
                                   (unsigned long long)parameters[stage]));
    if (plan->profiles[0].kind == PEN_TRAIN &&
        measured->recompute[stage] != plan->profiles[0].stages[stage].recompute)
      pen_costs_json_fail(measured->path, pen_text("stages[%u].recomputes", stage),
                          "memory.recompute was another when this was measured");
  }
}
