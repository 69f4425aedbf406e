/* verify_collectives.c: random plans with collectives, within programs and of the step's end, with
 * random defects: wrong groups, order, buffers, numbers. Each is rejected with its own message.
 *
 * The defects whose plan may be as right as before are left out where they are made: a comment
 * there says which. */
#include "gen/verify/verify.h"
#include "runtime/plan/shard.h"
#include "tests/support/collective_plans.h"

static bool has_replicas(const struct broken_plan *p) { return p->plan->replica_count > 1; }

static uint32_t other_than(struct broken_plan *p, uint32_t value, uint32_t most) {
  return (value + 1 + (uint32_t)draw(p->seed, most)) % (most + 1);
}

/* ---- wrong group ---- */

/* Between two sizes that both make several groups the plan may be one for either: left out. */
static bool another_group(struct broken_plan *p) {
  const uint32_t replicas = p->plan->replica_count, old = p->plan->shard_ranks,
                 other = other_than(p, old, 2 * replicas);
  if (old < replicas && other > 0 && other < replicas && replicas % other == 0) return false;
  p->plan->shard_ranks = other;
  return true;
}

/* With several groups the plan is also one for more of them: left out. */
static bool more_replicas(struct broken_plan *p) {
  if (p->plan->shard_ranks < p->plan->replica_count) return false;
  p->plan->replica_count *= 2;
  return true;
}

/* Where ops name shards. Elsewhere the plan may be one for the other number, with more room than
 * its shards take: left out; and so are 2 for 3 and 3 for 2, whose shards may be of one size. */
static bool another_number(struct broken_plan *p) {
  uint32_t *count = &p->plan->replica_count;
  if (!p->plan->gathers_units && !pen_gradients_are_sharded(p->plan)) return false;
  *count = p->plan->shard_ranks = *count == 4 ? 2 + (uint32_t)draw(p->seed, 2) : 4;
  return true;
}

/* Without sums within programs "optimizer" and "gradients" share the same: left out. */
static bool another_sharding(struct broken_plan *p) {
  uint8_t old = p->plan->sharding, sharding = (uint8_t)other_than(p, old, PEN_SHARD_WEIGHTS);
  bool alike = (old == PEN_SHARD_OPTIMIZER && sharding == PEN_SHARD_GRADIENTS) ||
               (old == PEN_SHARD_GRADIENTS && sharding == PEN_SHARD_OPTIMIZER);
  if (sharding == old || (alike && !p->plan->reduces_microbatches)) return false;
  p->plan->sharding = sharding;
  return true;
}

static bool gathers_otherwise(struct broken_plan *p) {
  p->plan->gathers_units = !p->plan->gathers_units;
  return true;
}

static bool reduces_otherwise(struct broken_plan *p) {
  p->plan->reduces_microbatches = !p->plan->reduces_microbatches;
  return true;
}

static struct pen_weight *some_weight(struct broken_plan *p) {
  return WRITABLE(struct pen_weight, &p->plan->weights[draw(p->seed, p->plan->weight_count)]);
}

static bool another_count(struct broken_plan *p) {
  some_weight(p)->count += draw(p->seed, 2) ? 1 : PEN_NORM_BLOCK;
  return true;
}

static bool value_sharded_otherwise(struct broken_plan *p) {
  struct pen_weight *weight = some_weight(p);
  weight->value_sharded = !weight->value_sharded;
  return true;
}

static bool copy_sharded_otherwise(struct broken_plan *p) {
  struct pen_weight *weight = some_weight(p);
  weight->bf16_sharded = !weight->bf16_sharded;
  return true;
}

static bool gradient_sharded_otherwise(struct broken_plan *p) {
  struct pen_weight *weight = some_weight(p);
  weight->gradient_sharded = !weight->gradient_sharded;
  return true;
}

static bool changes_dim(struct broken_plan *p, int kind, int dim) {
  uint32_t op = op_of_kind(p, kind);
  if (op == PEN_NONE) return false;
  ops_of(p)[op].dim[dim] += draw(p->seed, 2) ? PEN_NORM_BLOCK : -1;
  return true;
}

static bool gathers_another_shard(struct broken_plan *p) {
  return changes_dim(p, PEN_OP_ALL_GATHER, 1);
}
static bool gathers_another_count(struct broken_plan *p) {
  return changes_dim(p, PEN_OP_ALL_GATHER, 0);
}
static bool sums_another_shard(struct broken_plan *p) {
  return changes_dim(p, PEN_OP_REDUCE_SCATTER, 1);
}
static bool sums_another_count(struct broken_plan *p) {
  return changes_dim(p, PEN_OP_REDUCE_SCATTER, 0);
}

#define SIZES                                                                             \
  "bytes, but", "is at the address", "overlaps", "is persistent, but", "are shared, but", \
      "its message has", "is not a sharded weight", "outside the persistent part"

/* A value that is read before it is written. */
#define UNWRITTEN "which nothing", "overlaps it", "but its bytes", "has overwritten"

static const struct defect wrong_group[] = {
    {"another group",
     another_group,
     {"cannot be divided into groups of", "summed: ", "in use: ", "is at the address of",
      "overlaps", "all replicas are one group", "are shared, but"}},
    {"more replicas",
     more_replicas,
     {"summed: ", "in use: ", "are shared, but", "it is of collective"}},
    {"another number of replicas",
     another_number,
     {SIZES, "of the device control block", "all replicas are one group", "summed: ", "in use: "}},
    {"another sharding",
     another_sharding,
     {"sharded over the replicas", "ALL_GATHER_WEIGHT is missing",
      "in use: ", "summed: ", "moved: ", "cannot shard", "overlaps", "weights are not sharded",
      "but weights are", "is not an op of this plan", "does not come before it"}},
    {"flag of gathered units",
     gathers_otherwise,
     {"but weights are", "is not an op of this plan", "programs gather the weights themselves",
      "reads "}},
    {"flag of sums by microbatch",
     reduces_otherwise,
     {"the gradient of", "is not an op of this plan", "summed: ", "in use: ",
      "only whole gradients", "which is not summed", "in use: ", "are shared, but"}},
    {"a weight's elements", another_count, {SIZES, "elements, but", "of the file"}},
    {"a value's shard", value_sharded_otherwise, {"sharded over the replicas", SIZES}},
    {"a copy's shard", copy_sharded_otherwise, {"sharded over the replicas", SIZES}},
    {"a gradient's shard", gradient_sharded_otherwise, {"sharded over the replicas", SIZES}},
    {"ALL_GATHER of another shard", gathers_another_shard, {SIZES}},
    {"ALL_GATHER of other elements", gathers_another_count, {SIZES, "elements, but"}},
    {"REDUCE_SCATTER to another shard", sums_another_shard, {SIZES}},
    {"REDUCE_SCATTER of other elements", sums_another_count, {SIZES, "elements, but"}},
};

/* ---- wrong order ---- */

/* The WAIT_PEERS before a random group of REDUCE_SCATTER, and one of the group. */
static uint32_t reduction(struct broken_plan *p, uint32_t *wait) {
  uint32_t op = has_replicas(p) ? op_of_kind(p, PEN_OP_REDUCE_SCATTER) : PEN_NONE;
  if (op != PEN_NONE) *wait = last_before(p, op, PEN_OP_WAIT_PEERS);
  return op;
}

static bool waits_before_it_signals(struct broken_plan *p) {
  uint32_t wait = op_of_kind(p, PEN_OP_WAIT_PEERS);
  if (wait == PEN_NONE) return false;
  move_op(p, wait, last_before(p, wait, PEN_OP_SIGNAL_PEERS));
  return true;
}

static bool sums_before_it_waits(struct broken_plan *p) {
  uint32_t wait, op = reduction(p, &wait);
  if (op == PEN_NONE) return false;
  move_op(p, op, wait);
  return true;
}

/* A signal of a gather between the addition and the moved one would tell the peers as well: left
 * out. */
static bool signals_before_it_adds(struct broken_plan *p) {
  uint32_t wait, op = reduction(p, &wait);
  if (op == PEN_NONE) return false;
  uint32_t signal = last_before(p, wait, PEN_OP_SIGNAL_PEERS),
           add = adder_of(p, program_of(p, op)->first_op, ops_of(p)[op].operand[0]);
  if (next_of_kind(p, add, PEN_OP_SIGNAL_PEERS) != signal) return false;
  move_op(p, signal, add);
  return true;
}

/* Before the last collective of its program: any later signal tells the peers as well. */
static bool signals_before_it_gathers(struct broken_plan *p) {
  uint32_t op = op_of_kind(p, PEN_OP_ALL_GATHER);
  uint32_t signal = op == PEN_NONE ? PEN_NONE : next_of_kind(p, op, PEN_OP_SIGNAL_PEERS);
  if (signal == PEN_NONE || !is_last_of(p, signal, PEN_OP_SIGNAL_PEERS)) return false;
  move_op(p, op, signal);
  return true;
}

static bool gathers_after_its_use(struct broken_plan *p) {
  uint32_t op = op_of_kind(p, PEN_OP_ALL_GATHER);
  if (op == PEN_NONE) return false;
  move_op(p, op, reader_of(p, op, ops_of(p)[op].operand[1]));
  return true;
}

/* The last group of its program: a later WAIT_PEERS knows the reads as well. */
static bool signals_before_it_has_summed(struct broken_plan *p) {
  uint32_t wait, op = reduction(p, &wait);
  uint32_t signal = op == PEN_NONE ? PEN_NONE : next_of_kind(p, op, PEN_OP_SIGNAL_PEERS);
  if (signal == PEN_NONE || !is_last_of(p, signal, PEN_OP_SIGNAL_PEERS)) return false;
  move_op(p, op, signal);
  return true;
}

/* The memory of a group's gradients is the workspace of an op before its WAIT_PEERS. */
static bool writes_before_it_waits(struct broken_plan *p) {
  uint32_t wait, op = reduction(p, &wait);
  uint32_t end = op == PEN_NONE ? PEN_NONE : next_of_kind(p, op, PEN_OP_WAIT_PEERS), to = end;
  if (end == PEN_NONE) return false;
  const struct pen_program *program = program_of(p, op);
  struct pen_tensor *tensors = WRITABLE(struct pen_tensor, p->tables->tensors);
  while (++to < program->first_op + program->op_count && ops_of(p)[to].workspace == PEN_NONE)
    if (ops_of(p)[to].kind == PEN_OP_WAIT_PEERS) return false;
  if (to == program->first_op + program->op_count) return false;
  struct pen_tensor *workspace = &tensors[ops_of(p)[to].workspace];
  workspace->base = PEN_BASE_PARTIAL;
  workspace->offset = tensors[ops_of(p)[op].operand[0]].offset;
  move_op(p, end, to);
  return true;
}

static const struct defect wrong_order[] = {
    {"WAIT_PEERS before SIGNAL_PEERS", waits_before_it_signals, {"deadlock: it waits"}},
    {"REDUCE_SCATTER before WAIT_PEERS", sums_before_it_waits, {"in use: "}},
    {"SIGNAL_PEERS before the gradient", signals_before_it_adds, {"in use: "}},
    {"SIGNAL_PEERS before ALL_GATHER",
     signals_before_it_gathers,
     {"in use: ", "moved: ", UNWRITTEN}},
    {"ALL_GATHER after its use",
     gathers_after_its_use,
     {UNWRITTEN, "which no collective before it uses"}},
    {"SIGNAL_PEERS before REDUCE_SCATTER", signals_before_it_has_summed, {"in use: "}},
    {"WAIT_PEERS after its memory is used",
     writes_before_it_waits,
     {"in use: ", "outside the memory for gradients", "may still use"}},
};

/* ---- missing ---- */

static bool drops(struct broken_plan *p, int kind) {
  uint32_t op = op_of_kind(p, kind);
  if (op != PEN_NONE) drop_op(p, op);
  return op != PEN_NONE;
}

static bool never_summed(struct broken_plan *p) { return drops(p, PEN_OP_REDUCE_SCATTER); }
static bool never_gathered(struct broken_plan *p) { return drops(p, PEN_OP_ALL_GATHER); }
static bool never_complete(struct broken_plan *p) { return drops(p, PEN_OP_WAIT_EVENT); }
static bool never_signalled(struct broken_plan *p) { return drops(p, PEN_OP_SIGNAL_PEERS); }

/* With all numbers right. Of an addition, or the last: elsewhere another signal tells as much. */
static bool addition_not_signalled(struct broken_plan *p) {
  uint32_t wait, op = reduction(p, &wait);
  if (op == PEN_NONE) return false;
  drop_signal_and_renumber(p, last_before(p, wait, PEN_OP_SIGNAL_PEERS));
  return true;
}
static bool end_not_signalled(struct broken_plan *p) {
  uint32_t op = op_of_kind(p, PEN_OP_SIGNAL_PEERS);
  if (op == PEN_NONE || !is_last_of(p, op, PEN_OP_SIGNAL_PEERS)) return false;
  drop_signal_and_renumber(p, op);
  return true;
}

static bool sum_not_awaited(struct broken_plan *p) {
  uint32_t wait, op = reduction(p, &wait);
  if (op == PEN_NONE) return false;
  drop_op(p, wait);
  return true;
}
static bool end_not_awaited(struct broken_plan *p) {
  uint32_t op = op_of_kind(p, PEN_OP_WAIT_PEERS);
  if (op == PEN_NONE || !is_last_of(p, op, PEN_OP_WAIT_PEERS)) return false;
  drop_op(p, op);
  return true;
}

static const struct defect missing[] = {
    {"no WAIT_EVENT",
     never_complete,
     {"which may not have been gathered", "which its collective may still use"}},
    {"no REDUCE_SCATTER",
     never_summed,
     {"which is not summed", "which no collective before it uses"}},
    {"no ALL_GATHER", never_gathered, {UNWRITTEN, "which no collective before it uses"}},
    {"no SIGNAL_PEERS",
     never_signalled,
     {"deadlock: it waits", "collectives before it, but there are", "in use: "}},
    {"no SIGNAL_PEERS after gradients", addition_not_signalled, {"in use: "}},
    {"no SIGNAL_PEERS at a program's end", end_not_signalled, {"in use: ", "moved: "}},
    {"no WAIT_PEERS before a sum", sum_not_awaited, {"in use: "}},
    {"no WAIT_PEERS at a program's end", end_not_awaited, {"in use: "}},
};

/* ---- twice ---- */

static bool doubles(struct broken_plan *p, int kind) {
  uint32_t op = op_of_kind(p, kind);
  if (op != PEN_NONE) double_op(p, op);
  return op != PEN_NONE;
}

/* WAIT_PEERS twice, and SIGNAL_PEERS twice with all numbers right, change nothing: left out. */
static bool summed_twice(struct broken_plan *p) { return doubles(p, PEN_OP_REDUCE_SCATTER); }
static bool gathered_twice(struct broken_plan *p) { return doubles(p, PEN_OP_ALL_GATHER); }
static bool signalled_twice(struct broken_plan *p) { return doubles(p, PEN_OP_SIGNAL_PEERS); }
static bool zeroed_twice(struct broken_plan *p) { return doubles(p, PEN_OP_ZERO); }

static bool action_twice(struct broken_plan *p) {
  uint32_t row = some_row(p, PEN_NORM, PEN_ACTION_KINDS - 1);
  if (row == PEN_NONE || !pen_kind_is_collective(p->action[row].kind)) return false;
  double_action(p, row);
  return true;
}

static const struct defect twice[] = {
    {"REDUCE_SCATTER twice", summed_twice, {"which is summed already"}},
    {"ALL_GATHER twice", gathered_twice, {"a second time"}},
    {"SIGNAL_PEERS twice", signalled_twice, {"collectives before it, but there are", "in use: "}},
    {"ZERO twice", zeroed_twice, {"a second time"}},
    {"a collective of the list twice",
     action_twice,
     {"listed twice in a step", "are unsharded already"}},
};

/* ---- read before the sum ---- */

static bool sums_early(struct broken_plan *p) {
  uint32_t wait, op = reduction(p, &wait);
  if (op == PEN_NONE) return false;
  uint32_t add = adder_of(p, program_of(p, op)->first_op, ops_of(p)[op].operand[0]);
  move_op(p, op, add + 1 + (uint32_t)draw(p->seed, wait - add));
  return true;
}

static bool sums_before_it_adds(struct broken_plan *p) {
  uint32_t wait, op = reduction(p, &wait);
  if (op == PEN_NONE) return false;
  move_op(p, op, adder_of(p, program_of(p, op)->first_op, ops_of(p)[op].operand[0]));
  return true;
}

static bool awaits_less(struct broken_plan *p) {
  uint32_t wait, op = reduction(p, &wait);
  if (op == PEN_NONE) return false;
  struct pen_collective *row = op_row(p, &ops_of(p)[wait]);
  row->awaited -= 1 + (uint32_t)draw(p->seed, row->awaited);
  return true;
}

/* In its program a later WAIT_PEERS may know the reads as well: the last. */
static bool awaits_less_at_the_end(struct broken_plan *p) {
  uint32_t wait = op_of_kind(p, PEN_OP_WAIT_PEERS);
  if (wait == PEN_NONE || !is_last_of(p, wait, PEN_OP_WAIT_PEERS)) return false;
  op_row(p, &ops_of(p)[wait])->awaited--;
  return true;
}

static bool gathers_sums_early(struct broken_plan *p) {
  uint32_t row = has_replicas(p) ? first_row(p, PEN_ALL_GATHER_GRAD) : PEN_NONE;
  if (row == PEN_NONE) return false;
  p->action[row].awaited_collective--;
  return true;
}

static bool norm_before_the_last_sum(struct broken_plan *p) {
  uint32_t norm = first_row(p, PEN_NORM), last = last_compute_row(p);
  if (norm == PEN_NONE || (last > 0 && p->action[last - 1].overlaps)) return false;
  move_action(p, norm, last);
  return true;
}

static const struct defect read_before_the_sum[] = {
    {"REDUCE_SCATTER early", sums_early, {"in use: "}},
    {"REDUCE_SCATTER before the gradient",
     sums_before_it_adds,
     {"in use: ", "which nothing in this program has written"}},
    {"WAIT_PEERS for less", awaits_less, {"in use: "}},
    {"WAIT_PEERS for less at the end", awaits_less_at_the_end, {"in use: "}},
    {"ALL_GATHER_GRAD early", gathers_sums_early, {"in use: ", "deadlock: it waits"}},
    {"NORM before the last sum", norm_before_the_last_sum, {"comes after the step's end"}},
};

/* ---- read after the drop ---- */

/* Whether an op between two writes over a tensor, whose base is SCRATCH. */
static bool is_overwritten(const struct broken_plan *p, uint32_t tensor, uint32_t from,
                           uint32_t past) {
  const struct pen_tensor *tensors = p->tables->tensors, *t = &tensors[tensor];
  for (uint32_t op = from; op < past; op++) {
    const struct pen_op *at = &p->tables->ops[op];
    const struct pen_signature *signature = pen_signature_of(at->kind);
    for (int k = signature->input_count; k <= signature->operand_count; k++) {
      uint32_t other = k < signature->operand_count ? at->operand[k] : at->workspace;
      if (other != PEN_NONE && other != tensor && tensors[other].base == t->base &&
          tensors[other].offset < t->offset + t->bytes &&
          t->offset < tensors[other].offset + tensors[other].bytes)
        return true;
    }
  }
  return false;
}

/* An op reads another unit's weight. While the bytes of that are intact the plan is one of another
 * model, which trains as well: left out. */
static bool reads_another_unit(struct broken_plan *p) {
  uint32_t op = op_of_kind(p, PEN_OP_ALL_GATHER);
  if (op == PEN_NONE) return false;
  uint32_t whole = ops_of(p)[op].operand[1], other = tensor_like(p, whole),
           reader = reader_of(p, op, whole);
  uint32_t made = other == PEN_NONE ? PEN_NONE : writer_of(p, program_of(p, op)->first_op, other);
  if (other == PEN_NONE || (made < reader && !is_overwritten(p, other, made + 1, reader)))
    return false;
  for (int k = 0; k < PEN_OPERANDS_MAX; k++)
    if (ops_of(p)[reader].operand[k] == whole) ops_of(p)[reader].operand[k] = other;
  return true;
}

/* A weight is gathered over a value that a later op reads. */
static bool gathered_over_another(struct broken_plan *p) {
  uint32_t op = op_of_kind(p, PEN_OP_ALL_GATHER);
  if (op == PEN_NONE) return false;
  struct pen_tensor *tensors = WRITABLE(struct pen_tensor, p->tables->tensors);
  uint32_t whole = ops_of(p)[op].operand[1];
  for (unsigned tries = 0; tries < 100; tries++) {
    uint32_t live = (uint32_t)draw(p->seed, p->tables->tensor_count);
    uint32_t first = program_of(p, op)->first_op;
    if (live == whole || tensors[live].base != tensors[whole].base ||
        writer_of(p, first, live) >= op || reader_of(p, op + 1, live) == PEN_NONE)
      continue;
    tensors[whole].offset = tensors[live].offset;
    return true;
  }
  return false;
}

/* A reader comes after the op that writes over its weight. */
static bool reads_late(struct broken_plan *p) {
  uint32_t op = op_of_kind(p, PEN_OP_ALL_GATHER);
  if (op == PEN_NONE) return false;
  uint32_t whole = ops_of(p)[op].operand[1], reader = reader_of(p, op, whole), to = reader + 1,
           past = program_of(p, op)->first_op + program_of(p, op)->op_count;
  while (to < past && !is_overwritten(p, whole, to, to + 1)) to++;
  if (to == past) return false;
  move_op(p, reader, to);
  return true;
}

static bool resharded_early(struct broken_plan *p) {
  uint32_t row = first_row(p, PEN_RESHARD), use = row;
  if (row == PEN_NONE) return false;
  while (p->action[use].kind > PEN_I || p->action[use].stage != p->action[row].stage) use--;
  if (p->action[use].overlaps || (use > 0 && p->action[use - 1].overlaps)) return false;
  move_action(p, row, use);
  return true;
}

static const struct defect read_after_the_drop[] = {
    {"another unit's weight",
     reads_another_unit,
     {UNWRITTEN, "outside the activation part", "which no collective before it uses",
      "which may not have been gathered", "does not begin where"}},
    {"a weight over another value",
     gathered_over_another,
     {"overlaps it", "in the same bytes", "which is only partly written", "is outside",
      "outside the receive region", "outside the activation part",
      "which its collective may still use", "does not begin where"}},
    {"a use after the drop",
     reads_late,
     {UNWRITTEN, "only partly written", "over", "which may not have been gathered"}},
    {"RESHARD before a use", resharded_early, {"which are not unsharded"}},
};

static const struct defect_kind kinds[] = {
#define KIND(name, defects) \
  { name, defects, sizeof(defects) / sizeof *(defects) }
    KIND("wrong group", wrong_group),
    KIND("wrong order", wrong_order),
    KIND("missing", missing),
    KIND("twice", twice),
    KIND("read before the sum", read_before_the_sum),
    KIND("read after the drop", read_after_the_drop),
};

int main(void) { return main_of_kinds(kinds, sizeof kinds / sizeof *kinds, 1618033988); }
