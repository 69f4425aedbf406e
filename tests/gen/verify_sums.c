/* verify_sums.c: random plans with collectives, with random defects of what is summed and updated:
 * stale shards, a tied matrix, wrong accumulators, wrong scale, and deadlocks. Each is rejected
 * with its own message. verify_collectives.c has the others. */
#include "gen/verify/verify.h"
#include "tests/support/collective_plans.h"

static bool has_replicas(const struct broken_plan *p) { return p->plan->replica_count > 1; }

static bool trains(const struct broken_plan *p) { return p->profile->kind == PEN_TRAIN; }

/* ---- stale shard ---- */

static bool gathers_another(struct broken_plan *p) {
  uint32_t op = op_of_kind(p, PEN_OP_ALL_GATHER);
  uint32_t other = op == PEN_NONE ? PEN_NONE : tensor_like(p, ops_of(p)[op].operand[0]);
  if (other == PEN_NONE) return false;
  ops_of(p)[op].operand[0] = other;
  return true;
}

static bool shard_is_elsewhere(struct broken_plan *p) {
  uint32_t op = op_of_kind(p, PEN_OP_ALL_GATHER);
  if (op == PEN_NONE) return false;
  WRITABLE(struct pen_tensor, p->tables->tensors)
  [ops_of(p)[op].operand[0]].offset += PEN_ALIGNMENT_BYTES;
  return true;
}

static bool computes_after_update(struct broken_plan *p) {
  uint32_t row = last_compute_row(p), update = first_row(p, PEN_UPDATE);
  if (update == PEN_NONE || (row > 0 && p->action[row - 1].overlaps)) return false;
  move_action(p, row, update);
  return true;
}

/* The last action before UPDATE that reads the shards of peers, as a number of collectives. */
static bool updates_early(struct broken_plan *p) {
  uint32_t update = has_replicas(p) ? first_row(p, PEN_UPDATE) : PEN_NONE, within = 0, count = 0;
  for (uint32_t row = 0; update != PEN_NONE && row < update; row++) {
    uint32_t inside = pen_collectives_within(p->tables, &p->action[row]);
    count += inside + pen_kind_is_collective(p->action[row].kind);
    if (inside || p->action[row].kind == PEN_UNSHARD) within = count;
  }
  if (within == 0) return false;
  p->action[update].awaited_collective = (uint32_t)draw(p->seed, within);
  return true;
}

static bool brings_old_weights(struct broken_plan *p) {
  uint32_t row = has_replicas(p) ? first_row(p, PEN_ALL_GATHER_WEIGHT) : PEN_NONE;
  uint32_t update = first_row(p, PEN_UPDATE);
  if (row == PEN_NONE) return false;
  if (draw(p->seed, 2))
    move_action(p, row, update);
  else
    p->action[row].awaited_collective--;
  return true;
}

static bool never_brings_weights(struct broken_plan *p) {
  uint32_t row = has_replicas(p) ? first_row(p, PEN_ALL_GATHER_WEIGHT) : PEN_NONE;
  if (row != PEN_NONE) drop_action(p, row);
  return row != PEN_NONE;
}

static const struct defect stale_shard[] = {
    {"ALL_GATHER of another weight", gathers_another, {"which are of two tensors"}},
    {"ALL_GATHER from elsewhere",
     shard_is_elsewhere,
     {"is persistent, but", "is at the address", "of which the rank has all"}},
    {"a computation after UPDATE",
     computes_after_update,
     {"comes after the step's end", "comes after UPDATE", "whose result it sends"}},
    {"UPDATE while peers read", updates_early, {"in use: "}},
    {"ALL_GATHER_WEIGHT before UPDATE",
     brings_old_weights,
     {"in use: ", "UPDATE does not come before it", "deadlock: it waits"}},
    {"no ALL_GATHER_WEIGHT",
     never_brings_weights,
     {"ALL_GATHER_WEIGHT is missing", "ALL_GATHER_WEIGHT does not come before it",
      "deadlock: it waits"}},
};

/* ---- tied matrix ---- */

static struct pen_tie *tie_of(struct broken_plan *p, bool head) {
  if (p->plan->tie_count == 0 || p->plan->weights[p->plan->ties->weight].frozen) return NULL;
  struct pen_tie *tie = WRITABLE(struct pen_tie, p->plan->ties);
  p->profile = WRITABLE(struct pen_profile, &p->plan->profiles[0]);
  turn_to_rank(p, head ? tie->rank : p->plan->weights[tie->weight].rank);
  return tie;
}

static bool accumulators_exchanged(struct broken_plan *p) {
  struct pen_tie *tie = tie_of(p, true);
  if (!tie) return false;
  struct pen_weight *weight = WRITABLE(struct pen_weight, &p->plan->weights[tie->weight]);
  uint64_t offset = tie->gradient_offset;
  if (offset == weight->gradient_offset) return false; /* by chance, on two ranks */
  tie->gradient_offset = weight->gradient_offset;
  weight->gradient_offset = offset;
  return true;
}

static bool one_accumulator(struct broken_plan *p) {
  struct pen_tie *tie = tie_of(p, true);
  if (!tie || tie->rank != p->plan->weights[tie->weight].rank) return false;
  tie->gradient_offset = p->plan->weights[tie->weight].gradient_offset;
  return true;
}

/* The accumulators of head and embedding, on one rank. */
static bool accumulators_of(struct broken_plan *p, uint32_t *own, uint32_t *head) {
  struct pen_tie *tie = tie_of(p, true);
  if (!tie || tie->rank != p->plan->weights[tie->weight].rank) return false;
  *own = *head = PEN_NONE;
  for (uint32_t n = 0; n < p->tables->tensor_count; n++) {
    const struct pen_tensor *t = &p->tables->tensors[n];
    if (t->base != PEN_BASE_PERSISTENT || t->dtype != PEN_F32) continue;
    if (t->offset == tie->gradient_offset) *head = n;
    if (t->offset == p->plan->weights[tie->weight].gradient_offset) *own = n;
  }
  return *own != PEN_NONE && *head != PEN_NONE;
}

/* The ops of the head add to the embedding's accumulator, and the other way round; or all to one.
 * Without sums by microbatch an exchange leaves the sum of both: left out. */
static bool additions_exchanged(struct broken_plan *p) {
  uint32_t own, head;
  if (!p->plan->reduces_microbatches || !accumulators_of(p, &own, &head)) return false;
  for (uint32_t op = 0, both = draw(p->seed, 2); op < p->tables->op_count; op++) {
    int k = accumulated_operand(&ops_of(p)[op]);
    uint32_t *operand = &ops_of(p)[op].operand[k < 0 ? 0 : k];
    if (k >= 0 && (*operand == head || (both && *operand == own)))
      *operand = *operand == head ? own : head;
  }
  return true;
}

static bool never_added(struct broken_plan *p) {
  if (!tie_of(p, false)) return false;
  drop_action(p, first_row(p, PEN_ADD_TIED_GRAD));
  return true;
}

static bool added_before_the_last_sum(struct broken_plan *p) {
  if (!tie_of(p, false)) return false;
  uint32_t row = first_row(p, PEN_ADD_TIED_GRAD), last = last_compute_row(p);
  if (last > 0 && p->action[last - 1].overlaps) return false;
  move_action(p, row, last);
  return true;
}

static bool added_after_the_norm(struct broken_plan *p) {
  if (!tie_of(p, false)) return false;
  move_action(p, first_row(p, PEN_ADD_TIED_GRAD), first_row(p, PEN_NORM));
  return true;
}

static bool message_of_another_size(struct broken_plan *p) {
  const uint8_t kind = draw(p->seed, 2) ? PEN_SEND_G : PEN_SEND_V;
  if (!tie_of(p, false)) return false;
  for (uint32_t n = 0; n < p->profile->message_count; n++) {
    struct pen_message *message = WRITABLE(struct pen_message, &p->profile->messages[n]);
    if (message->kind != kind) continue;
    message->bytes = draw(p->seed, 2) ? message->bytes / 2 : 2 * message->bytes;
    return true;
  }
  return false;
}

static const struct defect tied_matrix[] = {
    {"accumulators exchanged",
     accumulators_exchanged,
     {"is at the address", "is persistent, but", "overlaps", "outside the persistent part",
      "are shared, but"}},
    {"one accumulator", one_accumulator, {"overlaps", "is at the address", "is persistent, but"}},
    {"additions exchanged",
     additions_exchanged,
     {"which are of two tensors", "op ", "twice for microbatch"}},
    {"no ADD_TIED_GRAD", never_added, {"ADD_TIED_GRAD of a tied weight is missing"}},
    {"ADD_TIED_GRAD before the last sum",
     added_before_the_last_sum,
     {"comes after the step's end", "ADD_TIED_GRAD comes before"}},
    {"ADD_TIED_GRAD after NORM", added_after_the_norm, {"which is that of the sum"}},
    {"a message of another size",
     message_of_another_size,
     {"its message has", "bytes, but the tensor"}},
};

/* ---- wrong accumulator ---- */

/* A sum of the microbatches' gradients: REDUCE_SCATTER, or ACCUMULATE with one replica. */
static uint32_t sum_of(struct broken_plan *p) {
  if (has_replicas(p)) return op_of_kind(p, PEN_OP_REDUCE_SCATTER);
  uint32_t op = p->plan->reduces_microbatches ? op_of_kind(p, PEN_OP_ACCUMULATE) : PEN_NONE;
  bool sums =
      op != PEN_NONE && p->tables->tensors[ops_of(p)[op].operand[1]].base == PEN_BASE_PERSISTENT;
  return sums ? op : PEN_NONE;
}

static bool replaces(struct broken_plan *p, int k) {
  uint32_t op = sum_of(p);
  uint32_t other = op == PEN_NONE ? PEN_NONE : tensor_like(p, ops_of(p)[op].operand[k]);
  if (other == PEN_NONE) return false;
  ops_of(p)[op].operand[k] = other;
  return true;
}

static bool sums_into_another(struct broken_plan *p) { return replaces(p, 1); }
static bool sums_another(struct broken_plan *p) { return replaces(p, 0); }

static bool sums_exchanged(struct broken_plan *p) {
  for (unsigned tries = 0; tries < 50; tries++) {
    uint32_t op = sum_of(p), other = sum_of(p);
    if (op == PEN_NONE || other == PEN_NONE) continue;
    uint32_t *a = &ops_of(p)[op].operand[1], *b = &ops_of(p)[other].operand[1], kept = *a;
    const struct pen_tensor *tensors = p->tables->tensors;
    if (*a == *b || tensors[*a].bytes != tensors[*b].bytes) continue;
    *a = *b;
    *b = kept;
    return true;
  }
  return false;
}

static bool norm_twice(struct broken_plan *p) {
  uint32_t row = first_row(p, PEN_NORM);
  if (row != PEN_NONE) double_action(p, row);
  return row != PEN_NONE;
}

/* The gradients of two weights of one size are at one place, or exchange theirs. */
static bool accumulators_moved(struct broken_plan *p) {
  struct pen_weight *weights = WRITABLE(struct pen_weight, p->plan->weights);
  for (unsigned tries = 0; tries < 100; tries++) {
    struct pen_weight *a = &weights[draw(p->seed, p->plan->weight_count)],
                      *b = &weights[draw(p->seed, p->plan->weight_count)];
    uint64_t kept = a->gradient_offset;
    if (a == b || a->frozen || b->frozen || a->rank != b->rank || a->count != b->count) continue;
    a->gradient_offset = b->gradient_offset;
    if (draw(p->seed, 2)) b->gradient_offset = kept;
    return true;
  }
  return false;
}

static const struct defect wrong_accumulator[] = {
    {"a sum into another gradient",
     sums_into_another,
     {"which are of two tensors", "adds ", "is not summed"}},
    {"a sum of another gradient",
     sums_another,
     {"which are of two tensors", "adds ", "which nothing", "overlaps it"}},
    {"two sums exchanged", sums_exchanged, {"which are of two tensors", "adds "}},
    {"NORM twice", norm_twice, {"is listed twice in a step"}},
    {"gradients moved",
     accumulators_moved,
     {"overlaps", "is at the address", "is persistent, but"}},
};

/* ---- wrong scale ---- */

/* An op that adds to the gradient of a microbatch, and which operand; or PEN_NONE. */
static uint32_t addition(struct broken_plan *p, int *k) {
  uint32_t sum = trains(p) ? sum_of(p) : PEN_NONE;
  if (sum == PEN_NONE) return PEN_NONE;
  uint32_t add = adder_of(p, program_of(p, sum)->first_op, ops_of(p)[sum].operand[0]);
  *k = accumulated_operand(&ops_of(p)[add]);
  return add;
}

static bool adds_directly(struct broken_plan *p) {
  uint32_t sum = sum_of(p);
  if (sum == PEN_NONE) return false;
  uint32_t add = adder_of(p, program_of(p, sum)->first_op, ops_of(p)[sum].operand[0]);
  ops_of(p)[add].operand[accumulated_operand(&ops_of(p)[add])] = ops_of(p)[sum].operand[1];
  return true;
}

static bool adds_twice(struct broken_plan *p) {
  int k;
  uint32_t add = addition(p, &k);
  if (add != PEN_NONE) double_op(p, add);
  return add != PEN_NONE;
}

static bool adds_to_another(struct broken_plan *p) {
  int k = 0;
  uint32_t add = addition(p, &k);
  uint32_t other = add == PEN_NONE ? PEN_NONE : tensor_like(p, ops_of(p)[add].operand[k]);
  if (other == PEN_NONE) return false;
  ops_of(p)[add].operand[k] = other;
  return true;
}

/* The gain of a norm adds another gradient of the microbatch in place of its own. */
static bool adds_another(struct broken_plan *p) {
  for (unsigned tries = 0; tries < 50; tries++) {
    int k = 0;
    uint32_t add = addition(p, &k);
    if (add == PEN_NONE || ops_of(p)[add].kind != PEN_OP_ACCUMULATE) continue;
    uint32_t other = tensor_like(p, ops_of(p)[add].operand[k]);
    if (other == PEN_NONE) continue;
    ops_of(p)[add].operand[0] = other;
    return true;
  }
  return false;
}

static bool never_zeroed(struct broken_plan *p) {
  uint32_t op = op_of_kind(p, PEN_OP_ZERO);
  if (op != PEN_NONE) drop_op(p, op);
  return op != PEN_NONE;
}

static bool zeroed_late(struct broken_plan *p) {
  uint32_t op = op_of_kind(p, PEN_OP_ZERO);
  if (op == PEN_NONE) return false;
  move_op(p, op, adder_of(p, op, ops_of(p)[op].operand[0]));
  return true;
}

static bool another_zeroed(struct broken_plan *p) {
  uint32_t op = op_of_kind(p, PEN_OP_ZERO);
  uint32_t other = op == PEN_NONE ? PEN_NONE : tensor_like(p, ops_of(p)[op].operand[0]);
  if (other == PEN_NONE) return false;
  ops_of(p)[op].operand[0] = other;
  return true;
}

/* Two gradients of a microbatch that are in use at one time have the same bytes. */
static bool gradients_overlap(struct broken_plan *p) {
  int k = 0;
  uint32_t add = addition(p, &k), sum = PEN_NONE;
  struct pen_tensor *tensors = WRITABLE(struct pen_tensor, p->tables->tensors);
  if (add == PEN_NONE) return false;
  uint32_t partial = ops_of(p)[add].operand[k], first = program_of(p, add)->first_op;
  sum = reader_of(p, add, partial);
  for (unsigned tries = 0; tries < 50; tries++) {
    uint32_t other = (uint32_t)draw(p->seed, p->tables->tensor_count);
    uint32_t zero = writer_of(p, first, other);
    if (other == partial || tensors[other].base != tensors[partial].base || zero >= sum ||
        zero < writer_of(p, first, partial))
      continue;
    tensors[other].offset = tensors[partial].offset;
    return true;
  }
  return false;
}

static bool elsewhere_in_the_arena(struct broken_plan *p) {
  for (unsigned tries = 0; tries < 50 && trains(p); tries++) {
    uint32_t row = some_row(p, PEN_B, PEN_W);
    uint64_t offset = draw(p->seed, 2) ? 0 : PEN_ALIGNMENT_BYTES;
    if (row == PEN_NONE || !uses_base(p, row, PEN_BASE_PARTIAL) ||
        base_of(p, row, PEN_BASE_PARTIAL) == offset)
      continue;
    set_base(p, row, PEN_BASE_PARTIAL, offset);
    return true;
  }
  return false;
}

static const struct defect wrong_scale[] = {
    {"an op adds to the sum", adds_directly, {"only whole gradients", "bytes, but"}},
    {"an op adds twice", adds_twice, {"derived: op", "a second time"}},
    {"an op adds to another gradient",
     adds_to_another,
     {"derived: op", "which is summed already", "nor zero", "to which nothing was added",
      "in the same bytes", "does not begin where"}},
    {"an op adds another gradient",
     adds_another,
     {"the gradient of one microbatch", "which nothing", "only to the sum of microbatches",
      "overlaps it", "but its bytes", "has overwritten"}},
    {"no ZERO", never_zeroed, {"nor zero", "which nothing in this program has written"}},
    {"ZERO after the gradient", zeroed_late, {"nor zero"}},
    {"ZERO of another",
     another_zeroed,
     {"nor zero", "a second time", "overlaps it", "may still use"}},
    {"two gradients at one place",
     gradients_overlap,
     {"overlaps it", "is outside", "outside the memory", "which peers may still read",
      "in the same bytes", "only partly written"}},
    {"gradients elsewhere in the arena",
     elsewhere_in_the_arena,
     {"the gradients of its microbatch are at", "outside the memory for gradients"}},
};

/* ---- deadlock ---- */

static bool awaits_the_future(struct broken_plan *p) {
  uint32_t op = op_of_kind(p, PEN_OP_WAIT_PEERS);
  if (op == PEN_NONE) return false;
  op_row(p, &ops_of(p)[op])->awaited += 1 + (uint32_t)draw(p->seed, 3);
  return true;
}

static bool counts_from_elsewhere(struct broken_plan *p) {
  for (unsigned tries = 0; tries < 50; tries++) {
    uint32_t row = some_row(p, PEN_F, PEN_W);
    if (row == PEN_NONE || !pen_collectives_within(p->tables, &p->action[row])) continue;
    bool less = draw(p->seed, 2) && p->action[row].awaited_collective > 0;
    p->action[row].awaited_collective += less ? UINT32_MAX : 1 + (uint32_t)draw(p->seed, 3);
    return true;
  }
  return false;
}

static bool list_awaits_the_future(struct broken_plan *p) {
  for (unsigned tries = 0; tries < 50 && has_replicas(p); tries++) {
    uint32_t row = some_row(p, PEN_UPDATE, PEN_ACTION_KINDS - 1), count = 0;
    if (row == PEN_NONE || !pen_kind_is_collective(p->action[row].kind)) continue;
    for (uint32_t before = 0; before < row; before++)
      count += pen_kind_is_collective(p->action[before].kind) +
               pen_collectives_within(p->tables, &p->action[before]);
    p->action[row].awaited_collective = count + 1 + (uint32_t)draw(p->seed, 3);
    return true;
  }
  return false;
}

static bool both_have_collectives(struct broken_plan *p) {
  for (uint32_t row = 1; row + 2 < p->tables->action_count; row++) {
    struct pen_action *a = &p->action[row];
    if (a[0].kind > PEN_W || a[1].kind > PEN_W || a[-1].overlaps || a[0].overlaps ||
        a[1].overlaps || !pen_collectives_within(p->tables, &a[0]) ||
        !pen_collectives_within(p->tables, &a[1]) || draw(p->seed, 2))
      continue;
    a->overlaps = true;
    return true;
  }
  return false;
}

static const struct defect deadlock[] = {
    {"WAIT_PEERS for a later signal", awaits_the_future, {"deadlock: it waits"}},
    {"an action that counts from elsewhere",
     counts_from_elsewhere,
     {"collectives before it, but there are"}},
    {"a collective of the list for a later one", list_awaits_the_future, {"deadlock: it waits"}},
    {"two actions with collectives as a pair",
     both_have_collectives,
     {"but both have collectives", "cannot overlap"}},
};

static const struct defect_kind kinds[] = {
#define KIND(name, defects) \
  { name, defects, sizeof(defects) / sizeof *(defects) }
    KIND("stale shard", stale_shard),
    KIND("tied matrix", tied_matrix),
    KIND("wrong accumulator", wrong_accumulator),
    KIND("wrong scale", wrong_scale),
    KIND("deadlock", deadlock),
};

int main(void) { return main_of_kinds(kinds, sizeof kinds / sizeof *kinds, 1414213562); }
