/* verify_random.c: random changes to plans, against a machine without proofs (symbolic_machine.h).
 * A plan that the verifier accepts must run to its end and never read a wrong value, for all orders
 * of turns. */
#include <stdio.h>

#include "gen/verify/verify.h"
#include "tests/support/symbolic_machine.h"

#define WRITABLE(type, pointer) ((type *)(uintptr_t)(pointer))

/* ---- changes ---- */

static struct pen_rank_program *some_tables(struct pen_plan *plan, uint64_t *seed) {
  return WRITABLE(struct pen_rank_program, &plan->profiles[0].ranks[draw(seed, plan->rank_count)]);
}

/* A base of a frame becomes that of another frame. */
static void change_frame(struct pen_plan *plan, uint64_t *seed) {
  struct pen_rank_program *tables = some_tables(plan, seed);
  struct pen_frame *frame = WRITABLE(struct pen_frame, tables->frames);
  int base = PEN_BASE_SCRATCH + (int)draw(seed, PEN_BASE_KEPT_W - PEN_BASE_SCRATCH + 1);
  frame[draw(seed, tables->frame_count)].base[base] =
      frame[draw(seed, tables->frame_count)].base[base];
}

/* Moves an action by a few places. */
static void change_row(struct pen_plan *plan, uint64_t *seed) {
  struct pen_rank_program *tables = some_tables(plan, seed);
  struct pen_action *action = WRITABLE(struct pen_action, tables->actions);
  uint32_t from = (uint32_t)draw(seed, tables->action_count), to = from + (uint32_t)draw(seed, 4);
  if (to >= tables->action_count) return;
  struct pen_action moved = action[from];
  memmove(action + from, action + from + 1, (to - from) * sizeof moved);
  action[to] = moved;
}

/* Removes a credit and renumbers the later ones. */
static void change_credit(struct pen_plan *plan, uint64_t *seed) {
  const struct pen_profile *profile = &plan->profiles[0];
  struct pen_message *messages = WRITABLE(struct pen_message, profile->messages),
                     *message = &messages[draw(seed, profile->message_count)];
  if (message->credit == PEN_NONE) return;
  for (uint32_t index = 0; index < profile->message_count; index++)
    if (messages[index].channel == message->channel && messages[index].credit != PEN_NONE &&
        messages[index].credit > message->credit)
      messages[index].credit--;
  message->credit = PEN_NONE;
  WRITABLE(struct pen_channel, &profile->channels[message->channel])->credit_count--;
}

/* The target of a message becomes that of another, for its readers too. */
static void change_home(struct pen_plan *plan, uint64_t *seed) {
  const struct pen_profile *profile = &plan->profiles[0];
  struct pen_message *message =
      WRITABLE(struct pen_message, &profile->messages[draw(seed, profile->message_count)]);
  uint64_t target = profile->messages[draw(seed, profile->message_count)].target_offset;
  bool backward = message->kind == PEN_SEND_B;
  if (!backward && message->kind != PEN_SEND_F) return; /* a tied matrix's: in no frame */
  struct pen_rank_program *tables = WRITABLE(
      struct pen_rank_program, &profile->ranks[profile->channels[message->channel].to_rank]);
  struct pen_frame *frames = pen_new(tables->frame_count + 4, sizeof *frames);
  memcpy(frames, tables->frames, tables->frame_count * sizeof *frames);
  tables->frames = frames;
  for (uint32_t row = 0; row < tables->action_count; row++) {
    struct pen_action *action = WRITABLE(struct pen_action, &tables->actions[row]);
    uint32_t reader = backward ? message->stage - 1u : message->stage + 1u;
    if (action->kind > PEN_W || action->stage != reader ||
        action->microbatch != message->microbatch)
      continue;
    frames[tables->frame_count] = frames[action->frame];
    frames[tables->frame_count].base[backward ? PEN_BASE_OUTPUT_GRADIENT : PEN_BASE_INPUT] = target;
    action->frame = tables->frame_count++;
  }
  message->target_offset = target;
}

/* An operand becomes another tensor of the same size. */
static void change_operand(struct pen_plan *plan, uint64_t *seed) {
  struct pen_rank_program *tables = some_tables(plan, seed);
  struct pen_op *op = WRITABLE(struct pen_op, &tables->ops[draw(seed, tables->op_count)]);
  uint32_t *operand = &op->operand[draw(seed, pen_signature_of(op->kind)->operand_count)],
           other = (uint32_t)draw(seed, tables->tensor_count);
  if (*operand != PEN_NONE && tables->tensors[other].bytes == tables->tensors[*operand].bytes)
    *operand = other;
}

static void (*const changes[])(struct pen_plan *plan, uint64_t *seed) = {
    change_frame, change_row, change_credit, change_home, change_operand};
static const char *const change_names[] = {"frame", "row", "credit", "target", "operand"};
enum { CHANGES = sizeof changes / sizeof changes[0], ROUNDS = 1500 };

static struct pen_plan *some_plan(uint64_t *seed) {
  static const char *const schedules[] = {"1f1b", "zero_bubble_v", "gpipe", "looped_bfs"};
  size_t which = draw(seed, 4);
  uint32_t ranks = 2 + (uint32_t)draw(seed, 2), stages = which == 1   ? 2
                                                         : which == 2 ? 1
                                                                      : 1 + (uint32_t)draw(seed, 2);
  const char *more = draw(seed, 2) ? "" : "/* no clip */";
  if (which == 0 && draw(seed, 2)) more = "zero_bubble = true; /* no clip */";
  if (draw(seed, 4) == 0) more = pen_text("%s /* tied */", more); /* which mlp ignores */
  if (draw(seed, 3) == 0) more = pen_text("%s /* bf16 */", more);
  const uint64_t family = draw(seed, 16);
  const char *text =
      topology_text(family > 1 ? "mlp"
                    : family   ? "llama"
                               : "qwen2",
                    schedules[which], ranks, stages, ranks * (1 + (uint32_t)draw(seed, 3)), more);
  const char *memory = draw(seed, 2)
                           ? ""
                           : pen_text("memory = { recompute = \"%s\"; };",
                                      pen_recompute_text(draw(seed, PEN_RECOMPUTE_KINDS)));
  return make_plan(
      pen_text("%s%s%s", text, memory,
               draw(seed, 3) ? "" : "partition = { unit = \"block\"; balance = \"time\"; };"));
}

/* Training and evaluation in any order, in one arena. */
static bool runs_mixed(const struct pen_plan *plan, uint64_t *seed) {
  const struct pen_profile *sequence[STEPS];
  for (int step = 0; step < STEPS; step++)
    sequence[step] = &plan->profiles[draw(seed, plan->profile_count)];
  return machine_runs_all(plan, sequence, seed);
}

static void accepted_plans_run_correctly(void **state) {
  (void)state;
  uint64_t seed = 2718281828;
  unsigned accepted[CHANGES] = {0}, rejected[CHANGES] = {0}, wrong[CHANGES] = {0};
  for (unsigned round = 0; round < ROUNDS; round++) {
    uint64_t here = seed;
    size_t kind = draw(&seed, CHANGES);
    struct pen_plan *plan = some_plan(&seed);
    struct pen_problem problem = {.rank = PEN_NONE, .action = PEN_NONE};
    if (round % 8 != 0)
      for (uint64_t count = 1 + draw(&seed, 2); count > 0; count--) changes[kind](plan, &seed);
    bool fine = pen_verify(plan, &problem);
    if (round % 8 == 0 && !fine)
      fail_msg("seed %lu, unchanged: %s", (unsigned long)here, problem.reason);
    if (fine) {
      accepted[kind]++;
      for (unsigned again = 0; again < 4; again++)
        if (!machine_runs(plan, &plan->profiles[again == 3], &seed))
          fail_msg("seed %lu, %s: accepted, but it reads a wrong value or stops",
                   (unsigned long)here, change_names[kind]);
      if (!runs_mixed(plan, &seed))
        fail_msg("seed %lu, %s: accepted, but not when training and evaluation take turns",
                 (unsigned long)here, change_names[kind]);
    } else {
      rejected[kind]++;
      bool runs = true; /* how often the machine sees it too: for the record */
      bool safe = kind == 0 || kind == 2 ||
                  kind == 3; /* those changes leave every index and address in range */
      for (unsigned again = 0; safe && runs && again < 4; again++)
        runs = machine_runs(plan, &plan->profiles[0], &seed);
      wrong[kind] += !runs;
    }
    pen_free_all();
  }
  for (size_t kind = 0; kind < CHANGES; kind++) {
    print_message("# %s: accepted %u, rejected %u, of these seen wrong %u\n", change_names[kind],
                  accepted[kind], rejected[kind], wrong[kind]);
    assert_true(accepted[kind] > 10 && rejected[kind] > 10);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(accepted_plans_run_correctly)};
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  pen_free_all();
  return failed != 0;
}
