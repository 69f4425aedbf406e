/* verify_moves.c: random plans with tensor ranks and replicas, and a defect in a row of their
 * collectives or puts: it moves other bytes, from or to other places, between other tensor ranks,
 * in another order, too early, twice or not at all. Each is rejected by moves.c, or by replicas.c.
 */
#include "gen/verify/verify.h"
#include "tests/support/collective_plans.h"

/* ---- rows ---- */

static struct pen_put *puts_of(const struct broken_plan *p) {
  return WRITABLE(struct pen_put, p->tables->puts);
}

/* A random put that moves elements of weights, or blocks; null: there is none. */
static struct pen_put *some_put(struct broken_plan *p, bool elements) {
  struct pen_put *found = NULL;
  uint64_t seen = 0;
  for (uint32_t i = 0; i < p->tables->put_count; i++)
    if ((puts_of(p)[i].weight != PEN_NONE) == elements && draw(p->seed, ++seen) == 0)
      found = &puts_of(p)[i];
  return found;
}

static struct pen_put *any_put(struct broken_plan *p) {
  struct pen_put *put = some_put(p, draw(p->seed, 2));
  return put ? put : some_put(p, p->tables->put_count && puts_of(p)[0].weight != PEN_NONE);
}

/* A random collective with at least so many puts; null: there is none. */
static struct pen_collective *some_collective(struct broken_plan *p, uint32_t puts) {
  struct pen_collective *rows = WRITABLE(struct pen_collective, p->tables->collectives),
                        *found = NULL;
  uint64_t seen = 0;
  for (uint32_t i = 0; i < p->tables->collective_count; i++)
    if (rows[i].put_count >= puts && draw(p->seed, ++seen) == 0) found = &rows[i];
  return found;
}

/* ---- what is moved ---- */

#define CHANGES(name, elements, statement)       \
  static bool name(struct broken_plan *p) {      \
    struct pen_put *put = some_put(p, elements); \
    if (put) statement;                          \
    return put;                                  \
  }
CHANGES(shards_of_other_groups, true,
        put->group = put->group == PEN_SHARD ? PEN_SAME_SHARD : PEN_SHARD)
CHANGES(blocks_of_data_ranks, false, put->group = PEN_SHARD)
CHANGES(elements_of_tensor_ranks, true, put->group = PEN_TENSOR)
CHANGES(blocks_of_another_receiver, false, put->from_member += put->bytes)
CHANGES(blocks_of_another_sender, false,
        put->to_member += draw(p->seed, 2) ? put->bytes : -put->bytes)
CHANGES(from_another_stride, false, put->from_stride += put->bytes)
CHANGES(to_another_stride, false, put->to_stride += put->bytes)
CHANGES(fewer_bytes, false, put->bytes -= 1 + draw(p->seed, put->bytes))
CHANGES(more_bytes, false, put->bytes += PEN_ALIGNMENT_BYTES)
CHANGES(fewer_blocks, false, put->count--)
CHANGES(more_blocks, false, put->count++)
CHANGES(whole_for_a_shard, true, put->from_sharded = !put->from_sharded)
CHANGES(to_a_shard, true, put->to_sharded = !put->to_sharded)
CHANGES(elements_of_another_dtype, true, put->dtype = put->dtype == PEN_F32 ? PEN_BF16 : PEN_F32)

static bool elements_of_another_weight(struct broken_plan *p) {
  struct pen_put *put = p->plan->weight_count > 1 ? some_put(p, true) : NULL;
  if (put) put->weight = (put->weight + 1) % p->plan->weight_count;
  return put;
}

static bool by_another_tensor_rank(struct broken_plan *p) {
  struct pen_put *put = any_put(p);
  if (put) put->kind = (uint8_t)((put->kind + 1 + draw(p->seed, 2)) % PEN_PUT_KINDS);
  return put;
}

static bool from_another_place(struct broken_plan *p) {
  struct pen_put *put = any_put(p);
  if (put) put->from += PEN_ALIGNMENT_BYTES;
  return put;
}

static bool to_another_place(struct broken_plan *p) {
  struct pen_put *put = any_put(p);
  if (put) put->to += PEN_ALIGNMENT_BYTES;
  return put;
}

static bool from_another_base(struct broken_plan *p) {
  struct pen_put *put = any_put(p);
  if (put) put->from_base = (uint8_t)((put->from_base + 1) % PEN_BASES);
  return put;
}

static bool to_another_base(struct broken_plan *p) {
  struct pen_put *put = any_put(p);
  if (put) put->to_base = (uint8_t)((put->to_base + 1) % PEN_BASES);
  return put;
}

/* ---- which rows a collective has ---- */

static bool put_left_out(struct broken_plan *p) {
  struct pen_collective *row = some_collective(p, 1);
  if (!row) return false;
  row->first_put += (uint32_t)draw(p->seed, 2);
  row->put_count--;
  return true;
}

static bool put_twice(struct broken_plan *p) {
  struct pen_collective *row = some_collective(p, 2);
  if (!row) return false;
  struct pen_put *put = puts_of(p) + row->first_put + draw(p->seed, row->put_count - 1);
  put[1] = put[0];
  return true;
}

static bool puts_in_another_order(struct broken_plan *p) {
  struct pen_collective *row = some_collective(p, 2);
  if (!row) return false;
  struct pen_put *put = puts_of(p) + row->first_put + draw(p->seed, row->put_count - 1),
                 first = put[0];
  put[0] = put[1];
  put[1] = first;
  return true;
}

/* Puts of two exchanges may move the same bytes: left out. */
static bool is_alike(const struct pen_put *one, const struct pen_put *other) {
  return one->weight == other->weight && one->from_base == other->from_base &&
         one->from == other->from && one->to == other->to;
}

static bool puts_of_another(struct broken_plan *p) {
  struct pen_collective *row = some_collective(p, 1);
  if (!row || p->tables->put_count < 2) return false;
  const uint32_t other = row->first_put ? row->first_put - 1 : row->first_put + 1;
  if (is_alike(&puts_of(p)[row->first_put], &puts_of(p)[other])) return false;
  row->first_put = other;
  return true;
}

static bool one_put_more(struct broken_plan *p) {
  struct pen_collective *row = some_collective(p, 0);
  if (row) row->put_count++;
  return row;
}

/* ---- when ---- */

static bool begins_early(struct broken_plan *p) {
  struct pen_collective *row = some_collective(p, 1);
  if (!row || !row->waits) return false;
  row->waits = false;
  return true;
}

static bool signals_early(struct broken_plan *p) {
  struct pen_collective *row = some_collective(p, 1);
  if (!row || row->completes) return false;
  row->completes = true;
  return true;
}

static bool never_signals(struct broken_plan *p) {
  struct pen_collective *row = some_collective(p, 0);
  if (!row || !row->completes) return false;
  row->completes = false;
  return true;
}

static bool signals_others(struct broken_plan *p) {
  struct pen_collective *row = some_collective(p, 0);
  if (row) row->group = row->group == PEN_DATA ? PEN_TENSOR : PEN_DATA;
  return row;
}

static bool waits_for_later_ones(struct broken_plan *p) {
  struct pen_collective *row = some_collective(p, 1);
  if (row) row->awaited++;
  return row;
}

static bool in_another_sequence(struct broken_plan *p) {
  struct pen_collective *row = some_collective(p, 0);
  if (row) row->begins = !row->begins;
  return row;
}

static bool event_of_another(struct broken_plan *p) {
  struct pen_collective *row = some_collective(p, 0);
  if (!row || p->tables->event_count < 2) return false;
  row->event = row->event == PEN_NONE ? 0 : (row->event + 1) % p->tables->event_count;
  return true;
}

/* The last collective of the step reads gradients, when all others are over. */
static bool gathers_at_the_end(struct broken_plan *p) {
  const uint32_t row = some_row(p, PEN_ALL_GATHER_GRAD, PEN_ALL_GATHER_GRAD),
                 past = p->tables->action_count;
  uint32_t count = 0, number = 0;
  if (row == PEN_NONE || p->plan->replica_count == 1) return false;
  for (uint32_t i = 0; i < past; i++) {
    count += pen_kind_is_collective(p->action[i].kind)
                 ? 1
                 : pen_collectives_within(p->tables, &p->action[i]);
    if (i == row) number = count;
  }
  for (uint32_t i = 0; i < past; i++)
    if (p->action[i].awaited_collective >= number) p->action[i].awaited_collective--;
  p->action[row].awaited_collective = count - 1;
  move_action(p, row, past - 1);
  return true;
}

/* ---- the rows of ops ---- */

/* A row that an op of one of the kinds has; null: there is none. */
static struct pen_collective *row_of_ops(struct broken_plan *p, int kind, int other) {
  const uint32_t op = op_of_kind(p, draw(p->seed, 2) ? kind : other);
  return op == PEN_NONE ? NULL : op_row(p, &ops_of(p)[op]);
}

/* Of gradients and weights within a program. */
static struct pen_collective *row_of_program(struct broken_plan *p) {
  return row_of_ops(p, PEN_OP_REDUCE_SCATTER, PEN_OP_ALL_GATHER);
}

/* Of an exchange between tensor ranks. */
static struct pen_collective *row_of_exchange(struct broken_plan *p) {
  return row_of_ops(p, PEN_OP_ALL_GATHER_PARTIAL,
                    draw(p->seed, 2) ? PEN_OP_ALL_TO_ALL_PARTIAL : PEN_OP_ALL_GATHER_SEQUENCE);
}

#define CHANGES_ROW(name, found, statement) \
  static bool name(struct broken_plan *p) { \
    struct pen_collective *row = found(p);  \
    if (row) statement;                     \
    return row;                             \
  }
CHANGES_ROW(program_signals_tensor_ranks, row_of_program, row->group = PEN_TENSOR)
CHANGES_ROW(program_signals_early, row_of_program, row->completes = true)
CHANGES_ROW(program_leaves_a_put_out, row_of_program, row->put_count--)
CHANGES_ROW(program_reads_other_groups, row_of_program,
            puts_of(p)[row->first_put].group = PEN_SAME_SHARD)
CHANGES_ROW(exchange_signals_data_ranks, row_of_exchange, row->group = PEN_DATA)
CHANGES_ROW(exchange_never_signals, row_of_exchange, row->completes = false)
CHANGES_ROW(exchange_does_not_wait, row_of_exchange, row->waits = false)
CHANGES_ROW(exchange_leaves_its_put_out, row_of_exchange, row->put_count = 0)
CHANGES_ROW(exchange_puts_twice, row_of_exchange, row->put_count = 2)

static bool program_puts_twice(struct broken_plan *p) {
  const struct pen_collective *row = row_of_program(p);
  if (!row || row->put_count < 2) return false;
  struct pen_put *put = puts_of(p) + row->first_put + draw(p->seed, row->put_count - 1);
  put[1] = put[0];
  return true;
}

/* An exchange has the other half of the slots, in its row and in its tensors: that of the exchanges
 * before and after it. */
static bool fills_slots_in_use(struct broken_plan *p) {
  uint32_t op =
      op_of_kind(p, draw(p->seed, 2) ? PEN_OP_ALL_GATHER_PARTIAL : PEN_OP_ALL_GATHER_SEQUENCE);
  if (op == PEN_NONE) return false;
  struct pen_tensor *tensors = WRITABLE(struct pen_tensor, p->tables->tensors);
  const struct pen_collective *row = op_row(p, &ops_of(p)[op]);
  const uint64_t half = p->plan->memory[p->rank].exchange_bytes / 2,
                 moved = puts_of(p)[row->first_put].to < half ? half : -half;
  while (op > 0 && pen_collective_of(p->tables, &ops_of(p)[op - 1]) == row) op--;
  for (; pen_collective_of(p->tables, &ops_of(p)[op]) == row; op++)
    tensors[ops_of(p)[op].operand[1]].offset += moved;
  puts_of(p)[row->first_put].to += moved;
  return true;
}

/* ---- whose ---- */

static bool op_of_another_collective(struct broken_plan *p) {
  struct pen_op *ops = ops_of(p), *found = NULL;
  uint64_t seen = 0;
  for (uint32_t i = 0; i < p->tables->op_count; i++)
    if (pen_collective_of(p->tables, &ops[i]) && pen_collective_of(p->tables, &ops[i])->put_count &&
        draw(p->seed, ++seen) == 0)
      found = &ops[i];
  if (!found || p->tables->collective_count < 2) return false;
  found->collective = (found->collective + 1) % p->tables->collective_count;
  return true;
}

static bool action_of_another_collective(struct broken_plan *p) {
  const uint32_t row = some_row(p, PEN_REDUCE_SCATTER, PEN_UNSHARD);
  if (row == PEN_NONE || p->tables->collective_count < 2) return false;
  p->action[row].collective = (p->action[row].collective + 1) % p->tables->collective_count;
  return true;
}

#define MOVED \
  { "moved: ", "in use: ", "collectives before it, but there are" }
/* The collectives are counted by their signals. */
#define COUNTED \
  { "moved: ", "in use: ", "collectives before it, but there are", "deadlock: it waits" }
static const struct defect defects[] = {
    {"shards of the other kind of groups", shards_of_other_groups, MOVED},
    {"blocks of data ranks", blocks_of_data_ranks, MOVED},
    {"elements of tensor ranks", elements_of_tensor_ranks, MOVED},
    {"blocks of another receiver", blocks_of_another_receiver, MOVED},
    {"blocks of another sender", blocks_of_another_sender, MOVED},
    {"from another stride", from_another_stride, MOVED},
    {"to another stride", to_another_stride, MOVED},
    {"fewer bytes", fewer_bytes, MOVED},
    {"more bytes", more_bytes, MOVED},
    {"fewer blocks", fewer_blocks, MOVED},
    {"more blocks", more_blocks, MOVED},
    {"a whole tensor for a shard", whole_for_a_shard, MOVED},
    {"to a shard instead of a whole tensor", to_a_shard, MOVED},
    {"elements of another dtype", elements_of_another_dtype, MOVED},
    {"elements of another weight", elements_of_another_weight, MOVED},
    {"by the other tensor rank, or an addition", by_another_tensor_rank, MOVED},
    {"from another place", from_another_place, MOVED},
    {"to another place", to_another_place, MOVED},
    {"from another base", from_another_base, MOVED},
    {"to another base", to_another_base, MOVED},
    {"a put left out", put_left_out, MOVED},
    {"a put twice", put_twice, MOVED},
    {"puts in another order", puts_in_another_order, MOVED},
    {"puts of another collective", puts_of_another, {"moved: ", "in use: ", "beyond the table"}},
    {"one put more", one_put_more, {"moved: ", "in use: ", "beyond the table"}},
    {"it does not wait", begins_early, MOVED},
    {"it signals early", signals_early, COUNTED},
    {"it never signals", never_signals, COUNTED},
    {"it signals others", signals_others, COUNTED},
    {"it waits for later ones",
     waits_for_later_ones,
     {"moved: ", "in use: ", "deadlock: it waits for a signal that peers give after theirs"}},
    {"in another sequence", in_another_sequence, MOVED},
    {"an event of another sequence", event_of_another, MOVED},
    {"gradients read when the step ends",
     gathers_at_the_end,
     {"in use: the next step writes gradients"}},
    {"a program signals tensor ranks", program_signals_tensor_ranks, COUNTED},
    {"a program signals early", program_signals_early, COUNTED},
    {"a program leaves a put out", program_leaves_a_put_out, MOVED},
    {"a program reads other groups", program_reads_other_groups, MOVED},
    {"a program puts twice", program_puts_twice, MOVED},
    {"an exchange signals data ranks", exchange_signals_data_ranks, MOVED},
    {"an exchange never signals", exchange_never_signals, MOVED},
    {"an exchange does not wait", exchange_does_not_wait, MOVED},
    {"an exchange leaves its put out", exchange_leaves_its_put_out, MOVED},
    {"an exchange puts twice", exchange_puts_twice, {"moved: ", "in use: ", "beyond the table"}},
    {"an exchange into slots in use", fills_slots_in_use, {"in use: "}},
    {"an op of another collective", op_of_another_collective, MOVED},
    {"an action of another collective", action_of_another_collective, MOVED},
};

int main(void) {
  share_splits_of_plans();
  return main_of_defects(defects, sizeof defects / sizeof *defects, 223606797);
}
