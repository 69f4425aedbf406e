/* verify_order.c: random plans that leave out, repeat or reorder what gradients are the sum of:
 * microbatches, replicas, groups, the two ends of a tied weight; or whose norm counts elements
 * never or twice. Each is rejected, by gradient_sums.c unless an earlier check has seen it. The
 * kinds are modelled on what users of other systems report: only the last microbatch trained (NeMo
 * Automodel #3530), the boundary microbatch left out (DeepSpeed #7985), a scatter over the wrong
 * group (Megatron-LM #7452), norms that count too little (Megatron-LM #5916) or differ between ways
 * of data parallelism (torchtitan #2318). verify_gradients.c has what one microbatch adds. */
#include "gen/verify/verify.h"
#include "tests/support/collective_plans.h"

/* ---- actions of the train profile ---- */

/* A rank with an action of the kind: its row; PEN_NONE: no rank has one. */
static uint32_t turn_to_row(struct broken_plan *p, int kind) {
  const uint32_t first = (uint32_t)draw(p->seed, p->plan->rank_count);
  p->profile = WRITABLE(struct pen_profile, &p->plan->profiles[0]);
  for (uint32_t n = 0; n < p->plan->rank_count; n++) {
    turn_to_rank(p, (first + n) % p->plan->rank_count);
    if (first_row(p, kind) == PEN_NONE) continue;
    uint32_t row = some_row(p, kind, kind);
    return row == PEN_NONE ? first_row(p, kind) : row;
  }
  return PEN_NONE;
}

/* W where a schedule splits the backward, else B. */
static uint32_t turn_to_backward(struct broken_plan *p) {
  uint32_t row = turn_to_row(p, PEN_W);
  return row != PEN_NONE ? row : turn_to_row(p, PEN_B);
}

/* The next action of the kind and stage of a row, or PEN_NONE. */
static uint32_t next_alike(const struct broken_plan *p, uint32_t row) {
  for (uint32_t n = row + 1; n < p->tables->action_count; n++)
    if (p->action[n].kind == p->action[row].kind && p->action[n].stage == p->action[row].stage)
      return n;
  return PEN_NONE;
}

static bool drops(struct broken_plan *p, int kind) {
  uint32_t row = turn_to_row(p, kind);
  if (row != PEN_NONE) drop_action(p, row);
  return row != PEN_NONE;
}
static bool doubles(struct broken_plan *p, int kind) {
  uint32_t row = turn_to_row(p, kind);
  if (row != PEN_NONE) double_action(p, row);
  return row != PEN_NONE;
}

/* Moves an action of one kind directly before, or after, the first, or last, of another. */
static bool moves(struct broken_plan *p, int kind, int other, bool after) {
  uint32_t row = turn_to_row(p, kind), to = first_row(p, other);
  if (row == PEN_NONE || to == PEN_NONE) return false;
  move_action(p, row, to - (row < to && !after) + (row > to && after));
  return true;
}

/* ---- microbatches ---- */

/* Two of a stage change places with all their columns. */
static bool microbatches_exchanged(struct broken_plan *p) {
  uint32_t row = turn_to_backward(p), other = row == PEN_NONE ? PEN_NONE : next_alike(p, row);
  if (other == PEN_NONE || p->action[row].overlaps || p->action[other].overlaps) return false;
  struct pen_action kept = p->action[row];
  p->action[row] = p->action[other];
  p->action[other] = kept;
  p->action[other].awaited_collective = p->action[row].awaited_collective;
  p->action[row].awaited_collective = kept.awaited_collective;
  return true;
}

static bool another_plan_order(struct broken_plan *p) {
  p->plan->backward_order = p->plan->backward_order == PEN_BACKWARDS_RISING ? PEN_BACKWARDS_FALLING
                                                                            : PEN_BACKWARDS_RISING;
  return true;
}

/* The first or the last of a stage. */
static bool boundary_left_out(struct broken_plan *p) {
  uint32_t row = turn_to_backward(p);
  if (row == PEN_NONE) return false;
  for (uint32_t next = next_alike(p, row); draw(p->seed, 2) && next != PEN_NONE;
       next = next_alike(p, row))
    row = next;
  drop_action(p, row);
  return true;
}

/* All but the last of a stage run a program without ops. */
static bool only_the_last(struct broken_plan *p) {
  uint32_t row = turn_to_row(p, PEN_W), changes = 0;
  if (row == PEN_NONE) return false;
  struct pen_program *programs = pen_new(p->tables->program_count + 1, sizeof *programs);
  memcpy(programs, p->tables->programs, p->tables->program_count * sizeof *programs);
  programs[p->tables->program_count] = programs[p->action[row].program];
  programs[p->tables->program_count].op_count = 0;
  const uint16_t stage = p->action[row].stage;
  for (uint32_t n = 0; n < p->tables->action_count; n++)
    if (p->action[n].kind == PEN_W && p->action[n].stage == stage && next_alike(p, n) != PEN_NONE) {
      p->action[n].program = p->tables->program_count;
      p->action[n].awaited_collective = 0;
      changes++;
    }
  p->tables->programs = programs;
  p->tables->program_count++;
  return changes > 0;
}

/* Whether the operands of an action are elsewhere in the frame of another. */
static bool has_another_place(const struct broken_plan *p, uint32_t row, uint32_t other) {
  for (int base = 0; base < PEN_BASES; base++)
    if (base != PEN_BASE_SCRATCH && base_of(p, row, base) != base_of(p, other, base) &&
        uses_base(p, row, base))
      return true;
  return false;
}

static bool in_anothers_frame(struct broken_plan *p) {
  uint32_t row = turn_to_backward(p), other = row == PEN_NONE ? PEN_NONE : next_alike(p, row);
  if (other == PEN_NONE || !has_another_place(p, row, other)) return false;
  uint32_t kept = p->action[row].frame;
  p->action[row].frame = p->action[other].frame;
  if (draw(p->seed, 2)) p->action[other].frame = kept;
  return true;
}

static bool anothers_number(struct broken_plan *p) {
  uint32_t row = turn_to_backward(p), other = row == PEN_NONE ? PEN_NONE : next_alike(p, row);
  if (other == PEN_NONE) return false;
  p->action[row].microbatch = p->action[other].microbatch;
  return true;
}

static bool weights_before_inputs(struct broken_plan *p) {
  uint32_t row = turn_to_row(p, PEN_W);
  if (row == PEN_NONE || p->action[row].overlaps || p->action[row - 1].overlaps) return false;
  uint32_t input = find_row(p, PEN_I, p->action[row].stage, p->action[row].microbatch);
  if (input > 0 && p->action[input - 1].overlaps) return false;
  move_action(p, row, input);
  return true;
}

/* The stage sends back, or makes, another tensor of the size than the gradient of its input. */
static bool sends_another_gradient(struct broken_plan *p) {
  p->profile = WRITABLE(struct pen_profile, &p->plan->profiles[0]);
  if (p->plan->stage_count == 1) return false;
  uint32_t number = 1 + (uint32_t)draw(p->seed, p->plan->stage_count - 1);
  struct pen_stage *stage = WRITABLE(struct pen_stage, &p->profile->stages[number]);
  turn_to_rank(p, stage->rank);
  const struct pen_tensor *tensors = p->tables->tensors, *own = &tensors[stage->input_gradient];
  char prefix[16];
  snprintf(prefix, sizeof prefix, "s%u.", number);
  for (uint32_t n = 0; n < p->tables->tensor_count; n++)
    if (n != stage->input_gradient && tensors[n].base == own->base &&
        tensors[n].bytes == own->bytes && strncmp(tensors[n].name, prefix, strlen(prefix)) == 0) {
      stage->input_gradient = n;
      return true;
    }
  return false;
}

/* ---- replicas and groups ---- */

static bool another_stages_sum(struct broken_plan *p) {
  static const int kinds[] = {PEN_GRAD_READY, PEN_REDUCE_SCATTER, PEN_REDUCE_GROUPS,
                              PEN_GATHER_GROUPS, PEN_ALL_GATHER_GRAD};
  uint32_t row = turn_to_row(p, kinds[draw(p->seed, 5)]);
  if (row == PEN_NONE || p->plan->stage_count == 1) return false;
  p->action[row].stage =
      (uint16_t)((p->action[row].stage + 1 + draw(p->seed, p->plan->stage_count - 1)) %
                 p->plan->stage_count);
  return true;
}

/* Before the last backward of its stage. */
static bool early_sum(struct broken_plan *p) {
  uint32_t row = turn_to_row(p, draw(p->seed, 2) ? PEN_REDUCE_SCATTER : PEN_GRAD_READY), last = row;
  if (row == PEN_NONE) return false;
  while (last-- > 0)
    if (p->action[last].stage == p->action[row].stage &&
        (p->action[last].kind == PEN_B || p->action[last].kind == PEN_W))
      break;
  if (last == PEN_NONE || (last > 0 && p->action[last - 1].overlaps)) return false;
  move_action(p, row, last);
  return true;
}

static bool no_ready(struct broken_plan *p) { return drops(p, PEN_GRAD_READY); }
static bool no_sum(struct broken_plan *p) { return drops(p, PEN_REDUCE_SCATTER); }
static bool sum_twice(struct broken_plan *p) { return doubles(p, PEN_REDUCE_SCATTER); }
static bool no_group_sum(struct broken_plan *p) { return drops(p, PEN_REDUCE_GROUPS); }
static bool no_group_gather(struct broken_plan *p) { return drops(p, PEN_GATHER_GROUPS); }
static bool group_gather_early(struct broken_plan *p) {
  return moves(p, PEN_GATHER_GROUPS, PEN_REDUCE_GROUPS, false);
}
static bool no_gather(struct broken_plan *p) { return drops(p, PEN_ALL_GATHER_GRAD); }
static bool gather_early(struct broken_plan *p) {
  return moves(p, PEN_ALL_GATHER_GRAD, PEN_GRAD_READY, false);
}
static bool otherwise_reduced(struct broken_plan *p) {
  p->plan->reduces_microbatches = !p->plan->reduces_microbatches;
  return true;
}
static bool microbatch_sum_dropped(struct broken_plan *p) {
  uint32_t op = PEN_NONE;
  for (unsigned tries = 0; tries < 8 && op == PEN_NONE; tries++) {
    p->profile = WRITABLE(struct pen_profile, &p->plan->profiles[0]);
    turn_to_rank(p, (uint32_t)draw(p->seed, p->plan->rank_count));
    op = op_of_kind(p, PEN_OP_REDUCE_SCATTER);
  }
  if (op != PEN_NONE) drop_op(p, op);
  return op != PEN_NONE;
}

/* ---- the tied weight ---- */

/* After a collective of its stage. */
static bool head_added_late(struct broken_plan *p) {
  uint32_t row = turn_to_row(p, PEN_ADD_TIED_GRAD), to = PEN_NONE, seen = 0;
  for (uint32_t n = 0; row != PEN_NONE && n < p->tables->action_count; n++)
    if (p->action[n].kind >= PEN_GRAD_READY && p->action[n].kind <= PEN_ALL_GATHER_GRAD &&
        p->action[n].stage == 0 && draw(p->seed, ++seen) == 0)
      to = n;
  if (to != PEN_NONE) move_action(p, row, to);
  return to != PEN_NONE;
}
static bool head_added_twice(struct broken_plan *p) { return doubles(p, PEN_ADD_TIED_GRAD); }
static bool head_left_out(struct broken_plan *p) { return drops(p, PEN_ADD_TIED_GRAD); }

/* ---- the norm ---- */

static bool no_norm(struct broken_plan *p) { return drops(p, PEN_NORM); }
static bool norm_twice(struct broken_plan *p) { return doubles(p, PEN_NORM); }
static bool norm_of_parts(struct broken_plan *p) {
  static const int kinds[] = {PEN_REDUCE_SCATTER, PEN_REDUCE_GROUPS, PEN_GATHER_GROUPS};
  return moves(p, PEN_NORM, kinds[draw(p->seed, 3)], false);
}
static bool norm_before_the_head(struct broken_plan *p) {
  return moves(p, PEN_NORM, PEN_ADD_TIED_GRAD, false);
}
static bool no_norm_of_others(struct broken_plan *p) {
  return p->plan->optimizer.clip_norm > 0 && drops(p, PEN_WAIT_NORM);
}
static bool update_early(struct broken_plan *p) {
  static const int kinds[] = {PEN_NORM, PEN_PUBLISH, PEN_ALL_GATHER_GRAD, PEN_GATHER_GROUPS};
  return moves(p, PEN_UPDATE, kinds[draw(p->seed, 4)], false);
}

static struct pen_weight *weights_of(struct broken_plan *p) {
  return WRITABLE(struct pen_weight, p->plan->weights);
}
static uint32_t some_weight(struct broken_plan *p) {
  return (uint32_t)draw(p->seed, p->plan->weight_count);
}

/* One more weight: a copy of another, at its place or at the end; in the next bytes of the file. */
static bool counted_twice(struct broken_plan *p) {
  const uint32_t count = p->plan->weight_count, from = some_weight(p);
  struct pen_weight *grown = pen_new(count + 1, sizeof *grown);
  memcpy(grown, p->plan->weights, count * sizeof *grown);
  grown[count] = grown[from];
  grown[count].value_file = grown[count - 1].value_file + grown[count - 1].count * sizeof(float);
  if (draw(p->seed, 2)) grown[count].name = "another.weight";
  p->plan->weights = grown;
  p->plan->weight_count++;
  return true;
}

static bool named_twice(struct broken_plan *p) {
  uint32_t one = some_weight(p), other = some_weight(p);
  if (one == other) return false;
  weights_of(p)[one].name = weights_of(p)[other].name;
  return true;
}

static bool never_counted(struct broken_plan *p) {
  const uint32_t gone = some_weight(p);
  struct pen_weight *weights = weights_of(p);
  if (weights[gone].frozen) return false;
  for (uint32_t n = gone; n + 1 < p->plan->weight_count; n++) weights[n] = weights[n + 1];
  p->plan->weight_count--;
  return true;
}

static bool counted_elsewhere(struct broken_plan *p) {
  struct pen_weight *weight = &weights_of(p)[some_weight(p)];
  if (p->plan->rank_count == 1) return false;
  weight->rank = (weight->rank + 1) % p->plan->rank_count;
  return true;
}

static bool other_elements(struct broken_plan *p) {
  struct pen_weight *weight = &weights_of(p)[some_weight(p)];
  uint64_t *number =
      draw(p->seed, 2) ? &weight->count : &weight->dim[draw(p->seed, weight->dim_count)];
  *number = draw(p->seed, 2) ? *number / 2 : *number + PEN_NORM_BLOCK;
  return true;
}

static bool counted_out_of_order(struct broken_plan *p) {
  uint32_t one = some_weight(p), other = some_weight(p);
  struct pen_weight *weights = weights_of(p), kept = weights[one];
  if (one == other || weights[one].stage != weights[other].stage) return false;
  if (p->plan->tie_count && (p->plan->ties->weight == one || p->plan->ties->weight == other))
    return false;
  weights[one] = weights[other];
  weights[other] = kept;
  return true;
}

#define MISSING "is missing", "does not come before it", "collectives before it, but there are"
#define PARTS "summed: "
#define LATE "comes after", "comes before", "comes next", "deadlock", "must come"
#define TABLE                                                                                \
  "is at the address", "is persistent, but", "outside the persistent part", "bytes, but",    \
      "is all-gathered, but", "are shared, but", "overlaps", "is on rank", "the head reads", \
      "sharded over the replicas"

static const struct defect defects[] = {
    {"two microbatches exchanged",
     microbatches_exchanged,
     {"ordered: ", LATE, "is received as number", "needs", "may already arrive",
      "but its bytes hold", "has overwritten"}},
    {"another order of the plan", another_plan_order, {"ordered: "}},
    {"the boundary microbatch is left out", boundary_left_out, {MISSING, "overlaps the next"}},
    {"only the last microbatch is trained", only_the_last, {"lacks microbatch", "collective"}},
    {"a microbatch in another's frame",
     in_anothers_frame,
     {"its message", "but its bytes hold", "which nothing has written", "has overwritten",
      "may already arrive", "not at entry", "of the previous step"}},
    {"a microbatch's number for another", anothers_number, {"is listed twice"}},
    {"gradients of weights before those of inputs",
     weights_before_inputs,
     {"whose result it needs", "cannot overlap", "overlaps the next", "of more than two"}},
    {"another tensor sent back",
     sends_another_gradient,
     {"passed: ", "its message leaves from", "but its bytes hold", "which nothing has written",
      "has overwritten"}},
    {"a sum of another stage",
     another_stages_sum,
     {"is listed twice", "is not on this rank", "in use: ", "in use: ", MISSING}},
    {"a sum before the last microbatch", early_sum, {"in use: ", MISSING, "deadlock"}},
    {"gradients that are not complete", no_ready, {MISSING, "deadlock"}},
    {"no sum over the replicas", no_sum, {MISSING, "deadlock", PARTS}},
    {"a sum over the replicas twice", sum_twice, {"is listed twice", PARTS}},
    {"no sum over the groups", no_group_sum, {MISSING, "deadlock", PARTS}},
    {"sums of the groups not gathered", no_group_gather, {MISSING, "deadlock", PARTS}},
    {"sums of the groups gathered early", group_gather_early, {MISSING, "deadlock", PARTS}},
    {"sums not gathered", no_gather, {MISSING, "deadlock", PARTS}},
    {"sums gathered early", gather_early, {MISSING, "deadlock", PARTS}},
    {"sums made otherwise than the plan says",
     otherwise_reduced,
     {"the gradient of", "is not an op of this plan", "summed: ", "in use: ",
      "only whole gradients", "which is not summed", "in use: ", "are shared, but", PARTS}},
    {"a microbatch not summed over the replicas",
     microbatch_sum_dropped,
     {"is not summed", "which no collective before it uses"}},
    {"the head's gradient after the sums", head_added_late, {"in use: ", "tied: ", LATE}},
    {"the head's gradient twice", head_added_twice, {"is listed twice"}},
    {"no gradient of the head's", head_left_out, {MISSING}},
    {"no norm", no_norm, {"NORM must come"}},
    {"a norm twice", norm_twice, {"is listed twice"}},
    {"a norm of parts of sums", norm_of_parts, {MISSING, LATE, "summed: ", PARTS}},
    {"a norm without the head", norm_before_the_head, {"which is that of the sum"}},
    {"no norm of the other ranks", no_norm_of_others, {"WAIT_NORM"}},
    {"an update too early", update_early, {MISSING, LATE, PARTS, "it clips by"}},
    {"a weight counted twice",
     counted_twice,
     {"counted: ", TABLE, "lacks microbatch", "snapshot", "of the device control block"}},
    {"two weights of one name", named_twice, {"counted: ", TABLE}},
    {"a weight never counted",
     never_counted,
     {TABLE, "lacks microbatch", "is tied", "base or weight"}},
    {"a weight counted by another rank", counted_elsewhere, {"but its stage is not", TABLE}},
    {"other elements than the weight's", other_elements, {"counted: ", TABLE, "elements, but"}},
    {"weights out of order", counted_out_of_order, {"counted: "}},
};

int main(void) { return main_of_defects(defects, sizeof defects / sizeof *defects, 314159265); }
