/* report_json.c: --print=report: the plan in figures, as JSON (docs/contracts.md section 10 fixes
 * its fields; there are more).
 *
 * Only counts are computed here: times are those of the simulated training step, or of eval where
 * nothing trains, in the unit of the costs; bytes, slots and credits are the plan's.
 *
 *   makespan, span, work, bubble   bubble = (span - work) / span; see struct pen_timing
 *   idle                           1 - mean busy time of the ranks / makespan
 *   step                           with --costs: with norm and optimizer (step_time.c)
 *   utilisation                    the work of F, I and W, each computed once at speed 1, divided
 *                                  by makespan x the sum of cluster.speed
 *   lower_bound, gap, bounds       lower bounds for any order of these actions, by argument
 *                                  (lower_bound.c)
 *   exchange, search               only with replicas, or after a search
 *   tensor_ranks                   of each pipeline rank: tensor_parallel.ranks
 *   robustness                     only with --robustness (robustness.c)
 *   critical_path                  the chain of actions that fills the makespan (critical_path.c),
 *                                  in legs of one rank
 *   stages                         what each holds, on which rank, and what F, I and W cost there
 *   pairs                          bytes of the messages that one rank sends to another in a step:
 *                                  activations, their gradients, and the gradient and value of a
 *                                  tied weight; not credits, nor what replicas exchange
 *   ranks                          global ranks of replica 0: busy and idle time; bytes placed,
 *                                  in all and by kind (runtime/plan/memory_kinds.def), and, as
 *                                  their lower bound, live; receive slots; received messages whose
 *                                  sender waits for a credit, and those that need none
 *                                  (receive_slots.c); with a device also the bytes of pinned host
 *                                  memory
 *   collectives                    what each rank sends in them, and their exposed time, by kind
 *                                  (gen/timing/collective_sums.c)
 *
 * JSON (RFC 8259) has neither NaN nor infinity: such a figure is null. Reals have 15 digits, keys
 * keep their order. */
#include "gen/views/report_json.h"

#include <stdio.h>
#include <math.h>
#include <stdlib.h>

#include <jansson.h>

#include "gen/model/blocks.h"
#include "gen/schedule/action_text.h"
#include "gen/base/arena.h"
#include "gen/base/error.h"
#include "gen/schedule/order.h"
#include "gen/timing/timing.h"
#include "runtime/plan/memory_kinds.h"
#include "runtime/plan/plan.h"

static json_t *real_json(double value) { return isfinite(value) ? json_real(value) : json_null(); }

static json_t *integer_json(uint64_t value) { return json_integer((json_int_t)value); }

static json_t *stages_of(const struct pen_report *report) {
  const struct pen_plan *plan = report->plan;
  json_t *stages = json_array();
  for (uint32_t index = 0; index < plan->stage_count; index++) {
    const struct pen_stage *stage = &plan->profiles[0].stages[index];
    json_t *layers = json_array();
    json_array_append_new(layers, integer_json(stage->first_layer));
    json_array_append_new(layers, integer_json(stage->past_last_layer));
    json_t *object = json_object();
    json_object_set_new(object, "stage", integer_json(index));
    json_object_set_new(object, "rank", integer_json(stage->rank));
    json_object_set_new(object, "layers", layers);
    json_object_set_new(object, "first_block", json_string(stage->first_block));
    const struct pen_stages *blocks = &report->partition->stages;
    json_object_set_new(object, "last_block",
                        json_string(blocks->block[blocks->span[index].past_last_block - 1].name));
    json_object_set_new(object, "forward", real_json(report->stage_cost[index].forward));
    json_object_set_new(object, "backward_input",
                        real_json(report->stage_cost[index].backward_input));
    json_object_set_new(object, "backward_weight",
                        real_json(report->stage_cost[index].backward_weight));
    json_object_set_new(object, "recompute", json_string(pen_recompute_text(stage->recompute)));
    json_array_append_new(stages, object);
  }
  return stages;
}

/* Messages that each rank receives with a credit and without: count[rank][0 and 1]. */
static uint64_t (*count_credits(const struct pen_plan *plan))[2] {
  uint64_t(*count)[2] = pen_new(plan->rank_count, sizeof *count);
  const struct pen_profile *profile = &plan->profiles[0];
  for (uint32_t index = 0; index < profile->message_count; index++) {
    const struct pen_message *message = &profile->messages[index];
    count[profile->channels[message->channel].to_rank][message->credit == PEN_NONE]++;
  }
  return count;
}

static json_t *bytes_json(const struct pen_plan *plan, uint32_t rank) {
  json_t *object = json_object();
  for (int kind = 0; kind < PEN_MEMORY_KINDS; kind++)
    json_object_set_new(
        object, pen_memory_kind_name((enum pen_memory_kind)kind),
        integer_json(pen_memory_kind_bytes(plan, rank, (enum pen_memory_kind)kind)));
  return object;
}

static json_t *ranks_of(const struct pen_plan *plan, const struct pen_timing *timing) {
  json_t *ranks = json_array();
  uint64_t(*credits)[2] = count_credits(plan);
  for (uint32_t global = 0; global < pen_replica_process_count(plan); global++) {
    const uint32_t rank = pen_table_rank(plan, global);
    const struct pen_rank_memory *memory = &plan->memory[rank];
    json_t *object = json_object();
    json_object_set_new(object, "rank", integer_json(global));
    json_object_set_new(object, "pipeline_rank", integer_json(rank));
    json_object_set_new(object, "tensor_rank",
                        integer_json(pen_group_member(plan, global, PEN_TENSOR)));
    json_object_set_new(object, "busy", real_json(timing->busy[rank]));
    json_object_set_new(object, "idle", real_json(timing->idle[rank]));
    if (timing->collectives || pen_group_size(plan, PEN_TENSOR) > 1)
      json_object_set_new(object, "exchanging", real_json(timing->exchanging[rank]));
    json_object_set_new(object, "placed_bytes", integer_json(memory->arena_bytes));
    json_object_set_new(object, "bytes", bytes_json(plan, rank));
    json_object_set_new(object, "live_bytes", integer_json(memory->live_bytes));
    json_object_set_new(object, "ratio",
                        real_json((double)memory->arena_bytes / (double)memory->live_bytes));
    json_object_set_new(object, "receive_slots", integer_json(memory->receive_slots));
    json_object_set_new(object, "credits", integer_json(credits[rank][0]));
    json_object_set_new(object, "credits_elided", integer_json(credits[rank][1]));
    if (memory->pinned_bytes)
      json_object_set_new(object, "pinned_bytes", integer_json(memory->pinned_bytes));
    json_array_append_new(ranks, object);
  }
  return ranks;
}

/* A row for each global rank of replica 0 and kind of collectives that it has. `sum`: of pipeline
 * ranks, whose tensor ranks have the same. */
static json_t *collectives_json(const struct pen_plan *plan, const struct pen_collective_sum *sum) {
  static const char *const names[] = {
#define PEN_COLLECTIVE_KIND(name, meaning) #name,
#include "gen/timing/collective_kinds.def"
  };
  json_t *rows = json_array();
  for (uint32_t global = 0; global < pen_replica_process_count(plan); global++)
    for (int kind = 0; kind < PEN_COLLECTIVE_KINDS; kind++) {
      const struct pen_collective_sum *of =
          &sum[pen_table_rank(plan, global) * PEN_COLLECTIVE_KINDS + (uint32_t)kind];
      if (of->calls == 0) continue;
      json_t *row = json_object();
      json_object_set_new(row, "rank", integer_json(global));
      json_object_set_new(row, "kind", json_string(names[kind]));
      json_object_set_new(row, "calls", integer_json(of->calls));
      json_object_set_new(row, "bytes", integer_json(of->bytes));
      json_object_set_new(row, "exposed", real_json(of->exposed));
      json_array_append_new(rows, row);
    }
  return rows;
}

/* The bytes from each rank to each other rank in a step; global ranks of replica 0. */
static json_t *pairs_json(const struct pen_plan *plan) {
  const struct pen_profile *profile = &plan->profiles[0];
  uint64_t *bytes = pen_new(profile->channel_count + 1u, sizeof *bytes);
  json_t *pairs = json_array();
  for (uint32_t index = 0; index < profile->message_count; index++)
    bytes[profile->messages[index].channel] += profile->messages[index].bytes;
  for (uint32_t index = 0; index < profile->channel_count; index++)
    for (uint32_t from = 0; from < pen_replica_process_count(plan); from++) {
      if (pen_table_rank(plan, from) != profile->channels[index].from_rank) continue;
      const uint32_t to =
          pen_group_process(plan, from, PEN_PIPELINE, profile->channels[index].to_rank);
      json_t *pair = json_object();
      json_object_set_new(pair, "from", integer_json(from));
      json_object_set_new(pair, "to", integer_json(to));
      json_object_set_new(pair, "bytes", integer_json(bytes[index]));
      json_array_append_new(pairs, pair);
    }
  pen_free(bytes);
  return pairs;
}

/* The actions of a leg as --print=actions writes them, a pair as `a|b`. */
static json_t *actions_text(const struct pen_path *path, const struct pen_path_leg *leg,
                            const struct pen_order *order) {
  char *text = NULL, word[32];
  size_t bytes = 0;
  FILE *out = open_memstream(&text, &bytes);
  if (!out) pen_stop(PEN_EXIT_TOPOLOGY, "penstock-gen: out of memory: " PEN_PLAN_SETTINGS);
  for (size_t i = leg->first; i < leg->first + leg->count; i++) {
    const struct pen_path_step *step = &path->step[i];
    for (uint32_t index = step->index; index <= step->index + step->pair; index++) {
      const struct pen_compute *action = &order->action[step->rank][index];
      const char *gap = index > step->index ? "|" : i > leg->first ? " " : "";
      fprintf(out, "%s%s", gap,
              pen_action_format(word, action->kind, action->stage, action->microbatch));
    }
  }
  fclose(out);
  json_t *actions = json_string(text);
  free(text);
  return actions;
}

/* The critical path, leg by leg: the actions of one rank, their start and end, and the message
 * before them. */
static json_t *path_json(const struct pen_path *path, const struct pen_order *order) {
  json_t *object = json_object(), *legs = json_array();
  for (size_t i = 0; i < path->leg_count; i++) {
    const struct pen_path_leg *leg = &path->leg[i];
    json_t *part = json_object();
    json_object_set_new(part, "rank", integer_json(leg->rank));
    json_object_set_new(part, "sent", real_json(path->step[leg->first].sent));
    json_object_set_new(part, "start", real_json(path->step[leg->first].start));
    json_object_set_new(part, "end", real_json(path->step[leg->first + leg->count - 1].end));
    json_object_set_new(part, "actions", actions_text(path, leg, order));
    json_array_append_new(legs, part);
  }
  json_object_set_new(object, "actions", integer_json(path->count));
  json_object_set_new(object, "computing", real_json(path->compute));
  json_object_set_new(object, "exchanging", real_json(path->exchanged));
  json_object_set_new(object, "sending", real_json(path->sent));
  json_object_set_new(object, "after", real_json(path->after));
  json_object_set_new(object, "legs", legs);
  return object;
}

static json_t *bound_json(const struct pen_bound *bound) {
  json_t *object = json_object();
  json_object_set_new(object, "work", real_json(bound->work));
  json_object_set_new(object, "ends", real_json(bound->ends));
  json_object_set_new(object, "chain", real_json(bound->chain));
  json_object_set_new(object, "memory", real_json(bound->memory));
  return object;
}

/* Lower bounds by argument: see lower_bound.h. */
static json_t *bounds_json(const struct pen_bounds *bounds) {
  json_t *object = json_object();
  json_object_set_new(object, "makespan", bound_json(&bounds->makespan));
  json_object_set_new(object, "span", bound_json(&bounds->span));
  return object;
}

/* What the data-parallel collectives add to the step, and when they run. */
static json_t *exchange_json(const struct pen_timing *timing) {
  json_t *object = json_object(), *rows = json_array();
  json_object_set_new(object, "exposed", real_json(timing->exposed));
  for (uint32_t rank = 0; rank < timing->whole_order->rank_count; rank++)
    for (uint32_t index = 0; index < timing->whole_order->count[rank]; index++) {
      const struct pen_compute *action = &timing->whole_order->action[rank][index];
      char name[32];
      if (action->kind <= PEN_W) continue;
      json_t *row = json_object();
      json_object_set_new(row, "rank", integer_json(rank));
      json_object_set_new(
          row, "action",
          json_string(pen_action_format(name, action->kind, action->stage, action->microbatch)));
      json_object_set_new(row, "start", real_json(timing->whole->start[rank][index]));
      json_object_set_new(row, "end", real_json(timing->whole->end[rank][index]));
      json_array_append_new(rows, row);
    }
  json_object_set_new(object, "rows", rows);
  return object;
}

/* The best order that the search started from. */
static json_t *warm_start_json(const struct pen_search_progress *progress) {
  if (!progress->start) return json_null();
  json_t *object = json_object();
  json_object_set_new(object, "name", json_string(progress->start));
  json_object_set_new(object, "makespan", real_json(progress->start_makespan));
  return object;
}

/* The gap of the best order after some work: [work, gap] where it changes, and at the end. */
static json_t *trace_json(const struct pen_search *search) {
  json_t *rows = json_array();
  double bound = search->lower_bound;
  for (size_t i = 0; i < search->trace_count; i++) {
    const struct pen_search_point *point = &search->trace[i];
    json_t *row = json_array();
    json_array_append_new(row, integer_json(point->work));
    json_array_append_new(row, real_json(bound > 0 ? (point->value - bound) / bound : 0));
    json_array_append_new(rows, row);
  }
  return rows;
}

/* The result of a search. */
static json_t *search_json(const struct pen_search *search) {
  json_t *object = json_object();
  json_object_set_new(object, "objective",
                      json_string(pen_enum_text(pen_enum_objective, (int)search->objective)));
  json_object_set_new(object, "makespan", real_json(search->makespan));
  json_object_set_new(object, "span", real_json(search->span));
  if (search->p99 > 0) json_object_set_new(object, "p99", real_json(search->p99));
  json_object_set_new(object, "lower_bound", real_json(search->lower_bound));
  json_object_set_new(object, "gap", real_json(search->gap));
  json_object_set_new(object, "from", json_string(search->start));
  json_object_set_new(object, "placement",
                      json_string(pen_enum_text(pen_enum_placement, (int)search->placement)));
  json_object_set_new(object, "starts", integer_json(search->starts));
  json_object_set_new(object, "actions_timed", integer_json(search->work));
  json_object_set_new(object, "candidates", integer_json(search->progress->candidates));
  json_object_set_new(object, "moves", integer_json(pen_search_progress_moves(search->progress)));
  json_object_set_new(object, "warm_start", warm_start_json(search->progress));
  json_object_set_new(object, "trace", trace_json(search));
  return object;
}

/* How the makespan spreads under noise of the costs: of this order, then of a named schedule. */
static json_t *robustness_json(const struct pen_spread *spread, size_t count) {
  static const char *const kinds[] = {[PEN_NOISE_ACTION] = "action", [PEN_NOISE_RANK] = "rank"};
  json_t *rows = json_array();
  for (const struct pen_spread *row = spread; row < spread + count; row++) {
    json_t *object = json_object();
    json_object_set_new(object, "order", json_string(row->order));
    if (row->settings) json_object_set_new(object, "settings", json_string(row->settings));
    json_object_set_new(object, "kind", json_string(kinds[row->kind]));
    json_object_set_new(object, "noise", real_json(row->noise));
    json_object_set_new(object, "p50", real_json(row->p50));
    json_object_set_new(object, "p99", real_json(row->p99));
    json_array_append_new(rows, object);
  }
  return rows;
}

/* The plans for fewer hosts. `makespans`: [fallback_count]. */
static json_t *fallbacks_json(const struct pen_plan *plan, const double *makespans) {
  json_t *list = json_array();
  for (uint32_t f = 0; f < plan->fallback_count; f++) {
    const struct pen_plan *fallback = &plan->fallbacks[f];
    json_t *object = json_object(), *bytes = json_array();
    json_object_set_new(object, "ranks", integer_json(fallback->rank_count));
    json_object_set_new(object, "stages_per_rank", integer_json(fallback->stages_per_rank));
    json_object_set_new(object, "schedule", json_string(fallback->schedule));
    json_object_set_new(object, "hosts",
                        integer_json(fallback->host_count ? fallback->host_count : 1));
    json_object_set_new(object, "makespan", real_json(makespans[f]));
    json_object_set_new(object, "tensor_ranks", integer_json(pen_group_size(fallback, PEN_TENSOR)));
    for (uint32_t rank = 0; rank < fallback->rank_count; rank++)
      json_array_append_new(bytes, integer_json(fallback->memory[rank].arena_bytes));
    json_object_set_new(object, "arena_bytes", bytes);
    json_array_append_new(list, object);
  }
  return list;
}

void pen_report_json(FILE *out, const struct pen_report *report) {
  const struct pen_plan *plan = report->plan;
  const struct pen_timing *timing = report->timing;
  json_object_seed(1); /* a fixed hash seed: keys are not chosen by others */
  json_t *json = json_object();
  json_object_set_new(json, "name", json_string(plan->name));
  json_object_set_new(json, "schedule", json_string(plan->schedule));
  json_object_set_new(json, "ranks", integer_json(plan->rank_count));
  json_object_set_new(json, "stages_per_rank", integer_json(plan->stages_per_rank));
  json_object_set_new(json, "microbatches", integer_json(plan->microbatch_count));
  json_object_set_new(json, "digest", json_string(pen_hex(plan->digest, PEN_DIGEST_BYTES)));
  json_object_set_new(json, "makespan", real_json(timing->makespan));
  if (!isnan(report->step)) json_object_set_new(json, "step", real_json(report->step));
  json_object_set_new(json, "span", real_json(timing->span));
  json_object_set_new(json, "work", real_json(timing->work));
  json_object_set_new(json, "bubble", real_json(timing->bubble));
  json_object_set_new(json, "idle", real_json(timing->idle_share));
  json_object_set_new(json, "utilisation", real_json(report->utilisation));
  json_object_set_new(json, "lower_bound", real_json(timing->lower_bound));
  json_object_set_new(json, "gap", real_json(timing->gap));
  json_object_set_new(json, "bounds", bounds_json(report->bounds));
  json_object_set_new(json, "replicas", integer_json(pen_group_size(plan, PEN_DATA)));
  json_object_set_new(json, "tensor_ranks", integer_json(pen_group_size(plan, PEN_TENSOR)));
  if (timing->collectives) json_object_set_new(json, "exchange", exchange_json(timing));
  if (report->search) json_object_set_new(json, "search", search_json(report->search));
  if (report->spread)
    json_object_set_new(json, "robustness", robustness_json(report->spread, report->spread_count));
  json_object_set_new(json, "critical_path", path_json(report->path, report->order));
  json_object_set_new(json, "stages", stages_of(report));
  json_object_set_new(json, "rank", ranks_of(plan, timing));
  if (plan->fallback_count)
    json_object_set_new(json, "fallbacks", fallbacks_json(plan, report->fallback_makespans));
  json_object_set_new(json, "collectives", collectives_json(plan, report->sums));
  json_object_set_new(json, "pairs", pairs_json(plan));
  json_dumpf(json, out, JSON_INDENT(2) | JSON_REAL_PRECISION(15));
  fputc('\n', out);
  json_decref(json);
}
