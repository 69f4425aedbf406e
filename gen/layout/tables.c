/* tables.c: one profile's tables: tensors, programs, ops and frames of every rank, and the source
 * offsets of messages. */
#include <string.h>

#include "gen/families/families.h"
#include "gen/layout/collectives.h"
#include "gen/layout/matrix_exchanges.h"
#include "gen/layout/tables.h"
#include "gen/base/error.h"
#include "gen/model/model.h"
#include "gen/base/arena.h"
#include "gen/partition/partition.h"
#include "gen/lower/lower.h"
#include "gen/model/recompute.h"
#include "runtime/plan/losses.h"
#include "runtime/plan/plan.h"

/* ---- tables of one rank ---- */

/* A rank's tables while they grow. */
struct rank_tables {
  struct pen_tensor *tensor;
  struct pen_op *op;
  struct pen_program *program;
  struct pen_frame *frame;
  size_t tensor_count, op_count, program_count, frame_count;
  bool (*runs)[PEN_PROGRAMS];              /* [stage]: which of them its actions run */
  uint32_t (*program_index)[PEN_PROGRAMS]; /* [stage] */
  uint32_t *frame_slot;                    /* hash table of frames */
  size_t frame_slots;
};

static uint32_t find_tensor(const struct rank_tables *t, const char *name) {
  for (size_t i = 0; i < t->tensor_count; i++)
    if (t->tensor[i].base == PEN_BASE_PERSISTENT && strcmp(t->tensor[i].name, name) == 0)
      return (uint32_t)i;
  return PEN_NONE;
}

static uint64_t persistent_offset(const struct pen_layout_state *l, const struct pen_graph *graph,
                                  const struct pen_value *value) {
  if (value->role == PEN_ROLE_COUNTS) return l->plan->routers[value->loss_row].offset;
  if (pen_is_tied_head(graph, value->weight)) {
    const struct pen_tie *tie = &l->ties[value->weight - graph->tied];
    return value->role == PEN_ROLE_WEIGHT ? tie->value_offset : tie->gradient_offset;
  }
  const struct pen_weight *weight = &l->weights[l->first_weight[graph->stage] + value->weight];
  if (value->role != PEN_ROLE_WEIGHT) return weight->gradient_offset;
  return value->dtype == PEN_BF16 ? weight->bf16_offset : weight->value_offset;
}

/* Whether a value is sharded, so that programs read a copy instead; `gathered`: but those that
 * ALL_GATHER reads. */
static bool is_shard_alone(const struct pen_layout_state *l, const struct pen_graph *graph,
                           const struct pen_value *value, bool gathered) {
  bool own = value->role == PEN_ROLE_WEIGHT && value->dtype == PEN_F32 &&
             !pen_is_tied_head(graph, value->weight);
  return own && !gathered &&
         l->weights[l->first_weight[graph->stage] + value->weight].value_sharded;
}

/* Which programs the actions of a stage run. */
static void find_programs_run(const struct pen_layout_state *l, uint32_t stage,
                              bool runs[PEN_PROGRAMS]) {
  for (int p = 0; p < PEN_PROGRAMS; p++) runs[p] = false;
  for (uint32_t m = 0; m < l->partition->microbatch_count; m++)
    for (int p = 0; p < PEN_PROGRAMS; p++)
      runs[p] = runs[p] || pen_stage_actions_of(l, stage, m)->program[p] != NO_ACTION;
}

/* The values that these programs use: [value]. */
static bool *find_used(const struct pen_graph *graph, const bool runs[PEN_PROGRAMS]) {
  bool *used = pen_new(graph->value_count + 1, sizeof *used);
  for (int p = 0; p < PEN_PROGRAMS; p++)
    for (size_t i = 0; runs[p] && i < graph->program[p].count; i++) {
      const struct pen_op *op = &graph->program[p].op[i];
      for (size_t k = 0; k < PEN_OPERANDS_MAX; k++)
        if (op->operand[k] != PEN_NONE) used[op->operand[k]] = true;
      if (op->workspace != PEN_NONE) used[op->workspace] = true;
    }
  const uint32_t boundary[] = {graph->input, graph->output, graph->output_gradient,
                               graph->input_gradient};
  for (size_t i = 0; i < sizeof boundary / sizeof *boundary; i++)
    if (boundary[i] != PEN_NONE) used[boundary[i]] = true;
  return used;
}

/* Adds a stage's weights and constants, and the values of the programs that it runs. Constants of
 * one name are one tensor of the rank. */
static void add_tensors(struct pen_layout_state *l, struct rank_tables *t,
                        const struct pen_graph *graph, uint64_t *constant_end) {
  find_programs_run(l, graph->stage, t->runs[graph->stage]);
  bool *used = find_used(graph, t->runs[graph->stage]);
  const struct pen_stage_buffers *buffers = &l->buffers[graph->stage];
  uint32_t *map = l->tensor_of[graph->stage] = pen_new(graph->value_count + 1, sizeof *map);
  const char *stage_name = pen_text("s%u.", graph->stage);
  for (uint32_t v = 0; v < graph->value_count; v++) {
    const struct pen_value *value = &graph->value[v];
    bool constant = value->role == PEN_ROLE_CONSTANT;
    map[v] = constant ? find_tensor(t, value->name) : PEN_NONE;
    if (map[v] != PEN_NONE || (value->role == PEN_ROLE_ACTIVATION && !used[v])) continue;
    if (value->role == PEN_ROLE_WEIGHT && pen_is_tied_head(graph, value->weight) &&
        value->dtype != l->ties->dtype)
      continue; /* the head reads a copy */
    if (is_shard_alone(l, graph, value, used[v]) && buffers->base[v] != PEN_BASE_UNSHARDED)
      continue;
    uint64_t offset = buffers->offset[v];
    if (constant) {
      offset = *constant_end;
      *constant_end += pen_aligned(value->bytes);
    } else if (buffers->base[v] == PEN_BASE_EXCHANGE) {
      const struct pen_rank_memory *memory = &l->memory[l->partition->rank_of[graph->stage]];
      offset *= memory->exchange_bytes / (2 * pen_group_size(l->plan, PEN_TENSOR));
    } else if (buffers->base[v] == PEN_BASE_LOSS) {
      offset = (uint64_t)value->loss_row * l->plan->loss_count * sizeof(double);
    } else if (buffers->base[v] == PEN_BASE_PERSISTENT) {
      offset = persistent_offset(l, graph, value);
    }
    const char *name = value->role == PEN_ROLE_ACTIVATION
                           ? pen_text("%s%s", stage_name, value->name)
                           : value->name;
    PEN_RESERVE(t->tensor, t->tensor_count + 1);
    t->tensor[t->tensor_count] =
        (struct pen_tensor){name, value->dtype, buffers->base[v], offset, value->bytes};
    map[v] = (uint32_t)t->tensor_count++;
  }
  pen_free(used);
}

static void add_ops(struct rank_tables *t, const struct pen_op_list *list, const uint32_t *map) {
  for (size_t i = 0; i < list->count; i++) {
    PEN_RESERVE(t->op, t->op_count + 1);
    struct pen_op *op = &t->op[t->op_count++];
    *op = list->op[i];
    for (size_t k = 0; k < PEN_OPERANDS_MAX; k++)
      if (op->operand[k] != PEN_NONE) op->operand[k] = map[op->operand[k]];
    if (op->workspace != PEN_NONE) op->workspace = map[op->workspace];
  }
}

static void add_tensor_rank_dim(struct pen_tensor_rank_dims *dims,
                                const struct pen_tensor_rank_dim *dim) {
  PEN_RESERVE(dims->dim, dims->count + 1);
  dims->dim[dims->count++] = *dim;
}

/* Lists the dims that the ops of a tensor rank have instead of the first's, in a program whose ops
 * begin with `first_op`. */
static void compare_tensor_rank(struct pen_layout_state *l, const struct pen_op_list *of_first,
                                const struct pen_op_list *program, uint32_t rank,
                                uint32_t tensor_rank, size_t first_op) {
  if (program->count != of_first->count)
    pen_stop(PEN_EXIT_INTERNAL, "layout: tensor ranks of rank %u have other programs", rank);
  for (size_t i = 0; i < program->count; i++)
    for (uint32_t d = 0; d < PEN_DIMS_MAX; d++)
      if (program->op[i].dim[d] != of_first->op[i].dim[d])
        add_tensor_rank_dim(l->tensor_rank_dims,
                            &(struct pen_tensor_rank_dim){.profile = l->number,
                                                          .rank = rank,
                                                          .tensor_rank = tensor_rank,
                                                          .op = (uint32_t)(first_op + i),
                                                          .dim = d,
                                                          .value = program->op[i].dim[d]});
}

/* After the programs of a stage. */
static void add_tensor_rank_dims(struct pen_layout_state *l, const struct rank_tables *t,
                                 const struct pen_graph *graph) {
  for (uint32_t m = 1; m < pen_group_size(l->plan, PEN_TENSOR); m++) {
    const struct pen_graph *tensor_rank = pen_tensor_rank_graph(graph, m);
    for (int p = 0; p < PEN_PROGRAMS; p++)
      if (t->runs[graph->stage][p])
        compare_tensor_rank(l, &graph->program[p], &tensor_rank->program[p],
                            l->partition->rank_of[graph->stage], m,
                            t->program[t->program_index[graph->stage][p]].first_op);
  }
}

static void add_programs(struct pen_layout_state *l, struct rank_tables *t,
                         struct pen_collective_rows *rows, const struct pen_graph *graph) {
  static const uint8_t kind[PEN_PROGRAMS] = {PEN_F, PEN_I, PEN_W, PEN_B};
  for (int p = 0; p < PEN_PROGRAMS; p++) {
    if (!t->runs[graph->stage][p]) continue;
    PEN_RESERVE(t->program, t->program_count + 1);
    t->program[t->program_count] = (struct pen_program){
        (uint16_t)graph->stage, kind[p], (uint32_t)t->op_count, (uint32_t)graph->program[p].count,
        pen_recomputed_op_count(graph, &graph->program[p])};
    t->program_index[graph->stage][p] = (uint32_t)t->program_count++;
    add_ops(t, &graph->program[p], l->tensor_of[graph->stage]);
    pen_add_program_collectives(rows, graph, &graph->program[p],
                                t->op + t->op_count - graph->program[p].count);
  }
  add_tensor_rank_dims(l, t, graph);
}

/* The index of a frame among the distinct frames of the rank. */
static uint32_t frame_index(struct rank_tables *t, const struct pen_frame *frame) {
  if (2 * (t->frame_count + 1) > t->frame_slots) {
    pen_free(t->frame_slot);
    t->frame_slots *= 2;
    t->frame_slot = pen_new(t->frame_slots, sizeof *t->frame_slot);
    size_t count = t->frame_count;
    t->frame_count = 0;
    for (size_t i = 0; i < count; i++) frame_index(t, &t->frame[i]);
  }
  uint64_t hash = 0;
  for (size_t b = 0; b < PEN_BASES; b++)
    hash += frame->base[b] * (0x9e3779b97f4a7c15u * (2 * b + 1)); /* independent products */
  size_t slot = (hash ^ hash >> 29) >> 8 & (t->frame_slots - 1);
  for (; t->frame_slot[slot]; slot = (slot + 1) & (t->frame_slots - 1))
    if (memcmp(&t->frame[t->frame_slot[slot] - 1], frame, sizeof *frame) == 0)
      return t->frame_slot[slot] - 1;
  PEN_RESERVE(t->frame, t->frame_count + 1);
  struct pen_frame copy = *frame;
  t->frame[t->frame_count++] = copy;
  t->frame_slot[slot] = (uint32_t)t->frame_count;
  return (uint32_t)t->frame_count - 1;
}

/* Where the cache of a stage begins: after those of the earlier stages of its rank. */
static uint64_t cache_of(const struct pen_layout_state *l, uint32_t rank, uint32_t stage) {
  uint64_t offset = l->memory[rank].cache_offset;
  for (uint32_t s = 0; s < stage; s++)
    if (l->partition->rank_of[s] == rank) offset += l->buffers[s].bytes[PEN_BASE_CACHE];
  return offset;
}

/* The bases of one compute action. */
static struct pen_frame frame_of(const struct pen_layout_state *l, uint32_t rank,
                                 const struct pen_action *a, uint32_t index, uint64_t unsharded) {
  const uint64_t *place = pen_place_of(l, a->stage, a->microbatch, PEN_BASE_INPUT);
  struct pen_frame frame = {{0}};
  if (l->buffers[a->stage].bytes[PEN_BASE_UNSHARDED]) frame.base[PEN_BASE_UNSHARDED] = unsharded;
  if (l->buffers[a->stage].bytes[PEN_BASE_PARTIAL])
    frame.base[PEN_BASE_PARTIAL] = l->memory[rank].partial_offset;
  if (l->buffers[a->stage].bytes[PEN_BASE_EXCHANGE])
    frame.base[PEN_BASE_EXCHANGE] = l->memory[rank].exchange_offset;
  if (l->buffers[a->stage].bytes[PEN_BASE_CACHE])
    frame.base[PEN_BASE_CACHE] = cache_of(l, rank, a->stage);
  for (uint32_t i = 0; i < l->place_count; i++)
    if (l->buffers[a->stage].bytes[PEN_BASE_INPUT + i])
      frame.base[PEN_BASE_INPUT + i] = pen_arena_offset(l, rank, place[i]);
  frame.base[PEN_BASE_SCRATCH] = pen_arena_offset(l, rank, pen_scratch_of(l, rank, index));
  uint32_t stage = a->stage;
  if (stage && !pen_same_rank(l, stage, stage - 1)) frame.base[PEN_BASE_INPUT] = place[0];
  if (stage + 1 < l->partition->stage_count && !pen_same_rank(l, stage, stage + 1) &&
      l->input->kind == PEN_TRAIN)
    frame.base[PEN_BASE_OUTPUT_GRADIENT] = place[PEN_BASE_OUTPUT_GRADIENT - PEN_BASE_INPUT];
  if (l->buffers[stage].bytes[PEN_BASE_RESULT])
    frame.base[PEN_BASE_RESULT] = l->plan->output_offset + a->microbatch * l->plan->output_stride;
  for (uint32_t row = 0; row < pen_loss_rows(l->plan); row++)
    if (pen_loss_row_stage(l->plan, row) == stage)
      frame.base[PEN_BASE_LOSS] = pen_loss_row_offset(l->plan, row) +
                                  (uint64_t)a->microbatch * sizeof(double) -
                                  (uint64_t)row * l->plan->loss_count * sizeof(double);
  return frame;
}

/* Start ops of constants that the rank does not have yet. */
static void add_start_ops(struct pen_layout_state *l, struct rank_tables *t,
                          const struct pen_graph *graph) {
  for (size_t i = 0; i < graph->start.count; i++) {
    uint32_t tensor = l->tensor_of[graph->stage][graph->start.op[i].operand[0]];
    bool known = false;
    for (size_t k = 0; k < t->op_count; k++) known = known || t->op[k].operand[0] == tensor;
    struct pen_op_list one = {.op = &graph->start.op[i], .count = 1};
    if (!known) add_ops(t, &one, l->tensor_of[graph->stage]);
  }
}

/* The most bytes that ALL_GATHER ops of a program have gathered at one time. */
static uint64_t most_gathered_within(const struct pen_graph *graph,
                                     const struct pen_op_list *program) {
  uint32_t *last = pen_new(graph->value_count + 1, sizeof *last); /* [value] op that uses it */
  uint64_t *ends = pen_new(program->count + 1, sizeof *ends), now = 0, most = 0;
  for (uint32_t i = 0; i < program->count; i++)
    for (int k = 0; k < PEN_OPERANDS_MAX; k++)
      if (program->op[i].operand[k] != PEN_NONE) last[program->op[i].operand[k]] = i;
  for (size_t i = 0; i < program->count; i++) {
    if (program->op[i].kind == PEN_OP_ALL_GATHER) {
      uint64_t bytes = pen_aligned(graph->value[program->op[i].operand[1]].bytes);
      now += bytes;
      ends[last[program->op[i].operand[1]]] += bytes;
    }
    if (now > most) most = now;
    now -= ends[i];
  }
  pen_free(last);
  pen_free(ends);
  return most;
}

/* The most bytes of gathered weights at one time, outside the receive region; `lowered` has the
 * frames of its UNSHARD. */
static uint64_t most_gathered(const struct pen_layout_state *l, const struct rank_tables *t,
                              uint32_t rank) {
  const struct pen_lowered *lowered = l->lowered;
  uint64_t *gathered = pen_new(l->partition->stage_count, sizeof *gathered), now = 0, most = 0;
  for (uint32_t i = 0; i < lowered->count[rank]; i++) {
    const struct pen_action *a = &lowered->action[rank][i];
    if (a->kind != PEN_UNSHARD && a->kind != PEN_RESHARD) continue;
    now -= gathered[a->stage];
    gathered[a->stage] = a->kind == PEN_UNSHARD && t->frame[a->frame].base[PEN_BASE_UNSHARDED] >=
                                                       l->memory[rank].persistent_end
                             ? l->buffers[a->stage].bytes[PEN_BASE_UNSHARDED]
                             : 0;
    now += gathered[a->stage];
    if (now > most) most = now;
  }
  for (uint32_t s = 0; s < l->partition->stage_count; s++)
    for (int p = 0; p < PEN_PROGRAMS && l->partition->rank_of[s] == rank; p++) {
      uint64_t within =
          t->runs[s][p] ? most_gathered_within(l->input->graph[s], &l->input->graph[s]->program[p])
                        : 0;
      if (within > most) most = within;
    }
  pen_free(gathered);
  /* what is gathered into the receive region is not activation memory */
  const uint64_t bytes = l->memory[rank].activation_bytes - l->memory[rank].generation_bytes;
  return most < bytes ? most : bytes;
}

static void fill_rank(struct pen_layout_state *l, struct pen_rank_program *out, uint32_t rank) {
  struct pen_lowered *lowered = l->lowered;
  struct rank_tables t = {
      .program_index = pen_new(l->partition->stage_count, sizeof *t.program_index),
      .runs = pen_new(l->partition->stage_count, sizeof *t.runs)};
  uint64_t *unsharded = pen_new(l->partition->stage_count,
                                sizeof *unsharded); /* [stage]: offset of its whole weights */
  uint64_t constant_end = l->memory[rank].persistent_end - l->memory[rank].constant_bytes;
  for (t.frame_slots = 64; t.frame_slots < lowered->count[rank]; t.frame_slots *= 2)
    continue; /* about half of the actions have frames */
  t.frame_slot = pen_new(t.frame_slots, sizeof *t.frame_slot);
  for (uint32_t s = 0; s < l->partition->stage_count; s++)
    if (l->partition->rank_of[s] == rank) add_tensors(l, &t, l->input->graph[s], &constant_end);
  for (uint32_t s = 0; s < l->partition->stage_count; s++)
    if (l->partition->rank_of[s] == rank) add_start_ops(l, &t, l->input->graph[s]);
  uint32_t start_count = (uint32_t)t.op_count;
  struct pen_collective_rows rows = {.l = l, .rank = rank, .tensor = t.tensor};
  for (uint32_t s = 0; s < l->partition->stage_count; s++)
    if (l->partition->rank_of[s] == rank) add_programs(l, &t, &rows, l->input->graph[s]);
  for (uint32_t i = 0; i < lowered->count[rank]; i++) {
    struct pen_action *a = &lowered->action[rank][i];
    int program = pen_program_of(a->kind);
    if (a->kind == PEN_UNSHARD) {
      unsharded[a->stage] = pen_arena_offset(l, rank, l->unsharded[rank][i]);
      a->frame =
          frame_index(&t, &(struct pen_frame){.base[PEN_BASE_UNSHARDED] = unsharded[a->stage]});
    }
    if (pen_kind_is_collective(a->kind) && pen_group_size(l->plan, PEN_DATA) > 1)
      a->collective = pen_action_collective(&rows, a);
    if (program < 0) continue;
    a->program = t.program_index[a->stage][program];
    struct pen_frame frame = frame_of(l, rank, a, i, unsharded[a->stage]);
    a->frame = frame_index(&t, &frame);
  }
  const uint32_t first_exchange = (uint32_t)rows.collective_count,
                 exchanges = l->input->kind == PEN_TRAIN ? pen_add_matrix_exchanges(&rows) : 0;
  if (!l->before) l->memory[rank].gathered_bytes = most_gathered(l, &t, rank);
  pen_free(t.frame_slot);
  pen_free(t.program_index);
  pen_free(t.runs);
  pen_free(unsharded);
  *out = (struct pen_rank_program){lowered->action[rank],
                                   t.program,
                                   t.op,
                                   t.tensor,
                                   t.frame,
                                   rows.collective,
                                   rows.put,
                                   lowered->count[rank],
                                   (uint32_t)t.program_count,
                                   (uint32_t)t.op_count,
                                   (uint32_t)t.tensor_count,
                                   (uint32_t)t.frame_count,
                                   0,
                                   start_count,
                                   (uint32_t)rows.collective_count,
                                   (uint32_t)rows.put_count,
                                   rows.event_count,
                                   exchanges ? first_exchange : 0,
                                   exchanges};
}

/* Sets the offsets of a message of a tied weight, those of its first split; false: it is no such
 * message. */
static bool place_tied(struct pen_layout_state *l, struct pen_message *message) {
  const struct pen_tie *tie = l->ties;
  if (message->kind == PEN_SEND_G) {
    message->source_offset = tie->gradient_offset; /* its target is a receive slot */
  } else if (message->kind == PEN_SEND_V) {
    const struct pen_weight *weight = &l->weights[tie->weight];
    message->source_offset = tie->dtype == PEN_BF16 ? weight->bf16_offset : weight->value_offset;
    message->target_offset = tie->value_offset;
  }
  return message->kind == PEN_SEND_G || message->kind == PEN_SEND_V;
}

/* Sets the source offset of each message: that of the output in the sender's arena. */
static void place_sources(struct pen_layout_state *l) {
  struct pen_lowered *lowered = l->lowered;
  for (uint32_t m = 0; m < lowered->message_count; m++) {
    struct pen_message *message = &lowered->message[m];
    if (place_tied(l, message)) continue;
    int base = message->kind == PEN_SEND_F ? PEN_BASE_OUTPUT : PEN_BASE_INPUT_GRADIENT;
    message->source_offset =
        pen_arena_offset(l, l->partition->rank_of[message->stage],
                         *pen_place_of(l, message->stage, message->microbatch, base));
  }
}

static uint32_t tensor_index(const struct pen_layout_state *l, uint32_t stage, uint32_t value) {
  return value == PEN_NONE ? PEN_NONE : l->tensor_of[stage][value];
}

struct pen_profile pen_profile_tables(struct pen_layout_state *l) {
  const struct pen_partition *partition = l->partition;
  l->tensor_of = pen_new(partition->stage_count, sizeof *l->tensor_of);
  struct pen_rank_program *ranks = pen_new(partition->rank_count, sizeof *ranks);
  struct pen_stage *stages = pen_new(partition->stage_count, sizeof *stages);
  for (uint32_t r = 0; r < partition->rank_count; r++) fill_rank(l, &ranks[r], r);
  place_sources(l);
  for (uint32_t s = 0; s < partition->stage_count; s++) {
    const struct pen_graph *graph = l->input->graph[s];
    stages[s] =
        (struct pen_stage){partition->rank_of[s],
                           partition->stages.span[s].first_layer,
                           partition->stages.span[s].past_last_layer,
                           tensor_index(l, s, graph->input),
                           tensor_index(l, s, graph->output),
                           tensor_index(l, s, graph->output_gradient),
                           tensor_index(l, s, graph->input_gradient),
                           graph->recompute,
                           partition->stages.block[partition->stages.span[s].first_block].name};
  }
  pen_free(l->places);
  pen_free(l->stage_actions);
  const struct pen_lowered *lowered = l->lowered;
  return (struct pen_profile){l->input->name,
                              (uint8_t)l->input->kind,
                              stages,
                              lowered->message,
                              lowered->channel,
                              ranks,
                              lowered->message_count,
                              lowered->channel_count,
                              partition->microbatch_count,
                              (uint32_t)l->topology->sequence,
                              (uint32_t)l->topology->cached_prompts};
}
