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
 *   experts                        only with experts; of a layer: tokens of a slice; rows, one a
 *                                  token and expert, that a rank multiplies in a microbatch, with
 *                                  balanced routes and at most; those of an expert in a slice, if
 *                                  balanced; costs.expert_imbalance
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

#include "gen/model/blocks.h"
#include "gen/schedule/action_text.h"
#include "gen/base/arena.h"
#include "gen/base/error.h"
#include "base/json_members.h"
#include "gen/schedule/order.h"
#include "gen/timing/timing.h"
#include "runtime/plan/experts.h"
#include "runtime/plan/memory_kinds.h"
#include "runtime/plan/plan.h"
#include "runtime/plan/puts.h"

static json_t *stages_of(const struct pen_report *report) {
  const struct pen_plan *plan = report->plan;
  json_t *stages = json_array();
  for (uint32_t index = 0; index < plan->stage_count; index++) {
    const struct pen_stage *stage = &plan->profiles[0].stages[index];
    json_t *layers = json_array();
    json_array_append_new(layers, pen_json_integer(stage->first_layer));
    json_array_append_new(layers, pen_json_integer(stage->past_last_layer));
    const struct pen_stages *blocks = &report->partition->stages;
    const struct pen_stage_cost *cost = &report->stage_cost[index];
    PEN_JSON_APPEND(
        stages, {"stage", pen_json_integer(index)}, {"rank", pen_json_integer(stage->rank)},
        {"layers", layers}, {"first_block", json_string(stage->first_block)},
        {"last_block", json_string(blocks->block[blocks->span[index].past_last_block - 1].name)},
        {"forward", pen_json_real(cost->forward)},
        {"backward_input", pen_json_real(cost->backward_input)},
        {"backward_weight", pen_json_real(cost->backward_weight)},
        {"recompute", json_string(pen_recompute_text(stage->recompute))});
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
        pen_json_integer(pen_memory_kind_bytes(plan, rank, (enum pen_memory_kind)kind)));
  return object;
}

static json_t *ranks_of(const struct pen_plan *plan, const struct pen_timing *timing) {
  json_t *ranks = json_array();
  uint64_t(*credits)[2] = count_credits(plan);
  for (uint32_t global = 0; global < pen_replica_process_count(plan); global++) {
    const uint32_t rank = pen_table_rank(plan, global);
    const struct pen_rank_memory *memory = &plan->memory[rank];
    PEN_JSON_APPEND(
        ranks, {"rank", pen_json_integer(global)}, {"pipeline_rank", pen_json_integer(rank)},
        {"tensor_rank", pen_json_integer(pen_group_member(plan, global, PEN_TENSOR))},
        {"busy", pen_json_real(timing->busy[rank])}, {"idle", pen_json_real(timing->idle[rank])},
        {"exchanging", timing->collectives || pen_group_size(plan, PEN_TENSOR) > 1
                           ? pen_json_real(timing->exchanging[rank])
                           : NULL},
        {"placed_bytes", pen_json_integer(memory->arena_bytes)}, {"bytes", bytes_json(plan, rank)},
        {"live_bytes", pen_json_integer(memory->live_bytes)},
        {"ratio", pen_json_real((double)memory->arena_bytes / (double)memory->live_bytes)},
        {"receive_slots", pen_json_integer(memory->receive_slots)},
        {"credits", pen_json_integer(credits[rank][0])},
        {"credits_elided", pen_json_integer(credits[rank][1])},
        {"pinned_bytes", memory->pinned_bytes ? pen_json_integer(memory->pinned_bytes) : NULL});
  }
  return ranks;
}

/* Adds the exchanges of UPDATE, in which tensor ranks differ. */
static void add_update_exchanges(struct pen_collective_sum *sum, const struct pen_plan *plan,
                                 uint32_t global) {
  const struct pen_rank_program *tables = &plan->profiles[0].ranks[pen_table_rank(plan, global)];
  const struct pen_collective *row = &tables->collectives[tables->first_exchange];
  for (uint32_t i = 0; i < tables->exchange_count; i++)
    for (uint32_t p = row[i].first_put; p < row[i].first_put + row[i].put_count; p++)
      sum->bytes += pen_put_sent_bytes(plan, &tables->puts[p], global);
  sum->calls += tables->exchange_count;
}

/* A row for each global rank of replica 0 and kind of collectives that it has. `sum`: of the
 * programs of pipeline ranks, whose tensor ranks have the same. */
static json_t *collectives_json(const struct pen_plan *plan, const struct pen_collective_sum *sum) {
  static const char *const names[] = {
#define PEN_COLLECTIVE_KIND(name, meaning) #name,
#include "gen/timing/collective_kinds.def"
  };
  json_t *rows = json_array();
  for (uint32_t global = 0; global < pen_replica_process_count(plan); global++)
    for (int kind = 0; kind < PEN_COLLECTIVE_KINDS; kind++) {
      struct pen_collective_sum of =
          sum[pen_table_rank(plan, global) * PEN_COLLECTIVE_KINDS + (uint32_t)kind];
      if (kind == PEN_KIND_tensor) add_update_exchanges(&of, plan, global);
      if (of.calls == 0) continue;
      PEN_JSON_APPEND(rows, {"rank", pen_json_integer(global)}, {"kind", json_string(names[kind])},
                      {"calls", pen_json_integer(of.calls)}, {"bytes", pen_json_integer(of.bytes)},
                      {"exposed", pen_json_real(of.exposed)});
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
      PEN_JSON_APPEND(pairs, {"from", pen_json_integer(from)}, {"to", pen_json_integer(to)},
                      {"bytes", pen_json_integer(bytes[index])});
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
  json_t *legs = json_array();
  for (size_t i = 0; i < path->leg_count; i++) {
    const struct pen_path_leg *leg = &path->leg[i];
    PEN_JSON_APPEND(legs, {"rank", pen_json_integer(leg->rank)},
                    {"sent", pen_json_real(path->step[leg->first].sent)},
                    {"start", pen_json_real(path->step[leg->first].start)},
                    {"end", pen_json_real(path->step[leg->first + leg->count - 1].end)},
                    {"actions", actions_text(path, leg, order)});
  }
  return PEN_JSON(
      {"actions", pen_json_integer(path->count)}, {"computing", pen_json_real(path->compute)},
      {"exchanging", pen_json_real(path->exchanged)}, {"sending", pen_json_real(path->sent)},
      {"after", pen_json_real(path->after)}, {"legs", legs});
}

static json_t *bound_json(const struct pen_bound *bound) {
  return PEN_JSON({"work", pen_json_real(bound->work)}, {"ends", pen_json_real(bound->ends)},
                  {"chain", pen_json_real(bound->chain)}, {"memory", pen_json_real(bound->memory)});
}

/* Lower bounds by argument: see lower_bound.h. */
static json_t *bounds_json(const struct pen_bounds *bounds) {
  return PEN_JSON({"makespan", bound_json(&bounds->makespan)}, {"span", bound_json(&bounds->span)});
}

/* What the data-parallel collectives add to the step, and when they run. */
static json_t *exchange_json(const struct pen_timing *timing) {
  json_t *rows = json_array();
  for (uint32_t rank = 0; rank < timing->whole_order->rank_count; rank++)
    for (uint32_t index = 0; index < timing->whole_order->count[rank]; index++) {
      const struct pen_compute *action = &timing->whole_order->action[rank][index];
      char name[32];
      if (action->kind <= PEN_W) continue;
      PEN_JSON_APPEND(rows, {"rank", pen_json_integer(rank)},
                      {"action", json_string(pen_action_format(name, action->kind, action->stage,
                                                               action->microbatch))},
                      {"start", pen_json_real(timing->whole->start[rank][index])},
                      {"end", pen_json_real(timing->whole->end[rank][index])});
    }
  return PEN_JSON({"exposed", pen_json_real(timing->exposed)}, {"rows", rows});
}

/* The best order that the search started from. */
static json_t *warm_start_json(const struct pen_search_progress *progress) {
  if (!progress->start) return json_null();
  return PEN_JSON({"name", json_string(progress->start)},
                  {"makespan", pen_json_real(progress->start_makespan)});
}

/* The gap of the best order after some work: [work, gap] where it changes, and at the end. */
static json_t *trace_json(const struct pen_search *search) {
  json_t *rows = json_array();
  double bound = search->lower_bound;
  for (size_t i = 0; i < search->trace_count; i++) {
    const struct pen_search_point *point = &search->trace[i];
    json_t *row = json_array();
    json_array_append_new(row, pen_json_integer(point->work));
    json_array_append_new(row, pen_json_real(bound > 0 ? (point->value - bound) / bound : 0));
    json_array_append_new(rows, row);
  }
  return rows;
}

/* The result of a search. */
static json_t *search_json(const struct pen_search *search) {
  return PEN_JSON(
      {"objective", json_string(pen_enum_text(pen_enum_objective, (int)search->objective))},
      {"makespan", pen_json_real(search->makespan)}, {"span", pen_json_real(search->span)},
      {"p99", search->p99 > 0 ? pen_json_real(search->p99) : NULL},
      {"lower_bound", pen_json_real(search->lower_bound)}, {"gap", pen_json_real(search->gap)},
      {"from", json_string(search->start)},
      {"placement", json_string(pen_enum_text(pen_enum_placement, (int)search->placement))},
      {"starts", pen_json_integer(search->starts)},
      {"actions_timed", pen_json_integer(search->work)},
      {"candidates", pen_json_integer(search->progress->candidates)},
      {"moves", pen_json_integer(pen_search_progress_moves(search->progress))},
      {"warm_start", warm_start_json(search->progress)}, {"trace", trace_json(search)});
}

/* How the makespan spreads under noise of the costs: of this order, then of a named schedule. */
static json_t *robustness_json(const struct pen_spread *spread, size_t count) {
  static const char *const kinds[] = {[PEN_NOISE_ACTION] = "action", [PEN_NOISE_RANK] = "rank"};
  json_t *rows = json_array();
  for (const struct pen_spread *row = spread; row < spread + count; row++)
    PEN_JSON_APPEND(rows, {"order", json_string(row->order)},
                    {"settings", row->settings ? json_string(row->settings) : NULL},
                    {"kind", json_string(kinds[row->kind])}, {"noise", pen_json_real(row->noise)},
                    {"p50", pen_json_real(row->p50)}, {"p99", pen_json_real(row->p99)});
  return rows;
}

/* The plans for fewer hosts. `makespans`: [fallback_count]. */
static json_t *fallbacks_json(const struct pen_plan *plan, const double *makespans) {
  json_t *list = json_array();
  for (uint32_t f = 0; f < plan->fallback_count; f++) {
    const struct pen_plan *fallback = &plan->fallbacks[f];
    json_t *bytes = json_array();
    for (uint32_t rank = 0; rank < fallback->rank_count; rank++)
      json_array_append_new(bytes, pen_json_integer(fallback->memory[rank].arena_bytes));
    PEN_JSON_APPEND(list, {"ranks", pen_json_integer(fallback->rank_count)},
                    {"stages_per_rank", pen_json_integer(fallback->stages_per_rank)},
                    {"schedule", json_string(fallback->schedule)},
                    {"hosts", pen_json_integer(fallback->host_count ? fallback->host_count : 1)},
                    {"makespan", pen_json_real(makespans[f])},
                    {"tensor_ranks", pen_json_integer(pen_group_size(fallback, PEN_TENSOR))},
                    {"arena_bytes", bytes});
  }
  return list;
}

/* By an op of a layer of experts; NULL: there is none. */
static json_t *experts_json(const struct pen_report *report) {
  for (uint32_t rank = 0; rank < report->plan->rank_count; rank++) {
    const struct pen_op *op = pen_experts_of(&report->plan->profiles[0].ranks[rank], PEN_NONE);
    if (!op) continue;
    const int64_t rows = op->dim[0], part = op->dim[1], choices = op->dim[2], experts = op->dim[5];
    return PEN_JSON({"rows", json_integer(part)}, {"rows_balanced", json_integer(rows * choices)},
                    {"rows_worst", json_integer(rows * choices)},
                    {"segment_rows", pen_json_real((double)(part * choices) / (double)experts)},
                    {"imbalance", pen_json_real(report->topology->costs_expert_imbalance)});
  }
  return NULL;
}

void pen_report_json(FILE *out, const struct pen_report *report) {
  const struct pen_plan *plan = report->plan;
  const struct pen_timing *timing = report->timing;
  json_object_seed(1); /* a fixed hash seed: keys are not chosen by others */
  json_t *json = PEN_JSON(
      {"name", json_string(plan->name)}, {"schedule", json_string(plan->schedule)},
      {"ranks", pen_json_integer(plan->rank_count)},
      {"stages_per_rank", pen_json_integer(plan->stages_per_rank)},
      {"microbatches", pen_json_integer(plan->microbatch_count)},
      {"digest", json_string(pen_hex(plan->digest, PEN_DIGEST_BYTES))},
      {"makespan", pen_json_real(timing->makespan)},
      {"step", !isnan(report->step) ? pen_json_real(report->step) : NULL},
      {"span", pen_json_real(timing->span)}, {"work", pen_json_real(timing->work)},
      {"bubble", pen_json_real(timing->bubble)}, {"idle", pen_json_real(timing->idle_share)},
      {"utilisation", pen_json_real(report->utilisation)},
      {"lower_bound", pen_json_real(timing->lower_bound)}, {"gap", pen_json_real(timing->gap)},
      {"bounds", bounds_json(report->bounds)},
      {"replicas", pen_json_integer(pen_group_size(plan, PEN_DATA))},
      {"tensor_ranks", pen_json_integer(pen_group_size(plan, PEN_TENSOR))},
      {"experts", experts_json(report)},
      {"exchange", timing->collectives ? exchange_json(timing) : NULL},
      {"search", report->search ? search_json(report->search) : NULL},
      {"robustness", report->spread ? robustness_json(report->spread, report->spread_count) : NULL},
      {"critical_path", path_json(report->path, report->order)}, {"stages", stages_of(report)},
      {"rank", ranks_of(plan, timing)},
      {"fallbacks", plan->fallback_count ? fallbacks_json(plan, report->fallback_makespans) : NULL},
      {"collectives", collectives_json(plan, report->sums)}, {"pairs", pairs_json(plan)});
  json_dumpf(json, out, JSON_INDENT(2) | JSON_REAL_PRECISION(15));
  fputc('\n', out);
  json_decref(json);
}
