/* collectives.c: fills the tables `collectives` and `puts` of a rank (see collectives.h).
 *
 * Consecutive ALL_GATHER ops, or REDUCE_SCATTER ops, are one collective, and so are the parts of an
 * exchange between tensor ranks. Collectives of programs that follow each other directly are a
 * sequence, which runs beside kernels up to a WAIT_EVENT. */
#include "gen/layout/collectives.h"

#include "gen/base/arena.h"
#include "gen/model/exchanges.h"
#include "gen/partition/puts.h"

uint32_t pen_add_collective(struct pen_collective_rows *rows, struct pen_collective collective) {
  PEN_RESERVE(rows->collective, rows->collective_count + 1);
  collective.first_put = (uint32_t)rows->put_count;
  collective.event = PEN_NONE;
  rows->collective[rows->collective_count] = collective;
  return (uint32_t)rows->collective_count++;
}

void pen_add_put(struct pen_collective_rows *rows, struct pen_put put) {
  PEN_RESERVE(rows->put, rows->put_count + 1);
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

/* What an op moves, from its first operand to its second. `named` has the graph's values. */
static struct pen_put placed_put(const struct program_rows *p, const struct pen_op *op,
                                 const struct pen_op *named) {
  const struct pen_put_source source = pen_put_source_of(p->rows->l, p->graph->stage);
  const struct pen_tensor *from = &p->rows->tensor[op->operand[0]],
                          *to = &p->rows->tensor[op->operand[1]];
  struct pen_put put = pen_put_of_op(&source, named);
  put.from_base = from->base;
  put.from = from->offset;
  put.to_base = to->base;
  put.to = to->offset;
  return put;
}

/* The shards of a weight; of the head's that is the embedding's, of that one. */
static void add_shards(struct program_rows *p, const struct pen_op *op,
                       const struct pen_op *named) {
  const struct pen_layout_state *l = p->rows->l;
  struct pen_put put = placed_put(p, op, named);
  const uint32_t weight = put.weight - l->first_weight[p->graph->stage];
  if (pen_is_tied_head(p->graph, weight)) put.weight = l->ties[weight - p->graph->tied].weight;
  if (put.kind == PEN_PUT_ADD) put.staging = p->staged;
  p->staged += pen_staging_bytes(l->partition, &put, &p->graph->weight[weight]);
  pen_add_put(p->rows, put);
}

/* Ops of one kind, from op `first` on; past the last. */
static size_t add_group(struct program_rows *p, const struct pen_op_list *program, size_t first) {
  const int kind = p->op[first].kind;
  const bool adds = kind == PEN_OP_REDUCE_SCATTER;
  const uint32_t collective = pen_add_collective(
      p->rows, (struct pen_collective){.group = PEN_DATA, .waits = !adds, .together = true});
  const size_t first_put = p->rows->put_count;
  size_t i = first;
  for (p->staged = 0; i < p->count && p->op[i].kind == kind; i++) {
    add_shards(p, &p->op[i], &program->op[i]);
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
      pen_add_collective(p->rows, (struct pen_collective){.group = PEN_DATA,
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
static struct pen_put exchange_put(const struct program_rows *p, const struct pen_op *op,
                                   const struct pen_op *named) {
  const struct pen_layout_state *l = p->rows->l;
  struct pen_put put = placed_put(p, op, named);
  if (op->kind != PEN_OP_ALL_GATHER_SEQUENCE)
    put.to_member = l->memory[p->rows->rank].exchange_bytes /
                    (2 * (uint64_t)pen_group_size(l->plan, PEN_TENSOR));
  return put;
}

/* An exchange between tensor ranks, or the last signal of a program; past its ops. */
static size_t add_exchange(struct program_rows *p, const struct pen_op_list *program,
                           size_t first) {
  const size_t ops = pen_exchange_ops(p->graph, &program->op[first]);
  const uint32_t collective = pen_add_collective(
      p->rows, (struct pen_collective){
                   .group = PEN_TENSOR, .waits = true, .completes = true, .together = true});
  const size_t past = first + (ops ? ops : 1);
  if (ops) pen_add_put(p->rows, exchange_put(p, &p->op[first], &program->op[first]));
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
    } else if (pen_op_exchanges(op[i].kind) || op[i].kind == PEN_OP_SIGNAL_TENSOR) {
      i = add_exchange(&p, program, i);
    } else {
      if (op[i].kind == PEN_OP_WAIT_EVENT) op[i].collective = p.last_of[op[i].operand[0]];
      i++;
    }
  }
  pen_free(p.last_of);
}

/* ---- actions ---- */

/* Where a replica keeps the tensor of a weight that an action moves; UNSHARD: in its buffer. */
static void place_put(struct pen_collective_rows *rows, int kind, uint32_t stage,
                      const struct pen_stage_put *of) {
  const struct pen_layout_state *l = rows->l;
  const struct pen_weight *w = &l->weights[of->row.weight];
  const bool gathers = kind == PEN_UNSHARD || kind == PEN_ALL_GATHER_WEIGHT;
  struct pen_put put = of->row;
  put.from_base = put.to_base = PEN_BASE_PERSISTENT;
  put.from = put.to = !gathers                ? w->gradient_offset
                      : put.dtype == PEN_BF16 ? w->bf16_offset
                                              : w->value_offset;
  if (kind == PEN_UNSHARD) {
    put.to_base = PEN_BASE_UNSHARDED;
    put.to = rows->tensor[l->tensor_of[stage][of->value]].offset;
  }
  put.staging_stride = pen_staging_bytes(l->partition, &put, w);
  pen_add_put(rows, put);
}

static uint32_t add_action(struct pen_collective_rows *rows, int kind, uint32_t stage) {
  const bool adds = kind == PEN_REDUCE_SCATTER || kind == PEN_REDUCE_GROUPS;
  const uint32_t collective = pen_add_collective(
      rows, (struct pen_collective){
                .group = PEN_DATA, .waits = true, .completes = true, .together = !adds});
  const struct pen_put_source source = pen_put_source_of(rows->l, stage);
  struct pen_stage_puts list = {.count = 0};
  pen_list_puts(&source, kind, &list);
  for (size_t i = 0; i < list.count; i++) place_put(rows, kind, stage, &list.put[i]);
  pen_free(list.put);
  return collective;
}

uint32_t pen_action_collective(struct pen_collective_rows *rows, const struct pen_action *action) {
  uint32_t **known = &rows->known[action->kind];
  if (!*known) *known = pen_new(rows->l->partition->stage_count, sizeof **known);
  uint32_t *row = &(*known)[action->stage];
  if (!*row) *row = add_action(rows, action->kind, action->stage) + 1;
  return *row - 1;
}
