/* collectives.c: fills the tables `collectives` and `puts` of a rank (see collectives.h).
 *
 * Consecutive ALL_GATHER ops, or REDUCE_SCATTER ops, are one collective, and so are the parts of an
 * exchange between tensor ranks. Collectives of programs that follow each other directly are a
 * sequence, which runs beside kernels up to a WAIT_EVENT. */
#include "gen/layout/collectives.h"

#include "gen/base/arena.h"
#include "gen/model/exchanges.h"
#include "gen/model/op_signature.h"
#include "runtime/plan/shard.h"

static uint32_t add_collective(struct pen_collective_rows *rows, struct pen_collective collective) {
  rows->collective = pen_grow(rows->collective, &rows->collective_capacity,
                              rows->collective_count + 1, sizeof *rows->collective);
  collective.first_put = (uint32_t)rows->put_count;
  collective.event = PEN_NONE;
  rows->collective[rows->collective_count] = collective;
  return (uint32_t)rows->collective_count++;
}

/* Adds a put to the last collective. */
static void add_put(struct pen_collective_rows *rows, struct pen_put put) {
  rows->put = pen_grow(rows->put, &rows->put_capacity, rows->put_count + 1, sizeof *rows->put);
  rows->put[rows->put_count++] = put;
  rows->collective[rows->collective_count - 1].put_count++;
}

/* ---- programs ---- */

/* A program while its collectives are added. */
struct program_rows {
  struct pen_collective_rows *rows;
  const struct pen_graph *graph;
  struct pen_op *op;
  size_t count;
  uint32_t signalled; /* SIGNAL_PEERS so far */
  uint64_t staged;    /* of the collective: bytes of staging memory of one other member so far */
  uint32_t *last_of;  /* [tensor]: the last collective of the sequence that names it last */
};

static bool is_beside_kernels(int kind) {
  return kind == PEN_OP_ALL_GATHER || kind == PEN_OP_REDUCE_SCATTER ||
         kind == PEN_OP_SIGNAL_PEERS || kind == PEN_OP_WAIT_PEERS;
}

/* The index of a weight of the stage: of the head's weight that is the embedding's, that one. */
static uint32_t weight_index(const struct pen_layout_state *l, const struct pen_graph *graph,
                             uint32_t weight) {
  return pen_is_tied_head(graph, weight) ? l->ties[weight - graph->tied].weight
                                         : l->first_weight[graph->stage] + weight;
}

static struct pen_put put_of(const struct program_rows *p, const struct pen_op *op, int kind,
                             int group) {
  const struct pen_tensor *from = &p->rows->tensor[op->operand[0]],
                          *to = &p->rows->tensor[op->operand[1]];
  return (struct pen_put){.kind = (uint8_t)kind,
                          .group = (uint8_t)group,
                          .dtype = op->dtype,
                          .from_base = from->base,
                          .from = from->offset,
                          .to_base = to->base,
                          .to = to->offset,
                          .weight = PEN_NONE};
}

/* The shards of a weight; `value`: the shard, or the sum. */
static void add_shards(struct program_rows *p, const struct pen_op *op, uint32_t value) {
  const struct pen_layout_state *l = p->rows->l;
  const bool adds = op->kind == PEN_OP_REDUCE_SCATTER;
  struct pen_put put = put_of(p, op, adds ? PEN_PUT_ADD : PEN_PUT_READ, PEN_SHARD);
  put.weight = weight_index(l, p->graph, p->graph->value[value].weight);
  put.from_sharded = !adds;
  put.to_sharded = adds && l->weights[put.weight].gradient_sharded;
  if (adds) {
    put.staging = p->staged;
    p->staged += pen_shard_bytes((uint64_t)op->dim[0], pen_group_size(l->plan, PEN_SHARD));
  }
  add_put(p->rows, put);
}

/* Ops of one kind, from op `first` on; past the last. */
static size_t add_group(struct program_rows *p, const struct pen_op_list *program, size_t first) {
  const int kind = p->op[first].kind;
  const bool adds = kind == PEN_OP_REDUCE_SCATTER;
  const uint32_t collective = add_collective(
      p->rows, (struct pen_collective){.group = PEN_DATA, .waits = !adds, .together = true});
  const size_t first_put = p->rows->put_count;
  size_t i = first;
  for (p->staged = 0; i < p->count && p->op[i].kind == kind; i++) {
    add_shards(p, &p->op[i], program->op[i].operand[adds ? 1 : 0]);
    p->op[i].collective = collective;
  }
  for (size_t put = first_put; put < p->rows->put_count; put++)
    p->rows->put[put].staging_stride = p->staged;
  return i;
}

/* A signal, or a wait for one. */
static void add_signal(struct program_rows *p, struct pen_op *op) {
  const bool waits = op->kind == PEN_OP_WAIT_PEERS;
  p->signalled += !waits;
  op->collective =
      add_collective(p->rows, (struct pen_collective){.group = PEN_DATA,
                                                      .waits = waits,
                                                      .awaited = waits ? p->signalled : 0,
                                                      .completes = !waits});
}

/* A sequence of collectives from op `first` on; past the last. */
static size_t add_sequence(struct program_rows *p, const struct pen_op_list *program,
                           size_t first) {
  struct pen_collective_rows *rows = p->rows;
  const size_t begin = rows->collective_count;
  size_t i = first;
  while (i < p->count && is_beside_kernels(p->op[i].kind)) {
    const bool signals = p->op[i].kind == PEN_OP_SIGNAL_PEERS || p->op[i].kind == PEN_OP_WAIT_PEERS;
    if (signals) add_signal(p, &p->op[i]);
    i = signals ? i + 1 : add_group(p, program, i);
  }
  rows->collective[begin].begins = true;
  rows->collective[rows->collective_count - 1].event = rows->event_count++;
  for (size_t k = first; k < i; k++)
    if (p->op[k].kind == PEN_OP_ALL_GATHER || p->op[k].kind == PEN_OP_REDUCE_SCATTER)
      p->last_of[p->op[k].operand[p->op[k].kind == PEN_OP_ALL_GATHER ? 1 : 0]] =
          (uint32_t)rows->collective_count - 1;
  return i;
}

/* The blocks of an exchange whose first op is this one. */
static struct pen_put exchange_put(const struct program_rows *p, const struct pen_op *op) {
  const struct pen_layout_state *l = p->rows->l;
  const uint64_t slot_bytes = l->memory[p->rows->rank].exchange_bytes /
                              (2 * (uint64_t)pen_group_size(l->plan, PEN_TENSOR)),
                 element_bytes = pen_dtype_bytes(op->dtype);
  struct pen_put put = put_of(p, op, PEN_PUT_WRITE, PEN_TENSOR);
  put.to_member = slot_bytes;
  put.count = 1;
  put.bytes = (uint64_t)op->dim[0] * element_bytes;
  if (op->kind == PEN_OP_ALL_GATHER_PART) return put; /* all of x */
  put.count = (uint64_t)op->dim[0];
  put.bytes = (uint64_t)op->dim[1] * element_bytes;
  const uint64_t sequence_bytes = (uint64_t)op->dim[2] * put.bytes;
  if (op->kind == PEN_OP_ALL_TO_ALL_PART) { /* of each sequence the receiver's tokens */
    put.from_stride = sequence_bytes;
    put.to_stride = put.from_member = put.bytes;
  } else { /* the tokens of each sequence to their place between those of the others */
    put.from_stride = put.to_member = put.bytes;
    put.to_stride = sequence_bytes;
  }
  return put;
}

/* An exchange between tensor ranks, or the last signal of a program; past its ops. */
static size_t add_exchange(struct program_rows *p, const struct pen_op_list *program,
                           size_t first) {
  const struct pen_exchange exchange = pen_exchange_at(p->graph, program, first);
  const uint32_t collective = add_collective(
      p->rows, (struct pen_collective){
                   .group = PEN_TENSOR, .waits = true, .completes = true, .together = true});
  const size_t past = first + (exchange.op_count ? exchange.op_count : 1);
  if (exchange.op_count) add_put(p->rows, exchange_put(p, &p->op[first]));
  for (size_t i = first; i < past; i++) p->op[i].collective = collective;
  return past;
}

void pen_add_program_collectives(struct pen_collective_rows *rows, const struct pen_graph *graph,
                                 const struct pen_op_list *program, struct pen_op *op) {
  uint32_t tensors = 0;
  for (size_t i = 0; i < program->count; i++)
    for (int k = 0; k < PEN_OPERANDS_MAX; k++)
      if (op[i].operand[k] != PEN_NONE && op[i].operand[k] >= tensors)
        tensors = op[i].operand[k] + 1;
  struct program_rows p = {.rows = rows,
                           .graph = graph,
                           .op = op,
                           .count = program->count,
                           .last_of = pen_new((size_t)tensors + 1, sizeof *p.last_of)};
  for (size_t i = 0; i < program->count;) {
    if (is_beside_kernels(op[i].kind)) {
      i = add_sequence(&p, program, i);
    } else if (pen_op_exchanges(op[i].kind) || op[i].kind == PEN_OP_SIGNAL_MEMBERS) {
      i = add_exchange(&p, program, i);
    } else {
      if (op[i].kind == PEN_OP_WAIT_EVENT) op[i].collective = p.last_of[op[i].operand[0]];
      i++;
    }
  }
  pen_free(p.last_of);
}

/* ---- actions ---- */

static struct pen_put persistent_put(int kind, int group, int dtype, uint32_t weight,
                                     uint64_t offset, bool is_sharded) {
  return (struct pen_put){.kind = (uint8_t)kind,
                          .group = (uint8_t)group,
                          .dtype = (uint8_t)dtype,
                          .from_base = PEN_BASE_PERSISTENT,
                          .from = offset,
                          .to_base = PEN_BASE_PERSISTENT,
                          .to = offset,
                          .weight = weight,
                          .from_sharded = is_sharded,
                          .to_sharded = is_sharded};
}

/* What an action moves of a weight that is trained. */
static void add_weight(struct pen_collective_rows *rows, int kind, uint32_t index) {
  const struct pen_plan *plan = rows->l->plan;
  const struct pen_weight *w = &rows->l->weights[index];
  const bool adds = kind == PEN_REDUCE_SCATTER || kind == PEN_REDUCE_GROUPS,
             grouped = kind == PEN_REDUCE_GROUPS || kind == PEN_GATHER_GROUPS;
  if (kind == PEN_ALL_GATHER_WEIGHT) {
    if (!w->value_sharded)
      add_put(rows,
              persistent_put(PEN_PUT_READ, PEN_SHARD, PEN_F32, index, w->value_offset, false));
    if (w->bf16_offset != UINT64_MAX && !w->bf16_sharded)
      add_put(rows,
              persistent_put(PEN_PUT_READ, PEN_SHARD, PEN_BF16, index, w->bf16_offset, false));
    return;
  }
  struct pen_put put =
      persistent_put(adds ? PEN_PUT_ADD : PEN_PUT_READ, grouped ? PEN_SAME_SHARD : PEN_SHARD,
                     PEN_F32, index, w->gradient_offset, w->gradient_sharded);
  if (adds)
    put.staging_stride = pen_shard_bytes(pen_shard_most_of(plan, index),
                                         grouped ? pen_group_size(plan, PEN_SAME_SHARD) : 1);
  add_put(rows, put);
}

/* What programs of the stage read of its sharded weights. */
static void add_unsharded(struct pen_collective_rows *rows, uint32_t stage) {
  const struct pen_layout_state *l = rows->l;
  const struct pen_graph *graph = l->input->graph[stage];
  for (uint32_t v = 0; v < graph->value_count; v++) {
    const uint32_t tensor = l->tensor_of[stage][v];
    if (tensor == PEN_NONE || rows->tensor[tensor].base != PEN_BASE_UNSHARDED) continue;
    const uint32_t index = l->first_weight[stage] + graph->value[v].weight;
    const struct pen_weight *w = &l->weights[index];
    const uint8_t dtype = rows->tensor[tensor].dtype;
    struct pen_put put = persistent_put(PEN_PUT_READ, PEN_SHARD, dtype, index,
                                        dtype == PEN_BF16 ? w->bf16_offset : w->value_offset, true);
    put.to_base = PEN_BASE_UNSHARDED;
    put.to = rows->tensor[tensor].offset;
    put.to_sharded = false;
    add_put(rows, put);
  }
}

static uint32_t add_action(struct pen_collective_rows *rows, int kind, uint32_t stage) {
  const struct pen_layout_state *l = rows->l;
  const bool adds = kind == PEN_REDUCE_SCATTER || kind == PEN_REDUCE_GROUPS;
  const uint32_t collective = add_collective(
      rows, (struct pen_collective){
                .group = PEN_DATA, .waits = true, .completes = true, .together = !adds});
  if (kind == PEN_UNSHARD) {
    add_unsharded(rows, stage);
  } else if (pen_kind_reads_peers(kind)) {
    for (uint32_t w = 0; w < l->plan->weight_count; w++)
      if (l->weights[w].stage == stage && l->weights[w].rank == rows->rank &&
          pen_first_member(l->plan, &l->weights[w]) == 0 && !l->weights[w].frozen)
        add_weight(rows, kind, w);
  }
  return collective;
}

uint32_t pen_action_collective(struct pen_collective_rows *rows, const struct pen_action *action) {
  uint32_t **known = &rows->known[action->kind];
  if (!*known) *known = pen_new(rows->l->partition->stage_count, sizeof **known);
  uint32_t *row = &(*known)[action->stage];
  if (!*row) *row = add_action(rows, action->kind, action->stage) + 1;
  return *row - 1;
}
