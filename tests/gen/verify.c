/* verify.c: finished plans: the verifier accepts those of the generator, and rejects those with
 * changed messages, addresses or actions, each with its own message. (Tables: verify_tables.c;
 * actions without a plan: verify_rows.c; several shapes: verify_shapes.c; the models of
 * communication: verify_deadlocks.c.) */
#include "gen/verify/verify.h"
#include "tests/support/broken.h"

/* ---- defects of messages ---- */

static bool wrong_bytes(struct broken_plan *p) {
  struct pen_message *message = some_message(p);
  if (message) message->bytes += 64;
  return message;
}
static bool wrong_sequence(struct broken_plan *p) {
  struct pen_message *message = some_message(p);
  if (message) message->sequence++;
  return message;
}
static bool wrong_source(struct broken_plan *p) {
  struct pen_message *message = some_message(p);
  if (message) message->source_offset += 64;
  return message;
}
static bool wrong_target(struct broken_plan *p) {
  struct pen_message *message = some_message(p);
  if (message) message->target_offset += 64;
  return message;
}
static bool wrong_channel(struct broken_plan *p) {
  struct pen_message *message = some_message(p);
  if (!message || p->profile->channel_count < 2) return false;
  message->channel = (message->channel + 1) % p->profile->channel_count;
  return true;
}
static bool wrong_message(struct broken_plan *p) {
  uint32_t row = some_row(p, PEN_SEND_F, PEN_WAIT_B);
  if (row == PEN_NONE) return false;
  p->action[row].message = (p->action[row].message + 1) % p->profile->message_count;
  return true;
}
static bool wrong_counts(struct broken_plan *p) {
  if (p->profile->channel_count == 0) return false;
  struct pen_channel *channel =
      WRITABLE(struct pen_channel, &p->profile->channels[draw(p->seed, p->profile->channel_count)]);
  if (draw(p->seed, 2))
    channel->message_count++;
  else
    channel->credit_count++;
  return true;
}

/* A credited message, or null. */
static struct pen_message *credited(struct broken_plan *p) {
  for (unsigned tries = 0; tries < 100; tries++) {
    struct pen_message *message = some_message(p);
    if (message && message->credit != PEN_NONE) return message;
  }
  return NULL;
}
static bool wrong_credit(struct broken_plan *p) {
  struct pen_message *message = credited(p);
  if (message) message->credit++;
  return message;
}

/* Removes a message's credit and renumbers the later ones of the channel. */
static void elide(const struct pen_profile *profile, struct pen_message *message) {
  uint32_t credit = message->credit;
  message->credit = PEN_NONE;
  WRITABLE(struct pen_channel, &profile->channels[message->channel])->credit_count--;
  for (uint32_t index = 0; index < profile->message_count; index++) {
    struct pen_message *other = WRITABLE(struct pen_message, &profile->messages[index]);
    if (other->channel == message->channel && other->credit != PEN_NONE && other->credit > credit)
      other->credit--;
  }
}

/* The first action from `first` on that names a message. */
static uint32_t row_of_message(const struct broken_plan *p, uint32_t message, uint32_t first) {
  while (p->action[first].kind >= PEN_NORM || p->action[first].message != message) first++;
  return first;
}

/* Are two messages in progress at the same time, from RECV to WAIT? */
static bool meet(const struct broken_plan *p, uint32_t a, uint32_t b) {
  uint32_t received_a = row_of_message(p, a, 0), received_b = row_of_message(p, b, 0);
  return row_of_message(p, a, received_a + 1) > received_b &&
         row_of_message(p, b, received_b + 1) > received_a;
}

/* A message's target is moved, its readers with it, onto the slot of another that is under way at
 * the same time. */
static bool wrong_slot(struct broken_plan *p) {
  for (unsigned tries = 0; tries < 300; tries++) {
    struct pen_message *message = some_message(p), *other = some_message(p);
    if (!message || message->target_offset == other->target_offset ||
        message->bytes != other->bytes)
      continue;
    uint32_t to = p->profile->channels[message->channel].to_rank;
    if (to != p->profile->channels[other->channel].to_rank) continue;
    p->rank = to;
    p->tables = WRITABLE(struct pen_rank_program, &p->profile->ranks[to]);
    p->action = WRITABLE(struct pen_action, p->tables->actions);
    if (!meet(p, (uint32_t)(message - p->profile->messages),
              (uint32_t)(other - p->profile->messages)))
      continue;
    bool backward = message->kind == PEN_SEND_B;
    message->target_offset = other->target_offset;
    set_all_bases(p, backward ? message->stage - 1u : message->stage + 1u, message->microbatch,
                  backward ? PEN_BASE_OUTPUT_GRADIENT : PEN_BASE_INPUT, other->target_offset);
    return true;
  }
  return false;
}

/* ---- defects of places ---- */

/* A kept block is put where that of another microbatch of the stage is while both are alive. */
static bool overlap(struct broken_plan *p) {
  uint32_t row = some_row(p, PEN_F, PEN_F);
  if (p->profile->kind != PEN_TRAIN || row + 1 >= p->tables->action_count) return false;
  const struct pen_action *own = &p->action[row];
  if (!uses_base(p, row, PEN_BASE_SAVED_W)) return false;
  for (uint32_t next = row + 1; next < p->tables->action_count; next++) {
    const struct pen_action *other = &p->action[next];
    if (other->stage == own->stage && (other->kind == PEN_B || other->kind == PEN_W) &&
        other->microbatch == own->microbatch)
      return false;
    if (other->stage != own->stage || other->kind != PEN_F) continue;
    set_all_bases(p, other->stage, other->microbatch, PEN_BASE_SAVED_W,
                  base_of(p, row, PEN_BASE_SAVED_W));
    return true;
  }
  return false;
}
static bool shifted(struct broken_plan *p) {
  uint32_t row = some_row(p, PEN_B, PEN_I);
  if (row == PEN_NONE || !uses_base(p, row, PEN_BASE_SAVED_W)) return false;
  set_base(p, row, PEN_BASE_SAVED_W, base_of(p, row, PEN_BASE_SAVED_W) + 64);
  return true;
}
static bool scratch_over_kept(struct broken_plan *p) {
  uint32_t row = some_row(p, PEN_B, PEN_W);
  if (row == PEN_NONE || !uses_base(p, row, PEN_BASE_SAVED_W) ||
      !uses_base(p, row, PEN_BASE_SCRATCH))
    return false;
  set_base(p, row, PEN_BASE_SCRATCH, base_of(p, row, PEN_BASE_SAVED_W));
  return true;
}
static bool output_elsewhere(struct broken_plan *p) {
  uint32_t row = some_row(p, PEN_F, PEN_F);
  if (!uses_base(p, row, PEN_BASE_OUTPUT)) return false;
  set_base(p, row, PEN_BASE_OUTPUT, base_of(p, row, PEN_BASE_OUTPUT) + 64);
  return true;
}
static bool among_weights(struct broken_plan *p) {
  uint32_t row = some_row(p, PEN_F, PEN_W);
  if (!uses_base(p, row, PEN_BASE_SCRATCH)) return false;
  set_base(p, row, PEN_BASE_SCRATCH, p->plan->memory[p->rank].receive_bytes);
  return true;
}
static bool across_receive_end(struct broken_plan *p) {
  uint32_t row = some_row(p, PEN_F, PEN_W);
  uint64_t window = p->plan->memory[p->rank].receive_bytes;
  if (window == 0 || !uses_base(p, row, PEN_BASE_SCRATCH)) return false;
  set_base(p, row, PEN_BASE_SCRATCH, window - 64);
  return true;
}
static bool outside_arena(struct broken_plan *p) {
  struct pen_rank_memory *memory = WRITABLE(struct pen_rank_memory, &p->plan->memory[p->rank]);
  memory->arena_bytes = memory->persistent_end + 64;
  return true;
}
static bool small_receive_region(struct broken_plan *p) {
  struct pen_rank_memory *memory = WRITABLE(struct pen_rank_memory, &p->plan->memory[p->rank]);
  if (memory->receive_bytes == 0) return false;
  if (memory->shared_bytes == memory->receive_bytes) memory->shared_bytes = 64;
  memory->receive_bytes = 64;
  return true;
}
static bool crooked_frame(struct broken_plan *p) {
  uint32_t row = some_row(p, PEN_F, PEN_W);
  set_base(p, row, PEN_BASE_SCRATCH, base_of(p, row, PEN_BASE_SCRATCH) + 4);
  return true;
}
static bool crooked_tensor(struct broken_plan *p) {
  WRITABLE(struct pen_tensor, &p->tables->tensors[draw(p->seed, p->tables->tensor_count)])
      ->offset += 8;
  return true;
}
static bool wrong_loss(struct broken_plan *p) {
  uint32_t last = p->plan->stage_count - 1;
  if (p->profile->stages[last].rank != p->rank) return false;
  uint32_t row = find_row(p, PEN_F, last, (uint32_t)draw(p->seed, p->plan->microbatch_count));
  set_base(p, row, PEN_BASE_LOSS, base_of(p, row, PEN_BASE_LOSS) + (draw(p->seed, 2) ? 8 : -8));
  return true;
}

/* ---- defects of actions ---- */

static bool wrong_program(struct broken_plan *p) {
  uint32_t row = some_row(p, PEN_F, PEN_W);
  if (p->tables->program_count < 2) return false;
  p->action[row].program = (p->action[row].program + 1) % p->tables->program_count;
  return true;
}
static bool wrong_frame(
    struct broken_plan *p) { /* that of another microbatch, so that what it reads is elsewhere */
  uint32_t row = some_row(p, PEN_B, PEN_W), other = some_row(p, PEN_B, PEN_W);
  if (row == PEN_NONE || p->action[row].kind != p->action[other].kind ||
      p->action[row].stage != p->action[other].stage)
    return false;
  if (base_of(p, row, PEN_BASE_SAVED_W) == base_of(p, other, PEN_BASE_SAVED_W) ||
      !uses_base(p, row, PEN_BASE_SAVED_W))
    return false;
  p->action[row].frame = p->action[other].frame;
  return true;
}
/* The first action of a pair, or PEN_NONE. */
static uint32_t some_pair(struct broken_plan *p) {
  uint32_t count = p->tables->action_count, first = (uint32_t)draw(p->seed, count);
  for (uint32_t n = 0; n < count; n++)
    if (p->action[(first + n) % count].overlaps) return (first + n) % count;
  return PEN_NONE;
}
static bool pair_shares_bytes(
    struct broken_plan *p) { /* the scratch of one lies on what the other works with */
  uint32_t row = some_pair(p);
  if (row == PEN_NONE) return false;
  for (uint32_t side = 0; side < 2; side++) {
    uint32_t own = row + side, other = row + 1 - side;
    if (!uses_base(p, own, PEN_BASE_SCRATCH) || !uses_base(p, other, PEN_BASE_SAVED_W)) continue;
    set_base(p, own, PEN_BASE_SCRATCH, base_of(p, other, PEN_BASE_SAVED_W));
    return true;
  }
  return false;
}
static bool pair_writes_what_is_read(
    struct broken_plan
        *p) { /* what the backward reads for the last time, the forward would overwrite */
  uint32_t row = some_pair(p);
  if (row == PEN_NONE || !uses_base(p, row + 1, PEN_BASE_SAVED_W))
    return false; /* F has its workspace in scratch */
  struct pen_action first = p->action[row];
  p->action[row] = p->action[row + 1]; /* in turn this would be right: the backward, then the
                                          forward over its remains */
  p->action[row + 1] = first;
  p->action[row].overlaps = true;
  p->action[row + 1].overlaps = false;
  set_base(p, row + 1, PEN_BASE_SCRATCH, base_of(p, row, PEN_BASE_SAVED_W));
  return true;
}
static bool pair_of_one(struct broken_plan *p) {
  uint32_t row = some_row(p, PEN_SEND_F, PEN_WAIT_B);
  if (row == PEN_NONE) return false;
  p->action[row].overlaps = true;
  return true;
}
static bool pair_in_need(struct broken_plan *p) {
  uint32_t row = some_row(p, PEN_I, PEN_I);
  if (row == PEN_NONE || p->action[row + 1].kind != PEN_W ||
      p->action[row + 1].microbatch != p->action[row].microbatch)
    return false;
  p->action[row].overlaps = true;
  return true;
}
static bool three(struct broken_plan *p) {
  uint32_t row = some_pair(p);
  if (row == PEN_NONE) return false;
  p->action[row + 1].overlaps = true;
  return true;
}
static bool remove_row(struct broken_plan *p, uint32_t row) {
  if (row == PEN_NONE) return false;
  memmove(p->action + row, p->action + row + 1,
          (--p->tables->action_count - row) * sizeof *p->action);
  return true;
}
static bool dropped(struct broken_plan *p) { return remove_row(p, some_row(p, PEN_F, PEN_RECV_B)); }
static bool dropped_wait(struct broken_plan *p) {
  return remove_row(p, some_row(p, PEN_WAIT_F, PEN_WAIT_B));
}
static bool dropped_publish(struct broken_plan *p) {
  return remove_row(p, some_row(p, PEN_PUBLISH, PEN_PUBLISH));
}
static bool dropped_update(struct broken_plan *p) {
  return remove_row(p, some_row(p, PEN_UPDATE, PEN_UPDATE));
}
static bool dropped_gather(struct broken_plan *p) {
  if (p->profile->kind != PEN_TRAIN || p->plan->optimizer.clip_norm == 0) return false;
  return remove_row(p, some_row(p, PEN_WAIT_NORM, PEN_WAIT_NORM));
}

static const struct defect defects[] = {
    {"wrong bytes", wrong_bytes, {"bytes, but the tensor"}},
    {"wrong sequence", wrong_sequence, {"its message has sequence"}},
    {"wrong source", wrong_source, {"its message leaves from"}},
    {"wrong target", wrong_target, {"its message's target is at", "its message's target at"}},
    {"wrong channel", wrong_channel, {"but its channel is from"}},
    {"wrong message", wrong_message, {"which belongs to another action"}},
    {"wrong counts", wrong_counts, {"counts"}},
    {"wrong credit", wrong_credit, {"it gives credit"}},
    {"wrong slot",
     wrong_slot,
     {"may already arrive there", "but its bytes hold", "previous step", "overlaps it",
      "in the same bytes", "scratch of action"}},
    {"overlap",
     overlap,
     {"one writes where the other has", "but its bytes hold", "scratch of action",
      "in the same bytes", "overlaps it"}},
    {"shifted block",
     shifted,
     {"one writes where the other has", "but its bytes hold", "scratch of action",
      "nothing has written", "outside", "overlaps it", "in the same"}},
    {"scratch over kept",
     scratch_over_kept,
     {"one writes where the other has", "in the same bytes", "overlaps it", "scratch of action",
      "outside", "hold"}},
    {"output elsewhere",
     output_elsewhere,
     {"one writes where", "but what it sends is made at", "hold", "outside", "overlaps it",
      "in the same bytes", "nothing has", "scratch of action"}},
    {"scratch among the weights", among_weights, {"outside the activation part"}},
    {"scratch across the end of the receive region",
     across_receive_end,
     {"outside the receive region", "outside the activation part", "may already arrive there",
      "overlaps it", "in the same bytes", "but its bytes hold", "scratch of action"}},
    {"outside the arena",
     outside_arena,
     {"outside the receive region and the activation part", "outside the activation part",
      "do not follow"}},
    {"small receive region",
     small_receive_region,
     {"is outside the receive region", "outside the receive region",
      "outside the receive region and the activation part",
      "are shared, but what others write or read takes"}},
    {"frame not aligned", crooked_frame, {"the scratch of its frame is at"}},
    {"tensor not aligned", crooked_tensor, {"not a multiple of"}},
    {"wrong loss entry", wrong_loss, {"of the loss table"}},
    {"wrong program", wrong_program, {"of another stage or kind"}},
    {"pair shares bytes",
     pair_shares_bytes,
     {"in the same bytes", "one writes where the other has", "outside the"}},
    {"pair writes what is read",
     pair_writes_what_is_read,
     {"one writes where the other has", "outside the activation part", "in the same bytes",
      "overlaps it"}},
    {"pair of one", pair_of_one, {"only F, B, I and W may"}},
    {"pair in need", pair_in_need, {"cannot overlap"}},
    {"pair of three", three, {"more than two that overlap", "but no F, B, I or W comes next"}},
    {"wrong frame",
     wrong_frame,
     {"one writes where", "but its bytes hold", "scratch of action", "nothing has written",
      "may already arrive", "but rank", "previous step", "is made at"}},
    {"dropped row",
     dropped,
     {"is missing", "comes next", "more than two that overlap", "cannot overlap"}},
    {"dropped wait", dropped_wait, {"is missing"}},
    {"dropped publish", dropped_publish, {"PUBLISH is missing"}},
    {"dropped update", dropped_update, {"UPDATE must come after"}},
    {"dropped gather",
     dropped_gather,
     {"WAIT_NORM does not come before", "WAIT_NORM must come after"}},
};

static void generated_plans_are_accepted(void **state) {
  (void)state;
  for (size_t which = 0; which < PLAN_SHAPES; which++) {
    struct pen_problem problem = {.rank = PEN_NONE, .action = PEN_NONE};
    if (!pen_verify(shape_plan(which), &problem))
      fail_msg("%s %s: rank %u row %u: %s", plan_shapes[which].family, plan_shapes[which].schedule,
               problem.rank, problem.action, problem.reason);
    pen_free_all();
  }
}

static void defects_are_rejected(void **state) {
  (void)state;
  reject_all(defects, sizeof defects / sizeof defects[0], 31415926);
}

/* Each credit that layout gives is needed, and one taken away is missed; but that of a tied head's
 * gradient is given whatever lies in its slot. */
static void missing_credits_are_rejected(void **state) {
  (void)state;
  unsigned missed = 0, next_step = 0, needless = 0;
  for (size_t which = 0; which < PLAN_SHAPES; which++) {
    uint32_t count = shape_plan(which)->profiles[0].message_count;
    pen_free_all();
    for (uint32_t index = 0; index < count; index++) {
      struct pen_problem problem = {.rank = PEN_NONE, .action = PEN_NONE};
      struct pen_plan *plan = shape_plan(which);
      struct pen_message *message =
          WRITABLE(struct pen_message, &plan->profiles[0].messages[index]);
      if (message->credit != PEN_NONE) {
        elide(&plan->profiles[0], message);
        if (pen_verify(plan, &problem))
          needless += message->kind != PEN_SEND_G;
        else if (strstr(problem.reason, "of the next step may already arrive there"))
          next_step++;
        else if (strstr(problem.reason, "may already arrive there") ||
                 strstr(problem.reason, "waits for"))
          missed++;
        else
          fail_msg("%s %s, message %u: %s", plan_shapes[which].family, plan_shapes[which].schedule,
                   index, problem.reason);
      }
      pen_free_all();
    }
  }
  print_message("# credits taken away: %u missed, %u missed from the next step, %u needless\n",
                missed, next_step, needless);
  assert_true(missed > 0 && next_step > 0 && needless == 0);
}

/* ---- a loss that the backward makes ---- */

static struct pen_plan *plan_of_chunks(const char *schedule, unsigned stages) {
  return make_plan(pen_text(
      "pipeline = { ranks = 2; stages_per_rank = %u; microbatches = 4; schedule = \"%s\"; };\n"
      "model = { family = \"llama\"; layers = 4; hidden = 16; heads = 2; ffn = 24; "
      "vocab = 40; sequence = 40; loss_rows = 32; };\n"
      "batch = { microbatch = 1; };\noptimizer = { learning_rate = 1e-3; steps = 4; };\n",
      stages, schedule));
}

static struct pen_op *op_of_kind(const struct pen_rank_program *tables, int kind) {
  for (uint32_t op = 0; op < tables->op_count; op++)
    if (tables->ops[op].kind == kind) return WRITABLE(struct pen_op, &tables->ops[op]);
  fail_msg("no op of kind %d", kind);
  return NULL;
}

/* It is left by I or B, in the microbatch's entry, and not by W. */
static void a_fused_loss_is_checked(void **state) {
  (void)state;
  static const struct {
    const char *schedule, *says;
    unsigned stages;
    int backward, spoiled;
  } of[] = {{"1f1b", NULL, 1, PEN_B, 0},
            {"1f1b", "of the loss table", 1, PEN_B, PEN_B},
            {"zero_bubble_v", NULL, 2, PEN_I, 0},
            {"zero_bubble_v", "of the loss table", 2, PEN_I, PEN_I},
            {"zero_bubble_v", "writes a loss, but is not", 2, PEN_I, PEN_W}};
  for (size_t i = 0; i < sizeof of / sizeof of[0]; i++) {
    struct pen_problem problem = {.rank = PEN_NONE, .action = PEN_NONE};
    struct pen_plan *plan = plan_of_chunks(of[i].schedule, of[i].stages);
    uint64_t seed = 1;
    struct broken_plan p = {
        .plan = plan, .profile = WRITABLE(struct pen_profile, &plan->profiles[0]), .seed = &seed};
    p.rank = p.profile->stages[plan->stage_count - 1].rank;
    p.tables = WRITABLE(struct pen_rank_program, &p.profile->ranks[p.rank]);
    p.action = WRITABLE(struct pen_action, p.tables->actions);
    uint32_t row = find_row(&p, of[i].backward, plan->stage_count - 1, 2);
    assert_true(row != PEN_NONE);
    if (of[i].spoiled == of[i].backward)
      set_base(&p, row, PEN_BASE_LOSS, base_of(&p, row, PEN_BASE_LOSS) + 8);
    if (of[i].spoiled == PEN_W) { /* W computes the loss again, in place of its own op */
      struct pen_op *weight = op_of_kind(p.tables, PEN_OP_HEAD_LOSS_DW),
                    *loss = op_of_kind(p.tables, PEN_OP_HEAD_LOSS);
      weight->kind = PEN_OP_HEAD_LOSS;
      weight->operand[4] = loss->operand[4];
      weight->workspace = loss->workspace;
    }
    bool accepted = pen_verify(plan, &problem);
    if (accepted != !of[i].says || (!accepted && !strstr(problem.reason, of[i].says)))
      fail_msg("%zu: rank %u row %u: \"%s\"", i, problem.rank, problem.action, problem.reason);
    pen_free_all();
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(generated_plans_are_accepted),
      cmocka_unit_test(defects_are_rejected),
      cmocka_unit_test(missing_credits_are_rejected),
      cmocka_unit_test(a_fused_loss_is_checked),
  };
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  pen_free_all();
  return failed != 0;
}
