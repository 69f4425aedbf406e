/* verify.c: finished plans: those that the passes make are accepted; broken in any of many ways, each is rejected with its own
 * message. (Bare rows, and the three models of communication: verify_rows.c.) */
#include <stdio.h>

#include "gen/signature.h"
#include "tests/whole.h"

/* ---- plans to break ---- */

static const struct {
  const char *family, *schedule;
  uint32_t ranks, stages, microbatches;
  const char *more;
} shapes[] = {
    {"mlp", "gpipe", 2, 1, 4, ""},
    {"mlp", "1f1b", 3, 1, 6, ""},
    {"llama", "1f1b", 2, 1, 8, "warmup = 2; /* no clip */"},
    {"llama", "1f1b", 2, 1, 4, "zero_bubble = true;"},
    {"mlp", "1f1b", 2, 2, 8, "/* no clip */"},
    {"llama", "zero_bubble_v", 3, 2, 6, ""},
    {"mlp", "zero_bubble_v", 4, 2, 8, "/* no clip */"},
    {"mlp", "looped_bfs", 2, 3, 4, ""},
};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

static struct pen_plan *shape_plan(size_t which) {
  return make_plan(topology_text(shapes[which].family, shapes[which].schedule, shapes[which].ranks, shapes[which].stages,
                                 shapes[which].microbatches, shapes[which].more));
}

/* A plan's tables are const to its readers; a test that breaks them is none. */
#define WRITABLE(type, pointer) ((type *)(uintptr_t)(pointer))

/* The part of a plan that a defect is put into. */
struct part {
  struct pen_plan *plan;
  struct pen_profile *profile;
  uint32_t rank;
  struct pen_rank_program *tables;
  struct pen_action *action;
  uint64_t *seed;
};

static struct part some_part(struct pen_plan *plan, uint64_t *seed) {
  struct part p = {.plan = plan, .seed = seed};
  p.profile = WRITABLE(struct pen_profile, &plan->profiles[draw(seed, 4) == 0]);
  p.rank = (uint32_t)draw(seed, plan->rank_count);
  p.tables = WRITABLE(struct pen_rank_program, &p.profile->ranks[p.rank]);
  p.action = WRITABLE(struct pen_action, p.tables->actions);
  return p;
}

/* A random row of one of the kinds [first, last], or PEN_NONE. */
static uint32_t some_row(struct part *p, int first, int last) {
  for (unsigned tries = 0; tries < 1000; tries++) {
    uint32_t row = (uint32_t)draw(p->seed, p->tables->action_count);
    if (p->action[row].kind >= first && p->action[row].kind <= last) return row;
  }
  return PEN_NONE;
}

static uint32_t find_row(const struct part *p, int kind, uint32_t stage, uint32_t microbatch) {
  for (uint32_t row = 0; row < p->tables->action_count; row++)
    if (p->action[row].kind == kind && p->action[row].stage == stage && p->action[row].microbatch == microbatch) return row;
  return PEN_NONE;
}

static struct pen_message *some_message(struct part *p) {
  if (p->profile->message_count == 0) return NULL;
  return WRITABLE(struct pen_message, &p->profile->messages[draw(p->seed, p->profile->message_count)]);
}

static struct pen_op *ops_of(const struct part *p) { return WRITABLE(struct pen_op, p->tables->ops); }

/* An op of a random program that rows run. */
static struct pen_op *some_op(struct part *p) {
  const struct pen_program *program = &p->tables->programs[draw(p->seed, p->tables->program_count)];
  return program->op_count ? ops_of(p) + program->first_op + draw(p->seed, program->op_count) : NULL;
}

/* Gives a row a frame of its own with one base moved. */
static void set_base(struct part *p, uint32_t row, int base, uint64_t offset) {
  struct pen_frame *frames = pen_new(p->tables->frame_count + 1, sizeof *frames);
  memcpy(frames, p->tables->frames, p->tables->frame_count * sizeof *frames);
  frames[p->tables->frame_count] = frames[p->action[row].frame];
  frames[p->tables->frame_count].base[base] = offset;
  p->tables->frames = frames;
  p->action[row].frame = p->tables->frame_count++;
}

static uint64_t base_of(const struct part *p, uint32_t row, int base) { return p->tables->frames[p->action[row].frame].base[base]; }

/* Moves one base of all rows of a stage and microbatch. */
static void set_all_bases(struct part *p, uint32_t stage, uint32_t microbatch, int base, uint64_t offset) {
  for (int kind = PEN_F; kind <= PEN_W; kind++) {
    uint32_t row = find_row(p, kind, stage, microbatch);
    if (row != PEN_NONE) set_base(p, row, base, offset);
  }
}

static bool uses_base(const struct part *p, uint32_t row, int base) {
  const struct pen_program *program = &p->tables->programs[p->action[row].program];
  for (uint32_t op = program->first_op; op < program->first_op + program->op_count; op++)
    for (int k = 0; k < PEN_OPERANDS_MAX; k++) {
      uint32_t tensor = p->tables->ops[op].operand[k];
      if (tensor != PEN_NONE && p->tables->tensors[tensor].base == base) return true;
    }
  return false;
}

/* ---- defects of messages ---- */

static bool wrong_bytes(struct part *p) {
  struct pen_message *message = some_message(p);
  if (message) message->bytes += 64;
  return message;
}
static bool wrong_sequence(struct part *p) {
  struct pen_message *message = some_message(p);
  if (message) message->sequence++;
  return message;
}
static bool wrong_source(struct part *p) {
  struct pen_message *message = some_message(p);
  if (message) message->source_offset += 64;
  return message;
}
static bool wrong_home(struct part *p) {
  struct pen_message *message = some_message(p);
  if (message) message->target_offset += 64;
  return message;
}
static bool wrong_channel(struct part *p) {
  struct pen_message *message = some_message(p);
  if (!message || p->profile->channel_count < 2) return false;
  message->channel = (message->channel + 1) % p->profile->channel_count;
  return true;
}
static bool wrong_message(struct part *p) {
  uint32_t row = some_row(p, PEN_SEND_F, PEN_WAIT_B);
  if (row == PEN_NONE) return false;
  p->action[row].message = (p->action[row].message + 1) % p->profile->message_count;
  return true;
}
static bool wrong_counts(struct part *p) {
  if (p->profile->channel_count == 0) return false;
  struct pen_channel *channel = WRITABLE(struct pen_channel, &p->profile->channels[draw(p->seed, p->profile->channel_count)]);
  if (draw(p->seed, 2)) channel->message_count++;
  else channel->credit_count++;
  return true;
}

/* A credited message, or null. */
static struct pen_message *credited(struct part *p) {
  for (unsigned tries = 0; tries < 100; tries++) {
    struct pen_message *message = some_message(p);
    if (message && message->credit != PEN_NONE) return message;
  }
  return NULL;
}
static bool wrong_credit(struct part *p) {
  struct pen_message *message = credited(p);
  if (message) message->credit++;
  return message;
}

/* Takes a message's credit away and counts those behind it on the channel anew. */
static void elide(const struct pen_profile *profile, struct pen_message *message) {
  uint32_t credit = message->credit;
  message->credit = PEN_NONE;
  WRITABLE(struct pen_channel, &profile->channels[message->channel])->credit_count--;
  for (uint32_t index = 0; index < profile->message_count; index++) {
    struct pen_message *other = WRITABLE(struct pen_message, &profile->messages[index]);
    if (other->channel == message->channel && other->credit != PEN_NONE && other->credit > credit) other->credit--;
  }
}

/* The first row from `first` on that names a message. */
static uint32_t row_of_message(const struct part *p, uint32_t message, uint32_t first) {
  while (p->action[first].kind >= PEN_NORM || p->action[first].message != message) first++;
  return first;
}

/* Are two messages under way at the same time, from their RECV to their WAIT rows? */
static bool meet(const struct part *p, uint32_t a, uint32_t b) {
  uint32_t received_a = row_of_message(p, a, 0), received_b = row_of_message(p, b, 0);
  return row_of_message(p, a, received_a + 1) > received_b && row_of_message(p, b, received_b + 1) > received_a;
}

/* A message's home is moved, its readers with it, onto the slot of another that is under way at the same time. */
static bool wrong_slot(struct part *p) {
  for (unsigned tries = 0; tries < 300; tries++) {
    struct pen_message *message = some_message(p), *other = some_message(p);
    if (!message || message->target_offset == other->target_offset || message->bytes != other->bytes) continue;
    uint32_t to = p->profile->channels[message->channel].to_rank;
    if (to != p->profile->channels[other->channel].to_rank) continue;
    p->rank = to;
    p->tables = WRITABLE(struct pen_rank_program, &p->profile->ranks[to]);
    p->action = WRITABLE(struct pen_action, p->tables->actions);
    if (!meet(p, (uint32_t)(message - p->profile->messages), (uint32_t)(other - p->profile->messages))) continue;
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
static bool overlap(struct part *p) {
  uint32_t row = some_row(p, PEN_F, PEN_F);
  if (p->profile->kind != PEN_TRAIN || row + 1 >= p->tables->action_count) return false;
  const struct pen_action *own = &p->action[row];
  if (!uses_base(p, row, PEN_BASE_SAVED_W)) return false;
  for (uint32_t next = row + 1; next < p->tables->action_count; next++) {
    const struct pen_action *other = &p->action[next];
    if (other->stage == own->stage && (other->kind == PEN_B || other->kind == PEN_W) && other->microbatch == own->microbatch) return false;
    if (other->stage != own->stage || other->kind != PEN_F) continue;
    set_all_bases(p, other->stage, other->microbatch, PEN_BASE_SAVED_W, base_of(p, row, PEN_BASE_SAVED_W));
    return true;
  }
  return false;
}
static bool shifted(struct part *p) {
  uint32_t row = some_row(p, PEN_B, PEN_I);
  if (row == PEN_NONE || !uses_base(p, row, PEN_BASE_SAVED_W)) return false;
  set_base(p, row, PEN_BASE_SAVED_W, base_of(p, row, PEN_BASE_SAVED_W) + 64);
  return true;
}
static bool scratch_over_kept(struct part *p) {
  uint32_t row = some_row(p, PEN_B, PEN_W);
  if (row == PEN_NONE || !uses_base(p, row, PEN_BASE_SAVED_W) || !uses_base(p, row, PEN_BASE_SCRATCH)) return false;
  set_base(p, row, PEN_BASE_SCRATCH, base_of(p, row, PEN_BASE_SAVED_W));
  return true;
}
static bool output_elsewhere(struct part *p) {
  uint32_t row = some_row(p, PEN_F, PEN_F);
  if (!uses_base(p, row, PEN_BASE_OUTPUT)) return false;
  set_base(p, row, PEN_BASE_OUTPUT, base_of(p, row, PEN_BASE_OUTPUT) + 64);
  return true;
}
static bool into_window(struct part *p) {
  uint32_t row = some_row(p, PEN_F, PEN_F);
  if (p->plan->memory[p->rank].window_bytes == 0 || !uses_base(p, row, PEN_BASE_SCRATCH)) return false;
  set_base(p, row, PEN_BASE_SCRATCH, 0);
  return true;
}
static bool outside_arena(struct part *p) {
  struct pen_rank_memory *memory = WRITABLE(struct pen_rank_memory, &p->plan->memory[p->rank]);
  memory->arena_bytes = memory->persistent_end + 64;
  return true;
}
static bool small_window(struct part *p) {
  struct pen_rank_memory *memory = WRITABLE(struct pen_rank_memory, &p->plan->memory[p->rank]);
  if (memory->window_bytes == 0) return false;
  memory->window_bytes = 64;
  return true;
}
static bool crooked_frame(struct part *p) {
  uint32_t row = some_row(p, PEN_F, PEN_W);
  set_base(p, row, PEN_BASE_SCRATCH, base_of(p, row, PEN_BASE_SCRATCH) + 4);
  return true;
}
static bool crooked_tensor(struct part *p) {
  WRITABLE(struct pen_tensor, &p->tables->tensors[draw(p->seed, p->tables->tensor_count)])->offset += 8;
  return true;
}
static bool wrong_loss(struct part *p) {
  uint32_t last = p->plan->stage_count - 1;
  if (p->profile->stages[last].rank != p->rank) return false;
  uint32_t row = find_row(p, PEN_F, last, (uint32_t)draw(p->seed, p->plan->microbatch_count));
  set_base(p, row, PEN_BASE_LOSS, base_of(p, row, PEN_BASE_LOSS) + (draw(p->seed, 2) ? 8 : -8));
  return true;
}

/* ---- defects of rows ---- */

static bool wrong_program(struct part *p) {
  uint32_t row = some_row(p, PEN_F, PEN_W);
  if (p->tables->program_count < 2) return false;
  p->action[row].program = (p->action[row].program + 1) % p->tables->program_count;
  return true;
}
static bool wrong_frame(struct part *p) { /* that of another microbatch, so that what it reads is elsewhere */
  uint32_t row = some_row(p, PEN_B, PEN_W), other = some_row(p, PEN_B, PEN_W);
  if (row == PEN_NONE || p->action[row].kind != p->action[other].kind || p->action[row].stage != p->action[other].stage) return false;
  if (base_of(p, row, PEN_BASE_SAVED_W) == base_of(p, other, PEN_BASE_SAVED_W) || !uses_base(p, row, PEN_BASE_SAVED_W)) return false;
  p->action[row].frame = p->action[other].frame;
  return true;
}
static bool remove_row(struct part *p, uint32_t row) {
  if (row == PEN_NONE) return false;
  memmove(p->action + row, p->action + row + 1, (--p->tables->action_count - row) * sizeof *p->action);
  return true;
}
static bool dropped(struct part *p) { return remove_row(p, some_row(p, PEN_F, PEN_RECV_B)); }
static bool dropped_wait(struct part *p) { return remove_row(p, some_row(p, PEN_WAIT_F, PEN_WAIT_B)); }
static bool dropped_publish(struct part *p) { return remove_row(p, some_row(p, PEN_PUBLISH, PEN_PUBLISH)); }
static bool dropped_update(struct part *p) { return remove_row(p, some_row(p, PEN_UPDATE, PEN_UPDATE)); }
static bool dropped_gather(struct part *p) {
  if (p->profile->kind != PEN_TRAIN || p->plan->optimizer.clip_norm == 0) return false;
  return remove_row(p, some_row(p, PEN_GATHER, PEN_GATHER));
}

/* ---- defects of ops and tensors ---- */

static bool wrong_output(struct part *p) { /* another tensor of the stage's that it already made, or a new one */
  struct pen_op *op = some_op(p);
  if (!op) return false;
  const struct pen_signature *signature = pen_signature_of(op->kind);
  uint32_t other = (uint32_t)draw(p->seed, p->tables->tensor_count), *operand = &op->operand[signature->input_count];
  const struct pen_tensor *is = &p->tables->tensors[*operand], *wanted = &p->tables->tensors[other];
  if (other == *operand || is->base == PEN_BASE_PERSISTENT || is->base == PEN_BASE_LOSS || wanted->bytes != is->bytes ||
      wanted->dtype != is->dtype || wanted->base == PEN_BASE_PERSISTENT)
    return false;
  *operand = other;
  return true;
}
static bool later_input(struct part *p) { /* reads what only a later op of the program makes */
  const struct pen_program *program = &p->tables->programs[draw(p->seed, p->tables->program_count)];
  if (program->op_count < 2) return false;
  uint32_t early = (uint32_t)draw(p->seed, program->op_count - 1), late = early + 1 + (uint32_t)draw(p->seed, program->op_count - early - 1);
  struct pen_op *op = ops_of(p) + program->first_op + early, *later = ops_of(p) + program->first_op + late;
  uint32_t made = later->operand[pen_signature_of(later->kind)->input_count];
  for (int k = 0; k < pen_signature_of(op->kind)->input_count; k++) {
    if (op->operand[k] == PEN_NONE || p->tables->tensors[made].bytes != p->tables->tensors[op->operand[k]].bytes) continue;
    if (p->tables->tensors[made].base != PEN_BASE_SCRATCH) continue;
    op->operand[k] = made;
    return true;
  }
  return false;
}
static bool missing_operand(struct part *p) {
  struct pen_op *op = some_op(p);
  if (!op) return false;
  const struct pen_signature *signature = pen_signature_of(op->kind);
  int k = (int)draw(p->seed, signature->operand_count);
  if (signature->operand[k].optional) return false;
  op->operand[k] = PEN_NONE;
  return true;
}
static bool extra_operand(struct part *p) {
  struct pen_op *op = some_op(p);
  if (!op || pen_signature_of(op->kind)->operand_count == PEN_OPERANDS_MAX) return false;
  op->operand[pen_signature_of(op->kind)->operand_count] = 0;
  return true;
}
static bool no_tensor(struct part *p) {
  struct pen_op *op = some_op(p);
  if (op) op->operand[0] = p->tables->tensor_count;
  return op;
}
static bool wrong_dim(struct part *p) {
  struct pen_op *op = some_op(p);
  if (op) op->dim[0]++;
  return op;
}
static bool wrong_dtype(struct part *p) {
  struct pen_op *op = some_op(p);
  if (!op || op->operand[0] == PEN_NONE) return false;
  WRITABLE(struct pen_tensor, &p->tables->tensors[op->operand[0]])->dtype ^= 1;
  return true;
}
static bool wrong_kind_of_op(struct part *p) {
  struct pen_op *op = some_op(p);
  if (op) op->kind = PEN_OP_COUNT;
  return op;
}
static bool small_workspace(struct part *p) {
  for (uint32_t op = 0; op < p->tables->op_count; op++)
    if (p->tables->ops[op].workspace != PEN_NONE) {
      ops_of(p)[op].workspace = draw(p->seed, 2) ? PEN_NONE : ops_of(p)[op].operand[0];
      return true;
    }
  return false;
}
static bool swapped_gradients(struct part *p) { /* two weights' gradients: one gets both, the other none */
  uint32_t first = PEN_NONE;
  for (uint32_t op = 0; op < p->tables->op_count; op++) {
    struct pen_op *at = ops_of(p) + op;
    if (at->kind != PEN_OP_LINEAR_DW) continue;
    if (first == PEN_NONE) first = at->operand[2];
    if (first == at->operand[2] || p->tables->tensors[first].bytes != p->tables->tensors[at->operand[2]].bytes) continue;
    at->operand[2] = first;
    return true;
  }
  return false;
}
static bool dropped_op(struct part *p) { /* the last, which adds to a gradient */
  for (unsigned tries = 0; tries < 50; tries++) {
    struct pen_program *program = WRITABLE(struct pen_program, &p->tables->programs[draw(p->seed, p->tables->program_count)]);
    if (program->op_count == 0) continue;
    const struct pen_op *op = ops_of(p) + program->first_op + program->op_count - 1;
    if (!pen_signature_of(op->kind)->operand[pen_signature_of(op->kind)->input_count].accumulates) continue;
    program->op_count--;
    return true;
  }
  return false;
}
static bool written_weight(struct part *p) {
  for (uint32_t op = 0; op < p->tables->op_count; op++) {
    struct pen_op *at = ops_of(p) + op;
    if (at->kind != PEN_OP_LINEAR) continue;
    for (uint32_t tensor = 0; tensor < p->tables->tensor_count; tensor++)
      if (p->tables->tensors[tensor].base == PEN_BASE_PERSISTENT && p->tables->tensors[tensor].bytes == p->tables->tensors[at->operand[3]].bytes &&
          tensor != at->operand[1] && !strchr(p->tables->tensors[tensor].name, '\'')) {
        at->operand[3] = tensor;
        return true;
      }
  }
  return false;
}
static bool ops_beyond(struct part *p) {
  struct pen_program *program = WRITABLE(struct pen_program, &p->tables->programs[draw(p->seed, p->tables->program_count)]);
  program->op_count = p->tables->op_count + 1;
  return true;
}

/* ---- defects of stages and weights ---- */

static bool shared_weight(struct part *p) {
  uint32_t index = (uint32_t)draw(p->seed, p->plan->weight_count);
  struct pen_weight *weight = WRITABLE(struct pen_weight, &p->plan->weights[index]);
  weight->exp_avg_offset = weight->exp_avg_sq_offset;
  return true;
}
static bool moved_weight(struct part *p) {
  struct pen_weight *weight = WRITABLE(struct pen_weight, &p->plan->weights[draw(p->seed, p->plan->weight_count)]);
  weight->value_offset += 64;
  return true;
}
static bool wrong_stage(struct part *p) {
  struct pen_stage *stage = WRITABLE(struct pen_stage, &p->profile->stages[1 + draw(p->seed, p->plan->stage_count - 1)]);
  stage->input = (stage->input + 1) % p->profile->ranks[stage->rank].tensor_count;
  return true;
}
static bool no_constant(struct part *p) {
  if (p->tables->start_op_count == 0) return false;
  p->tables->start_op_count = 0;
  return true;
}

static const struct {
  const char *name;
  bool (*apply)(struct part *part);
  const char *reasons[8];
} defects[] = {
    {"wrong bytes", wrong_bytes, {"bytes, but the tensor"}},
    {"wrong sequence", wrong_sequence, {"its message has sequence"}},
    {"wrong source", wrong_source, {"its message leaves from"}},
    {"wrong home", wrong_home, {"its message's home is at"}},
    {"wrong channel", wrong_channel, {"but its channel is from"}},
    {"wrong message", wrong_message, {"which is another's"}},
    {"wrong counts", wrong_counts, {"counts"}},
    {"wrong credit", wrong_credit, {"it gives credit"}},
    {"wrong slot", wrong_slot, {"may come there already", "but its bytes hold", "step before"}},
    {"overlap", overlap, {"but its bytes hold", "scratch of action", "in the same bytes", "lies on it"}},
    {"shifted block", shifted, {"but its bytes hold", "scratch of action", "nothing has written", "outside", "lies on it", "in the same"}},
    {"scratch over kept", scratch_over_kept, {"in the same bytes", "lies on it", "scratch of action", "outside", "hold"}},
    {"output elsewhere", output_elsewhere, {"but what it sends is made at", "hold", "outside", "lies on it", "in the same bytes", "nothing has"}},
    {"scratch in the window", into_window, {"outside the activation part"}},
    {"outside the arena", outside_arena, {"outside the activation part", "do not follow"}},
    {"small window", small_window, {"is outside the window", "outside the window"}},
    {"frame not aligned", crooked_frame, {"its frame's scratch stands at"}},
    {"tensor not aligned", crooked_tensor, {"not a multiple of"}},
    {"wrong loss entry", wrong_loss, {"of the loss table"}},
    {"wrong program", wrong_program, {"of another stage or kind"}},
    {"wrong frame", wrong_frame, {"but its bytes hold", "scratch of action", "nothing has written", "may come", "but rank", "step before", "is made at"}},
    {"dropped row", dropped, {"is missing"}},
    {"dropped wait", dropped_wait, {"is missing"}},
    {"dropped publish", dropped_publish, {"PUBLISH is missing"}},
    {"dropped update", dropped_update, {"UPDATE must come after"}},
    {"dropped gather", dropped_gather, {"GATHER does not come before", "GATHER must come after"}},
    {"wrong output", wrong_output, {"a second time", "nothing has written", "nothing in this program", "hold", "in the same bytes", "by message", "lies on it", "overwritten"}},
    {"input made later", later_input, {"nothing in this program has written", "lies on it"}},
    {"missing operand", missing_operand, {"is missing"}},
    {"extra operand", extra_operand, {"more operands than its signature"}},
    {"no such tensor", no_tensor, {"is tensor"}},
    {"wrong dim", wrong_dim, {"bytes, but"}},
    {"wrong dtype", wrong_dtype, {"is i32, but", "is f32, but", "is f64, but", "bytes of"}},
    {"no such op", wrong_kind_of_op, {"there is no kind"}},
    {"small workspace", small_workspace, {"its workspace has not"}},
    {"gradient added to another", swapped_gradients, {"twice for microbatch", "lacks microbatch"}},
    {"gradient not added", dropped_op, {"lacks microbatch"}},
    {"weight written", written_weight, {"which only UPDATE may"}},
    {"ops beyond the table", ops_beyond, {"beyond the table"}},
    {"weights overlap", shared_weight, {"overlaps"}},
    {"weight moved", moved_weight, {"no weight, gradient or constant", "overlaps"}},
    {"wrong stage tensor", wrong_stage, {"counts from", "bytes of"}},
    {"no constant", no_constant, {"no weight, gradient or constant"}},
};
enum { DEFECTS = sizeof defects / sizeof defects[0] };

static void made_plans_are_accepted(void **state) {
  (void)state;
  for (size_t which = 0; which < SHAPES; which++) {
    struct pen_problem problem = {.rank = PEN_NONE, .action = PEN_NONE};
    if (!pen_verify(shape_plan(which), &problem))
      fail_msg("%s %s: rank %u row %u: %s", shapes[which].family, shapes[which].schedule, problem.rank, problem.action, problem.reason);
    pen_free_all();
  }
}

static void defects_are_rejected(void **state) {
  (void)state;
  uint64_t seed = 31415926;
  unsigned total = 0;
  for (size_t which = 0; which < DEFECTS; which++) {
    unsigned applied = 0;
    for (unsigned round = 0; round < 6 * SHAPES; round++) {
      uint64_t here = seed;
      struct pen_problem problem = {.rank = PEN_NONE, .action = PEN_NONE};
      struct part part = some_part(shape_plan(round % SHAPES), &seed);
      if (defects[which].apply(&part)) {
        applied++;
        bool accepted = pen_verify(part.plan, &problem), known = false;
        for (size_t n = 0; n < 8 && defects[which].reasons[n]; n++) known |= strstr(problem.reason, defects[which].reasons[n]) != NULL;
        if (accepted || !known)
          fail_msg("%s, seed %lu, %s %s: %s", defects[which].name, (unsigned long)here, shapes[round % SHAPES].family,
                   shapes[round % SHAPES].schedule, accepted ? "accepted" : problem.reason);
      }
      pen_free_all();
    }
    if (applied == 0) fail_msg("%s was never applied", defects[which].name);
    total += applied;
  }
  print_message("# %u defects of %u kinds rejected\n", total, (unsigned)DEFECTS);
}

/* Each credit that layout gives is needed (or almost: it does not count what credits tell), and one taken away is missed. */
static void needed_credits_are_missed(void **state) {
  (void)state;
  unsigned missed = 0, next_step = 0, needless = 0;
  for (size_t which = 0; which < SHAPES; which++) {
    uint32_t count = shape_plan(which)->profiles[0].message_count;
    pen_free_all();
    for (uint32_t index = 0; index < count; index++) {
      struct pen_problem problem = {.rank = PEN_NONE, .action = PEN_NONE};
      struct pen_plan *plan = shape_plan(which);
      struct pen_message *message = WRITABLE(struct pen_message, &plan->profiles[0].messages[index]);
      if (message->credit != PEN_NONE) {
        elide(&plan->profiles[0], message);
        if (pen_verify(plan, &problem)) needless++;
        else if (strstr(problem.reason, "of the next step may come there already")) next_step++;
        else if (strstr(problem.reason, "may come there already")) missed++;
        else fail_msg("%s %s, message %u: %s", shapes[which].family, shapes[which].schedule, index, problem.reason);
      }
      pen_free_all();
    }
  }
  print_message("# credits taken away: %u missed, %u missed from the next step, %u needless\n", missed, next_step, needless);
  assert_true(missed > 0 && next_step > 0);
}

static void signatures_parse(void **state) {
  (void)state;
  struct pen_signature signature;
  for (int kind = 0; kind < PEN_OP_COUNT; kind++) assert_true(pen_signature_of(kind)->operand_count > 0);
  const struct pen_signature *dx = pen_signature_of(PEN_OP_LINEAR_DX);
  int64_t dim[PEN_DIMS_MAX] = {2, 3, 5};
  assert_int_equal(pen_signature_operand(dx, "dx"), 3);
  assert_int_equal(dx->operand[3].alias, 2);
  assert_true(dx->operand[2].optional && dx->operand[3].output && !dx->operand[2].output);
  assert_int_equal(pen_operand_bytes(&dx->operand[1], dim), 3 * 5 * 4);
  assert_true(pen_signature_flops(dx, dim) == 2.0 * 2 * 3 * 5);
  int64_t huge[PEN_DIMS_MAX] = {INT64_MAX, INT64_MAX, INT64_MAX};
  assert_true(pen_operand_bytes(&dx->operand[1], huge) == UINT64_MAX);
  assert_true(pen_signature_of(PEN_OP_LINEAR_DW)->operand[2].accumulates);
  assert_int_equal(pen_signature_of(PEN_OP_CROSS_ENTROPY)->operand[2].dtype, PEN_F64);
  static const char *const bad[] = {"x[rows] y[rows]", "x -> y[rows]", "x[row] -> y[rows]", "x[rows] -> x[rows]", "x[rows]:f31 -> y[rows]",
                                    "x[rows] -> y[rows]@z", "x[rows]@y -> y[rows]", "x[rows -> y[rows]", "x[rows]? -> y[rows]", "->"};
  for (size_t index = 0; index < sizeof bad / sizeof bad[0]; index++)
    if (!pen_signature_parse(&signature, "rows", "", bad[index])) fail_msg("\"%s\" parses", bad[index]);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(made_plans_are_accepted),
      cmocka_unit_test(defects_are_rejected),
      cmocka_unit_test(needed_credits_are_missed),
      cmocka_unit_test(signatures_parse),
  };
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  pen_free_all();
  return failed != 0;
}
