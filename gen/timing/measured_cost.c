/* measured_cost.c: reads --costs FILE.
 *
 * The costs are valid for the same model (by the digest of its weights), the same number of
 * parameters in each stage, and the same shape of a microbatch. Schedule, ranks and the number of
 * microbatches may differ: the file serves to try them. */
#include "gen/model/fused_loss.h"
#include "gen/timing/measured_cost.h"
#include "gen/base/arena.h"
#include "gen/base/error.h"
#include "gen/partition/partition.h"
#include "gen/timing/timing.h"
#include "runtime/plan/plan.h"

#include <stdio.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

/* Fails with `FILE: PLACE: REASON`, as in `FILE: stages[2].forward: is missing`. */
static _Noreturn void fail_at_place(const struct pen_measured *measured, const char *place,
                                    const char *reason) {
  pen_stop(PEN_EXIT_DATA, "%s: %s: %s", measured->path, place, reason);
}

static double measured_number(const struct pen_measured *measured, const char *place,
                              const json_t *value) {
  double number = json_is_number(value) ? json_number_value(value) : -1;
  if (!isfinite(number) || number < 0)
    fail_at_place(measured, place, value ? "must be a number, 0 or more" : "is missing");
  return number;
}

static uint64_t measured_count(const struct pen_measured *measured, const char *place,
                               const json_t *value) {
  json_int_t count = json_is_integer(value) ? json_integer_value(value) : -1;
  if (count < 0)
    fail_at_place(measured, place, value ? "must be a whole number, 0 or more" : "is missing");
  return (uint64_t)count;
}

static uint32_t measured_count32(const struct pen_measured *measured, const char *place,
                                 const json_t *value) {
  uint64_t count = measured_count(measured, place, value);
  if (count > UINT32_MAX) fail_at_place(measured, place, "is too large");
  return (uint32_t)count;
}

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
  if (!good) fail_at_place(measured, "model_digest", "must be 64 hexadecimal digits");
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
  double whole = both ? measured_number(measured, pen_text("stages[%u].backward", stage), both) : 0;
  if (input || weight) {
    cost->backward_input =
        measured_number(measured, pen_text("stages[%u].backward_input", stage), input);
    cost->backward_weight =
        measured_number(measured, pen_text("stages[%u].backward_weight", stage), weight);
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
    fail_at_place(measured, pen_text("stages[%u]", stage),
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
  fail_at_place(measured, pen_text("stages[%u].recomputes", stage),
                pen_text("%s true or false", allowed));
}

static void read_stages(struct pen_measured *measured, const json_t *stages,
                        const struct pen_partition *partition, struct pen_graph *const *graph) {
  if (!json_is_array(stages))
    fail_at_place(measured, "stages", "must be a list with an object for each stage");
  size_t count = json_array_size(stages);
  if (count != partition->stage_count)
    fail_at_place(measured, "stages",
                  pen_text("%zu %s measured, the plan has %u", count, count == 1 ? "was" : "were",
                           partition->stage_count));
  for (uint32_t stage = 0; stage < partition->stage_count; stage++) {
    const json_t *object = json_array_get(stages, stage);
    if (!json_is_object(object))
      fail_at_place(measured, pen_text("stages[%u]", stage), "must be an object");
    if (measured_count32(measured, pen_text("stages[%u].stage", stage),
                         json_object_get(object, "stage")) != stage)
      fail_at_place(measured, pen_text("stages[%u].stage", stage),
                    "stages are listed in order, from 0");
    measured->parameters[stage] = measured_count(measured, pen_text("stages[%u].parameters", stage),
                                                 json_object_get(object, "parameters"));
    measured->cost[stage].forward = measured_number(measured, pen_text("stages[%u].forward", stage),
                                                    json_object_get(object, "forward"));
    measured->cost[stage].send = measured_number(measured, pen_text("stages[%u].send", stage),
                                                 json_object_get(object, "send"));
    const json_t *between = json_object_get(object, "send_host");
    measured->cost[stage].send_host =
        between ? measured_number(measured, pen_text("stages[%u].send_host", stage), between)
                : measured->cost[stage].send;
    read_backward(measured, object, stage, graph[stage]);
    measured->recompute[stage] =
        measured_recompute(measured, stage, json_object_get(object, "recomputes"));
  }
}

static json_t *load_json(const char *path) {
  FILE *file = fopen(path, "r");
  if (!file) pen_stop(PEN_EXIT_NO_INPUT, "penstock-gen: %s: %s", path, strerror(errno));
  json_error_t error;
  json_t *root = json_loadf(file, JSON_REJECT_DUPLICATES, &error);
  if (ferror(file)) pen_stop(PEN_EXIT_NO_INPUT, "penstock-gen: %s: %s", path, strerror(errno));
  fclose(file);
  if (!root) pen_stop(PEN_EXIT_DATA, "%s:%d: %s", path, error.line, error.text);
  return root;
}

struct pen_measured *pen_measured_read(const char *path, const struct pen_partition *partition,
                                       struct pen_graph *const *graph) {
  struct pen_measured *measured = pen_new(1, sizeof *measured);
  json_t *root = load_json(path);
  measured->path = path;
  measured->stage_count = partition->stage_count;
  measured->cost = pen_new(partition->stage_count, sizeof *measured->cost);
  measured->parameters = pen_new(partition->stage_count, sizeof *measured->parameters);
  measured->recompute = pen_new(partition->stage_count, sizeof *measured->recompute);
  if (!json_is_object(root))
    fail_at_place(measured, "the file",
                  "must be an object, as penstock-NAME train --measure writes it");
  const char *unit = json_string_value(json_object_get(root, "unit"));
  if (!unit || strcmp(unit, "ms") != 0) fail_at_place(measured, "unit", "must be \"ms\"");
  read_digest(measured, json_object_get(root, "model_digest"));
  measured->microbatch =
      measured_count32(measured, "microbatch", json_object_get(root, "microbatch"));
  measured->sequence = measured_count32(measured, "sequence", json_object_get(root, "sequence"));
  measured->step = measured_number(measured, "step", json_object_get(root, "step"));
  const json_t *overlap = json_object_get(root, "overlap");
  measured->overlap = overlap ? measured_number(measured, "overlap", overlap) : -1;
  read_stages(measured, json_object_get(root, "stages"), partition, graph);
  json_decref(root);
  return measured;
}

void pen_measured_check(const struct pen_measured *measured, const struct pen_plan *plan) {
  if (memcmp(measured->model_digest, plan->model_digest, PEN_DIGEST_BYTES) != 0)
    fail_at_place(measured, "model_digest", "was measured on another model than the plan's");
  if (measured->microbatch != plan->microbatch || measured->sequence != plan->sequence)
    fail_at_place(
        measured, "microbatch",
        pen_text("%u sequences of %u were measured, the plan has %u of %u", measured->microbatch,
                 measured->sequence, plan->microbatch, plan->sequence));
  uint64_t *parameters = pen_new(measured->stage_count, sizeof *parameters);
  for (uint32_t w = 0; w < plan->weight_count; w++)
    parameters[plan->weights[w].stage] += plan->weights[w].count;
  for (uint32_t stage = 0; stage < measured->stage_count; stage++) {
    if (measured->parameters[stage] != parameters[stage])
      fail_at_place(measured, pen_text("stages[%u].parameters", stage),
                    pen_text("%llu were measured, the plan's stage has %llu",
                             (unsigned long long)measured->parameters[stage],
                             (unsigned long long)parameters[stage]));
    if (plan->profiles[0].kind == PEN_TRAIN &&
        measured->recompute[stage] != plan->profiles[0].stages[stage].recompute)
      fail_at_place(measured, pen_text("stages[%u].recomputes", stage),
                    "memory.recompute was another when this was measured");
  }
}
