/* verify_random.c: plans changed at random, against a machine that knows nothing of proofs: it runs the plan's rows over several steps
 * with ranks taking turns at random, tags every 64 bytes with the value they hold, and looks at what each op reads and each message
 * carries. What the verifier accepts must run to its end and never read a wrong value, whatever the turns. */
#include <stdio.h>

#include "gen/signature.h"
#include "tests/whole.h"

#define WRITABLE(type, pointer) ((type *)(uintptr_t)(pointer))

enum { STEPS = 3, BLOCK_BYTES = PEN_ALIGNMENT_BYTES };

/* ---- the machine ---- */

struct machine {
  const struct pen_plan *plan;
  const struct pen_profile *profile;
  uint64_t **block;            /* [rank][block] tag of the value there; 0: none */
  uint32_t *next, *step;       /* [rank] */
  uint64_t *arrived, *credits; /* [channel] */
  uint32_t *published;         /* [rank] steps */
  bool wrong;
};

/* The value that a tensor means: who makes it, for which microbatch, in which step. What comes from a neighbour is the neighbour's. */
static uint64_t tag_of(const struct machine *m, uint32_t rank, uint32_t tensor, uint32_t microbatch, uint32_t step) {
  for (uint32_t stage = 0; stage < m->plan->stage_count; stage++) {
    const struct pen_stage *own = &m->profile->stages[stage];
    if (own->rank != rank) continue;
    if (stage > 0 && own->input == tensor) return tag_of(m, own[-1].rank, own[-1].output, microbatch, step);
    if (stage + 1 < m->plan->stage_count && own->output_gradient == tensor && own[1].input_gradient != PEN_NONE)
      return tag_of(m, own[1].rank, own[1].input_gradient, microbatch, step);
  }
  return ((((uint64_t)rank << 16 | tensor) << 16 | microbatch) << 8 | step) + 1;
}

static uint64_t blocks_of(uint64_t bytes) { return (bytes + BLOCK_BYTES - 1) / BLOCK_BYTES; }

/* Reads or writes an operand of the activation part or the window. */
static void touch(struct machine *m, uint32_t rank, const struct pen_action *row, uint32_t tensor, bool writes, bool garbage) {
  const struct pen_rank_program *tables = &m->profile->ranks[rank];
  if (tensor == PEN_NONE) return;
  const struct pen_tensor *t = &tables->tensors[tensor];
  if (t->base == PEN_BASE_PERSISTENT || t->base == PEN_BASE_LOSS) return;
  uint64_t first = (tables->frames[row->frame].base[t->base] + t->offset) / BLOCK_BYTES, tag = tag_of(m, rank, tensor, row->microbatch, m->step[rank]);
  for (uint64_t at = first; at < first + blocks_of(t->bytes); at++) {
    if (writes) m->block[rank][at] = garbage ? 0 : tag;
    else if (m->block[rank][at] != tag) m->wrong = true;
  }
}

static void compute(struct machine *m, uint32_t rank, const struct pen_action *row) {
  const struct pen_rank_program *tables = &m->profile->ranks[rank];
  const struct pen_program *program = &tables->programs[row->program];
  for (uint32_t index = program->first_op; index < program->first_op + program->op_count; index++) {
    const struct pen_op *op = &tables->ops[index];
    const struct pen_signature *signature = pen_signature_of(op->kind);
    touch(m, rank, row, op->workspace, true, true);
    for (int k = 0; k < signature->input_count; k++) touch(m, rank, row, op->operand[k], false, false);
    for (int k = signature->input_count; k < signature->operand_count; k++) touch(m, rank, row, op->operand[k], true, false);
    for (int k = signature->input_count; k < signature->operand_count; k++) touch(m, rank, row, op->operand[k], false, false);
  }
}

static void put(struct machine *m, const struct pen_message *message) {
  const struct pen_channel *channel = &m->profile->channels[message->channel];
  for (uint64_t at = 0; at < blocks_of(message->bytes); at++)
    m->block[channel->to_rank][message->target_offset / BLOCK_BYTES + at] =
        m->block[channel->from_rank][message->source_offset / BLOCK_BYTES + at];
  m->arrived[message->channel]++;
}

static bool all_published(const struct machine *m, uint32_t step) {
  for (uint32_t rank = 0; rank < m->plan->rank_count; rank++)
    if (m->published[rank] <= step) return false;
  return true;
}

/* Runs the next row of a rank; false when it blocks or is at its end. */
static bool advance(struct machine *m, uint32_t rank) {
  const struct pen_rank_program *tables = &m->profile->ranks[rank];
  uint64_t step = m->step[rank];
  if (step == STEPS) return false;
  const struct pen_action *row = &tables->actions[m->next[rank]];
  bool talks = row->kind >= PEN_SEND_F && row->kind <= PEN_WAIT_B;
  const struct pen_message *message = talks ? &m->profile->messages[row->message] : NULL;
  const struct pen_channel *channel = talks ? &m->profile->channels[message->channel] : NULL;
  if (row->kind <= PEN_W) compute(m, rank, row);
  if (row->kind == PEN_SEND_F || row->kind == PEN_SEND_B) {
    if (message->credit != PEN_NONE && m->credits[message->channel] < step * channel->credit_count + message->credit + 1) return false;
    put(m, message);
  }
  if (row->kind == PEN_RECV_F || row->kind == PEN_RECV_B) m->credits[message->channel] += message->credit != PEN_NONE;
  if (row->kind == PEN_WAIT_F || row->kind == PEN_WAIT_B)
    if (m->arrived[message->channel] < step * channel->message_count + message->sequence + 1) return false;
  if (row->kind == PEN_PUBLISH) m->published[rank]++;
  if (row->kind == PEN_GATHER && !all_published(m, (uint32_t)step)) return false;
  if (++m->next[rank] == tables->action_count) {
    m->next[rank] = 0;
    m->step[rank]++;
  }
  return true;
}

/* Runs a profile with random turns; some ranks are much faster than others for a while. False: stuck, or a wrong value was read. */
static bool run(const struct pen_plan *plan, const struct pen_profile *profile, uint64_t *seed) {
  uint32_t ranks = plan->rank_count, still = 0;
  struct machine m = {.plan = plan, .profile = profile, .block = pen_new(ranks, sizeof *m.block), .next = pen_new(ranks, 4),
                      .step = pen_new(ranks, 4), .arrived = pen_new(profile->channel_count + 1, 8),
                      .credits = pen_new(profile->channel_count + 1, 8), .published = pen_new(ranks, 4)};
  for (uint32_t rank = 0; rank < ranks; rank++) m.block[rank] = pen_new(2 * blocks_of(plan->memory[rank].arena_bytes) + 1, 8); /* what is rejected may reach beyond */
  while (still < ranks && !m.wrong) {
    uint32_t rank = (uint32_t)draw(seed, ranks);
    bool moved = false;
    for (uint64_t turns = draw(seed, 4) ? 1 + draw(seed, 3) : 1 + draw(seed, 400); turns > 0 && advance(&m, rank); turns--) moved = true;
    if (moved) still = 0;
    else
      for (still = 0, rank = 0; rank < ranks; rank++) still += !advance(&m, rank);
  }
  for (uint32_t rank = 0; rank < ranks; rank++)
    if (m.step[rank] < STEPS) return false;
  return !m.wrong;
}

/* ---- changes ---- */

static struct pen_rank_program *some_tables(struct pen_plan *plan, uint64_t *seed) {
  return WRITABLE(struct pen_rank_program, &plan->profiles[0].ranks[draw(seed, plan->rank_count)]);
}

/* A base of a frame becomes that of another frame. */
static void change_frame(struct pen_plan *plan, uint64_t *seed) {
  struct pen_rank_program *tables = some_tables(plan, seed);
  struct pen_frame *frame = WRITABLE(struct pen_frame, tables->frames);
  int base = PEN_BASE_SCRATCH + (int)draw(seed, PEN_BASE_KEPT_W - PEN_BASE_SCRATCH + 1);
  frame[draw(seed, tables->frame_count)].base[base] = frame[draw(seed, tables->frame_count)].base[base];
}

/* A row moves by a few places. */
static void change_row(struct pen_plan *plan, uint64_t *seed) {
  struct pen_rank_program *tables = some_tables(plan, seed);
  struct pen_action *action = WRITABLE(struct pen_action, tables->actions);
  uint32_t from = (uint32_t)draw(seed, tables->action_count), to = from + (uint32_t)draw(seed, 4);
  if (to >= tables->action_count) return;
  struct pen_action moved = action[from];
  memmove(action + from, action + from + 1, (to - from) * sizeof moved);
  action[to] = moved;
}

/* A credit is taken away, and those behind it are counted anew. */
static void change_credit(struct pen_plan *plan, uint64_t *seed) {
  const struct pen_profile *profile = &plan->profiles[0];
  struct pen_message *messages = WRITABLE(struct pen_message, profile->messages), *message = &messages[draw(seed, profile->message_count)];
  if (message->credit == PEN_NONE) return;
  for (uint32_t index = 0; index < profile->message_count; index++)
    if (messages[index].channel == message->channel && messages[index].credit != PEN_NONE && messages[index].credit > message->credit)
      messages[index].credit--;
  message->credit = PEN_NONE;
  WRITABLE(struct pen_channel, &profile->channels[message->channel])->credit_count--;
}

/* The home of a message becomes that of another, for its readers too. */
static void change_home(struct pen_plan *plan, uint64_t *seed) {
  const struct pen_profile *profile = &plan->profiles[0];
  struct pen_message *message = WRITABLE(struct pen_message, &profile->messages[draw(seed, profile->message_count)]);
  uint64_t target = profile->messages[draw(seed, profile->message_count)].target_offset;
  bool backward = message->kind == PEN_SEND_B;
  struct pen_rank_program *tables = WRITABLE(struct pen_rank_program, &profile->ranks[profile->channels[message->channel].to_rank]);
  struct pen_frame *frames = pen_new(tables->frame_count + 4, sizeof *frames);
  memcpy(frames, tables->frames, tables->frame_count * sizeof *frames);
  tables->frames = frames;
  for (uint32_t row = 0; row < tables->action_count; row++) {
    struct pen_action *action = WRITABLE(struct pen_action, &tables->actions[row]);
    uint32_t reader = backward ? message->stage - 1u : message->stage + 1u;
    if (action->kind > PEN_W || action->stage != reader || action->microbatch != message->microbatch) continue;
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
  uint32_t *operand = &op->operand[draw(seed, pen_signature_of(op->kind)->operand_count)], other = (uint32_t)draw(seed, tables->tensor_count);
  if (*operand != PEN_NONE && tables->tensors[other].bytes == tables->tensors[*operand].bytes) *operand = other;
}

static void (*const changes[])(struct pen_plan *plan, uint64_t *seed) = {change_frame, change_row, change_credit, change_home, change_operand};
static const char *const change_names[] = {"frame", "row", "credit", "home", "operand"};
enum { CHANGES = sizeof changes / sizeof changes[0], ROUNDS = 1500 };

static struct pen_plan *some_plan(uint64_t *seed) {
  static const char *const schedules[] = {"1f1b", "zero_bubble_v", "gpipe", "looped_bfs"};
  size_t which = draw(seed, 4);
  uint32_t ranks = 2 + (uint32_t)draw(seed, 2), stages = which == 1 ? 2 : which == 2 ? 1 : 1 + (uint32_t)draw(seed, 2);
  const char *more = draw(seed, 2) ? "" : "/* no clip */";
  if (which == 0 && draw(seed, 2)) more = "zero_bubble = true; /* no clip */";
  const char *text =
      topology_text(draw(seed, 8) ? "mlp" : "llama", schedules[which], ranks, stages, ranks * (1 + (uint32_t)draw(seed, 3)), more);
  const char *memory = draw(seed, 3) ? "" : "memory = { recompute = \"full\"; };";
  return make_plan(pen_text("%s%s%s", text, memory, draw(seed, 3) ? "" : "partition = { unit = \"block\"; balance = \"time\"; };"));
}

static void accepted_plans_run_right(void **state) {
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
    if (round % 8 == 0 && !fine) fail_msg("seed %lu, unchanged: %s", (unsigned long)here, problem.reason);
    if (fine) {
      accepted[kind]++;
      for (unsigned again = 0; again < 4; again++)
        if (!run(plan, &plan->profiles[again == 3], &seed))
          fail_msg("seed %lu, %s: accepted, but it reads a wrong value or stops", (unsigned long)here, change_names[kind]);
    } else {
      rejected[kind]++;
      bool runs = true; /* how often the machine sees it too: for the record */
      bool safe = kind == 0 || kind == 2 || kind == 3; /* those changes leave every index and address in range */
      for (unsigned again = 0; safe && runs && again < 4; again++) runs = run(plan, &plan->profiles[0], &seed);
      wrong[kind] += !runs;
    }
    pen_free_all();
  }
  for (size_t kind = 0; kind < CHANGES; kind++) {
    print_message("# %s: accepted %u, rejected %u, of these seen wrong %u\n", change_names[kind], accepted[kind], rejected[kind], wrong[kind]);
    assert_true(accepted[kind] > 10 && rejected[kind] > 10);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(accepted_plans_run_right)};
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  pen_free_all();
  return failed != 0;
}
