/* moves.c: do the rows of the collectives move the bytes that their ops and actions need, and no
 * others?
 *
 * The other checks take ops and actions by their meanings (ops.def, actions.def). Here each is
 * compared with its row of `collectives` and of `puts`, which the runtime runs. The rule, with
 * which its messages begin:
 *
 *   moved   a row waits, signals and forks as its op or action does, and its puts are those that
 *           follow from the op's dims and operands, or from the weights of the action's stage: each
 *           once, in order, of the right group, bytes, places and cuts. The first op of a
 *           collective has another row than the op before it, since it runs all. By the
 *           exchanges of UPDATE all splits of each matrix of Muon come to one tensor rank, which
 *           has no other then, and go back (matrix_moves.c). Where members cannot read each
 *           other's memory, what comes at one time has its own staging memory */
#include "gen/base/arena.h"
#include "gen/model/gradient_rules.h"
#include "gen/model/op_signature.h"
#include "gen/verify/collective_rows.h"
#include "gen/verify/internal.h"
#include "gen/verify/matrix_moves.h"
#include "runtime/plan/plan.h"
#include "runtime/plan/puts.h"
#include "runtime/plan/shard.h"

/* ---- exchanges between tensor ranks ---- */

/* What an op brings from the tensors that its operands name, with a place of its own. */
static struct pen_put between_operands(const struct pen_moves *m, const struct pen_op *op, int kind,
                                       int group) {
  const struct pen_tensor *from = &m->b->tables->tensors[op->operand[0]],
                          *to = &m->b->tables->tensors[op->operand[1]];
  return (struct pen_put){.kind = (uint8_t)kind,
                          .group = (uint8_t)group,
                          .dtype = op->dtype,
                          .from_base = from->base,
                          .from = from->offset,
                          .to_base = to->base,
                          .to = to->offset,
                          .weight = PEN_NONE};
}

static int64_t dim_of(const struct pen_op *op, const char *name) {
  return op->dim[pen_signature_dim(pen_signature_of(op->kind), name)];
}

bool pen_puts_values(int kind) {
  return kind == PEN_OP_ALL_GATHER_PARTIAL || kind == PEN_OP_ALL_TO_ALL_PARTIAL ||
         kind == PEN_OP_ALL_GATHER_SEQUENCE;
}

/* Is the op after `op` the part of the next tensor rank in the same exchange? */
static bool continues(const struct pen_op *op) {
  return op[1].kind == op->kind && op[1].operand[0] == op->operand[0] &&
         pen_op_tensor_rank(op[1].kind, op[1].dim) == pen_op_tensor_rank(op->kind, op->dim) + 1;
}

/* The parts of an exchange follow each other, by rising tensor rank, and fill slots. Null, or what
 * is wrong with an op. */
static const char *wrong_part(const struct pen_rank_context *b, uint32_t index) {
  const struct pen_op *op = &b->tables->ops[index];
  const uint32_t members = pen_group_size(b->plan, PEN_TENSOR),
                 member = pen_op_tensor_rank(op->kind, op->dim);
  const bool puts = pen_puts_values(op->kind);
  if (!puts && op->kind != PEN_OP_SIGNAL_TENSOR) return NULL;
  if (members == 1) return "which sends to other tensor ranks, but there is one";
  if (member == 0 && index > 0 &&
      pen_collective_of(b->tables, op - 1) == pen_collective_of(b->tables, op))
    return "which is of the collective of the op before it";
  if (puts && b->tables->tensors[op->operand[1]].base != PEN_BASE_EXCHANGE)
    return "whose output is not in a slot";
  return puts && op->kind != PEN_OP_ALL_GATHER_SEQUENCE &&
                 (member >= members || (member > 0 && (index == 0 || !continues(op - 1))) ||
                  (member + 1 < members && (index + 1 == b->tables->op_count || !continues(op))))
             ? "which is not beside the parts of the other tensor ranks"
             : NULL;
}

/* Slots of consecutive members follow each other. */
static struct pen_put blocks_of(const struct pen_moves *m, const struct pen_op *op) {
  const uint64_t element = pen_dtype_bytes(op->dtype);
  const struct pen_rank_program *tables = m->b->tables;
  struct pen_put put = between_operands(m, op, PEN_PUT_WRITE, PEN_TENSOR);
  if (op->kind == PEN_OP_ALL_GATHER_PARTIAL) {
    put.count = 1;
    put.bytes = (uint64_t)dim_of(op, "count") * element;
  } else {
    const uint64_t part = (uint64_t)dim_of(op, "part") * element,
                   whole = (uint64_t)dim_of(op, "tensor_ranks") * part;
    const bool gathers = op->kind == PEN_OP_ALL_GATHER_SEQUENCE;
    put.count = (uint64_t)dim_of(op, "batch");
    put.bytes = part;
    put.from_stride = gathers ? part : whole;
    put.to_stride = gathers ? whole : part;
    put.from_member = gathers ? 0 : part;
    put.to_member = gathers ? part : 0;
  }
  if (op->kind != PEN_OP_ALL_GATHER_SEQUENCE)
    put.to_member = tables->tensors[op[1].operand[1]].offset - put.to;
  return put;
}

/* The exchange that begins with an op; past it. */
static bool check_exchange(struct pen_moves *m, uint32_t *op) {
  static const struct pen_frame frame = {{0}};
  const struct pen_op *ops = m->b->tables->ops, *first = &ops[*op];
  const bool puts = pen_puts_values(first->kind);
  const uint32_t parts = puts && first->kind != PEN_OP_ALL_GATHER_SEQUENCE
                             ? pen_group_size(m->b->plan, PEN_TENSOR)
                             : 1;
  if (puts) pen_need_put(m, blocks_of(m, first));
  for (uint32_t k = 1; k < parts; k++)
    if (first[k].collective != first->collective ||
        m->b->tables->tensors[first[k].operand[1]].offset !=
            pen_move_of(m->b->plan, m->put, &frame, 0, k, 0).to)
      return PEN_MOVES_PROBLEM(m, "begins an exchange, but part %u is of another, or elsewhere", k);
  *op += parts;
  return pen_check_collective_row(
      m, first->collective,
      &(struct pen_collective){
          .group = PEN_TENSOR, .waits = true, .completes = true, .event = PEN_NONE});
}

/* ---- collectives of data ranks in programs ---- */

static bool is_beside_kernels(const struct pen_moves *m, const struct pen_op *op) {
  return pen_collective_of(m->b->tables, op) && !pen_puts_values(op->kind) &&
         op->kind != PEN_OP_SIGNAL_TENSOR;
}

static bool moves_elements(const struct pen_op *op) {
  return op->kind == PEN_OP_ALL_GATHER || op->kind == PEN_OP_REDUCE_SCATTER;
}

static void need_elements(struct pen_moves *m, const struct pen_op *op) {
  const struct pen_plan *plan = m->b->plan;
  const bool adds = op->kind == PEN_OP_REDUCE_SCATTER;
  struct pen_put put = between_operands(m, op, adds ? PEN_PUT_ADD : PEN_PUT_READ, PEN_SHARD);
  uint32_t weight = m->b->weight[op->operand[adds ? 1 : 0]];
  if (weight >= plan->weight_count) weight = plan->ties[weight - plan->weight_count].weight;
  put.weight = weight;
  put.from_sharded = !adds;
  put.to_sharded = adds && plan->weights[weight].gradient_sharded;
  pen_need_put(m, put);
}

/* The collective that begins with an op of a sequence from `first` to before `past`. */
static bool check_in_sequence(struct pen_moves *m, uint32_t first, uint32_t past, uint32_t signals,
                              uint32_t *op) {
  const struct pen_op *ops = m->b->tables->ops;
  const uint32_t begin = *op;
  const int kind = ops[begin].kind;
  const struct pen_collective *row = &m->b->tables->collectives[ops[begin].collective];
  do {
    if (moves_elements(&ops[*op])) need_elements(m, &ops[*op]);
    if (ops[*op].collective != ops[begin].collective)
      return PEN_MOVES_PROBLEM(m, "begins a collective, but op %u is of another", *op);
    ++*op;
  } while (moves_elements(&ops[begin]) && *op < past && ops[*op].kind == kind);
  const struct pen_collective needed = {
      .group = PEN_DATA,
      .waits = kind == PEN_OP_ALL_GATHER || kind == PEN_OP_WAIT_PEERS,
      .awaited = kind == PEN_OP_WAIT_PEERS && row->awaited <= signals ? row->awaited : 0,
      .completes = kind == PEN_OP_SIGNAL_PEERS,
      .begins = begin == first,
      .event = *op == past ? 0 : PEN_NONE};
  return pen_check_collective_row(m, ops[begin].collective, &needed);
}

/* A sequence that begins with an op; past it. `last` [tensor]: the last collective of the sequence
 * that named it last. */
static bool check_sequence(struct pen_moves *m, uint32_t *op, uint32_t program_past,
                           uint32_t *signals, uint32_t *last) {
  const struct pen_op *ops = m->b->tables->ops;
  const uint32_t first = *op;
  uint32_t past = first;
  while (past < program_past && is_beside_kernels(m, &ops[past])) past++;
  for (uint32_t i = first; i < past; i++)
    if (moves_elements(&ops[i]))
      last[ops[i].operand[ops[i].kind == PEN_OP_ALL_GATHER ? 1 : 0]] = ops[past - 1].collective;
  while (*op < past) {
    m->index = *op;
    m->owner = *op + 1u;
    *signals += ops[*op].kind == PEN_OP_SIGNAL_PEERS;
    if (!check_in_sequence(m, first, past, *signals, op)) return false;
  }
  return true;
}

/* ---- programs ---- */

static bool check_program(struct pen_moves *m, const struct pen_program *program, uint32_t *last) {
  const struct pen_op *ops = m->b->tables->ops;
  const uint32_t past = program->first_op + program->op_count;
  uint32_t signals = 0;
  m->what = "op";
  for (uint32_t i = 0; i < m->b->tables->tensor_count; i++) last[i] = PEN_NONE;
  for (uint32_t op = program->first_op; op < past;) {
    const struct pen_collective *row = pen_collective_of(m->b->tables, &ops[op]);
    m->index = op;
    m->owner = op + 1u;
    if (row && op > 0 && pen_collective_of(m->b->tables, &ops[op - 1]) == row)
      return PEN_MOVES_PROBLEM(m, "is of the collective of the op before it%s", "");
    if (ops[op].kind == PEN_OP_WAIT_EVENT && ops[op].collective != last[ops[op].operand[0]])
      return PEN_MOVES_PROBLEM(m, "waits for collective %u, which is not the last of its tensor",
                               ops[op].collective);
    if (!row)
      op++;
    else if (is_beside_kernels(m, &ops[op]) ? !check_sequence(m, &op, past, &signals, last)
                                            : !check_exchange(m, &op))
      return false;
  }
  return true;
}

/* ---- actions ---- */

/* What an action makes complete of a trained weight: its gradient's sum over the members of a
 * group, on one of them; that sum on all; the value, and its copy, that only the owner has
 * updated. */
static void need_weight(struct pen_moves *m, int kind, uint32_t index) {
  const struct pen_weight *w = &m->b->plan->weights[index];
  const bool grouped = kind == PEN_REDUCE_GROUPS || kind == PEN_GATHER_GROUPS,
             adds = kind == PEN_REDUCE_GROUPS || kind == PEN_REDUCE_SCATTER;
  if (kind != PEN_ALL_GATHER_WEIGHT) {
    pen_need_put(
        m, pen_put_in_place(adds ? PEN_PUT_ADD : PEN_PUT_READ, grouped ? PEN_SAME_SHARD : PEN_SHARD,
                            PEN_F32, index, w->gradient_offset, w->gradient_sharded));
    return;
  }
  if (!w->value_sharded)
    pen_need_put(m,
                 pen_put_in_place(PEN_PUT_READ, PEN_SHARD, PEN_F32, index, w->value_offset, false));
  if (w->bf16_offset != UINT64_MAX && !w->bf16_sharded)
    pen_need_put(m,
                 pen_put_in_place(PEN_PUT_READ, PEN_SHARD, PEN_BF16, index, w->bf16_offset, false));
}

/* Every tensor of the stage that is made whole between UNSHARD and RESHARD. */
static void need_unsharded(struct pen_moves *m, uint32_t stage) {
  const struct pen_rank_context *b = m->b;
  for (uint32_t t = 0; t < b->tables->tensor_count; t++) {
    const struct pen_tensor *tensor = &b->tables->tensors[t];
    if (tensor->base != PEN_BASE_UNSHARDED || b->plan->weights[b->weight[t]].stage != stage)
      continue;
    const struct pen_weight *w = &b->plan->weights[b->weight[t]];
    struct pen_put put =
        pen_put_in_place(PEN_PUT_READ, PEN_SHARD, tensor->dtype, b->weight[t],
                         tensor->dtype == PEN_BF16 ? w->bf16_offset : w->value_offset, true);
    put.to_base = PEN_BASE_UNSHARDED;
    put.to = tensor->offset;
    put.to_sharded = false;
    pen_need_put(m, put);
  }
}

static bool check_action(struct pen_moves *m, uint32_t index) {
  const struct pen_rank_context *b = m->b;
  const struct pen_action *action = &b->tables->actions[index];
  if (!pen_kind_is_collective(action->kind) || pen_group_size(b->plan, PEN_DATA) == 1) return true;
  m->what = "action";
  m->owner = UINT64_MAX - ((uint64_t)action->kind << 32) - action->stage;
  m->index = m->action = index;
  if (action->kind == PEN_UNSHARD)
    need_unsharded(m, action->stage);
  else
    for (uint32_t n = 0; n < b->own_weight_count && pen_kind_reads_peers(action->kind); n++)
      if (b->plan->weights[b->own_weight[n]].stage == action->stage &&
          !b->plan->weights[b->own_weight[n]].frozen)
        need_weight(m, action->kind, b->own_weight[n]);
  return pen_check_collective_row(
      m, action->collective,
      &(struct pen_collective){
          .group = PEN_DATA, .waits = true, .completes = true, .event = PEN_NONE});
}

/* ---- all ---- */

bool pen_check_rows(const struct pen_rank_context *b) {
  const struct pen_rank_program *tables = b->tables;
  for (uint32_t c = 0; c < tables->collective_count; c++)
    if (tables->collectives[c].group >= PEN_GROUPS ||
        (uint64_t)tables->collectives[c].first_put + tables->collectives[c].put_count >
            tables->put_count)
      return pen_problem_note(b->checked->problem, b->rank, PEN_NONE,
                              "collective %u: no such group, or its puts are beyond the table", c);
  for (uint32_t i = 0; i < tables->put_count; i++) {
    const struct pen_put *put = &tables->puts[i];
    if (put->kind >= PEN_PUT_KINDS || put->group >= PEN_GROUPS || put->from_base >= PEN_BASES ||
        put->to_base >= PEN_BASES ||
        (put->weight != PEN_NONE && put->weight >= b->plan->weight_count))
      return pen_problem_note(b->checked->problem, b->rank, PEN_NONE,
                              "put %u: there is no such kind, group, base or weight", i);
  }
  for (uint32_t op = 0; op < tables->op_count; op++)
    if (pen_signature_of(tables->ops[op].kind)->is_runtime && tables->ops[op].kind != PEN_OP_ZERO &&
        tables->ops[op].collective >= tables->collective_count)
      return pen_problem_note(b->checked->problem, b->rank, PEN_NONE,
                              "op %u (%s) is of collective %u of %u", op,
                              pen_signature_of(tables->ops[op].kind)->kind,
                              tables->ops[op].collective, tables->collective_count);
  for (uint32_t op = 0; op < tables->op_count; op++) {
    const char *wrong = wrong_part(b, op);
    if (wrong)
      return pen_problem_note(b->checked->problem, b->rank, PEN_NONE, "moved: op %u (%s), %s", op,
                              pen_signature_of(tables->ops[op].kind)->kind, wrong);
  }
  for (uint32_t index = 0; index < tables->action_count; index++)
    if (pen_kind_is_collective(tables->actions[index].kind) &&
        pen_group_size(b->plan, PEN_DATA) > 1 &&
        tables->actions[index].collective >= tables->collective_count)
      return pen_problem_note(b->checked->problem, b->rank, index, "it is of collective %u of %u",
                              tables->actions[index].collective, tables->collective_count);
  return true;
}

bool pen_check_moves(const struct pen_rank_context *b) {
  struct pen_moves m = {
      .b = b,
      .action = PEN_NONE,
      .owner_of = pen_new((size_t)b->tables->collective_count + 1, sizeof(uint64_t)),
      .event_used = pen_new((size_t)b->tables->event_count + 1, sizeof(bool))};
  uint32_t *last = pen_new((size_t)b->tables->tensor_count + 1, sizeof *last);
  bool fine = true;
  for (uint32_t p = 0; p < b->tables->program_count && fine; p++)
    fine = check_program(&m, &b->tables->programs[p], last);
  for (uint32_t a = 0; a < b->tables->action_count && fine; a++) fine = check_action(&m, a);
  fine = fine && pen_check_matrix_moves(&m);
  pen_free(m.put);
  pen_free(m.owner_of);
  pen_free(m.event_used);
  pen_free(last);
  return fine;
}
